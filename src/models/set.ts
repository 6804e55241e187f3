/** All models of a server, and their reload while it runs. */
import { basename } from "node:path";
import type { Engine } from "../engine/engine.js";
import { errors, type RadserveError, type ErrorObject } from "../base/errors.js";
import { missingOf, nativeIdsOf, type ModelEntry } from "./entry.js";
import { serves, undoMisfits, withoutRegion, type Reloaded } from "./fitting.js";
import type { Provider } from "../manifest/providers.js";
import { idsOf, loadReport, modelFolders, type Outcome } from "./load.js";
import { readModelFolder, type FolderReport } from "./read.js";
import type { ReloadReport } from "./reload-note.js";
import type { ModelTrials } from "./trial.js";

/** The log that loading writes to; pino's logger is one. */
export interface ModelLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** A model that took a process with it. */
export interface FatalModel {
  name: string;
  /** What the process did with it; "ran" only where the system ended the process for memory. */
  during: "loaded" | "ran";
}

export interface LoadModelsOptions {
  /** Holds a folder for each model. */
  directory: string;
  engine: Engine;
  /** Providers in order of preference; each model gets the first that its manifest allows. */
  providers: readonly Provider[];
  log: ModelLog;
  /**
   * Models that are not loaded at the start, because a process ended while it loaded them, or ran
   * them and they are not required. A reload tries them again.
   */
  fatal?: readonly FatalModel[];
  /** Told before a model is read and loaded, and with undefined after; loading waits for it. */
  loading?: (name: string | undefined) => Promise<void>;
  /**
   * Counts the bytes that loading a model takes, those of its first runs among them; what it
   * returns gives them back.
   */
  hold?: (bytes: number, runs: number) => () => void;
  /** Models are tried in a process of their own before they are loaded here. */
  trials?: ModelTrials;
  /**
   * Most bytes that loading and running a model may take: all that there is before others serve,
   * or what may be taken from those.
   */
  mostBytes?: (besideOthers: boolean) => number;
  /** Nobody wants the models any more: what is loaded is ended, and the rest is not begun. */
  stop?: AbortSignal;
  /**
   * How long models that are not required may take together, in milliseconds. Those that are not
   * loaded by then are postponed, so that no model that the server can do without keeps it from
   * being ready.
   */
  optionalMs?: number;
}

/**
 * Loading a model that was not tried takes so many times the size of its files, what it keeps
 * included: the most that was measured (6.0, for convolutions whose weights are in the graph;
 * bench/RESULTS.md, "Loading a model").
 */
const LOADING_FACTOR = 7;

/**
 * A model that does not serve as its folder says, and why. Its manifest may not even be readable.
 */
export interface ModelProblem {
  name: string;
  required: boolean;
  error: ErrorObject;
}

/** The problems of folders whose manifest cannot be read: these models have no entry. */
export function withoutEntry<T extends { name: string }>(models: {
  entries: readonly ModelEntry[];
  problems: readonly T[];
}): T[] {
  const known = new Set(models.entries.map(({ name }) => name));
  return models.problems.filter(({ name }) => !known.has(name));
}

export interface ReloadOptions {
  /**
   * Called when the new entries are in place and before the old sessions end: resolves once nothing
   * new is started with the old entries, for example when every worker has the new ones.
   */
  swapped?: (entries: readonly ModelEntry[]) => Promise<void>;
}

export interface ModelSet {
  /** In the order of names; replaced as a whole by a reload, so keep no copy. */
  readonly entries: readonly ModelEntry[];
  /** Every required model is loaded and warm, and its canary passed. */
  ready(): boolean;
  readonly problems: readonly ModelProblem[];
  /** Some models were not loaded at the start for want of time: they need a reload. */
  readonly hasPostponed: boolean;
  /**
   * Loads, warms and checks what has changed beside what serves, then swaps model by model; one
   * that fails keeps its old version. Reloads run one after the other.
   * @throws RadserveError model_unavailable if the directory cannot be read; then nothing has
   * changed
   */
  reload(options?: ReloadOptions): Promise<ReloadReport>;
  /** Releases the sessions. Idempotent. */
  close(): Promise<void>;
}

interface State {
  outcomes: Outcome[];
  /** Errors of reloads whose old version goes on; cleared by the next good one. */
  stale: Map<string, ErrorObject>;
}

/**
 * Reads, checks, loads and warms every model of a directory. A model that fails is an entry in
 * state "failed" (or only a problem, if its manifest cannot be read); the others go on.
 * @throws RadserveError model_unavailable if the directory itself cannot be read
 */
