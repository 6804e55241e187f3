/** Masks of labels, with their areas and volumes. */
import type { MaskLayer } from "../../addon/picture.js";
import { release } from "../../addon/bytes.js";
import type { ModelGridMask } from "../../engine/types.js";
import type { Spacing, VolumeGeometry, Warning } from "../../images/image.js";
import type { Label } from "../../manifest/outputs/fields.js";
import {
  isFractional,
  mayOverlap,
  type Segmentation,
} from "../../manifest/outputs/segmentation.js";
import type { Code } from "../../manifest/texts.js";
import type { Rgb } from "../colour.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { measure } from "./measurements.js";
import { scalesOfLabels } from "./regions.js";
import {
  finite,
  frameOf,
  invalid,
  labelFields,
  noPatientSpacing,
  thresholdOf,
  type Interpreted,
  type FindingScope,
} from "./finding.js";
import { framesWith, highest, partOf, type LegendRow, type LegendScope } from "./legend-row.js";
import { totals } from "./totals.js";
import type { Cuboid, OutputOfKind, PanelMarks, SourcePoint, ResultKind, Sides } from "./kind.js";

/** The concept that PS3.16 uses for areas of regions. */
export const AREA: Code = { value: "42798000", scheme: "SCT", meaning: "Area" };
const SQUARE_CENTIMETER: Code = { value: "cm2", scheme: "UCUM", meaning: "square centimeter" };
const SQUARE_MM_PER_SQUARE_CM = 100;
/** The concept that PS3.16 uses for volumes of regions. */
export const VOLUME: Code = { value: "118565006", scheme: "SCT", meaning: "Volume" };
export const MILLILITER: Code = { value: "mL", scheme: "UCUM", meaning: "milliliter" };
export const CUBIC_MM_PER_ML = 1000;

export const segmentation: ResultKind<Segmentation, OutputOfKind<"segmentation">> = {
  gives: "segmentation",
  summary: ({ counts, model }) => `pixels of each label ${counts.join(", ")}${inOwnGrid(model)}`,
  judgedBy: "mask",
  interpret: segmented,
  // The areas of slices add up to a volume where the slices do
  overFrames: (output, _, findings, group) => {
    if (group === undefined) return {};
    if ("missing" in group) {
      const message = `The areas of the slices do not add up to volumes: they are not a straight and whole volume. ${group.missing}`;
      return {
        ...totals(output.labels, findings),
        warnings: [{ code: "volume_not_measured", message }],
      };
    }
    const voxel = group.columnSpacing * group.rowSpacing * group.sliceSpacing;
    const told = totals(output.labels, findings, (mine) => {
      const voxels = mine.reduce((sum, { area }) => sum + (area?.pixels ?? 0), 0);
      return { voxels, ml: (voxels * voxel) / CUBIC_MM_PER_ML };
    });
    if (!output.measurements.includes("volume")) return told;
    const volumes = told.findings.map(({ label, volume }) =>
      measuredVolume(label, volume?.ml ?? NaN),
    );
    return { ...told, measurements: [...volumes, ...told.measurements] };
  },
  isOf: ({ area, volume }) => area !== undefined || volume !== undefined,
  row,
  marks,
  isMarked: ({ counts }) => counts.some((pixels) => pixels > 0),
  middles,
  laidBack: (result, box, whole) => {
    const { mask, fractions } = result;
    const laid = {
      ...result,
      rows: whole.rows,
      columns: whole.columns,
      ...(result.slices === undefined ? {} : { slices: whole.slices }),
      mask: pasted(mask, box, whole),
      ...(fractions === undefined ? {} : { fractions: pasted(fractions, box, whole) }),
    };
    release(mask);
    if (fractions !== undefined) release(fractions);
    return laid;
  },
  nothing: (output, { slices, rows, columns }, isVolume) => {
    const overlapping = mayOverlap(output.activation);
    const size = slices * rows * columns;
    const labels = output.labels.length;
    return {
      kind: "segmentation",
      tensor: output.tensor,
      rows,
      columns,
      overlapping,
      ...(isVolume ? { slices } : {}),
      mask: new Uint8Array(size * (overlapping ? labels : 1)),
      counts: output.labels.map(() => 0),
      ...(isFractional(output) ? { fractions: new Uint8Array(size * labels) } : {}),
    };
  },
  inSlice: (result, slice) => {
    const { slices = 1, ...whole } = result;
    delete whole.model;
    const plane = result.rows * result.columns;
    const { fractions } = result;
    return {
      ...whole,
      mask: planesOfSlice(result.mask, plane, slices, slice),
      ...(fractions === undefined
        ? {}
        : { fractions: planesOfSlice(fractions, plane, slices, slice) }),
    };
  },
  release: (result) => {
    for (const { mask, fractions } of [
      result,
      ...(result.model === undefined ? [] : [result.model]),
    ]) {
      release(mask);
      if (fractions !== undefined) release(fractions);
    }
  },
};

