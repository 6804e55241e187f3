/**
 * Boxes, points and lines over a panel, and their tags beside it: nothing but lines lies over the
 * anatomy.
 */
import { labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { resultKindOf } from "../kinds/kinds.js";
import type { Rectangle, Drawing } from "./drawing.js";
import { type Rgb, labelColours } from "../colour.js";
import type { SourcePoint } from "../kinds/kind.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { rangeText } from "./legend.js";
import { fitText, textWidth, type Style } from "./text.js";

const DARK: Rgb = [11, 13, 16];
const UNNAMED: Rgb = [255, 176, 0];
/** More lines than these to tags would hide the image. */
const MOST_TAGS = 12;
/** Sizes in units. */
const TAG = { height: 16, apart: 2, label: 120, inside: 4 };
/** Radius of the ring round a point, in units: what lies at the point stays seen. */
const RING = 5;
/** Radius of the arc of an angle, in units, and of how many lines it is made. */
const ARC = { radius: 22, lines: 12 };

interface DrawnResults {
  findings: readonly Finding[];
  measurements?: readonly Measurement[] | undefined;
}

interface Boxed extends DrawnResults {
  source: { rows: number; columns: number };
  outputs: readonly ModelOutput[];
  /** That of `tagUnit`. */
  unit: number;
}

/** Tags of small panels stay small beside what they point at. */
export const tagUnit = (unit: number, panelWidth: number): number =>
  Math.min(unit, Math.max(1, panelWidth / 512));

const styleOf = (unit: number): Style => ({ size: 11 * unit, face: "bold" });

/** Whether boxes and points show a finding. */
export const isDrawn = ({ present, box, point }: Finding): boolean =>
  present && (box !== undefined || point !== undefined);

/** What is drawn, in pixels of the source: lines, or without them a box or a point. */
interface DrawnMark {
  label: string;
  value: string;
  isFinding: boolean;
  lines: readonly (readonly SourcePoint[])[];
  box: NonNullable<Finding["box"]>;
}

const boxAt = ({ x, y }: SourcePoint): DrawnMark["box"] => ({ x0: x, y0: y, x1: x, y1: y });
/** The line to a tag begins where the others end. */
const rightmost = (points: readonly SourcePoint[]): SourcePoint =>
  points.reduce((best, point) => (point.x > best.x ? point : best));

/** Measurements, then what was found, from the highest score down. */
function drawn({ findings, measurements = [] }: DrawnResults): DrawnMark[] {
  const measured = measurements.flatMap((one): DrawnMark[] => {
    const { name: label, lines = [] } = one;
    if (lines.length === 0) return [];
    const box = boxAt(rightmost(lines.flat()));
    return [{ label, value: rangeText([one]), isFinding: false, lines, box }];
  });
  const found = findings.filter(isDrawn).sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
  const marks = found.map(
    ({ label, score, box, corners = [], point = { x: NaN, y: NaN } }): DrawnMark => ({
      label,
      value: score === undefined ? "" : score.toFixed(2),
      isFinding: true,
      lines: corners.length === 0 ? [] : [[...corners, ...corners.slice(0, 1)]],
      box: corners.length === 0 ? (box ?? boxAt(point)) : boxAt(rightmost(corners)),
    }),
  );
  return [...measured, ...marks];
}

/** The tag of each mark; findings of a model of one label need no name on them. */
function tagger(
  outputs: readonly ModelOutput[],
  unit: number,
): (mark: DrawnMark) => { colour: Rgb; text: string; width: number } {
  const style = styleOf(unit);
  const colours = labelColours(outputs);
  const named = new Map<string, Rgb>();
  const measures = new Map<string, Rgb>();
  outputs.forEach((output, o) => {
    if (!["boxes", "points"].includes(resultKindOf(output).gives)) return;
    labelsOf(output).forEach((label, i) => {
      const colour = colours[o]?.[i];
      if (colour !== undefined) named.set(label.label, colour);
    });
    if (output.kind !== "keypoints") return;
    for (const { name, points } of output.measures ?? [])
      measures.set(name, named.get(points[0]) ?? UNNAMED);
  });
  return ({ label, value, isFinding }) => {
    const isPlain = isFinding && named.size === 1 && value !== "";
    const name = isPlain ? "" : fitText(label, TAG.label * unit, style);
    const text = `${name} ${value}`.trim();
    const width = Math.ceil(textWidth(text, style) + 2 * TAG.inside * unit);
    return { colour: (isFinding ? named : measures).get(label) ?? UNNAMED, text, width };
  };
}

/** Width of the widest tag, in picture pixels; 0 if none is drawn. */
export function tagWidth(
  said: DrawnResults,
  outputs: readonly ModelOutput[],
  unit: number,
): number {
  const tagOf = tagger(outputs, unit);
  return drawn(said).reduce((widest, mark) => Math.max(widest, tagOf(mark).width), 0);
}

/**
 * Draws the boxes of findings that are present, scaled from source pixels to the panel, or rings
 * round their points, and the lines of measurements, with a tag for each in a column beside the
 * panel and a thin line to it. Of many, or where the column has no room for all, measurements and
 * those with the highest scores have one; every mark is drawn.
 * @param column left edge of the tags
 */
export function layBoxes(
  drawing: Drawing,
  { source, outputs, unit, ...said }: Boxed,
  panel: Rectangle,
  column: number,
): void {
  const tagOf = tagger(outputs, unit);
  const [sx, sy] = [panel.width / source.columns, panel.height / source.rows];
  const ring = RING * unit;
  const onPanel = ({ x, y }: SourcePoint): SourcePoint => ({
    x: panel.x + x * sx,
    y: panel.y + y * sy,
  });
  const marks = drawn(said).map((mark) => {
    const { x0, y0, x1, y1 } = mark.box;
    const lines = mark.lines.map((line) => line.map(onPanel));
    const around = lines.length === 0 && x0 === x1 && y0 === y1 ? ring : 0;
    const from = onPanel({ x: x0, y: y0 });
    const box = {
      x: from.x - around,
      y: from.y - around,
      width: (x1 - x0) * sx + 2 * around,
      height: (y1 - y0) * sy + 2 * around,
    };
    const arcs = mark.isFinding ? [] : lines.flatMap((line) => arcOf(line, unit));
    return { box, lines: [...lines, ...arcs], radius: Math.max(1, around), tag: tagOf(mark) };
  });
  const height = Math.round(TAG.height * unit);
  const step = height + Math.round(TAG.apart * unit);
  const most = Math.min(MOST_TAGS, Math.max(1, Math.floor((panel.height + step - height) / step)));
  const tagged = marks.slice(0, most).sort((a, b) => middle(a.box) - middle(b.box));
  const tops = spread(
    tagged.map(({ box }) => middle(box) - height / 2),
    { from: panel.y, to: panel.y + panel.height - height, step },
  );
  drawing.clip(panel);
  for (const [width, opacity] of [
    [4, 0.55],
    [2, 1],
  ] as const)
    for (const { box, lines, radius, tag } of marks) {
      const style = { colour: opacity < 1 ? DARK : tag.colour, opacity };
      if (lines.length === 0) drawing.rectangle(box, { ...style, stroke: width, radius });
      for (const line of lines)
        line.reduce((from, to) => {
          drawing.line(from.x, from.y, to.x, to.y, width, style);
          return to;
        });
    }
  drawing.unclip();
  tagged.forEach(({ box, tag }, i) => {
    const top = tops[i] ?? panel.y;
    // The line begins where it is level, if the box is as high
    const y = Math.min(
      Math.max(top + height / 2, box.y + 1, panel.y),
      box.y + box.height - 1,
      panel.y + panel.height,
    );
    const edge = panel.x + panel.width;
    const style = { colour: tag.colour, opacity: 0.7 };
    drawing.line(Math.min(box.x + box.width + 1, edge), y, edge, y, Math.max(1, unit / 1.5), style);
    drawing.line(edge, y, column, top + height / 2, Math.max(1, unit / 1.5), style);
    drawing.rectangle(
      { x: column, y: top, width: tag.width, height },
      { colour: tag.colour, radius: 2 },
    );
    drawing.text(tag.text, column + TAG.inside * unit, top + 12 * unit, {
      ...styleOf(unit),
      colour: DARK,
    });
  });
}

/** The arc of an angle whose corner is the middle one of three points; none for other lines. */
function arcOf(line: readonly SourcePoint[], unit: number): SourcePoint[][] {
  const [a, at, b, more] = line;
  if (a === undefined || at === undefined || b === undefined || more !== undefined) return [];
  const towards = ({ x, y }: SourcePoint) => Math.atan2(y - at.y, x - at.x);
  const legs = [a, b].map(({ x, y }) => Math.hypot(x - at.x, y - at.y) / 2);
  const radius = Math.min(ARC.radius * unit, ...legs);
  const [from, turn] = [towards(a), towards(b) - towards(a)];
  const shortest = turn - 2 * Math.PI * Math.round(turn / (2 * Math.PI));
  const points = Array.from({ length: ARC.lines + 1 }, (_, i): SourcePoint => {
    const angle = from + (shortest * i) / ARC.lines;
    return { x: at.x + radius * Math.cos(angle), y: at.y + radius * Math.sin(angle) };
  });
  return [points];
}

const middle = ({ y, height }: Rectangle): number => y + height / 2;

/** Places at least `step` apart, in their order, each as near as can be to where it wants to be. */
function spread(
  wanted: readonly number[],
  { from, to, step }: { from: number; to: number; step: number },
): number[] {
  const places: number[] = [];
  for (const want of wanted) places.push(Math.max(want, from, (places.at(-1) ?? -Infinity) + step));
  let last = to;
  for (let i = places.length - 1; i >= 0; i--, last -= step) {
    const place = places[i] ?? last;
    if (place <= last) break;
    places[i] = Math.max(last, from);
  }
  return places.map((place) => Math.round(place));
}
