/** Runs the planned models over the frames of one image, or over them all as one volume, and makes their results; nothing is written here. */
import { createHash } from "node:crypto";
import { caveats } from "../models/acceptance.js";
import { sortingStep, volumeOf } from "../images/dicom/volume.js";
import type { InferResult, Preparation, InferOptions, EngineOutput, Plane } from "../engine/types.js";
import { release } from "../addon/bytes.js";
import { asRadserveError, RadserveError, type ErrorCode } from "../base/errors.js";
import type { Image, TransformStep, Volume } from "../images/image.js";
import { checkDeadline, type Done, type InferContext, type InferTask } from "./task.js";
import { frameSteps } from "../models/transform-steps.js";
import type { Manifest } from "../manifest/manifest.js";
import type { ModelEntry } from "../models/entry.js";
import type { ResultFile } from "../results/commit/commit.js";
import { dicomObjects } from "../results/dicom/objects.js";
import { sha256 } from "../files/durable-files.js";
import { interpret, type FrameResult, type Interpreted } from "../results/receipt/findings.js";
import { Highlights } from "../results/picture/highlights.js";
import { pictureName } from "../results/commit/names.js";
import { checkSides } from "../results/receipt/laterality.js";
import { asPredecessor, predecessorOf } from "../results/receipt/predecessor.js";
import type { Receipt, ReceiptModel } from "../results/receipt/receipt.js";
import { markedPixels, sliceOutputs } from "../results/receipt/volume-outputs.js";
import { drawPicture, planeOf, type Drawn, type Shown } from "../results/picture/draw-result.js";
import { accepting, type Plan, type PlannedModel } from "./plan.js";
import type { Stopwatch } from "../base/stopwatch.js";
import { VERSION } from "../base/version.js";

interface Job {
  task: InferTask;
  context: InferContext;
  watch: Stopwatch;
  name: string;
  /** The result of the same image that this one will take the place of. */
  earlier?: Receipt | undefined;
}

