/**
 * The use-case: read one image, run every model that accepts it, commit the results. The HTTP
 * handler, the bulk runner and the command line all call it; it runs inside a worker thread or in
 * the command itself.
 */
import { fstatSync } from "node:fs";
import { release } from "../addon/bytes.js";
import type { AuditOutcome, PatientAndStudy } from "../audit/action.js";
import { errors, RadserveError } from "../base/errors.js";
import { Stopwatch } from "../base/stopwatch.js";
import { requireRoom } from "../files/durable-files.js";
import {
  openInput,
  openOutputFolder,
  type OpenedPath,
  type OpenedInput,
} from "../files/guarded-paths.js";
import type { ModelEntry } from "../models/entry.js";
import { identitiesOf, sameModels } from "../models/identity.js";
import { isUnwanted, wantingLabels } from "../models/wanted.js";
import { withName, type HeldName } from "../results/commit/commit.js";
import { caseName } from "../results/receipt/names.js";
import { roomFor } from "../results/commit/needed-room.js";
import { earlierResult, keyOf, refuseLoss } from "../results/commit/reuse.js";
import { answerOf, receiptOf } from "../results/commit/compose.js";
import type { Candidates } from "../images/dicom/case.js";
import type { Image } from "../images/image.js";
import { hashOfObjects } from "../results/receipt/of-receipt.js";
import { objectsOf, type Answer, type Receipt } from "../results/receipt/receipt.js";
import {
  type Analysis,
  checkTime,
  type InferContext,
  type InferTask,
  OTHER_MODELS,
} from "./task.js";
import { makeResults } from "./make-results.js";
import {
  accepting,
  bytesAtMost,
  bytesInMemory,
  candidatesOf,
  caseFor,
  coloured,
  judgeSeries,
  planOf,
  whyNoCase,
} from "./plan.js";
import { FOLDER_LIMITS, readSeriesFolder } from "./read-input.js";
import { readReceptionNote, replacedOf, warningsOf } from "./reception-note.js";
import { seriesInvalid } from "../images/dicom/series-fault.js";
import { toleranceOf } from "../manifest/manifest.js";
import { readImage } from "../images/read-image.js";
import { SliceMemory, withFile, type MemoryPatience } from "./reading-memory.js";
import { readWholeHere } from "../files/descriptor.js";
import { runModels } from "./run-models.js";

/**
 * Runs one task. All files of the image appear, or none.
 * @throws RadserveError of any code in the table that is not about authentication or bulk
 */
export async function infer(task: InferTask, context: InferContext): Promise<Answer> {
  const candidates = wantedCandidates(task, context);
  requirePinned(candidates, task.pinned);
  checkTime(task, context);
  const watch = new Stopwatch(task.startedAt);
  // The input is opened first, so that a mistaken request makes no folder.
  const input = await openInput(task.inputPath, task.roots.input, [], task.local);
  try {
    const started = { task, context, watch, note: await readReceptionNote(input) };
    if (input.kind === "folder") return await inferFolder(input, candidates, started);
    return await inferFile(input, candidates, started);
  } finally {
    input.close();
  }
}

function wantedCandidates({ models, labels }: InferTask, context: InferContext): ModelEntry[] {
  const all = candidatesOf(context.models, models);
  if (labels === undefined) return all;
  return wantingLabels(all.map(coloured), labels);
}

/**
 * Models may have been replaced since the task was given out.
 * @throws RadserveError model_unavailable
 */
function requirePinned(candidates: readonly ModelEntry[], pinned: InferTask["pinned"]): void {
  if (pinned === undefined || sameModels(identitiesOf(candidates), pinned)) return;
  throw errors.model_unavailable(
    "Expected the models that the job was submitted with; this server has others by now.",
    { reason: OTHER_MODELS },
  );
}

type Started = Pick<Analysis, "task" | "context" | "watch"> & {
  note: Awaited<ReturnType<typeof readReceptionNote>>;
};

function inferFile(
  { fd, name }: OpenedInput,
  candidates: ModelEntry[],
  started: Started,
): Promise<Answer> {
  const patience = patienceOf(started);
  const file = { size: fstatSync(fd).size, read: () => readWholeHere(fd) };
  return withFile(started.context.processMemory, file, patience, async (bytes, mostElements) =>
    inferRead(await readImage(bytes, patience.check, mostElements), name, candidates, started),
  );
}

async function inferFolder(
  folder: OpenedPath,
  candidates: ModelEntry[],
  started: Started,
): Promise<Answer> {
  const memory = new SliceMemory(started.context.processMemory, patienceOf(started));
  try {
    const { seriesInstanceUid: uid, asCase = false, group } = started.task;
    const grouped = group !== undefined;
    const judge = (series: readonly (Image | RadserveError)[]) =>
      judgeSeries(candidates, series, grouped);
    const looking = candidates.filter((one) => !isUnwanted(one)).map(({ manifest }) => manifest);
    const mustBeCase = asCase || looking.every(({ roles }) => roles !== undefined);
    let noCase: ReturnType<typeof whyNoCase> = [];
    const caseOf = (found: Candidates) => {
      const chosen = caseFor(candidates, found, mustBeCase);
      if (chosen === undefined) noCase = whyNoCase(candidates, found);
      return chosen;
    };
    const tolerance = toleranceOf(...looking);
    const choice = { uid, judge, tolerance, ...(grouped ? { grouped } : { caseOf }) };
    const image = await readSeriesFolder(folder, memory, FOLDER_LIMITS, choice).catch(
      (error: unknown) => {
        throw noCase.length === 0 ? error : alsoNoCase(error, noCase);
      },
    );
    return await inferRead(image, seriesName(folder.name, image), candidates, started);
  } finally {
    await memory.close();
  }
}

