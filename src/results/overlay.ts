/**
 * NAME.MODEL.png: one picture for people. On the left the image alone, on the right with what the model marked, below
 * what it found and did not find, with the manifest's regulatory text. Nothing in it identifies a patient beyond the
 * image's own pixels. Equal input gives equal bytes.
 */
import sharp, { type Sharp } from "sharp";
import type { EngineOutput } from "../engine.js";
import type { Spacing, Warning } from "../image.js";
import type { Manifest } from "../manifest.js";
import { layBoxes } from "./boxes.js";
import { Drawing } from "./draw.js";
import { panelSize, scaleBar, type Edges } from "./layout.js";
import { legendOf, type Legend, type LegendRow } from "./legend.js";
import { css, labelColours } from "./palette.js";
import { layHeat, layMask, paste, resized, type Picture } from "./raster.js";
import type { MarkedPanel } from "./picture-check.js";
import type { Finding, Measurement } from "./receipt.js";
import { fitText, textWidth, wrapText, type Style } from "./text.js";

export interface OverlayInput {
  /** The frame as it is displayed, at any size; best at `panelSize(...).render`. */
  picture: Picture;
  source: {
    rows: number;
    columns: number;
    /** Height of a pixel divided by its width. */
    pixelAspect: number;
    modality?: string | undefined;
    /** From 1. */
    frame: number;
    frames: number;
    /** What the frames are called: those of a series or of a volume are its slices, in order. */
    called?: "frame" | "slice";
    /** How stored values became grey, for example "window 40 / 400". */
    window?: string | undefined;
    spacing?: Spacing | undefined;
    edges?: Edges | undefined;
  };
  model: Pick<Manifest, "name" | "version" | "manufacturer" | "regulatory" | "outputs">;
  /** The engine's outputs for this frame, in the manifest's order. */
  results: readonly EngineOutput[];
  /** Of this frame. */
  findings: readonly Finding[];
  measurements: readonly Measurement[];
  /** Caveats that belong on the picture. */
  warnings?: readonly Warning[];
  radserveVersion: string;
}

const INK = "#eceff4";
const QUIET = "#9aa4b2";
const FAINT = "#5b6573";
const LINE = "#272d36";
const AMBER = "#f0b64a";
const BACKGROUND = [16, 19, 24] as const;

/** Round everything; orientation letters of the outer edges lie in it. */
const MARGIN = 40;
/** Above and below each panel, for orientation letters. */
const GUTTER = 22;
/** Between the panels, with the letters of both. */
const GAP = 56;
const CAPTION = 26;
const NARROWEST_CELL = 400;
const WIDEST_COLUMN = 560;
const COLUMN_GAP = 48;
const ROW = 30;
const GAUGE = 64;
const MOST_ROWS = 24;
const MOST_WARNINGS = 4;

const TITLE: Style = { size: 22, face: "bold" };
const BODY: Style = { size: 14, face: "regular" };
const STRONG: Style = { size: 14, face: "bold" };
const SMALL: Style = { size: 12, face: "regular" };
const LETTER: Style = { size: 12, face: "bold" };

/** Places of everything, in pixels of the whole picture. */
interface Plan {
  width: number;
  panel: { width: number; height: number };
  /** Width that a panel and its captions may take. */
  cell: number;
  left: { x: number; y: number };
  right: { x: number; y: number };
  scale: { x: number; y: number };
  /** Top of what lies below the panels. */
  below: number;
}

/** Draws the picture; PNG, 8 bits, RGB. */
export async function renderOverlay(input: OverlayInput): Promise<Uint8Array> {
  const plan = planOf(input);
  const drawing = new Drawing();
  drawHeader(drawing, input, plan);
  drawFrames(drawing, input, plan);
  let y = drawLegend(drawing, legendOf(input.model.outputs, input.findings, input.measurements), plan);
  y = drawWarnings(drawing, input.warnings ?? [], plan, y);
  const height = drawFooter(drawing, input, plan, y);
  const plain = resized(input.picture, plan.panel.width, plan.panel.height);
  const marked = { ...plain, rgb: Uint8Array.from(plain.rgb) };
  layResults(marked, input);
  const canvas = blank(plan.width, height);
  paste(canvas, plain, plan.left.x, plan.left.y);
  paste(canvas, marked, plan.right.x, plan.right.y);
  const svg = Buffer.from(drawing.svg(plan.width, height));
  return encode(raw(canvas).composite([{ input: svg, left: 0, top: 0 }]));
}

