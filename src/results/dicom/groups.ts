/** Measurement groups of the report (PS3.16 TID 1410, 1411, 1501). */
import { labelsOf, type Code, type Label, type ModelOutput } from "../../manifest.js";
import type { Finding, Measurement } from "../receipt.js";
import {
  OWN_SCHEME,
  segmentsOf,
  segmentTracking,
  sideOf,
  trackingUid,
  type Segment,
  type Subject,
} from "./common.js";
import { coded, container, dcm, images, num, polyline, sct, segment, text, uidRef } from "./content.js";
import type { Dataset } from "./dataset.js";
import { segFrameNumber } from "./seg.js";
import type { SourceFrame } from "./source.js";
import type { Companion, Said } from "./sr.js";

const GROUP = dcm("125007", "Measurement Group");
const NO_UNITS: Code = { value: "1", scheme: "UCUM", meaning: "no units" };
const SCORE: Code = { value: "score", scheme: OWN_SCHEME, meaning: "Score" };
const PROBABILITY: Code = { value: "probability", scheme: OWN_SCHEME, meaning: "Calibrated probability" };
const THRESHOLD: Code = { value: "threshold", scheme: OWN_SCHEME, meaning: "Threshold of the score" };
const PRESENT = sct("52101004", "Present");
const ABSENT = sct("272519000", "Absent");

/** A label with the output it belongs to. */
interface Known {
  label: Label;
  output: ModelOutput;
  o: number;
  index: number;
}

/** Groups in the order of findings, then of measurements that belong to none. */
export function measurementGroups(subject: Subject, said: Said, seg: Companion | undefined): Dataset[] {
  const { outputs } = subject.model.manifest;
  const known = outputs.flatMap((output, o) =>
    labelsOf(output).map((label, index): Known => ({ label, output, o, index })),
  );
  const segments = segmentsOf(outputs);
  const ordinals = new Map<string, number>();
  const groups: Dataset[] = [];
  for (const finding of said.findings) {
    const found = known.find(({ label }) => label.label === finding.label);
    if (found === undefined) throw new Error("A finding's label is one of the manifest's");
    // A box below its threshold is no finding; that none was found is said once, by label
    if (finding.box !== undefined && !finding.present) continue;
    const key = `${finding.label} ${finding.frame ?? 0}`;
    const ordinal = ordinals.get(key) ?? 0;
    ordinals.set(key, ordinal + 1);
    const own = said.measurements.filter((m) => m.label === finding.label && m.frame === finding.frame);
    const place = segments.find(({ output, index }) => output === found.o && index === found.index);
    groups.push(groupOf({ subject, finding, known: found, ordinal, own, seg, place }));
  }
  groups.push(...absentBoxes(subject, said, known));
  for (const measurement of said.measurements)
    if (measurement.label === undefined) groups.push(valueGroup(subject, measurement));
  return groups;
}

interface Group {
  subject: Subject;
  finding: Finding;
  known: Known;
  /** Which box of this label and frame it is, from 0. */
  ordinal: number;
  own: readonly Measurement[];
  seg: Companion | undefined;
  place: Segment | undefined;
}

function groupOf(group: Group): Dataset {
  const { finding, seg, place } = group;
  if (finding.box !== undefined) return boxGroup(group, finding.box);
  if (seg !== undefined && place !== undefined && finding.present)
    return finding.frame === undefined && finding.volume !== undefined
      ? volumeGroup(group, seg, place)
      : frameGroup(group, seg, place);
  return wholeGroup(group);
}

/** The frames that a finding is about: one, or all. */
function framesOf({ ids }: Subject, frame: number | undefined): readonly SourceFrame[] {
  const one = frame === undefined ? undefined : ids.frames[frame - 1];
  return one === undefined ? ids.frames : [one];
}

