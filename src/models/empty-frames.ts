/**
 * Frames that hold no image: Pixel Padding throughout (PS3.3 C.7.5.1.1.2), or one value throughout
 * or from some row on, as a file whose copy broke off and was filled up has it. A volume with such
 * a slice looks whole.
 */
import { errors, RadserveError } from "../base/errors.js";
import { breaksOff, isConstant, lastRow } from "../images/dicom/decode-check.js";
import { volumeOf } from "../images/dicom/volume.js";
import { ANY_STACK, type Image, type PixelFormat, type Warning } from "../images/image.js";
import { someValue } from "../images/stored-values.js";

/** A frame with so small a part of image among Pixel Padding shows nothing. */
const NEARLY_NONE = 0.001;
/**
 * So many values in one frame come from noise. A phantom that a program drew has fewer, and slices
 * of one value are right in it.
 */
const VALUES_OF_NOISE = 16;
/** Frames that a message lists. */
const LISTED = 10;

/** What of an image is empty, as its frames are decoded. */
export class EmptyFrames {
  /** From 0. */
  readonly #padded: number[] = [];
  readonly #nearlyPadded: number[] = [];
  /** Of one value, padding or not. */
  readonly #blank: number[] = [];
  /** The values of those, as their bytes. */
  readonly #blankValues = new Set<string>();
  /** Those with as many values as noise gives. */
  readonly #noisy = new Set<number>();
  /** Those that break off, with the rows in which they do. */
  readonly #cut = new Map<number, number>();
  /** The last rows of others that are not 0 throughout. */
  readonly #lastRows = new Set<number>();

  constructor(private readonly image: Image) {}

  /** @param data the stored values of the frame */
  look(frame: number, data: Uint8Array): void {
    const { format } = this.image;
    const pixelBytes = (format.samplesPerPixel * format.bitsAllocated) / 8;
    const found = imagePixels(this.image, frame, data);
    if (found === 0) this.#padded.push(frame);
    else if (found !== undefined) this.#nearlyPadded.push(frame);
    if (found === 0 || isConstant(data, pixelBytes)) {
      this.#blank.push(frame);
      this.#blankValues.add(String(data.subarray(0, pixelBytes)));
    } else {
      if (this.image.frameCount > 2 && hasNoise(data, format)) this.#noisy.add(frame);
      if (breaksOff(data, format) && hasNoise(data, format))
        this.#cut.set(frame, lastRow(data, format));
      else this.#lastRows.add(lastRow(data, format));
    }
  }

