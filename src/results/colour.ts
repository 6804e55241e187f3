/**
 * Colours of labels and of heat maps, and colours as they look: how different two are, to readers
 * with and without red-green deficiency, and CIELab.
 */

import { labelsOf, type ModelOutput } from "../manifest/outputs/outputs.js";
import { isSegmentation } from "../manifest/outputs/segmentation.js";

/** sRGB, 0 to 255. */
export type Rgb = readonly [number, number, number];

type Matrix = readonly (readonly [number, number, number])[];

/**
 * On linear RGB: normal vision, protanopia, deuteranopia (Machado, Oliveira and Fernandes 2009,
 * severity 1.0).
 */
const EYES: readonly Matrix[] = [
  [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
];

/**
 * Oklab (Ottosson 2020), from linear RGB to cone responses, and from their cube roots to lightness
 * and two hues.
 */
const CONES: Matrix = [
  [0.4122214708, 0.5363325363, 0.0514459929],
  [0.2119034982, 0.6806995451, 0.1073969566],
  [0.0883024619, 0.2817188376, 0.6299787005],
];
const OKLAB: Matrix = [
  [0.2104542553, 0.793617785, -0.0040720468],
  [1.9779984951, -2.428592205, 0.4505937099],
  [0.0259040371, 0.7827717662, -0.808675766],
];

function times(matrix: Matrix, [x, y, z]: Rgb): Rgb {
  const row = (i: number): number => {
    const [a, b, c] = matrix[i] ?? [0, 0, 0];
    return a * x + b * y + c * z;
  };
  return [row(0), row(1), row(2)];
}

/** Transfer function of sRGB (IEC 61966-2-1). */
const linear = (value: number): number =>
  value <= 0.04045 * 255 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;

function seen([r, g, b]: Rgb, eye: Matrix): Rgb {
  const [x, y, z] = times(eye, [linear(r), linear(g), linear(b)]);
  const [l, m, s] = times(CONES, [Math.max(x, 0), Math.max(y, 0), Math.max(z, 0)]);
  return times(OKLAB, [Math.cbrt(l), Math.cbrt(m), Math.cbrt(s)]);
}

/** A colour in Oklab as each of the eyes sees it. */
const asSeen = (colour: Rgb): Rgb[] => EYES.map((eye) => seen(colour, eye));

/** The least of their distances, those of red-green deficiency times `allowance`. */
function leastDistance(a: readonly Rgb[], b: readonly Rgb[], allowance = 1): number {
  const distances = a.map(([light, red, yellow], i) => {
    const [otherLight, otherRed, otherYellow] = b[i] ?? [0, 0, 0];
    const distance = Math.hypot(light - otherLight, red - otherRed, yellow - otherYellow);
    return i === 0 ? distance : distance * allowance;
  });
  return Math.min(...distances);
}

/**
 * Distance in Oklab (black to white is 1) for those eyes that see least of it; from about 0.1 on,
 * colours are told apart at a glance.
 */
export const difference = (a: Rgb, b: Rgb): number => leastDistance(asSeen(a), asSeen(b));

/** From linear sRGB to XYZ, adapted from D65 to D50 (Bradford). */
const XYZ: Matrix = [
  [0.4360747, 0.3850649, 0.1430804],
  [0.2225045, 0.7168786, 0.0606169],
  [0.0139322, 0.0971045, 0.7141733],
];

/** The way back from XYZ. */
const RGB: Matrix = [
  [3.1338561, -1.6168667, -0.4906146],
  [-0.9787684, 1.9161415, 0.033454],
  [0.0719453, -0.2289914, 1.4052427],
];

/**
 * sRGB to CIELab with the profile connection space's white, D50, scaled to 16 bits (PS3.3
 * C.10.7.1.1).
 */
export function cieLab([r, g, b]: Rgb): [number, number, number] {
  const [x, y, z] = times(XYZ, [linear(r), linear(g), linear(b)]);
  const f = (t: number) => (t > 216 / 24389 ? Math.cbrt(t) : (t * (24389 / 27) + 16) / 116);
  const [fx, fy, fz] = [f(x / 0.96422), f(y), f(z / 0.82521)];
  const scaled = (value: number) => Math.max(0, Math.min(65535, Math.round(value)));
  return [
    scaled(((116 * fy - 16) / 100) * 65535),
    scaled(((500 * (fx - fy) + 128) / 255) * 65535),
    scaled(((200 * (fy - fz) + 128) / 255) * 65535),
  ];
}

/** The sRGB of a colour as `cieLab` scales it (PS3.3 C.10.7.1.1). */
export function fromCieLab([light, a, b]: readonly [number, number, number]): Rgb {
  const fy = ((light / 65535) * 100 + 16) / 116;
  const fx = fy + ((a / 65535) * 255 - 128) / 500;
  const fz = fy - ((b / 65535) * 255 - 128) / 200;
  const t = (f: number) => (f ** 3 > 216 / 24389 ? f ** 3 : ((116 * f - 16) * 27) / 24389);
  const [red, green, blue] = times(RGB, [t(fx) * 0.96422, t(fy), t(fz) * 0.82521]).map(companded);
  return [red ?? 0, green ?? 0, blue ?? 0];
}

/** 0 to 255 of a linear share from 0 to 1 (IEC 61966-2-1). */
function companded(share: number): number {
  const value = share <= 0.0031308 ? 12.92 * share : 1.055 * share ** (1 / 2.4) - 0.055;
  return Math.max(0, Math.min(255, Math.round(255 * value)));
}

/**
 * For labels whose manifest names no colour: light enough for a dark background, and as far from
 * each other as eight colours can be for readers with and without colour deficiency.
 */
const PALETTE: readonly Rgb[] = [
  [255, 176, 0],
  [86, 163, 250],
  [221, 34, 68],
  [170, 255, 255],
  [153, 51, 255],
  [255, 255, 119],
  [34, 136, 170],
  [68, 221, 170],
];
const TOLD_APART = 0.1;

const chosen = new WeakMap<readonly ModelOutput[], Rgb[][]>();

/**
 * Colours of each output's labels, in the manifest's order; those it does not name are unlike those
 * it does.
 */
export function labelColours(outputs: readonly ModelOutput[]): readonly (readonly Rgb[])[] {
  const known = chosen.get(outputs);
  if (known !== undefined) return known;
  const colours = chooseColours(outputs);
  chosen.set(outputs, colours);
  return colours;
}

/**
 * Outputs whose labels all have a colour, so that some of them alone keep theirs. Of kinds without
 * masks they stay as they are.
 */
export function withColours(outputs: readonly ModelOutput[]): ModelOutput[] {
  const colours = labelColours(outputs);
  return outputs.map((output, o) =>
    isSegmentation(output)
      ? {
          ...output,
          labels: output.labels.map((label, l) => {
            const colour = colours[o]?.[l];
            return colour === undefined ? label : { ...label, colour: [...colour] };
          }),
        }
      : output,
  );
}

function chooseColours(outputs: readonly ModelOutput[]): Rgb[][] {
  const named = outputs.flatMap((output) =>
    labelsOf(output).flatMap(({ colour }) => (colour === undefined ? [] : [colour])),
  );
  const free = PALETTE.filter((colour) =>
    named.every((other) => difference(colour, other) >= TOLD_APART),
  );
  const unnamed = outputs.flatMap((output) =>
    labelsOf(output).filter(({ colour }) => colour === undefined),
  );
  if (unnamed.length > free.length)
    free.push(...furthest(unnamed.length - free.length, [...named, ...free]));
  let given = 0;
  return outputs.map((output) =>
    labelsOf(output).map(({ colour }) => colour ?? free[given++] ?? fromHue(given)),
  );
}

/** Levels of red, green and blue that further colours are made of. */
const LEVELS = [0, 36, 73, 109, 146, 182, 219, 255];

/**
 * Light enough for a dark background, and not so near to grey that they look like an image
 * (lightness and chroma of Oklab).
 */
const LEAST_LIGHT = 0.5;
const LEAST_CHROMA = 0.08;

/**
 * Beyond eight, colours that all readers tell apart would be so like each other that nobody does:
 * most readers count for more.
 */
const ALLOWANCE = 1.5;

/**
 * Colours beyond the palette: each is the one that is furthest from all before it. The first of
 * equal ones is taken, and distances are rounded, so that every machine takes the same. Where all
 * have been taken, hues a golden angle apart follow.
 */
function furthest(count: number, taken: readonly Rgb[]): Rgb[] {
  const before = taken.map(asSeen);
  const rounded = (distance: number) => Math.round(distance * 1e6);
  const candidates = LEVELS.flatMap((r) => LEVELS.flatMap((g) => LEVELS.map((b): Rgb => [r, g, b])))
    .map((colour) => ({ colour, eyes: asSeen(colour) }))
    .filter(
      ({ eyes: [[light, red, yellow] = [0, 0, 0]] }) =>
        light >= LEAST_LIGHT && Math.hypot(red, yellow) >= LEAST_CHROMA,
    )
    .map(({ colour, eyes }) => ({
      colour,
      eyes,
      distance: Math.min(...before.map((other) => rounded(leastDistance(eyes, other, ALLOWANCE)))),
    }));
  return Array.from({ length: count }, (_, i) => {
    const best = candidates.reduce((a, b) => (b.distance > a.distance ? b : a));
    if (best.distance === 0) return fromHue(i);
    for (const candidate of candidates)
      candidate.distance = Math.min(
        candidate.distance,
        rounded(leastDistance(candidate.eyes, best.eyes, ALLOWANCE)),
      );
    return best.colour;
  });
}

/** Hues a golden angle apart, of saturation 0.7 and lightness 0.65. */
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

/** The 256 colours of a heat map, three bytes each, from its lowest value to its highest. */
export const HEAT_COLOURS = Uint8Array.from(
  Array.from({ length: 256 }, (_, i) => heatColour(i / 255)).flat(),
);

/** A grey under a tint as the addon lays it: light is mixed, not its sRGB numbers. */
export function tinted(grey: number, colour: Rgb, opacity: number): Rgb {
  const mix = (over: number): number => {
    const light = linear(grey) * (1 - opacity) + linear(over) * opacity;
    return Math.round(
      255 * (light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055),
    );
  };
  return [mix(colour[0]), mix(colour[1]), mix(colour[2])];
}

export interface ColourRange {
  low: number;
  high: number;
}

/** Range of heat maps' values: 0 to 1, or wider if they leave it. */
export function heatRange(maps: readonly Float32Array[]): ColourRange {
  let [low, high] = [0, 1];
  for (const values of maps)
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return { low, high };
}