function tracking(id: string, uid: string): Dataset[] {
  return [
    text("HAS OBS CONTEXT", dcm("112039", "Tracking Identifier"), id),
    uidRef("HAS OBS CONTEXT", dcm("112040", "Tracking Unique Identifier"), uid),
  ];
}

/** TID 4019, in the words of equipment and segmentation. */
function algorithmItems({ model }: Subject): Dataset[] {
  return [
    text("HAS CONCEPT MOD", dcm("111001", "Algorithm Name"), model.name),
    text("HAS CONCEPT MOD", dcm("111003", "Algorithm Version"), model.version),
  ];
}

/** Finding, category and site with its side. */
function findingItems(subject: Subject, label: Label): Dataset[] {
  const { code, category, finding_site } = label;
  if (code === undefined) throw new Error("Models without codes write no DICOM objects");
  const side = sideOf(subject, label);
  const sided = side === undefined ? [] : [coded("HAS CONCEPT MOD", sct("272741003", "Laterality"), side)];
  return [
    ...(category === undefined ? [] : [coded("CONTAINS", sct("276214006", "Finding category"), category)]),
    coded("CONTAINS", dcm("121071", "Finding"), code),
    ...(finding_site === undefined
      ? []
      : [coded("HAS CONCEPT MOD", sct("363698007", "Finding Site"), finding_site, sided)]),
  ];
}

/** The score is a probability only where the manifest says how it was calibrated. */
function scoreItems({ finding, known }: Pick<Group, "finding" | "known">): Dataset[] {
  const { score, threshold } = finding;
  const { output } = known;
  const calibrated = output.kind === "classification" && output.calibration.kind !== "none";
  return [
    ...(score === undefined ? [] : [num(calibrated ? PROBABILITY : SCORE, score, NO_UNITS)]),
    ...(threshold === undefined ? [] : [num(THRESHOLD, threshold, NO_UNITS)]),
  ];
}

function measured(own: readonly Measurement[]): Dataset[] {
  return own.map(({ code, value, unit }) => {
    if (code === undefined) throw new Error("Models without codes write no DICOM objects");
    return num(code, value, unit);
  });
}

/** TID 1410 with a box. */
function boxGroup(group: Group, box: NonNullable<Finding["box"]>): Dataset {
  const { subject, finding, known, ordinal } = group;
  const [frame] = framesOf(subject, finding.frame);
  if (frame === undefined) throw new Error("An image has a frame");
  const { x0, y0, x1, y1 } = box;
  const corners = [
    [x0, y0],
    [x1, y0],
    [x1, y1],
    [x0, y1],
  ] as const;
  const where = finding.frame === undefined ? "" : ` on frame ${finding.frame}`;
  return container("CONTAINS", GROUP, "1410", [
    ...tracking(
      `${subject.model.name}: ${known.label.label} ${ordinal + 1}${where}`,
      trackingUid(subject, ["box", known.o, known.index, finding.frame ?? 0, ordinal]),
    ),
    ...findingItems(subject, known.label),
    ...algorithmItems(subject),
    polyline(dcm("111030", "Image Region"), corners, frame),
    ...scoreItems(group),
  ]);
}

/** TID 1410 with a segment on one frame. */
function frameGroup({ subject, finding, known, own }: Group, seg: Companion, place: Segment): Dataset {
  const { id, uid } = segmentTracking(subject, place);
  const frame = (finding.frame ?? 1) - 1;
  return container("CONTAINS", GROUP, "1410", [
    ...tracking(id, uid),
    ...findingItems(subject, known.label),
    ...algorithmItems(subject),
    segment(dcm("121214", "Referenced Segmentation Frame"), {
      ReferencedSOPClassUID: seg.sopClassUid,
      ReferencedSOPInstanceUID: seg.sopInstanceUid,
      // The frame is of one segment; naming both is not allowed (PS3.3 table 10-3)
      ReferencedFrameNumber: segFrameNumber(place.number, frame, subject.ids.frames.length),
    }),
    ...images("CONTAINS", dcm("121233", "Source image for segmentation"), framesOf(subject, finding.frame)),
    ...measured(own),
  ]);
}

