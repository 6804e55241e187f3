/**
 * Makes the results of one image from what its models said: for each model an entry of the receipt,
 * and its files.
 */
import { ensembleFacts } from "../manifest/ensemble.js";
import type { Manifest } from "../manifest/manifest.js";
import { partFacts, partsThatRun } from "../manifest/model-parts.js";
import { cascadeFacts, regionFacts } from "../manifest/region.js";
import { effectivePrecision } from "../models/canary.js";
import { regionStep } from "./region.js";
import { straightSteps } from "../models/straighten.js";
import { release } from "../addon/bytes.js";
import { RadserveError } from "../base/errors.js";
import { VERSION } from "../base/version.js";
import type { Plane, Preparation } from "../engine/types.js";
import { sha256 } from "../files/durable-files.js";
import { sortingStep } from "../images/dicom/volume.js";
import type { Image, TransformStep } from "../images/image.js";
import { caveats, unique } from "../models/acceptance.js";
import type { ModelEntry } from "../models/entry.js";
import { roleFacts } from "../models/roles.js";
import { decodingSteps, modelSteps } from "../models/transform-steps.js";
import { pictureName, type ResultFile } from "../results/receipt/names.js";
import { dicomObjects } from "../results/dicom/objects.js";
import { drawPicture, type Drawn } from "../results/picture/draw-result.js";
import { RESULT_FORMS } from "../results/forms.js";
import { kindOfGiven } from "../results/kinds/kinds.js";
import type { ReceiptModel } from "../results/receipt/receipt.js";
import { ofReception } from "../results/receipt/reception.js";
import { gridFacts } from "../results/dicom/segmentation-grid.js";
import type { Analysis } from "./task.js";
import type { PlannedModel } from "./plan.js";
import { attempt, wholeOutputs, type ModelOutcome, type Ran } from "./run-models.js";
import { canonicalJson } from "../base/canonical-json.js";
import { COMPREHENSIVE_3D_SR } from "../results/dicom/objects/sr.js";

/** @throws RadserveError of the first model if all failed; deadline_exceeded and its like */
export async function makeResults(
  analysis: Analysis,
  ran: Ran,
): Promise<{ models: ReceiptModel[]; files: ResultFile[]; pixelSha256: string }> {
  const { outcomes, planes, pixelSha256 } = ran;
  const files: ResultFile[] = [];
  const models: ReceiptModel[] = [];
  for (const planned of analysis.plan.models) {
    const outcome = outcomes.find((candidate) => candidate.planned === planned);
    models.push(
      outcome === undefined ? notAccepted(planned) : await finish(outcome, analysis, files),
    );
  }
  analysis.watch.lap("render");
  const [first] = outcomes;
  if (first !== undefined && failed(first) && outcomes.every(failed)) throw namingModel(first);
  free(planes, outcomes);
  return { models, files, pixelSha256 };
}

/** Gives back the stored values and what the engine made of them. */
function free(planes: readonly Plane[], outcomes: readonly ModelOutcome[]): void {
  // The engine may still read what a failed call was given.
  if (outcomes.some(failed)) return;
  for (const { data } of planes) release(data);
  for (const output of outcomes.flatMap(wholeOutputs)) kindOfGiven(output).release?.(output);
}

/** The request's error is its first model's, and says which that is. */
function namingModel({ ended, planned }: FailedModel): RadserveError {
  const { code, message, details, cause } = ended;
  return new RadserveError(code, message, { ...details, model: planned.entry.name }, { cause });
}

type FailedModel = ModelOutcome & { ended: RadserveError };

const failed = (outcome: ModelOutcome): outcome is FailedModel =>
  outcome.ended instanceof RadserveError;

function baseOf({ manifest, first, wanted, ...entry }: ModelEntry): Omit<ReceiptModel, "status"> {
  const { region, release } = manifest;
  return {
    name: entry.name,
    version: entry.version,
    sha256: entry.sha256,
    site_thresholds: entry.site.thresholds,
    ensemble: ensembleFacts(manifest),
    parts: partFacts(manifest, []),
    labels: wanted && [...wanted.labels],
    region: region && first && regionFacts(region, first),
    cascade: cascadeFacts(manifest, first),
    shadow: release === "shadow" ? true : undefined,
    findings: [],
    measurements: [],
    outputs: [],
    warnings: [],
    transforms: [],
  };
}

