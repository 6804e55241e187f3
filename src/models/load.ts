/** From a checked folder to a model that runs: loaded, warm, and its canary passed. */
import { basename, join } from "node:path";
import { readdir, stat } from "node:fs/promises";
import type { Engine } from "../engine/engine.js";
import type { LoadedModel } from "../engine/types.js";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { asRadserveError, errors, RadserveError, type ErrorObject } from "../base/errors.js";
import { ending, warmUp } from "./canary.js";
import { nativeIdsOf, type ModelEntry } from "./entry.js";
import type { Problem } from "./explain.js";
import { fileStamps, resolveModelFile, type FileStamp } from "./files.js";
import { checkGraphs, type GraphLook } from "./graph.js";
import type { Manifest } from "../manifest/manifest.js";
import { unitsOf, type ModelUnit } from "../manifest/model-parts.js";
import type { Provider } from "../manifest/providers.js";
import { graphPaths, type FolderReport, type SoundModel } from "./read.js";

/**
 * Folders that are no models: manifests to be copied and completed, and what file systems make by
 * themselves.
 */
const NO_MODELS: readonly string[] = ["examples", "lost+found"];

/**
 * The outcome of loading a folder: an entry if its manifest could be read, and an error if it does
 * not serve.
 */
export interface Outcome {
  name: string;
  required: boolean;
  entry?: ModelEntry;
  error?: ErrorObject;
  /** The start did not wait for it. */
  postponed?: true;
}

/** The engine's numbers of what was loaded; none where it is off or failed. */
export const idsOf = ({ entry }: Outcome): readonly number[] =>
  entry === undefined ? [] : nativeIdsOf(entry);

/**
 * Folders of models, in the order of their names: every folder directly in the directory, but for
 * `examples`, `lost+found` and names that begin with a dot. What a folder holds does not matter
 * here: one whose model.json is missing, or that cannot even be looked at, may be a model that the
 * node must not be without.
 * @throws RadserveError model_unavailable if the directory cannot be read
 */
export async function modelFolders(directory: string): Promise<string[]> {
  let names: string[];
  try {
    names = await readdir(directory);
  } catch (error) {
    const code = errno(error) || "unknown reason";
    throw errors.model_unavailable(
      `Expected a readable folder of models, found ${code}. Set RADSERVE_MODELS_DIR to the folder that holds them.`,
    );
  }
  const folders = names
    .filter((name) => !NO_MODELS.includes(name) && !name.startsWith("."))
    .sort()
    .map((name) => join(directory, name));
  const kept = await Promise.all(folders.map(mayBeFolder));
  return folders.filter((_, i) => kept[i]);
}

/** False for what is surely no folder; a link whose target is away may have been one. */
const mayBeFolder = (path: string) =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => true,
  );

export interface LoadingOptions {
  /** Ends it before its time. */
  stop?: AbortSignal | undefined;
  /** Is told when the graphs have been looked at, before they are loaded. */
  looked?: (() => void) | undefined;
  /** It ran elsewhere, and is used at once: a graph without a canary is not warmed. */
  tried?: boolean | undefined;
}

/**
 * Loads what a folder holds; every failure becomes part of the outcome, so that the others go on.
 * @param refused why it is not loaded, whatever it holds
 */
export async function loadReport(
  report: FolderReport,
  engine: Engine,
  providers: readonly Provider[],
  { refused, ...loading }: LoadingOptions & { refused?: RadserveError | undefined } = {},
): Promise<Outcome> {
  const { name, model, required } = report;
  if (model === undefined) return { name, required, error: problemsError(name, report.problems) };
  if (model.manifest.release === "off") {
    const entry = entryOf(name, model, "off");
    if (report.problems.length === 0) return { name, required: false, entry };
  }
  try {
    if (refused !== undefined) throw refused;
    if (report.problems.length > 0)
      throw RadserveError.fromObject(problemsError(name, report.problems));
    const loaded = await loadSession(report.directory, model, engine, providers, loading);
    const entry = entryOf(name, model, "ready");
    const { id, provider, gpu, sessions, ids } = loaded;
    const place = gpu === undefined ? { provider } : { provider, gpu };
    const parts = model.manifest.parts === undefined ? {} : { partIds: ids };
    return { name, required, entry: { ...entry, nativeId: id, ...parts, ...place, sessions } };
  } catch (thrown) {
    const error = unavailable(name, thrown);
    const state = model.manifest.release === "off" ? "off" : "failed";
    return {
      name,
      required: required && state === "failed",
      entry: { ...entryOf(name, model, state), error },
      error,
    };
  }
}

function entryOf(name: string, model: SoundModel, state: ModelEntry["state"]): ModelEntry {
  const { manifest, sha256, site, thresholds } = model;
  return { name, version: manifest.version, sha256, manifest, site, thresholds, state };
}

/** The first of the server's providers that a manifest allows. */
export const providerOf = (
  { execution }: Pick<Manifest, "execution">,
  providers: readonly Provider[],
): Provider | undefined => providers.find((one) => execution.providers.includes(one));

/** A model as the engine has loaded it. */
export interface LoadedSession extends LoadedModel {
  /** The engine's numbers of all that was loaded: of the parts in their order, or its own alone. */
  ids: readonly number[];
}

/**
 * Ends all that loadSession loaded, for whoever closes the engine afterwards, which waits for it: a
 * run that was told to stop may go on for a while, and an unload waits for that.
 */
export function unloadSession(engine: Engine, { ids }: Pick<LoadedSession, "ids">): void {
  for (const id of ids) engine.unload(id).catch(() => undefined);
}

