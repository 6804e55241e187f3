/** Boxes and their score tags over a panel. */
import { labelsOf, type ModelOutput } from "../../manifest/manifest.js";
import { overlaps, type Box } from "./box.js";
import type { Drawing } from "./drawing.js";
import { type Rgb, css, labelColours } from "./colour.js";
import type { Finding } from "../receipt/receipt.js";
import { fitText, textWidth, type Style } from "./text-outline.js";

const DARK = "#0b0d10";

interface Boxed {
  findings: readonly Finding[];
  source: { rows: number; columns: number };
  model: { outputs: readonly ModelOutput[] };
  /** Picture pixels for one unit of text and lines. */
  unit: number;
}

interface Marked {
  box: Box;
  colour: string;
  text: string;
}

/**
 * Draws the boxes of findings that are present, scaled from source pixels to the panel. Tags are placed from the
 * highest score down, each where it covers no other tag and no box; a tag that finds no room is left out, its box is not.
 */
export function layBoxes(drawing: Drawing, input: Boxed, panel: Box): void {
  // Tags of small panels stay small beside what they point at
  const unit = Math.min(input.unit, Math.max(1, panel.width / 512));
  const tagStyle: Style = { size: 11 * unit, face: "bold" };
  const marks = marksOf({ ...input, unit }, panel, tagStyle);
  if (marks.length === 0) return;
  drawing.clip(panel);
  for (const { box } of marks)
    drawing.rectangle(box, { stroke: DARK, strokeWidth: 4, opacity: 0.55, radius: 1 });
  for (const { box, colour } of marks) drawing.rectangle(box, { stroke: colour, strokeWidth: 2, radius: 1 });
  const taken: Box[] = marks.map(({ box }) => box);
  for (const { box, colour, text } of marks) {
    const size = { width: Math.ceil(textWidth(text, tagStyle) + 8 * unit), height: Math.round(16 * unit) };
    const tag = placeTag(box, size, panel, taken);
    if (tag === undefined) continue;
    taken.push(tag);
    drawing.rectangle(tag, { fill: colour, radius: 2 });
    drawing.text(text, tag.x + 4 * unit, tag.y + 12 * unit, { ...tagStyle, fill: DARK });
  }
  drawing.unclip();
}

function marksOf({ findings, source, model, unit }: Boxed, panel: Box, style: Style): Marked[] {
  const colours = labelColours(model.outputs);
  const named = new Map<string, Rgb>();
  model.outputs.forEach((output, o) => {
    if (output.kind !== "detection" && output.kind !== "probability_map") return;
    labelsOf(output).forEach((label, i) => {
      const colour = colours[o]?.[i];
      if (colour !== undefined) named.set(label.label, colour);
    });
  });
  const [sx, sy] = [panel.width / source.columns, panel.height / source.rows];
  return findings
    .filter((finding) => finding.present && finding.box !== undefined)
    .sort((a, b) => (b.score ?? 0) - (a.score ?? 0))
    .flatMap(({ box, label, score }): Marked[] => {
      if (box === undefined) return [];
      const [x, y] = [panel.x + box.x0 * sx, panel.y + box.y0 * sy];
      const [width, height] = [(box.x1 - box.x0) * sx, (box.y1 - box.y0) * sy];
      const value = score === undefined ? "" : score.toFixed(2);
      const text =
        named.size === 1 && value !== "" ? value : `${fitText(label, 120 * unit, style)} ${value}`.trim();
      return [{ box: { x, y, width, height }, colour: css(named.get(label) ?? [255, 176, 0]), text }];
    });
}

/** Finds room for a tag above, below or beside its box: within the panel, and over no other tag and no box. */
function placeTag(
  box: Box,
  { width, height }: { width: number; height: number },
  panel: Box,
  taken: readonly Box[],
): Box | undefined {
  const right = panel.x + panel.width - width;
  const x = Math.max(panel.x, Math.min(box.x - 1, right));
  const middle = box.y + (box.height - height) / 2;
  const places = [
    { x, y: box.y - height - 2 },
    { x, y: box.y + box.height + 2 },
    { x: box.x + box.width + 3, y: middle },
    { x: box.x - width - 3, y: middle },
  ];
  return places
    .map((place) => ({ ...place, width, height }))
    .find((tag) => isWithin(tag, panel) && !taken.some((other) => overlaps(tag, other)));
}

function isWithin(tag: Box, panel: Box): boolean {
  return (
    tag.x >= panel.x &&
    tag.y >= panel.y &&
    tag.x + tag.width <= panel.x + panel.width &&
    tag.y + tag.height <= panel.y + panel.height
  );
}
