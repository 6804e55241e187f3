/** Statistics of the engine: counters since its start, per model since its load. */
import { z } from "zod";

const count = z.number().int().nonnegative();
const classes = <T extends z.ZodType>(value: T) =>
  z.strictObject({ stat: value, routine: value, bulk: value });

/**
 * Buckets that double: `ends` are upper bounds, and counts has one more for what is beyond the
 * last.
 */
const histogram = z.strictObject({
  ends: z.array(z.number()),
  counts: z.array(count),
  sum: z.number(),
});

const model = z.strictObject({
  id: count,
  name: z.string(),
  version: z.string(),
  /** Number of the GPU that it runs on; absent on a CPU. */
  gpu: count.optional(),
  /** Its images run in batches; else each on its own. */
  batched: z.boolean(),
  /** How many batches of it may run beside each other; absent where there are none. */
  lanes: count.optional(),
  queued: classes(count),
  started: classes(count),
  completed: count,
  failed: count,
  /** Runs that go on although they were told to stop a second ago or more. */
  late: count,
  /** Work that came after its deadline. */
  refused: z.strictObject({ deadline: count }),
  /** From the request to its start. */
  waitSeconds: classes(histogram),
  batchSizes: histogram,
  /** Time of a batch in the model. */
  runSeconds: histogram,
  /**
   * Batches whose images had not been prepared next to each other, so that they were copied once
   * more.
   */
  gatheredBatches: count,
  /**
   * Memory of each session, as in LoadedModel: on the CPU one spreads a run over all cores, the
   * other stays on one.
   */
  sessions: z.array(z.strictObject({ spread: z.boolean(), bytes: count })),
  residence: z.strictObject({
    state: z
      .enum(["loaded", "idle", "returning"])
      .describe(
        "idle: its memory is given back until its next use (RADSERVE_MODEL_IDLE), or while other parts of its model need it",
      ),
    loads: count.describe("How often it was loaded, the returns after idling included"),
    loadSeconds: z
      .number()
      .describe("How long the last load took: what a request waits for an idle model"),
    problem: z.string().optional().describe("Why the last load of an idle model failed"),
  }),
});

const gpu = z.strictObject({
  number: count,
  lost: z.boolean().describe("Its CUDA context failed; the GPU is used again after a restart"),
  waiting: count.describe("Images that wait for it or run on it"),
  takenBytes: count.describe("Memory that all models there have taken together"),
  limitBytes: count.describe("Most memory that they may take (RADSERVE_GPU_MEMORY); 0 is no limit"),
  freeBytes: count.describe("Free memory; 0 if CUDA does not report it"),
  totalBytes: count,
});

export const engineStatsSchema = z.strictObject({
  running: count,
  /** Waiting for a device between preparation and post-processing. */
  parked: count,
  /** Runs of all models that go on although they were told to stop a second ago or more. */
  late: count,
  /** Runs that may go on at a time, late ones apart. */
  threads: count,
  /** GPUs that models were loaded on. */
  gpus: z.array(gpu),
  models: z.array(model),
});

export type EngineStats = z.infer<typeof engineStatsSchema>;
export type EngineModelStats = EngineStats["models"][number];
export type EngineHistogram = z.infer<typeof histogram>;
