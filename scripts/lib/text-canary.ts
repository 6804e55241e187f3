/**
 * The picture of models/burned-in-text's canary: a few letters, drawn here, so that no font or file
 * is needed.
 */
import { tensorBytes } from "./onnx-model.js";
import type { Tensor } from "../../src/base/tensor.js";

const ROWS = 64;
const COLUMNS = 96;
/** Five by seven dots. */
const LETTERS: Record<string, readonly string[]> = {
  T: ["#####", "..#..", "..#..", "..#..", "..#..", "..#..", "..#.."],
  E: ["#####", "#....", "#....", "####.", "#....", "#....", "#####"],
  S: [".####", "#....", "#....", ".###.", "....#", "....#", "####."],
  "1": ["..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."],
};
const TEXT = "TEST 1";
/** The pixel where the text begins, and the side of each dot in pixels. */
export interface TextPlace {
  top: number;
  left: number;
  dot: number;
}
const CANARY_PLACE: TextPlace = { top: 24, left: 12, dot: 2 };

/** Whether a pixel belongs to a letter. */
export function isLit(row: number, column: number, { top, left, dot }: TextPlace): boolean {
  const dotRow = Math.floor((row - top) / dot);
  const dotColumn = Math.floor((column - left) / dot);
  const letter = TEXT[Math.floor(dotColumn / 6)];
  return letter !== undefined && LETTERS[letter]?.[dotRow]?.[dotColumn % 6] === "#";
}

/** ImageNet's, as in the manifest. */
const MEAN = [0.485, 0.456, 0.406];
const STD = [0.229, 0.224, 0.225];

/** float32 [1, 3, 64, 96]: bright letters on dark ground, normalised as the manifest says. */
export function textCanaryInput(): Omit<Tensor, "name"> {
  const values: number[] = [];
  for (let channel = 0; channel < 3; channel++)
    for (let row = 0; row < ROWS; row++)
      for (let column = 0; column < COLUMNS; column++)
        values.push(
          ((isLit(row, column, CANARY_PLACE) ? 1 : 0.1) - (MEAN[channel] ?? 0)) /
            (STD[channel] ?? 1),
        );
  return { dtype: "float32", shape: [1, 3, ROWS, COLUMNS], data: tensorBytes("float32", values) };
}
