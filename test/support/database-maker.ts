/**
 * A thread that makes and drops databases for test/support/postgres.ts, whose caller waits without
 * giving way. It uses the run's PostgreSQL, or starts one where there is none; that one ends with
 * this process.
 */
import { workerData } from "node:worker_threads";
import pg from "pg";
import {
  ROLE,
  RUN_POSTGRES,
  TEMPLATE,
  urlOf,
  type MakerAnswer,
  type MakerData,
  type MakerTask,
} from "./run-database.js";
import { startRunPostgres } from "./run-postgres.js";

const { port, answers } = workerData as MakerData;

let socket = process.env[RUN_POSTGRES] ?? "";
let admin: pg.Client | undefined;

async function work({ create, drop }: MakerTask): Promise<void> {
  if (admin === undefined) {
    if (socket === "") ({ socket } = await startRunPostgres());
    admin = new pg.Client(urlOf(socket, "postgres", "postgres"));
    await admin.connect();
  }
  if (create !== undefined) {
    const template = create.empty ? "" : `template ${TEMPLATE}`;
    await admin.query(`create database ${create.name} owner ${ROLE} ${template}`);
    // Nodes know their tables by this row
    if (!create.empty) await ownOrigin(create.name);
  }
  if (drop !== undefined) await admin.query(`drop database if exists ${drop} with (force)`);
}

async function ownOrigin(name: string): Promise<void> {
  const client = new pg.Client(urlOf(socket, name));
  await client.connect();
  await client.query("update radserve.origin set id = gen_random_uuid(), made_at = now()");
  await client.end();
}

port.on("message", (task: MakerTask) => {
  void work(task)
    .then(
      (): MakerAnswer => ({ socket }),
      (error: unknown): MakerAnswer => ({
        error: error instanceof Error ? (error.stack ?? error.message) : String(error),
      }),
    )
    .then((answer) => {
      port.postMessage(answer);
      Atomics.add(answers, 0, 1);
      Atomics.notify(answers, 0);
    });
});
