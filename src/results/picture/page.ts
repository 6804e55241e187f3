/**
 * Draws what stands round the panels: the model, the legend, caveats, and the manifest's regulatory
 * text.
 */
import { VERSION } from "../../base/version.js";
import type { Warning } from "../../images/image.js";
import type { Manifest } from "../../manifest/manifest.js";
import type { Drawing } from "./drawing.js";
import type { LegendRow } from "../kinds/legend-row.js";
import type { Legend } from "./legend.js";
import { heatColour, tinted, type ColourRange, type Rgb } from "../colour.js";
import { fitText, textWidth, wrapText, type Style } from "./text.js";

export const INK: Rgb = [236, 239, 244];
export const QUIET: Rgb = [169, 178, 191];
export const AMBER: Rgb = [240, 182, 74];
const FAINT: Rgb = [91, 101, 115];
const LINE: Rgb = [39, 45, 54];

const ROW = 30;
const COLUMN_GAP = 48;
const NARROWEST_COLUMN = 440;
const WIDEST_COLUMN = 620;
const GAUGE = 64;
/** Room of a swatch, and of the dot of a row without a colour. */
const SWATCH = 30;
const DOT = 12;
const RAMP = 140;
const MOST_ROWS = 24;
const MOST_WARNINGS = 4;

/**
 * Sizes of text and of the room round it: a wide picture is looked at from further away, and its
 * text is larger.
 */
export interface PageMetrics {
  /** Picture pixels for one unit of the sizes in this file. */
  unit: number;
  margin: number;
  title: Style;
  body: Style;
  strong: Style;
  small: Style;
  letter: Style;
}

/** @param content pixels across of everything that is shown */
export function metricsOf(content: number): PageMetrics {
  const unit = Math.min(Math.max(content / 1024, 1), 1.75);
  const bold = (size: number): Style => ({ size: size * unit, face: "bold" });
  const regular = (size: number): Style => ({ size: size * unit, face: "regular" });
  return {
    unit,
    margin: Math.round(40 * unit),
    title: bold(22),
    body: regular(14),
    strong: bold(14),
    small: regular(12.5),
    letter: bold(15),
  };
}

/** The facts that all parts of the picture share. */
export interface PageSize {
  width: number;
  metrics: PageMetrics;
}

const roomOf = ({ width, metrics }: PageSize): number => width - 2 * metrics.margin;

type HeaderModel = Pick<Manifest, "name" | "version" | "manufacturer" | "regulatory">;

/** Height of what `drawHeader` draws, from the top of the picture. */
export const headerHeight = ({ unit, margin }: PageMetrics): number =>
  margin + Math.round(82 * unit);

/** @param facts about the image, one line each */
export function drawHeader(
  drawing: Drawing,
  model: HeaderModel,
  facts: readonly string[],
  page: PageSize,
): void {
  const { unit, margin, title, body, small } = page.metrics;
  const room = roomOf(page);
  drawing.text(fitText(model.name, room, title), margin, margin + 20 * unit, {
    ...title,
    colour: INK,
  });
  const identity = fitText(`version ${model.version}  ·  ${model.manufacturer}`, room, body);
  drawing.text(identity, margin, margin + 44 * unit, { ...body, colour: QUIET });
  facts.forEach((fact, i) => {
    drawing.text(fitText(fact, room, small), margin, margin + (68 + 22 * i) * unit, {
      ...small,
      colour: QUIET,
    });
  });
}

/**
 * Returns the y below it.
 * @param opacity of the tint of masks
 */