export async function loadModels(options: LoadModelsOptions): Promise<ModelSet> {
  const { directory, log } = options;
  const outcomes: Outcome[] = [];
  const reports: FolderReport[] = [];
  for (const folder of await modelFolders(directory)) {
    const name = basename(folder);
    // Large files take long to be read, and what reads graphs is native code: both count as its
    // loading.
    const loading = fatalDuring(options, name) === "loaded" ? undefined : options.loading;
    await loading?.(name);
    reports.push(await readModelFolder(folder));
    await loading?.(undefined);
  }
  const refusedOf = (report: FolderReport) =>
    tookProcess(options, report) ?? withoutRegion(report, reports);
  const tell = (outcome: Outcome) => {
    logOutcome(log, outcome);
    outcomes.push(outcome);
  };
  for (const report of reports.filter(({ required }) => required))
    tell(await loadOne(options, report, { refused: refusedOf(report), besideOthers: false }));
  const loadOptional = optionalLoader(options);
  for (const report of reports.filter(({ required }) => !required))
    tell(await loadOptional(report, refusedOf(report)));
  options.trials?.rest();
  if (outcomes.length === 0)
    log.warn({}, "No models: the models directory holds no folder of a model");
  outcomes.sort((a, b) => (a.name < b.name ? -1 : 1));
  return modelSet(options, { outcomes, stale: new Map() });
}

/**
 * Loads models that the server can do without, one after the other, and postpones those that are
 * not loaded by the time that the start waits for all of them.
 */
function optionalLoader(options: LoadModelsOptions) {
  const { optionalMs, stop } = options;
  const over = optionalMs === undefined ? undefined : AbortSignal.timeout(optionalMs);
  const signals = [over, stop].filter((signal) => signal !== undefined);
  const inTime = { ...options, stop: AbortSignal.any(signals) };
  const isOver = () => over?.aborted === true && stop?.aborted !== true;
  return async (report: FolderReport, refused: RadserveError | undefined): Promise<Outcome> => {
    const load = (given: LoadModelsOptions, why?: RadserveError) =>
      loadOne(given, report, { refused: why, besideOthers: false });
    if (refused !== undefined || report.problems.length > 0) return load(options, refused);
    const outcome = isOver() ? undefined : await load(inTime);
    if (outcome !== undefined && (outcome.error === undefined || !isOver())) return outcome;
    const why = errors.model_unavailable(
      `Model ${report.name}: it was not ready in the time that a start waits for models that are not required. It is tried beside the others now, and serves as soon as it is in order.`,
    );
    return { ...(await load(options, why)), postponed: true };
  };
}

/** During what a model took a process with it; undefined where it did not. */
const fatalDuring = ({ fatal }: LoadModelsOptions, name: string) =>
  fatal?.find((one) => one.name === name)?.during;

/** Why a model that took a process with it is left out; undefined where it is not. */
function tookProcess(
  options: LoadModelsOptions,
  { name, required }: FolderReport,
): RadserveError | undefined {
  const during = fatalDuring(options, name);
  if (during === "loaded")
    return errors.model_unavailable(
      "The server's process ended while it loaded this model, so it runs without it. The log says why. Correct or replace the model, then run radserve models reload, or restart the server.",
    );
  if (during === undefined || required) return undefined;
  return errors.model_unavailable(
    "Memory ran out while this model ran, and the system ended the server's process, so it runs without this model. The log names the requests. Give the server more memory, or correct or replace the model; then run radserve models reload, or restart the server.",
  );
}

async function loadOne(
  options: LoadModelsOptions,
  report: FolderReport,
  { refused, besideOthers }: { refused: RadserveError | undefined; besideOthers: boolean },
): Promise<Outcome> {
  const { engine, providers, loading, stop, trials } = options;
  if (refused !== undefined) return loadReport(report, engine, providers, { refused });
  const most = options.mostBytes?.(besideOthers) ?? Infinity;
  await loading?.(report.name);
  const files = (report.model?.stamps ?? []).reduce((sum, { bytes }) => sum + bytes, 0);
  let giveBack = options.hold?.(trials === undefined ? LOADING_FACTOR * files : most, 0);
  try {
    const limits = { bytes: most, besideOthers, stop };
    const tried = await trials?.of(report, limits);
    if (tried?.refused !== undefined)
      return await loadReport(report, engine, providers, { refused: tried.refused });
    giveBack?.();
    giveBack = options.hold?.(tried?.bytes ?? LOADING_FACTOR * files, tried?.runs ?? 0);
    return await loadReport(report, engine, providers, { stop });
  } finally {
    giveBack?.();
    await loading?.(undefined);
  }
}

