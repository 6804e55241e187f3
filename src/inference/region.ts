/**
 * The part of an image that a model looks at because another model found something there, or
 * because all else is 0. It is cut out of the stored values, so that the preparation of the second
 * model sees it as an image of its own; what comes out is laid back into the whole image.
 */
import { errors } from "../base/errors.js";
import type { EngineOutput, Plane } from "../engine/types.js";
import type { PixelFormat, TransformStep, VolumeGeometry } from "../images/image.js";
import type { Manifest, Region } from "../manifest/manifest.js";
import type { Cuboid } from "../results/kinds/kind.js";
import { kindOfGiven, resultKindOf } from "../results/kinds/kinds.js";
import { regionOutput } from "../manifest/region.js";

/** The whole in which a box lies; distances in mm, undefined if nobody knows them. */
export interface VoxelGrid {
  slices: number;
  rows: number;
  columns: number;
  spacing: { slice: number; row: number; column: number } | undefined;
}

/**
 * The smallest box round the voxels of a label, without margin; undefined if there are none.
 * @throws RadserveError model_unavailable where the model does not mark the label at all
 */
export function boxOf(
  manifest: Pick<Manifest, "outputs">,
  outputs: readonly EngineOutput[],
  label: string,
): Cuboid | undefined {
  const where = regionOutput(manifest, label);
  if (where === undefined)
    throw errors.model_unavailable(`The first model has no label "${label}" to look at.`);
  const output = outputs[where.output];
  if (output?.kind !== "segmentation") return undefined;
  const { rows, columns, slices = 1, mask } = output;
  const volume = slices * rows * columns;
  const from = output.overlapping ? where.label * volume : 0;
  const wanted = output.overlapping ? 1 : where.label + 1;
  const low = [slices, rows, columns];
  const high = [-1, -1, -1];
  for (let i = 0; i < volume; i++) {
    if (mask[from + i] !== wanted) continue;
    const place = [Math.floor(i / (rows * columns)), Math.floor(i / columns) % rows, i % columns];
    place.forEach((at, axis) => {
      low[axis] = Math.min(low[axis] ?? at, at);
      high[axis] = Math.max(high[axis] ?? at, at);
    });
  }
  const [slice = 0, top = 0, left = 0] = low;
  const [lastSlice = -1, bottom = -1, right = -1] = high;
  if (lastSlice < 0) return undefined;
  return {
    slice,
    slices: lastSlice - slice + 1,
    top,
    rows: bottom - top + 1,
    left,
    columns: right - left + 1,
  };
}

/** The label map of a volume, of the first segmentation whose labels exclude each other. */
export function labelMap(outputs: readonly EngineOutput[]): Uint8Array | undefined {
  for (const output of outputs)
    if (output.kind === "segmentation" && !output.overlapping) return output.mask;
  return undefined;
}

/**
 * The smallest box round the pixels that are not 0 in every sample; undefined if there are none.
 */
export function nonzeroBox({ format, data }: Plane): Cuboid | undefined {
  const { rows, columns } = format;
  const pixel = pixelBytes(format);
  const isValue = valueBits(format);
  let [top, left, bottom, right] = [rows, columns, -1, -1];
  for (let row = 0; row < rows; row++) {
    const line = data.subarray(row * columns * pixel, (row + 1) * columns * pixel);
    const first = line.findIndex(isValue);
    if (first < 0) continue;
    top = Math.min(top, row);
    bottom = row;
    left = Math.min(left, Math.floor(first / pixel));
    right = Math.max(right, Math.floor(line.findLastIndex(isValue) / pixel));
  }
  if (bottom < 0) return undefined;
  const sides = { top, rows: bottom - top + 1, left, columns: right - left + 1 };
  return wholePairs({ slice: 0, slices: 1, ...sides }, format);
}

const pixelBytes = ({ packed422, samplesPerPixel, bitsAllocated }: PixelFormat): number =>
  packed422 ? 2 : (samplesPerPixel * bitsAllocated) / 8;

/**
 * Whether a byte of a frame, by its index in a row, has bits of a stored value that are set: those
 * beside BitsStored, as of overlays, are none (PS3.5 section 8.1.1).
 */
function valueBits({ bitsAllocated, bitsStored, highBit }: PixelFormat) {
  const stored = (1n << BigInt(bitsStored)) - 1n;
  const mask = Buffer.alloc(8);
  mask.writeBigUInt64LE(stored << BigInt(highBit + 1 - bitsStored));
  const bytes = bitsAllocated / 8;
  return (byte: number, at: number): boolean => (byte & (mask[at % bytes] ?? 0)) !== 0;
}

/**
 * The box with so many mm on each side, rounded up to whole pixels, as far as the image reaches.
 */