function inOwnGrid(model: ModelGridMask | undefined): string {
  if (model === undefined) return "";
  const { slices, rows, columns, geometry, counts } = model;
  const { sliceSpacing, rowSpacing, columnSpacing } = geometry;
  const spacing = [sliceSpacing, rowSpacing, columnSpacing]
    .map((mm) => Number(mm.toPrecision(4)))
    .join(" x ");
  return `; in the model's grid of ${slices} x ${rows} x ${columns} voxels of ${spacing} mm ${counts.join(", ")}`;
}

function segmented(
  output: Segmentation,
  thresholds: readonly number[],
  given: OutputOfKind<"segmentation">,
  part: FindingScope,
): Interpreted {
  const { counts } = given;
  if (counts.length !== output.labels.length)
    throw invalid(`${output.labels.length} pixel counts`, `${counts.length}`);
  if (part.volume !== undefined) return inVolume(output, thresholds, given, part, part.volume);
  const scales = labelScales(given, part);
  const known = scales.map((scale) => (typeof scale === "object" ? scale : undefined));
  const more = measure(output, given, part, known);
  const findings: Finding[] = [];
  const measurements: Measurement[] = [];
  output.labels.forEach((label, i) => {
    const pixels = finite(counts[i]);
    const scale = known[i];
    const cm2 = scale ? pixels * ((scale.row * scale.column) / SQUARE_MM_PER_SQUARE_CM) : NaN;
    findings.push({
      ...labelFields(label, part),
      ...thresholdOfPixels(output, label, thresholds[i]),
      present: pixels > 0,
      area: { pixels, ...(scale ? { cm2 } : {}) },
    });
    if (scale && output.measurements.includes("area"))
      measurements.push({
        name: "Area",
        code: AREA,
        label: label.label,
        ...frameOf(part),
        value: cm2,
        unit: SQUARE_CENTIMETER,
      });
    measurements.push(...(more.measurements[i] ?? []));
  });
  const warnings = [...segmentationWarnings(output.measurements, part), ...more.warnings];
  output.labels.forEach(({ label }, i) => {
    const scale = scales[i];
    if (typeof scale === "string")
      warnings.push({ code: "partly_unmeasured", message: UNMEASURED[scale](label) });
  });
  return { findings, measurements, warnings };
}

/**
 * For each label the scale of its pixels, or why they have none; undefined if the image has none.
 */
function labelScales(
  given: OutputOfKind<"segmentation">,
  { spacing, regions }: FindingScope,
): ReturnType<typeof scalesOfLabels> | (Spacing | undefined)[] {
  if (regions !== undefined) return scalesOfLabels(given, regions);
  return given.counts.map(() => (spacing?.patient === true ? spacing : undefined));
}

const UNMEASURED = {
  outside: (label: string) =>
    `Where "${label}" reaches beyond the regions of the ultrasound image that have a scale, its area is in pixels only.`,
  several: (label: string) =>
    `Where "${label}" lies in regions of the ultrasound image that have different scales, its area is in pixels only.`,
};

