/** How the databases of a run are reached (test/support/run-postgres.ts). */

/** The folder of the socket of the run's PostgreSQL. */
export const RUN_POSTGRES = "RADSERVE_TEST_POSTGRES";
/** A database with the tables of this release. New ones are copied from it. */
export const TEMPLATE = "radserve_template";
/** The role of servers: it may make and own databases, and no more. */
export const ROLE = "radserve";

/** The URL of a database there. */
export const urlOf = (socket: string, database: string, user = ROLE) =>
  `postgres:///${database}?user=${user}&host=${encodeURIComponent(socket)}`;
