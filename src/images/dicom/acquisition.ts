/**
 * Whether slices are of one acquisition. Two echoes, phases or reconstructions may form an even
 * stack by chance, and a volume of both is a body that does not exist.
 */
import { groupsBy } from "../../base/groups.js";
import { rangeOf } from "../../base/range.js";
import type { Attributes, PlanePosition, Warning } from "../image.js";
import { alongNormal } from "../vectors.js";
import { DataSetAttributes, type PrivateElement } from "./attributes.js";
import { valuesIn } from "./frame-values.js";
import { momentOf, secondsOfDate, secondsOfTime } from "./value-forms.js";

/** A frame of a file. */
export interface AcquiredSlice {
  attributes: Attributes;
  /** From 0. */
  frame: number;
  plane: PlanePosition | undefined;
}

/** What slices of one patient, study and acquisition have in common, where they have it. */
const IN_COMMON = (
  "StudyDate PatientAge PatientSize PatientWeight BodyPartExamined Laterality PatientPosition " +
  "ProtocolName ImageType FrameType VolumeBasedCalculationTechnique ComplexImageComponent EchoTime " +
  "EffectiveEchoTime EchoNumbers InversionTime FlipAngle DiffusionBValue DiffusionDirectionality " +
  "DiffusionGradientOrientation CorrectedImage DecayCorrection ReconstructionMethod " +
  "AttenuationCorrectionMethod " +
  "ScanningSequence SequenceVariant SequenceName ScanOptions MRAcquisitionType ConvolutionKernel " +
  "FilterType KVP ContrastBolusAgent ContrastBolusAgentPhase ContrastBolusStartTime " +
  "TemporalPositionIdentifier Manufacturer ManufacturerModelName DeviceSerialNumber GantryDetectorTilt"
).split(" ");

/** The same, of numbers that are rounded. */
const NEARLY_IN_COMMON = ["SliceThickness", "ReconstructionDiameter"];
const ROUNDING = 0.01;

/** What names a phase or time: a stack of one has one value. */
const PHASES = [
  "NominalPercentageOfCardiacPhase",
  "NominalPercentageOfRespiratoryPhase",
  "TemporalPositionIndex",
];

/**
 * What triggers and gates set for each slice anew, so that a usual stack has as many values as
 * slices. Few values that lie far apart are phases.
 */
const OF_TRIGGERS = ["TriggerTime", "NominalCardiacTriggerDelayTime", "RepetitionTime"];
/** How near values of a phase lie, as a part of the distance of phases. */
const WITHIN_PHASE = 0.2;

/**
 * What is another for each turn of the tube, each bed or each slab: stacks are made of blocks of
 * it. Of one modality, or of any.
 */
const OF_BLOCKS: readonly (readonly [modality: string | undefined, keyword: string])[] = [
  ["CT", "AcquisitionNumber"],
  ["CT", "FrameAcquisitionNumber"],
  ["PT", "FrameReferenceTime"],
  [undefined, "StackID"],
];

/** The longest pause within one acquisition, seconds: of a CT, and of beds and breath-holds. */
const PAUSE = { CT: 300, other: 1200 };

/** b-values that devices wrote before, or beside, DiffusionBValue. */
const PRIVATE_B_VALUES: readonly PrivateElement[] = [
  { creator: "SIEMENS MR HEADER", group: 0x0019, element: 0x0c, vr: "IS" },
  { creator: "GEMS_PARM_01", group: 0x0043, element: 0x39, vr: "IS" },
  { creator: "Philips Imaging DD 001", group: 0x2001, element: 0x03, vr: "FL" },
  { creator: "Image Private Header", group: 0x0065, element: 0x09, vr: "FD" },
];

/** One warning that names what slices of several acquisitions differ in; none if nothing does. */
export function acquisitionCaveats(slices: readonly AcquiredSlice[], what: string): Warning[] {
  const differing = [
    ...IN_COMMON.filter((keyword) => new Set(textsOf(slices, keyword)).size > 1),
    ...NEARLY_IN_COMMON.filter((keyword) => isUnlike(numbersOf(slices, keyword))),
    ...PHASES.filter(
      (keyword) => new Set(numbersOf(slices, keyword)).size > 1 && !countsFrames(slices, keyword),
    ),
    ...OF_TRIGGERS.filter(
      (keyword) =>
        (hasGroups(numbersOf(slices, keyword)) || returnsInCt(slices, keyword)) &&
        !countsFrames(slices, keyword),
    ),
    ...OF_BLOCKS.filter(
      ([modality, keyword]) =>
        (modality === undefined || slices[0]?.attributes.string("Modality") === modality) &&
        isInterleaved(slices, textsOf(slices, keyword)),
    ).map(([, keyword]) => keyword),
    ...(isOfSeveralTimes(slices) ? ["AcquisitionTime"] : []),
    ...privateDifferences(slices),
  ];
  if (differing.length === 0) return [];
  const message = `The ${what} differ in ${differing.join(", ")}: they may be of several acquisitions. What results carry of it is that of the first.`;
  return [{ code: "mixed_acquisition", message }];
}

