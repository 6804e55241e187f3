/**
 * The picture for people. Of one frame: on the left the image alone, on the right with what the
 * model marked, or the image alone if nothing is marked. Of several frames: a montage of those that
 * were chosen. Below what the model found and did not find, with the manifest's regulatory text.
 * Nothing in it identifies a patient beyond the image's own pixels. Equal input gives equal bytes.
 */
import { composePage, type PanelLayers, type Picture } from "../../addon/picture.js";
import type { EngineOutput } from "../../engine/types.js";
import {
  arranged,
  BESIDE,
  GUTTER,
  type Arrangement,
  type OverlayInput,
  type OverlaySource,
  type Panel,
  type PictureScale,
} from "./arrangement.js";
import { layBoxes, tagUnit } from "./boxes.js";
import type { PanelMarks } from "../kinds/kind.js";
import { kindOfGiven } from "../kinds/kinds.js";
import { heatRange, labelColours, type ColourRange, type Rgb } from "../colour.js";
import { Drawing } from "./drawing.js";
import { scaleBar } from "./layout.js";
import { legendOf } from "./legend.js";
import {
  AMBER,
  drawFooter,
  drawHeader,
  drawLegend,
  drawWarnings,
  INK,
  QUIET,
  type PageMetrics,
} from "./page.js";
import { atlas, fitText } from "./text.js";

const BACKGROUND = Uint8Array.of(16, 19, 24);

export interface Overlay {
  picture: Picture;
  /**
   * Those whose marks are masks alone, for the check of what was drawn; boxes and heat maps cover
   * other pixels.
   */
  masked: PanelLayers[];
}

/** Composes the picture. */
export function renderOverlay(input: OverlayInput): Overlay {
  const { model, source, opacity } = input;
  atlas.trim();
  const sheet = arranged(input);
  const heat = heatRange(
    input.shots.flatMap(({ results }) =>
      results.flatMap((r) => (r.kind === "heatmap" ? [r.values] : [])),
    ),
  );
  const drawing = new Drawing();
  drawHeader(drawing, model, sheet.header, sheet);
  for (const panel of sheet.panels) drawPanel(drawing, panel, input, sheet);
  for (const scale of sheet.scales) drawScale(drawing, scale, sheet);
  const scope = { frames: source.frames, called: source.called, heat };
  const legend = legendOf(model.outputs, input.findings, input.measurements, scope);
  let y = drawLegend(drawing, legend, sheet, sheet.below, opacity);
  y = drawWarnings(drawing, input.warnings, sheet, y);
  const height = drawFooter(drawing, model, sheet, y);
  const colours = labelColours(model.outputs);
  const marked = sheet.panels.map(({ shot, x, y: top, width, height: high }): PanelLayers => ({
    picture: shot.picture,
    x,
    y: top,
    width,
    height: high,
    marks: shot.results.map((result, i) => marksOf(result, colours[i] ?? [], heat)),
  }));
  const panels = marked.map((panel, i) =>
    sheet.panels[i]?.marked === true ? panel : { ...panel, marks: [] },
  );
  const picture = composePage({
    width: sheet.width,
    height,
    background: BACKGROUND,
    panels,
    opacity,
    drawing: drawing.list(),
    glyphs: atlas.bytes,
  });
  // Where nothing is marked, the masks have to be empty
  const none = !sheet.panels.some((panel) => panel.marked);
  const masked = marked.filter((_, i) => {
    const panel = sheet.panels[i];
    return panel !== undefined && (panel.marked || none) && isMaskedAlone(panel.shot.results);
  });
  return { picture, masked };
}

/** Whether the marks are masks, and nothing else lies over them. */
function isMaskedAlone(results: readonly EngineOutput[]): boolean {
  const kinds = results.map(kindOfGiven);
  return (
    kinds.some(({ judgedBy }) => judgedBy === "mask") && !kinds.some(({ drawnOver }) => drawnOver)
  );
}

