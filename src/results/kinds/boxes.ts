/** Boxes with a label and a score, from whichever output they come. */
import { rangeOf } from "../../base/range.js";
import type { VolumeGeometry, Warning } from "../../images/image.js";
import type { Vector } from "../../images/vectors.js";
import { labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { dcm, sct } from "../../manifest/texts.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import {
  finite,
  invalid,
  isPresent,
  labelFields,
  pixelAspect,
  thresholdOf,
  type FindingScope,
} from "./finding.js";
import { framesWith, highest, scoreText, type LegendScope } from "./legend-row.js";
import type { OutputOfKind, SourcePoint, ResultKind } from "./kind.js";
import { MILLIMETER } from "./measurements.js";
import { CUBIC_MM_PER_ML, MILLILITER } from "./segmentation.js";
import { totals } from "./totals.js";

/** An output of any kind that gives boxes. */
type BoxesOutput = Extract<ModelOutput, { max_boxes: number }>;

export const boxes: ResultKind<BoxesOutput, OutputOfKind<"boxes">> = {
  gives: "boxes",
  summary: ({ boxes: found, implausible = 0 }) =>
    `${found.length} boxes${implausible === 0 ? "" : `; ${implausible} that reach their thresholds lie outside of the tensor, are smaller than its pixels, or have their edges in the wrong order: see ${UNIT}`}`,
  judgedBy: "score",
  drawnOver: true,
  interpret: (output, thresholds, { boxes: given, implausible = 0 }, part) => {
    const labels = labelsOf(output);
    const counts = new Map<number, number>();
    const found = given.map((box): Finding => {
      const label = labels[box.label];
      if (label === undefined)
        throw invalid(`label numbers below ${labels.length}`, `${box.label}`);
      const score = finite(box.score);
      const threshold = thresholdOf(label, thresholds[box.label]);
      const { x0, y0, x1, y1 } = box;
      const edges = { x0: finite(x0), y0: finite(y0), x1: finite(x1), y1: finite(y1) };
      const turned = box.corners === undefined ? {} : turnedBox(box.corners, pixelAspect(part));
      const said = {
        ...labelFields(label, part),
        score,
        threshold,
        present: isPresent(score, threshold),
      };
      if (box.z0 === undefined || box.z1 === undefined) return { ...said, box: edges, ...turned };
      const number = (counts.get(box.label) ?? 0) + 1;
      counts.set(box.label, number);
      return {
        ...said,
        ...inVolume({ ...edges, z0: finite(box.z0), z1: finite(box.z1) }, part),
        number,
      };
    });
    const missing = labels.flatMap((label, i): Finding[] =>
      given.some((box) => box.label === i)
        ? []
        : [
            {
              ...labelFields(label, part),
              threshold: thresholdOf(label, thresholds[i]),
              present: false,
            },
          ],
    );
    return {
      findings: [...found, ...missing],
      measurements: found.flatMap(measured),
      warnings: implausible > 0 ? [IMPLAUSIBLE] : [],
    };
  },
  overFrames: (output, _, findings, group) =>
    group === undefined ? {} : totals(labelsOf(output), findings),
  isOf: ({ box, score, area, volume }) =>
    area === undefined && volume === undefined && (box !== undefined || score === undefined),
  row: (label, findings, colour, scope) => ({
    label,
    present: findings.some((f) => f.present),
    colour,
    hollow: true,
    scored: true,
    gauge: undefined,
    value: boxesText(findings, scope),
  }),
  laidBack: (result, { left, top, slice }) => ({
    ...result,
    boxes: result.boxes.map(({ x0, y0, x1, y1, z0, z1, corners, ...rest }) => ({
      x0: x0 + left,
      y0: y0 + top,
      x1: x1 + left,
      y1: y1 + top,
      ...(z0 === undefined || z1 === undefined ? {} : { z0: z0 + slice, z1: z1 + slice }),
      ...rest,
      ...(corners && { corners: corners.map(({ x, y }) => ({ x: x + left, y: y + top })) }),
    })),
  }),
  nothing: (output) => ({ kind: "boxes", tensor: tensorOf(output), boxes: [] }),
};

const UNIT = "their format or columns, normalised and pixels_of";
const IMPLAUSIBLE: Warning = {
  code: "boxes_implausible",
  message: `Boxes whose scores reach their thresholds lie outside of what the model was given, are smaller than a pixel of it, or end before they begin, and are then left out. Are the format and the unit of boxes in the manifest right (${UNIT})?`,
};

