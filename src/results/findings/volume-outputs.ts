/** Cuts what a model said about a volume into slices, for the picture and for masks. */
import { isDeepStrictEqual } from "node:util";
import { errors } from "../../base/errors.js";
import type { EngineOutput, ModelGridMask } from "../../engine/types.js";
import { kindOfGiven } from "../kinds/kinds.js";

/** How many pixels are marked, over all segmentations. */
interface Marked {
  /** In each slice. */
  slices: number[];
  /** In each row, over all slices. */
  rows: number[];
}

/**
 * Counts marked pixels. A mask has groups of `slices` planes; a group is one label that may overlap
 * others, or all labels together.
 */
export function markedPixels(outputs: readonly EngineOutput[], slices: number): Marked {
  const marked: Marked = { slices: new Array<number>(slices).fill(0), rows: [] };
  for (const output of outputs) {
    if (output.kind !== "segmentation") continue;
    const { mask, rows, columns } = output;
    for (let line = 0; line * columns < mask.length; line++) {
      const count = countMarked(mask, line * columns, columns);
      const [slice, row] = [Math.floor(line / rows) % slices, line % rows];
      marked.slices[slice] = (marked.slices[slice] ?? 0) + count;
      marked.rows[row] = (marked.rows[row] ?? 0) + count;
    }
  }
  return marked;
}

function countMarked(mask: Uint8Array, from: number, length: number): number {
  let count = 0;
  for (let i = from; i < from + length; i++) if (mask[i] !== 0) count++;
  return count;
}

/** A row and a column of a volume, from 0: planes across its slices. */
export interface Crossing {
  row: number;
  column: number;
}

/**
 * The row that has most marked, and of the columns the one that has most marked in that row: so
 * both planes go through the same. Of equals, the middle one. Undefined if nothing is marked.
 */
export function fullestCrossing(
  outputs: readonly EngineOutput[],
  { rows }: Marked,
): Crossing | undefined {
  const row = fullest(rows);
  if (row === undefined) return undefined;
  const columns: number[] = [];
  for (const output of outputs) {
    if (output.kind !== "segmentation") continue;
    const { mask, rows: height, columns: width } = output;
    for (let at = row * width; at < mask.length; at += height * width)
      for (let x = 0; x < width; x++) columns[x] = (columns[x] ?? 0) + (mask[at + x] === 0 ? 0 : 1);
  }
  const column = fullest(columns);
  return column === undefined ? undefined : { row, column };
}

/** The middle one of those with the highest count; undefined if nothing is counted. */
function fullest(counts: readonly number[]): number | undefined {
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  if (most === 0) return undefined;
  const equals = counts.flatMap((count, i) => (count === most ? [i] : []));
  return equals[Math.floor((equals.length - 1) / 2)];
}

/**
 * The outputs for one slice: its part of each mask, and everything else as it is for the whole
 * volume.
 */
export const sliceOutputs = (outputs: readonly EngineOutput[], slice: number): EngineOutput[] =>
  outputs.map((output) => kindOfGiven(output).inSlice?.(output, slice) ?? output);

/** The grid of the model in which a volume's segments are written; undefined if none are. */
export type ModelGrid = Pick<ModelGridMask, "slices" | "rows" | "columns" | "geometry">;

/** @throws RadserveError output_invalid if the outputs are not all in one grid */
export function modelGridOf(outputs: readonly EngineOutput[]): ModelGrid | undefined {
  const grids = outputs.flatMap((output): ModelGrid[] => {
    if (output.kind !== "segmentation" || output.model === undefined) return [];
    const { slices, rows, columns, geometry } = output.model;
    return [{ slices, rows, columns, geometry }];
  });
  const [first, ...others] = grids;
  if (others.some((grid) => !isDeepStrictEqual(grid, first)))
    throw errors.output_invalid(
      `Expected outputs of the same sides, because their segments lie in one SEG object; found ${grids.map(({ slices, rows, columns }) => `${slices} x ${rows} x ${columns}`).join(", ")} voxels within the source.`,
    );
  return first;
}

/**
 * The outputs for one slice of the model's grid, as `sliceOutputs` gives those for one of the
 * source's.
 */
export function modelGridSlice(outputs: readonly EngineOutput[], slice: number): EngineOutput[] {
  const inGrid = outputs.map((output): EngineOutput => {
    if (output.kind !== "segmentation" || output.model === undefined) return output;
    const { slices, rows, columns, overlapping, mask, counts, fractions } = output.model;
    return {
      kind: output.kind,
      tensor: output.tensor,
      slices,
      rows,
      columns,
      overlapping,
      mask,
      counts,
      ...(fractions === undefined ? {} : { fractions }),
    };
  });
  return sliceOutputs(inGrid, slice);
}
