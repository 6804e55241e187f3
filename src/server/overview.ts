/**
 * The answer of GET /overview: whether the server is well and why not, and how busy it is and was;
 * nothing of any image.
 */
import { z } from "zod";
import { nodeSchema } from "../jobs/schema.js";
import { errorObjectSchema } from "../base/errors.js";
import { VERSION } from "../base/version.js";
import { usualMemory } from "../base/memory-limits.js";
import { freeBytes, totalBytes } from "../files/disk.js";
import { roomOf } from "../files/usable.js";
import { conditionSchema } from "./condition.js";
import { minuteSchema } from "./history.js";
import { modelList, modelListSchema } from "./model-list.js";
import type { Services } from "./services.js";

const count = z.int().min(0);
const { name, version, release, required, health, provider, gpu, error } =
  modelListSchema.shape.models.element.shape;
const listedState = modelListSchema.shape.models.element.shape.residence.unwrap().shape.state;

export const overviewSchema = z.strictObject({
  version: z.string(),
  now: z.iso.datetime(),
  started_at: z.iso.datetime().describe("When the serving process started"),
  role: z.enum(["both", "api", "worker"]),
  ready: z.boolean(),
  files_by_http: z
    .array(z.enum(["upload", "download", "view"]))
    .describe("What the settings allow of files over HTTP"),
  features: z.array(z.string()).describe("Names of the features that are on"),
  fault: errorObjectSchema
    .pick({ error: true, message: true })
    .optional()
    .describe("Why it is not ready, as GET /health/ready says"),
  conditions: z.array(conditionSchema).describe("What is wrong, as GET /health/ready says"),
  warnings: z.array(conditionSchema).describe("What may become wrong, as GET /health/ready says"),
  models: z.array(
    z.strictObject({
      name,
      version,
      release,
      required,
      health,
      provider,
      gpu,
      error,
      residence: listedState
        .nullable()
        .describe("Whether its memory is here; null where it is not loaded"),
      canary: z
        .boolean()
        .describe("The model has a canary, which runs each time the model is loaded"),
      completed: count.describe("Inferences since it was loaded"),
      failed: count,
    }),
  ),
  problems: modelListSchema.shape.problems,
  gpus: modelListSchema.shape.gpus,
  requests: z.strictObject({ waiting: count, running: count, most_waiting: count }),
  jobs: z.strictObject({
    open: z.boolean().describe("The queue of jobs is in use; until then nothing is known of nodes"),
    queued: count.describe("Images of all jobs that wait, on all nodes"),
    running: count,
    paused: count.describe("Jobs that wait for something"),
  }),
  memory: z.strictObject({
    images_bytes: count.describe("Memory of the images in progress"),
    images_limit_bytes: count,
    process_bytes: count,
  }),
  disks: z.array(
    z.strictObject({
      folder: z.string().describe("A folder for results that the token reaches"),
      free_bytes: count.nullable().describe("null if the disk does not answer"),
      total_bytes: count.nullable(),
      least_bytes: count.describe("With less, work is refused"),
    }),
  ),
  nodes: z
    .array(nodeSchema.omit({ running: true }))
    .describe("The servers on the database of the jobs"),
  history: z.array(minuteSchema).describe("The last hour on this server, minute by minute"),
});
export type Overview = z.infer<typeof overviewSchema>;

async function diskOf(folder: string, least: number): Promise<Overview["disks"][number]> {
  const unknown = { folder, free_bytes: null, total_bytes: null, least_bytes: least };
  const facts = await roomOf(folder).catch(() => undefined);
  if (facts === undefined || !Number.isFinite(freeBytes(facts))) return unknown;
  return { ...unknown, free_bytes: freeBytes(facts), total_bytes: totalBytes(facts) };
}

const started = new Date(Date.now() - performance.now()).toISOString();

/** @param folders for results, real paths, that the caller reaches */
export async function overview(
  { config, features, inference, jobs, monitoring }: Services,
  folders: readonly string[],
): Promise<Overview> {
  const { models, engine, pool } = inference;
  const { history, conditions } = monitoring;
  const fault = monitoring.fault();
  const {
    models: listed,
    gpus,
    problems,
  } = modelList(models.entries, models.problems, engine.stats());
  const { queued, running, paused, nodes } = jobs.figures;
  return {
    version: VERSION,
    now: new Date().toISOString(),
    started_at: started,
    role: config.role,
    ready: fault === undefined,
    files_by_http: config.files_by_http,
    features: features.names,
    ...(fault === undefined ? {} : { fault: { error: fault.code, message: fault.message } }),
    conditions: conditions.list(),
    warnings: conditions.warnings(),
    models: listed.map((model, i) => {
      const { name, version, release, required, health, provider, gpu, error } = model;
      return {
        name,
        version,
        release,
        required,
        health,
        provider,
        gpu,
        ...(error === undefined ? {} : { error }),
        residence: model.residence?.state ?? null,
        canary: models.entries[i]?.manifest.canary !== undefined,
        completed: model.work?.completed ?? 0,
        failed: model.work?.failed ?? 0,
      };
    }),
    problems,
    gpus,
    requests: { waiting: pool.queued, running: pool.running, most_waiting: config.max_queue },
    jobs: { open: jobs.isOpen, queued, running, paused },
    memory: {
      images_bytes: pool.memory,
      images_limit_bytes: config.memory ?? usualMemory(),
      process_bytes: process.memoryUsage.rss(),
    },
    disks: await Promise.all(folders.map((folder) => diskOf(folder, config.minimum_free_disk))),
    nodes,
    history: history.shown(),
  };
}