/** The marks of one output; boxes are part of the drawing. */
const marksOf = (result: EngineOutput, colours: readonly Rgb[], heat: ColourRange): PanelMarks =>
  kindOfGiven(result).marks?.(result, colours, heat) ?? { masks: [], heat: [] };

/** Caption, orientation letters and boxes of one panel. */
function drawPanel(drawing: Drawing, at: Panel, input: OverlayInput, sheet: Arrangement): void {
  const { metrics } = sheet;
  const { unit, strong, small } = metrics;
  const base = at.y - (GUTTER + 4) * unit;
  const width =
    drawing.text(at.title, at.x, base, { ...strong, size: 13 * unit, colour: INK }) + 12 * unit;
  const facts = fitText(at.facts, at.cell - width, small);
  drawing.text(facts, at.x + width, base, { ...small, colour: QUIET });
  if (at.marked) drawBoxes(drawing, at, input, sheet);
  // Over the lines that lead to tags
  drawEdges(drawing, at, metrics);
}

function drawBoxes(drawing: Drawing, at: Panel, input: OverlayInput, sheet: Arrangement): void {
  const { source, model } = input;
  const marks = {
    findings: at.shot.findings,
    measurements: at.shot.measurements,
    source,
    outputs: model.outputs,
    unit: tagUnit(sheet.metrics.unit, at.width),
  };
  layBoxes(drawing, marks, at, at.x + sheet.tags);
}

/**
 * Letters beside the panel, never on its pixels. A montage has those at the left and above only:
 * beside a neighbour's they would be misread.
 */
function drawEdges(drawing: Drawing, at: Panel, { unit, letter }: PageMetrics): void {
  const { edges } = at.shot;
  if (edges === undefined) return;
  const style = { ...letter, colour: INK };
  const [middleX, middleY] = [at.x + at.width / 2, at.y + at.height / 2 + 5 * unit];
  drawing.text(edges.left, at.x - BESIDE * unit, middleY, { ...style, align: "right" });
  drawing.text(edges.top, middleX, at.y - 5 * unit, { ...style, align: "centre" });
  if (!at.alone) return;
  drawing.text(edges.right, at.x + at.width + BESIDE * unit, middleY, style);
  drawing.text(edges.bottom, middleX, at.y + at.height + 17 * unit, { ...style, align: "centre" });
}

function drawScale(drawing: Drawing, scale: PictureScale, sheet: Arrangement): void {
  const { unit, small } = sheet.metrics;
  const { spacing, columns, width, room, x, y } = scale;
  const common = typeof spacing === "string" ? undefined : spacing;
  const bar = scaleBar(common, columns, width, room);
  const note = scaleNote(spacing);
  const [thick, tall] = [Math.round(2 * unit), Math.round(10 * unit)];
  let pen = x;
  const base = y + 9 * unit;
  if (bar !== undefined) {
    drawing.rectangle(
      { x, y: y + (tall - thick) / 2, width: bar.length, height: thick },
      { colour: INK },
    );
    for (const end of [x, x + bar.length - thick])
      drawing.rectangle({ x: end, y, width: thick, height: tall }, { colour: INK });
    pen += bar.length + 10 * unit;
    pen += drawing.text(bar.text, pen, base, { ...small, colour: INK }) + 10 * unit;
  }
  const rest = sheet.width - sheet.metrics.margin - pen;
  if (note !== "") drawing.text(fitText(note, rest, small), pen, base, { ...small, colour: AMBER });
}

function scaleNote(spacing: OverlaySource["spacing"]): string {
  if (spacing === "differs") return "the pixels of these images differ in size: no common scale";
  if (spacing === "by region")
    return "regions of this image have scales of their own: no common scale";
  if (spacing === undefined) return "no patient spacing: sizes are unknown";
  if (spacing.patient) return "";
  return spacing.source === "ImagerPixelSpacing"
    ? "at the detector, not in the patient (ImagerPixelSpacing)"
    : `not known to be in the patient (${spacing.source})`;
}
