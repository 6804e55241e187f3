/**
 * Runs the models that take an image, over each of its frames or over all of them as one volume. What they said is
 * kept as outcomes; no file is made here.
 */
import { createHash } from "node:crypto";
import { asRadserveError, RadserveError, type ErrorCode } from "../base/errors.js";
import type { EngineOutput, InferOptions, InferResult, Plane, Preparation } from "../engine/types.js";
import { volumeOf } from "../images/dicom/volume.js";
import type { Image, Volume, Warning } from "../images/image.js";
import { checkHounsfield, takesHounsfield } from "../models/hounsfield.js";
import { interpretationFor, valueCaveats } from "../models/input-values.js";
import { planeOf, type Shown } from "../results/picture/draw-result.js";
import { Highlights } from "../results/picture/highlights.js";
import { interpret, type FrameResult, type Interpreted } from "../results/receipt/findings.js";
import { checkSides } from "../results/receipt/laterality.js";
import { markedPixels, sliceOutputs } from "../results/receipt/volume-outputs.js";
import { type Analysis, checkTime } from "./task.js";
import { accepting, type PlannedModel } from "./plan.js";

/** What one model has said so far about the image. */
export interface Outcome {
  planned: PlannedModel;
  nativeId: number;
  /** Set if the model takes all frames at once. */
  volume: Volume | undefined;
  /** One for each frame; a single one for a volume. */
  said: Interpreted[];
  /** What its frames' values give cause to say. */
  caveats: Warning[];
  rawHash: ReturnType<typeof createHash>;
  /** The frames or slices that the picture shows. */
  highlights: Highlights<Shown>;
  error: RadserveError | undefined;
  /** For each frame, what its preparation or that of the volume found. */
  facts: Preparation[];
  /** Segmentations for each frame of the image; set if an object is to hold them all. */
  masks: EngineOutput[][] | undefined;
  /** What the engine returned for the only frame, or for the volume. */
  whole: EngineOutput[];
}

export interface Ran {
  outcomes: Outcome[];
  /** Stored values that are still in memory: those of a single frame, or of a volume. */
  planes: Plane[];
  /** SHA-256 over the stored values of all frames, in order, hex. */
  pixelSha256: string;
}

/** Faults of the request or of the box: they end the request, whichever model met them first. */
const ENDS_ALL: readonly ErrorCode[] = [
  "deadline_exceeded",
  "cancelled",
  "overloaded",
  "shutting_down",
  "disk_full",
];

/**
 * Decodes each frame once and gives it to every model that takes single frames, then all of them together to those
 * that take the volume; only for these are frames kept in memory.
 * @throws RadserveError of the decoder; deadline_exceeded and its like
 */
export async function runModels(analysis: Analysis): Promise<Ran> {
  const { image, plan, watch, task, context } = analysis;
  const outcomes = accepting(plan).map((planned) => begin(planned, image));
  const ofFrames = outcomes.filter(({ volume }) => volume === undefined);
  const ofVolume = outcomes.filter(({ volume }) => volume !== undefined);
  const pixelHash = createHash("sha256");
  const planes: Plane[] = [];
  for (let frame = 0; frame < image.frameCount; frame++) {
    const data = await image.frame(frame);
    checkTime(task, context);
    pixelHash.update(data);
    watch.lap("decode");
    const plane = planeOf(image, frame, data);
    if (ofVolume.length > 0 || image.frameCount === 1) planes.push(plane);
    for (const outcome of outcomes) await attempt(outcome, () => checkValues(outcome, image, frame, data));
    for (const outcome of ofFrames) await attempt(outcome, () => runFrame(outcome, frame, plane, analysis));
    checkTime(task, context);
    watch.lap("infer");
  }
  for (const outcome of ofVolume) await attempt(outcome, () => runVolume(outcome, planes, analysis));
  watch.lap("infer");
  return { outcomes, planes, pixelSha256: pixelHash.digest("hex") };
}

function begin(planned: PlannedModel, image: Image): Outcome {
  const { entry } = planned;
  const unloaded =
    entry.nativeId === undefined
      ? new RadserveError(
          "model_unavailable",
          entry.error?.message ?? `The model ${entry.name} is not loaded.`,
        )
      : undefined;
  const segments = entry.manifest.outputs.some(({ kind }) => kind === "segmentation");
  return {
    planned,
    nativeId: entry.nativeId ?? -1,
    volume: entry.manifest.accepts.dimensions === "series" ? volumeOf(image) : undefined,
    said: [],
    caveats: [],
    rawHash: createHash("sha256"),
    highlights: new Highlights(),
    error: unloaded,
    facts: [],
    masks: planned.outputs.includes("seg") && segments ? [] : undefined,
    whole: [],
  };
}

