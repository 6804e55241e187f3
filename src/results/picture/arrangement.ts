/** Where everything on the picture goes: panels, captions, scale; one frame as a pair, several as a montage. */
import type { EngineOutput } from "../../engine/types.js";
import type { Spacing, Warning } from "../../images/image.js";
import type { Manifest, ModelOutput } from "../../manifest/manifest.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { gridOf, panelSize, type Edges } from "./layout.js";
import { headerHeight, metricsOf, type Page } from "./page.js";
import type { MarkedPanel } from "./picture-check.js";
import { type Picture, resized } from "./pixels.js";

/** One frame, as it is displayed, and what the model said about it. */
export interface Shot {
  /** At any size; best at `renderSize`. */
  picture: Picture;
  /** Number in the image, from 1. */
  frame: number;
  /** What else tells where it is: its position, and its number in the series. */
  place?: string | undefined;
  edges?: Edges | undefined;
  /** The engine's outputs for this frame, in the manifest's order. */
  results: readonly EngineOutput[];
  /** The frame's findings; those with boxes are drawn. */
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
  called: "frame" | "slice";
  /** How stored values became grey, for example "W 400 L 40". */
  window?: string | undefined;
  /** The spacing of all frames that are shown; "differs" if they do not share one, "by region" if their parts do not. */
  spacing?: Spacing | "differs" | "by region" | undefined;
}

export interface OverlayInput {
  /** At least one, in the order of the image's frames. */
  shots: readonly Shot[];
  source: OverlaySource;
  model: Pick<Manifest, "name" | "version" | "manufacturer" | "regulatory" | "outputs">;
  /** Findings of the whole image. */
  findings: readonly Finding[];
  measurements: readonly Measurement[];
  /** Caveats that belong on the picture. */
  warnings: readonly Warning[];
}

const NARROWEST_CELL = 400;
/** Panels this much wider than high stand one above the other. */
const WIDE = 1.9;

/** One panel on the picture: a shot, plain or marked, with its caption. */
export interface Panel {
  shot: Shot;
  marked: boolean;
  title: string;
  facts: string;
  x: number;
  y: number;
}

/** Positions and sizes, in pixels of the whole picture. */
export interface Arrangement extends Page {
  panel: { width: number; height: number };
  /** Width that a panel and its captions may take. */
  cell: number;
  panels: Panel[];
  header: string[];
  scale: { x: number; y: number };
  /** Top of what lies below the panels. */
  below: number;
}

/** The size at which frames are best rendered for a picture of `count` of them. */
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

export function arranged(input: OverlayInput): Arrangement {
  return input.shots.length > 1 ? montage(input) : pair(input);
}

/** The panels that show what the model marked, for the check of what was drawn. */
export function markedPanels(input: OverlayInput): MarkedPanel[] {
  const { panels, panel } = arranged(input);
  const { width, height } = panel;
  return panels
    .filter(({ marked }) => marked)
    .map(({ x, y, shot }) => {
      const plain = resized(shot.picture, width, height).rgb;
      return { x, y, width, height, plain, results: shot.results };
    });
}

/** Room above and below a panel and between two of them, in units. */
const CAPTION = 26;
export const GUTTER = 22;
const GAP = 56;

/** The image, and beside it what the model marked; the image alone if the model marks nothing. */
function pair({ shots, source, model }: OverlayInput): Arrangement {
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
  const place = source.frames > 1 ? `${source.called} ${shot.frame} of ${source.frames}` : undefined;
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
function montage({ shots, source }: OverlayInput): Arrangement {
  const { panel, columns } = gridOf(shots.length, source.rows, source.columns, source.pixelAspect);
  const metrics = metricsOf(columns * panel.width);
  const size = (units: number): number => Math.round(units * metrics.unit);
  const { margin } = metrics;
  const gap = size(GUTTER + 8);
  const above = size(CAPTION + GUTTER - 4);
  const cell = Math.max(panel.width, size(NARROWEST_CELL / 2));
  // The header, the legend and the captions need their width, however narrow the panels are
  const content = Math.max(columns * cell + (columns - 1) * gap, size(2 * NARROWEST_CELL));
  const top = headerHeight(metrics, 1);
  const panels = shots.map((shot, i) => ({
    shot,
    marked: true,
    title: `${source.called} ${shot.frame}`,
    facts: shot.place ?? "",
    x: margin + (i % columns) * (cell + gap),
    y: top + above + Math.floor(i / columns) * (panel.height + above),
  }));
  const bottom = top + Math.ceil(shots.length / columns) * (panel.height + above);
  const scale = { x: margin, y: bottom + size(12) };
  const called = `${source.frames} ${source.called}s`;
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
