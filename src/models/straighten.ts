/**
 * A tilted stack, or one with slices that are missing, as the straight and whole one that a network
 * takes: each slice is moved by whole pixels along its own plane, and a missing one is the nearest
 * that is there. No value is changed, so that what is said of a voxel goes back to the very pixel
 * that it was read from.
 */
import { release } from "../addon/bytes.js";
import { errors } from "../base/errors.js";
import { ELEMENT_TYPES, type Tensor } from "../base/tensor.js";
import type { EngineOutput, Plane } from "../engine/types.js";
import type {
  Interpretation,
  PixelFormat,
  TransformStep,
  Volume,
  VolumeGeometry,
  Warning,
} from "../images/image.js";
import { paddingRange, storedRange, valueReader } from "../images/stored-values.js";

/** A slice's place in the straight stack: its number, and its first row and column. */
interface Place {
  slice: number;
  row: number;
  column: number;
}

/** The straight and whole stack. */
export interface Straight {
  slices: number;
  rows: number;
  columns: number;
  geometry: VolumeGeometry;
  /** The place of each slice of the source. */
  places: readonly Place[];
  /**
   * For each slice of the straight stack the one of the source that fills it, and where its first
   * pixel lies.
   */
  filled: readonly (Place & { source: number })[];
  tiltDegrees: number;
  missing: number;
}

/** Undefined for a volume that is straight and whole. */
export function straightOf(
  { geometry, flaws }: Volume,
  { rows, columns }: Pick<PixelFormat, "rows" | "columns">,
): Straight | undefined {
  if (flaws === undefined) return undefined;
  const { places, aside, tiltDegrees, missing } = flaws;
  const last = places.at(-1) ?? 0;
  const away = (slice: number) => ({
    row: Math.round((aside.row * slice * geometry.sliceSpacing) / geometry.rowSpacing),
    column: Math.round((aside.column * slice * geometry.sliceSpacing) / geometry.columnSpacing),
  });
  const end = away(last);
  const before = { row: Math.min(0, end.row), column: Math.min(0, end.column) };
  const placed = (slice: number): Place => {
    const { row, column } = away(slice);
    return { slice, row: row - before.row, column: column - before.column };
  };
  const filled = Array.from({ length: last + 1 }, (_, slice) => ({
    ...placed(slice),
    source: nearest(places, slice),
  }));
  const { columnDirection, rowDirection } = geometry;
  const origin = geometry.origin.map(
    (at, axis) =>
      at +
      before.row * geometry.rowSpacing * (rowDirection[axis] ?? 0) +
      before.column * geometry.columnSpacing * (columnDirection[axis] ?? 0),
  ) as [number, number, number];
  return {
    slices: last + 1,
    rows: rows + Math.abs(end.row),
    columns: columns + Math.abs(end.column),
    geometry: { ...geometry, origin },
    places: places.map(placed),
    filled,
    tiltDegrees,
    missing,
  };
}

/** Which slice lies nearest to a place; of two the first. */
function nearest(places: readonly number[], slice: number): number {
  let best = 0;
  for (const [i, place] of places.entries())
    if (Math.abs(place - slice) < Math.abs((places[best] ?? 0) - slice)) best = i;
  return best;
}

/**
 * The planes of the straight stack. What lies beside a moved slice is Pixel Padding (PS3.3
 * C.7.5.1.1.2).
 * @param planes in the order of the volume's slices
 * @throws RadserveError series_invalid if no stored value is free to say that a pixel is padding
 */
export function straightened(planes: readonly Plane[], straight: Straight): Plane[] {
  const format = planes[0]?.format;
  const same = straight.rows === format?.rows && straight.columns === format.columns;
  const free =
    same || planes.every((plane) => paddingOf(plane) !== undefined) ? 0 : freeValue(planes);
  return straight.filled.flatMap(({ source, row, column }) => {
    const plane = planes[source];
    if (plane === undefined) return [];
    if (same) return [plane];
    const padding = paddingOf(plane) ?? { from: free, to: free };
    return [laid(plane, { row, column }, straight, padding)];
  });
}

/** Pixel Padding as far as pixels can hold it: some files name a value beyond their bits. */
function paddingOf({ format, interpretation }: Plane): Interpretation["padding"] {
  const [first, last] = paddingRange(interpretation.padding);
  const [least, most] = storedRange(format);
  const [from, to] = [Math.max(first, least), Math.min(last, most)];
  return from > to ? undefined : { from, to };
}

