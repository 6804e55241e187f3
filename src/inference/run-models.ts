/**
 * Runs the models that take an image, over each of its frames or over all of them as one volume.
 * What they said is kept as outcomes; no file is made here.
 */
import { createHash } from "node:crypto";
import { asRadserveError, errors, RadserveError, type ErrorCode } from "../base/errors.js";
import { monotonic } from "../base/monotonic.js";
import type { EngineOutput, Plane, Preparation } from "../engine/types.js";
import { volumeOf } from "../images/dicom/volume.js";
import { addWarnings, type Image, type Volume, type Warning } from "../images/image.js";
import { firstModelOf, imageInputs, takesWhole, type Manifest } from "../manifest/manifest.js";
import { seenBy } from "../manifest/roles.js";
import type { Reason } from "../models/attribute-values.js";
import { attributeNumbers } from "../models/attribute-numbers.js";
import { EmptyFrames } from "../models/empty-frames.js";
import { checkHounsfield, takesHounsfield } from "../models/hounsfield.js";
import { checkNumbers, interpretationFor, valueCaveats } from "../models/input-values.js";
import { rolesIn, type Filled } from "../models/roles.js";
import { wholeOf } from "../models/wanted.js";
import { isOfMasks } from "../results/dicom/objects/table.js";
import type { GroupGeometry, Interpreted } from "../results/kinds/finding.js";
import { planeOf, type ShownOutputs } from "../results/picture/draw-result.js";
import { Highlights } from "../results/picture/highlights.js";
import type { MarkedVolume } from "../results/picture/reslice.js";
import { interpret, interpretOver } from "../results/findings/findings.js";
import { checkSides } from "../results/findings/laterality.js";
import {
  fullestCrossing,
  markedPixels,
  modelGridOf,
  modelGridSlice,
  sliceOutputs,
  type ModelGrid,
} from "../results/findings/volume-outputs.js";
import { wantedOutputs } from "../results/findings/wanted-outputs.js";
import { inferUnits, unitsToRun, type LoadedUnit } from "./parts.js";
import { accepting, type PlannedModel } from "./plan.js";
import type { Extent } from "./region.js";
import { type Analysis, checkTime } from "./task.js";
import { inferSample, samplesOf, type FirstRun, type ModelSample, type Stack } from "./views.js";

/** The state of one model's run over the image. */
export interface ModelOutcome {
  planned: PlannedModel;
  /** The model's inputs. */
  given: { samples: ModelSample[]; roles: Filled[]; numbers: number[][]; units: LoadedUnit[] };
  /** Outputs of the sample that was last run. */
  outputs: EngineOutput[];
  /** The receipt is made of this. */
  told: InterpretedSamples;
  /** Pictures and objects are made of this. */
  drawn: Drawable;
  /** The reason if there is no result: the model failed, or refuses an empty region. */
  ended: RadserveError | Reason | undefined;
}

interface InterpretedSamples {
  /** One for each sample. */
  said: Interpreted[];
  /** Warnings about the frames' values. */
  caveats: Warning[];
  rawHash: ReturnType<typeof createHash>;
  /** For each frame, the facts of its preparation, or of that of the volume. */
  facts: Preparation[];
  /** One for each sample of a model that looks at a part. */
  extents: Extent[];
}

interface Drawable {
  /** The frames or slices that the picture shows. */
  highlights: Highlights<ShownOutputs>;
  marked: MarkedVolume | undefined;
  /** Segmentations for each frame of the image; set if an object is to hold them all. */
  masks: EngineOutput[][] | undefined;
  /**
   * The model's grid, and segmentations for each of its slices; set if the manifest wants segments
   * in it.
   */
  ownGrid: { volume: ModelGrid; outputs: EngineOutput[][] } | undefined;
}

/**
 * The outputs of an image that is one sample; none if there are several, whose outputs are not
 * kept.
 */
export const wholeOutputs = ({ given, outputs }: ModelOutcome): EngineOutput[] =>
  given.samples.length === 1 ? outputs : [];

export interface Ran {
  outcomes: ModelOutcome[];
  /**
   * Stored values that are still in memory: those of a single frame, of a volume, or of all members
   * of a case.
   */
  planes: Plane[];
  /** SHA-256 over the stored values of all frames, in order, hex. */
  pixelSha256: string;
}

/** Faults of the request or of the node: they end the request, whichever model met them first. */
const ENDS_ALL: readonly ErrorCode[] = [
  "deadline_exceeded",
  "cancelled",
  "overloaded",
  "shutting_down",
  "disk_full",
  "share_unavailable",
];

