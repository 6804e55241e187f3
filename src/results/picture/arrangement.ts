/** Where everything on the picture goes: panels, captions, scale; one frame as a pair, several as a montage. */
import type { EngineOutput } from "../../engine/types.js";
import type { Spacing, Warning } from "../../images/image.js";
import type { Manifest, ModelOutput } from "../../manifest/manifest.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import type { Picture } from "../../addon/picture.js";
import { tagUnit, tagWidth } from "./boxes.js";
import { gridOf, panelSize, type Edges } from "./layout.js";
import { headerHeight, metricsOf, type Metrics, type PageSize } from "./page.js";
import { textWidth } from "./text.js";

/** One frame, as it is displayed, and what the model said about it. */
export interface Shot {
  /** Of `renderSize`. */
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
  /** YYYY-MM-DD. */
  date?: string | undefined;
  /** Series Number, and Instance Number where it is that of the whole image. */
  series?: string | undefined;
  image?: string | undefined;
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
  /** Of the tint of masks, 0 to 1. */
  opacity: number;
}

/** What the header and the legend need, however narrow the panels are. */
const NARROWEST_CONTENT = 800;
/** What the caption of a panel in a montage needs. */
const NARROWEST_CELL = 200;
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
export interface Arrangement extends PageSize {
  panel: { width: number; height: number };
  /** Width that a panel, its captions and its tags may take. */
  cell: number;
  /** Where a panel's tags begin, from its left edge. */
  tags: number;
  panels: Panel[];
  header: string[];
  scale: { x: number; y: number };
  /** Top of what lies below the panels. */
  below: number;
}

/** The size at which frames are rendered for a picture of `count` of them. */
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

/** Room above and below a panel and between two of them, in units. */
const CAPTION = 26;
export const GUTTER = 22;
const GAP = 56;
/** Between a panel and the letter beside it, and between the letters of two panels. */
export const BESIDE = 6;
const APART = 16;

const sizer =
  ({ unit }: Metrics) =>
  (units: number): number =>
    Math.round(units * unit);

/** Room that the letters beside the panels take. */
function letterRoom(shots: readonly Shot[], metrics: Metrics): { left: number; right: number } {
  const size = sizer(metrics);
  const room = (letters: readonly (string | undefined)[]): number => {
    const widest = Math.max(0, ...letters.map((text = "") => textWidth(text, metrics.letter)));
    return widest === 0 ? 0 : Math.ceil(widest) + size(BESIDE);
  };
  return {
    left: room(shots.map(({ edges }) => edges?.left)),
    right: room(shots.map(({ edges }) => edges?.right)),
  };
}

/** Width of the column of tags beside a panel, with the room before it; 0 if there is no tag. */
function tagRoom({ shots, model }: OverlayInput, panel: { width: number }, metrics: Metrics): number {
  const unit = tagUnit(metrics.unit, panel.width);
  const widest = shots.map(({ findings }) => tagWidth(findings, model.outputs, unit));
  const most = Math.max(0, ...widest);
  return most === 0 ? 0 : most + sizer(metrics)(BESIDE);
}

/** The image, and beside it what the model marked; the image alone if nothing is marked. */
function pair(input: OverlayInput): Arrangement {
  const { shots, source, model } = input;
  const [shot] = shots;
  if (shot === undefined) throw new Error("A picture is of a frame");
  const { panel } = panelOf(1, source.rows, source.columns, source.pixelAspect);
  const marking = model.outputs.some(marks);
  const paired = marking && isMarked(shot);
  const stacked = paired && panel.width > WIDE * panel.height;
  const across = paired && !stacked ? 2 : 1;
  const metrics = metricsOf(across * panel.width);
  const size = sizer(metrics);
  const { margin } = metrics;
  const letters = letterRoom(shots, metrics);
  const gap = Math.max(size(GAP), letters.left + letters.right + size(APART));
  const [caption, gutter] = [size(CAPTION), size(GUTTER)];
  const tags = tagRoom(input, panel, metrics);
  const cell = panel.width + (tags === 0 ? 0 : letters.right + tags);
  const left = { x: margin, y: headerHeight(metrics, 1) + caption + gutter };
  const right = stacked
    ? { x: left.x, y: left.y + panel.height + 2 * gutter + caption }
    : { x: left.x + panel.width + gap, y: left.y };
  const scale = { x: left.x, y: (stacked ? right : left).y + panel.height + gutter };
  const place = source.frames > 1 ? `${source.called} ${shot.frame} of ${source.frames}` : undefined;
  const content = (across - 1) * (panel.width + gap) + cell;
  const nothing = marking && !paired ? NOTHING_MARKED : "";
  return {
    width: 2 * margin + Math.max(content, size(NARROWEST_CONTENT)),
    metrics,
    panel,
    cell,
    tags: panel.width + letters.right + size(BESIDE),
    panels: [
      { shot, marked: false, title: "Image", facts: nothing, ...left },
      ...(paired ? [{ shot, marked: true, title: "Overlay", facts: "", ...right }] : []),
    ],
    header: [joined([...factsOf(source), place, shot.place, sizeText(source), source.window])],
    scale,
    below: scale.y + size(30),
  };
}

/** Frames with what the model marked, in their order, as large as fits a screen. */
function montage(input: OverlayInput): Arrangement {
  const { shots, source, model } = input;
  const { panel, columns } = gridOf(shots.length, source.rows, source.columns, source.pixelAspect);
  const metrics = metricsOf(columns * panel.width);
  const size = sizer(metrics);
  const { margin } = metrics;
  const letters = letterRoom(shots, metrics);
  const gap = Math.max(size(GUTTER + 8), letters.left + size(APART / 2));
  const above = size(CAPTION + GUTTER - 4);
  const cell = Math.max(panel.width + tagRoom(input, panel, metrics), size(NARROWEST_CELL));
  const content = Math.max(columns * cell + (columns - 1) * gap, size(NARROWEST_CONTENT));
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
  const nothing = model.outputs.some(marks) && !shots.some(isMarked) ? NOTHING_MARKED : undefined;
  return {
    width: content + 2 * margin,
    metrics,
    panel,
    cell,
    tags: panel.width + size(BESIDE),
    panels,
    header: [joined([...factsOf(source), sizeText(source), source.window, chosen, nothing])],
    scale,
    below: scale.y + size(30),
  };
}

const NOTHING_MARKED = "the model marked nothing";

function marks({ kind }: ModelOutput): boolean {
  return kind !== "classification" && kind !== "regression";
}

/** Whether there is anything to see of what the model said of a frame. */
function isMarked({ results, findings }: Shot): boolean {
  return (
    results.some(
      (result) =>
        result.kind === "heatmap" ||
        (result.kind === "segmentation" && result.counts.some((pixels) => pixels > 0)),
    ) || findings.some(({ present, box }) => present && box !== undefined)
  );
}

const joined = (facts: readonly (string | undefined)[]): string =>
  facts.filter((fact) => fact !== undefined && fact !== "").join("  ·  ");

/** How a reader finds the image again; nothing of it is the patient's. */
const factsOf = ({ modality, date, series, image }: OverlaySource): (string | undefined)[] => [
  modality,
  date,
  series === undefined ? undefined : `series ${series}`,
  image === undefined ? undefined : `image ${image}`,
];

const sizeText = ({ rows, columns }: OverlaySource): string => `${columns} × ${rows} px`;
