/**
 * The bulk thread: the database, bodies of megabytes, scans of folders and the taking of items live
 * here, so that none of it holds up the thread that serves HTTP. The images themselves are read and
 * inferred by the worker threads.
 */
import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { workerData } from "node:worker_threads";
import { givingBack } from "../addon/idle.js";
import { backOff, spread, type BackOff } from "../base/back-off.js";
import { durations } from "../base/durations.js";
import { RadserveError } from "../base/errors.js";
import { createLog, faultForLog } from "../base/log.js";
import { ProcessMemory } from "../base/process-memory.js";
import { onPort } from "../base/remote.js";
import { answerOwner } from "../base/service-thread.js";
import { VERSION } from "../base/version.js";
import { within } from "../base/waiting.js";
import { nodeId, nodePlace } from "../files/node-id.js";
import { RunningClock, runningClockOf } from "../files/running-clock.js";
import type { KnownModels } from "../models/entry.js";
import { identitiesOf } from "../models/identity.js";
import { OPERATIONS, stateOfJob, submitJob } from "./api.js";
import { asUnavailable, isTableLoss, openDatabase, type Database } from "./database.js";
import { depth, hindrancesOf } from "./leases.js";
import { databasesOf, type JobsFeature } from "./feature.js";
import { KnownJobs, lostJobs } from "./known-jobs.js";
import type { JobsAside, JobsOwner, JobsThread, BulkThreadOptions } from "./messages.js";
import { keepLoss, migrate } from "./migrations.js";
import { Runner } from "./runner.js";
import { Scanner } from "./scanner.js";
import { BulkUnavailable, DatabaseTroubles } from "./database-trouble.js";
import { allNodes } from "./job-details.js";
import { NO_FACTS } from "./nodes.js";
import { pinsFor } from "./pins.js";

const options = workerData as BulkThreadOptions;
const { config, roots } = options;
const log = createLog(config.log_level);
const works = config.role !== "api";
const memory = new ProcessMemory(options.memory);

/**
 * How long a call waits for a database that is being made or started. One that cannot be used shows
 * within seconds.
 */
const PATIENCE_MS = 60_000;
/** Nodes whose shared database is away do not all come back at the same moment. */
const OPENING: BackOff = { first: 250, most: 10_000 };

/** Characters of a body. What is made of a longer one goes back when nothing follows. */
const LARGE_TEXT = 256 * 1024;
const rested = givingBack();

/** What features do here, once the thread's entry has given it. */
let giveFeatures: (features: readonly JobsFeature[]) => void;
const features = new Promise<readonly JobsFeature[]>((resolve) => (giveFeatures = resolve));

/** Works with these features. */
export const serveJobs = (all: readonly JobsFeature[]): void => giveFeatures(all);

const methods: JobsThread = {
  perform: (name, call) => {
    const { perform, wakes } = OPERATIONS[name];
    const answer = answered(() => perform(call, context), wakes);
    return call.body.length > LARGE_TEXT ? answer.finally(rested) : answer;
  },
  submit: (caller, request) => answered(() => submitJob(caller, request, context), true),
  answerOn: (port) => void onPort(port, aside),
  useModels(known, ready) {
    resolveModels(known);
    models = Promise.resolve(known);
    modelsReady = ready;
    facts = { ...facts, models: identitiesOf(known.entries) };
    state.parts?.runner.wake();
  },
  useFacts(own) {
    facts = { ...facts, ...own };
  },
  ended: (id, outcome) => void state.parts?.runner.ended(id, outcome),
  stop() {
    state.stopped = true;
    state.parts?.runner.stop();
  },
  close,
};

const aside: JobsAside = {
  stateOf: (caller, jobId) => answered(() => stateOfJob(caller, jobId, context), false),
};

const { note: owner } = answerOwner<JobsOwner>(methods);

interface BulkParts {
  database: Database;
  scanner: Scanner;
  runner: Runner;
}