/** A display picture alone, for `inspect --preview`: 8 bits, RGB, as it is given. */
export async function previewPng(width: number, height: number, rgb: Uint8Array): Promise<Uint8Array> {
  return encode(raw({ width, height, rgb }));
}

function raw({ width, height, rgb }: Picture): Sharp {
  return sharp(rgb, { raw: { width, height, channels: 3 } });
}

function encode(image: Sharp): Promise<Uint8Array> {
  return image
    .removeAlpha()
    .png({ compressionLevel: 6, adaptiveFiltering: false, palette: false })
    .toBuffer();
}

function blank(width: number, height: number): Picture {
  const rgb = new Uint8Array(width * height * 3);
  for (let i = 0; i < rgb.length; i++) rgb[i] = BACKGROUND[i % 3] ?? 0;
  return { width, height, rgb };
}

function planOf({ source }: OverlayInput): Plan {
  const panel = panelSize(source.rows, source.columns, source.pixelAspect);
  const stacked = panel.width > 1.9 * panel.height;
  const narrowest = stacked ? 2 * NARROWEST_CELL + GAP : NARROWEST_CELL;
  const cell = Math.max(panel.width, narrowest);
  const width = 2 * MARGIN + (stacked ? cell : 2 * cell + GAP);
  const left = { x: MARGIN, y: MARGIN + 64 + CAPTION + GUTTER };
  const right = stacked
    ? { x: left.x, y: left.y + panel.height + 2 * GUTTER + CAPTION }
    : { x: left.x + cell + GAP, y: left.y };
  const scale = { x: left.x, y: right.y + panel.height + GUTTER };
  return { width, panel, cell, left, right, scale, below: scale.y + 30 };
}

/** Where the picture shows what the model marked, for the check of what was drawn. */
export function markedPanels(input: OverlayInput): MarkedPanel[] {
  const { right, panel } = planOf(input);
  const { rgb } = resized(input.picture, panel.width, panel.height);
  return [{ ...right, width: panel.width, height: panel.height, plain: rgb, results: input.results }];
}

/** What the model marked, under the boxes and their tags, which are drawn as lines. */
function layResults(panel: Picture, { model, results }: OverlayInput): void {
  const colours = labelColours(model.outputs);
  results.forEach((result, index) => {
    const own = colours[index] ?? [];
    if (result.kind === "heatmap") layHeat(panel, result.values, result.rows, result.columns);
    if (result.kind !== "segmentation") return;
    const { mask, rows, columns } = result;
    if (!result.overlapping) layMask(panel, mask, rows, columns, own);
    else
      own.forEach((colour, i) => {
        const plane = mask.subarray(i * rows * columns, (i + 1) * rows * columns);
        layMask(panel, plane, rows, columns, [colour]);
      });
  });
}

function drawHeader(drawing: Drawing, { model }: OverlayInput, plan: Plan): void {
  const room = plan.width - 2 * MARGIN;
  drawing.text(fitText(model.name, room, TITLE), MARGIN, MARGIN + 20, { ...TITLE, fill: INK });
  const identity = fitText(`version ${model.version}  ·  ${model.manufacturer}`, room, BODY);
  drawing.text(identity, MARGIN, MARGIN + 44, { ...BODY, fill: QUIET });
}

function drawFrames(drawing: Drawing, input: OverlayInput, plan: Plan): void {
  const { panel, left, right } = plan;
  for (const [at, caption] of [
    [left, "Image"],
    [right, "Overlay"],
  ] as const) {
    drawing.text(caption, at.x, at.y - GUTTER - 6, { ...STRONG, size: 13, fill: INK });
    drawEdges(drawing, input.source.edges, at, panel);
  }
  drawFacts(drawing, input, plan);
  drawScale(drawing, input, plan);
  layBoxes(drawing, input, { ...right, ...panel });
}

