/**
 * NAME.MODEL.png: one picture for people. Of one frame: on the left the image alone, on the right with what the model
 * marked. Of several frames: a montage of those that were chosen. Below what the model found and did not find, with
 * the manifest's regulatory text. Nothing in it identifies a patient beyond the image's own pixels. Equal input gives
 * equal bytes.
 */
import sharp from "sharp";
import type { EngineOutput } from "../../engine/types.js";
import { release } from "../../addon/bytes.js";
import type { Spacing, Warning } from "../../images/image.js";
import type { Manifest, ModelOutput } from "../../manifest/manifest.js";
import { layBoxes } from "./boxes.js";
import { Drawing } from "./drawing.js";
import { gridOf, panelSize, scaleBar, type Edges } from "./layout.js";
import { legendOf } from "./legend.js";
import {
  AMBER,
  drawFooter,
  drawHeader,
  drawLegend,
  drawWarnings,
  headerHeight,
  INK,
  metricsOf,
  QUIET,
  type Metrics,
  type Page,
} from "./page.js";
import { labelColours } from "./palette.js";
import type { MarkedPanel } from "./picture-check.js";
import { heatRange, layHeat, layMasks, paste, resized, type Picture, type Range } from "./blend.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { layDrawing } from "./rendering.js";
import { fitText } from "./text-outline.js";

/** One frame, as it is displayed, and what the model said about it. */
export interface Shot {
  /** At any size; best at `renderSize`. */
  picture: Picture;
  /** From 1. */
  frame: number;
  /** Where else to look for it: position, number of the image in its series. */
  place?: string | undefined;
  edges?: Edges | undefined;
  /** The engine's outputs for this frame, in the manifest's order. */
  results: readonly EngineOutput[];
  /** Of this frame; those with boxes are drawn. */
  findings: readonly Finding[];
}

export interface OverlaySource {
  rows: number;
  columns: number;
  /** Height of a pixel divided by its width. */
  pixelAspect: number;
  modality?: string | undefined;
  frames: number;
  /** What the frames are called: those of a series or of a volume are its slices, in order. */
  called?: "frame" | "slice";
  /** How stored values became grey, for example "W 400 L 40". */
  window?: string | undefined;
  /** Of all frames that are shown; "differs" where they have none in common. */
  spacing?: Spacing | "differs" | undefined;
}

export interface OverlayInput {
  /** In their order; at least one. */
  shots: readonly Shot[];
  source: OverlaySource;
  model: Pick<Manifest, "name" | "version" | "manufacturer" | "regulatory" | "outputs">;
  /** Of the whole image. */
  findings: readonly Finding[];
  measurements: readonly Measurement[];
  /** Caveats that belong on the picture. */
  warnings?: readonly Warning[];
  radserveVersion: string;
}

const BACKGROUND = [16, 19, 24] as const;
const NARROWEST_CELL = 400;
/** Panels this much wider than high stand one above the other. */
const WIDE = 1.9;

/** One panel on the picture: a shot, plain or marked, with its caption. */
interface Panel {
  shot: Shot;
  marked: boolean;
  title: string;
  facts: string;
  x: number;
  y: number;
}

/** Places of everything, in pixels of the whole picture. */
interface Plan extends Page {
  panel: { width: number; height: number };
  /** Width that a panel and its captions may take. */
  cell: number;
  panels: Panel[];
  header: string[];
  scale: { x: number; y: number };
  /** Top of what lies below the panels. */
  below: number;
}

/** At which size frames are best rendered for a picture of so many of them. */
export function renderSize(
  count: number,
  { rows, columns, pixelAspect }: Pick<OverlaySource, "rows" | "columns" | "pixelAspect">,
): { width: number; height: number } {
  return panelOf(count, rows, columns, pixelAspect).panel.render;
}

function panelOf(count: number, rows: number, columns: number, pixelAspect: number) {
  if (count > 1) return gridOf(count, rows, columns, pixelAspect);
  return { columns: 2, panel: panelSize(rows, columns, pixelAspect) };
}