/** Of what a frame says, and else of what its file does. */
function holderOf({ attributes, frame }: AcquiredSlice, keyword: string): Attributes | undefined {
  const holder = valuesIn(attributes, keyword, frame).at(-1);
  // Enhanced MR has it a sequence deeper (PS3.3 C.8.13.5.9)
  if (holder !== undefined || keyword !== "DiffusionGradientOrientation") return holder;
  const outer = "DiffusionGradientDirectionSequence";
  return valuesIn(attributes, outer, frame).at(-1)?.sequence(outer)?.[0];
}

/** However its numbers are written. */
const textsOf = (slices: readonly AcquiredSlice[], keyword: string): string[] =>
  eachOf(slices, keyword, (holder) => {
    const numbers = holder?.numbers(keyword) ?? [];
    return JSON.stringify(numbers.length > 0 ? numbers : (holder?.comparable(keyword) ?? ""));
  });

/**
 * What is asked of the holder for each slice. A million frames may have one, with a text of a
 * million values: it is asked once.
 */
function eachOf<T>(
  slices: readonly AcquiredSlice[],
  keyword: string,
  ask: (holder: Attributes | undefined) => T,
): T[] {
  const said = new Map<Attributes | undefined, { is: T }>();
  return slices.map((slice) => {
    const holder = holderOf(slice, keyword);
    const known = said.get(holder) ?? { is: ask(holder) };
    said.set(holder, known);
    return known.is;
  });
}

/** Whether the numbers of a file are another for each frame, in all parts of a concatenation. */
function countsFrames(slices: readonly AcquiredSlice[], keyword: string): boolean {
  const parts = [...groupsBy(slices, ({ attributes }) => attributes).values()];
  const isCount = (part: readonly AcquiredSlice[]) =>
    new Set(numbersOf(part, keyword)).size === part.length;
  return parts.some((part) => part.length > 1) && parts.every(isCount);
}

const numbersOf = (slices: readonly AcquiredSlice[], keyword: string): number[] =>
  eachOf(slices, keyword, (holder) => holder?.number(keyword)).flatMap((number) => number ?? []);

function isUnlike(numbers: readonly number[]): boolean {
  const [least, most] = rangeOf(numbers);
  return most - least > ROUNDING * Math.abs(least);
}

/**
 * Whether slices of a CT have a value again behind others, each value twice or more on average. A
 * beat gives one to all slices of a turn, which lie side by side. MR triggers several slices in
 * each beat, so that delays return along a usual stack.
 */
function returnsInCt(slices: readonly AcquiredSlice[], keyword: string): boolean {
  if (slices[0]?.attributes.string("Modality") !== "CT") return false;
  const values = textsOf(slices, keyword);
  return new Set(values).size <= values.length / 2 && isInterleaved(slices, values);
}

/**
 * Whether numbers lie in few groups far apart: two, or one for four slices at most. Numbers that
 * grow from slice to slice, vary freely, or are one delay for each slice of a heartbeat do not.
 */
function hasGroups(numbers: readonly number[]): boolean {
  const { groups, widest } = groupsOf(numbers);
  const isNarrow = groups.every(
    (group) => (group.at(-1) ?? 0) - (group[0] ?? 0) <= WITHIN_PHASE * widest,
  );
  return (
    widest > 0 && isNarrow && groups.length <= Math.max(2, numbers.length / 4) && numbers.length > 2
  );
}

/**
 * Numbers in rising order, parted where the step to the next is more than half of the widest step.
 */
function groupsOf(numbers: readonly number[]): { groups: number[][]; widest: number } {
  const sorted = [...numbers].sort((a, b) => a - b);
  const steps = sorted.slice(1).map((value, i) => value - (sorted[i] ?? value));
  const [, widest] = rangeOf(steps);
  const groups: number[][] = [];
  for (const [i, value] of sorted.entries())
    if (i === 0 || (steps[i - 1] ?? 0) > widest / 2) groups.push([value]);
    else groups.at(-1)?.push(value);
  return { groups, widest };
}

/**
 * Whether slices of two values lie between each other along the stack, further than those of two
 * turns of the tube do: there, the last slices of one may lie behind the first of the next.
 * @param values of each slice
 */
