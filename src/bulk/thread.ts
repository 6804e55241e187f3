/**
 * The bulk thread: the database, bodies of megabytes, scans of folders and the taking of items live here, so that
 * none of it holds up the thread that serves HTTP. The images themselves are read and inferred by the worker threads.
 */
import { randomUUID } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { errno } from "../base/errno.js";
import { asRadserveError, RadserveError } from "../base/errors.js";
import { createLog, faultForLog } from "../base/log.js";
import type { ModelEntry } from "../models/entry.js";
import { perform } from "./api.js";
import { asUnavailable, openDatabase, type Database } from "./database.js";
import { depth } from "./leases.js";
import type { BulkCall, FromThread, Operation, ThreadOptions, ToThread } from "./messages.js";
import { migrate } from "./migrations.js";
import { Runner } from "./runner.js";
import { Scanner } from "./scanner.js";
import { BulkUnavailable } from "./unavailable.js";

const options = workerData as ThreadOptions;
const { config, roots } = options;
const log = createLog(config.log_level);
const works = config.role !== "api";

/** How long a call waits for a database that is being started. */
const PATIENCE_MS = 60_000;
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 10_000;
const FIGURES_MS = 5_000;

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
  #entries: readonly ModelEntry[] = [];
  ready = false;
  #known: () => void = () => undefined;
  readonly #first = new Promise<void>((resolve) => {
    this.#known = resolve;
  });

  set(entries: readonly ModelEntry[], ready: boolean): void {
    this.#entries = entries;
    this.ready = ready;
    this.#known();
  }

  /** Waits for the first loading. */
  async entries(): Promise<readonly ModelEntry[]> {
    await this.#first;
    return this.#entries;
  }
}

interface Parts {
  database: Database;
  scanner: Scanner;
  runner: Runner;
}

const models = new Models();
const state: { parts?: Parts; fault?: unknown; stopped: boolean } = { stopped: false };
const closing = new AbortController();

async function open(): Promise<Parts> {
  const database = await openDatabase(config, log);
  const scanner = new Scanner({
    config,
    roots,
    database,
    log,
    works,
    models: () => models.entries(),
    onFound: () => state.parts?.runner.poke(),
  });
  try {
    await migrate(database.pool);
    await scanner.start();
    const box = await boxId();
    const runner = new Runner({
      config,
      roots,
      window: options.window,
      instance: () => ({
        id: randomUUID(),
        box,
        process: options.processId,
        afterCrash: options.crashed,
        works,
      }),
      database,
      log,
      send,
      ready: () => models.ready,
    });
    runner.start();
    return { database, scanner, runner };
  } catch (error) {
    await scanner.stop().catch(() => undefined);
    await database.close().catch(() => undefined);
    throw error;
  }
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
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end && state.fault === undefined) {
    const found = await Promise.race([opened, delay(100)]);
    if (found !== undefined) return found;
  }
  throw unavailable();
}

const context = {
  config,
  roots,
  models: () => models.entries(),
  database: async () => (await available()).database,
  scanner: async () => (await available()).scanner,
};

/** Calls that change nothing which a box waits for. */
const LOOKS: readonly Operation[] = ["list", "show", "items", "purge"];

async function answer(id: number, call: BulkCall): Promise<void> {
  try {
    send({ type: "answer", id, answer: await perform(call, context) });
  } catch (thrown) {
    const known = state.parts === undefined ? thrown : asUnavailable(thrown, state.parts.database.connection);
    const error = asRadserveError(known);
    const fault = error.code === "internal" ? { fault: faultForLog(thrown) } : {};
    send({ type: "refusal", id, error: error.toObject(), ...fault });
  }
  if (LOOKS.includes(call.operation)) return;
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

const figures = setInterval(() => {
  if (state.parts === undefined) return;
  const { database, runner } = state.parts;
  depth(database.pool).then(
    (found) => send({ type: "figures", figures: { ...found, ended: runner.ended } }),
    () => undefined,
  );
}, FIGURES_MS);

port.on("message", (message: ToThread) => {
  switch (message.type) {
    case "call":
      void answer(message.id, message.call);
      break;
    case "models":
      models.set(message.entries, message.ready);
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