/** A stored value that no pixel has, at an end of what can be stored. */
function freeValue(planes: readonly Plane[]): number {
  let least = Infinity;
  let most = -Infinity;
  for (const { data, format } of planes) {
    const read = valueReader(data, format);
    for (let i = 0; i < format.rows * format.columns; i++) {
      const value = read(i);
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  const { bitsStored, signed, float } = planes[0]?.format ?? {
    bitsStored: 16,
    signed: false,
    float: false,
  };
  const low = signed ? -(2 ** (bitsStored - 1)) : 0;
  const high = low + 2 ** bitsStored - 1;
  if (!float && least > low) return low;
  if (!float && most < high) return high;
  throw errors.series_invalid(
    "Expected a stored value that no pixel has, to fill what lies beside the slices of a tilted stack; all from the least to the greatest are in use. Have the series resampled to straight slices first.",
    { reason: "tilt" },
  );
}

/** A plane of the straight stack's sides with the slice in it. */
function laid(
  plane: Plane,
  { row, column }: Pick<Place, "row" | "column">,
  { rows, columns }: Straight,
  padding: NonNullable<Interpretation["padding"]>,
): Plane {
  const { format, data } = plane;
  const bytes = format.bitsAllocated / 8;
  const stored = Buffer.alloc(8);
  // As valueReader reads it: at HighBit, and in two's complement.
  if (!format.float)
    stored.writeBigInt64LE(BigInt(padding.from) << BigInt(format.highBit + 1 - format.bitsStored));
  else if (bytes === 4) stored.writeFloatLE(padding.from);
  else stored.writeDoubleLE(padding.from);
  const wide = Buffer.alloc(rows * columns * bytes, stored.subarray(0, bytes));
  const width = format.columns * bytes;
  for (let y = 0; y < format.rows; y++)
    wide.set(data.subarray(y * width, (y + 1) * width), ((row + y) * columns + column) * bytes);
  return {
    ...plane,
    format: { ...format, rows, columns },
    data: wide,
    interpretation: { ...plane.interpretation, padding },
  };
}

/**
 * Outputs of the straight stack as those of the source's slices. The memory of its masks is given
 * back.
 */
export function inSourceSlices(
  outputs: readonly EngineOutput[],
  straight: Straight,
  { rows, columns }: Pick<PixelFormat, "rows" | "columns">,
): EngineOutput[] {
  return outputs.map((output) => {
    if (output.kind !== "segmentation") return output;
    const { fractions } = output;
    const mask = cut(output.mask, straight, { rows, columns });
    const own = {
      ...output,
      rows,
      columns,
      slices: straight.places.length,
      mask,
      counts: countsOf(mask, output.overlapping, output.counts.length),
      ...(fractions === undefined
        ? {}
        : { fractions: cut(fractions, straight, { rows, columns }) }),
    };
    release(output.mask);
    if (fractions !== undefined) release(fractions);
    return own;
  });
}

/**
 * Maps of the straight stack, [channels, slices, rows, columns], as maps of the source's slices.
 */
export function mapsInSourceSlices(
  maps: Tensor,
  straight: Straight,
  { rows, columns }: Pick<PixelFormat, "rows" | "columns">,
): Tensor {
  const [channels = 0] = maps.shape;
  return {
    ...maps,
    shape: [channels, straight.places.length, rows, columns],
    data: cut(maps.data, straight, { rows, columns }, ELEMENT_TYPES[maps.dtype].bytes),
  };
}

/** From each group of the straight stack's planes, those of the source; `bytes` of each value. */
function cut(
  values: Uint8Array,
  straight: Straight,
  { rows, columns }: { rows: number; columns: number },
  bytes = 1,
): Uint8Array {
  const { places } = straight;
  const group = straight.slices * straight.rows * straight.columns * bytes;
  const groups = values.length / group;
  const width = columns * bytes;
  const own = new Uint8Array(groups * places.length * rows * width);
  let to = 0;
  for (let g = 0; g < groups; g++)
    for (const { slice, row, column } of places)
      for (let y = 0; y < rows; y++, to += width) {
        const from =
          g * group + ((slice * straight.rows + row + y) * straight.columns + column) * bytes;
        own.set(values.subarray(from, from + width), to);
      }
  return own;
}

function countsOf(mask: Uint8Array, overlapping: boolean, labels: number): number[] {
  const counts = new Array<number>(labels).fill(0);
  const part = mask.length / labels;
  for (let i = 0; i < mask.length; i++) {
    const value = mask[i] ?? 0;
    if (value === 0) continue;
    const label = overlapping ? Math.floor(i / part) : value - 1;
    counts[label] = (counts[label] ?? 0) + 1;
  }
  return counts;
}

/** Warnings about a result over a stack that was not straight or not whole. */
export function straightCaveats({ tiltDegrees, missing, slices }: Straight): Warning[] {
  const tilt = {
    code: "tilt_straightened",
    message: `The slices are tilted by ${tiltDegrees.toFixed(1)} degrees; each was moved by whole pixels, so that the model saw a straight stack.`,
  };
  const gap = {
    code: "missing_slices_filled",
    message: `${missing} of ${slices} slices ${missing === 1 ? "is" : "are"} missing; the model saw the nearest one in place of each. Volumes count the slices that are there alone, and are too small by what lies in the others.`,
  };
  return [...(tiltDegrees > 0 ? [tilt] : []), ...(missing > 0 ? [gap] : [])];
}

/** The step before all of the model's own, for a volume that is not straight or not whole. */
export function straightSteps(
  volume: Volume | undefined,
  format: Pick<PixelFormat, "rows" | "columns">,
): TransformStep[] {
  const straight = volume === undefined ? undefined : straightOf(volume, format);
  return straight === undefined ? [] : [straightStep(straight)];
}

function straightStep({ tiltDegrees, missing, slices, rows, columns }: Straight): TransformStep {
  return {
    step: "straighten",
    by: "whole pixels",
    tilt_degrees: tiltDegrees,
    missing_slices: missing,
    slices,
    rows,
    columns,
  };
}