function isInterleaved(slices: readonly AcquiredSlice[], values: readonly unknown[]): boolean {
  if (slices.some(({ plane }) => plane === undefined)) return false;
  const along = slices
    .map(({ plane }, i) => ({
      at: plane === undefined ? 0 : alongNormal(plane),
      value: values[i],
    }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }, place) => ({ value, place }));
  const blocks = [...groupsBy(along, ({ value }) => value).values()].map((block) =>
    block.map(({ place }) => place),
  );
  return blocks.some((block, i) => {
    for (let next = i + 1; next < blocks.length; next++) {
      const other = blocks[next] ?? [];
      // Blocks are in the order of their first places
      if ((other[0] ?? 0) > (block.at(-1) ?? 0)) return false;
      const mixed = Math.min(mixedPlaces(block, other), mixedPlaces(other, block));
      if (mixed > MIXED_AT_BORDERS * Math.min(block.length, other.length)) return true;
    }
    return false;
  });
}

/** The part of the smaller of two blocks that their slices may be mixed over at a border. */
const MIXED_AT_BORDERS = 2 / 3;

/** Slices from the first of `after` to the last of `before`; 0 if each is a block of its own. */
const mixedPlaces = (before: readonly number[], after: readonly number[]): number =>
  before.filter((place) => place > (after[0] ?? 0)).length +
  after.filter((place) => place < (before.at(-1) ?? 0)).length;

/**
 * Whether there is a long pause between images, or the time of a CT goes to and fro along the
 * stack. A table moves one way, so that two passes lie between each other then; MR acquires slices
 * in any order.
 */
function isOfSeveralTimes(slices: readonly AcquiredSlice[]): boolean {
  const isCt = slices[0]?.attributes.string("Modality") === "CT";
  const moments = momentsOf(slices);
  const known = moments.filter((moment) => moment !== undefined);
  if (groupsOf(known).widest > (isCt ? PAUSE.CT : PAUSE.other)) return true;
  return (
    isCt && known.length === slices.length && turnsOf(known).some((of) => isInterleaved(slices, of))
  );
}

/** How many times longer a pause is than what lies within turns. */
const LONGER = 2.5;
/** An image takes longer, half a turn of the tube at least; in seconds. */
const SHORTEST = 0.05;

/**
 * The turns or passes of moments, as numbers from 0, in each way in which they may be told: what
 * lies between pauses that are clearly longer than others, as those of beats in those of
 * breath-holds. One for two moments at most: of moments that vary freely some are near each other
 * by chance.
 */
function turnsOf(moments: readonly number[]): number[][] {
  const sorted = [...moments].sort((a, b) => a - b);
  const steps = sorted.slice(1).map((moment, i) => moment - (sorted[i] ?? moment));
  const pauses = [...steps].sort((a, b) => b - a);
  const most = Math.max(2, moments.length / 2);
  return pauses.flatMap((pause, i) => {
    if (i + 2 > most || pause < Math.max(SHORTEST, LONGER * (pauses[i + 1] ?? 0))) return [];
    let turn = 0;
    const turns = new Map<number, number>();
    for (const [at, moment] of sorted.entries()) {
      if (at > 0 && (steps[at - 1] ?? 0) >= pause) turn += 1;
      turns.set(moment, turn);
    }
    return [moments.map((moment) => turns.get(moment) ?? 0)];
  });
}

/**
 * When slices were acquired, in seconds on the clock of their place. The day alone counts where no
 * slice has a time: beside times it would be a midnight.
 */
function momentsOf(slices: readonly AcquiredSlice[]): (number | undefined)[] {
  const moments = slices.map(secondsOf);
  if (moments.some((moment) => moment !== undefined)) return moments;
  return slices.map(({ attributes }) => secondsOfDate(attributes.string("AcquisitionDate")));
}

/** FrameAcquisitionDateTime, AcquisitionDate and AcquisitionTime, or AcquisitionDateTime. */
function secondsOf(slice: AcquiredSlice): number | undefined {
  const { attributes } = slice;
  const keyword = "FrameAcquisitionDateTime";
  const ofFrame = momentOf(holderOf(slice, keyword)?.string(keyword));
  if (ofFrame !== undefined) return ofFrame.local;
  const time = secondsOfTime(attributes.string("AcquisitionTime"));
  const date = secondsOfDate(attributes.string("AcquisitionDate"));
  return time === undefined
    ? momentOf(attributes.string("AcquisitionDateTime"))?.local
    : (date ?? 0) + time;
}

function privateDifferences(slices: readonly AcquiredSlice[]): string[] {
  const sets = slices.map(({ attributes }) => attributes);
  const differs = PRIVATE_B_VALUES.some((place) => {
    const found = sets.map((attributes) =>
      attributes instanceof DataSetAttributes ? attributes.privateValues(place)[0] : undefined,
    );
    return new Set(found).size > 1;
  });
  return differs ? ["the private b-value"] : [];
}
