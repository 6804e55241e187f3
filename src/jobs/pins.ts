/**
 * What a job was submitted with: the hashes of its models and the release, because UIDs follow from
 * both. Only nodes that have the same take its images, so that rolling out a model or a release
 * node by node mixes nothing in one job.
 */
import { z } from "zod";
import { VERSION } from "../base/version.js";
import { candidatesOf } from "../inference/plan.js";
import type { InferTask } from "../inference/task.js";
import type { KnownModels } from "../models/entry.js";
import { identitiesOf, modelIdentitiesSchema, shownModel } from "../models/identity.js";
import { wantingLabels } from "../models/wanted.js";
import { signingKeyId } from "../results/receipt/seal.js";

export const pinsSchema = z.object({
  release: z.string().describe("Version of Radserve"),
  every: z
    .boolean()
    .describe("The request named no models: a node runs it that has these and no others"),
  models: modelIdentitiesSchema,
  result_key: z
    .string()
    .optional()
    .describe("Id of the key of results by which the node signs that took the job"),
});
export type Pins = z.infer<typeof pinsSchema>;

/** What a node has of that; its keys of results where they are to be compared. */
export type Runs = Pick<Pins, "release" | "models"> & {
  result_keys?: readonly string[] | undefined;
};

/**
 * @throws RadserveError for a model that is not there or not loaded, and for a label that none of
 * the models has
 */
export async function pinsFor(
  { models, labels }: Pick<InferTask, "models" | "labels">,
  known: KnownModels,
): Promise<Pins> {
  const candidates = candidatesOf(known.entries, models, known.problems);
  wantingLabels(candidates, labels);
  const key = await signingKeyId();
  return {
    release: VERSION,
    every: models === undefined,
    models: identitiesOf(candidates),
    ...(key === undefined ? {} : { result_key: key }),
  };
}

/** The condition that a node shows signs of life. */
const lives = (node: string): string => `${node}.beat_at > now() - interval '15 s'`;

/**
 * The condition that a node has the key of the node that took a job: without it, neither trusts
 * what the other has written. Where no node that lives has it, it was taken away, and keeps no job
 * waiting.
 */
const knowsKey = (job: string, node: string): string =>
  `(${job}.pins->>'result_key' is null or ${job}.pins->>'result_key' = any(${node}.result_keys)
    or not exists (select from radserve.instance k where ${lives("k")}
      and ${job}.pins->>'result_key' = any(k.result_keys)))`;

/**
 * The condition that a node has what a job was submitted with. Jobs of earlier versions have no
 * pins, and run anywhere.
 * @param job and @param node aliases of their rows
 */
export const canRun = (job: string, node: string): string =>
  `(${job}.pins is null or (${job}.pins->>'release' = ${node}.release
    and case when (${job}.pins->'every')::boolean then ${node}.models = ${job}.pins->'models'
      else ${node}.models @> (${job}.pins->'models') end
    and ${knowsKey(job, node)}))`;

/** The condition for a node that runs images now: it shows signs of life, with its models ready. */
export const runsNow = (node: string): string =>
  `(${node}.works and ${node}.ready and ${lives(node)})`;

/** The condition that some node `n` runs images now of which more holds. @param more a condition */
export const someNodeRuns = (more: string): string =>
  `exists (select from radserve.instance n where ${runsNow("n")} and ${more})`;

/** The condition that some node runs images now. */
export const SOME_NODE_RUNS = someNodeRuns("true");

/** The condition that some node runs images, and can run those of a job. */
export const isRunBySome = (job: string): string => someNodeRuns(canRun(job, "n"));

/**
 * The condition that something of a job is being done or was done: an image runs, or has run to its
 * end. What a scan skipped has not run.
 * @param job alias of its row
 */
export const hasBegun = (job: string): string =>
  `exists (select from radserve.item b where b.job_id = ${job}.id
     and (b.state = 'running' or (b.state <> 'queued' and b.lease > 0)))`;

/** The code of a job that waits because of its pins, and of a node that leaves one for them. */
export const NO_NODE_CAN_RUN = "no_node_can_run";
export const OTHER_VERSIONS = "other_versions";

/** What a node lacks of the pins of a job, in words; empty where it can run it. */
export function lackingOf(pins: Pins, node: Runs): string[] {
  const release =
    node.release === pins.release
      ? []
      : [`Radserve ${pins.release}: it has ${node.release || "an earlier one"}`];
  const models = Object.entries(pins.models).flatMap(([name, wanted]) => {
    const found = node.models[name];
    if (found !== undefined && shownModel(found) === shownModel(wanted)) return [];
    const has = found === undefined ? "it has none of that name" : `it has ${shownModel(found)}`;
    return [`the model ${name} ${shownModel(wanted)}: ${has}`];
  });
  const { result_key: key } = pins;
  const lacksKey = key !== undefined && node.result_keys?.includes(key) === false;
  const more = Object.keys(node.models).filter((name) => !(name in pins.models));
  return [
    ...release,
    ...models,
    ...(lacksKey ? [`the key of results ${key}`] : []),
    ...(pins.every && more.length > 0
      ? [`no other model, because the request names none: it has ${more.join(", ")} too`]
      : []),
  ];
}

/** "Radserve 0.7.0, ct-tissue 1.0.0 (1a2b3c4d)", for people. */
export const pinsText = ({ release, models }: Pins): string =>
  [
    `Radserve ${release}`,
    ...Object.entries(models).map(([name, model]) => `${name} ${shownModel(model)}`),
  ].join(", ");