export function withMargin(
  box: Cuboid,
  mm: number,
  { slices, rows, columns, spacing }: VoxelGrid,
): Cuboid {
  const grown = (first: number, length: number, most: number, step: number | undefined) => {
    // A margin that is a whole number of pixels is not made larger by rounding.
    const more = mm === 0 || step === undefined ? 0 : Math.ceil(mm / step - 1e-6);
    const from = Math.max(0, first - more);
    return [from, Math.min(most, first + length + more) - from] as const;
  };
  const isVolume = slices > 1;
  const [slice, deep] = isVolume
    ? grown(box.slice, box.slices, slices, spacing?.slice)
    : [box.slice, box.slices];
  const [top, high] = grown(box.top, box.rows, rows, spacing?.row);
  const [left, wide] = grown(box.left, box.columns, columns, spacing?.column);
  return { slice, slices: deep, top, rows: high, left, columns: wide };
}

/** Two pixels of packed YBR_FULL_422 share their colour: the box begins and ends between pairs. */
export function wholePairs(box: Cuboid, { packed422, columns }: PixelFormat): Cuboid {
  if (!packed422) return box;
  const left = box.left - (box.left % 2);
  const end = Math.min(columns, box.left + box.columns + ((box.left + box.columns) % 2));
  return { ...box, left, columns: end - left };
}

/** A copy of the part of a plane. */
export function cutPlane(plane: Plane, { top, rows, left, columns }: Cuboid): Plane {
  const { format, data } = plane;
  const pixel = pixelBytes(format);
  const cut = new Uint8Array(rows * columns * pixel);
  for (let row = 0; row < rows; row++) {
    const from = ((top + row) * format.columns + left) * pixel;
    cut.set(data.subarray(from, from + columns * pixel), row * columns * pixel);
  }
  return { ...plane, format: { ...format, rows, columns }, data: cut };
}

/** The geometry of the part of a volume: its first voxel lies elsewhere (PS3.3 C.7.6.2.1.1). */
export function cutGeometry(
  geometry: VolumeGeometry,
  { slice, top, left }: Cuboid,
): VolumeGeometry {
  const { columnDirection, rowDirection, sliceDirection } = geometry;
  const origin = geometry.origin.map(
    (at, axis) =>
      at +
      left * geometry.columnSpacing * (columnDirection[axis] ?? 0) +
      top * geometry.rowSpacing * (rowDirection[axis] ?? 0) +
      slice * geometry.sliceSpacing * (sliceDirection[axis] ?? 0),
  ) as [number, number, number];
  return { ...geometry, origin };
}

/**
 * Outputs of a part as those of the whole: outside the part nothing is marked. The memory of its
 * masks is given back.
 */
export const laidBack = (
  outputs: readonly EngineOutput[],
  box: Cuboid,
  grid: VoxelGrid,
): EngineOutput[] =>
  outputs.map((output) => kindOfGiven(output).laidBack?.(output, box, grid) ?? output);

/** The outputs of a model that did not run because its region is empty: nothing is marked. */
export const nothingFound = (
  { outputs }: Pick<Manifest, "outputs">,
  grid: VoxelGrid,
  isVolume: boolean,
): EngineOutput[] =>
  outputs.flatMap((output) => resultKindOf(output).nothing?.(output, grid, isVolume) ?? []);

/** The extent of a frame or volume that a model was given. */
export type Extent = { kind: "part"; box: Cuboid } | { kind: "whole" } | { kind: "nothing" };

/**
 * The step that comes before all others: what follows it counts in pixels of the part.
 * @param region undefined where the part is all that is not 0
 */
export function regionStep(
  region: Region | undefined,
  extents: readonly Extent[],
  isVolume: boolean,
): TransformStep {
  const boxes = extents.flatMap((one) => (one.kind === "part" ? [one.box] : []));
  const count = (kind: Extent["kind"]) => extents.filter((one) => one.kind === kind).length;
  const keys = isVolume
    ? (["slice", "slices", "top", "rows", "left", "columns"] as const)
    : (["top", "rows", "left", "columns"] as const);
  const sides = keys.map((key) => {
    const numbers = boxes.map((box) => box[key]);
    const least = numbers.reduce((a, b) => Math.min(a, b), Infinity);
    const most = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
    return [key, least === most ? least : { least, most }] as const;
  });
  return {
    ...(region === undefined
      ? { step: "crop", to: "nonzero" }
      : { step: "region", model: region.model, label: region.label, margin_mm: region.margin_mm }),
    ...(boxes.length === 0 ? {} : { source_area: Object.fromEntries(sides) }),
    ...(count("whole") === 0 ? {} : { empty_seen_whole: count("whole") }),
    ...(count("nothing") === 0 ? {} : { empty_not_seen: count("nothing") }),
    ...(extents.length > 1 ? { by_frame: true } : {}),
  };
}
