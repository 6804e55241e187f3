/** Boxes and points over a panel, and their score tags beside it: nothing but lines lies over the anatomy. */
import { labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { resultKindOf } from "../kinds/kinds.js";
import type { Rectangle, Drawing } from "./drawing.js";
import { type Rgb, labelColours } from "../colour.js";
import type { Finding } from "../receipt/receipt.js";
import { fitText, textWidth, type Style } from "./text.js";

const DARK: Rgb = [11, 13, 16];
const UNNAMED: Rgb = [255, 176, 0];
/** More lines than these to tags would hide the image. */
const MOST_TAGS = 12;
/** Sizes in units. */
const TAG = { height: 16, apart: 2, label: 120, inside: 4 };
/** Radius of the ring round a point, in units: what lies at the point stays seen. */
const RING = 5;

interface Boxed {
  findings: readonly Finding[];
  source: { rows: number; columns: number };
  outputs: readonly ModelOutput[];
  /** That of `tagUnit`. */
  unit: number;
}

interface Tag {
  colour: Rgb;
  text: string;
  width: number;
}

/** Tags of small panels stay small beside what they point at. */
export const tagUnit = (unit: number, panelWidth: number): number =>
  Math.min(unit, Math.max(1, panelWidth / 512));

const styleOf = (unit: number): Style => ({ size: 11 * unit, face: "bold" });

/** Whether boxes and points show a finding. */
export const isDrawn = ({ present, box, point }: Finding): boolean =>
  present && (box !== undefined || point !== undefined);

/** A point is a box without sides. */
function edgesOf({ box, point }: Finding): NonNullable<Finding["box"]> {
  const { x, y } = point ?? { x: NaN, y: NaN };
  return box ?? { x0: x, y0: y, x1: x, y1: y };
}

/** Those that are drawn, from the highest score down. */
const drawn = (findings: readonly Finding[]): Finding[] =>
  findings.filter(isDrawn).sort((a, b) => (b.score ?? 0) - (a.score ?? 0));

/** The tag of each finding; a model of one label needs no name on them. */
function tagger(outputs: readonly ModelOutput[], unit: number): (finding: Finding) => Tag {
  const style = styleOf(unit);
  const colours = labelColours(outputs);
  const named = new Map<string, Rgb>();
  outputs.forEach((output, o) => {
    if (!["boxes", "points"].includes(resultKindOf(output).gives)) return;
    labelsOf(output).forEach((label, i) => {
      const colour = colours[o]?.[i];
      if (colour !== undefined) named.set(label.label, colour);
    });
  });
  return ({ label, score }) => {
    const value = score === undefined ? "" : score.toFixed(2);
    const name = named.size === 1 && value !== "" ? "" : fitText(label, TAG.label * unit, style);
    const text = `${name} ${value}`.trim();
    const width = Math.ceil(textWidth(text, style) + 2 * TAG.inside * unit);
    return { colour: named.get(label) ?? UNNAMED, text, width };
  };
}

/** Width of the widest tag of these findings, in picture pixels; 0 if none is drawn. */
export function tagWidth(
  findings: readonly Finding[],
  outputs: readonly ModelOutput[],
  unit: number,
): number {
  const tagOf = tagger(outputs, unit);
  return drawn(findings).reduce((widest, finding) => Math.max(widest, tagOf(finding).width), 0);
}

/**
 * Draws the boxes of findings that are present, scaled from source pixels to the panel, or rings round their points, and a
 * tag for each in a column beside the panel, with a thin line to its box. Of many boxes, or where the column has no room for
 * all, those with the highest scores have one; every box is drawn.
 * @param column left edge of the tags
 */
export function layBoxes(
  drawing: Drawing,
  { findings, source, outputs, unit }: Boxed,
  panel: Rectangle,
  column: number,
): void {
  const tagOf = tagger(outputs, unit);
  const [sx, sy] = [panel.width / source.columns, panel.height / source.rows];
  const ring = RING * unit;
  const marks = drawn(findings).map((finding) => {
    const { x0, y0, x1, y1 } = edgesOf(finding);
    const around = finding.point === undefined ? 0 : ring;
    const box = {
      x: panel.x + x0 * sx - around,
      y: panel.y + y0 * sy - around,
      width: (x1 - x0) * sx + 2 * around,
      height: (y1 - y0) * sy + 2 * around,
    };
    return { box, radius: Math.max(1, around), tag: tagOf(finding) };
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
  for (const { box, radius } of marks)
    drawing.rectangle(box, { colour: DARK, stroke: 4, opacity: 0.55, radius });
  for (const { box, radius, tag } of marks) drawing.rectangle(box, { colour: tag.colour, stroke: 2, radius });
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
    drawing.rectangle({ x: column, y: top, width: tag.width, height }, { colour: tag.colour, radius: 2 });
    drawing.text(tag.text, column + TAG.inside * unit, top + 12 * unit, { ...styleOf(unit), colour: DARK });
  });
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
