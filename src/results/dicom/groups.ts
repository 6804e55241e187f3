/**
 * Measurement groups of the report (PS3.16 TID 1410, 1411, 1501): one for each box or point, and
 * one for all else that is said of a label, with its frames and numbers. What was looked for and
 * not found stands together, apart from them.
 */
import { groupsBy } from "../../base/groups.js";
import { labelsOf } from "../../manifest/outputs/outputs.js";
import { dcm, sct } from "../../manifest/texts.js";
import type { Warning } from "../../images/image.js";
import { volumeOf } from "../../images/dicom/volume.js";
import type { SourcePoint } from "../kinds/kind.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { codeOf } from "./codes.js";
import {
  coded,
  container,
  images,
  segmentReference,
  spatialCoordinates,
  uidRef,
  volumeSurface,
} from "./content.js";
import { checkMany, type Dataset, type DicomObject } from "./elements.js";
import { frameOfReferenceOf } from "./frame-positions.js";
import {
  absentNumbers,
  absentSite,
  algorithmItems,
  allOf,
  findingItems,
  framesOf,
  isTiled,
  measured,
  numbersOf,
  scoreItems,
  sourceOfValue,
  sourcesOf,
  tracking,
  type KnownLabel,
  type Told,
} from "./group-items.js";
import { facesOf, outlineOf } from "./outlines.js";
import {
  LABEL_MAP_SEGMENTATION,
  partsOf,
  phasesIn,
  segmentsOf,
  segmentTracking,
  type PhaseSegment,
  type Segment,
} from "./segments.js";
import { trackingUid, type Subject } from "./subject.js";

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
const SOURCE_IMAGE = dcm("121233", "Source image for segmentation");
const PRESENT = sct("52101004", "Present");
const ABSENT = sct("272519000", "Absent");

export interface Groups {
  /** Children of Imaging Measurements, in the order of the findings that they begin with. */
  groups: Dataset[];
  /**
   * Children of Qualitative Evaluations: labels that are absent. Validators tell the template of a
   * group by its siblings (PixelMed 2022), and readers look for findings there.
   */
  absent: Dataset[];
}

/** All that is said of a label. */
interface LabelReport extends KnownLabel {
  segment: Segment | undefined;
  /** Boxes and points. */
  regions: Told[];
  /** Present without being a region: of the image as a whole, and on single frames. */
  present: Told[];
  absent: Told[];
}

/** Elements and items of a group at least. */
const LEAST_OF_GROUP = 90;

/** @throws ObjectTooLarge */
export function measurementGroups(
  subject: Subject,
  said: ReportContents,
  seg: Companion | undefined,
): Groups {
  const labels = labelReports(subject);
  const measurements = groupsBy(said.measurements, placeOf);
  const ordinals = new Map<string, number>();
  const makers: (() => Dataset[])[] = [];
  for (const finding of foundOf(said)) {
    const label = labels.get(finding.label);
    if (label === undefined) throw new Error("A finding's label is one of the manifest's");
    const key = placeOf(finding);
    const ordinal = ordinals.get(key) ?? 0;
    ordinals.set(key, ordinal + 1);
    const told: Told = { finding, own: measurements.get(key) ?? [], ordinal };
    if (!finding.present) label.absent.push(told);
    else if (isRegion(told)) {
      label.regions.push(told);
      makers.push(() => [regionGroup(subject, label, told)]);
    } else if (label.present.push(told) === 1) makers.push(() => labelGroups(subject, label, seg));
  }
  checkMany(makers.length, LEAST_OF_GROUP);
  const values = groupsBy(
    said.measurements.filter(({ label }) => label === undefined),
    ({ name }) => name,
  );
  return {
    groups: [
      ...makers.flatMap((make) => make()),
      ...[...values.values()].map((each) => valueGroup(subject, each)),
    ],
    absent: [...labels.values()].flatMap((label) => absentItems(subject, label)),
  };
}

