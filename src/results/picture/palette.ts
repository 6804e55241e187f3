/** Colours of labels and of heat maps, sRGB, 0 to 255. */
import { labelsOf, type ModelOutput } from "../../manifest/manifest.js";
import { difference, type Rgb } from "./colour.js";

/**
 * For labels whose manifest names no colour: light enough for a dark background, and as far from each other as eight
 * colours can be for readers with and without red-green deficiency.
 */
const PALETTE: readonly Rgb[] = [
  [255, 176, 0],
  [86, 180, 233],
  [221, 34, 68],
  [136, 255, 255],
  [153, 51, 255],
  [255, 255, 119],
  [34, 136, 170],
  [68, 221, 170],
];
const TOLD_APART = 0.1;

/** Colours of each output's labels, in the manifest's order; those it does not name are unlike those it does. */
export function labelColours(outputs: readonly ModelOutput[]): Rgb[][] {
  const named = outputs.flatMap((output) =>
    labelsOf(output).flatMap(({ colour }) => (colour === undefined ? [] : [colour])),
  );
  const free = PALETTE.filter((colour) => named.every((other) => difference(colour, other) >= TOLD_APART));
  let unnamed = 0;
  return outputs.map((output) =>
    labelsOf(output).map(({ colour }) => colour ?? free[unnamed++] ?? fromHue(unnamed)),
  );
}

/** Beyond the palette, hues a golden angle apart, of saturation 0.7 and lightness 0.65: neighbours are far apart on the wheel. */
function fromHue(index: number): Rgb {
  const hue = (index * 137.508) % 360;
  const channel = (shift: number): number => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (0.65 - 0.245 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}

const HEAT: readonly Rgb[] = [
  [30, 15, 90],
  [120, 30, 130],
  [205, 60, 95],
  [250, 140, 40],
  [255, 235, 140],
];

/** Dark violet to light yellow, of growing lightness, for 0 to 1. */
export function heatColour(value: number): Rgb {
  const at = Math.min(Math.max(value, 0), 1) * (HEAT.length - 1);
  const low = Math.min(Math.floor(at), HEAT.length - 2);
  const [a, b] = [HEAT[low] ?? [0, 0, 0], HEAT[low + 1] ?? [0, 0, 0]];
  const mix = (i: 0 | 1 | 2): number => Math.round(a[i] + (b[i] - a[i]) * (at - low));
  return [mix(0), mix(1), mix(2)];
}

export const css = ([r, g, b]: Rgb): string => `rgb(${r},${g},${b})`;
