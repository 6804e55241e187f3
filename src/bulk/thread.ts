/**
 * The bulk thread: the database, bodies of megabytes, scans of folders and the taking of items live here, so that
 * none of it holds up the thread that serves HTTP. The images themselves are read and inferred by the worker threads.
 */
import { randomUUID } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { asRadserveError, RadserveError } from "../base/errors.js";
import { createLog, faultForLog } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { ProcessMemory } from "../base/process-memory.js";
import type { ModelEntry } from "../models/entry.js";
import { OPERATIONS, type OperationName } from "./api.js";
import type { BulkCall } from "./call.js";
import { asUnavailable, isTableLoss, openDatabase, type Database } from "./database.js";
import { depth } from "./leases.js";
import type { FromThread, ThreadOptions, ToThread } from "./messages.js";
import { keepLoss, migrate, type Migrated } from "./migrations.js";
import { Runner } from "./runner.js";
import { Scanner } from "./scanner.js";
import type { KnownModels } from "./submit.js";
import { BulkUnavailable, DatabaseTroubles } from "./database-trouble.js";
import { allBoxes } from "./waiting.js";

const options = workerData as ThreadOptions;
const { config, roots } = options;
const log = createLog(config.log_level);
const works = config.role !== "api";
const memory = new ProcessMemory(options.memory.counts, options.memory.place, options.memory.mostBytes);

/** How long a call waits for a database that is being made or started. One that cannot be used shows within seconds. */
const PATIENCE_MS = 60_000;
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 10_000;

if (parentPort === null) throw new Error("This file is the start of a worker thread.");
const port = parentPort;
const send = (message: FromThread) => port.postMessage(message);

/** The number of a state directory. By it boxes know which processes followed one another. */
async function boxId(): Promise<string> {
  const file = path.join(config.state_dir, "box");
  await mkdir(config.state_dir, { recursive: true, mode: 0o700 });
  await writeFile(file, `${randomUUID()}\n`, { flag: "wx" }).catch((error: unknown) => {
    if (errno(error) !== "EEXIST") throw error;
  });
  return (await readFile(file, "utf8")).trim();
}

class Models {
  #known: KnownModels = { entries: [], problems: [] };
  ready = false;
  #loaded: () => void = () => undefined;
  readonly #first = new Promise<void>((resolve) => {
    this.#loaded = resolve;
  });

  set(known: KnownModels, ready: boolean): void {
    this.#known = known;
    this.ready = ready;
    this.#loaded();
  }

  /** Waits for the first loading. */
  async known(): Promise<KnownModels> {
    await this.#first;
    return this.#known;
  }

  async entries(): Promise<readonly ModelEntry[]> {
    return (await this.known()).entries;
  }
}

interface Parts {
  database: Database;
  scanner: Scanner;
  runner: Runner;
}

const models = new Models();
const state: { parts?: Parts; fault?: unknown; stopped: boolean } = { stopped: false };
const troubles = new DatabaseTroubles();
const closing = new AbortController();

async function open(): Promise<Parts> {
  const database = await openDatabase(config, log);
  const scanner = new Scanner({
    config,
    roots,
    database,
    log,
    works,
    box: os.hostname(),
    troubles,
    onLost: () => void repair([]).catch(() => undefined),
    models: () => models.entries(),
    memory,
    onFound: () => state.parts?.runner.poke(),
  });
  try {
    await recognise(database, await migrate(database.pool), []);
    await scanner.start();
    const box = await boxId();
    const runner = new Runner({
      config,
      roots,
      window: options.window,
      instance: () => ({
        id: randomUUID(),
        box,
        name: os.hostname(),
        process: options.processId,
        afterCrash: options.crashed,
        works,
      }),
      database,
      log,
      send,
      ready: () => models.ready,
      troubles,
      repair,
      recognise: async () => recognise(database, await migrate(database.pool), []),
    });
    runner.start();
    return { database, scanner, runner };
  } catch (error) {
    await scanner.stop().catch(() => undefined);
    await database.close().catch(() => undefined);
    throw asUnavailable(error, database.connection);
  }
}

/** The file that keeps by which row this box knows the tables. */
const originFile = path.join(config.state_dir, "bulk-origin");

/**
 * Says so where the tables are not those that this box knew: jobs of before are gone with those.
 * @param jobs of which it is known that they are lost
 */
