/**
 * Runs the models that take an image, over each of its frames or over all of them as one volume. What they said is
 * kept as outcomes; no file is made here.
 */
import { createHash } from "node:crypto";
import { asRadserveError, RadserveError, type ErrorCode } from "../base/errors.js";
import { monotonic } from "../base/monotonic.js";
import type { EngineOutput, InferOptions, InferResult, Plane, Preparation } from "../engine/types.js";
import { markedLabels } from "../engine/marked-labels.js";
import { volumeOf } from "../images/dicom/volume.js";
import { warn, type Case, type Image, type Volume, type Warning } from "../images/image.js";
import {
  cascadeOf,
  firstModelOf,
  imageInputs,
  neighboursOf,
  toleranceOf,
  type Manifest,
} from "../manifest/manifest.js";
import { seenBy } from "../manifest/roles.js";
import { attributeNumbers } from "../models/attribute-numbers.js";
import { checkHounsfield, takesHounsfield } from "../models/hounsfield.js";
import { checkNumbers, interpretationFor, valueCaveats } from "../models/input-values.js";
import { rolesIn, sourcesOf, type Filled, type RoleSources } from "../models/roles.js";
import { isOfMasks } from "../results/dicom/objects/table.js";
import { planeOf, type Shown } from "../results/picture/draw-result.js";
import { Highlights } from "../results/picture/highlights.js";
import type { FrameResult, Interpreted } from "../results/kinds/finding.js";
import type { Box } from "../results/kinds/kind.js";
import { interpret } from "../results/findings/findings.js";
import { checkSides } from "../results/findings/laterality.js";
import {
  fullestCrossing,
  markedPixels,
  modelGridOf,
  modelGridSlice,
  sliceOutputs,
  type Crossing,
  type ModelGrid,
} from "../results/findings/volume-outputs.js";
import { type Analysis, checkTime } from "./task.js";
import { accepting, type PlannedModel } from "./plan.js";
import type { Reason } from "../models/acceptance.js";
import {
  inSourceSlices,
  straightCaveats,
  straightened,
  straightOf,
  type Straight,
} from "../models/straighten.js";
import {
  boxOf,
  cutGeometry,
  cutPlane,
  cutSources,
  laidBack,
  nonzeroBox,
  nothingFound,
  wholePairs,
  withMargin,
  type Grid,
  type Seen,
} from "./region.js";

/** What one model has said so far about the image. */
export interface Outcome {
  planned: PlannedModel;
  nativeId: number;
  /** Set if the model takes all frames at once. */
  volume: Volume | undefined;
  /** Set if the model takes each frame with its neighbours: which frames are beside each other. */
  stack: Volume | undefined;
  /** For each input of attributes, its numbers. */
  numbers: number[][];
  /** Of a model with roles, in the manifest's order. */
  roles: Filled[];
  /** What the engine is told of them, and their planes one after the other; set when they are decoded. */
  sources: RoleSources | undefined;
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
  /** Where the manifest wants its segments in the model's grid: that, and segmentations for each of its slices. */
  ownGrid: { volume: ModelGrid; outputs: EngineOutput[][] } | undefined;
  /** What the engine returned for the only frame, or for the volume. */
  whole: EngineOutput[];
  /** The same for the frame that was last looked at, or for the volume. */
  latest: EngineOutput[];
  /** Of a volume: where planes across its slices show what was marked; undefined if nothing was. */
  crossing: Crossing | undefined;
  /** The model in whose region this one looks. */
  first: Outcome | undefined;
  /** Of a model that looks at a region: what it was given of each frame, or of the volume. */
  seen: Seen[];
  /** Set if there was nothing to look at, and the manifest refuses that. */
  refused: Reason | undefined;
}

export interface Ran {
  outcomes: Outcome[];
  /** Stored values that are still in memory: those of a single frame, or of a volume. */
  planes: Plane[];
  /** SHA-256 over the stored values of all frames, in order, hex. */
  pixelSha256: string;
}

