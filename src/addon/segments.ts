/** Segments counted by the addon, at once and on the calling thread; no engine has to be there. */
import { loadAddon } from "./load-addon.js";

/** A final mask over the pixels that it was made of. */
export interface SegmentedImage {
  /**
   * As EngineOutput has it: a plane of label numbers for each slice, or planes of 0 and 1, label by
   * label.
   */
  mask: Uint8Array;
  overlapping: boolean;
  labels: number;
  rows: number;
  columns: number;
  /** Stored values of each slice; arrays without bytes where values are not counted. */
  slices: readonly Uint8Array[];
  /** Bytes of a stored value: 1, 2, 4 or 8. */
  wordBytes: number;
  /** For each slice the number of what its stored values mean. */
  meanings: readonly number[];
  /** mm between the centres of columns, rows and slices. */
  spacing: readonly [column: number, row: number, slice: number];
  /** Whether cells are counted and distances measured. */
  shape: boolean;
}

export const MOST_LONG_WORDS = 2 ** 24;

export interface SegmentCounts {
  /**
   * The distinct stored values in neighbouring slices of one meaning, as a frame holds them, and
   * how often each is there. None of any label if they are longer than two bytes, and there are
   * more than MOST_LONG_WORDS of all.
   */
  words: { meaning: number; words: Uint8Array; counts: Float64Array }[];
  /**
   * How many cells of eight neighbouring voxels have each pattern of corners within the label, for
   * 256 patterns: bit 0 is along columns, bit 1 along rows, bit 2 along slices. Cells all within or
   * all outside are not counted.
   */
  cells: Float64Array;
  /**
   * The longest distance in mm between two points of the surface by marching cubes that lie in one
   * slice; 0 if empty.
   */
  inPlane: number;
  /** The same for points that lie anywhere. */
  anywhere: number;
}

/** One pass over the pixels; the counts of each label. */
export function countSegments(image: SegmentedImage): SegmentCounts[] {
  return (loadAddon() as { countSegments: typeof countSegments }).countSegments(image);
}
