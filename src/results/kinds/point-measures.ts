/** Distances, angles and ratios that a manifest makes of named points. */
import type { Warning } from "../../images/image.js";
import type { Measure } from "../../manifest/outputs/keypoints.js";
import type { Code } from "../../manifest/texts.js";
import type { Measurement } from "../receipt/receipt.js";
import { frameOf, noPatientSpacing, pixelAspect, type FindingScope } from "./finding.js";
import type { SourcePoint } from "./kind.js";
import { MILLIMETER, NO_UNITS, ucum } from "./measurements.js";
import { scaleOfPoints } from "./regions.js";

const PIXELS = ucum("{pixels}", "pixels");
export const DEGREE = ucum("deg", "degree");
const PERCENT = ucum("%", "percent");

/** Pixels whose sides differ by less than this part are square. */
const SQUARE = 1e-3;

/** A vector of the patient's proportions: mm, or widths of a pixel. */
type PlaneVector = SourcePoint;

interface PointScale {
  row: number;
  column: number;
  /** That of distances; undefined where they have none. */
  unit: Code | undefined;
}

/**
 * @param points those that are there, by label
 * @returns a measurement for each measure whose points are there, and a warning for each of the
 * others
 */
export function measurePoints(
  measures: readonly Measure[],
  points: ReadonlyMap<string, SourcePoint>,
  part: FindingScope,
): { measurements: Measurement[]; warnings: Warning[] } {
  const warnings: Warning[] = [];
  const inPixels: string[] = [];
  const measurements = measures.flatMap((measure): Measurement[] => {
    const { name, code } = measure;
    const across = "along" in measure && Array.isArray(measure.along) ? measure.along : [];
    const needed = [...measure.points, ...across];
    const missing = needed.filter((label) => !points.has(label));
    const at = needed.flatMap((label) => points.get(label) ?? []);
    const found =
      missing.length > 0 ? missingText(missing) : measureOf(measure, at, scaleOf(part, at));
    if (typeof found !== "string") {
      if (found.unit === PIXELS) inPixels.push(name);
      return [{ name, ...(code && { code }), ...frameOf(part), ...found }];
    }
    const where = part.frame === undefined ? "" : " on some frames";
    warnings.push({
      code: "not_measured",
      message: `"${name}" is not measured${where}: ${found}.`,
    });
    return [];
  });
  if (inPixels.length > 0)
    warnings.push(noPatientSpacing(part, `in pixels only: ${inPixels.join(", ")}`));
  return { measurements, warnings };
}

const missingText = (labels: readonly string[]): string =>
  `${[...new Set(labels)].map((label) => `"${label}"`).join(", ")} ${labels.length === 1 ? "is" : "are"} not there`;

/**
 * In which proportions points are measured; undefined where parts of an ultrasound image have
 * different ones.
 */
function scaleOf(part: FindingScope, points: readonly SourcePoint[]): PointScale | undefined {
  const { spacing, regions } = part;
  if (regions !== undefined) {
    const scale = scaleOfPoints(points, regions);
    return scale && { ...scale, unit: MILLIMETER };
  }
  if (spacing?.patient === true) return { ...spacing, unit: MILLIMETER };
  const aspect = pixelAspect(part);
  return { row: aspect, column: 1, unit: Math.abs(aspect - 1) < SQUARE ? PIXELS : undefined };
}

/**
 * The number with its unit, and the lines that it is of in pixels of the source; or why there is
 * none.
 */
function measureOf(
  measure: Measure,
  at: readonly SourcePoint[],
  scale: PointScale | undefined,
): Required<Pick<Measurement, "value" | "unit" | "lines">> | string {
  if (scale === undefined)
    return "its points do not lie in regions of the ultrasound image that have one scale";
  const { row, column, unit } = scale;
  // As many as its type has, by the manifest's schema
  const [a, b, c, d] = at as [SourcePoint, SourcePoint, SourcePoint, SourcePoint];
  const from = (start: SourcePoint, end: SourcePoint): PlaneVector => ({
    x: (end.x - start.x) * column,
    y: (end.y - start.y) * row,
  });
  const ahead = (start: SourcePoint, { x, y }: PlaneVector, part: number): SourcePoint => ({
    x: start.x + (part * x) / column,
    y: start.y + (part * y) / row,
  });
  if (measure.type === "angle" || measure.type === "line_angle") {
    const isCorner = measure.type === "angle";
    const [one, other] = isCorner ? [from(b, a), from(b, c)] : [from(a, b), from(c, d)];
    if (length(one) === 0 || length(other) === 0) return "points lie in one place";
    const value = (Math.atan2(Math.abs(cross(one, other)), dot(one, other)) * 180) / Math.PI;
    return {
      value,
      unit: DEGREE,
      lines: isCorner
        ? [[a, b, c]]
        : [
            [a, b],
            [c, d],
          ],
    };
  }
  if (measure.type === "line_distance") {
    const way = from(b, c);
    if (length(way) === 0) return "the points of its line lie in one place";
    if (unit === undefined) return OBLONG;
    const foot = ahead(b, way, dot(from(b, a), way) / length(way) ** 2);
    return {
      value: Math.abs(cross(from(b, a), way)) / length(way),
      unit,
      lines: [
        [a, foot],
        [b, c],
      ],
    };
  }
  const { along } = measure;
  const axis = Array.isArray(along) ? at.slice(-2) : [];
  const way = { rows: { x: 1, y: 0 }, columns: { x: 0, y: 1 } };
  const direction =
    typeof along === "string"
      ? way[along]
      : axis[0] && axis[1]
        ? from(axis[0], axis[1])
        : undefined;
  if (direction !== undefined && length(direction) === 0)
    return "the points of its line lie in one place";
  const measured = (
    start: SourcePoint,
    end: SourcePoint,
  ): { size: number; line: SourcePoint[] } => {
    if (direction === undefined) return { size: length(from(start, end)), line: [start, end] };
    const size = dot(from(start, end), direction) / length(direction);
    return { size, line: [start, ahead(start, direction, size / length(direction))] };
  };
  const first = measured(a, b);
  if (measure.type === "distance")
    return unit === undefined ? OBLONG : { value: Math.abs(first.size), unit, lines: [first.line] };
  const second = measured(c, d);
  if (second.size === 0) return "the points that it is divided by lie in one place";
  return {
    value: (first.size / second.size) * (measure.percent ? 100 : 1),
    unit: measure.percent ? PERCENT : NO_UNITS,
    lines: [first.line, second.line],
  };
}

const OBLONG =
  "its pixels are not square, and the image does not say how large they are in the patient";

const length = ({ x, y }: PlaneVector): number => Math.hypot(x, y);
const dot = (a: PlaneVector, b: PlaneVector): number => a.x * b.x + a.y * b.y;
const cross = (a: PlaneVector, b: PlaneVector): number => a.x * b.y - a.y * b.x;