/** The reason of a model that refuses to look where the other found nothing, and the warning of one that does not. */
export const REGION_EMPTY = "region_empty";

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
  for (const outcome of outcomes)
    outcome.first = outcomes.find(
      ({ planned }) => planned.entry.name === firstModelOf(outcome.planned.entry.manifest),
    );
  // A model that finds a region goes before those that look at it, whatever their names.
  const ordered = [
    ...outcomes.filter(({ planned }) => firstModelOf(planned.entry.manifest) === undefined),
    ...outcomes.filter(({ planned }) => firstModelOf(planned.entry.manifest) !== undefined),
  ];
  const ofVolume = ordered.filter(({ volume }) => volume !== undefined);
  const ofStack = ordered.filter(({ stack }) => stack !== undefined);
  const ofFrames = ordered.filter(({ volume, stack }) => volume === undefined && stack === undefined);
  const keeps = ofVolume.length + ofStack.length > 0;
  const pixelHash = createHash("sha256");
  if (image.case !== undefined) return runCase(outcomes, image.case, pixelHash, analysis);
  const planes: Plane[] = [];
  for (let frame = 0; frame < image.frameCount; frame++) {
    const data = await image.frame(frame);
    checkTime(task, context);
    watch.lap("decode");
    const plane = planeOf(image, frame, data);
    if (keeps || image.frameCount === 1) planes.push(plane);
    for (const outcome of outcomes) await attempt(outcome, () => checkValues(outcome, image, frame, data));
    // Hashing takes about as long as a small model, which runs on threads of the engine meanwhile
    const [first, ...others] = ofFrames.map(
      (outcome) => () =>
        attempt(outcome, () => runFrame(outcome, frame, { planes: [plane], own: 0 }, analysis)),
    );
    const running = first?.();
    pixelHash.update(data);
    image.hash?.();
    await running;
    for (const run of others) await run();
    checkTime(task, context);
    watch.lap("infer");
  }
  for (const outcome of ofStack) await attempt(outcome, () => runStack(outcome, planes, analysis));
  for (const outcome of ofVolume) await attempt(outcome, () => runVolume(outcome, planes, analysis));
  watch.lap("infer");
  return { outcomes, planes, pixelSha256: pixelHash.digest("hex") };
}

/** Decodes every member of a case, and gives each model those of its roles together. */
async function runCase(
  outcomes: Outcome[],
  { members }: Case,
  pixelHash: ReturnType<typeof createHash>,
  analysis: Analysis,
): Promise<Ran> {
  const { watch, task, context } = analysis;
  const decoded = new Map<Image, Plane[]>();
  for (const member of members) {
    const planes: Plane[] = [];
    decoded.set(member, planes);
    for (let frame = 0; frame < member.frameCount; frame++) {
      const data = await member.frame(frame);
      checkTime(task, context);
      pixelHash.update(data);
      watch.lap("decode");
      planes.push(planeOf(member, frame, data));
      for (const outcome of outcomes) await attempt(outcome, () => checkValues(outcome, member, frame, data));
    }
  }
  for (const outcome of outcomes)
    await attempt(outcome, async () => {
      outcome.sources = await sourcesOf(outcome.planned.entry.manifest, outcome.roles, (member, frame) => {
        const plane = decoded.get(member)?.[frame];
        if (plane === undefined) throw new RangeError("Members of a case are decoded whole");
        return plane;
      });
      const leading = decoded.get(members[0]) ?? [];
      if (outcome.volume !== undefined) await runVolume(outcome, leading, analysis);
      else await runFrame(outcome, 0, { planes: leading, own: 0 }, analysis);
    });
  watch.lap("infer");
  const planes = [...decoded.values()].flat();
  return { outcomes, planes, pixelSha256: pixelHash.digest("hex") };
}

const meantFor = (manifest: Manifest, planes: readonly Plane[]): Plane[] =>
  planes.map((plane) => ({ ...plane, interpretation: interpretationFor(manifest, plane.interpretation) }));

