/**
 * Eight kinds of sight, and how different two colours look to each: CIEDE2000 (Sharma, Wu and Dalal
 * 2005) of what is left of the colours (Machado, Oliveira and Fernandes 2009, on linear RGB; of
 * achromatopsia the luminance). Written apart from the product's own measure, so that it may judge
 * it.
 */

export type Colour = readonly [red: number, green: number, blue: number];
type Row = readonly [number, number, number];
/** What is left of linear RGB. */
export type Sight = readonly [Row, Row, Row];

const LUMINANCE: Row = [0.2126, 0.7152, 0.0722];

export const SIGHTS: Readonly<Record<string, Sight>> = {
  usual: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanomaly: [
    [0.458064, 0.679578, -0.137642],
    [0.092785, 0.846313, 0.060902],
    [-0.007494, -0.016807, 1.024301],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranomaly: [
    [0.547494, 0.607765, -0.155259],
    [0.181692, 0.781742, 0.036566],
    [-0.01041, 0.027275, 0.983136],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanomaly: [
    [1.017277, 0.027029, -0.044306],
    [-0.006113, 0.958479, 0.047634],
    [0.006379, 0.248708, 0.744913],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
  achromatopsia: [LUMINANCE, LUMINANCE, LUMINANCE],
};

const XYZ: Sight = [
  [0.4124564, 0.3575761, 0.1804375],
  [0.2126729, 0.7151522, 0.072175],
  [0.0193339, 0.119192, 0.9503041],
];
const D65: Row = [0.95047, 1, 1.08883];

const times = (matrix: Sight, [x, y, z]: Row): Row =>
  matrix.map(([a, b, c]) => a * x + b * y + c * z) as unknown as Row;

const linear = (value: number): number =>
  value <= 0.04045 * 255 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;

function lab(colour: Colour, sight: Sight): Row {
  const seen = times(sight, colour.map(linear) as unknown as Row).map((part) =>
    Math.min(1, Math.max(0, part)),
  ) as unknown as Row;
  const [fx, fy, fz] = times(XYZ, seen).map((value, i) => {
    const t = value / D65[i]!;
    return t > 216 / 24389 ? Math.cbrt(t) : ((t * 24389) / 27 + 16) / 116;
  }) as [number, number, number];
  return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)];
}

const radians = (degrees: number) => (degrees * Math.PI) / 180;
const hueOf = (a: number, b: number) => ((Math.atan2(b, a) * 180) / Math.PI + 360) % 360;

/** CIEDE2000 of two colours in CIELAB. */
export function deltaE2000([l1, a1, b1]: Row, [l2, a2, b2]: Row): number {
  const mean = (Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2;
  const g = 0.5 * (1 - Math.sqrt(mean ** 7 / (mean ** 7 + 25 ** 7)));
  const [p1, p2] = [a1 * (1 + g), a2 * (1 + g)];
  const [c1, c2] = [Math.hypot(p1, b1), Math.hypot(p2, b2)];
  const [h1, h2] = [hueOf(p1, b1), hueOf(p2, b2)];
  const grey = c1 * c2 === 0;
  const turn = h2 - h1;
  const apart = grey ? 0 : turn > 180 ? turn - 360 : turn < -180 ? turn + 360 : turn;
  const hues = h1 + h2;
  const hue = grey
    ? hues
    : Math.abs(turn) <= 180
      ? hues / 2
      : hues < 360
        ? (hues + 360) / 2
        : (hues - 360) / 2;
  const [light, chroma] = [(l1 + l2) / 2, (c1 + c2) / 2];
  const t =
    1 -
    0.17 * Math.cos(radians(hue - 30)) +
    0.24 * Math.cos(radians(2 * hue)) +
    0.32 * Math.cos(radians(3 * hue + 6)) -
    0.2 * Math.cos(radians(4 * hue - 63));
  const [dl, dc] = [l2 - l1, c2 - c1];
  const dh = 2 * Math.sqrt(c1 * c2) * Math.sin(radians(apart / 2));
  const sl = 1 + (0.015 * (light - 50) ** 2) / Math.sqrt(20 + (light - 50) ** 2);
  const [sc, sh] = [1 + 0.045 * chroma, 1 + 0.015 * chroma * t];
  const rotation =
    -Math.sin(radians(60 * Math.exp(-(((hue - 275) / 25) ** 2)))) *
    2 *
    Math.sqrt(chroma ** 7 / (chroma ** 7 + 25 ** 7));
  return Math.sqrt(
    (dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2 + rotation * (dc / sc) * (dh / sh),
  );
}

/** How different two colours look to a kind of sight. */
export const lookApart = (a: Colour, b: Colour, sight: Sight): number =>
  deltaE2000(lab(a, sight), lab(b, sight));

/** A colour over a grey, as a browser lays it (CSS Compositing: sRGB is mixed, not light). */
export const over = (colour: Colour, grey: number, opacity: number): Colour =>
  colour.map((part) => part * opacity + grey * (1 - opacity)) as unknown as Colour;
