/**
 * The nodes that work on one database. A node is in the table of instances and says several times
 * in a lease time that it lives; its items are its own as long as it does, and are free again once
 * it is gone.
 */
import type { Pool, PoolClient } from "pg";
import { durations } from "../base/durations.js";
import type { ErrorObject } from "../base/errors.js";
import type { Logger } from "../base/log.js";
import type { Config } from "../config.js";
import { transaction, type Database } from "./database.js";
import type { DatabaseTroubles } from "./database-trouble.js";
import { finishLocked, type JobRequest } from "./jobs.js";

/**
 * How much an item is to blame for the end of a process in which it ran alone; one with the most
 * has failed. A crash that the supervisor saw is certain: two are enough. Who was killed, or
 * vanished with its supervisor, may have been ended by anybody, or by the system when an image took
 * all memory: five are.
 */
const CERTAIN = 5;
const UNCERTAIN = 2;
const MOST_BLAME = 10;

export interface Instance {
  id: string;
  /** Identifies the state directory, which one process holds at a time. */
  node: string;
  /** The name of the machine, for people. */
  name: string;
  /** Identifies the serving process. */
  process: string;
  /** The serving process before this one ended by its own fault. */
  afterCrash: boolean;
  works: boolean;
}

/** The parts that the scanner and the runner of this node share. */
export interface NodeContext {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  database: Database;
  log: Logger;
  troubles: DatabaseTroubles;
}

/** An item that ran in a node that is gone, as it is now. */
export interface FreedItem {
  job_id: string;
  state: "queued" | "failed" | "cancelled";
  input: string;
  output: string | null;
  request: JobRequest;
}

/**
 * Registers a node. Items of earlier processes of the same node are free again, because those
 * processes are known to be dead. If this throws, the node must not take items: nobody would know
 * whose they are.
 */
export function enter(pool: Pool, instance: Instance, ready: boolean): Promise<FreedItem[]> {
  const { id, node, name, process, works, afterCrash } = instance;
  return transaction(pool, async (client) => {
    await client.query(
      "insert into radserve.instance (id, box, process, works, ready, name) values ($1, $2, $3, $4, $5, $6)",
      [id, node, process, works, ready, name],
    );
    const blame = afterCrash ? CERTAIN : UNCERTAIN;
    return freeItems(client, instance, blame, "i.box = $1 and i.id <> $2", [node, id]);
  });
}

/** @returns false if this node was taken for dead meanwhile */
export async function beat(pool: Pool, instance: Instance, ready: boolean): Promise<boolean> {
  const { rowCount } = await pool.query(
    "update radserve.instance set beat_at = now(), ready = $2 where id = $1",
    [instance.id, ready],
  );
  return rowCount === 1;
}

/** Takes a node out; what is still its own is free again. */
export async function leave(pool: Pool, instance: Instance): Promise<void> {
  await transaction(pool, (client) =>
    freeItems(client, instance, UNCERTAIN, "i.id = $1", [instance.id]),
  );
}

/**
 * Frees the items of nodes that are silent. After the database's clock was put back, silence counts
 * from now on.
 */
export async function freeSilent(pool: Pool, instance: Instance): Promise<FreedItem[]> {
  await pool.query(
    `update radserve.instance set beat_at = now() where id in (select id from radserve.instance
       where beat_at > now() + interval '1 second' for update skip locked)`,
  );
  const silent = "i.beat_at < now() - make_interval(secs => $1) and i.id <> $2";
  return transaction(pool, (client) =>
    freeItems(client, instance, UNCERTAIN, silent, [durations.nodeLease / 1000, instance.id]),
  );
}

/**
 * Items that ran when their node died are suspects and run alone next time; one that was alone then
 * has crashed it. A thread that ended within a process that lives crashed nothing.
 */
async function freeItems(
  client: PoolClient,
  instance: Instance,
  blame: number,
  which: string,
  values: unknown[],
): Promise<FreedItem[]> {
  const { rows: gone } = await client.query<{ id: string; process: string; name: string }>(
    `delete from radserve.instance i where ${which} returning id, process, name`,
    values,
  );
  if (gone.length === 0) return [];
  const nodes = gone.map(({ id }) => id);
  // The job first, as everybody does
  await client.query(
    `select from radserve.job where id in
       (select job_id from radserve.item where owner = any($1) and state = 'running') order by id for update`,
    [nodes],
  );
  const error: ErrorObject = {
    error: "engine_crash",
    message:
      "The server ended again and again while this image ran alone. The others went on. Report the file and its models.",
  };
  const { rows: items } = await client.query<FreedItem>(
    `update radserve.item i set
       state = case when j.cancelled_at is not null then 'cancelled'
         when crashed and alone and blame + $5 >= $3 then 'failed' else 'queued' end,
       error = case when crashed and alone and blame + $5 >= $3 and j.cancelled_at is null then $4::jsonb end,
       finished_at = case when j.cancelled_at is not null or (crashed and alone and blame + $5 >= $3)
         then now() end,
       blame = blame + case when crashed and alone then $5 else 0 end,
       waits = case when crashed then jsonb_build_object('reason', 'suspect', 'box', gone.name, 'since', now()) end,
       suspect = suspect or crashed, alone = false, owner = null
     from radserve.job j, unnest($1::uuid[], $2::boolean[], $6::text[]) as gone (id, crashed, name)
     where i.owner = gone.id and i.state = 'running' and j.id = i.job_id
     returning i.job_id, i.state, i.input, i.output, j.request`,
    [
      nodes,
      gone.map((one) => one.process !== instance.process),
      MOST_BLAME,
      error,
      blame,
      gone.map((one) => one.name),
    ],
  );
  await finishLocked(client, [...new Set(items.map(({ job_id }) => job_id))]);
  return items;
}
