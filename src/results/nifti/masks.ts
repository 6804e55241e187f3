/**
 * The masks of a segmentation (PS3.3 A.51, A.88) as a label map, or each by itself. Where they lie
 * is read from the segmentation, which says it of each frame.
 */
import { errors } from "../../base/errors.js";
import { groupsBy } from "../../base/groups.js";
import type { Attributes, Image } from "../../images/image.js";
import { assemble } from "../../images/dicom/volume.js";
import { LABEL_MAP_SEGMENTATION, segmentOfFrame } from "../dicom/segments.js";
import type { VolumeGrid } from "../../images/grids.js";
import { NIFTI_TYPES } from "./header.js";
import { planeGeometry, type NiftiVolume } from "./volume.js";

export interface MaskSegment {
  /** The value in a label map. */
  number: number;
  label: string;
}

/** A frame of the segmentation; a label map has all segments in each. */
interface MaskFrame {
  frame: number;
  segment: number | undefined;
}

export interface MaskStack {
  image: Image;
  segments: MaskSegment[];
  grid: VolumeGrid;
  /** The frames of each slice. */
  slices: readonly (readonly MaskFrame[])[];
  isFractional: boolean;
}

/** @throws RadserveError series_invalid where its frames form no volume, with `details.reason` */
export function maskStack(image: Image): MaskStack {
  const { attributes, format } = image;
  const groups = attributes?.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  const isLabelMap = image.source.sopClassUid === LABEL_MAP_SEGMENTATION;
  const frames = Array.from({ length: image.frameCount }, (_, frame) => {
    const own = isLabelMap ? undefined : groups[frame];
    return { frame, segment: own && segmentOfFrame(own) };
  });
  const planes = [
    ...groupsBy(frames, ({ frame }) => image.plane(frame)?.position.join(" ") ?? "").values(),
  ];
  const { rows, columns } = format;
  const segments = (attributes?.sequence("SegmentSequence") ?? [])
    .map((item) => ({
      number: item.number("SegmentNumber") ?? 0,
      label: item.string("SegmentLabel") ?? "",
    }))
    .filter(({ number }) => number > 0);
  const known = {
    image,
    segments,
    isFractional: attributes?.string("SegmentationType") === "FRACTIONAL",
  };
  if (planes.length < 2) {
    const { geometry } = planeGeometry(image, thicknessOf(attributes));
    return { ...known, slices: planes, grid: { geometry, slices: 1, rows, columns } };
  }
  const { geometry, frames: order } = assemble(
    planes.map(([first]) => {
      const frame = first?.frame ?? 0;
      return { format, plane: image.plane(frame), spacing: image.spacing(frame) };
    }),
  );
  const grid = { geometry, slices: order.length, rows, columns };
  return { ...known, slices: order.map((at) => planes[at] ?? []), grid };
}

function thicknessOf(attributes: Attributes | undefined): number | undefined {
  const [shared] = attributes?.sequence("SharedFunctionalGroupsSequence") ?? [];
  const [measures] = shared?.sequence("PixelMeasuresSequence") ?? [];
  return measures?.number("SliceThickness");
}

/**
 * A label map: each voxel has the number of its segment, and 0 belongs to none.
 * @throws RadserveError bad_request for probabilities, and, while it is read, for segments that
 * overlap
 */
export function labelMap(stack: MaskStack): NiftiVolume {
  const { image, grid, slices: all, segments, isFractional } = stack;
  if (isFractional)
    throw errors.bad_request(
      `Expected masks for a label map; found a segmentation of probabilities (FRACTIONAL). ${ONE_BY_ONE}`,
      { reason: "fractional" },
    );
  const most = Math.max(0, ...segments.map(({ number }) => number));
  const type = most > 255 ? "uint16" : "uint8";
  const labelOf = (number: number) =>
    segments.find((one) => one.number === number)?.label ?? String(number);
  async function* slices() {
    for (const [slice, frames] of all.entries()) {
      const out = new NIFTI_TYPES[type].array(grid.rows * grid.columns);
      for (const { frame, segment } of frames) {
        const values = await image.frame(frame);
        for (let i = 0; i < out.length; i++) {
          const value = values[i] ?? 0;
          if (value === 0) continue;
          const number = segment ?? value;
          const before = out[i] ?? 0;
          if (before !== 0 && before !== number)
            throw errors.bad_request(
              `Expected segments that do not overlap, because a voxel of a label map has one label; ${labelOf(before)} and ${labelOf(number)} overlap in slice ${slice + 1}. ${ONE_BY_ONE}`,
              { reason: "overlapping" },
            );
          out[i] = number;
        }
      }
      yield new Uint8Array(out.buffer);
    }
  }
  return { grid, type, slices, remarks: [] };
}

const ONE_BY_ONE = "Export each segment by itself (--separate).";

/** One segment by itself: 1 where it is; of probabilities their value from 0 to 1. */
export function segmentVolume(stack: MaskStack, { number }: MaskSegment): NiftiVolume {
  const { image, grid, slices: all, isFractional } = stack;
  const type = isFractional ? "float32" : "uint8";
  const full = image.attributes?.number("MaximumFractionalValue") ?? 255;
  const valueOf = (value: number, segment: number | undefined) => {
    if (isFractional) return value / full;
    return segment === undefined ? Number(value === number) : Number(value > 0);
  };
  async function* slices() {
    for (const frames of all) {
      const out = new NIFTI_TYPES[type].array(grid.rows * grid.columns);
      for (const { frame, segment } of frames) {
        if (segment !== undefined && segment !== number) continue;
        const values = await image.frame(frame);
        for (let i = 0; i < out.length; i++) out[i] = valueOf(values[i] ?? 0, segment);
      }
      yield new Uint8Array(out.buffer);
    }
  }
  return { grid, type, slices, remarks: [] };
}
