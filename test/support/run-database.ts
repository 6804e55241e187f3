/** How the databases of a run are reached (test/support/run-postgres.ts), and made. */
import type { MessagePort } from "node:worker_threads";

/** The folder of the socket of the run's PostgreSQL. */
export const RUN_POSTGRES = "RADSERVE_TEST_POSTGRES";
/** A database with the tables of this release. New ones are copied from it. */
export const TEMPLATE = "radserve_template";
/** The role of servers: it may make and own databases, and no more. */
export const ROLE = "radserve";

/** The URL of a database there. */
export const urlOf = (socket: string, database: string, user = ROLE) =>
  `postgres:///${database}?user=${user}&host=${encodeURIComponent(socket)}`;

export interface MakerData {
  /** Tasks come and answers go here. */
  port: MessagePort;
  /** Counts the answers. */
  answers: Int32Array;
}

export interface MakerTask {
  create?: { name: string; empty: boolean };
  drop?: string;
}

export interface MakerAnswer {
  /** The folder of the socket. */
  socket?: string;
  error?: string;
}