/** The receipt's entry of a model that does not take the image. */
export function notAccepted({
  entry,
  reasons,
}: Pick<PlannedModel, "entry" | "reasons">): ReceiptModel {
  return { ...baseOf(entry), status: "not_accepted", reasons };
}

/** The receipt's entry of a model that ran; its files are added to `files`. */
async function finish(
  outcome: ModelOutcome,
  analysis: Analysis,
  files: ResultFile[],
): Promise<ReceiptModel> {
  const { entry } = outcome.planned;
  const base = baseOf(entry);
  if (failed(outcome)) return { ...base, status: "failed", error: outcome.ended.toObject() };
  const { ended: refusal, given, told } = outcome;
  if (refusal !== undefined) return { ...base, status: "not_accepted", reasons: [refusal] };
  const { said } = told;
  const decoding = decodingSteps(entry.manifest, entry.thresholds);
  const model: ReceiptModel = {
    ...base,
    status: "succeeded",
    parts: partFacts(entry.manifest, partsThatRun(entry.manifest, entry.wanted?.labels)),
    findings: said.flatMap(({ findings }) => findings),
    measurements: said.flatMap(({ measurements }) => measurements),
    warnings: unique([
      ...caveats(entry.manifest, analysis.image),
      ...told.caveats,
      ...said.flatMap(({ warnings }) => warnings),
    ]),
    roles: given.roles.length === 0 ? undefined : roleFacts(given.roles),
    transforms: transformsOf(outcome, analysis.image),
    decoding: decoding.length === 0 ? undefined : decoding,
    raw_sha256: told.rawHash.digest("hex"),
    segmentation_grid: gridFacts(entry.manifest.outputs, wholeOutputs(outcome)),
    predecessor: predecessorOf(analysis, { ...base, provider: entry.provider }),
    ...computedBy(entry),
  };
  if (entry.manifest.release !== "active") return model;
  const made: ResultFile[] = [];
  await attempt(outcome, () => addFiles(model, outcome, analysis, made));
  // A file that fails its check takes its model with it, and no other.
  if (failed(outcome)) return { ...base, status: "failed", error: outcome.ended.toObject() };
  files.push(...made);
  return model;
}

/** ONNX Runtime on the CPU computes in the types of the graph, whatever precision is named. */
function computedBy({
  provider,
  manifest,
}: ModelEntry): Pick<ReceiptModel, "provider" | "precision"> {
  if (provider === undefined || provider === "cpu") return { provider };
  return { provider, precision: effectivePrecision(provider, manifest.execution.precision) };
}

/** Makes the picture and the DICOM objects that are planned and possible. */
async function addFiles(
  model: ReceiptModel,
  outcome: ModelOutcome,
  { image, reception, context, watch, name }: Analysis,
  files: ResultFile[],
): Promise<void> {
  const { planned, drawn: kept } = outcome;
  const { masks, ownGrid, marked } = kept;
  const { manifest } = planned.entry;
  const { overlayOpacity: opacity, segmentationType } = context.forms ?? RESULT_FORMS;
  const shown = kept.highlights.chosen();
  let drawn: Promise<Drawn> | undefined;
  const { engine } = context;
  const picture = () =>
    (drawn ??= drawPicture({ image, engine, manifest, shown, marked, result: model, opacity }));
  const wantsPng = planned.outputs.includes("png");
  // Other threads compress it, while this one makes the objects.
  if (wantsPng)
    picture()
      .then(({ png }) => png())
      .catch(() => undefined);
  const { findings, measurements, warnings } = model;
  const objects = await dicomObjects({
    image,
    model: planned.entry,
    startedAt: watch.startedAt,
    utcOffset: watch.utcOffset,
    kinds: planned.outputs,
    asked: planned.asked,
    said: {
      findings,
      measurements,
      warnings: unique([...warnings, ...image.warnings, ...reception]),
    },
    outputs: masks,
    ...(ownGrid === undefined ? {} : { ownGrid }),
    segmentationType,
    name,
    predecessor: model.predecessor,
    ...(model.roles === undefined ? {} : { roles: model.roles }),
    picture: async () => {
      const { picture: pixels, frames } = await picture();
      return { pixels, frames, opacity };
    },
  });
  if (wantsPng) {
    const bytes = await (await picture()).png();
    const file = pictureName(name, planned.entry.name);
    const hash = sha256(bytes);
    files.push({ name: file, bytes, sha256: hash });
    model.outputs.push({ path: file, media_type: "image/png", bytes: bytes.length, sha256: hash });
  }
  const composed = await drawn;
  if (composed !== undefined) {
    model.overlay_opacity = opacity;
    release(composed.picture.rgb);
  }
  files.push(...objects.files);
  model.outputs.push(...objects.outputs);
  model.warnings.push(...objects.warnings);
}

