/**
 * The use-case: read one image, run every model that accepts it, commit the results. The HTTP handler, the bulk
 * runner and the command line all call it; it runs inside a worker thread or in the command itself.
 */
import { release } from "../addon/bytes.js";
import { RadserveError } from "../base/errors.js";
import type { Image, SliceIdentity } from "../images/image.js";
import { openInput, openOutputFolder, type Opened } from "../files/guarded-paths.js";
import { readInput } from "./read-input.js";
import { withName, type Held } from "../results/commit/commit.js";
import { requireRoom } from "../files/durable-files.js";
import { receiptName } from "../results/commit/names.js";
import { RECEIPT_SCHEMA, type Answer, type Receipt, type ReceiptModel } from "../results/receipt/receipt.js";
import { reusable, sameImage, sameObject, type Wanted } from "../results/commit/reuse.js";
import { roomFor } from "../results/commit/needed-room.js";
import { accepting, candidatesOf, planOf, type Plan } from "./plan.js";
import { runPlan } from "./run-models.js";
import { checkDeadline, type Done, type InferContext, type InferTask } from "./task.js";
import { Stopwatch } from "../base/stopwatch.js";
import { VERSION } from "../base/version.js";

/** Everything one request needs after its image is read. */
interface Job {
  task: InferTask;
  context: InferContext;
  watch: Stopwatch;
  output: Opened;
  name: string;
}

/**
 * Runs one task. All files of the image appear, or none.
 * @throws RadserveError of any code in the table that is not about authentication or bulk
 */
export async function infer(task: InferTask, context: InferContext): Promise<Answer> {
  const candidates = candidatesOf(context.models, task.models);
  checkDeadline(task);
  const watch = new Stopwatch(task.startedAt);
  // The input first: a mistaken request makes no folder.
  const input = await openInput(task.inputPath, task.roots.input);
  try {
    const image = await readInput(input);
    watch.lap("read");
    const plan = planOf(candidates, image, task.outputs, context.outputs);
    const output = await openOutputFolder(task.outputFolder, task.roots.output);
    try {
      const job: Job = { task, context, watch, output, name: task.name ?? input.name };
      const limits = task.deadline === undefined ? {} : { deadline: task.deadline };
      return await withName(output.fdPath, job.name, limits, (held) => answer(job, image, plan, held));
    } finally {
      output.close();
    }
  } finally {
    input.close();
  }
}

/** With the name held: what lies there already, or a computation and its commit. */
async function answer(job: Job, image: Image, plan: Plan, held: Held): Promise<Answer> {
  const existing = await held.existing();
  if (existing.kind === "foreign") throw taken(job.name, "a file that is no receipt of Radserve");
  if (existing.kind === "receipt") {
    if (await reusable(job.output.fdPath, existing.receipt, wantedOf(image, plan)))
      return answerOf(job, existing.receipt, true);
    const { sopInstanceUid, seriesInstanceUid } = image.source;
    if (
      !sameObject(existing.receipt, {
        sop_instance_uid: sopInstanceUid,
        series_instance_uid: seriesInstanceUid,
      })
    )
      throw taken(job.name, "the result of another image");
  }
  await requireRoom(job.output.fdPath, roomOf(image, plan));
  job.watch.lap("look");
  const earlier = existing.kind === "receipt" ? existing.receipt : undefined;
  const { held: pixels } = job.context;
  const run = () => runPlan(plan, image, { ...job, earlier });
  const done = await (pixels === undefined ? run() : pixels.within(pixelBytes(image, plan), run));
  const receipt = receiptOf(job, image, plan, done);
  if (existing.kind === "receipt" && !sameImage(existing.receipt, receipt.source))
    throw taken(job.name, "the result of another image");
  if (existing.kind === "receipt") refuseLoss(existing.receipt, done.models);
  checkDeadline(job.task);
  await held.commit(done.files, receipt);
  for (const { bytes } of done.files) release(bytes);
  image.release?.();
  job.watch.lap("commit");
  return answerOf(job, receipt, false);
}

/** Of what is in memory at once: a frame, or all where a model takes them together. */
function pixelBytes({ format, frameCount }: Image, plan: Plan): number {
  const { rows, columns, samplesPerPixel, bitsAllocated } = format;
  const whole = accepting(plan).some(({ entry }) => entry.manifest.accepts.dimensions === "series");
  return (rows * columns * samplesPerPixel * bitsAllocated * (whole ? frameCount : 1)) / 8;
}

