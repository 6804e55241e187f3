/** Whether nodes of a database have keys, for one that has none. */
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { openSharedDatabase, type Queryable } from "./database.js";
import { createLog } from "../base/log.js";

/** Tables, or columns of them, that are not there: of an empty database, or one of version 0.6. */
const NOT_THERE = new Set(["3F000", "42P01", "42703"]);

/**
 * The names of nodes that live and have keys.
 * @returns undefined where the database cannot be asked
 */
export async function nodesWithKeys(url: string): Promise<string[] | undefined> {
  try {
    const database = await openSharedDatabase(url, createLog("silent"));
    try {
      return await holders(database.readPool);
    } finally {
      await database.close();
    }
  } catch {
    return undefined;
  }
}

async function holders(client: Queryable): Promise<string[]> {
  try {
    const { rows } = await client.query<{ name: string }>(
      `select name from radserve.instance
       where cardinality(keys) > 0 and beat_at > now() - make_interval(secs => $1) order by name`,
      [durations.nodeLease / 1000],
    );
    return rows.map(({ name }) => name);
  } catch (error) {
    if (NOT_THERE.has(errno(error))) return [];
    throw error;
  }
}
