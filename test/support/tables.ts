/** What tests do to the tables of jobs by themselves. */
import { randomUUID } from "node:crypto";
import type { NewJob } from "../../src/jobs/jobs.js";
import type { Instance } from "../../src/jobs/nodes.js";

/** A node as the database knows it, without a server. */
export const newInstance = (changes: Partial<Instance> = {}): Instance => ({
  id: randomUUID(),
  node: randomUUID(),
  place: "",
  name: "node-1",
  release: "1",
  address: "",
  process: randomUUID(),
  afterCrash: false,
  afterMemory: false,
  works: true,
  ...changes,
});

/** A job of the subject x as it is submitted, without a request. */
export const newJob = (changes: Partial<NewJob> = {}): NewJob => ({
  id: randomUUID(),
  subject: "x",
  inputRoots: undefined,
  outputRoots: undefined,
  request: {},
  requestSha256: "",
  idempotencyKey: undefined,
  marked: false,
  pins: null,
  ...changes,
});

/** Its items, whose images lie directly below the root. */
export const newItems = (names: readonly (number | string)[]): NonNullable<NewJob["items"]> =>
  names.map((name) => ({ id: randomUUID(), input: `/${name}`, output: "/o" }));

/**
 * Takes away what the eleventh migration, by which nodes are compared, and those after it have
 * added. A further migration has its lines here.
 */
export const BEFORE_NODES_ARE_COMPARED = `drop table radserve.gone_job;
  alter table radserve.job drop column traceparent, drop column pins, drop column pinned_before, drop column pinned_anew,
    drop column scan_cut;
  alter table radserve.instance drop column release, drop column address, drop column place, drop column entered_at,
    drop column models, drop column keys, drop column result_keys, drop column roots, drop column clock_offset_ms,
    drop column settings;`;

/** Makes the tables of this release those of 0.6. */
export const AS_0_6_LEAVES_THEM = `${BEFORE_NODES_ARE_COMPARED}
  delete from radserve.migration where version >= 10`;
