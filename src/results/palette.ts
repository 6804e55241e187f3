/** Colours of labels and of heat maps, sRGB, 0 to 255. */
import { labelsOf, type ModelOutput } from "../manifest.js";

export type Rgb = readonly [number, number, number];

/**
 * For labels whose manifest names no colour: told apart on grey by most readers with colour vision deficiency
 * (after Okabe and Ito 2008, lightened for dark backgrounds).
 */
const PALETTE: readonly Rgb[] = [
  [255, 176, 0],
  [86, 180, 233],
  [64, 200, 140],
  [240, 228, 66],
  [240, 110, 60],
  [214, 140, 190],
  [120, 150, 255],
  [190, 220, 120],
];

/** Colours of each output's labels, in the manifest's order. */
export function labelColours(outputs: readonly ModelOutput[]): Rgb[][] {
  let unnamed = 0;
  return outputs.map((output) => labelsOf(output).map((label) => label.colour ?? defaultColour(unnamed++)));
}

function defaultColour(index: number): Rgb {
  const fixed = PALETTE[index];
  if (fixed !== undefined) return fixed;
  // Beyond the palette, hues a golden angle apart: neighbours in the list are far apart on the wheel.
  return fromHue((index * 137.508) % 360);
}

/** HSL with saturation 0.7 and lightness 0.65. */
function fromHue(hue: number): Rgb {
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