/** A volume always has its spacing. It has no area: the areas of its slices are not added up. */
function inVolume(
  output: Segmentation,
  thresholds: readonly number[],
  given: OutputOfKind<"segmentation">,
  part: FindingScope,
  { columnSpacing: column, rowSpacing: row, sliceSpacing: slice }: VolumeGeometry,
): Interpreted {
  const voxel = column * row * slice;
  const volumes = output.labels.map((label, i) => {
    const voxels = finite(given.counts[i]);
    const threshold = thresholdOfPixels(output, label, thresholds[i]);
    return { label, threshold, voxels, ml: finite((voxels * voxel) / CUBIC_MM_PER_ML) };
  });
  const findings = volumes.map(({ label, threshold, voxels, ml }): Finding => ({
    ...labelFields(label, part),
    ...threshold,
    present: voxels > 0,
    volume: { voxels, ml },
  }));
  const step = { row, column, slice };
  const more = measure(
    output,
    given,
    part,
    output.labels.map(() => step),
  );
  const measurements = volumes.flatMap(({ label: { label }, ml }, i): Measurement[] => [
    ...(output.measurements.includes("volume") ? [measuredVolume(label, ml)] : []),
    ...(more.measurements[i] ?? []),
  ]);
  const warnings = output.measurements.includes("area")
    ? [NO_AREA, ...more.warnings]
    : more.warnings;
  return { findings, measurements, warnings };
}

export const measuredVolume = (label: string, ml: number): Measurement => ({
  name: "Volume",
  code: VOLUME,
  label,
  value: ml,
  unit: MILLILITER,
});

const NO_AREA: Warning = {
  code: "area_not_measured",
  message: "An area is of a single image; of a series, volumes are given.",
};

function segmentationWarnings(asked: readonly string[], part: FindingScope): Warning[] {
  const warnings: Warning[] = [];
  if (part.spacing?.patient !== true && part.regions === undefined)
    warnings.push(noPatientSpacing(part, "areas are in pixels only"));
  if (asked.includes("volume") && part.inGroup !== true)
    warnings.push({
      code: "volume_not_measured",
      message: "A volume needs a series of slices; of single frames, areas are given.",
    });
  return warnings;
}

/**
 * The threshold for the probability of each pixel; labels that exclude each other are decided
 * without thresholds.
 */
function thresholdOfPixels(
  { activation }: Segmentation,
  label: Label,
  threshold: number | undefined,
): Pick<Finding, "threshold"> {
  return mayOverlap(activation) ? { threshold: thresholdOf(label, threshold) } : {};
}

function row(
  label: string,
  all: readonly Finding[],
  colour: Rgb | undefined,
  scope: LegendScope,
): LegendRow {
  const total = all.find((f) => f.over_frames !== undefined)?.volume;
  const findings = all.filter((f) => f.over_frames === undefined);
  const present = findings.some((f) => f.present);
  // Frames may differ in the size of their pixels
  const measured = findings.every((f) => f.area?.cm2 !== undefined);
  const largest = highest(findings, (f) => (measured ? f.area?.cm2 : f.area?.pixels) ?? -1);
  const value =
    largest?.area !== undefined
      ? areasText(largest, findings, scope, measured)
      : largest?.volume !== undefined
        ? volumeText(largest.volume)
        : "";
  const inSlices = `in ${framesWith(findings)} of ${scope.frames}`;
  const told = total === undefined || !present ? value : `${digits(total.ml)} mL  ·  ${inSlices}`;
  return { label, present, colour, hollow: false, scored: false, gauge: undefined, value: told };
}

/** @param measured all frames have their area in cm2, so that the largest is known in cm2 */
function areasText(
  largest: Finding,
  findings: readonly Finding[],
  scope: LegendScope,
  measured: boolean,
): string {
  const { area = { pixels: 0 } } = largest;
  if (scope.frames === 1 || area.pixels === 0) return areaText(area);
  const { pixels, cm2 = NaN } = area;
  const size = measured ? `${digits(cm2)} cm²` : `${grouped(pixels)} px`;
  return `up to ${size}${partOf(largest, findings, scope)}`;
}

