/** The answer of GET /models: each model, and its work. */
import { z } from "zod";
import { engineStatsSchema, type EngineModelStats, type EngineStats } from "../engine/stats.js";
import type { ErrorObject } from "../base/errors.js";
import { acceptsSchema } from "../manifest/manifest.js";
import { PROVIDERS } from "../manifest/providers.js";
import { nativeIdsOf, type ModelEntry } from "../models/entry.js";
import type { ModelProblem } from "../models/set.js";
import { answerSchema } from "../results/receipt/receipt.js";

const {
  queued,
  started,
  completed,
  failed,
  refused,
  waitSeconds,
  batchSizes,
  sessions,
  residence,
} = engineStatsSchema.shape.models.element.shape;
const errorObject = answerSchema.shape.models.element.shape.error.unwrap();

const work = z.strictObject({
  queued,
  started,
  completed,
  failed,
  refused,
  wait_seconds: waitSeconds.describe("Time from a request to its start"),
  batched: z.boolean().describe("Whether images run in batches; otherwise one at a time"),
  batch_sizes: batchSizes,
  run_seconds: batchSizes.describe("Time of a batch in the model"),
  sessions: sessions.describe("Memory of each session"),
});

const { state, loads, loadSeconds, problem } = residence.shape;
const listedResidence = z.strictObject({ state, loads, load_seconds: loadSeconds, problem });

const listed = z.strictObject({
  name: z.string(),
  version: z.string(),
  sha256: z.string(),
  description: z.string(),
  intended_use: z.string(),
  regulatory: z.string(),
  accepts: acceptsSchema,
  stage: z.enum(["draft", "final"]),
  release: z.enum(["off", "shadow", "active"]),
  required: z.boolean(),
  provider: z.enum(PROVIDERS).nullable(),
  gpu: z.int().nonnegative().nullable().describe("Number of the GPU that it runs on"),
  health: z.enum(["ready", "failed", "off"]),
  residence: listedResidence
    .nullable()
    .describe("Whether its memory is here; null where it is not loaded"),
  work: work
    .nullable()
    .describe("Since it was loaded; null where it is not. Of a model of parts that of all of them"),
  parts: z
    .array(z.strictObject({ name: z.string(), residence: listedResidence, work }))
    .optional()
    .describe("The parts of a model of parts, in the order in which they run"),
  error: errorObject.optional(),
});

const { number, lost, waiting, takenBytes, limitBytes, freeBytes, totalBytes } =
  engineStatsSchema.shape.gpus.element.shape;
const listedGpu = z.strictObject({
  number,
  lost,
  waiting,
  taken_bytes: takenBytes,
  limit_bytes: limitBytes,
  free_bytes: freeBytes,
  total_bytes: totalBytes,
});

const PROBLEMS_MEANING =
  "Models whose folders could not be loaded as they are now; a model whose manifest cannot be " +
  "read is listed here only";

export const modelListSchema = z.strictObject({
  models: z.array(listed),
  gpus: z.array(listedGpu).describe("The GPUs that models were loaded on"),
  problems: z
    .array(z.strictObject({ name: z.string(), required: z.boolean(), error: errorObject }))
    .describe(PROBLEMS_MEANING),
});
export type ModelList = z.infer<typeof modelListSchema>;

function workOf(stats: EngineModelStats): z.infer<typeof work> {
  return {
    queued: stats.queued,
    started: stats.started,
    completed: stats.completed,
    failed: stats.failed,
    refused: stats.refused,
    wait_seconds: stats.waitSeconds,
    batched: stats.batched,
    batch_sizes: stats.batchSizes,
    run_seconds: stats.runSeconds,
    sessions: stats.sessions,
  };
}

function residenceOf({
  residence: { loadSeconds: seconds, ...others },
}: EngineModelStats): z.infer<typeof listedResidence> {
  return { ...others, load_seconds: seconds };
}

type Classes<T> = Record<keyof EngineModelStats["queued"], T>;
type Histogram = EngineModelStats["runSeconds"];

const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, one) => sum + one, 0);

const byClass = <T>(all: readonly Classes<T>[], add: (some: T[]) => T): Classes<T> => ({
  stat: add(all.map(({ stat }) => stat)),
  routine: add(all.map(({ routine }) => routine)),
  bulk: add(all.map(({ bulk }) => bulk)),
});