function begin(planned: PlannedModel, image: Image): Outcome {
  const { entry } = planned;
  const unloaded =
    entry.nativeId === undefined
      ? new RadserveError(
          "model_unavailable",
          entry.error?.message ?? `The model ${entry.name} is not loaded.`,
        )
      : undefined;
  const { manifest } = entry;
  const segments = manifest.outputs.some(({ kind }) => kind === "segmentation");
  return {
    planned,
    nativeId: entry.nativeId ?? -1,
    volume: manifest.accepts.dimensions === "series" ? volumeOf(image, toleranceOf(manifest)) : undefined,
    stack: neighboursOf(manifest) === undefined ? undefined : volumeOf(image),
    numbers: attributeNumbers(manifest, image),
    roles: rolesIn(manifest, image),
    sources: undefined,
    said: [],
    caveats: [],
    rawHash: createHash("sha256"),
    highlights: new Highlights(),
    error: unloaded,
    facts: [],
    masks: segments && planned.outputs.some(isOfMasks) ? [] : undefined,
    ...{ ownGrid: undefined, whole: [], latest: [], crossing: undefined },
    ...{ first: undefined, seen: [], refused: undefined },
  };
}

/**
 * Looks at a frame's stored values before the model sees them.
 * @throws RadserveError decode_suspect if they cannot be what the model takes them for
 */
function checkValues(outcome: Outcome, image: Image, frame: number, data: Uint8Array): void {
  const { manifest: whole } = outcome.planned.entry;
  for (const { code, message } of checkNumbers(image, frame, data)) warn(outcome.caveats, code, message);
  const seen =
    whole.roles === undefined
      ? [whole]
      : outcome.roles.filter((filled) => filled.image === image).map(({ role }) => seenBy(whole, role));
  for (const manifest of seen) {
    if (takesHounsfield(manifest, image, frame)) outcome.caveats.push(...checkHounsfield(image, frame, data));
    for (const { values } of imageInputs(manifest))
      outcome.caveats.push(...valueCaveats(values, image, frame, data));
  }
}

/** A frame, and those of its neighbours that there are. */
interface Surrounded {
  planes: Plane[];
  /** Which of them is the frame itself. */
  own: number;
}

/** Every slice with its neighbours, as they lie beside each other in the patient. */
async function runStack(outcome: Outcome, planes: readonly Plane[], analysis: Analysis): Promise<void> {
  const around = neighboursOf(outcome.planned.entry.manifest);
  const frames = outcome.stack?.frames ?? [];
  if (around === undefined) return;
  for (const [slice, frame] of frames.entries()) {
    const first = Math.max(0, slice - around.before);
    const beside = frames.slice(first, slice + around.after + 1).flatMap((one) => planes[one] ?? []);
    await runFrame(outcome, frame, { planes: beside, own: slice - first }, analysis);
    checkTime(analysis.task, analysis.context);
  }
}

async function runFrame(
  outcome: Outcome,
  frame: number,
  { planes, own }: Surrounded,
  analysis: Analysis,
): Promise<void> {
  const { image } = analysis;
  const spaced = image.spacing(frame);
  const { rows, columns } = image.format;
  const spacing = spaced === undefined ? undefined : { slice: 0, row: spaced.row, column: spaced.column };
  const looked = await lookedAt(
    outcome,
    planes,
    { centre: own },
    { slices: 1, rows, columns, spacing },
    analysis,
  );
  if (looked === undefined) return;
  const { outputs, preparation, empty } = looked;
  outcome.facts[frame] = preparation;
  outcome.latest = outputs;
  const said = interpreted(outcome, image, {
    ...(image.frameCount > 1 ? { frame: frame + 1 } : {}),
    outputs,
    spacing: image.spacing(frame),
    regions: image.regions?.(frame),
  });
  said.warnings.push(...empty);
  if (outcome.masks !== undefined) outcome.masks[frame] = outputs;
  const isOnly = image.frameCount === 1;
  if (isOnly) outcome.whole = outputs;
  // The only frame is not decoded once more for the picture.
  const data = planes[own]?.data;
  const stored = isOnly && data !== undefined ? { data } : {};
  const value = { outputs: () => outputs, findings: said.findings, ...stored };
  outcome.highlights.offer({ frame, weight: weightOf(said), value });
}