/**
 * Decodes each frame once and gives it to every model that takes single frames, then all of them
 * together to those that take several at once; only for these are frames kept in memory.
 * @throws RadserveError of the decoder; deadline_exceeded and its like
 */
export async function runModels(analysis: Analysis): Promise<Ran> {
  const { image, plan, watch, task, context } = analysis;
  const outcomes = accepting(plan).map((planned) => begin(planned, image));
  // A model that finds a region goes before those that look at it, whatever their names.
  const isLater = ({ planned }: ModelOutcome) => firstModelOf(planned.entry.manifest) !== undefined;
  const ordered = outcomes.toSorted((a, b) => Number(isLater(a)) - Number(isLater(b)));
  const run = (
    outcome: ModelOutcome,
    sample: ModelSample,
    planeAt: (image: Image, frame: number) => Plane,
  ) => attempt(outcome, () => runSample(outcome, outcomes, sample, planeAt, analysis));

  const members = image.case?.members ?? [image];
  const decoded = new Map<Image, Plane[]>(members.map((member) => [member, []]));
  const keeps =
    image.case !== undefined ||
    image.frameCount === 1 ||
    outcomes.some(({ given }) => !given.samples.every(isOneFrame));
  const pixelHash = createHash("sha256");
  for (const [member, planes] of decoded) {
    const empty = new EmptyFrames(member);
    for (let frame = 0; frame < member.frameCount; frame++) {
      const data = await member.frame(frame);
      checkTime(task, context);
      watch.lap("decode");
      const plane = planeOf(member, frame, data);
      if (keeps) planes.push(plane);
      empty.look(frame, data);
      const isLast = frame === member.frameCount - 1;
      for (const outcome of outcomes)
        await attempt(outcome, () => {
          checkValues(outcome, member, frame, data);
          if (isLast) outcome.told.caveats.push(...empty.caveats(measuresAcross(outcome, member)));
        });
      // Hashing takes about as long as a small model, which runs on threads of the engine meanwhile
      const [first, ...others] = ordered.flatMap((outcome) => {
        const sample = outcome.given.samples[frame];
        const takes =
          sample !== undefined && isOneFrame(sample) && sample.parts[0]?.image === member;
        return takes ? [() => run(outcome, sample, () => plane)] : [];
      });
      const running = first?.();
      pixelHash.update(data);
      member.hash?.();
      await running;
      for (const other of others) await other();
      checkTime(task, context);
      watch.lap("infer");
    }
  }
  const keptPlane = (member: Image, frame: number): Plane => {
    const plane = decoded.get(member)?.[frame];
    if (plane === undefined) throw new RangeError("Frames of samples of several are kept");
    return plane;
  };
  for (const outcome of ordered)
    for (const sample of outcome.given.samples)
      if (!isOneFrame(sample)) await run(outcome, sample, keptPlane);
  for (const outcome of outcomes) await attempt(outcome, () => tellOverFrames(outcome, image));
  watch.lap("infer");
  return { outcomes, planes: [...decoded.values()].flat(), pixelSha256: pixelHash.digest("hex") };
}

/**
 * A sample that is run as soon as its frame is decoded. Those of an image are in the order of its
 * frames.
 */
const isOneFrame = ({ volume, centre, parts }: ModelSample): boolean =>
  volume === undefined && centre === undefined && parts.length === 1;

/** Whether a model's numbers are of all frames together. */
const measuresAcross = ({ planned }: ModelOutcome, member: Image): boolean =>
  takesWhole(planned.entry.manifest) || member.series?.grouped === true;

function begin(planned: PlannedModel, image: Image): ModelOutcome {
  const { entry } = planned;
  const { manifest } = entry;
  const unloaded = entry.error?.message ?? `The model ${entry.name} is not loaded.`;
  const segments = manifest.outputs.some(({ kind }) => kind === "segmentation");
  const masks: EngineOutput[][] | undefined =
    segments && planned.outputs.some(isOfMasks) ? [] : undefined;
  const roles = rolesIn(manifest, image);
  return {
    planned,
    given: {
      samples: samplesOf(manifest, image, roles),
      roles,
      numbers: attributeNumbers(manifest, image),
      units: unitsToRun(entry),
    },
    outputs: [],
    told: { said: [], caveats: [], rawHash: createHash("sha256"), facts: [], extents: [] },
    drawn: { highlights: new Highlights(), marked: undefined, masks, ownGrid: undefined },
    ended: entry.nativeId === undefined ? errors.model_unavailable(unloaded) : undefined,
  };
}

