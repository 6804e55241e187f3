/**
 * Reads sections out of a volume: stored values, as one plane that is rendered like a slice, and
 * masks. Both are compared with the volume by the patient's coordinates before they are used.
 */
import { isDeepStrictEqual } from "node:util";
import { errors, type RadserveError } from "../../base/errors.js";
import type { EngineOutput, Plane } from "../../engine/types.js";
import type { Interpretation, PixelFormat, Volume } from "../../images/image.js";
import { modalityValue, paddingRange, valueReader } from "../../images/stored-values.js";
import type { Crossing } from "../findings/volume-outputs.js";
import { sectionsAt, voxelUnder, type Section, type SectionSide } from "./section.js";

/** A volume, and what a model marked in it. */
export interface MarkedVolume {
  volume: Volume;
  /** The planes of all slices, in their order. */
  planes: readonly Plane[];
  /** The engine's outputs for the whole volume. */
  outputs: readonly EngineOutput[];
  /** Where the planes across the slices lie. */
  crossing: Crossing;
}

export interface Reslice {
  section: Section;
  /** As a slice is rendered. */
  plane: Plane;
  outputs: EngineOutput[];
}

/** Why a picture has no planes across the slices of a volume; undefined if it has. */
export function whyNoSections({ flaws }: Volume, format: PixelFormat): string | undefined {
  const { samplesPerPixel, photometricInterpretation } = format;
  const grey = samplesPerPixel === 1 && photometricInterpretation.startsWith("MONOCHROME");
  if (flaws === undefined) return grey ? undefined : "no planes across slices in colour";
  const fault = flaws.tiltDegrees > 0 ? "the stack is tilted" : "slices are missing";
  return `no planes across the slices, because ${fault}`;
}

/**
 * The sections of a straight, whole and grey volume.
 * @param windowOf the slice (from 0) in whose window they are shown
 * @throws RadserveError output_invalid if a section is not what the volume holds
 */
export function reslices({ crossing, ...marked }: MarkedVolume, windowOf: number): Reslice[] {
  const { format } = sliceOf(marked, windowOf);
  return sectionsAt(marked.volume, format, crossing).map((section) =>
    reslice(marked, windowOf, section),
  );
}

function sliceOf({ planes }: Pick<MarkedVolume, "planes">, slice: number): Plane {
  const plane = planes[slice];
  if (plane === undefined) throw new RangeError("A volume has the slice that is shown");
  return plane;
}

/** One section of it; parameters and errors as of `reslices`. */
export function reslice(
  marked: Omit<MarkedVolume, "crossing">,
  windowOf: number,
  section: Section,
): Reslice {
  const { planes } = marked;
  const like = sliceOf(marked, windowOf);
  const bytes = like.format.bitsAllocated / 8;
  const stored = gathered(section, like.format, bytes, (slice) => planes[slice]?.data);
  const outputs = marked.outputs.map((output) => sectionOutput(section, output));
  check(marked, section, stored, outputs);
  const plane = asStored(section, stored, like);
  const alike = planes.every(({ interpretation }) => isAlike(interpretation, like.interpretation));
  return { section, plane: alike ? plane : asValues(section, plane, planes), outputs };
}

/** One item of `bytes` of each voxel of a section, from the slices' items in rows x columns. */
function gathered(
  { across, down, fixed }: Section,
  { columns }: Pick<PixelFormat, "columns">,
  bytes: number,
  sliceAt: (slice: number) => Uint8Array | undefined,
): Uint8Array {
  const out = new Uint8Array(across.count * down.count * bytes);
  const upright = down.along === "slice";
  const [slices, line] = upright ? [down, across] : [across, down];
  // A line of voxels that one slice has: where it begins, and from one to the next
  const [first, step] = fixed.index === "row" ? [fixed.at * columns, 1] : [fixed.at, columns];
  const [begin, stride] = line.reversed ? [first + (line.count - 1) * step, -step] : [first, step];
  const [toSlice, toNext] = upright ? [across.count, 1] : [1, across.count];
  for (let place = 0; place < slices.count; place++) {
    const from = sliceAt(indexAt(slices, place)) ?? new Uint8Array();
    for (let i = 0; i < line.count; i++)
      for (let b = 0; b < bytes; b++)
        out[(place * toSlice + i * toNext) * bytes + b] =
          from[(begin + i * stride) * bytes + b] ?? 0;
  }
  return out;
}