async function runVolume(outcome: Outcome, planes: readonly Plane[], analysis: Analysis): Promise<void> {
  const { volume, planned } = outcome;
  if (volume === undefined) return;
  const sorted = volume.frames.flatMap((frame) => planes[frame] ?? []);
  const { geometry } = volume;
  const { rows, columns } = analysis.image.format;
  const { sliceSpacing: slice, rowSpacing: row, columnSpacing: column } = geometry;
  const grid = { slices: sorted.length, rows, columns, spacing: { slice, row, column } };
  const straight = straightOf(volume, analysis.image.format);
  const looked =
    straight === undefined
      ? await lookedAt(outcome, sorted, { geometry }, grid, analysis)
      : await straightLook(outcome, sorted, straight, analysis);
  if (looked === undefined) return;
  const { outputs, preparation, empty } = looked;
  outcome.facts = planes.map(() => preparation);
  outcome.whole = outputs;
  outcome.latest = outputs;
  const said = interpreted(outcome, analysis.image, { outputs, spacing: undefined, volume: geometry });
  said.warnings.push(...empty);
  if (outcome.masks !== undefined)
    for (const [slice, frame] of volume.frames.entries()) outcome.masks[frame] = sliceOutputs(outputs, slice);
  const own = planned.outputs.includes("seg") ? modelGridOf(outputs) : undefined;
  if (own !== undefined) {
    const slices = Array.from({ length: own.slices }, (_, slice) => modelGridSlice(outputs, slice));
    outcome.ownGrid = { volume: own, outputs: slices };
  }
  const marked = markedPixels(outputs, sorted.length);
  outcome.crossing = fullestCrossing(outputs, marked);
  for (const [slice, weight] of marked.slices.entries()) {
    const { data } = sorted[slice] ?? {};
    const value = {
      ...{ outputs: () => sliceOutputs(outputs, slice), findings: [], slice: slice + 1 },
      ...(data === undefined ? {} : { data }),
    };
    outcome.highlights.offer({ frame: volume.frames[slice] ?? 0, weight, value });
  }
}

/** A stack that is tilted or not whole, which such a model takes as a straight and whole one. */
async function straightLook(
  outcome: Outcome,
  planes: readonly Plane[],
  straight: Straight,
  analysis: Analysis,
): Promise<Looked> {
  const { geometry } = straight;
  const found = await inferred(outcome, straightened(planes, straight), { geometry }, analysis);
  const outputs = inSourceSlices(found.outputs, straight, analysis.image.format);
  return { outputs, preparation: found.preparation, empty: straightCaveats(straight) };
}

/** A model's own failure stays its own; a failure that ends the request is thrown on. */
export async function attempt(outcome: Outcome, work: () => Promise<void> | void): Promise<void> {
  if (outcome.error !== undefined || outcome.refused !== undefined) return;
  try {
    await work();
  } catch (thrown) {
    const error = asRadserveError(thrown);
    if (ENDS_ALL.includes(error.code)) throw error;
    outcome.error = error;
  }
}

type Looked = Pick<InferResult, "outputs" | "preparation"> & { empty: Warning[] };

/**
 * What a model says of planes: of the whole of them or, if it looks at a region, of that part, laid back into the whole.
 * @returns undefined if there is no region, and the model refuses that
 * @throws RadserveError of the model that finds the region, if that failed
 */