function modelSet(options: LoadModelsOptions, state: State): ModelSet {
  let entries = entriesOf(state.outcomes);
  let queue: Promise<unknown> = Promise.resolve();
  let closed = false;
  const apply = async (reloadOptions: ReloadOptions): Promise<ReloadReport> => {
    const { next, report, retired } = await beside(options, state);
    state.outcomes = next;
    entries = entriesOf(next);
    for (const name of [
      ...report.added,
      ...report.replaced,
      ...report.removed,
      ...report.unchanged,
    ])
      state.stale.delete(name);
    for (const { name, error, kept } of report.failed) if (kept) state.stale.set(name, error);
    try {
      await reloadOptions.swapped?.(entries);
    } finally {
      for (const id of retired) await options.engine.unload(id);
    }
    return report;
  };
  return {
    get entries() {
      return entries;
    },
    ready() {
      const missing = options.engine.missing();
      return state.outcomes.every(
        ({ required, entry }) =>
          !required || (entry?.state === "ready" && missingOf(entry, missing) === undefined),
      );
    },
    get problems() {
      return problemsOf(state, options.engine.missing());
    },
    get hasPostponed() {
      return state.outcomes.some(({ postponed }) => postponed === true);
    },
    reload(reloadOptions = {}) {
      const run = queue.then(() => apply(reloadOptions));
      queue = run.catch(() => undefined);
      return run;
    },
    async close() {
      if (closed) return;
      closed = true;
      await queue;
      for (const id of entries.flatMap(nativeIdsOf)) await options.engine.unload(id);
    },
  };
}

function entriesOf(outcomes: readonly Outcome[]): readonly ModelEntry[] {
  return outcomes.flatMap((o) => (o.entry === undefined ? [] : [o.entry]));
}

/** @param missing why models could not come back from idling, by their numbers */
function problemsOf(state: State, missing: ReadonlyMap<number, string>): ModelProblem[] {
  return state.outcomes.flatMap(({ name, required, error, entry }) => {
    const message = entry && missingOf(entry, missing);
    const away =
      message === undefined ? undefined : ({ error: "model_unavailable", message } as const);
    const found = error ?? away ?? state.stale.get(name);
    return found === undefined ? [] : [{ name, required, error: found }];
  });
}

/** Loads what has changed beside the old. Nothing of the set changes here. */
async function beside(options: LoadModelsOptions, state: State) {
  const { directory, log } = options;
  const old = new Map(state.outcomes.map((o) => [o.name, o]));
  const reports: FolderReport[] = [];
  for (const folder of await modelFolders(directory)) reports.push(await readModelFolder(folder));
  const reloaded: Reloaded[] = [];
  for (const read of reports) {
    const { name } = read;
    const before = old.get(name);
    old.delete(name);
    const refused = withoutRegion(read, reports);
    if (
      refused === undefined &&
      before !== undefined &&
      read.problems.length === 0 &&
      sameModel(before, read.model)
    ) {
      reloaded.push({ name, before, now: before });
      continue;
    }
    const outcome = await loadOne(options, read, { refused, besideOthers: true });
    logOutcome(log, outcome);
    const { error } = outcome;
    // Whoever switches a model off wants it to end, whatever its files are
    const isKept = error !== undefined && outcome.entry?.state !== "off" && serves(before);
    reloaded.push({
      name,
      before,
      now: isKept && before !== undefined ? before : outcome,
      ...(error === undefined ? {} : { error }),
    });
  }
  options.trials?.rest();
  const tellMisfit = (name: string, error: ErrorObject) =>
    log.error({ model: name, error }, `Model ${name} cannot serve beside the others`);
  const retired = [...undoMisfits(reloaded, tellMisfit), ...old.values()].flatMap(idsOf);
  const report: ReloadReport = {
    added: [],
    replaced: [],
    removed: [...old.keys()],
    unchanged: [],
    failed: [],
  };
  for (const { name, before, now, error } of reloaded) {
    if (error !== undefined) report.failed.push({ name, error, kept: now === before });
    else if (now === before) report.unchanged.push(name);
    else (before === undefined ? report.added : report.replaced).push(name);
    if (before !== undefined && now !== before) retired.push(...idsOf(before));
  }
  return { next: reloaded.map(({ now }) => now), report, retired };
}

/** The same manifest, files and site thresholds, and it serves (or is off) today. */
function sameModel(before: Outcome, now: { sha256: string; site: unknown } | undefined): boolean {
  const entry = before.entry;
  return (
    entry !== undefined &&
    before.error === undefined &&
    entry.sha256 === now?.sha256 &&
    JSON.stringify(entry.site) === JSON.stringify(now.site)
  );
}

function logOutcome(log: ModelLog, { name, entry, error, required }: Outcome): void {
  const fields = { model: name, version: entry?.version, sha256: entry?.sha256, required };
  if (error !== undefined) log.error({ ...fields, error }, `Model ${name} does not serve`);
  else if (entry?.state === "off") log.info(fields, `Model ${name} is off`);
  else
    log.info(
      {
        ...fields,
        provider: entry?.provider,
        session_bytes: entry?.sessions?.map(({ bytes }) => bytes),
      },
      `Model ${name} is ready`,
    );
}
