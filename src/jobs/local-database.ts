/** A database of this node's own, as jobs ask a feature for it where DATABASE_URL names none. */
import type { ClientConfig } from "pg";
import type { Logger } from "../base/log.js";
import type { Config } from "../config.js";
import { BulkUnavailable } from "./database-trouble.js";

/** One that has started. */
export interface LocalDatabase {
  /** How to connect. It stays the same for as long as it runs. */
  readonly connection: ClientConfig;
  /** Why it is down now; undefined while it runs. */
  readonly problem: BulkUnavailable | undefined;
  stop(): Promise<void>;
}

export interface LocalDatabases {
  /** Resolves when it answers. @throws BulkUnavailable; a later call may succeed */
  start(config: Config, log: Logger): Promise<LocalDatabase>;
  /** Says which one would be used; nothing is made or started. @throws BulkUnavailable */
  inspect(config: Config): Promise<string>;
}

/** What a node without any database says of its jobs. */
export const noDatabase = (): BulkUnavailable =>
  new BulkUnavailable(
    "No database is named for bulk jobs, and this Radserve has none of its own.",
    "Set DATABASE_URL.",
  );
