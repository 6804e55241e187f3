/** Databases for tests, fresh ones in the PostgreSQL that all test files of a run share. */
import { randomBytes } from "node:crypto";
import { MessageChannel, receiveMessageOnPort, Worker } from "node:worker_threads";
import pg from "pg";
import { pino } from "pino";
import type { Test } from "tap";
import type { Logger } from "../../src/base/log.js";
import { within } from "../../src/base/waiting.js";
import { LONGEST_WAIT_MS } from "./until.js";
import { urlOf, type MakerAnswer, type MakerData, type MakerTask } from "./run-database.js";

export const silent: Logger = pino({ level: "silent" });

/** A PostgreSQL that a file has for itself is made within seconds, also on a very busy machine. */
const LONGEST_MAKING_MS = 300_000;

export const isRoot = process.geteuid?.() === 0;

let maker: ((task: MakerTask) => string) | undefined;

/**
 * Starts the thread of database-maker.ts. What it gives waits for the thread's answer without
 * giving way, so that folders for a test can be made without waiting (`bulkPlace`).
 * @returns the folder of the socket
 */
function startMaker(): (task: MakerTask) => string {
  const { port1: ours, port2: port } = new MessageChannel();
  const answers = new Int32Array(new SharedArrayBuffer(4));
  const workerData: MakerData = { port, answers };
  const script = new URL("./database-maker.js", import.meta.url);
  new Worker(script, { workerData, transferList: [port] }).unref();
  let asked = 0;
  return (task) => {
    ours.postMessage(task);
    const waited = Atomics.wait(answers, 0, asked, LONGEST_MAKING_MS);
    asked += 1;
    const received = receiveMessageOnPort(ours);
    if (received === undefined) throw new Error(`no database could be made (${waited})`);
    const { socket, error } = received.message as MakerAnswer;
    if (socket === undefined) throw new Error(error);
    return socket;
  };
}

/**
 * The URL of a database of the test's own, with the tables of this release; dropped at the test's
 * end.
 */
export function databaseUrl(t: Test, { empty = false } = {}): string {
  const make = (maker ??= startMaker());
  const name = `test_${randomBytes(6).toString("hex")}`;
  const socket = make({ create: { name, empty } });
  t.teardown(() => void make({ drop: name }));
  return urlOf(socket, name);
}

/** The end of a pool waits for clients that a test has not given back. */
const LONGEST_CLOSE_MS = 5_000;

/**
 * A database of the test's own for one or several nodes, by the URL that they are given.
 * @returns `pool` has none of a server's short limits of time: where a test stands still for
 * seconds, while one of its statements waits for another's lock, that is no failure
 */
export async function sharedDatabase(
  t: Test,
  options?: { empty?: boolean },
): Promise<{ pool: pg.Pool; url: string }> {
  const url = databaseUrl(t, options);
  const pool = new pg.Pool({ connectionString: url, query_timeout: LONGEST_WAIT_MS });
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  await pool.query("select");
  t.teardown(() => within(pool.end(), LONGEST_CLOSE_MS));
  return { pool, url };
}