/**
 * Looks at a frame's stored values before the model sees them.
 * @throws RadserveError decode_suspect if they cannot be what the model takes them for
 */
function checkValues(
  { planned, given, told: { caveats } }: ModelOutcome,
  image: Image,
  frame: number,
  data: Uint8Array,
): void {
  const { manifest: whole } = planned.entry;
  addWarnings(caveats, checkNumbers(image, frame, data));
  const seen =
    whole.roles === undefined
      ? [whole]
      : given.roles
          .filter((filled) => filled.image === image)
          .map(({ role }) => seenBy(whole, role));
  for (const manifest of seen) {
    if (takesHounsfield(manifest, image, frame))
      caveats.push(...checkHounsfield(image, frame, data));
    for (const { values } of imageInputs(manifest))
      caveats.push(...valueCaveats(values, image, frame, data));
  }
}

/** A model's own failure stays its own; a failure that ends the request is thrown on. */
export async function attempt(
  outcome: ModelOutcome,
  work: () => Promise<void> | void,
): Promise<void> {
  if (outcome.ended !== undefined) return;
  try {
    await work();
  } catch (thrown) {
    const error = asRadserveError(thrown);
    if (ENDS_ALL.includes(error.code)) throw error;
    outcome.ended = error;
  }
}

async function runSample(
  outcome: ModelOutcome,
  outcomes: readonly ModelOutcome[],
  sample: ModelSample,
  planeAt: (image: Image, frame: number) => Plane,
  { image, task, context, watch }: Analysis,
): Promise<void> {
  const { told, planned, given } = outcome;
  const { manifest, thresholds, wanted } = planned.entry;
  const whole = wholeOf(planned.entry);
  checkTime(task, context);
  const stacks = sample.parts.map((part) => ({
    ...part,
    planes: part.frames.map((frame) => planeAt(part.image, frame)),
  }));
  const result = await inferSample(sample, stacks, {
    manifest: whole,
    first: (name) => firstRun(name, planned.entry.name, outcomes),
    infer: async (planes, options) => {
      const inferred = await inferUnits(given.units, whole, (unit) => {
        checkTime(task, context);
        return context.engine.infer(unit.id, planes, {
          priority: task.priority,
          cancelId: task.cancelId,
          subject: task.subjectNumber,
          timeoutMs:
            task.deadline === undefined ? undefined : Math.max(1, task.deadline - monotonic()),
          thresholds: unit.thresholds,
          numbers: given.numbers,
          ...options,
        });
      });
      watch.add("queue", inferred.timings.queueMs);
      watch.add("prepare", inferred.timings.prepareMs);
      watch.add("run", inferred.timings.runMs);
      watch.add("postprocess", inferred.timings.postprocessMs);
      told.rawHash.update(inferred.rawSha256);
      return inferred;
    },
  });
  if ("code" in result) {
    outcome.ended = result;
    return;
  }
  const { preparation, extent, warnings } = result;
  const outputs =
    wanted === undefined ? result.outputs : wantedOutputs(result.outputs, whole, wanted.labels);
  const { frame, volume } = sample;
  outcome.outputs = outputs;
  if (extent !== undefined) told.extents.push(extent);
  const said = interpret(manifest.outputs, thresholds, {
    frame: image.frameCount > 1 && frame !== undefined ? frame + 1 : undefined,
    outputs,
    spacing: frame === undefined ? undefined : image.spacing(frame),
    regions: frame === undefined ? undefined : image.regions?.(frame),
    volume: volume?.geometry,
    slices: volume?.frames,
    flawed: volume?.flaws !== undefined,
    inGroup: image.frameCount > 1 && image.series?.grouped,
    planes: measuredPlanes(sample, stacks, manifest),
  });
  const { findings } = said;
  said.warnings.push(
    ...checkSides({ image, outputs: manifest.outputs, findings, results: outputs }),
    ...warnings,
  );
  told.said.push(said);
  if (frame !== undefined) told.facts[frame] = preparation;
  else told.facts = Array.from({ length: image.frameCount }, () => preparation);
  const planes = stacks[0]?.planes ?? [];
  if (volume !== undefined) keepVolume(outcome, volume, planes, said);
  // The only frame is not decoded once more for the picture.
  else
    keepFrame(
      outcome,
      frame ?? 0,
      said,
      image.frameCount === 1 ? planes[sample.centre ?? 0] : undefined,
    );
}