async function recognise(
  { pool }: Database,
  { origin, made, setAside }: Migrated,
  jobs: readonly string[],
): Promise<void> {
  const known = (await readFile(originFile, "utf8").catch(() => "")).trim();
  if (setAside !== undefined || (known !== "" && known !== origin)) {
    log.error(
      {
        lost_jobs: [...new Set([...jobs, ...(setAside?.jobs ?? [])])],
        ...(setAside === undefined ? {} : { kept_as: setAside.schema }),
      },
      "the bulk tables were lost, or DATABASE_URL names others; they were made again, and jobs of before are gone: send them again, only what is missing is computed",
    );
    if (made) await keepLoss(pool);
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
  await recognise(database, await migrate(database.pool), jobs);
  await scanner.restart();
}

const opened = (async () => {
  for (let wait = FIRST_DELAY_MS; ; wait = Math.min(LONGEST_DELAY_MS, wait * 2)) {
    if (closing.signal.aborted) throw unavailable();
    try {
      const parts = await open();
      if (state.stopped) parts.runner.stop();
      state.parts = parts;
      delete state.fault;
      return parts;
    } catch (error) {
      state.fault = error;
      log.error({ fault: faultForLog(error) }, "the bulk queue cannot be opened; trying again");
      await delay(wait, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  }
})();
opened.catch(() => undefined);

/** What a client is told where the database cannot be had. */
function unavailable(): RadserveError {
  if (state.fault instanceof RadserveError) return state.fault;
  return new BulkUnavailable("The bulk queue cannot be opened.", "The server's log says why.", {
    cause: state.fault,
  });
}

/** The parts; while the database starts it is waited for, while it fails it is said so at once. */
async function available(): Promise<Parts> {
  if (state.parts !== undefined) return state.parts;
  const end = monotonic() + PATIENCE_MS;
  while (monotonic() < end && state.fault === undefined) {
    const found = await Promise.race([opened, delay(100)]);
    if (found !== undefined) return found;
  }
  throw unavailable();
}

const context = {
  config,
  roots,
  troubles,
  models: () => models.known(),
  database: async () => (await available()).database,
  scanner: async () => (await available()).scanner,
};

async function answer(id: number, name: OperationName, call: BulkCall): Promise<void> {
  const { perform, wakes } = OPERATIONS[name];
  try {
    send({ type: "answer", id, answer: await perform(call, context) });
  } catch (thrown) {
    const known = state.parts === undefined ? thrown : asUnavailable(thrown, state.parts.database.connection);
    const error = asRadserveError(known);
    const fault = error.code === "internal" ? { fault: faultForLog(thrown) } : {};
    send({ type: "refusal", id, error: error.toObject(), ...fault });
    if (isTableLoss(thrown)) void repair([]).catch(() => undefined);
  }
  if (!wakes) return;
  // Other boxes see it when they look next, within seconds
  state.parts?.scanner.poke();
  state.parts?.runner.poke(true);
}

async function close(): Promise<void> {
  closing.abort();
  clearInterval(figures);
  const parts = await opened.catch(() => undefined);
  if (parts !== undefined) {
    await parts.scanner.stop().catch(() => undefined);
    await parts.runner.close();
    await parts.database.close();
  }
  port.close();
}

const reasonOf = (error: unknown) =>
  error instanceof BulkUnavailable ? error.reason : "database_unavailable";

const figures = setInterval(() => {
  const { parts, fault } = state;
  if (parts === undefined) {
    if (fault !== undefined) send({ type: "trouble", trouble: reasonOf(fault) });
    return;
  }
  const { database, runner } = parts;
  Promise.all([depth(database.pool), allBoxes(database.pool)]).then(
    ([found, boxes]) => {
      const trouble = troubles.ofAll?.code ?? null;
      send({ type: "figures", figures: { ...found, ended: runner.ended, boxes, trouble } });
    },
    (error: unknown) =>
      send({ type: "trouble", trouble: reasonOf(asUnavailable(error, database.connection)) }),
  );
}, durations.bulkFigures);

port.on("message", (message: ToThread) => {
  switch (message.type) {
    case "call":
      void answer(message.id, message.operation, message.call);
      break;
    case "models":
      models.set(message, message.ready);
      state.parts?.runner.poke();
      break;
    case "ended":
      for (const { id, outcome } of message.items) void state.parts?.runner.land(id, outcome);
      break;
    case "stop":
      state.stopped = true;
      state.parts?.runner.stop();
      break;
    case "close":
      void close();
      break;
  }
});