/**
 * Looks at a frame's stored values before the model sees them.
 * @throws RadserveError decode_suspect if they cannot be what the model takes them for
 */
function checkValues(outcome: Outcome, image: Image, frame: number, data: Uint8Array): void {
  const { manifest } = outcome.planned.entry;
  if (takesHounsfield(manifest, image, frame)) outcome.caveats.push(...checkHounsfield(image, frame, data));
  for (const { values } of manifest.inputs) outcome.caveats.push(...valueCaveats(values, image, frame, data));
}

async function runFrame(outcome: Outcome, frame: number, plane: Plane, analysis: Analysis): Promise<void> {
  const { image } = analysis;
  const { outputs, preparation } = await inferred(outcome, [plane], {}, analysis);
  outcome.facts[frame] = preparation;
  const said = interpreted(outcome, image, {
    ...(image.frameCount > 1 ? { frame: frame + 1 } : {}),
    outputs,
    spacing: image.spacing(frame),
    regions: image.regions?.(frame),
  });
  if (outcome.masks !== undefined) outcome.masks[frame] = outputs;
  const isOnly = image.frameCount === 1;
  if (isOnly) outcome.whole = outputs;
  // The only frame is not decoded once more for the picture.
  const stored = isOnly ? { data: plane.data } : {};
  const value = { outputs: () => outputs, findings: said.findings, ...stored };
  outcome.highlights.offer({ frame, weight: weightOf(said), value });
}

async function runVolume(outcome: Outcome, planes: readonly Plane[], analysis: Analysis): Promise<void> {
  const { volume } = outcome;
  if (volume === undefined) return;
  const sorted = volume.frames.flatMap((frame) => planes[frame] ?? []);
  const { geometry } = volume;
  const { outputs, preparation } = await inferred(outcome, sorted, { geometry }, analysis);
  outcome.facts = planes.map(() => preparation);
  outcome.whole = outputs;
  interpreted(outcome, analysis.image, { outputs, spacing: undefined, volume: geometry });
  if (outcome.masks !== undefined)
    for (const [slice, frame] of volume.frames.entries()) outcome.masks[frame] = sliceOutputs(outputs, slice);
  for (const [slice, weight] of markedPixels(outputs, sorted.length).entries()) {
    const value = { outputs: () => sliceOutputs(outputs, slice), findings: [], slice: slice + 1 };
    outcome.highlights.offer({ frame: volume.frames[slice] ?? 0, weight, value });
  }
}

/** A model's own failure stays its own; a failure that ends the request is thrown on. */
export async function attempt(outcome: Outcome, work: () => Promise<void> | void): Promise<void> {
  if (outcome.error !== undefined) return;
  try {
    await work();
  } catch (thrown) {
    const error = asRadserveError(thrown);
    if (ENDS_ALL.includes(error.code)) throw error;
    outcome.error = error;
  }
}

async function inferred(
  outcome: Outcome,
  planes: Plane[],
  more: Pick<InferOptions, "geometry">,
  { task, context, watch }: Analysis,
): Promise<InferResult> {
  checkTime(task, context);
  const { manifest } = outcome.planned.entry;
  const given = planes.map((plane) => ({
    ...plane,
    interpretation: interpretationFor(manifest, plane.interpretation),
  }));
  const result = await context.engine.infer(outcome.nativeId, given, {
    priority: task.priority,
    cancelId: task.cancelId,
    thresholds: outcome.planned.entry.thresholds,
    ...(task.deadline === undefined ? {} : { timeoutMs: Math.max(1, task.deadline - Date.now()) }),
    ...more,
  });
  watch.add("queue", result.timings.queueMs);
  watch.add("run", result.timings.runMs);
  outcome.rawHash.update(result.rawSha256);
  return result;
}

function interpreted(outcome: Outcome, image: Image, result: FrameResult): Interpreted {
  const { manifest, thresholds } = outcome.planned.entry;
  const { outputs } = manifest;
  const said = interpret(outputs, thresholds, result);
  said.warnings.push(...checkSides({ image, outputs, findings: said.findings, results: result.outputs }));
  outcome.said.push(said);
  return said;
}

/** How much a frame has to show: marked pixels, or one for each present finding that has no area. */
function weightOf({ findings }: Interpreted): number {
  const shown = findings.filter((finding) => finding.present);
  return shown.reduce((sum, { area }) => sum + (area?.pixels ?? 1), 0);
}
