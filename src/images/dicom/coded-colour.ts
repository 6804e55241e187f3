/**
 * The colours of decoded frames (PS3.3 C.7.6.3.1.2, PS3.5 8.2): without what the codec undoes, and
 * by attribute and codestream together. Where the two contradict each other, the values decide
 * (colour-values.ts).
 */
import { errors, type RadserveError } from "../../base/errors.js";
import {
  warn,
  type Codec,
  type PhotometricInterpretation,
  type PixelFormat,
  type Warning,
} from "../image.js";
import type { CodestreamHeader } from "./codestream.js";
import { ColourValues, decidingFrames } from "./colour-values.js";

/** What the components of frames are; `doubt` says in words why only their values can tell. */
export type CodedColour = PhotometricInterpretation | { doubt: string };

/**
 * The photometric interpretation after decoding: JPEG 2000 and JPEG XL undo their transforms, so
 * those end as RGB.
 */
export function baseColour(tag: string): PhotometricInterpretation {
  return isTransform(tag) || tag === "XYB" ? "RGB" : (tag as PhotometricInterpretation);
}

const isTransform = (tag: string) => tag === "YBR_ICT" || tag === "YBR_RCT";

/**
 * The colours of compressed frames.
 * @param tag PhotometricInterpretation in capitals
 */
export function decodedColour(
  tag: string,
  header: CodestreamHeader,
  warnings: Warning[],
): CodedColour {
  const { kind, components, componentTransform, fromYcbcr, colour, subsampled } = header;
  const believed = (coded: PhotometricInterpretation): PhotometricInterpretation => {
    warn(
      warnings,
      "photometric_mismatch",
      `PhotometricInterpretation is ${tag} but the compressed frames are ${coded}; the frames were believed.`,
    );
    return coded;
  };
  // libjxl codes grey pictures in XYB too
  if (components !== 3) return tag === "XYB" ? believed("MONOCHROME2") : baseColour(tag);
  const told = tag === "YBR_FULL_422" || tag === "YBR_PARTIAL_420" ? "YBR_FULL" : baseColour(tag);
  if (componentTransform) {
    if (isTransform(tag)) return "RGB";
    if (told !== "RGB") return { doubt: "the compressed frames have a transform to RGB" };
    warn(
      warnings,
      "photometric_mismatch",
      "PhotometricInterpretation is RGB but the compressed frames have a component transform, which YBR_RCT or YBR_ICT names; it was undone, and the colours are RGB.",
    );
    return "RGB";
  }
  // JPEG XL undoes its own, and other codings have none of these without a transform
  const isForeign = kind !== "jpeg-xl" && (isTransform(tag) || tag === "XYB");
  // Only chrominance has fewer samples
  if (subsampled && colour !== "RGB") return told === "YBR_FULL" ? told : believed("YBR_FULL");
  if (isForeign && colour === undefined)
    return { doubt: "the compressed frames have no such transform" };
  const marked = colour === undefined ? told : colour === "RGB" ? "RGB" : "YBR_FULL";
  if (marked !== told || isForeign) {
    if (fromYcbcr) return believed(marked);
    return { doubt: `the compressed frames are marked as ${marked}` };
  }
  // Its luminance is 16 to 235, in MPEG alone (PS3.3 C.7.6.3.1.2); other codecs have the full range
  return tag === "YBR_PARTIAL_420" ? believed(marked) : marked;
}

/**
 * The colours of frames that no codec with colours of its own has coded: native ones and RLE.
 * @param isFull each pixel has its three samples
 */
export function uncodedColour(tag: string, isFull: boolean): CodedColour {
  if (isTransform(tag) || tag === "XYB")
    return { doubt: "the frames are not compressed with such a transform" };
  if (isFull && (tag === "YBR_FULL_422" || tag === "YBR_PARTIAL_420"))
    return { doubt: "the frames have three full samples a pixel" };
  return baseColour(tag);
}

/** The doubt about the colours of frames; undefined where there is none. */
export const doubtOf = (colour: CodedColour): string | undefined =>
  typeof colour === "object" ? colour.doubt : undefined;

/** The same where there is none, and else RGB until the values are known. */
export const foreseen = (colour: CodedColour): PhotometricInterpretation =>
  typeof colour === "object" ? "RGB" : colour;

/** Frames about whose colours there is a doubt. */
interface DoubtfulFrames {
  tag: string;
  doubt: string;
  format: PixelFormat;
  frameCount: number;
  codec: Codec | undefined;
  read: (frame: number) => Promise<{ data: Uint8Array }>;
}

/** A frame may take so much memory to decode and hold, before anybody has counted it. */
const MOST_BYTES = 2 ** 28;

/**
 * Decides by the values of the frames what their components are, once for all frames.
 * @throws RadserveError corrupt_image where the values do not tell; what decoding throws
 */
export async function colourByValues(
  { tag, doubt, format, frameCount, codec, read }: DoubtfulFrames,
  warnings: Warning[],
): Promise<PhotometricInterpretation> {
  const found = `PhotometricInterpretation is ${tag} but ${doubt}`;
  const samples = format.rows * format.columns * format.samplesPerPixel;
  if ((codec?.bytes ?? 0) + (samples * format.bitsAllocated) / 8 > MOST_BYTES)
    throw unknownColours(`${found}, and they are too large to look at their values`);
  const values = new ColourValues();
  for (const frame of decidingFrames(frameCount)) values.add((await read(frame)).data, format);
  const told = values.told();
  if (told === undefined)
    throw unknownColours(`${found}, and the values do not tell RGB from YBR_FULL`);
  warn(
    warnings,
    "photometric_mismatch",
    `${found}; the components were taken as ${told.colour} by their values: ${told.because}.`,
  );
  return told.colour;
}

function unknownColours(found: string): RadserveError {
  return errors.corrupt_image(
    `${found}: the colours are not known. Correct the attribute to what they are, RGB or YBR_FULL.`,
    { attribute: "PhotometricInterpretation" },
  );
}