/** @throws RadserveError output_invalid */
function turnedBox(
  given: readonly SourcePoint[],
  aspect: number,
): Pick<Finding, "corners" | "angle"> {
  const corners = given.map(({ x, y }) => ({ x: finite(x), y: finite(y) }));
  const [first, second] = corners;
  if (first === undefined || second === undefined)
    throw invalid("four corners", `${corners.length}`);
  const degrees = (Math.atan2((second.y - first.y) * aspect, second.x - first.x) * 180) / Math.PI;
  return {
    corners,
    angle: degrees > 90 ? degrees - 180 : degrees <= -90 ? degrees + 180 : degrees,
  };
}

function tensorOf(output: BoxesOutput): string {
  if ("tensor" in output) return output.tensor;
  const { boxes: from } = output;
  return "tensor" in from ? from.tensor : (from.levels[0]?.boxes ?? "");
}

type Solid = Record<"x0" | "y0" | "z0" | "x1" | "y1" | "z1", number>;

/** A point of a volume, by edges of pixels and slices, in the patient (PS3.3 C.7.6.2.1.1), mm. */
export function inPatient(geometry: VolumeGeometry, x: number, y: number, z: number): Vector {
  const { origin, columnDirection, rowDirection, sliceDirection } = geometry;
  const steps = [
    (x - 0.5) * geometry.columnSpacing,
    (y - 0.5) * geometry.rowSpacing,
    (z - 0.5) * geometry.sliceSpacing,
  ] as const;
  const at = (axis: 0 | 1 | 2) =>
    origin[axis] +
    steps[0] * columnDirection[axis] +
    steps[1] * rowDirection[axis] +
    steps[2] * sliceDirection[axis];
  return [at(0), at(1), at(2)];
}

/** A box lies in a slice if more than rounding of it does, and in one at least. */
const TOUCHES = 1e-6;

function inVolume(
  box: Solid,
  { volume, slices = [] }: FindingScope,
): Pick<Finding, "box" | "frames" | "patient_mm"> {
  if (volume === undefined) throw new RangeError("A box with slices is one of a volume");
  const { x0, y0, z0, x1, y1, z1 } = box;
  const { columnSpacing, rowSpacing, sliceSpacing } = volume;
  const first = Math.min(Math.floor(z0 + TOUCHES), slices.length - 1);
  const end = Math.max(Math.ceil(z1 - TOUCHES), first + 1);
  return {
    box,
    frames: slices.slice(first, end).map((frame) => frame + 1),
    patient_mm: {
      centre: inPatient(volume, (x0 + x1) / 2, (y0 + y1) / 2, (z0 + z1) / 2),
      size: [(x1 - x0) * columnSpacing, (y1 - y0) * rowSpacing, (z1 - z0) * sliceSpacing],
    },
  };
}

function measured({ label, number, patient_mm }: Finding): Measurement[] {
  if (patient_mm === undefined || number === undefined) return [];
  const { size } = patient_mm;
  return [
    {
      name: "Volume of the box",
      label,
      number,
      unit: MILLILITER,
      code: dcm("121219", "Volume of bounding three dimensional region"),
      value: size.reduce((a, b) => a * b, 1) / CUBIC_MM_PER_ML,
    },
    {
      name: "Longest side of the box",
      label,
      number,
      unit: MILLIMETER,
      code: sct("103339001", "Long axis"),
      value: Math.max(...size),
    },
  ];
}

function boxesText(findings: readonly Finding[], { frames, called }: LegendScope): string {
  const found = findings.filter((f) => f.present);
  const threshold = findings.find((f) => f.threshold !== undefined)?.threshold;
  const limit = threshold === undefined ? "" : `threshold ${threshold.toFixed(2)}`;
  if (found.length === 0) {
    const best = highest(findings, (f) => f.score ?? -Infinity)?.score ?? -Infinity;
    if (threshold === undefined || best === -Infinity)
      return limit === "" ? "none" : `none, ${limit}`;
    return `none, ${scoreText(best, threshold, false)}`;
  }
  const scores = found.map((f) => f.score ?? NaN).filter((s) => !Number.isNaN(s));
  const [low, high] = rangeOf(scores);
  const longest = Math.max(...found.flatMap(({ patient_mm: mm }) => mm?.size ?? []));
  const size = longest > 0 ? `, up to ${longest.toFixed(1)} mm` : "";
  const count = `${found.length === 1 ? "1 box" : `${found.length} boxes`}${size}${
    frames === 1 ? "" : ` in ${framesWith(found)} of ${frames} ${called}s`
  }`;
  if (scores.length === 0) return count;
  if (threshold !== undefined && found.length === 1)
    return `${count}, ${scoreText(high, threshold, true)}`;
  const range =
    low.toFixed(2) === high.toFixed(2) ? low.toFixed(2) : `${low.toFixed(2)} to ${high.toFixed(2)}`;
  return [count, `scores ${range}`, limit].filter((part) => part !== "").join(", ");
}
