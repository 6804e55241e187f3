/**
 * Tells by their values whether three components are red, green and blue, or luminance and
 * chrominance (YBR_FULL), for frames about which attribute and codestream contradict each other.
 * Where the values do not tell, nobody knows, and the file is refused: a picture in wrong colours
 * is still a picture. docs/reading.md gives the thresholds and the reasons for them.
 */
import { valueReader } from "../stored-values.js";
import type { PixelFormat } from "../image.js";

/** What the three components are, and the reason in words. */
export interface ToldColour {
  colour: "RGB" | "YBR_FULL";
  because: string;
}

/** Frames whose values are looked at: spread evenly, the first and the last included. */
const MOST_FRAMES = 16;
/** Pixels of a frame that are looked at; of more, evenly spread ones. */
const MOST_PIXELS = 1 << 20;

/** Levels by which a colour may leave 0 to 255, because lossy coding rings at edges. */
const RINGING = 16;
/** From this share of pixels on that would be no colours, the components are no YBR_FULL. */
const SURELY_IMPOSSIBLE = 0.25;
/** The same where chroma against luminance is narrower as RGB. */
const IMPOSSIBLE = 0.1;
/** Up to this share of YBR_FULL may be no colours: lossy coding moves some pixels further. */
const POSSIBLE = 0.02;
/** A picture within so many levels of grey has no colours, and one beyond the second has. */
const GREY = 4;
const COLOURED = 16;
/** Levels by which values have to spread before their spread says anything. */
const LEAST_SPREAD = 4;
/** How many times narrower chroma against luminance has to be in the reading that is chosen. */
const NARROWER = 2;
/** The same, and how many times nearer to grey, where only that says RGB. */
const MUCH_NARROWER = 3;
/** How much further from grey than as RGB a picture may be as YBR_FULL. */
const FURTHER = 1.5;
/** Wide chrominance: how far its middle may be off 128, in levels, and how many are no colours. */
const MIDDLE = 16;
const WIDE_POSSIBLE = 0.005;
/** Red, green and blue of pictures rise and fall together; up to this correlation they do not. */
const APART = 0.3;

/** The frames (from 0) whose values decide; the same for the same image. */
export function decidingFrames(frameCount: number): number[] {
  const count = Math.min(MOST_FRAMES, frameCount);
  if (count === 1) return [0];
  return Array.from({ length: count }, (_, i) => Math.round((i * (frameCount - 1)) / (count - 1)));
}

/** Luminance, blue and red chroma. */
const PARTS = [0, 1, 2] as const;

/**
 * One reading of the components as luminance and chroma, whose middle is 0: sums over pixels, and
 * of the products of each two.
 */
class ColourReading {
  #pixels = 0;
  readonly #sums = new Float64Array(3);
  readonly #products = new Float64Array(9);

  add(luminance: number, blue: number, red: number): void {
    const values = [luminance, blue, red];
    this.#pixels++;
    for (const i of PARTS) {
      const value = values[i] ?? 0;
      this.#sums[i] = (this.#sums[i] ?? 0) + value;
      for (const j of PARTS)
        this.#products[3 * i + j] = (this.#products[3 * i + j] ?? 0) + value * (values[j] ?? 0);
    }
  }