/** Modality, size, frame and window: facts of the image that are nobody's identity. */
function drawFacts(drawing: Drawing, { source }: OverlayInput, { left, cell }: Plan): void {
  const facts = [
    source.modality,
    `${source.columns} × ${source.rows} px`,
    source.frames > 1 ? `${source.called ?? "frame"} ${source.frame} of ${source.frames}` : undefined,
    source.window,
  ].filter((fact) => fact !== undefined && fact !== "");
  const x = left.x + textWidth("Image", { ...STRONG, size: 13 }) + 12;
  const room = cell - (x - left.x);
  drawing.text(fitText(facts.join("  ·  "), room, SMALL), x, left.y - GUTTER - 6, { ...SMALL, fill: QUIET });
}

function drawEdges(
  drawing: Drawing,
  edges: Edges | undefined,
  at: { x: number; y: number },
  panel: { width: number; height: number },
): void {
  if (edges === undefined) return;
  const style = { ...LETTER, fill: QUIET };
  const [middleX, middleY] = [at.x + panel.width / 2, at.y + panel.height / 2 + 4];
  drawing.text(edges.left, at.x - 5, middleY, { ...style, align: "right" });
  drawing.text(edges.right, at.x + panel.width + 5, middleY, style);
  drawing.text(edges.top, middleX, at.y - 6, { ...style, align: "centre" });
  drawing.text(edges.bottom, middleX, at.y + panel.height + 16, { ...style, align: "centre" });
}

function drawScale(drawing: Drawing, { source }: OverlayInput, { scale: { x, y }, panel }: Plan): void {
  const bar = scaleBar(source.spacing, source.columns, panel.width);
  const note = scaleNote(source.spacing);
  let pen = x;
  if (bar !== undefined) {
    drawing.rectangle({ x, y: y + 4, width: bar.length, height: 2 }, { fill: INK });
    for (const end of [x, x + bar.length - 2])
      drawing.rectangle({ x: end, y, width: 2, height: 10 }, { fill: INK });
    pen += bar.length + 10;
    pen += drawing.text(bar.text, pen, y + 9, { ...SMALL, fill: INK }) + 10;
  }
  if (note !== "") drawing.text(note, pen, y + 9, { ...SMALL, fill: AMBER });
}

function scaleNote(spacing: Spacing | undefined): string {
  if (spacing === undefined) return "no patient spacing: sizes are unknown";
  if (spacing.patient) return "";
  return spacing.source === "ImagerPixelSpacing"
    ? "at the detector, not in the patient (ImagerPixelSpacing)"
    : `not in the patient (${spacing.source})`;
}

/** Returns the y below it. */
function drawLegend(drawing: Drawing, legend: Legend, plan: Plan): number {
  const room = plan.width - 2 * MARGIN;
  let y = plan.below;
  drawing.rectangle({ x: MARGIN, y, width: room, height: 1 }, { fill: LINE });
  y += 28;
  if (legend.headline !== "") {
    drawing.circle(MARGIN + 5, y - 5, 5, { fill: legend.present ? AMBER : FAINT });
    drawing.text(legend.headline, MARGIN + 20, y, { ...STRONG, size: 15, fill: INK });
    y += 14;
  }
  const columns = Math.max(1, Math.min(3, Math.floor((room + COLUMN_GAP) / (440 + COLUMN_GAP))));
  const shown = legend.rows.length > MOST_ROWS ? legend.rows.slice(0, MOST_ROWS - 1) : legend.rows;
  const lines = Math.ceil(Math.min(legend.rows.length, MOST_ROWS) / columns);
  const width = Math.min(WIDEST_COLUMN, (room - COLUMN_GAP * (columns - 1)) / columns);
  const place = (i: number): Place => ({
    x: MARGIN + Math.floor(i / lines) * (width + COLUMN_GAP),
    y: y + (i % lines) * ROW,
    width,
  });
  const scored = shown.filter((row) => row.gauge !== undefined);
  const valueWidth = Math.max(0, ...scored.map((row) => textWidth(row.value, SMALL)));
  shown.forEach((row, i) => drawRow(drawing, row, place(i), valueWidth));
  if (shown.length < legend.rows.length) {
    const more = place(shown.length);
    const text = `+ ${legend.rows.length - shown.length} more, listed in the receipt (.json) beside this picture`;
    drawing.text(fitText(text, width, BODY), more.x, more.y + 20, { ...BODY, fill: QUIET });
  }
  return y + lines * ROW;
}