function roomOf(image: Image, plan: Plan): number {
  return roomFor(
    image,
    accepting(plan).map(({ entry, outputs }) => ({ manifest: entry.manifest, outputs })),
  );
}

/**
 * A model that fails now must not take away what it said about this image before: the fault may pass, the result
 * would be gone. Throws the model's error; the earlier result stays.
 */
function refuseLoss(earlier: Receipt, models: readonly ReceiptModel[]): void {
  const kept = new Set(earlier.models.filter((m) => m.status === "succeeded").map((m) => m.name));
  const lost = models.find((model) => model.status === "failed" && kept.has(model.name));
  if (lost?.error === undefined) return;
  const { error, message, details } = lost.error;
  throw new RadserveError(error, `${message} The earlier result of this image is kept.`, details);
}

function taken(name: string, found: string): RadserveError {
  return new RadserveError(
    "output_name_taken",
    `Expected the output folder to hold nothing under this name, or an earlier result of this image; found ${found}. Choose another output folder, or move what lies there.`,
    { name: receiptName(name) },
  );
}

function wantedOf(image: Image, plan: Plan): Wanted {
  return {
    file_sha256: image.source.fileSha256,
    models: plan.models.map(({ entry }) => ({
      name: entry.name,
      sha256: entry.sha256,
      site_thresholds: entry.site.thresholds,
    })),
    outputs_requested: plan.outputs,
    outputs_from: plan.from,
    radserve_version: VERSION,
  };
}

/** The source as a receipt tells it. */
export function sourceOf(name: string, image: Image, pixelSha256: string): Receipt["source"] {
  const { source, format, series } = image;
  return {
    name,
    format: source.format,
    bytes: source.bytes,
    file_sha256: source.fileSha256,
    pixel_sha256: pixelSha256,
    rows: format.rows,
    columns: format.columns,
    frames: image.frameCount,
    photometric_interpretation: format.photometricInterpretation,
    ...present("modality", source.modality),
    ...present("transfer_syntax_uid", source.transferSyntaxUid),
    ...present("sop_class_uid", source.sopClassUid),
    ...present("sop_instance_uid", source.sopInstanceUid),
    ...present("series_instance_uid", source.seriesInstanceUid),
    ...present("study_instance_uid", source.studyInstanceUid),
    ...(series === undefined ? {} : { slices: series.slices.map(sliceOf) }),
  };
}

function sliceOf({ sopInstanceUid, fileSha256, frame }: SliceIdentity) {
  return {
    ...present("sop_instance_uid", sopInstanceUid),
    file_sha256: fileSha256,
    ...(frame === undefined ? {} : { frame }),
  };
}

function receiptOf(job: Job, image: Image, plan: Plan, done: Done): Receipt {
  return {
    schema: RECEIPT_SCHEMA,
    radserve_version: VERSION,
    status: done.models.some((model) => model.status === "failed") ? "partial" : "completed",
    source: sourceOf(job.name, image, done.pixelSha256),
    transforms: image.transforms,
    warnings: image.warnings,
    outputs_requested: plan.outputs,
    outputs_from: plan.from,
    models: done.models,
    timings: {
      request_id: job.task.requestId,
      started_at: job.watch.startedAt,
      utc_offset: job.watch.utcOffset,
      finished_at: new Date().toISOString(),
      milliseconds: job.watch.laps(),
    },
  };
}

function present<K extends string>(key: K, value: string | undefined): Partial<Record<K, string>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, string>);
}

/** What the client reads: paths as it named them. */
function answerOf(job: Job, receipt: Receipt, reused: boolean): Answer {
  const { task } = job;
  const folder = task.outputFolder === "/" ? "" : task.outputFolder.replace(/\/+$/, "");
  return {
    request_id: task.requestId,
    status: receipt.status,
    input_image_path: task.inputPath,
    receipt_path: `${folder}/${receiptName(job.name)}`,
    reused,
    models: receipt.models.map((model) => ({
      name: model.name,
      version: model.version,
      status: model.status,
      ...(model.error === undefined ? {} : { error: model.error }),
      ...(model.reasons === undefined ? {} : { reasons: model.reasons }),
      ...(model.shadow === undefined ? {} : { shadow: model.shadow }),
      findings: model.findings,
      measurements: model.measurements,
      outputs: model.outputs.map((file) => ({ ...file, path: `${folder}/${file.path}` })),
      ...(model.provider === undefined ? {} : { provider: model.provider }),
      warnings: model.warnings,
    })),
    timings_ms: { ...job.watch.laps(), total: job.watch.total() },
  };
}