function areaText({ pixels, cm2 }: { pixels: number; cm2?: number | undefined }): string {
  const count = `${grouped(pixels)} px`;
  return cm2 === undefined ? count : `${digits(cm2)} cm²  ·  ${count}`;
}

function volumeText({ voxels, ml }: { voxels: number; ml: number }): string {
  return `${digits(ml)} mL  ·  ${grouped(voxels)} ${voxels === 1 ? "voxel" : "voxels"}`;
}

const digits = (size: number): string =>
  size.toFixed(size >= 100 || size === 0 ? 1 : size >= 1 ? 2 : 3);

const grouped = (count: number): string => count.toLocaleString("en").replaceAll(",", "\u202f");

function marks(
  { mask, rows, columns, counts, overlapping }: OutputOfKind<"segmentation">,
  colours: readonly Rgb[],
): PanelMarks {
  const bytes = (some: readonly Rgb[]) => Uint8Array.from(some.flat());
  if (!overlapping)
    return { masks: [{ rows, columns, mask, colours: bytes(colours), counts }], heat: [] };
  const planes = colours.map((colour, i): MaskLayer => ({
    rows,
    columns,
    colours: bytes([colour]),
    counts: counts.slice(i, i + 1),
    mask: mask.subarray(i * rows * columns, (i + 1) * rows * columns),
  }));
  return { masks: planes, heat: [] };
}

/** In one pass over all labels: a CT of the whole body has 80 million voxels and 117 of them. */
function middles({
  mask,
  rows,
  columns,
  slices = 1,
  overlapping,
  counts: { length },
}: OutputOfKind<"segmentation">): (SourcePoint | undefined)[] {
  // By the number of the label, from 1
  const counts = new Float64Array(length + 1);
  const [x, y] = [new Float64Array(length + 1), new Float64Array(length + 1)];
  for (let at = 0, line = 0; at < mask.length; line++) {
    const row = line % rows;
    const before = overlapping ? Math.floor(line / (rows * slices)) : 0;
    for (let column = 0; column < columns; column++, at++) {
      const value = mask[at] ?? 0;
      if (value === 0) continue;
      const label = before + value;
      counts[label] = (counts[label] ?? 0) + 1;
      x[label] = (x[label] ?? 0) + column;
      y[label] = (y[label] ?? 0) + row;
    }
  }
  return Array.from({ length }, (_, i) => {
    const count = counts[i + 1] ?? 0;
    if (count === 0) return undefined;
    return { x: (x[i + 1] ?? 0) / count + 0.5, y: (y[i + 1] ?? 0) / count + 0.5 };
  });
}

/** Groups of `box.slices` planes, each laid into a group of `grid.slices` planes of zeros. */
function pasted(values: Uint8Array, box: Cuboid, grid: Sides): Uint8Array {
  const part = box.slices * box.rows * box.columns;
  const groups = values.length / part;
  const whole = new Uint8Array(groups * grid.slices * grid.rows * grid.columns);
  for (let group = 0; group < groups; group++)
    for (let slice = 0; slice < box.slices; slice++)
      for (let row = 0; row < box.rows; row++) {
        const from = group * part + (slice * box.rows + row) * box.columns;
        const plane = group * grid.slices + box.slice + slice;
        const to = (plane * grid.rows + box.top + row) * grid.columns + box.left;
        whole.set(values.subarray(from, from + box.columns), to);
      }
  return whole;
}

/** From each group of `slices` planes, the plane of this slice. */
function planesOfSlice(
  values: Uint8Array,
  plane: number,
  slices: number,
  slice: number,
): Uint8Array {
  const groups = values.length / (plane * slices);
  const cut = new Uint8Array(groups * plane);
  for (let group = 0; group < groups; group++) {
    const from = (group * slices + slice) * plane;
    cut.set(values.subarray(from, from + plane), group * plane);
  }
  return cut;
}