  mean(i: number): number {
    return (this.#sums[i] ?? 0) / this.#pixels;
  }

  #covariance(i: number, j: number): number {
    const covariance =
      (this.#products[3 * i + j] ?? 0) / this.#pixels - this.mean(i) * this.mean(j);
    // Rounding must not make the square of a spread negative
    return i === j ? Math.max(0, covariance) : covariance;
  }

  /** How far from grey the picture is: the root of the mean square of chroma. */
  get fromGrey(): number {
    return Math.sqrt(((this.#products[4] ?? 0) + (this.#products[8] ?? 0)) / this.#pixels);
  }

  /** Standard deviations. */
  get luminance(): number {
    return Math.sqrt(this.#covariance(0, 0));
  }

  get chroma(): number {
    return Math.sqrt(this.#covariance(1, 1) + this.#covariance(2, 2));
  }

  /** Whether no two of the three parts rise and fall together. */
  get isApart(): boolean {
    return PARTS.every((i) =>
      PARTS.every(
        (j) =>
          i === j ||
          Math.abs(this.#covariance(i, j)) <=
            APART * Math.sqrt(this.#covariance(i, i) * this.#covariance(j, j)),
      ),
    );
  }

  /** Whether chroma against luminance is so many times narrower than in another reading. */
  isNarrower(times: number, other: ColourReading): boolean {
    return (
      Math.max(this.luminance, other.luminance) >= LEAST_SPREAD &&
      this.chroma * other.luminance * times <= other.chroma * this.luminance
    );
  }
}

export class ColourValues {
  readonly #rgb = new ColourReading();
  readonly #ybr = new ColourReading();
  #pixels = 0;
  /** Pixels that would be no colours as YBR_FULL. */
  #impossible = 0;

  /** @param frame of three samples a pixel, by pixel */
  add(frame: Uint8Array, format: PixelFormat): void {
    const read = valueReader(frame, format);
    const scale = 255 / (2 ** format.bitsStored - 1);
    const pixels = format.rows * format.columns;
    const step = 3 * Math.ceil(pixels / MOST_PIXELS);
    for (let at = 0; at < 3 * pixels; at += step)
      this.#add(read(at) * scale, read(at + 1) * scale, read(at + 2) * scale);
  }

  /** The weights are those of PS3.3 C.7.6.3.1.2. */
  #add(first: number, second: number, third: number): void {
    const luminance = 0.299 * first + 0.587 * second + 0.114 * third;
    const [blue, red] = [second - 128, third - 128];
    this.#rgb.add(luminance, (third - luminance) / 1.772, (first - luminance) / 1.402);
    this.#ybr.add(first, blue, red);
    const colours = [
      first + 1.402 * red,
      first - 0.344136 * blue - 0.714136 * red,
      first + 1.772 * blue,
    ];
    this.#pixels++;
    if (colours.some((colour) => colour < -RINGING || colour > 255 + RINGING)) this.#impossible++;
  }

  /** What the values tell; undefined where they do not. */
  told(): ToldColour | undefined {
    const rgb = this.#whyRgb();
    if (rgb !== undefined) return { colour: "RGB", because: rgb };
    const ybr = this.#whyYbr();
    return ybr === undefined ? undefined : { colour: "YBR_FULL", because: ybr };
  }

  #whyRgb(): string | undefined {
    const [rgb, ybr] = [this.#rgb, this.#ybr];
    const share = this.#impossible / this.#pixels;
    const isImpossible =
      share >= SURELY_IMPOSSIBLE || (share >= IMPOSSIBLE && rgb.isNarrower(NARROWER, ybr));
    if (isImpossible)
      return `as YBR_FULL ${Math.round(100 * share)} % of the pixels would be no colours`;
    const isGrey = rgb.fromGrey <= GREY && ybr.fromGrey >= COLOURED;
    const isNearer =
      rgb.fromGrey * MUCH_NARROWER <= ybr.fromGrey && rgb.isNarrower(MUCH_NARROWER, ybr);
    return isGrey || isNearer ? "the three agree" : undefined;
  }

  #whyYbr(): string | undefined {
    const [rgb, ybr] = [this.#rgb, this.#ybr];
    const share = this.#impossible / this.#pixels;
    if (share > POSSIBLE) return undefined;
    const isGrey = ybr.fromGrey <= GREY && rgb.fromGrey >= COLOURED;
    const isNarrow = ybr.fromGrey <= FURTHER * rgb.fromGrey && ybr.isNarrower(NARROWER, rgb);
    if (isGrey || isNarrow)
      return "the second and third lie around the middle and are narrower than the first";
    const isWide =
      share <= WIDE_POSSIBLE &&
      Math.max(Math.abs(ybr.mean(1)), Math.abs(ybr.mean(2))) <= MIDDLE &&
      ybr.luminance >= LEAST_SPREAD &&
      ybr.isApart;
    return isWide
      ? "the second and third lie around the middle, and no two of the three rise and fall together"
      : undefined;
  }
}
