/**
 * Where everything on the picture goes: panels, captions, scale; one frame as a pair, several as a
 * montage.
 */
import type { EngineOutput } from "../../engine/types.js";
import type { Spacing, Warning } from "../../images/image.js";
import type { Manifest } from "../../manifest/manifest.js";
import { kindOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { kindOfGiven } from "../kinds/kinds.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import type { Picture } from "../../addon/picture.js";
import { isDrawn, tagUnit, tagWidth } from "./boxes.js";
import type { EdgeLabels } from "../findings/edges.js";
import { gridOf, panelSize, SHEET, type PanelSize, type PanelRoom } from "./layout.js";
import { headerHeight, metricsOf, type PageMetrics, type PageSize } from "./page.js";
import { textWidth } from "./text.js";

/** The contents of a panel: a plane, as it is displayed, and the model's result for it. */
export interface PictureView {
  picture: Picture;
  /** Its place in other words: its position, and its number in the series. */
  place?: string | undefined;
  edges?: EdgeLabels | undefined;
  /** The engine's outputs for this plane, in the manifest's order. */
  results: readonly EngineOutput[];
  /** The plane's findings; those with boxes are drawn. */
  findings: readonly Finding[];
  /** Those of the plane; those with lines are drawn. */
  measurements?: readonly Measurement[] | undefined;
}

/** One frame; its picture is of `renderSize`. */
export interface Shot extends PictureView {
  /** Number in the image, from 1. */
  frame: number;
}

/** A plane across the slices of a volume; its picture is of `sectionSizes`. */
export interface SectionView extends PictureView {
  /** coronal, sagittal or axial. */
  name: string;
  size: VoxelGrid;
}

/** Voxels of a plane, and the distances of their centres in millimetres. */
export interface VoxelGrid {
  rows: number;
  columns: number;
  rowSpacing: number;
  columnSpacing: number;
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
  /** The word for the frames: those of a series or of a volume are its slices, in order. */
  called: "frame" | "slice";
  /** How stored values became grey, for example "W 400 L 40". */
  window?: string | undefined;
  /**
   * The spacing of all frames that are shown; "differs" if they do not share one, "by region" if
   * their parts do not.
   */
  spacing?: Spacing | "differs" | "by region" | undefined;
}

export interface OverlayInput {
  /** At least one, in the order of the image's frames. */
  shots: readonly Shot[];
  /** Planes across the slices; none where nothing is marked, or the frames are no volume. */
  sections?: readonly SectionView[];
  /** Why there are none, though something is marked. */
  withoutSections?: string | undefined;
  source: OverlaySource;
  model: Pick<Manifest, "name" | "version" | "manufacturer" | "regulatory" | "outputs">;
  /** Findings of the whole image. */
  findings: readonly Finding[];
  measurements: readonly Measurement[];
  /** Caveats that belong on the picture. */
  warnings: readonly Warning[];
  /** Opacity of the tint of masks, 0 to 1. */
  opacity: number;
}

/** The width that the header and the legend need, however narrow the panels are. */
const NARROWEST_CONTENT = 800;
/** The width that the caption of a panel in a montage needs. */
const NARROWEST_CELL = 200;
/** Panels this much wider than high stand one above the other. */
const WIDE = 1.9;

/** One panel on the picture: a view, plain or marked, with its caption. */
export interface Panel {
  shot: PictureView;
  marked: boolean;
  title: string;
  facts: string;
  x: number;
  y: number;
  width: number;
  height: number;
  /** Width that the panel, its captions and its tags may take. */
  cell: number;
  /** Letters stand at all four sides. */
  alone: boolean;
}

/** A scale bar, and what it is of: so many columns of the source over so many pixels. */
export interface PictureScale {
  x: number;
  y: number;
  spacing: OverlaySource["spacing"];
  columns: number;
  width: number;
  /** Pixels of which the bar may take a third. */
  room: number;
}

/** Positions and sizes, in pixels of the whole picture. */
export interface Arrangement extends PageSize {
  /** Where a panel's tags begin, from its left edge. */
  tags: number;
  panels: Panel[];
  header: string[];
  scales: PictureScale[];
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

/**
 * The size of planes across the slices of a volume: millimetres are as long as on the slices beside
 * which they stand, if all of a plane fits a screen so.
 * @param count of the slices that are shown
 */
export function sectionSizes(
  count: number,
  source: Pick<OverlaySource, "rows" | "columns" | "pixelAspect" | "spacing">,
  grids: readonly VoxelGrid[],
): PanelSize[] {
  const { rows, columns, pixelAspect, spacing } = source;
  if (typeof spacing !== "object") throw new Error("The slices of a volume have one spacing");
  const { panel } = panelOf(count, rows, columns, pixelAspect);
  const extents = grids.map((grid) => ({
    ...grid,
    width: grid.columns * grid.columnSpacing,
    height: grid.rows * grid.rowSpacing,
  }));
  const pixelsPerMm = Math.min(
    panel.width / (columns * spacing.column),
    ...extents.flatMap(({ width, height }) => [SHEET.width / width, SHEET.height / height]),
  );
  return extents.map((extent) => {
    const width = Math.max(1, Math.round(extent.width * pixelsPerMm));
    const height = Math.max(1, Math.round(extent.height * pixelsPerMm));
    const render = {
      width: Math.min(width, extent.columns),
      height: Math.min(height, extent.rows),
    };
    return { width, height, render };
  });
}

export function arranged(input: OverlayInput): Arrangement {
  const { shots, source, sections = [] } = input;
  const grids = sections.map(({ size }) => size);
  const sizes = grids.length === 0 ? [] : sectionSizes(shots.length, source, grids);
  const slices = shots.length > 1 ? montage(input, sizes) : pair(input, sizes);
  return sizes.length === 0 ? slices.sheet : withSections(input, slices, sizes);
}

/** Room above and below a panel and between two of them, in units. */
const CAPTION = 26;
export const GUTTER = 22;
/** Above a panel of a montage. */
const ABOVE = CAPTION + GUTTER - 4;
const GAP = 56;
/** Between a panel and the letter beside it, and between the letters of two panels. */
export const BESIDE = 6;
const APART = 16;

const sizer =
  ({ unit }: PageMetrics) =>
  (units: number): number =>
    Math.round(units * unit);

/** Room that the letters beside the panels take. */
function letterRoom(
  { shots, sections = [] }: OverlayInput,
  metrics: PageMetrics,
): { left: number; right: number } {
  const size = sizer(metrics);
  const room = (letters: readonly (string | undefined)[]): number => {
    const widest = Math.max(0, ...letters.map((text = "") => textWidth(text, metrics.letter)));
    return widest === 0 ? 0 : Math.ceil(widest) + size(BESIDE);
  };
  return {
    left: room([...shots, ...sections].map(({ edges }) => edges?.left)),
    right: room(shots.map(({ edges }) => edges?.right)),
  };
}

/** Width of the column of tags beside a panel, with the room before it; 0 if there is no tag. */
function tagRoom(
  { shots, model }: OverlayInput,
  panel: { width: number },
  metrics: PageMetrics,
): number {
  const unit = tagUnit(metrics.unit, panel.width);
  const widest = shots.map((shot) => tagWidth(shot, model.outputs, unit));
  const most = Math.max(0, ...widest);
  return most === 0 ? 0 : most + sizer(metrics)(BESIDE);
}

/** The slices with what is said of them, and how wide they are without the margins. */
interface Slices {
  sheet: Arrangement;
  content: number;
  /** Planes across them stand at their right, and not below them. */
  beside: boolean;
}

/** The image, and beside it what the model marked; the image alone if nothing is marked. */
function pair(input: OverlayInput, sizes: readonly PanelSize[]): Slices {
  const { shots, source, model } = input;
  const [shot] = shots;
  if (shot === undefined) throw new Error("A picture is of a frame");
  const { panel } = panelOf(1, source.rows, source.columns, source.pixelAspect);
  const { width: panelWidth, height: panelHeight } = panel;
  const marking = model.outputs.some(marks);
  const paired = marking && isMarked(shot);
  const stacked = paired && panelWidth > WIDE * panelHeight;
  const across = paired && !stacked ? 2 : 1;
  const taken = { width: across * panelWidth, height: (stacked ? 2 : 1) * panelHeight };
  const { beside, width } = beyond(taken, sizes);
  const metrics = metricsOf(width);
  const size = sizer(metrics);
  const { margin } = metrics;
  const letters = letterRoom(input, metrics);
  const gap = Math.max(size(GAP), letters.left + letters.right + size(APART));
  const [caption, gutter] = [size(CAPTION), size(GUTTER)];
  const tags = tagRoom(input, panel, metrics);
  const cell = panelWidth + (tags === 0 ? 0 : letters.right + tags);
  const left = { x: margin, y: headerHeight(metrics) + caption + gutter };
  const right = stacked
    ? { x: left.x, y: left.y + panelHeight + 2 * gutter + caption }
    : { x: left.x + panelWidth + gap, y: left.y };
  const scale = { x: left.x, y: (stacked ? right : left).y + panelHeight + gutter };
  const place =
    source.frames > 1 ? `${source.called} ${shot.frame} of ${source.frames}` : undefined;
  const content = (across - 1) * (panelWidth + gap) + cell;
  const nothing = marking && !paired ? NOTHING_MARKED : "";
  const look = { shot, width: panelWidth, height: panelHeight, cell, alone: true };
  const sheet = {
    width: 2 * margin + Math.max(content, size(NARROWEST_CONTENT)),
    metrics,
    tags: panelWidth + letters.right + size(BESIDE),
    panels: [
      { ...look, marked: false, title: "Image", facts: nothing, ...left },
      ...(paired ? [{ ...look, marked: true, title: "Overlay", facts: "", ...right }] : []),
    ],
    header: [
      joined([
        ...factsOf(source),
        place,
        shot.place,
        sizeText(source),
        source.window,
        input.withoutSections,
      ]),
    ],
    scales: [scaleOf(source, panel, cell, scale)],
    below: scale.y + size(30),
  };
  return { sheet, content, beside };
}

/** Frames with what the model marked, in their order, as large as fits a screen. */
function montage(input: OverlayInput, sizes: readonly PanelSize[]): Slices {
  const { shots, source, model } = input;
  const { panel, columns } = gridOf(shots.length, source.rows, source.columns, source.pixelAspect);
  const { width, height } = panel;
  const lines = Math.ceil(shots.length / columns);
  const all = beyond({ width: columns * width, height: lines * height }, sizes);
  const metrics = metricsOf(all.width);
  const size = sizer(metrics);
  const { margin } = metrics;
  const letters = letterRoom(input, metrics);
  const gap = Math.max(size(GUTTER + 8), letters.left + size(APART / 2));
  const above = size(ABOVE);
  const cell = Math.max(width + tagRoom(input, panel, metrics), size(NARROWEST_CELL));
  const content = columns * cell + (columns - 1) * gap;
  const top = headerHeight(metrics);
  const panels = shots.map((shot, i) => ({
    shot,
    width,
    height,
    cell,
    alone: false,
    marked: true,
    title: `${source.called} ${shot.frame}`,
    facts: shot.place ?? "",
    x: margin + (i % columns) * (cell + gap),
    y: top + above + Math.floor(i / columns) * (height + above),
  }));
  const bottom = top + lines * (height + above);
  const scale = { x: margin, y: bottom + size(12) };
  const called = `${source.frames} ${source.called}s`;
  const whole = shots.length === source.frames;
  const chosen = whole ? `all ${called}` : `${shots.length} of ${called}; the receipt has all`;
  const nothing = model.outputs.some(marks) && !shots.some(isMarked) ? NOTHING_MARKED : undefined;
  const sheet = {
    width: Math.max(content, size(NARROWEST_CONTENT)) + 2 * margin,
    metrics,
    tags: width + size(BESIDE),
    panels,
    header: [
      joined([
        ...factsOf(source),
        sizeText(source),
        source.window,
        chosen,
        nothing,
        input.withoutSections,
      ]),
    ],
    scales: [scaleOf(source, panel, cell, scale)],
    below: scale.y + size(30),
  };
  return { sheet, content, beside: all.beside };
}

function scaleOf(
  { spacing, columns }: Pick<OverlaySource, "spacing" | "columns">,
  { width, height }: PanelRoom,
  cell: number,
  place: { x: number; y: number },
): PictureScale {
  return { ...place, spacing, columns, width, room: Math.max(width, Math.min(height, cell)) };
}

/**
 * Whether planes across the slices stand beside these or below them, and how wide all panels are
 * together.
 */
interface Beyond {
  beside: boolean;
  width: number;
}

/** So that a screen has to shrink the picture least. */
function beyond(slices: PanelRoom, sizes: readonly PanelSize[]): Beyond {
  if (sizes.length === 0) return { beside: false, width: slices.width };
  const together = (side: "width" | "height") => sizes.reduce((sum, size) => sum + size[side], 0);
  const most = (side: "width" | "height") => Math.max(...sizes.map((size) => size[side]));
  const shrunk = ({ width, height }: PanelRoom) =>
    Math.max(width / SHEET.width, height / SHEET.height);
  const right = {
    width: slices.width + most("width"),
    height: Math.max(slices.height, together("height")),
  };
  const under = {
    width: Math.max(slices.width, together("width")),
    height: slices.height + most("height"),
  };
  const beside = shrunk(right) < shrunk(under);
  return { beside, width: (beside ? right : under).width };
}

/**
 * The slices' sheet, with the planes across them: in a column at its right, or in a row below it.
 */
function withSections(
  input: OverlayInput,
  { sheet, content, beside }: Slices,
  sizes: readonly PanelSize[],
): Arrangement {
  const { metrics } = sheet;
  const { margin } = metrics;
  const size = sizer(metrics);
  const letters = letterRoom(input, metrics);
  const gap = Math.max(size(GAP), letters.left + letters.right + size(APART));
  const above = size(ABOVE);
  const narrowest = size(NARROWEST_CELL);
  const top = beside ? headerHeight(metrics) : sheet.below;
  let [x, y] = [beside ? margin + content + gap : margin, top + above];
  let [right, bottom] = [x, y];
  const first = { x, y };
  const panels = (input.sections ?? []).map((shot, i) => {
    const { width, height } = sizes[i] ?? { width: 0, height: 0 };
    const cell = Math.max(width, narrowest);
    const panel = {
      shot,
      marked: true,
      title: shot.name,
      facts: shot.place ?? "",
      x,
      y,
      width,
      height,
      cell,
    };
    [right, bottom] = [Math.max(right, x + cell), Math.max(bottom, y + height)];
    if (beside) y += height + above;
    else x += cell + gap;
    return { ...panel, alone: false };
  });
  const scales = panels.slice(0, 1).map((panel, i): PictureScale => {
    const { columns = 0, columnSpacing = 0, rowSpacing = 0 } = input.sections?.[i]?.size ?? {};
    const spacing = {
      row: rowSpacing,
      column: columnSpacing,
      source: "PixelSpacing",
      patient: true,
    } as const;
    const place = { x: first.x, y: bottom + size(GUTTER) };
    return scaleOf({ spacing, columns }, panel, panel.cell, place);
  });
  return {
    ...sheet,
    width: Math.max(sheet.width, right + margin),
    panels: [...sheet.panels, ...panels],
    scales: [...sheet.scales, ...scales],
    below: Math.max(sheet.below, bottom + size(GUTTER + 30)),
  };
}

const NOTHING_MARKED = "the model marked nothing";

const marks = (output: ModelOutput): boolean => kindOf(output).placed;

/** Whether there is anything to see of what the model said of a frame. */
function isMarked({ results, findings }: Shot): boolean {
  return results.some((result) => kindOfGiven(result).isMarked?.(result)) || findings.some(isDrawn);
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
