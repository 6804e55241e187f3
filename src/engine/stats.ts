/** What the engine says about itself: counters since its start, per model since its load. */
import { z } from "zod";

const count = z.number().int().nonnegative();
const seconds = z.number().nonnegative();
const classes = <T extends z.ZodType>(value: T) =>
  z.strictObject({ stat: value, routine: value, bulk: value });

/** Buckets that double: `ends` are upper bounds, and counts has one more for what is beyond the last. */
const histogram = z.strictObject({ ends: z.array(z.number()), counts: z.array(count), sum: z.number() });

/** Rows of one shape that may run together, and what the batcher has learned of their cost: time(n) = perRow n + fixed. */
const bucket = z.strictObject({
  /** For each input, without the batch. */
  rowShapes: z.array(z.array(count)),
  waiting: count,
  /** The largest batch worth running. */
  cap: count,
  perRowSeconds: seconds,
  fixedSeconds: seconds,
  /** What the device takes to change to another shape of this model. */
  switchSeconds: seconds,
  /** Median of the last runs of each size. */
  sizes: z.array(z.strictObject({ rows: count, seconds })),
});

const model = z.strictObject({
  id: count,
  name: z.string(),
  version: z.string(),
  /** Whether its images run in batches; else each on its own. */
  batched: z.boolean(),
  queued: classes(count),
  started: classes(count),
  completed: count,
  failed: count,
  /** Work that came after its deadline. */
  refused: z.strictObject({ deadline: count }),
  /** From the request to its start. */
  waitSeconds: classes(histogram),
  batchSizes: histogram,
  /** Time of a batch in the model. */
  runSeconds: histogram,
  /** Time of a batch to its device and back; empty if there is nothing to copy. */
  transferSeconds: histogram,
  /** Batches whose images had not been prepared next to each other, so that they were copied once more. */
  gatheredBatches: count,
  buckets: z.array(bucket),
  /** Memory of each session: on the CPU one spreads a run over all cores, the other stays on one. */
  sessions: z.array(z.strictObject({ spread: z.boolean(), bytes: count })),
});

export const engineStatsSchema = z.strictObject({
  queued: classes(count),
  running: count,
  /** Waiting for a device between preparation and post-processing. */
  parked: count,
  completed: count,
  failed: count,
  /** Memory that the engine's threads keep between runs that stay on one core. */
  keptRunBytes: count,
  models: z.array(model),
});

export type EngineStats = z.infer<typeof engineStatsSchema>;
export type EngineModelStats = EngineStats["models"][number];
export type EngineHistogram = z.infer<typeof histogram>;
export type EngineBucket = EngineModelStats["buckets"][number];