  /**
   * What a model is told of the frames, once all are decoded; it is given its background where they
   * are padding.
   * @param asVolume whether it measures across the frames: then a blank slice between others is a
   * hole, as a missing one is
   * @throws RadserveError decode_suspect if the image is padding throughout, has such a hole, or
   * if some of its frames break off
   */
  caveats(asVolume: boolean): Warning[] {
    const { image } = this;
    const broken = this.#broken();
    if (broken.length > 0) throw cutOff(image, broken);
    const cut = cutCaveats(image, [...this.#cut.keys()]);
    const padding = paddingCaveats(image.frameCount, this.#padded, this.#nearlyPadded);
    const blank = this.#blank.filter((frame) => !this.#padded.includes(frame));
    if (this.#blank.length === image.frameCount) {
      const isOneValue = this.#padded.length === 0 && this.#blankValues.size === 1;
      return isOneValue && !mayBeEmpty(image) ? [blankThroughout(blank)] : padding;
    }
    const between =
      asVolume && this.#blank.length > 0 ? betweenOthers(image, this.#blank, this.#noisy) : [];
    if (between.length > 0 && !mayBeEmpty(image)) throw holed(image, between);
    if (blank.length === 0) return [...padding, ...cut];
    const message =
      `${counted(blank, image.frameCount)} one value throughout (${listed(blank)}), and others are not. Ends of a stack may be, in MR; ` +
      "a file whose copy broke off and was filled up looks the same. Check them at the source.";
    return [...padding, ...cut, { code: "blank_frame", message }];
  }

  /**
   * Frames of which nothing but a copy that broke off is the cause. What all or most frames have in
   * common comes of how they were made; and where an image was turned or moved by a program, its
   * border ends in a row of its own in some frames, and within that row in others.
   */
  #broken(): number[] {
    const { image } = this;
    if (2 * this.#cut.size >= image.frameCount || isDerived(image)) return [];
    const isBorder = (row: number) => [row - 1, row, row + 1].some((at) => this.#lastRows.has(at));
    return [...this.#cut].flatMap(([frame, row]) => (isBorder(row) ? [] : [frame]));
  }
}

/**
 * How many pixels of a grey frame are image and no Pixel Padding, if they are nearly none;
 * undefined if they are more, or if the frame names no padding.
 */
function imagePixels(image: Image, frame: number, data: Uint8Array): number | undefined {
  const { padding } = image.interpretation(frame);
  if (padding === undefined) return undefined;
  const { rows, columns } = image.format;
  let found = 0;
  const isMore = () => ++found >= Math.max(2, rows * columns * NEARLY_NONE);
  return someValue(data, image.format, padding, isMore) ? undefined : found;
}

function paddingCaveats(
  frames: number,
  padded: readonly number[],
  nearly: readonly number[],
): Warning[] {
  const named = "(PixelPaddingValue, PixelPaddingRangeLimit)";
  const found = `${counted(padded, frames)} Pixel Padding throughout ${named}`;
  if (padded.length === frames)
    throw errors.decode_suspect(
      `Expected an image, but ${found}: nothing of it is image. Correct the attributes at the source; nothing was computed.`,
      { reason: "padding_only" },
    );
  // Corners of oblique stacks are in the patient by a few pixels too
  if (padded.length + nearly.length === frames)
    return [
      {
        code: "padding_only",
        message: `All but a few pixels are Pixel Padding, in every frame ${named}: nearly nothing is image.`,
      },
    ];
  if (padded.length === 0) return [];
  return [{ code: "padding_only", message: `${found}: nothing of them is image.` }];
}

/** Whether a grey frame has as many values as noise gives. */
function hasNoise(data: Uint8Array, format: PixelFormat): boolean {
  if (format.samplesPerPixel > 1) return true;
  const values = new Set<number>();
  return someValue(data, format, undefined, (value) => values.add(value).size >= VALUES_OF_NOISE);
}

/**
 * Blank frames between others of the stack that have noise, in its order; none where there is no
 * stack.
 */
function betweenOthers(
  image: Image,
  blank: readonly number[],
  noisy: ReadonlySet<number>,
): number[] {
  const order = stackOf(image);
  const places = order.flatMap((frame, place) => (noisy.has(frame) ? [place] : []));
  const [first = 0, last = 0] = [places[0], places.at(-1)];
  return order.filter((frame, place) => place > first && place < last && blank.includes(frame));
}

/** The frames along the stack, however even it is. */
function stackOf(image: Image): readonly number[] {
  try {
    return volumeOf(image, ANY_STACK).frames;
  } catch (error) {
    if (error instanceof RadserveError && error.code === "series_invalid") return [];
    throw error;
  }
}

const isDerived = ({ attributes }: Image): boolean =>
  attributes?.strings("ImageType")?.[0] === "DERIVED";

/**
 * Whether slices without anything are usual: maps of what was found, counts, doses, and scanners of
 * PET that say so with a slope of 0.
 */
function mayBeEmpty(image: Image): boolean {
  const { units } = image.interpretation(0);
  const isMap = isDerived(image) && units !== "HU";
  // Counts and doses may be 0 throughout a slice
  const isCounted = ["NM", "RTDOSE"].includes(image.attributes?.string("Modality") ?? "");
  return isMap || isCounted || image.warnings.some(({ code }) => code === "empty_slice");
}

/** Nothing was imaged, or what was got lost: which of them no attribute says. */
function blankThroughout(blank: readonly number[]): Warning {
  const message =
    `${counted(blank, blank.length)} one value throughout: nothing can be seen in the image. ` +
    "A file whose copy broke off and was filled up looks the same. Check it at the source.";
  return { code: "blank_frame", message };
}

function holed({ frameCount }: Image, frames: readonly number[]): RadserveError {
  return errors.decode_suspect(
    `Expected image in every slice between others, found ${frames.length} of ${frameCount} that are one value throughout (${listed(frames)}), as files ` +
      "are whose copy broke off: the volume would have a hole. Send the slices again from their source; nothing was computed.",
    { reason: "blank_slice", frames: frames.slice(0, LISTED).map((frame) => frame + 1) },
  );
}

const cutSaid = ({ frameCount }: Image, frames: readonly number[]): string =>
  `${frames.length} of ${frameCount} ${frameCount === 1 ? "frame" : "frames or slices"} that ${frames.length === 1 ? "ends" : "end"} within a row and ` +
  `${frames.length === 1 ? "is" : "are"} zeros from there on (${listed(frames)}), as a file is whose copy broke off and was filled up`;

function cutOff(image: Image, frames: readonly number[]): RadserveError {
  return errors.decode_suspect(
    `Expected image to the last row, found ${cutSaid(image, frames)}. Send the file again from its source; nothing was computed.`,
    { reason: "cut_frame", frames: frames.slice(0, LISTED).map((frame) => frame + 1) },
  );
}

function cutCaveats(image: Image, frames: readonly number[]): Warning[] {
  if (frames.length === 0) return [];
  const message = `The image has ${cutSaid(image, frames)}. Check it at the source.`;
  return [{ code: "cut_frame", message }];
}

const counted = (frames: readonly number[], all: number): string =>
  `${frames.length} of ${all} ${all === 1 ? "frame" : "frames or slices"} ${frames.length === 1 ? "is" : "are"}`;

/** "frames 1, 2 and 9 more", from 1. */
function listed(frames: readonly number[]): string {
  const numbers = frames.slice(0, LISTED).map((frame) => frame + 1);
  const more = frames.length - numbers.length;
  const text = numbers.join(", ") + (more > 0 ? ` and ${more} more` : "");
  return `${frames.length === 1 ? "frame" : "frames"} ${text}`;
}
