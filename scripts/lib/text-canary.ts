/** The picture of models/burned-in-text's canary: a few letters, drawn here, so that no font or file is needed. */
import { tensorBytes } from "./onnx-model.js";
import type { Tensor } from "../../src/engine.js";

const ROWS = 64;
const COLUMNS = 96;
/** Screen pixels a side for each dot of a letter. */
const DOT = 2;

/** Five by seven dots. */
const LETTERS: Record<string, readonly string[]> = {
  T: ["#####", "..#..", "..#..", "..#..", "..#..", "..#..", "..#.."],
  E: ["#####", "#....", "#....", "####.", "#....", "#....", "#####"],
  S: [".####", "#....", "#....", ".###.", "....#", "....#", "####."],
  "1": ["..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."],
};
const TEXT = "TEST 1";
const TOP = 24;
const LEFT = 12;

/** ImageNet's, as in the manifest. */
const MEAN = [0.485, 0.456, 0.406];
const STD = [0.229, 0.224, 0.225];

function brightness(row: number, column: number): number {
  const dotRow = Math.floor((row - TOP) / DOT);
  const dotColumn = Math.floor((column - LEFT) / DOT);
  const letter = TEXT[Math.floor(dotColumn / 6)];
  const lit = letter === undefined ? undefined : LETTERS[letter]?.[dotRow]?.[dotColumn % 6];
  return lit === "#" ? 1 : 0.1;
}

/** float32 [1, 3, 64, 96]: bright letters on dark ground, normalised as the manifest says. */
export function textCanaryInput(): Omit<Tensor, "name"> {
  const values: number[] = [];
  for (let channel = 0; channel < 3; channel++)
    for (let row = 0; row < ROWS; row++)
      for (let column = 0; column < COLUMNS; column++)
        values.push((brightness(row, column) - (MEAN[channel] ?? 0)) / (STD[channel] ?? 1));
  return { dtype: "float32", shape: [1, 3, ROWS, COLUMNS], data: tensorBytes("float32", values) };
}