/** TID 1411 with a segment through all slices. */
function volumeGroup({ subject, known, own }: Group, seg: Companion, place: Segment): Dataset {
  const { id, uid } = segmentTracking(subject, place);
  return container("CONTAINS", GROUP, "1411", [
    ...tracking(id, uid),
    ...findingItems(subject, known.label),
    ...algorithmItems(subject),
    segment(dcm("121191", "Referenced Segment"), {
      ReferencedSOPClassUID: seg.sopClassUid,
      ReferencedSOPInstanceUID: seg.sopInstanceUid,
      ReferencedSegmentNumber: place.number,
    }),
    ...sourceOfVolume(subject),
    ...measured(own),
  ]);
}

function sourceOfVolume({ image, ids }: Subject): Dataset[] {
  if (image.series === undefined)
    return images("CONTAINS", dcm("121233", "Source image for segmentation"), ids.frames);
  return [uidRef("CONTAINS", dcm("121232", "Source series for segmentation"), ids.seriesInstanceUid)];
}

/** TID 1501: present or absent in the image, with its score and measurements. */
function wholeGroup(group: Group): Dataset {
  const { subject, finding, known, own } = group;
  const { label } = known;
  const where = finding.frame === undefined ? "" : ` on frame ${finding.frame}`;
  return container("CONTAINS", GROUP, "1501", [
    ...tracking(
      `${subject.model.name}: ${label.label}${where}`,
      trackingUid(subject, ["image", known.o, known.index, finding.frame ?? 0]),
    ),
    ...evaluated(subject, label, finding.present),
    ...algorithmItems(subject),
    ...images("CONTAINS", dcm("121112", "Source of Measurement"), framesOf(subject, finding.frame)),
    ...scoreItems(group),
    ...measured(own),
    ...(label.code === undefined ? [] : [coded("CONTAINS", label.code, finding.present ? PRESENT : ABSENT)]),
  ]);
}

/** What is absent must not stand there as a finding, for readers that stop at that item. */
function evaluated(subject: Subject, label: Label, present: boolean): Dataset[] {
  const items = findingItems(subject, label);
  if (present) return items;
  return items.filter((item) => item["RelationshipType"] !== "CONTAINS");
}

/** Labels of which boxes were found, but none at the threshold: that is a negative finding too. */
function absentBoxes(subject: Subject, { findings }: Said, known: readonly Known[]): Dataset[] {
  return known.flatMap((each) => {
    const boxes = findings.filter(({ label, box }) => label === each.label.label && box !== undefined);
    const frames = new Set(boxes.map(({ frame }) => frame));
    return [...frames]
      .filter((frame) => !boxes.some((finding) => finding.frame === frame && finding.present))
      .map((frame) => {
        const { threshold } = boxes.find((finding) => finding.frame === frame) ?? {};
        const finding: Finding = {
          label: each.label.label,
          present: false,
          ...(threshold === undefined ? {} : { threshold }),
          ...(frame === undefined ? {} : { frame }),
        };
        const none = { seg: undefined, place: undefined };
        return wholeGroup({ subject, finding, known: each, ordinal: 0, own: [], ...none });
      });
  });
}

/** TID 1501 with a value that the model measured, a regression. */
function valueGroup(subject: Subject, measurement: Measurement): Dataset {
  const { name, frame } = measurement;
  const where = frame === undefined ? "" : ` on frame ${frame}`;
  return container("CONTAINS", GROUP, "1501", [
    ...tracking(`${subject.model.name}: ${name}${where}`, trackingUid(subject, ["value", name, frame ?? 0])),
    ...algorithmItems(subject),
    ...images("CONTAINS", dcm("121112", "Source of Measurement"), framesOf(subject, frame)),
    ...measured([measurement]),
  ]);
}
