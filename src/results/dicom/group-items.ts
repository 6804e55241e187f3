/**
 * The content items of a measurement group: what tells it from others, its finding, its images, and
 * its numbers (PS3.16 TID 300, 320, 1419, 1501, 4019).
 */
import { canonicalJson } from "../../base/canonical-json.js";
import type { Label } from "../../manifest/outputs/fields.js";
import { kindOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { dcm, own, sct, type Code } from "../../manifest/texts.js";
import { NO_UNITS } from "../kinds/measurements.js";
import { DEGREE } from "../kinds/point-measures.js";
import { measuredVolume, VOLUME } from "../kinds/segmentation.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { sideOf } from "../findings/sides.js";
import { codeOf } from "./codes.js";
import {
  coded,
  images,
  num,
  spatialCoordinates,
  text,
  uidRef,
  type Relationship,
} from "./content.js";
import type { Dataset } from "./elements.js";
import { withinFrame } from "./outlines.js";
import type { SourceFrame } from "./source.js";
import { algorithmParameters, type Subject } from "./subject.js";

const SCORE = own("score", "Score");
const PROBABILITY = own("probability", "Calibrated probability");
const ANGLE = own("angle-to-rows", "Clockwise angle of the width to the rows");
const THRESHOLD = own("threshold", "Threshold of the score");
const MARGIN = own("margin", "Margin of the score to the second");
const DERIVATION = dcm("121401", "Derivation");
const FINDING_SITE = sct("363698007", "Finding Site");
const SOURCE_OF_MEASUREMENT = dcm("121112", "Source of Measurement");
const SERIES_INSTANCE_UID = dcm("112002", "Series Instance UID");
const TOGETHER = {
  maximum: sct("56851009", "Maximum"),
  mean: sct("373098007", "Mean"),
  noisy_or: own("noisy-or", "Noisy-or"),
};

/** A label with the output it belongs to. */
export interface KnownLabel {
  label: Label;
  output: ModelOutput;
  o: number;
  index: number;
}

/** A finding, and the measurements of its label at its place. */
export interface Told {
  finding: Finding;
  own: readonly Measurement[];
  /** Number of the box or point among those of this label and frame, from 0. */
  ordinal: number;
}

/** The frames that a finding is about: one, or all. */
export function framesOf({ ids }: Subject, frame: number | undefined): readonly SourceFrame[] {
  const one = frame === undefined ? undefined : ids.frames[frame - 1];
  return one === undefined ? ids.frames : [one];
}

/**
 * The images of findings: their frames, or, of what is said of the image as a whole, the object or
 * the series. So the length of a report does not grow with labels times slices. Members of a case
 * were looked at for each finding.
 */
export function sourcesOf(
  relationship: Relationship,
  subject: Subject,
  about: readonly (number | undefined)[],
): Dataset[] {
  const { ids, others, image } = subject;
  const members = image.case?.members ?? [image];
  const whole = [ids, ...others].map(({ seriesInstanceUid, frames }, i) =>
    members[i]?.series !== undefined && frames.length > 1
      ? [uidRef(relationship, SERIES_INSTANCE_UID, seriesInstanceUid)]
      : images(relationship, SOURCE_OF_MEASUREMENT, allOf(frames)),
  );
  const numbers = [...new Set(about)];
  if (numbers.includes(undefined)) return whole.flat();
  const frames = numbers.flatMap((frame) => framesOf(subject, frame));
  return [images(relationship, SOURCE_OF_MEASUREMENT, frames), ...whole.slice(1)].flat();
}

/** All frames of one object: where it has several, they need no numbers (PS3.3 section 10.3). */
export function allOf(frames: readonly SourceFrame[]): readonly SourceFrame[] {
  const [first] = frames;
  if (first === undefined || frames.length === 1) return frames;
  return [{ ...first, frameNumber: undefined }];
}

export function tracking(id: string, uid: string): Dataset[] {
  return [
    text("HAS OBS CONTEXT", dcm("112039", "Tracking Identifier"), id),
    uidRef("HAS OBS CONTEXT", dcm("112040", "Tracking Unique Identifier"), uid),
  ];
}

/** TID 4019, in the words of equipment and segmentation. */
export function algorithmItems(subject: Subject): Dataset[] {
  const { model } = subject;
  const parameters = algorithmParameters(subject);
  return [
    text("HAS CONCEPT MOD", dcm("111001", "Algorithm Name"), model.name),
    text("HAS CONCEPT MOD", dcm("111003", "Algorithm Version"), model.version),
    ...(parameters === undefined
      ? []
      : [text("HAS CONCEPT MOD", dcm("111002", "Algorithm Parameters"), parameters)]),
  ];
}

/** Finding, category and site with the side that all frames of the findings have. */
export function findingItems(subject: Subject, label: Label, told: readonly Told[]): Dataset[] {
  const { category } = label;
  const side = lateralityItems(subject, label, told);
  const site = label.finding_site ?? (side.length > 0 ? structureOf(label) : undefined);
  return [
    ...(category === undefined
      ? []
      : [coded("CONTAINS", sct("276214006", "Finding category"), category)]),
    // The templates know a side below a site alone; where there is none, they are extended
    coded("CONTAINS", dcm("121071", "Finding"), codeOf(label), site === undefined ? side : []),
    ...(site === undefined ? [] : [coded("HAS CONCEPT MOD", FINDING_SITE, site, side)]),
  ];
}

/** The site of an absent label with its side, or its side alone. */
export function absentSite(subject: Subject, label: Label, told: readonly Told[]): Dataset[] {
  const side = lateralityItems(subject, label, told);
  const { finding_site: site } = label;
  return site === undefined ? side : [coded("HAS CONCEPT MOD", FINDING_SITE, site, side)];
}

/** The side that all frames of the findings have. */
function lateralityItems({ image }: Subject, label: Label, told: readonly Told[]): Dataset[] {
  const [side, ...others] = new Set(told.map(({ finding }) => sideOf(image, label, finding.frame)));
  if (side === undefined || others.length > 0) return [];
  return [coded("HAS CONCEPT MOD", sct("272741003", "Laterality"), side)];
}

/** Anatomical structure: SNOMED CT's code, an earlier one of it, and SNOMED-RT's. */
const ANATOMICAL = ["SCT 91723000", "SCT 123037004", "SRT T-D000A"];

/** A structure of the body is its own site. */
const structureOf = ({ category, code }: Label): Code | undefined =>
  category !== undefined && ANATOMICAL.includes(`${category.scheme} ${category.value}`)
    ? code
    : undefined;

/** Each of equal values once. */
const distinct = <T>(values: readonly T[]): T[] => [
  ...new Map(values.map((value) => [canonicalJson(value ?? null), value])).values(),
];

/**
 * The numbers of a label. Those of single frames each name their frame (TID 320), and the threshold
 * stands once.
 */
export function numbersOf(
  subject: Subject,
  known: KnownLabel,
  told: readonly Told[],
  relationship: Relationship = "CONTAINS",
): Dataset[] {
  let before: number | undefined;
  return told.flatMap(({ finding, own: measurements }) => {
    const { frame, threshold } = finding;
    const from =
      frame === undefined
        ? []
        : images("INFERRED FROM", SOURCE_OF_MEASUREMENT, framesOf(subject, frame));
    const isTold = threshold === before;
    before = threshold;
    return [
      ...scoreItems(
        known,
        { ...finding, ...(isTold ? { threshold: undefined } : {}) },
        relationship,
        from,
      ),
      ...measured([...volumeOf(finding, measurements), ...measurements], relationship, from),
    ];
  });
}

/**
 * The numbers of a label that is absent: those of the image as a whole, or else, of its frames, the
 * highest score, and what was measured, which is equal on all of them. A threshold means something
 * beside a score.
 */
export function absentNumbers(
  subject: Subject,
  known: KnownLabel,
  told: readonly Told[],
): Dataset[] {
  const whole = told.filter(({ finding }) => finding.frame === undefined);
  const about = whole.length > 0 ? whole : told;
  const { label } = known.label;
  const volume = whole.find(({ finding }) => finding.volume !== undefined)?.finding.volume;
  const finding: Finding = {
    ...highest(about),
    label,
    present: false,
    ...(volume === undefined ? {} : { volume }),
  };
  const all = about.flatMap(({ own: mine }) => mine.map((each) => ({ ...each, frame: undefined })));
  return numbersOf(subject, known, [{ finding, own: distinct(all), ordinal: 0 }], "HAS PROPERTIES");
}

/** The highest score of findings, and what belongs to it. */
function highest(told: readonly Told[]): Pick<Finding, "score" | "threshold" | "over_frames"> {
  let most: Finding | undefined;
  for (const { finding } of told)
    if (finding.score !== undefined && !(finding.score <= (most?.score ?? -Infinity)))
      most = finding;
  if (most?.score === undefined) return {};
  const { score, threshold, frame, over_frames: own } = most;
  const over = frame === undefined ? own : ("maximum" as const);
  return {
    score,
    ...(threshold === undefined ? {} : { threshold }),
    ...(over === undefined ? {} : { over_frames: over }),
  };
}

/** The score is a probability only if the manifest says how it was calibrated. */
export function scoreItems(
  { output }: KnownLabel,
  finding: Finding,
  relationship: Relationship = "CONTAINS",
  from: readonly Dataset[] = [],
): Dataset[] {
  const { score, threshold, margin, angle, over_frames: over } = finding;
  const how =
    over === undefined || over === "total"
      ? []
      : [coded("HAS CONCEPT MOD", DERIVATION, TOGETHER[over])];
  const concept = kindOf(output).givesProbabilities?.(output) === true ? PROBABILITY : SCORE;
  const number = (name: Code, value: number | undefined, unit: Code, more: readonly Dataset[]) =>
    value === undefined ? [] : [num(name, value, unit, relationship, more)];
  return [
    ...number(concept, score, NO_UNITS, [...how, ...from]),
    ...number(THRESHOLD, threshold, NO_UNITS, []),
    ...number(MARGIN, margin, NO_UNITS, from),
    ...number(ANGLE, angle, DEGREE, from),
  ];
}

/** The volume of a finding, which its manifest need not ask for. */
function volumeOf({ label, volume }: Finding, measurements: readonly Measurement[]): Measurement[] {
  const isTold = measurements.some(({ code }) => code?.value === VOLUME.value);
  return volume === undefined || isTold ? [] : [measuredVolume(label, volume.ml)];
}

/** @param from what the numbers were measured of (TID 320) */
export function measured(
  measurements: readonly Measurement[],
  relationship?: Relationship,
  from: readonly Dataset[] = [],
): Dataset[] {
  return measurements.map(({ name, code, derivation, value, unit }) => {
    const how = derivation === undefined ? [] : [coded("HAS CONCEPT MOD", DERIVATION, derivation)];
    return num(codeOf({ label: name, code }), value, unit, relationship, [...how, ...from]);
  });
}

/**
 * What a number of a value was measured of: its lines, all but the ends of an open one within the
 * frame, or, of one frame of several, that frame.
 */
export function sourceOfValue(subject: Subject, { lines = [], frame }: Measurement): Dataset[] {
  const frames = framesOf(subject, frame);
  const [at] = frames;
  if (at === undefined) throw new Error("An image has a frame");
  if (lines.length === 0 && frame !== undefined)
    return images("INFERRED FROM", SOURCE_OF_MEASUREMENT, frames);
  return lines.map((line) => {
    const points = withinFrame(line, subject.image.format).slice(0, line.length);
    return spatialCoordinates("INFERRED FROM", SOURCE_OF_MEASUREMENT, points, at, isTiled(subject));
  });
}

/** Whether the frames are tiles of a larger image. */
export const isTiled = ({ attributes }: Subject): boolean => attributes.has("TotalPixelMatrixRows");