async function lookedAt(
  outcome: Outcome,
  planes: Plane[],
  more: Pick<InferOptions, "geometry" | "centre">,
  grid: Grid,
  analysis: Analysis,
): Promise<Looked | undefined> {
  const { manifest } = outcome.planned.entry;
  const { region } = manifest;
  const [only] = planes;
  if (imageInputs(manifest)[0]?.crop !== undefined && only !== undefined) {
    const box = nonzeroBox(only);
    if (box !== undefined) return lookedAtPart(outcome, planes, more, { box, grid }, analysis);
  }
  if (region === undefined) {
    const labels = labelsFor(outcome);
    const given = { ...more, ...(labels === undefined ? {} : { labels }) };
    return { ...(await inferred(outcome, planes, given, analysis)), empty: [] };
  }
  const first = firstThatRan(outcome, region.model);
  const found = boxOf(first.planned.entry.manifest, first.latest, region.label);
  const { geometry } = more;
  if (found === undefined) {
    const nothing = `The model "${region.model}" found no "${region.label}"`;
    if (region.when_empty === "refuse") {
      const message = `Expected ${region.label} to look at. ${nothing}.`;
      outcome.refused = { code: REGION_EMPTY, message };
      return undefined;
    }
    if (region.when_empty === "whole") {
      outcome.seen.push({ kind: "whole" });
      const empty = [{ code: REGION_EMPTY, message: `${nothing}; the whole image was looked at.` }];
      return { ...(await inferred(outcome, planes, more, analysis)), empty };
    }
    outcome.seen.push({ kind: "nothing" });
    const outputs = nothingFound(manifest, grid, geometry !== undefined);
    const message = `${nothing}; this model did not look, and says that nothing is there.`;
    return { outputs, preparation: {}, empty: [{ code: REGION_EMPTY, message }] };
  }
  const grown = withMargin(found, region.margin_mm, grid);
  const box = only === undefined ? grown : wholePairs(grown, only.format);
  return lookedAtPart(outcome, planes, more, { box, grid }, analysis);
}

async function lookedAtPart(
  outcome: Outcome,
  planes: readonly Plane[],
  more: Pick<InferOptions, "geometry" | "centre">,
  { box, grid }: { box: Box; grid: Grid },
  analysis: Analysis,
): Promise<Looked> {
  const { geometry } = more;
  outcome.seen.push({ kind: "part", box });
  const cut = planes.slice(box.slice, box.slice + box.slices).map((plane) => cutPlane(plane, box));
  const moved = { ...more, ...(geometry === undefined ? {} : { geometry: cutGeometry(geometry, box) }) };
  const parts = outcome.sources === undefined ? undefined : cutSources(outcome.sources, box);
  const { outputs, preparation } = await inferred(outcome, cut, moved, analysis, parts);
  return { outputs: laidBack(outputs, box, grid), preparation, empty: [] };
}

/** What another model marked, for one that is given its labels. @throws RadserveError of the other, if that failed */
function labelsFor(outcome: Outcome): Uint8Array | undefined {
  const cascade = cascadeOf(outcome.planned.entry.manifest);
  return cascade === undefined ? undefined : markedLabels(firstThatRan(outcome, cascade.model).latest);
}

/** @throws RadserveError of its failure, with its name */
function firstThatRan({ first, planned }: Outcome, name: string): Outcome {
  const about = `The model "${name}", which looks before ${planned.entry.name},`;
  if (first === undefined) throw new RadserveError("model_unavailable", `${about} is not here.`);
  if (first.error !== undefined)
    throw new RadserveError(first.error.code, `${about} failed: ${first.error.message}`);
  return first;
}

async function inferred(
  outcome: Outcome,
  planes: Plane[],
  more: Pick<InferOptions, "geometry" | "centre" | "labels">,
  { task, context, watch }: Analysis,
  sources = outcome.sources,
): Promise<InferResult> {
  checkTime(task, context);
  const { manifest } = outcome.planned.entry;
  const given = sources?.planes ?? meantFor(manifest, planes);
  const result = await context.engine.infer(outcome.nativeId, given, {
    priority: task.priority,
    cancelId: task.cancelId,
    thresholds: outcome.planned.entry.thresholds,
    ...(sources === undefined ? {} : { sources: sources.told }),
    ...(outcome.numbers.length === 0 ? {} : { numbers: outcome.numbers }),
    ...(task.deadline === undefined ? {} : { timeoutMs: Math.max(1, task.deadline - monotonic()) }),
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
