/** Points of the image, one for each label. */
import { hasScores, type Keypoints } from "../../manifest/outputs/keypoints.js";
import type { Warning } from "../../images/image.js";
import type { Finding } from "../receipt/receipt.js";
import { finite, isPresent, labelFields, thresholdOf } from "./finding.js";
import { framesWith, scoreRow } from "./legend-row.js";
import type { OutputOfKind, ResultKind } from "./kind.js";
import { measurePoints } from "./point-measures.js";

const IMPLAUSIBLE: Warning = {
  code: "points_implausible",
  message:
    "All points lie within one pixel of what the model was given. Is the unit of points in the manifest right (table.normalised, table.pixels_of)?",
};

export const keypoints: ResultKind<Keypoints, OutputOfKind<"points">> = {
  gives: "points",
  summary: ({ points }) => `${points.length} points`,
  judgedBy: "score",
  drawnOver: true,
  interpret: (output, thresholds, { points, implausible = 0 }, part) => {
    const warnings: Warning[] = [];
    const findings = output.labels.map((label, i): Finding => {
      const threshold = hasScores(output) ? thresholdOf(label, thresholds[i]) : undefined;
      const said = {
        ...labelFields(label, part),
        ...(threshold === undefined ? {} : { threshold }),
      };
      const found = points.find((point) => point.label === i);
      if (found === undefined) return { ...said, present: false };
      const { x, y } = found;
      const score = threshold === undefined ? undefined : finite(found.score);
      const reached = score === undefined || threshold === undefined || isPresent(score, threshold);
      const scored = { ...said, ...(score === undefined ? {} : { score }) };
      if (Number.isFinite(x) && Number.isFinite(y))
        return { ...scored, present: reached, point: { x, y } };
      if (reached) warnings.push(outside(label.label));
      return { ...scored, present: false };
    });
    if (implausible > 0 && findings.some(({ present }) => present)) warnings.push(IMPLAUSIBLE);
    const there = new Map(
      findings.flatMap(({ label, present, point }) =>
        present && point ? [[label, point] as const] : [],
      ),
    );
    const measured = measurePoints(output.measures ?? [], there, part);
    return {
      findings,
      measurements: measured.measurements,
      warnings: [...warnings, ...measured.warnings],
    };
  },
  isOf: ({ box, area, volume }) => box === undefined && area === undefined && volume === undefined,
  row: (label, findings, colour, scope) => {
    const row = { ...scoreRow(label, findings, scope), colour };
    if (!row.present || row.value !== "") return row;
    const count = `placed in ${framesWith(findings)} of ${scope.frames} ${scope.called}s`;
    return { ...row, scored: false, value: scope.frames === 1 ? "placed" : count };
  },
  laidBack: (result, { left, top }) => ({
    ...result,
    points: result.points.map((point) => ({ ...point, x: point.x + left, y: point.y + top })),
  }),
  nothing: ({ tensor }) => ({ kind: "points", tensor, points: [] }),
};

const outside = (label: string): Warning => ({
  code: "point_outside",
  message: `The model puts "${label}" outside the part of the image that it looks at, where nothing is marked.`,
});