export function drawLegend(
  drawing: Drawing,
  legend: Legend,
  page: PageSize,
  top: number,
  opacity: number,
): number {
  const { unit, margin, strong, body, small } = page.metrics;
  const room = roomOf(page);
  let y = top;
  drawing.rectangle({ x: margin, y, width: room, height: 1 }, { colour: LINE });
  y += 28 * unit;
  if (legend.headline !== "") {
    const colour = legend.present ? AMBER : FAINT;
    drawing.circle(margin + 5 * unit, y - 5 * unit, 5 * unit, { colour });
    drawing.text(legend.headline, margin + 20 * unit, y, {
      ...strong,
      size: 15 * unit,
      colour: INK,
    });
    y += 14 * unit;
  }
  const gap = COLUMN_GAP * unit;
  const columns = Math.max(
    1,
    Math.min(3, Math.floor((room + gap) / (NARROWEST_COLUMN * unit + gap))),
  );
  const shown = legend.rows.length > MOST_ROWS ? legend.rows.slice(0, MOST_ROWS - 1) : legend.rows;
  const lines = Math.ceil(Math.min(legend.rows.length, MOST_ROWS) / columns);
  const width = Math.min(WIDEST_COLUMN * unit, (room - gap * (columns - 1)) / columns);
  const slot = (i: number): Slot => ({
    x: margin + Math.floor(i / lines) * (width + gap),
    y: y + (i % lines) * ROW * unit,
    width,
  });
  const scored = shown.filter((row) => row.gauge !== undefined);
  const valueWidth = Math.max(0, ...scored.map((row) => textWidth(row.value, small)));
  const swatch = shown.some((row) => row.colour !== undefined) ? SWATCH : DOT;
  const look = { swatch: swatch * unit, opacity, gaugedWidth: valueWidth };
  shown.forEach((row, i) => {
    drawRow(drawing, row, slot(i), page.metrics, look);
  });
  if (shown.length < legend.rows.length) {
    const more = slot(shown.length);
    const text = `+ ${legend.rows.length - shown.length} more, listed in the receipt (.json) beside this picture`;
    drawing.text(fitText(text, width, body), more.x, more.y + 20 * unit, {
      ...body,
      colour: QUIET,
    });
  }
  return y + lines * ROW * unit;
}

interface Slot {
  x: number;
  y: number;
  width: number;
}

/** The facts that the rows of a legend share. */
interface RowLook {
  swatch: number;
  /** Opacity of the tint of masks. */
  opacity: number;
  /**
   * Width of the widest value that has a gauge, so that gauges stand in one line; 0 if none has.
   */
  gaugedWidth: number;
}

/** Swatch, label, and at the right the value; what is not present is grey. */
function drawRow(
  drawing: Drawing,
  row: LegendRow,
  { x, y, width }: Slot,
  { unit, small, strong, body }: PageMetrics,
  { swatch, opacity, gaugedWidth }: RowLook,
): void {
  const middle = y + 15 * unit;
  const base = middle + 5 * unit;
  const colour = row.present ? INK : QUIET;
  const indent = swatch + 8 * unit;
  drawSwatch(drawing, row, x, middle, unit, opacity);
  const style = row.present ? strong : body;
  const end = x + width;
  let right = end;
  if (row.ramp !== undefined) right -= drawRamp(drawing, row.ramp, end, middle, { unit, small });
  // A value may take what the label leaves, and of a long label a part: then both are cut, and
  // neither runs into the other
  const left = width - indent - textWidth(row.label, style) - 14 * unit;
  const value = fitText(row.value, Math.max(left, width * 0.6), small);
  if (value !== "")
    right -= drawing.text(value, end, base, { ...small, colour, align: "right" }) + 14 * unit;
  const gauge = end - gaugedWidth - (14 + GAUGE) * unit;
  // The label goes before the bar, which only repeats the numbers.
  if (row.gauge !== undefined && textWidth(row.label, style) <= gauge - 14 * unit - x - indent) {
    drawGauge(drawing, row.gauge, row.present, gauge, middle, unit);
    right = gauge - 14 * unit;
  }
  drawing.text(fitText(row.label, right - x - indent, style), x + indent, base, {
    ...style,
    colour,
  });
}

/** Dark, middle and light: what lies under a tint changes how it looks. */
const SHADES = [0, 128, 235] as const;

/**
 * The label's colour as it looks on the image: framed by its outline, the tint over dark, middle
 * and light grey.
 */