/** What one model has said so far. */
interface Outcome {
  planned: PlannedModel;
  nativeId: number;
  /** Set where the model takes all frames at once. */
  volume: Volume | undefined;
  /** One for each frame; a single one of a volume. */
  said: Interpreted[];
  rawHash: ReturnType<typeof createHash>;
  /** The frames or slices that the picture shows. */
  highlights: Highlights<Shown>;
  error: RadserveError | undefined;
  /** What the preparation of each frame found, or the one of the volume. */
  facts: Preparation[];
  /** Segmentations for each frame of the image, where an object holds them all. */
  masks: EngineOutput[][] | undefined;
  /** What the engine returned for the only frame, or for the volume. */
  whole: EngineOutput[];
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
 * @throws RadserveError of the decoder; of the first model where all failed; deadline_exceeded and its like
 */
export async function runPlan(plan: Plan, image: Image, job: Job): Promise<Done> {
  const outcomes = accepting(plan).map((planned) => begin(planned, image));
  const ofFrames = outcomes.filter(({ volume }) => volume === undefined);
  const ofVolume = outcomes.filter(({ volume }) => volume !== undefined);
  const pixelHash = createHash("sha256");
  const planes: Plane[] = [];
  for (let frame = 0; frame < image.frameCount; frame++) {
    const data = await image.frame(frame);
    pixelHash.update(data);
    job.watch.lap("decode");
    const plane = planeOf(image, frame, data);
    if (ofVolume.length > 0 || image.frameCount === 1) planes.push(plane);
    for (const outcome of ofFrames) await runFrame(outcome, image, frame, plane, job);
    checkDeadline(job.task);
    job.watch.lap("infer");
  }
  for (const outcome of ofVolume) await runVolume(outcome, image, planes, job);
  job.watch.lap("infer");
  const files: ResultFile[] = [];
  const models: ReceiptModel[] = [];
  for (const planned of plan.models) {
    const outcome = outcomes.find((candidate) => candidate.planned === planned);
    models.push(await finish(planned, outcome, image, job, files));
  }
  job.watch.lap("render");
  const [first] = outcomes;
  if (first?.error !== undefined && outcomes.every(failed)) throw first.error;
  free(planes, outcomes);
  return { models, files, pixelSha256: pixelHash.digest("hex") };
}

/** Stored values and what the engine made of them, when all files are made. */
function free(planes: readonly Plane[], outcomes: readonly Outcome[]): void {
  // The engine may still read what a failed call was given
  if (outcomes.some(failed)) return;
  for (const { data } of planes) release(data);
  for (const output of outcomes.flatMap(({ whole }) => whole)) {
    if (output.kind === "heatmap") release(output.values);
    if (output.kind !== "segmentation") continue;
    release(output.mask);
    if (output.fractions !== undefined) release(output.fractions);
  }
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
  const nativeId = entry.nativeId ?? -1;
  return {
    planned,
    nativeId,
    volume: entry.manifest.accepts.dimensions === "series" ? volumeOf(image) : undefined,
    said: [],
    rawHash: createHash("sha256"),
    highlights: new Highlights(),
    error: unloaded,
    facts: [],
    masks: planned.outputs.includes("seg") && segmentsAnything(entry.manifest) ? [] : undefined,
    whole: [],
  };
}

function segmentsAnything({ outputs }: Manifest): boolean {
  return outputs.some(({ kind }) => kind === "segmentation");
}

async function runFrame(
  outcome: Outcome,
  image: Image,
  frame: number,
  plane: Plane,
  job: Job,
): Promise<void> {
  await attempt(outcome, async () => {
    const { outputs, preparation } = await inferred(outcome, [plane], {}, job);
    outcome.facts[frame] = preparation;
    const said = interpreted(outcome, image, {
      ...(image.frameCount > 1 ? { frame: frame + 1 } : {}),
      outputs,
      spacing: image.spacing(frame),
    });
    if (outcome.masks !== undefined) outcome.masks[frame] = outputs;
    const isOnly = image.frameCount === 1;
    if (isOnly) outcome.whole = outputs;
    // The only frame is not decoded once more for the picture
    const stored = isOnly ? { data: plane.data } : {};
    const value = { outputs: () => outputs, findings: said.findings, ...stored };
    outcome.highlights.offer({ frame, weight: weightOf(said), value });
  });
}

async function runVolume(outcome: Outcome, image: Image, planes: readonly Plane[], job: Job): Promise<void> {
  const { volume } = outcome;
  if (volume === undefined) return;
  await attempt(outcome, async () => {
    const sorted = volume.frames.flatMap((frame) => planes[frame] ?? []);
    const { outputs, preparation } = await inferred(outcome, sorted, { geometry: volume.geometry }, job);
    outcome.facts = planes.map(() => preparation);
    outcome.whole = outputs;
    interpreted(outcome, image, { outputs, spacing: undefined, volume: volume.geometry });
    if (outcome.masks !== undefined)
      for (const [slice, frame] of volume.frames.entries())
        outcome.masks[frame] = sliceOutputs(outputs, slice);
    for (const [slice, weight] of markedPixels(outputs, sorted.length).entries()) {
      const value = { outputs: () => sliceOutputs(outputs, slice), findings: [], slice: slice + 1 };
      outcome.highlights.offer({ frame: volume.frames[slice] ?? 0, weight, value });
    }
  });
}

/** A model's own failure is its own; what ends the request ends it here. */
async function attempt(outcome: Outcome, work: () => Promise<void>): Promise<void> {
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
  { task, context, watch }: Job,
): Promise<InferResult> {
  checkDeadline(task);
  const result = await context.engine.infer(outcome.nativeId, planes, {
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
  const said = interpret(manifest.outputs, thresholds, [result]);
  const { outputs } = manifest;
  said.warnings.push(...checkSides({ image, outputs, findings: said.findings, results: result.outputs }));
  outcome.said.push(said);
  return said;
}

/** How much a frame has to show: marked pixels, else findings that are present. */
function weightOf({ findings }: Interpreted): number {
  const shown = findings.filter((finding) => finding.present);
  return shown.reduce((sum, { area }) => sum + (area?.pixels ?? 1), 0);
}

function baseOf(entry: ModelEntry): Omit<ReceiptModel, "status"> {
  return {
    name: entry.name,
    version: entry.version,
    sha256: entry.sha256,
    site_thresholds: entry.site.thresholds,
    ...(entry.manifest.release === "shadow" ? { shadow: true as const } : {}),
    findings: [],
    measurements: [],
    outputs: [],
    warnings: [],
    transforms: [],
  };
}

/** What a receipt tells of a model that does not take the image. */
export function notAccepted({ entry, reasons }: Pick<PlannedModel, "entry" | "reasons">): ReceiptModel {
  return { ...baseOf(entry), status: "not_accepted", reasons };
}

async function finish(
  planned: PlannedModel,
  outcome: Outcome | undefined,
  image: Image,
  job: Job,
  files: ResultFile[],
): Promise<ReceiptModel> {
  const { entry } = planned;
  if (outcome === undefined) return notAccepted(planned);
  const base = baseOf(entry);
  if (failed(outcome)) return { ...base, status: "failed", error: outcome.error.toObject() };
  const warnings = unique([
    ...caveats(entry.manifest, image),
    ...outcome.said.flatMap((said) => said.warnings),
  ]);
  const model: ReceiptModel = {
    ...base,
    status: "succeeded",
    findings: outcome.said.flatMap((said) => said.findings),
    measurements: outcome.said.flatMap((said) => said.measurements),
    warnings,
    transforms: transformsOf(outcome, image),
    raw_sha256: outcome.rawHash.digest("hex"),
    ...replacing(entry, image, job),
    ...(entry.provider === undefined ? {} : { provider: entry.provider }),
  };
  if (entry.manifest.release !== "active") return model;
  const made: ResultFile[] = [];
  await attempt(outcome, () => addFiles(model, outcome, image, job, made));
  // What fails its check takes the model with it, and no other
  if (failed(outcome)) return { ...base, status: "failed", error: outcome.error.toObject() };
  files.push(...made);
  return model;
}

function replacing(
  { name, sha256, site }: PlannedModel["entry"],
  image: Image,
  { earlier }: Job,
): Pick<ReceiptModel, "predecessor"> {
  const predecessor = predecessorOf(earlier, {
    ...{ name, sha256, site_thresholds: site.thresholds },
    file_sha256: image.source.fileSha256,
    radserve_version: VERSION,
  });
  return predecessor === undefined ? {} : { predecessor };
}

function failed(outcome: Outcome): outcome is Outcome & { error: RadserveError } {
  return outcome.error !== undefined;
}

/** Picture and DICOM objects, as far as they are wanted and can be made. */
async function addFiles(
  model: ReceiptModel,
  outcome: Outcome,
  image: Image,
  job: Job,
  files: ResultFile[],
): Promise<void> {
  const { planned, masks } = outcome;
  const warnings = [...model.warnings];
  const shown = outcome.highlights.chosen();
  let drawn: Promise<Drawn> | undefined;
  const { manifest } = planned.entry;
  const picture = () =>
    (drawn ??= drawPicture({ image, engine: job.context.engine, manifest, shown, result: model }));
  const wantsPng = planned.outputs.includes("png");
  // Other threads do most of it, while this one makes the objects that do not show it
  if (wantsPng) picture().catch(() => undefined);
  const { findings, measurements } = model;
  const objects = await dicomObjects({
    image,
    model: planned.entry,
    startedAt: job.watch.startedAt,
    utcOffset: job.watch.utcOffset,
    kinds: planned.outputs,
    asked: planned.asked,
    said: { findings, measurements, warnings: unique([...warnings, ...image.warnings]) },
    outputs: masks,
    name: job.name,
    predecessor: asPredecessor(model.predecessor),
    picture: async () => ({
      pixels: await (await picture()).pixels(),
      frames: shown.map(({ frame }) => frame),
    }),
  });
  if (wantsPng) {
    const name = pictureName(job.name, planned.entry.name);
    const { png: bytes } = await picture();
    files.push({ name, bytes });
    model.outputs.push({ path: name, media_type: "image/png", bytes: bytes.length, sha256: sha256(bytes) });
  }
  await (await drawn)?.release();
  files.push(...objects.files);
  model.outputs.push(...objects.outputs);
  model.warnings.push(...objects.warnings);
}

function transformsOf({ planned, volume, facts }: Outcome, image: Image): TransformStep[] {
  const [input] = planned.entry.manifest.inputs;
  if (input === undefined) return [];
  const interpretations = Array.from({ length: image.frameCount }, (_, frame) => image.interpretation(frame));
  const steps = frameSteps(image.format, interpretations, input, facts);
  // The reader of a folder has sorted its slices, and said so
  return volume === undefined || image.series !== undefined ? steps : [sortingStep(volume), ...steps];
}

function unique<T extends { code: string; message: string }>(warnings: T[]): T[] {
  const seen = new Set<string>();
  return warnings.filter(({ code, message }) => {
    const key = `${code}\n${message}`;
    return !seen.has(key) && seen.add(key);
  });
}