/**
 * Resolves when the models were loaded for the first time; then each loading gives another promise.
 */
let models: Promise<KnownModels>;
let resolveModels: (known: KnownModels) => void;
models = new Promise((resolve) => (resolveModels = resolve));
let modelsReady = false;
let facts = NO_FACTS;

const state: { parts?: BulkParts; fault?: unknown; stopped: boolean } = { stopped: false };
const troubles = new DatabaseTroubles();
const closing = new AbortController();
const clock = new RunningClock(runningClockOf(config));
const known = new KnownJobs(path.join(config.state_dir, "bulk-jobs.json"));

async function open(): Promise<BulkParts> {
  const given = await features;
  const database = await openDatabase(config, log, databasesOf(given));
  const shared = { config, roots, database, log, troubles };
  const scanner = new Scanner({
    ...shared,
    clock,
    works,
    instance: () => state.parts?.runner.instance,
    onLost: () => void repair([]).catch(() => undefined),
    models: () => models,
    memory,
    onFound: () => state.parts?.runner.wake(),
  });
  try {
    await recognise(database);
    await scanner.start();
    const node = await nodeId(config.state_dir);
    const place = await nodePlace(config.state_dir);
    const runner = new Runner({
      ...shared,
      window: options.window,
      instance: () => ({
        id: randomUUID(),
        node,
        place,
        name: config.node_name,
        release: VERSION,
        address: options.address,
        process: options.processId,
        afterCrash: options.crashed,
        afterMemory: options.forMemory,
        works,
      }),
      owner,
      known,
      ready: () => modelsReady,
      facts: () => facts,
      pinsOf: async (request) => pinsFor(request, await models),
      repair,
      recognise: () => recognise(database),
      entered: tellFigures,
      writeReport: given
        .map((feature) => feature.reports?.(config))
        .find((one) => one !== undefined),
    });
    runner.start();
    return { database, scanner, runner };
  } catch (error) {
    await scanner.stop().catch(() => undefined);
    await database.close().catch(() => undefined);
    throw asUnavailable(error, database.connection);
  }
}

/** The file that keeps by which row this node knows the tables. */
const originFile = path.join(config.state_dir, "bulk-origin");

/**
 * Brings the tables up to date. If they are not the tables that this node knew, it logs that
 * earlier jobs are gone.
 * @param jobs of which it is known that they are lost
 */
async function recognise({ pool }: Database, jobs: readonly string[] = []): Promise<void> {
  const { origin, made, setAside } = await migrate(pool, await nodeId(config.state_dir));
  const known = (await readFile(originFile, "utf8").catch(() => "")).trim();
  if (setAside !== undefined || (known !== "" && known !== origin)) {
    // Whoever reads the log finds it in answers
    if (made) await keepLoss(pool);
    log.error(
      {
        lost_jobs: [...new Set([...jobs, ...(setAside?.jobs ?? [])])],
        ...(setAside === undefined ? {} : { kept_as: setAside.schema }),
      },
      "the bulk tables were lost, or DATABASE_URL names others; they were made again, and jobs of before are gone: send them again, only what is missing is computed",
    );
  }
  if (known !== origin) await writeFile(originFile, `${origin}\n`, { mode: 0o600 });
}

let repairing: Promise<void> | undefined;

/** Makes tables that are gone anew; once, whoever asks meanwhile. */
function repair(jobs: readonly string[]): Promise<void> {
  repairing ??= makeAgain(jobs).finally(() => (repairing = undefined));
  return repairing;
}

async function makeAgain(jobs: readonly string[]): Promise<void> {
  const { parts } = state;
  if (parts === undefined || closing.signal.aborted) return;
  const { database, scanner } = parts;
  await recognise(database, jobs);
  restarting ??= restartPatiently(scanner).finally(() => (restarting = undefined));
}

let restarting: Promise<void> | undefined;