/** Findings about all frames together come before findings about single frames. */
function tellOverFrames({ planned, told, given }: ModelOutcome, image: Image): void {
  const { manifest, thresholds } = planned.entry;
  if (given.samples.length < 2) return;
  const whole = interpretOver(
    manifest.outputs,
    thresholds,
    told.said.flatMap(({ findings }) => findings),
    image.series?.grouped === true ? geometryOf(image) : undefined,
  );
  const { findings } = whole;
  if (findings.length === 0) return;
  whole.warnings.push(...checkSides({ image, outputs: manifest.outputs, findings, results: [] }));
  told.said.unshift(whole);
}

/** How the slices of a group lie. */
function geometryOf(image: Image): GroupGeometry {
  try {
    return volumeOf(image).geometry;
  } catch (error) {
    if (!(error instanceof RadserveError) || error.code !== "series_invalid") throw error;
    return { missing: error.message };
  }
}

/** The pixels whose grid the outputs have: all pixels of the first part, or its one frame. */
function measuredPlanes(
  { centre, parts }: ModelSample,
  stacks: readonly Stack[],
  manifest: Manifest,
): Plane[] {
  const role = parts[0]?.role;
  const seen = role === undefined ? manifest : seenBy(manifest, role);
  const { planes = [] } = stacks[0] ?? {};
  return (centre === undefined ? planes : planes.slice(centre, centre + 1)).map((plane) => ({
    ...plane,
    interpretation: interpretationFor(seen, plane.interpretation),
  }));
}

/** @param plane set if its values stay in memory */
function keepFrame(
  { outputs, drawn: { masks, highlights } }: ModelOutcome,
  frame: number,
  said: Interpreted,
  plane: Plane | undefined,
): void {
  if (masks !== undefined) masks[frame] = outputs;
  const { findings, measurements } = said;
  const value = {
    outputs: () => outputs,
    findings,
    measurements,
    ...(plane && { data: plane.data }),
  };
  highlights.offer({ frame, weight: weightOf(said), value });
}

/**
 * A frame's weight among those to show: its marked pixels, and one for each present finding that
 * has no area.
 */
function weightOf({ findings }: Interpreted): number {
  const shown = findings.filter((finding) => finding.present);
  return shown.reduce((sum, { area }) => sum + (area?.pixels ?? 1), 0);
}

/**
 * Of a box its middle slice is shown.
 * @param planes of the volume's slices, in their order
 */
function keepVolume(
  { planned, outputs, drawn }: ModelOutcome,
  volume: Volume,
  planes: Plane[],
  { findings }: Interpreted,
): void {
  const solids = findings.filter(({ present, frames }) => present && frames !== undefined);
  if (drawn.masks !== undefined)
    for (const [slice, frame] of volume.frames.entries())
      drawn.masks[frame] = sliceOutputs(outputs, slice);
  const grid = planned.outputs.includes("seg") ? modelGridOf(outputs) : undefined;
  if (grid !== undefined) {
    const slices = Array.from({ length: grid.slices }, (_, slice) =>
      modelGridSlice(outputs, slice),
    );
    drawn.ownGrid = { volume: grid, outputs: slices };
  }
  const marked = markedPixels(outputs, planes.length);
  const crossing = fullestCrossing(outputs, marked);
  if (crossing !== undefined) drawn.marked = { volume, planes, outputs, crossing };
  for (const [slice, pixels] of marked.slices.entries()) {
    const data = planes[slice]?.data;
    const frame = volume.frames[slice] ?? 0;
    const here = solids.filter(({ frames }) => frames?.includes(frame + 1));
    const middles = here.filter(({ frames = [] }) => frames[frames.length >> 1] === frame + 1);
    const weight = Math.max(0, ...middles.map(({ score = 1 }) => score)) + pixels;
    const shown = { outputs: () => sliceOutputs(outputs, slice), findings: here, slice: slice + 1 };
    const value = { ...shown, ...(data && { data }) };
    drawn.highlights.offer({ frame, weight, value });
  }
}

/** @throws RadserveError of its failure, with its name */
function firstRun(name: string, later: string, outcomes: readonly ModelOutcome[]): FirstRun {
  const first = outcomes.find(({ planned }) => planned.entry.name === name);
  const about = `The model "${name}", which looks before ${later},`;
  if (first === undefined) throw errors.model_unavailable(`${about} is not here.`);
  const { ended, outputs, planned } = first;
  if (ended instanceof RadserveError)
    throw new RadserveError(ended.code, `${about} failed: ${ended.message}`);
  return { manifest: planned.entry.manifest, outputs };
}