function transformsOf({ planned, told, given }: ModelOutcome, image: Image): TransformStep[] {
  const { manifest } = planned.entry;
  const { region } = manifest;
  const volume = given.samples[0]?.volume;
  const isCut = region !== undefined || told.extents.length > 0;
  const cut = isCut ? [regionStep(region, told.extents, volume !== undefined)] : [];
  const moved = straightSteps(volume, image.format);
  const steps = [...cut, ...moved, ...unitSteps(manifest, image, told.facts, given)];
  // The reader of a folder has sorted its slices, and said so.
  return volume === undefined || image.series !== undefined
    ? steps
    : [sortingStep(volume), ...steps];
}

/** The steps of a model, or those of each of its parts that ran, which begin with `part`. */
function unitSteps(
  whole: Manifest,
  image: Image,
  facts: readonly Preparation[],
  { units, roles }: ModelOutcome["given"],
): TransformStep[] {
  if (whole.parts === undefined) return modelSteps(whole, image, facts, roles);
  return units.flatMap(({ manifest, part }, place) => {
    const own = facts.map(({ parts }) => parts?.[place] ?? {});
    return [{ step: "part", name: part?.name }, ...modelSteps(manifest, image, own)];
  });
}

/**
 * The earlier report that a new report replaces (PS3.3 C.17.2.1, Predecessor Documents Sequence).
 * It is the report of an earlier result of the same image: of another start, by another version of
 * the model or of Radserve, with other thresholds, on another provider, or from an uncorrected
 * file. A repeat of the same analysis has its start and does not replace itself: it names the same
 * predecessor as before, so that it writes the same bytes.
 */
function predecessorOf(
  { earlier, image, reception, watch }: Analysis,
  now: Omit<ReceiptModel, "status">,
): ReceiptModel["predecessor"] {
  const before = earlier?.models.find(
    ({ name, status }) => name === now.name && status === "succeeded",
  );
  if (earlier === undefined || before === undefined) return undefined;
  const origin = ({ sha256: hash, site_thresholds, labels, ...one }: typeof now) => {
    const { region = null, cascade = null, provider = "cpu" } = one;
    return canonicalJson([hash, site_thresholds, labels ?? null, region, cascade, provider]);
  };
  const isSame =
    earlier.timings.started_at === watch.startedAt &&
    origin(before) === origin(now) &&
    earlier.source.file_sha256 === image.source.fileSha256 &&
    canonicalJson(ofReception(earlier.warnings)) === canonicalJson(reception) &&
    earlier.radserve_version === VERSION;
  const { study_instance_uid } = earlier.source;
  const report = before.outputs.find(({ sop_class_uid }) => sop_class_uid === COMPREHENSIVE_3D_SR);
  const { sop_class_uid, sop_instance_uid, series_instance_uid } = report ?? {};
  if (
    isSame ||
    study_instance_uid === undefined ||
    series_instance_uid === undefined ||
    sop_class_uid === undefined ||
    sop_instance_uid === undefined
  )
    return before.predecessor;
  return { study_instance_uid, series_instance_uid, sop_class_uid, sop_instance_uid };
}