function labelReports(subject: Subject): Map<string, LabelReport> {
  const { outputs } = subject.model.manifest;
  const segments = segmentsOf(outputs);
  const reports = new Map<string, LabelReport>();
  for (const [o, output] of outputs.entries())
    for (const [index, label] of labelsOf(output).entries()) {
      // Masks of boxes have the labels of their boxes, which come first
      if (reports.has(label.label)) continue;
      const segment = segments.find((one) => one.label.label === label.label);
      const none = { regions: [], present: [], absent: [] };
      reports.set(label.label, { label, output, o, index, segment, ...none });
    }
  return reports;
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

/** A box in a volume, or a box or point on a frame. */
const isRegion = ({ finding: { frames, box, point } }: Told): boolean =>
  [frames, box, point].some((one) => one !== undefined);

/**
 * A label that was found nowhere; or that is on some frames, where all of them together say that it
 * is absent.
 */
function absentItems(subject: Subject, label: LabelReport): Dataset[] {
  const { absent, present, regions } = label;
  const isFound = present.length + regions.length > 0;
  const told = isFound ? absent.filter(({ finding }) => finding.over_frames !== undefined) : absent;
  if (told.length === 0) return [];
  const children = [
    ...absentSite(subject, label.label, told),
    ...sourcesOf("INFERRED FROM", subject, everywhere(subject, told.map(frameOf))),
    ...absentNumbers(subject, label, told),
  ];
  return [coded("CONTAINS", codeOf(label.label), ABSENT, children)];
}

const frameOf = ({ finding }: Told) => finding.frame;

/** The frames that something is said of; what is said of every frame is said of the image. */
const everywhere = ({ ids }: Subject, frames: readonly (number | undefined)[]) =>
  new Set(frames).size < ids.frames.length ? frames : [undefined];

function onFrame({ frame }: { frame?: number | undefined }): string {
  return frame === undefined ? "" : ` on frame ${frame}`;
}

/** The items with which the group of a region begins. */
function headItems(
  subject: Subject,
  { label }: LabelReport,
  told: readonly Told[],
  { id, uid }: { id: string; uid: string },
): Dataset[] {
  const items = findingItems(subject, label, told);
  return [...tracking(id, uid), ...items, ...algorithmItems(subject)];
}

function regionGroup(subject: Subject, label: LabelReport, told: Told): Dataset {
  const { frames } = told.finding;
  if (frames !== undefined) return solidGroup(subject, label, told, frames);
  const outline = outlineOf(told.finding, subject.image.format);
  if (outline === undefined) throw new Error("A region has an outline");
  return outlineGroup(subject, label, told, outline);
}

/** TID 1410 with a box or a point. */
function outlineGroup(
  subject: Subject,
  label: LabelReport,
  told: Told,
  outline: readonly SourcePoint[],
): Dataset {
  const { finding, ordinal } = told;
  const [frame] = framesOf(subject, finding.frame);
  if (frame === undefined) throw new Error("An image has a frame");
  const id = `${subject.model.name}: ${label.label.label} ${ordinal + 1}${onFrame(finding)}`;
  const uid = trackingUid(subject, [
    finding.point === undefined ? "box" : "point",
    label.o,
    label.index,
    finding.frame ?? 0,
    ordinal,
  ]);
  const name = dcm("111030", "Image Region");
  return container("CONTAINS", GROUP, "1410", [
    ...headItems(subject, label, [told], { id, uid }),
    spatialCoordinates("CONTAINS", name, outline, frame, isTiled(subject)),
    ...scoreItems(label, finding),
  ]);
}

/** TID 1411 with a box in a volume: its surface in the patient, and the slices that it lies in. */
function solidGroup(
  subject: Subject,
  label: LabelReport,
  told: Told,
  frames: readonly number[],
): Dataset {
  const { finding, own } = told;
  const { box, number = 1 } = finding;
  const { geometry } = volumeOf(subject.image);
  const frameOfReference = frameOfReferenceOf(subject.attributes);
  if (frameOfReference === undefined)
    throw new Error("A box in a volume is of a source with a frame of reference");
  const id = `${subject.model.name}: ${label.label.label} ${number}`;
  const uid = trackingUid(subject, ["solid", label.o, label.index, number]);
  const seen = frames.flatMap((frame) => framesOf(subject, frame));
  return container("CONTAINS", GROUP, "1411", [
    ...headItems(subject, label, [told], { id, uid }),
    ...volumeSurface(dcm("121231", "Volume Surface"), facesOf(box, geometry), frameOfReference),
    ...images("CONTAINS", SOURCE_IMAGE, seen),
    ...scoreItems(label, finding),
    ...measured(own),
  ]);
}

/**
 * The groups of what is present without being a region: one for each of its segments, of which
 * there is one a phase, or one for the label.
 */
function labelGroups(subject: Subject, label: LabelReport, seg: Companion | undefined): Dataset[] {
  const { segment, present } = label;
  if (seg === undefined || segment === undefined) return [wholeGroup(subject, label, present)];
  const parts = partsOf([segment], phasesIn(subject));
  const [only, ...others] = parts;
  if (only !== undefined && others.length === 0)
    return [segmentGroup(subject, label, seg, only, present)];
  const ofFrame = ({ frames }: PhaseSegment["phase"], { finding }: Told) =>
    finding.frame !== undefined && frames.includes(finding.frame - 1);
  const groups = parts.map((part) => ({
    part,
    told: present.filter((one) => ofFrame(part.phase, one)),
  }));
  const whole = present.filter(({ finding }) => finding.frame === undefined);
  return [
    ...(whole.length === 0 ? [] : [wholeGroup(subject, label, whole)]),
    ...groups.flatMap(({ part, told }) =>
      told.length === 0 ? [] : [segmentGroup(subject, label, seg, part, told)],
    ),
  ];
}

/**
 * TID 1411 with a segment, or TID 1410 with its frame where the image has one frame. A frame of a
 * label map is of all segments.
 */
function segmentGroup(
  subject: Subject,
  label: LabelReport,
  seg: Companion,
  segment: PhaseSegment,
  told: readonly Told[],
): Dataset {
  const { ids, image } = subject;
  const object = {
    ReferencedSOPClassUID: seg.sopClassUid,
    ReferencedSOPInstanceUID: seg.sopInstanceUid,
  };
  const byNumber = ids.frames.length > 1 || seg.sopClassUid === LABEL_MAP_SEGMENTATION;
  const region = byNumber
    ? segmentReference(dcm("121191", "Referenced Segment"), {
        ...object,
        ReferencedSegmentNumber: segment.number,
      })
    : segmentReference(dcm("121214", "Referenced Segmentation Frame"), {
        ...object,
        // The frame is of one segment; naming both is not allowed (PS3.3 table 10-3). Of an image
        // with one frame, the number of a segment is that of its frame
        ReferencedFrameNumber: segment.number,
      });
  const source =
    image.series !== undefined && ids.frames.length > 1
      ? [uidRef("CONTAINS", dcm("121232", "Source series for segmentation"), ids.seriesInstanceUid)]
      : images("CONTAINS", SOURCE_IMAGE, seenFrames(subject, told));
  return container("CONTAINS", GROUP, byNumber ? "1411" : "1410", [
    ...headItems(subject, label, told, segmentTracking(subject, segment)),
    region,
    ...source,
    ...numbersOf(subject, label, told),
  ]);
}

/** The frames of one object that findings are about; all of them need no numbers. */
function seenFrames(subject: Subject, told: readonly Told[]) {
  const seen = told.flatMap(({ finding }) => finding.frame ?? []);
  if (seen.length === 0) return allOf(subject.ids.frames);
  return seen.flatMap((frame) => framesOf(subject, frame));
}

/** TID 1501: present in the image, with scores and measurements. */
function wholeGroup(subject: Subject, label: LabelReport, told: readonly Told[]): Dataset {
  const { o, index, regions } = label;
  const id = `${subject.model.name}: ${label.label.label}`;
  const uid = trackingUid(subject, ["image", o, index, 0]);
  const onFrames = [...told, ...regions].filter(({ finding }) => finding.frame !== undefined);
  const seen = onFrames.length > 0 ? onFrames : told;
  return container("CONTAINS", GROUP, "1501", [
    ...headItems(subject, label, told, { id, uid }),
    ...sourcesOf("CONTAINS", subject, seen.map(frameOf)),
    ...numbersOf(subject, label, told),
    coded("CONTAINS", codeOf(label.label), PRESENT),
  ]);
}

/** TID 1501 with a value that the model measured, of points or as a regression. */
function valueGroup(subject: Subject, values: readonly Measurement[]): Dataset {
  const name = values[0]?.name ?? "";
  const frames = values.map(({ frame }) => frame);
  return container("CONTAINS", GROUP, "1501", [
    ...tracking(`${subject.model.name}: ${name}`, trackingUid(subject, ["value", name, 0])),
    ...algorithmItems(subject),
    ...sourcesOf("CONTAINS", subject, everywhere(subject, frames)),
    ...values.flatMap((value) => measured([value], undefined, sourceOfValue(subject, value))),
  ]);
}
