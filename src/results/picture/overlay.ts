/**
 * NAME.MODEL.png: one picture for people. Of one frame: on the left the image alone, on the right with what the model
 * marked. Of several frames: a montage of those that were chosen. Below what the model found and did not find, with
 * the manifest's regulatory text. Nothing in it identifies a patient beyond the image's own pixels. Equal input gives
 * equal bytes.
 */
import type { EngineOutput } from "../../engine/types.js";
import { release } from "../../addon/bytes.js";
import type { ModelOutput } from "../../manifest/manifest.js";
import {
  arranged,
  GUTTER,
  type Arrangement,
  type OverlayInput,
  type OverlaySource,
  type Panel,
} from "./arrangement.js";
import { heatRange, layHeat, layMasks, type Range } from "./blend.js";
import { layBoxes } from "./boxes.js";
import { Drawing, layDrawing } from "./drawing.js";
import { scaleBar, type Edges } from "./layout.js";
import { legendOf } from "./legend.js";
import { AMBER, drawFooter, drawHeader, drawLegend, drawWarnings, INK, QUIET, type Metrics } from "./page.js";
import { labelColours } from "./colour.js";
import { blank, paste, pngOf, type Picture, resized } from "./pixels.js";
import { fitText } from "./text-outline.js";

const BACKGROUND = [16, 19, 24] as const;
/** Draws the picture; PNG, 8 bits, RGB. */
export async function renderOverlay(input: OverlayInput): Promise<Uint8Array> {
  const { model, source } = input;
  const sheet = arranged(input);
  const heat = heatRange(
    input.shots.flatMap(({ results }) => results.flatMap((r) => (r.kind === "heatmap" ? [r.values] : []))),
  );
  const drawing = new Drawing();
  drawHeader(drawing, model, sheet.header, sheet);
  for (const panel of sheet.panels) drawPanel(drawing, panel, input, sheet);
  drawScale(drawing, source, sheet);
  const scope = { frames: source.frames, called: source.called, heat };
  const legend = legendOf(model.outputs, input.findings, input.measurements, scope);
  let y = drawLegend(drawing, legend, sheet, sheet.below);
  y = drawWarnings(drawing, input.warnings, sheet, y);
  const height = drawFooter(drawing, model, sheet, y);
  const canvas = blank(sheet.width, height, BACKGROUND);
  for (const { shot, marked, x, y: top } of sheet.panels) {
    const plain = resized(shot.picture, sheet.panel.width, sheet.panel.height);
    if (!marked) {
      paste(canvas, plain, x, top);
      continue;
    }
    const panel = { ...plain, rgb: new Uint8Array(plain.rgb) };
    layResults(panel, model, shot.results, heat);
    paste(canvas, panel, x, top);
    release(panel.rgb);
  }
  await layDrawing(canvas, drawing);
  const png = await pngOf(canvas);
  release(canvas.rgb);
  return png;
}

/** What the model marked, under the boxes and their tags, which are drawn as lines. */
function layResults(
  panel: Picture,
  { outputs }: { outputs: readonly ModelOutput[] },
  results: readonly EngineOutput[],
  heat: Range,
): void {
  const colours = labelColours(outputs);
  results.forEach((result, index) => {
    const own = colours[index] ?? [];
    if (result.kind === "heatmap") layHeat(panel, result.values, result.rows, result.columns, heat);
    if (result.kind !== "segmentation") return;
    const { mask, rows, columns } = result;
    const plane = (i: number) => mask.subarray(i * rows * columns, (i + 1) * rows * columns);
    const layers = result.overlapping
      ? own.map((colour, i) => ({ mask: plane(i), colours: [colour] }))
      : [{ mask, colours: own }];
    layMasks(panel, layers, rows, columns);
  });
}

/** Caption, orientation letters and boxes of one panel. */
function drawPanel(drawing: Drawing, at: Panel, input: OverlayInput, sheet: Arrangement): void {
  const { metrics, panel, cell } = sheet;
  const { unit, strong, small } = metrics;
  const base = at.y - (GUTTER + 4) * unit;
  const width = drawing.text(at.title, at.x, base, { ...strong, size: 13 * unit, fill: INK }) + 12 * unit;
  const facts = fitText(at.facts, cell - width, small);
  drawing.text(facts, at.x + width, base, { ...small, fill: QUIET });
  drawEdges(drawing, at.shot.edges, at, panel, metrics, input.shots.length === 1);
  if (at.marked)
    layBoxes(
      drawing,
      { findings: at.shot.findings, source: input.source, model: input.model, unit },
      { x: at.x, y: at.y, ...panel },
    );
}

/** Letters beside the panel, never on its pixels. A montage has those at the left and above only: beside a neighbour's they would be misread. */
function drawEdges(
  drawing: Drawing,
  edges: Edges | undefined,
  at: Panel,
  panel: { width: number; height: number },
  { unit, letter }: Metrics,
  alone: boolean,
): void {
  if (edges === undefined) return;
  const style = { ...letter, fill: INK };
  const [middleX, middleY] = [at.x + panel.width / 2, at.y + panel.height / 2 + 5 * unit];
  drawing.text(edges.left, at.x - 6 * unit, middleY, { ...style, align: "right" });
  drawing.text(edges.top, middleX, at.y - 5 * unit, { ...style, align: "centre" });
  if (!alone) return;
  drawing.text(edges.right, at.x + panel.width + 6 * unit, middleY, style);
  drawing.text(edges.bottom, middleX, at.y + panel.height + 17 * unit, { ...style, align: "centre" });
}

function drawScale(drawing: Drawing, { spacing, columns }: OverlaySource, sheet: Arrangement): void {
  const { panel, metrics, scale } = sheet;
  const { unit, small } = metrics;
  const room = Math.max(panel.width, Math.min(panel.height, sheet.cell));
  const common = typeof spacing === "string" ? undefined : spacing;
  const bar = scaleBar(common, columns, panel.width, room);
  const note = scaleNote(spacing);
  const [thick, tall] = [Math.round(2 * unit), Math.round(10 * unit)];
  let { x: pen } = scale;
  const base = scale.y + 9 * unit;
  if (bar !== undefined) {
    const { x, y } = scale;
    drawing.rectangle({ x, y: y + (tall - thick) / 2, width: bar.length, height: thick }, { fill: INK });
    for (const end of [x, x + bar.length - thick])
      drawing.rectangle({ x: end, y, width: thick, height: tall }, { fill: INK });
    pen += bar.length + 10 * unit;
    pen += drawing.text(bar.text, pen, base, { ...small, fill: INK }) + 10 * unit;
  }
  const rest = sheet.width - metrics.margin - pen;
  if (note !== "") drawing.text(fitText(note, rest, small), pen, base, { ...small, fill: AMBER });
}

function scaleNote(spacing: OverlaySource["spacing"]): string {
  if (spacing === "differs") return "the pixels of these images differ in size: no common scale";
  if (spacing === "by region") return "regions of this image have scales of their own: no common scale";
  if (spacing === undefined) return "no patient spacing: sizes are unknown";
  if (spacing.patient) return "";
  return spacing.source === "ImagerPixelSpacing"
    ? "at the detector, not in the patient (ImagerPixelSpacing)"
    : `not known to be in the patient (${spacing.source})`;
}