/** Starts the scans again, as often as that fails. Images go on meanwhile. */
async function restartPatiently(scanner: Scanner): Promise<void> {
  for (let failures = 1; !closing.signal.aborted; failures++) {
    try {
      await scanner.restart();
      return;
    } catch (error) {
      log.error(
        { fault: faultForLog(error) },
        "the queue of scans cannot be started again; trying again",
      );
    }
    await rest(failures);
  }
}

/** Until something is tried again that has failed so often, or this thread is to end. */
async function rest(failures: number): Promise<void> {
  const wait = spread(backOff(failures, OPENING));
  await delay(wait, undefined, { signal: closing.signal }).catch(() => undefined);
}

let attempt = open();

/** Opens the queue, as often as that fails. */
async function openPatiently(): Promise<BulkParts> {
  for (let failures = 1; ; failures++) {
    try {
      const parts = await attempt;
      if (state.stopped) parts.runner.stop();
      state.parts = parts;
      delete state.fault;
      tellFigures();
      return parts;
    } catch (error) {
      state.fault = error;
      log.error({ fault: faultForLog(error) }, "the bulk queue cannot be opened; trying again");
      await rest(failures);
    }
    if (closing.signal.aborted) throw unavailable();
    attempt = open();
  }
}
const opened = openPatiently();
opened.catch(() => undefined);

/** The error that a client is told if the database cannot be had. */
function unavailable(): RadserveError {
  if (state.fault instanceof RadserveError) return state.fault;
  return new BulkUnavailable("The bulk queue cannot be opened.", "The server's log says why.", {
    cause: state.fault,
  });
}

/** The parts. A database that starts is waited for; one that fails is told at once. */
async function available(): Promise<BulkParts> {
  if (state.parts === undefined && state.fault === undefined)
    await within(attempt, PATIENCE_MS).catch(() => undefined);
  if (state.parts === undefined) throw unavailable();
  return state.parts;
}

const context = {
  config,
  roots,
  known,
  destinations: options.destinations,
  troubles,
  models: () => models,
  database: async () => (await available()).database,
  scanner: async () => (await available()).scanner,
};

/** @param wakes nodes may have something to do, or to stop, after it */
async function answered<T>(work: () => Promise<T>, wakes: boolean): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    if (isTableLoss(thrown)) void repair([]).catch(() => undefined);
    throw state.parts === undefined
      ? thrown
      : asUnavailable(thrown, state.parts.database.connection);
  } finally {
    // Other nodes see it when they look next, within seconds
    if (wakes) {
      state.parts?.scanner.wake();
      state.parts?.runner.wake(true);
    }
  }
}

async function close(): Promise<void> {
  closing.abort();
  clearInterval(figures);
  await known.keep();
  const parts = await opened.catch(() => undefined);
  if (parts !== undefined) {
    await parts.scanner.stop().catch(() => undefined);
    await parts.runner.close();
    await parts.database.close();
  }
}

const reasonOf = (error: unknown) =>
  error instanceof BulkUnavailable ? error.reason : "database_unavailable";

function tellFigures(): void {
  const { parts, fault } = state;
  if (parts === undefined) {
    if (fault !== undefined) owner.trouble(reasonOf(fault));
    return;
  }
  const { database, runner } = parts;
  const { pool } = database;
  Promise.all([
    depth(pool),
    allNodes(pool),
    hindrancesOf(pool, runner.instance?.id),
    lostJobs(pool),
  ]).then(
    ([found, nodes, left_alone, lost]) => {
      const trouble = troubles.ofAll?.code ?? null;
      const self = runner.instance?.id ?? null;
      owner.figures({ ...found, nodes, left_alone, lost, trouble, self }, runner.takeCounts());
    },
    (error: unknown) => owner.trouble(reasonOf(asUnavailable(error, database.connection))),
  );
}

const figures = setInterval(tellFigures, durations.bulkFigures);