function planOf(input: OverlayInput): Plan {
  return input.shots.length > 1 ? montagePlan(input) : pairPlan(input);
}

/** Where the picture shows what the model marked, for the check of what was drawn. */
export function markedPanels(input: OverlayInput): MarkedPanel[] {
  const { panels, panel } = planOf(input);
  const { width, height } = panel;
  return panels
    .filter(({ marked }) => marked)
    .map(({ x, y, shot }) => {
      const plain = resized(shot.picture, width, height).rgb;
      return { x, y, width, height, plain, results: shot.results };
    });
}

/** Draws the picture; PNG, 8 bits, RGB. */
export async function renderOverlay(input: OverlayInput): Promise<Uint8Array> {
  const { model, source } = input;
  const plan = planOf(input);
  const heat = heatRange(
    input.shots.flatMap(({ results }) => results.flatMap((r) => (r.kind === "heatmap" ? [r.values] : []))),
  );
  const drawing = new Drawing();
  drawHeader(drawing, model, plan.header, plan);
  for (const panel of plan.panels) drawPanel(drawing, panel, input, plan);
  drawScale(drawing, source, plan);
  const scope = { frames: source.frames, called: source.called ?? "frame", heat };
  const legend = legendOf(model.outputs, input.findings, input.measurements, scope);
  let y = drawLegend(drawing, legend, plan, plan.below);
  y = drawWarnings(drawing, input.warnings ?? [], plan, y);
  const height = drawFooter(drawing, model, input.radserveVersion, plan, y);
  const canvas = blank(plan.width, height);
  for (const { shot, marked, x, y: top } of plan.panels) {
    const plain = resized(shot.picture, plan.panel.width, plan.panel.height);
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
  const png = await encode(canvas);
  release(canvas.rgb);
  return png;
}

/** A display picture alone, for `inspect --preview`: 8 bits, RGB, as it is given. */
export async function previewPng(width: number, height: number, rgb: Uint8Array): Promise<Uint8Array> {
  return encode({ width, height, rgb });
}

/** Level 4 takes half the time of level 6 for 4 % more bytes. */
function encode({ width, height, rgb }: Picture): Promise<Uint8Array> {
  return sharp(rgb, { raw: { width, height, channels: 3 } })
    .png({ compressionLevel: 4, adaptiveFiltering: false, palette: false })
    .toBuffer();
}

function blank(width: number, height: number): Picture {
  return { width, height, rgb: Buffer.alloc(width * height * 3, Buffer.from(BACKGROUND)) };
}

/** Above and below a panel, and between two of them, in units. */
const CAPTION = 26;
const GUTTER = 22;
const GAP = 56;

/** The image, and beside it what the model marked; the image alone where the model marks nothing. */
function pairPlan({ shots, source, model }: OverlayInput): Plan {
  const { panel } = panelOf(1, source.rows, source.columns, source.pixelAspect);
  const paired = model.outputs.some(marks);
  const stacked = paired && panel.width > WIDE * panel.height;
  const across = paired && !stacked ? 2 : 1;
  const metrics = metricsOf(across * panel.width);
  const [margin, gap] = [metrics.margin, Math.round(GAP * metrics.unit)];
  const [caption, gutter] = [CAPTION, GUTTER].map((size) => Math.round(size * metrics.unit)) as [
    number,
    number,
  ];
  const narrowest =
    Math.round(NARROWEST_CELL * metrics.unit) * (across === 2 ? 1 : 2) + (across === 2 ? 0 : gap);
  const cell = Math.max(panel.width, narrowest);
  const left = { x: margin, y: headerHeight(metrics, 0) + caption + gutter };
  const right = stacked
    ? { x: left.x, y: left.y + panel.height + 2 * gutter + caption }
    : { x: left.x + cell + gap, y: left.y };
  const [shot] = shots;
  if (shot === undefined) throw new Error("A picture is of a frame");
  const last = stacked ? right : left;
  const scale = { x: left.x, y: last.y + panel.height + gutter };
  const called = source.called ?? "frame";
  const place = source.frames > 1 ? `${called} ${shot.frame} of ${source.frames}` : undefined;
  const facts = joined([source.modality, sizeText(source), place, shot.place, source.window]);
  return {
    width: 2 * margin + across * cell + (across - 1) * gap,
    metrics,
    panel,
    cell,
    panels: [
      { shot, marked: false, title: "Image", facts, ...left },
      ...(paired ? [{ shot, marked: true, title: "Overlay", facts: "", ...right }] : []),
    ],
    header: [],
    scale,
    below: scale.y + Math.round(30 * metrics.unit),
  };
}

/** Frames with what the model marked, in their order, as large as fits a screen. */
function montagePlan({ shots, source }: OverlayInput): Plan {
  const { panel, columns } = gridOf(shots.length, source.rows, source.columns, source.pixelAspect);
  const metrics = metricsOf(columns * panel.width);
  const size = (units: number): number => Math.round(units * metrics.unit);
  const { margin } = metrics;
  const gap = size(GUTTER + 8);
  const above = size(CAPTION + GUTTER - 4);
  const cell = Math.max(panel.width, size(NARROWEST_CELL / 2));
  // The header, the legend and the captions want their width, however narrow the panels are
  const content = Math.max(columns * cell + (columns - 1) * gap, size(2 * NARROWEST_CELL));
  const top = headerHeight(metrics, 1);
  const panels = shots.map((shot, i) => ({
    shot,
    marked: true,
    title: `${source.called ?? "frame"} ${shot.frame}`,
    facts: shot.place ?? "",
    x: margin + (i % columns) * (cell + gap),
    y: top + above + Math.floor(i / columns) * (panel.height + above),
  }));
  const bottom = top + Math.ceil(shots.length / columns) * (panel.height + above);
  const scale = { x: margin, y: bottom + size(12) };
  const called = `${source.frames} ${source.called ?? "frame"}s`;
  const all = shots.length === source.frames;
  const chosen = all ? `all ${called}` : `${shots.length} of ${called}; the receipt has all`;
  return {
    width: content + 2 * margin,
    metrics,
    panel,
    cell,
    panels,
    header: [joined([source.modality, sizeText(source), source.window, chosen])],
    scale,
    below: scale.y + size(30),
  };
}

function marks({ kind }: ModelOutput): boolean {
  return kind !== "classification" && kind !== "regression";
}

const joined = (facts: readonly (string | undefined)[]): string =>
  facts.filter((fact) => fact !== undefined && fact !== "").join("  ·  ");

const sizeText = ({ rows, columns }: OverlaySource): string => `${columns} × ${rows} px`;

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
function drawPanel(drawing: Drawing, at: Panel, input: OverlayInput, plan: Plan): void {
  const { metrics, panel, cell } = plan;
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

/** Beside the panel, never on its pixels. In a montage at the left and above only: next to the neighbour's they would be misread. */
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

function drawScale(drawing: Drawing, { spacing, columns }: OverlaySource, plan: Plan): void {
  const { panel, metrics, scale } = plan;
  const { unit, small } = metrics;
  const room = Math.max(panel.width, Math.min(panel.height, plan.cell));
  const common = spacing === "differs" ? undefined : spacing;
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
  const rest = plan.width - metrics.margin - pen;
  if (note !== "") drawing.text(fitText(note, rest, small), pen, base, { ...small, fill: AMBER });
}

function scaleNote(spacing: OverlaySource["spacing"]): string {
  if (spacing === "differs") return "the pixels of these images differ in size: no common scale";
  if (spacing === undefined) return "no patient spacing: sizes are unknown";
  if (spacing.patient) return "";
  return spacing.source === "ImagerPixelSpacing"
    ? "at the detector, not in the patient (ImagerPixelSpacing)"
    : `not known to be in the patient (${spacing.source})`;
}