/** Of histograms with the same classes. */
const allOf = (histograms: readonly Histogram[]): Histogram => ({
  ends: histograms[0]?.ends ?? [],
  counts: (histograms[0]?.counts ?? []).map((_, at) =>
    sumOf(histograms.map(({ counts }) => counts[at] ?? 0)),
  ),
  sum: sumOf(histograms.map(({ sum }) => sum)),
});

/**
 * The work of all parts of a model together. It is loaded while any of them is, and a request for
 * one that is idle waits for all of them at most.
 */
function together(first: EngineModelStats, others: readonly EngineModelStats[]): EngineModelStats {
  const all = [first, ...others];
  const residences = all.map(({ residence }) => residence);
  const isSome = (state: (typeof residences)[number]["state"]) =>
    residences.some((one) => one.state === state);
  const problem = residences.find((one) => one.problem !== undefined)?.problem;
  return {
    ...first,
    queued: byClass(
      all.map(({ queued }) => queued),
      sumOf,
    ),
    started: byClass(
      all.map(({ started }) => started),
      sumOf,
    ),
    completed: sumOf(all.map(({ completed }) => completed)),
    failed: sumOf(all.map(({ failed }) => failed)),
    refused: { deadline: sumOf(all.map(({ refused }) => refused.deadline)) },
    waitSeconds: byClass(
      all.map(({ waitSeconds }) => waitSeconds),
      allOf,
    ),
    batchSizes: allOf(all.map(({ batchSizes }) => batchSizes)),
    runSeconds: allOf(all.map(({ runSeconds }) => runSeconds)),
    sessions: all.flatMap(({ sessions }) => sessions),
    residence: {
      state: isSome("returning") ? "returning" : isSome("loaded") ? "loaded" : "idle",
      loads: sumOf(residences.map(({ loads }) => loads)),
      loadSeconds: sumOf(residences.map(({ loadSeconds }) => loadSeconds)),
      ...(problem === undefined ? {} : { problem }),
    },
  };
}

/**
 * A model that could not come back when it was last wanted does not serve, as far as anybody knows.
 */
export function healthOf(
  { state: now, error }: Pick<ModelEntry, "state" | "error">,
  missing: string | undefined,
): { health: ModelEntry["state"]; error?: ErrorObject } {
  if (missing !== undefined)
    return { health: "failed", error: { error: "model_unavailable", message: missing } };
  return { health: now, ...(error === undefined ? {} : { error }) };
}

/** The models in the order of their names. */
export function modelList(
  entries: readonly ModelEntry[],
  problems: readonly ModelProblem[],
  stats: EngineStats,
): ModelList {
  const known = new Map(stats.models.map((model) => [model.id, model]));
  const listedModel = (entry: ModelEntry): z.infer<typeof listed> => {
    const { name, version, sha256, manifest, provider, gpu } = entry;
    const ids = nativeIdsOf(entry);
    const [first, ...others] = ids.flatMap((id) => known.get(id) ?? []);
    const figures = first && together(first, others);
    const { health, error } = healthOf(entry, figures?.residence.problem);
    const parts = manifest.parts?.flatMap((part, place) => {
      const ofPart = known.get(ids[place] ?? -1);
      return ofPart === undefined
        ? []
        : [{ name: part.name, residence: residenceOf(ofPart), work: workOf(ofPart) }];
    });
    return {
      name,
      version,
      sha256,
      description: manifest.description,
      intended_use: manifest.intended_use,
      regulatory: manifest.regulatory,
      accepts: manifest.accepts,
      stage: manifest.stage,
      release: manifest.release,
      required: manifest.required,
      provider: provider ?? null,
      gpu: gpu ?? null,
      health,
      residence: figures === undefined ? null : residenceOf(figures),
      work: figures === undefined ? null : workOf(figures),
      ...(parts === undefined ? {} : { parts }),
      ...(error === undefined ? {} : { error }),
    };
  };
  return {
    models: entries.map(listedModel),
    gpus: stats.gpus.map((gpu) => ({
      number: gpu.number,
      lost: gpu.lost,
      waiting: gpu.waiting,
      taken_bytes: gpu.takenBytes,
      limit_bytes: gpu.limitBytes,
      free_bytes: gpu.freeBytes,
      total_bytes: gpu.totalBytes,
    })),
    problems: [...problems],
  };
}