/** The index of the voxel at a place along a side, from 0. */
const indexAt = ({ reversed, count }: SectionSide, place: number): number =>
  reversed ? count - 1 - place : place;

/** A mask's section; anything else is what it was. */
function sectionOutput(section: Section, output: EngineOutput): EngineOutput {
  if (output.kind !== "segmentation") return output;
  const { kind, tensor, overlapping, counts, rows, columns, mask, slices = 1 } = output;
  const area = rows * columns;
  const parts = Array.from({ length: mask.length / (area * slices) }, (_, group) =>
    gathered(section, output, 1, (slice) => mask.subarray((group * slices + slice) * area)),
  );
  const size = { rows: section.down.count, columns: section.across.count };
  return { kind, tensor, overlapping, counts, ...size, mask: Buffer.concat(parts) };
}

/** @throws RadserveError output_invalid */
function check(
  { volume: { geometry }, planes, outputs }: Omit<MarkedVolume, "crossing">,
  section: Section,
  stored: Uint8Array,
  found: readonly EngineOutput[],
): void {
  const under = voxelUnder(geometry, section);
  const [width, height] = [section.across.count, section.down.count];
  const bytes = stored.length / (width * height);
  const masks = outputs.flatMap((output, i) => {
    const own = found[i];
    if (output.kind !== "segmentation" || own?.kind !== "segmentation") return [];
    return [{ whole: output, own: own.mask }];
  });
  for (let y = 0, at = 0; y < height; y++)
    for (let x = 0; x < width; x++, at++) {
      const [slice, row, column] = under(x, y);
      const plane = planes[slice];
      const { columns = 0 } = plane?.format ?? {};
      for (let b = 0; b < bytes; b++)
        if (plane?.data[(row * columns + column) * bytes + b] !== stored[at * bytes + b])
          throw wrong(section);
      for (const { whole, own } of masks) {
        const area = whole.rows * whole.columns;
        const { slices = 1 } = whole;
        for (let from = slice * area + row * whole.columns + column, to = at; to < own.length;) {
          if (whole.mask[from] !== own[to]) throw wrong(section);
          from += slices * area;
          to += width * height;
        }
      }
    }
}

function wrong({ name }: Section): RadserveError {
  return errors.output_invalid(
    `The ${name} plane failed its check before it was drawn: it is not what the volume holds there. Nothing of this model was written; please report this fault.`,
    { output: "png" },
  );
}

/** Whether stored values of two slices mean the same, whatever their windows are. */
function isAlike(a: Interpretation, b: Interpretation): boolean {
  return (
    a === b ||
    (isDeepStrictEqual(a.modality, b.modality) && isDeepStrictEqual(a.padding, b.padding))
  );
}

function asStored({ across, down }: Section, stored: Uint8Array, like: Plane): Plane {
  return {
    ...like,
    format: { ...like.format, rows: down.count, columns: across.count },
    data: stored,
    pixelAspect: down.spacing / across.spacing,
  };
}

/**
 * Slices that have rescales or paddings of their own, by their modality values; what is padding is
 * no number.
 */
function asValues({ across, down }: Section, plane: Plane, planes: readonly Plane[]): Plane {
  const read = valueReader(plane.data, plane.format);
  const values = new Float32Array(across.count * down.count);
  for (let y = 0, at = 0; y < down.count; y++)
    for (let x = 0; x < across.count; x++, at++) {
      const slice = down.along === "slice" ? indexAt(down, y) : indexAt(across, x);
      const { modality, padding } = (planes[slice] ?? plane).interpretation;
      const [from, to] = paddingRange(padding);
      const value = read(at);
      values[at] = value >= from && value <= to ? NaN : modalityValue(modality, value);
    }
  const wide = {
    bitsAllocated: 32,
    bitsStored: 32,
    highBit: 31,
    signed: true,
    float: true,
  } as const;
  return {
    ...plane,
    format: { ...plane.format, ...wide },
    data: new Uint8Array(values.buffer),
    interpretation: { ...plane.interpretation, modality: { kind: "identity" }, padding: undefined },
  };
}
