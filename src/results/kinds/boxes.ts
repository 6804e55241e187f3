/** Boxes with a label and a score, from whichever output they come. */
import { rangeOf } from "../../base/range.js";
import type { Detection } from "../../manifest/outputs/detection.js";
import type { DetectionTable } from "../../manifest/outputs/detection-table.js";
import { labelsOf } from "../../manifest/outputs/outputs.js";
import type { ProbabilityMap } from "../../manifest/outputs/probability-map.js";
import type { Finding } from "../receipt/receipt.js";
import { finite, invalid, isPresent, named, pixelAspect, thresholdOf } from "./finding.js";
import { framesWith, highest, scoreText, type Scope } from "./legend-row.js";
import type { Given, Point, ResultKind } from "./kind.js";
import { totals } from "./totals.js";

export const boxes: ResultKind<Detection | DetectionTable | ProbabilityMap, Given<"boxes">> = {
  gives: "boxes",
  summary: ({ boxes: found }) => `${found.length} boxes`,
  judgedBy: "score",
  drawnOver: true,
  interpret: (output, thresholds, { boxes: given }, part) => {
    const labels = labelsOf(output);
    const found = given.map((box): Finding => {
      const label = labels[box.label];
      if (label === undefined) throw invalid(`label numbers below ${labels.length}`, `${box.label}`);
      const score = finite(box.score);
      const threshold = thresholdOf(label, thresholds[box.label]);
      const { x0, y0, x1, y1 } = box;
      const edges = { x0: finite(x0), y0: finite(y0), x1: finite(x1), y1: finite(y1) };
      const turned = box.corners === undefined ? {} : turnedBox(box.corners, pixelAspect(part));
      const present = isPresent(score, threshold);
      return { ...named(label, part), score, threshold, present, box: edges, ...turned };
    });
    const missing = labels.flatMap((label, i): Finding[] =>
      given.some((box) => box.label === i)
        ? []
        : [{ ...named(label, part), threshold: thresholdOf(label, thresholds[i]), present: false }],
    );
    return { findings: [...found, ...missing] };
  },
  overFrames: (output, _, findings, group) => (group === undefined ? {} : totals(labelsOf(output), findings)),
  isOf: ({ box, score, area, volume }) =>
    area === undefined && volume === undefined && (box !== undefined || score === undefined),
  row: (label, findings, colour, scope) => ({
    ...{ label, present: findings.some((f) => f.present), colour },
    ...{ hollow: true, scored: true, gauge: undefined, value: boxesText(findings, scope) },
  }),
  laidBack: (result, { left, top }) => ({
    ...result,
    boxes: result.boxes.map(({ x0, y0, x1, y1, corners, ...rest }) => ({
      ...{ x0: x0 + left, y0: y0 + top, x1: x1 + left, y1: y1 + top },
      ...rest,
      ...(corners && { corners: corners.map(({ x, y }) => ({ x: x + left, y: y + top })) }),
    })),
  }),
  nothing: (output) => ({
    kind: "boxes",
    tensor: "tensor" in output ? output.tensor : output.boxes.tensor,
    boxes: [],
  }),
};

/** @throws RadserveError output_invalid */
function turnedBox(given: readonly Point[], aspect: number): Pick<Finding, "corners" | "angle"> {
  const corners = given.map(({ x, y }) => ({ x: finite(x), y: finite(y) }));
  const [first, second] = corners;
  if (first === undefined || second === undefined) throw invalid("four corners", `${corners.length}`);
  const degrees = (Math.atan2((second.y - first.y) * aspect, second.x - first.x) * 180) / Math.PI;
  return { corners, angle: degrees > 90 ? degrees - 180 : degrees <= -90 ? degrees + 180 : degrees };
}

function boxesText(findings: readonly Finding[], { frames, called }: Scope): string {
  const found = findings.filter((f) => f.present);
  const threshold = findings.find((f) => f.threshold !== undefined)?.threshold;
  const limit = threshold === undefined ? "" : `threshold ${threshold.toFixed(2)}`;
  if (found.length === 0) {
    const best = highest(findings, (f) => f.score ?? -Infinity)?.score ?? -Infinity;
    if (threshold === undefined || best === -Infinity) return limit === "" ? "none" : `none, ${limit}`;
    return `none, ${scoreText(best, threshold, false)}`;
  }
  const scores = found.map((f) => f.score ?? NaN).filter((s) => !Number.isNaN(s));
  const [low, high] = rangeOf(scores);
  const count = `${found.length === 1 ? "1 box" : `${found.length} boxes`}${
    frames === 1 ? "" : ` in ${framesWith(found)} of ${frames} ${called}s`
  }`;
  if (scores.length === 0) return count;
  if (threshold !== undefined && found.length === 1) return `${count}, ${scoreText(high, threshold, true)}`;
  const range =
    low.toFixed(2) === high.toFixed(2) ? low.toFixed(2) : `${low.toFixed(2)} to ${high.toFixed(2)}`;
  return [count, `scores ${range}`, limit].filter((part) => part !== "").join(", ");
}