/** Faults of the graphs of a model beside its manifest, part by part where it has parts. */
export async function graphMistakes(
  directory: string,
  manifest: Manifest,
  look: GraphLook,
): Promise<Problem[]> {
  const problems: Problem[] = [];
  for (const [place, unit] of unitsOf(manifest).entries()) {
    const paths = await graphPaths(directory, unit.manifest);
    const found = await checkGraphs(unit.manifest, paths, look);
    const at = unit.part === undefined ? "" : `parts[${place}].`;
    problems.push(...found.map(({ path, message }) => ({ path: `${at}${path}`, message })));
  }
  return problems;
}

/**
 * Loads and warms one model and runs its canary; of a model of parts each of them, one after the
 * other. If that fails, or a file is no longer the one whose hash was taken, nothing stays loaded.
 */
export async function loadSession(
  directory: string,
  { manifest, stamps }: SoundModel,
  engine: Engine,
  providers: readonly Provider[],
  { stop, looked, tried = false }: LoadingOptions = {},
): Promise<LoadedSession> {
  const provider = providerOf(manifest, providers);
  if (provider === undefined)
    throw errors.model_unavailable(
      `execution.providers allows ${manifest.execution.providers.join(", ")}, and this server has ${providers.join(", ") || "none"} (RADSERVE_PROVIDERS)`,
    );
  stop?.throwIfAborted();
  const mistakes = await graphMistakes(directory, manifest, engine);
  looked?.();
  if (mistakes.length > 0)
    throw RadserveError.fromObject(problemsError(basename(directory), mistakes));
  const loaded: LoadedModel[] = [];
  try {
    for (const unit of unitsOf(manifest))
      loaded.push(await loadUnit(directory, unit, engine, provider, { stop, tried }));
    await checkStamps(directory, stamps);
  } catch (thrown) {
    for (const { id } of loaded) await engine.unload(id);
    throw thrown;
  }
  const [first] = loaded;
  if (first === undefined) throw new RangeError("A model has at least one graph");
  return {
    ...first,
    sessions: loaded.flatMap(({ sessions }) => sessions),
    ids: loaded.map(({ id }) => id),
  };
}

/** Loads and warms one graph, or the several of an ensemble. If that fails, it is not loaded. */
async function loadUnit(
  directory: string,
  { manifest, part }: ModelUnit,
  engine: Engine,
  provider: Provider,
  { stop, tried }: Pick<LoadingOptions, "stop" | "tried">,
): Promise<LoadedModel> {
  const [modelPath, ...others] = await graphPaths(directory, manifest);
  // Figures of the engine tell parts apart by their names
  const name = part === undefined ? manifest.name : `${manifest.name}:${part.name}`;
  const { version, inputs, outputs, batching, tiling } = manifest;
  const roles = manifest.roles?.map(({ role }) => role) ?? [];
  const { precision } = manifest.execution;
  const average = manifest.ensemble?.average;
  const described = { name, version, inputs, outputs, roles, precision, batching, tiling };
  const ensemble = average === undefined ? {} : { ensemble: { others, average } };
  const files = await Promise.all(
    manifest.files.map(async ({ path, sha256 }) => ({
      path: await resolveModelFile(directory, path),
      sha256,
    })),
  );
  // Parts run one after the other: where memory does not hold all, one makes room for the next
  const mayLeave = part !== undefined;
  const load = { modelPath, provider, files, mayLeave, ...described, ...ensemble };
  const loaded = await ending(
    engine,
    { what: "loading its graph", timeoutMs: durations.modelLoad, stop },
    (limits) => engine.load({ ...load, ...limits }),
  );
  if (tried === true && manifest.canary === undefined) return loaded;
  try {
    await warmUp(engine, loaded, manifest, directory, stop);
  } catch (thrown) {
    await engine.unload(loaded.id);
    throw thrown;
  }
  return loaded;
}

/** The runtime opens the files by their paths, after their hashes were taken. */
async function checkStamps(directory: string, before: readonly FileStamp[]): Promise<void> {
  const now = await fileStamps(directory, before);
  const changed = now.filter(({ stamp }, i) => stamp !== before[i]?.stamp).map(({ path }) => path);
  if (changed.length === 0) return;
  throw errors.model_unavailable(
    `${changed.join(", ")} changed while the model was loaded. Load it again when all its files are in place.`,
  );
}

function problemsError(name: string, problems: readonly Problem[]): ErrorObject {
  const [first, ...others] = problems;
  const more = others.length === 0 ? "" : ` And ${others.length} more.`;
  return {
    error: "model_unavailable",
    message: `Model ${name}: ${first?.path ?? ""}: ${first?.message ?? ""}.${more} \`radserve models check\` explains every mistake.`,
    details: { problems },
  };
}

/**
 * Makes any fault the model's error. An unforeseen fault keeps its text, because it is about files
 * of the operator.
 */
function unavailable(name: string, thrown: unknown): ErrorObject {
  const known = thrown instanceof RadserveError ? thrown : undefined;
  const isOwn = [`Model ${name}:`, `Model ${name} does not serve:`].some(
    (words) => known?.message.startsWith(words) === true,
  );
  if (known?.code === "model_unavailable" && isOwn) return known.toObject();
  const reason =
    known?.message ?? (thrown instanceof Error ? thrown.message : asRadserveError(thrown).message);
  return {
    error: "model_unavailable",
    message: `Model ${name} does not serve: ${reason}${/[.!?]$/.test(reason) ? "" : "."}`,
    ...(known?.details === undefined ? {} : { details: known.details }),
  };
}