interface Place {
  x: number;
  y: number;
  width: number;
}

/**
 * Swatch, label, and at the right the value; what is not present is grey.
 * @param gaugedWidth of the widest value that has a gauge, so that gauges stand in one line; 0 where none has
 */
function drawRow(drawing: Drawing, row: LegendRow, { x, y, width }: Place, gaugedWidth: number): void {
  const middle = y + 15;
  const fill = row.present ? INK : QUIET;
  if (row.colour !== undefined)
    drawing.rectangle(
      { x, y: middle - 6, width: 12, height: 12 },
      { fill: css(row.colour), radius: 3, opacity: row.present ? 1 : 0.35 },
    );
  else if (row.scored)
    drawing.circle(x + 6, middle, 4, row.present ? { fill: AMBER } : { stroke: FAINT, strokeWidth: 1.5 });
  const value = fitText(row.value, width * 0.7, SMALL);
  drawing.text(value, x + width, middle + 5, { ...SMALL, fill, align: "right" });
  const style = row.present ? STRONG : BODY;
  let right = x + width - 14 - textWidth(value, SMALL);
  const gauge = x + width - gaugedWidth - 14 - GAUGE;
  // The label goes before the bar, which only repeats the numbers.
  if (row.gauge !== undefined && textWidth(row.label, style) <= gauge - 14 - x - 20) {
    drawGauge(drawing, row.gauge, row.present, gauge, middle);
    right = gauge - 14;
  }
  drawing.text(fitText(row.label, right - x - 20, style), x + 20, middle + 5, { ...style, fill });
}

/** A bar for 0 to 1, with a tick at the threshold. */
function drawGauge(
  drawing: Drawing,
  { score, threshold }: { score: number; threshold: number },
  present: boolean,
  x: number,
  y: number,
): void {
  drawing.rectangle({ x, y: y - 2, width: GAUGE, height: 4 }, { fill: LINE, radius: 2 });
  drawing.rectangle(
    { x, y: y - 2, width: Math.max(GAUGE * score, 2), height: 4 },
    { fill: present ? AMBER : FAINT, radius: 2 },
  );
  drawing.rectangle({ x: x + GAUGE * threshold - 0.75, y: y - 6, width: 1.5, height: 12 }, { fill: QUIET });
}

function drawWarnings(drawing: Drawing, warnings: readonly Warning[], plan: Plan, top: number): number {
  const room = plan.width - 2 * MARGIN;
  const shown = warnings.slice(0, MOST_WARNINGS).map((w) => w.message);
  if (warnings.length > MOST_WARNINGS)
    shown.push(`+ ${warnings.length - MOST_WARNINGS} more caveats, listed in the receipt`);
  let y = top + (shown.length > 0 ? 16 : 0);
  for (const line of shown.flatMap((message) => wrapText(message, room - 20, SMALL))) {
    drawing.text(line, MARGIN + 20, y + 8, { ...SMALL, fill: AMBER });
    y += 18;
  }
  return y;
}

/** The regulatory text, whole, however long. Returns the height of the picture. */
function drawFooter(
  drawing: Drawing,
  { model, radserveVersion }: OverlayInput,
  plan: Plan,
  top: number,
): number {
  const room = plan.width - 2 * MARGIN;
  let y = top + 16;
  drawing.rectangle({ x: MARGIN, y, width: room, height: 1 }, { fill: LINE });
  y += 26;
  const mark = `Radserve ${radserveVersion}`;
  drawing.text(mark, plan.width - MARGIN, y, { ...SMALL, fill: FAINT, align: "right" });
  const lines = wrapText(model.regulatory, room - textWidth(mark, SMALL) - 24, STRONG);
  for (const line of lines) {
    drawing.text(line, MARGIN, y, { ...STRONG, size: 13, fill: AMBER });
    y += 19;
  }
  return y + MARGIN - 19;
}