function drawSwatch(
  drawing: Drawing,
  { colour, hollow, present, scored }: LegendRow,
  x: number,
  middle: number,
  unit: number,
  opacity: number,
): void {
  if (colour !== undefined) {
    const faint = present ? {} : { opacity: 0.4 };
    const box = {
      x,
      y: Math.round(middle - 7 * unit),
      width: SWATCH * unit,
      height: Math.round(14 * unit),
    };
    const shade = box.width / SHADES.length;
    if (!hollow)
      SHADES.forEach((grey, i) => {
        const part = { ...box, x: x + i * shade, width: shade };
        drawing.rectangle(part, { colour: tinted(grey, colour, opacity), ...faint });
      });
    const inside = {
      x: x + unit,
      y: box.y + unit,
      width: box.width - 2 * unit,
      height: box.height - 2 * unit,
    };
    drawing.rectangle(inside, { colour, stroke: 2 * unit, ...faint });
  } else if (scored) {
    const style = present ? { colour: AMBER } : { colour: QUIET, stroke: 1.5 * unit };
    drawing.circle(x + 6 * unit, middle, 4 * unit, style);
  }
}

/** The colours of a heat map and the values at their ends; returns the width. */
function drawRamp(
  drawing: Drawing,
  { low, high }: ColourRange,
  end: number,
  y: number,
  { unit, small }: Pick<PageMetrics, "unit" | "small">,
): number {
  const number = (value: number): string => String(Number(value.toPrecision(3)));
  const style = { ...small, colour: INK, align: "right" as const };
  const base = y + 5 * unit;
  let x = end - drawing.text(number(high), end, base, style) - 8 * unit;
  const steps = 28;
  const width = RAMP * unit;
  for (let i = 0; i < steps; i++)
    drawing.rectangle(
      {
        x: x - width + (i * width) / steps,
        y: y - 5 * unit,
        width: width / steps + 0.5,
        height: 10 * unit,
      },
      { colour: heatColour(i / (steps - 1)) },
    );
  x -= width + 8 * unit;
  return end - x + drawing.text(number(low), x, base, style) + 14 * unit;
}

/** A bar for 0 to 1, with a tick at the threshold. */
function drawGauge(
  drawing: Drawing,
  { score, threshold }: { score: number; threshold: number },
  present: boolean,
  x: number,
  y: number,
  unit: number,
): void {
  const width = GAUGE * unit;
  drawing.rectangle({ x, y: y - 2 * unit, width, height: 4 * unit }, { colour: LINE, radius: 2 });
  drawing.rectangle(
    { x, y: y - 2 * unit, width: Math.max(width * score, 2), height: 4 * unit },
    { colour: present ? AMBER : FAINT, radius: 2 },
  );
  const tick = { x: x + width * threshold - 0.75 * unit, y: y - 6 * unit };
  drawing.rectangle({ ...tick, width: 1.5 * unit, height: 12 * unit }, { colour: QUIET });
}

/** Returns the y below it. */
export function drawWarnings(
  drawing: Drawing,
  warnings: readonly Warning[],
  page: PageSize,
  top: number,
): number {
  const { unit, margin, small } = page.metrics;
  const shown = warnings.slice(0, MOST_WARNINGS).map((w) => w.message);
  if (warnings.length > MOST_WARNINGS)
    shown.push(`+ ${warnings.length - MOST_WARNINGS} more caveats, listed in the receipt`);
  let y = top + (shown.length > 0 ? 16 * unit : 0);
  const room = roomOf(page) - 20 * unit;
  for (const line of shown.flatMap((message) => wrapText(message, room, small))) {
    drawing.text(line, margin + 20 * unit, y + 8 * unit, { ...small, colour: AMBER });
    y += 18 * unit;
  }
  return y;
}

/** The regulatory text, whole, however long. Returns the height of the picture. */
export function drawFooter(
  drawing: Drawing,
  model: HeaderModel,
  page: PageSize,
  top: number,
): number {
  const { unit, margin, small, strong } = page.metrics;
  const room = roomOf(page);
  let y = top + 16 * unit;
  drawing.rectangle({ x: margin, y, width: room, height: 1 }, { colour: LINE });
  y += 26 * unit;
  const mark = `Radserve ${VERSION}`;
  drawing.text(mark, page.width - margin, y, { ...small, colour: QUIET, align: "right" });
  for (const line of wrapText(
    model.regulatory,
    room - textWidth(mark, small) - 24 * unit,
    strong,
  )) {
    drawing.text(line, margin, y, { ...strong, colour: AMBER });
    y += 20 * unit;
  }
  return Math.ceil(y + margin - 20 * unit);
}
