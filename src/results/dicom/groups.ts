/** Measurement groups of the report (PS3.16 TID 1410, 1411, 1501). */
import type { Label } from "../../manifest/outputs/fields.js";
import { kindOf, labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { dcm, own, sct } from "../../manifest/texts.js";
import type { Warning } from "../../images/image.js";
import { volumeOf } from "../../images/dicom/volume.js";
import { inPatient } from "../kinds/boxes.js";
import type { SourcePoint } from "../kinds/kind.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { NO_UNITS } from "../kinds/measurements.js";
import { DEGREE } from "../kinds/point-measures.js";
import { codeOf } from "./codes.js";
import {
  coded,
  container,
  images,
  num,
  segmentReference,
  spatialCoordinates,
  text,
  uidRef,
  volumeSurface,
  type Relationship,
} from "./content.js";
import type { Dataset, DicomObject } from "./elements.js";
import { frameOfReferenceOf } from "./frame-positions.js";
import {
  LABEL_MAP_SEGMENTATION,
  partsOf,
  phasesIn,
  segFrameNumber,
  segmentsOf,
  segmentTracking,
  type Segment,
} from "./segments.js";
import { sideOf } from "../findings/sides.js";
import type { SourceFrame } from "./source.js";
import { algorithmParameters, trackingUid, type Subject } from "./subject.js";

/** The contents of the report. */
export interface ReportContents {
  findings: readonly Finding[];
  measurements: readonly Measurement[];
  /** The receipt's warnings, of image and model. */
  warnings: readonly Warning[];
}

/** An object of ours in the same study that the report points to. */
export type Companion = Pick<DicomObject, "sopClassUid" | "sopInstanceUid" | "seriesInstanceUid">;

const GROUP = dcm("125007", "Measurement Group");
const SCORE = own("score", "Score");
const PROBABILITY = own("probability", "Calibrated probability");
const ANGLE = own("angle-to-rows", "Clockwise angle of the width to the rows");
const THRESHOLD = own("threshold", "Threshold of the score");
const SOURCE_OF_MEASUREMENT = dcm("121112", "Source of Measurement");
const MARGIN = own("margin", "Margin of the score to the second");
const TOGETHER = {
  maximum: sct("56851009", "Maximum"),
  mean: sct("373098007", "Mean"),
  noisy_or: own("noisy-or", "Noisy-or"),
};
const DERIVATION = dcm("121401", "Derivation");
const PRESENT = sct("52101004", "Present");
const ABSENT = sct("272519000", "Absent");

/** A label with the output it belongs to. */
interface KnownLabel {
  label: Label;
  output: ModelOutput;
  o: number;
  index: number;
}

export interface Groups {
  /**
   * Children of Imaging Measurements: findings in their order, then measurements that belong to no
   * finding.
   */
  groups: Dataset[];
  /**
   * Children of Qualitative Evaluations: what was looked for and not found, if regions were found.
   */
  absent: Dataset[];
}

/**
 * Groups of a report. If regions were found, what was not found stands apart from them: validators
 * tell the template of a group by its siblings (PixelMed 2022), and readers look for regions there.
 */
export function measurementGroups(
  subject: Subject,
  said: ReportContents,
  seg: Companion | undefined,
): Groups {
  const { outputs } = subject.model.manifest;
  const known = outputs.flatMap((output, o) =>
    labelsOf(output).map((label, index): KnownLabel => ({ label, output, o, index })),
  );
  const segments = segmentsOf(outputs);
  const ordinals = new Map<string, number>();
  const measurements = new Map<string, Measurement[]>();
  for (const measurement of said.measurements) {
    const key = placeOf(measurement);
    measurements.set(key, [...(measurements.get(key) ?? []), measurement]);
  }
  const all = foundOf(said).map((finding): ReportGroup => {
    const found = known.find(({ label }) => label.label === finding.label);
    if (found === undefined) throw new Error("A finding's label is one of the manifest's");
    const key = placeOf(finding);
    const ordinal = ordinals.get(key) ?? 0;
    ordinals.set(key, ordinal + 1);
    const own = measurements.get(key) ?? [];
    const segment = segments.find(
      ({ output, index }) => output === found.o && index === found.index,
    );
    return { subject, finding, known: found, ordinal, own, seg, segment };
  });
  const apart = all.some(isRegion);
  const isApart = ({ finding }: ReportGroup) => apart && !finding.present;
  const values = said.measurements.filter(({ label }) => label === undefined);
  return {
    groups: [
      ...all.filter((group) => !isApart(group)).map(groupOf),
      ...values.map((measurement) => valueGroup(subject, measurement)),
    ],
    absent: all.filter(isApart).map(absentItem),
  };
}

/**
 * What findings and measurements of one label on one frame, or of one box of a volume, have in
 * common.
 */
const placeOf = ({ label, frame, number }: Pick<Measurement, "label" | "frame" | "number">) =>
  `${frame ?? 0} ${number ?? 0} ${label ?? ""}`;

/**
 * The findings that a report tells: a box below its threshold is left out, and a label of which
 * only such boxes were found on a frame is absent there.
 */
function foundOf({ findings }: ReportContents): Finding[] {
  const strong = new Set(findings.filter(({ present }) => present).map(placeOf));
  const weak = new Set<string>();
  return findings.flatMap((finding) => {
    if (finding.box === undefined || finding.present) return [finding];
    const { label, frame, threshold } = finding;
    const key = placeOf(finding);
    if (strong.has(key) || weak.has(key)) return [];
    weak.add(key);
    return [
      {
        label,
        present: false,
        ...(threshold === undefined ? {} : { threshold }),
        ...(frame === undefined ? {} : { frame }),
      },
    ];
  });
}

function isRegion({ subject, finding, seg, segment }: ReportGroup): boolean {
  return (
    finding.present &&
    (outlineOf(finding, subject) !== undefined || (seg !== undefined && segment !== undefined))
  );
}

function absentItem({ subject, finding, known, own }: ReportGroup): Dataset {
  const source = images("INFERRED FROM", SOURCE_OF_MEASUREMENT, lookedAt(subject, finding.frame));
  return coded("CONTAINS", codeOf(known.label), ABSENT, [
    ...source,
    ...measured(own, "HAS PROPERTIES"),
  ]);
}

interface ReportGroup {
  subject: Subject;
  finding: Finding;
  known: KnownLabel;
  /** Number of the box or point among those of this label and frame, from 0. */
  ordinal: number;
  own: readonly Measurement[];
  seg: Companion | undefined;
  segment: Segment | undefined;
}

function groupOf(group: ReportGroup): Dataset {
  const { subject, finding, seg, segment } = group;
  const outline = outlineOf(finding, subject);
  if (finding.frames !== undefined && finding.present) return solidGroup(group, finding.frames);
  if (outline !== undefined && finding.present) return outlineGroup(group, outline);
  const isSegment =
    finding.present && (finding.over_frames === undefined || finding.volume !== undefined);
  if (isSegment && seg !== undefined && segment !== undefined)
    return segmentGroup(group, seg, segment);
  return wholeGroup(group);
}

/** The frames that a finding is about: one, or all. */
function framesOf({ ids }: Subject, frame: number | undefined): readonly SourceFrame[] {
  const one = frame === undefined ? undefined : ids.frames[frame - 1];
  return one === undefined ? ids.frames : [one];
}

/** The same for what is no region: of a case, the frames of all its members. */
function lookedAt(subject: Subject, frame: number | undefined): readonly SourceFrame[] {
  return [...framesOf(subject, frame), ...subject.others.flatMap(({ frames }) => frames)];
}

function onFrame({ frame }: { frame?: number | undefined }): string {
  return frame === undefined ? "" : ` on frame ${frame}`;
}

function tracking(id: string, uid: string): Dataset[] {
  return [
    text("HAS OBS CONTEXT", dcm("112039", "Tracking Identifier"), id),
    uidRef("HAS OBS CONTEXT", dcm("112040", "Tracking Unique Identifier"), uid),
  ];
}

/** TID 4019, in the words of equipment and segmentation. */
function algorithmItems(subject: Subject): Dataset[] {
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

/** Finding, category and site with its side. */
function findingItems(subject: Subject, label: Label, frame: number | undefined): Dataset[] {
  const { category, finding_site } = label;
  const side = sideOf(subject.image, label, frame);
  const sided =
    side === undefined ? [] : [coded("HAS CONCEPT MOD", sct("272741003", "Laterality"), side)];
  return [
    ...(category === undefined
      ? []
      : [coded("CONTAINS", sct("276214006", "Finding category"), category)]),
    coded("CONTAINS", dcm("121071", "Finding"), codeOf(label)),
    ...(finding_site === undefined
      ? []
      : [coded("HAS CONCEPT MOD", sct("363698007", "Finding Site"), finding_site, sided)]),
  ];
}

/** The items with which the group of a region begins. */
function headItems({ subject, finding, known }: ReportGroup, id: string, uid: string): Dataset[] {
  const items = findingItems(subject, known.label, finding.frame);
  return [...tracking(id, uid), ...items, ...algorithmItems(subject)];
}

/** The score is a probability only if the manifest says how it was calibrated. */
function scoreItems({ finding, known }: Pick<ReportGroup, "finding" | "known">): Dataset[] {
  const { score, threshold, margin, angle, over_frames: over } = finding;
  const how =
    over === undefined || over === "total"
      ? []
      : [coded("HAS CONCEPT MOD", DERIVATION, TOGETHER[over])];
  const calibrated = kindOf(known.output).givesProbabilities?.(known.output) === true;
  return [
    ...(score === undefined
      ? []
      : [num(calibrated ? PROBABILITY : SCORE, score, NO_UNITS, undefined, how)]),
    ...(threshold === undefined ? [] : [num(THRESHOLD, threshold, NO_UNITS)]),
    ...(margin === undefined ? [] : [num(MARGIN, margin, NO_UNITS)]),
    ...(angle === undefined ? [] : [num(ANGLE, angle, DEGREE)]),
  ];
}

/** @param from what the number was measured of (TID 320) */
function measured(
  own: readonly Measurement[],
  relationship?: Relationship,
  from: readonly Dataset[] = [],
): Dataset[] {
  return own.map(({ name, code, derivation, value, unit }) => {
    const how = derivation === undefined ? [] : [coded("HAS CONCEPT MOD", DERIVATION, derivation)];
    return num(codeOf({ label: name, code }), value, unit, relationship, [...how, ...from]);
  });
}

/** Corners of a box, or a point alone; undefined for findings that are neither. */
function outlineOf(
  { box, corners, point }: Finding,
  { image }: Subject,
): SourcePoint[] | undefined {
  if (point !== undefined) return [point];
  if (box === undefined) return undefined;
  const { x0, y0, x1, y1 } = box;
  const outline =
    corners === undefined
      ? [
          { x: x0, y: y0 },
          { x: x1, y: y0 },
          { x: x1, y: y1 },
          { x: x0, y: y1 },
        ]
      : withinImage(corners, image.format);
  return [...outline, ...outline.slice(0, 1)];
}

/**
 * The part of a convex outline, or of a line, within the image: coordinates end there (PS3.3
 * C.18.6.1.2).
 */
function withinImage(
  points: readonly SourcePoint[],
  { rows, columns }: { rows: number; columns: number },
): SourcePoint[] {
  const inside = [
    ({ x }: SourcePoint) => x,
    ({ y }: SourcePoint) => y,
    ({ x }: SourcePoint) => columns - x,
    ({ y }: SourcePoint) => rows - y,
  ];
  return inside.reduce<SourcePoint[]>(
    (left, from) =>
      left.flatMap((a, i) => {
        const b = left[(i + 1) % left.length] ?? a;
        const [at, next] = [from(a), from(b)];
        const kept = at >= 0 ? [a] : [];
        if (at >= 0 === next >= 0) return kept;
        const part = at / (at - next);
        return [...kept, { x: a.x + part * (b.x - a.x), y: a.y + part * (b.y - a.y) }];
      }),
    [...points],
  );
}

/** The lines that a number is of; all but the ends of an open one lie in the image. */
function linesOf({ lines = [], frame }: Measurement, subject: Subject): Dataset[] {
  const [at] = framesOf(subject, frame);
  if (at === undefined) throw new Error("An image has a frame");
  return lines.map((line) => {
    const points = withinImage(line, subject.image.format).slice(0, line.length);
    return spatialCoordinates("INFERRED FROM", SOURCE_OF_MEASUREMENT, points, at);
  });
}

/** TID 1410 with a box or a point. */
function outlineGroup(group: ReportGroup, outline: readonly SourcePoint[]): Dataset {
  const { subject, finding, known, ordinal } = group;
  const [frame] = framesOf(subject, finding.frame);
  if (frame === undefined) throw new Error("An image has a frame");
  const id = `${subject.model.name}: ${known.label.label} ${ordinal + 1}${onFrame(finding)}`;
  const uid = trackingUid(subject, [
    finding.point === undefined ? "box" : "point",
    known.o,
    known.index,
    finding.frame ?? 0,
    ordinal,
  ]);
  return container("CONTAINS", GROUP, "1410", [
    ...headItems(group, id, uid),
    spatialCoordinates("CONTAINS", dcm("111030", "Image Region"), outline, frame),
    ...scoreItems(group),
  ]);
}

/** Corners of the six faces of a box from 0 to 1, each in turn. */
const FACES = [0, 1, 2].flatMap((axis) =>
  [0, 1].map((end) =>
    [
      [0, 0],
      [1, 0],
      [1, 1],
      [0, 1],
    ].map((corner) => corner.toSpliced(axis, 0, end)),
  ),
);

/** TID 1411 with a box in a volume: its surface in the patient, and the slices that it lies in. */
function solidGroup(group: ReportGroup, frames: readonly number[]): Dataset {
  const { subject, finding, known, own } = group;
  const { box, number = 1 } = finding;
  const { geometry } = volumeOf(subject.image);
  const frameOfReference = frameOfReferenceOf(subject.attributes);
  if (box?.z0 === undefined || box.z1 === undefined || frameOfReference === undefined)
    throw new Error("A box in a volume has slices, and a source with a frame of reference");
  const [low, high] = [
    [box.x0, box.y0, box.z0],
    [box.x1, box.y1, box.z1],
  ];
  const faces = FACES.map((face) =>
    face.map((corner) => {
      const [x = 0, y = 0, z = 0] = corner.map((end, axis) => (end === 0 ? low : high)[axis] ?? 0);
      return inPatient(geometry, x, y, z);
    }),
  );
  const id = `${subject.model.name}: ${known.label.label} ${number}`;
  const uid = trackingUid(subject, ["solid", known.o, known.index, number]);
  const seen = frames.flatMap((frame) => framesOf(subject, frame));
  return container("CONTAINS", GROUP, "1411", [
    ...headItems(group, id, uid),
    ...volumeSurface(dcm("121231", "Volume Surface"), faces, frameOfReference),
    ...images("CONTAINS", dcm("121233", "Source image for segmentation"), seen),
    ...scoreItems(group),
    ...measured(own),
  ]);
}

/**
 * TID 1411 with a segment through all slices or of a label map, or TID 1410 with a segment on one
 * frame.
 */
function segmentGroup(group: ReportGroup, seg: Companion, segment: Segment): Dataset {
  const { subject, finding, own } = group;
  const { id, uid } = segmentTracking(subject, segment);
  const object = {
    ReferencedSOPClassUID: seg.sopClassUid,
    ReferencedSOPInstanceUID: seg.sopInstanceUid,
  };
  const isVolume = finding.frame === undefined && finding.volume !== undefined;
  // A frame of a label map is of all segments
  const byNumber = isVolume || seg.sopClassUid === LABEL_MAP_SEGMENTATION;
  const region = byNumber
    ? segmentReference(dcm("121191", "Referenced Segment"), {
        ...object,
        ReferencedSegmentNumber: partsOf([segment], phasesIn(subject))[0]?.number ?? 0,
      })
    : segmentReference(dcm("121214", "Referenced Segmentation Frame"), {
        ...object,
        // The frame is of one segment; naming both is not allowed (PS3.3 table 10-3)
        ReferencedFrameNumber: segFrameNumber(
          segment.number,
          (finding.frame ?? 1) - 1,
          phasesIn(subject),
        ),
      });
  return container("CONTAINS", GROUP, byNumber ? "1411" : "1410", [
    ...headItems(group, id, uid),
    region,
    ...(isVolume && subject.image.series !== undefined
      ? [
          uidRef(
            "CONTAINS",
            dcm("121232", "Source series for segmentation"),
            subject.ids.seriesInstanceUid,
          ),
        ]
      : images(
          "CONTAINS",
          dcm("121233", "Source image for segmentation"),
          framesOf(subject, finding.frame),
        )),
    ...scoreItems(group),
    ...measured(own),
  ]);
}

/** TID 1501: present or absent in the image, with its score and measurements. */
function wholeGroup(group: ReportGroup): Dataset {
  const { subject, finding, known, own } = group;
  const { label } = known;
  return container("CONTAINS", GROUP, "1501", [
    ...tracking(
      `${subject.model.name}: ${label.label}${onFrame(finding)}`,
      trackingUid(subject, ["image", known.o, known.index, finding.frame ?? 0]),
    ),
    ...evaluated(subject, label, finding),
    ...algorithmItems(subject),
    ...images("CONTAINS", SOURCE_OF_MEASUREMENT, lookedAt(subject, finding.frame)),
    ...scoreItems(group),
    ...measured(own),
    coded("CONTAINS", codeOf(label), finding.present ? PRESENT : ABSENT),
  ]);
}

/** A label that is absent must not stand there as a finding, for readers that stop at that item. */
function evaluated(subject: Subject, label: Label, { present, frame }: Finding): Dataset[] {
  const items = findingItems(subject, label, frame);
  if (present) return items;
  return items.filter((item) => item["RelationshipType"] !== "CONTAINS");
}

/** TID 1501 with a value that the model measured, of points or as a regression. */
function valueGroup(subject: Subject, measurement: Measurement): Dataset {
  const { name, frame } = measurement;
  return container("CONTAINS", GROUP, "1501", [
    ...tracking(
      `${subject.model.name}: ${name}${onFrame(measurement)}`,
      trackingUid(subject, ["value", name, frame ?? 0]),
    ),
    ...algorithmItems(subject),
    ...images("CONTAINS", SOURCE_OF_MEASUREMENT, lookedAt(subject, frame)),
    ...measured([measurement], undefined, linesOf(measurement, subject)),
  ]);
}
