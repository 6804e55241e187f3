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
import type { ModelIdentities } from "../models/identity.js";
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
  /**
   * Where that directory lies. Two nodes with one number and two places are an original and its
   * copy.
   */
  place: string;
  /** The name of the node, for people. */
  name: string;
  /** Version of Radserve. */
  release: string;
  /** Where clients reach it. */
  address: string;
  /** Identifies the serving process. */
  process: string;
  /** The serving process before this one ended by its own fault. */
  afterCrash: boolean;
  /** The system ended it because memory ran out. */
  afterMemory: boolean;
  works: boolean;
}

/** A root of a node, as it looks there. */
export interface SeenRoot {
  side: "input" | "output";
  /** Its place among the roots of its side, from 1. */
  number: number;
  /** The text of its mark (files/root-mark.ts); null where it has none. */
  mark: string | null;
  /** Nothing is in it, as in a mount point without its mount. */
  empty: boolean;
  /** It can be read, and an output root written to. */
  usable: boolean;
}

/** What a node has, by which it is compared with the others. */
export interface NodeFacts {
  models: ModelIdentities;
  /** Ids of the keys of tokens, and of those of results. */
  keys: string[];
  result_keys: string[];
  roots: SeenRoot[];
  /** By their variables: those that decide the form of results. */
  settings: Record<string, string>;
}

/** What a node has of which nothing is known yet. */
export const NO_FACTS: NodeFacts = {
  models: {},
  keys: [],
  result_keys: [],
  roots: [],
  settings: {},
};

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
export function enter(
  pool: Pool,
  instance: Instance,
  ready: boolean,
  facts: NodeFacts = NO_FACTS,
): Promise<FreedItem[]> {
  const { id, node, name, process, works, place, release, address } = instance;
  return transaction(pool, async (client) => {
    await client.query(
      `insert into radserve.instance (id, box, process, works, ready, name, place, release, address, entered_at,
         models, keys, result_keys, roots, settings)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp(), $10, $11, $12, $13, $14)`,
      [
        id,
        node,
        process,
        works,
        ready,
        name,
        place,
        release,
        address,
        facts.models,
        facts.keys,
        facts.result_keys,
        JSON.stringify(facts.roots),
        facts.settings,
      ],
    );
    const { afterCrash, afterMemory } = instance;
    const blame = afterCrash ? CERTAIN : UNCERTAIN;
    // A process in another place may live: it is gone once it is silent
    const before =
      "i.box = $1 and i.id <> $2 and (i.place = $3 or i.beat_at < now() - make_interval(secs => $4))";
    const values = [node, id, place, durations.nodeLease / 1000];
    return freeItems(client, instance, blame, before, values, afterMemory);
  });
}

/**
 * The condition that another node lives that has the number of this one, and has had it for longer:
 * this one takes no items, because its state directory is a copy.
 * @param node alias of its row
 */
export const isYounger = (node: string): string =>
  `exists (select from radserve.instance older where older.box = ${node}.box
     and (older.entered_at, older.id) < (${node}.entered_at, ${node}.id)
     and older.beat_at > now() - interval '${durations.nodeLease} ms')`;

/**
 * @param facts where they have changed
 * @param clockOffset by how many milliseconds this node's clock is ahead of the database's
 * @returns the time of the database, in milliseconds since 1970; undefined if this node was taken
 * for dead meanwhile
 */
export async function beat(
  pool: Pool,
  instance: Instance,
  ready: boolean,
  facts?: NodeFacts,
  clockOffset?: number,
): Promise<number | undefined> {
  const { rows } = await pool.query<{ at: number }>(
    `update radserve.instance set beat_at = now(), ready = $2, models = coalesce($3, models),
       keys = coalesce($4, keys), result_keys = coalesce($5, result_keys), roots = coalesce($6, roots),
       clock_offset_ms = coalesce($7, clock_offset_ms), settings = coalesce($8, settings)
     where id = $1 returning (extract(epoch from clock_timestamp()) * 1000)::float8 as at`,
    [
      instance.id,
      ready,
      facts?.models,
      facts?.keys,
      facts?.result_keys,
      facts && JSON.stringify(facts.roots),
      clockOffset,
      facts?.settings,
    ],
  );
  return rows[0]?.at;
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
 * @param forMemory that was because memory ran out
 */
async function freeItems(
  client: PoolClient,
  instance: Instance,
  blame: number,
  which: string,
  values: unknown[],
  forMemory = false,
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
    message: forMemory
      ? "Memory ran out again and again while this image ran alone, and the system ended the server. The others went on. Give the server more memory, or send a smaller image; the log names the models (memory)."
      : "The server ended again and again while this image ran alone. The others went on. Report the file and its models.",
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