/** If no series of a folder could be chosen, the error says also why the folder is no case. */
function alsoNoCase(error: unknown, cases: ReturnType<typeof whyNoCase>): unknown {
  if (!(error instanceof RadserveError) || error.details?.["reason"] !== "several_series")
    return error;
  const message = `${error.message} For models of several series, details.cases says why the folder is not a case.`;
  return new RadserveError(error.code, message, { ...error.details, cases });
}

/** Results of the series of one folder, and of the case that it is, have names of their own. */
function seriesName(folder: string, image: Image): string {
  const { series, source } = image;
  if (image.case !== undefined) return caseName(folder);
  return series === undefined || series.others === 0
    ? folder
    : `${folder}.${source.seriesInstanceUid}`;
}

async function inferRead(
  image: Image,
  inputName: string,
  candidates: ModelEntry[],
  { task, context, watch, note }: Started,
): Promise<Answer> {
  const check = () => checkTime(task, context);
  const { seriesInstanceUid: wanted } = task;
  if (wanted !== undefined && image.source.seriesInstanceUid !== wanted)
    throw seriesInvalid(
      "no_such_series",
      "Expected the image to be of the series in series_instance_uid; it is of another one, or of none.",
    );
  context.wasOf?.(whoseIs(image));
  watch.lap("read");
  check();
  const plan = planOf(candidates, image, task.outputs, context.outputs);
  const name = task.name ?? inputName;
  const analysis: Analysis = {
    task,
    context,
    watch,
    name,
    image,
    reception: warningsOf(note, image),
    replaced: replacedOf(note, image),
    plan,
  };
  const output = await openOutputFolder(task.outputFolder, task.roots.output, {
    local: task.local,
  });
  try {
    const delivers = task.delivery !== undefined;
    const limits = {
      check,
      delivers,
      ...(task.deadline === undefined ? {} : { deadline: task.deadline }),
    };
    return await withName(output.fdPath, analysis.name, limits, (held) =>
      reuseOrCompute(analysis, output, held),
    );
  } finally {
    output.close();
  }
}

/** The patience with which a task waits for memory. */
function patienceOf({ task, context }: Pick<Analysis, "task" | "context">): MemoryPatience {
  return {
    patient: task.priority !== "stat",
    yields: task.priority === "bulk",
    check: () => checkTime(task, context),
  };
}

/**
 * Computes when the image's pixels have room in the thread's memory, and then all of it in the
 * process's: what waits for the thread is not counted.
 */
function withMemory<T>(
  { task, context, image, plan }: Analysis,
  compute: () => Promise<T>,
): Promise<T> {
  const { pixelBudget, processMemory } = context;
  const patience = patienceOf({ task, context });
  const inProcess = () =>
    processMemory === undefined
      ? compute()
      : processMemory.within(
          { kind: "images", ...bytesAtMost(image, plan, context.engine), ...patience },
          compute,
        );
  return pixelBudget === undefined
    ? inProcess()
    : pixelBudget.within(bytesInMemory(image, plan), inProcess, patience.check);
}

function whoseIs({ attributes, source }: Image): PatientAndStudy {
  return { patientId: attributes?.string("PatientID"), studyInstanceUid: source.studyInstanceUid };
}

function verdictOf(
  outcome: AuditOutcome["outcome"],
  image: Image,
  { models }: Receipt,
): AuditOutcome {
  return {
    outcome,
    whose: whoseIs(image),
    models: models.map(({ name, version, sha256, status }) => ({ name, version, sha256, status })),
  };
}

/**
 * While NAME is held: what lies there already, or else a result computed, made and committed now.
 */
async function reuseOrCompute(read: Analysis, output: OpenedPath, held: HeldName): Promise<Answer> {
  const { task, context, watch, name, image, plan } = read;
  const { fdPath: folder, realPath } = output;
  const placeOf = (receipt: Receipt, reused: boolean) =>
    task.delivery === undefined || objectsOf(receipt).length === 0
      ? undefined
      : {
          folder: realPath,
          name,
          reused,
          ...(reused ? { objects_sha256: hashOfObjects(receipt) } : {}),
        };
  const found = await earlierResult(folder, name, await held.existing(), () => keyOf(read, plan));
  if (found?.reusable === true) {
    await context.willCommit?.(
      verdictOf("reused", image, found.receipt),
      placeOf(found.receipt, true),
    );
    return answerOf(read, found.receipt, true);
  }
  await requireRoom(folder, roomFor(image, accepting(plan)));
  watch.lap("look");
  // Nothing that somebody else may have written goes into a new result
  const analysis = { ...read, earlier: found?.trust.trusted === true ? found.receipt : undefined };
  const compute = async () => makeResults(analysis, await runModels(analysis));
  const made = await withMemory(analysis, compute);
  const receipt = receiptOf(analysis, made.models, made.pixelSha256);
  if (found !== undefined) refuseLoss(name, found.receipt, receipt);
  checkTime(task, context);
  // Written while the files are staged; without it they do not appear
  const place = placeOf(receipt, false);
  const verdict = verdictOf(receipt.status, image, receipt);
  const allowed = context.willCommit?.(verdict, place).then(() => {
    const { attributes } = image;
    const input = task.inputPath;
    return context.staged?.({ folder: output, name, receipt, input, attributes });
  });
  await held.commit(made.files, receipt, allowed, place && task.delivery);
  for (const { bytes } of made.files) release(bytes);
  image.release?.();
  watch.lap("commit");
  return answerOf(analysis, receipt, false);
}
