/**
 * Reads what PNG, JPEG and TIFF files declare and the decoder does not tell, before a pixel is
 * decoded.
 */
import { errors, RadserveError } from "../../base/errors.js";
import { endsInZeros, readCodestream, type CodestreamHeader } from "../dicom/codestream.js";
import { chunksBeforePixels, HEADER_AT, INDEXED, pngHead } from "./png-chunks.js";
import { PIXEL_LIMIT } from "./raster-orders.js";
import { readTiffPages } from "./tiff-tags.js";

export type RasterFormat = "png" | "jpeg" | "tiff";

const SIGNATURES: readonly [RasterFormat, readonly number[]][] = [
  ["png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ["jpeg", [0xff, 0xd8, 0xff]],
  ["tiff", [0x49, 0x49, 0x2a, 0x00]],
  ["tiff", [0x4d, 0x4d, 0x00, 0x2a]],
  ["tiff", [0x49, 0x49, 0x2b, 0x00]],
  ["tiff", [0x4d, 0x4d, 0x00, 0x2b]],
];

/** The format that the first bytes begin; undefined if it is none of the three. */
export function rasterFormat(head: Uint8Array): RasterFormat | undefined {
  return SIGNATURES.find(([, bytes]) => bytes.every((byte, i) => head[i] === byte))?.[0];
}

export interface Declared {
  /** Undefined if the decoder has to say. */
  pages: number | undefined;
  /** Stored white is zero: the decoder inverts it, which is undone. */
  inverted: boolean;
  /** Bits of a stored sample or index. */
  bits: number;
  palette: boolean;
  animated: boolean;
  /** Of each page, or of all: height of a stored pixel divided by its width. */
  pixelAspects: number[];
}

export function declaredBy(bytes: Uint8Array, format: RasterFormat): Declared {
  const plain = {
    pages: undefined,
    inverted: false,
    bits: 8,
    palette: false,
    animated: false,
    pixelAspects: [1],
  };
  if (format === "png") return { ...plain, ...readPngHeader(bytes) };
  if (format === "jpeg") return { ...plain, pixelAspects: [aspectOf(checkJpeg(bytes)?.density)] };
  const pages = readTiffPages(bytes);
  const { photometric = 1, bits = 8 } = pages[0] ?? {};
  return {
    ...plain,
    pages: pages.length,
    bits,
    inverted: photometric === 0,
    palette: photometric === 3,
    pixelAspects: pages.map(({ density }) => aspectOf(density)),
  };
}

/** Samples of a pixel of JPEG, at most. */
const MOST_SAMPLES = 3;

/**
 * Bytes of the first frame when it is decoded, as the file declares it; the most that is read of a
 * JPEG whose header cannot be read, for there the decoder may still find a picture. 0 where nothing
 * will be decoded.
 */
export function firstFrameBytes(bytes: Uint8Array, format: RasterFormat): number {
  try {
    const { pixels, bytesEach } = SIZE_READERS[format](bytes);
    return pixels > PIXEL_LIMIT ? 0 : pixels * bytesEach;
  } catch {
    return format === "jpeg" ? PIXEL_LIMIT * MOST_SAMPLES : 0;
  }
}

interface DeclaredSize {
  pixels: number;
  /** Bytes of one pixel as it is decoded. */
  bytesEach: number;
}

const SIZE_READERS: Record<RasterFormat, (bytes: Uint8Array) => DeclaredSize> = {
  png: pngSize,
  jpeg: jpegSize,
  tiff: tiffSize,
};

const bytesOfSamples = (samples: number, bits: number): number =>
  bits > 8 ? 2 * samples : samples;

/**
 * The IHDR chunk (PNG third edition, section 11.2.1): colour types 2 and 6 are colour, 3 is a
 * palette.
 */
function pngSize(bytes: Uint8Array): DeclaredSize {
  const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const samples = [2, 3, 6].includes(data.readUInt8(HEADER_AT + 17)) ? 3 : 1;
  return {
    pixels: data.readUInt32BE(HEADER_AT + 8) * data.readUInt32BE(HEADER_AT + 12),
    bytesEach: bytesOfSamples(samples, data.readUInt8(HEADER_AT + 16)),
  };
}

function jpegSize(bytes: Uint8Array): DeclaredSize {
  const { rows, columns, components } = readCodestream(bytes);
  return { pixels: rows * columns, bytesEach: Math.min(components, MOST_SAMPLES) };
}

function tiffSize(bytes: Uint8Array): DeclaredSize {
  const { width = 0, height = 0, photometric = 1, bits = 8 } = readTiffPages(bytes)[0] ?? {};
  const samples = photometric === 0 || photometric === 1 ? 1 : 3;
  return { pixels: width * height, bytesEach: bytesOfSamples(samples, bits) };
}

/**
 * JPEG of other processes than the decoder's is whole and yet cannot be decoded.
 * @returns its header; undefined if it is damaged
 */
function checkJpeg(bytes: Uint8Array): CodestreamHeader | undefined {
  // Decoders make a picture of it, and some say nothing
  if (endsInZeros(bytes))
    throw errors.truncated_image(
      "The JPEG file ends in zeros and without its end marker: its copy broke off and was filled up. Send it again from its source.",
    );
  let header: CodestreamHeader;
  try {
    header = readCodestream(bytes);
  } catch {
    // The decoder judges what is damaged
    return undefined;
  }
  const { precision, lossless, kind } = header;
  if (kind === "jpeg" && !lossless && precision === 8) return header;
  throw errors.unsupported_format(
    `The JPEG image is ${kind === "jpeg-ls" ? "JPEG-LS" : lossless ? "lossless JPEG" : "JPEG"} of ${precision} bits a sample; ` +
      "supported are baseline and progressive JPEG of 8 bits. Send it as DICOM or PNG.",
  );
}

const SAYS_TRUNCATED =
  /premature end|truncat|unexpected end|read error|not enough data|out of data/i;

/**
 * PNG and JPEG have an end that is there or is not; a TIFF has none, and only the decoder can say.
 */
export function isCutShort(bytes: Uint8Array, format: RasterFormat, said: string): boolean {
  if (format === "png") return !pngIsEnded(bytes);
  // A JPEG may have its end marker before the end of its pixels
  if (SAYS_TRUNCATED.test(said)) return true;
  if (format === "tiff") return false;
  try {
    return !readCodestream(bytes).ended;
  } catch (error) {
    return error instanceof RadserveError && error.code === "truncated_image";
  }
}

/** An acTL chunk stands among the few chunks before the pixels. */
const MOST_CHUNKS = 1000;

/**
 * Reads what a PNG declares before its pixels (PNG third edition, W3C 2025). It checks nothing: the
 * decoder does.
 */
function readPngHeader(bytes: Uint8Array): Omit<Declared, "pages" | "inverted"> {
  const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let animated = false;
  let density: Density | undefined;
  let chunks = 0;
  for (const { type, from } of chunksBeforePixels(data)) {
    animated ||= type === "acTL";
    if (type === "pHYs" && from + 8 <= data.length)
      density = { across: data.readUInt32BE(from), down: data.readUInt32BE(from + 4) };
    chunks += 1;
    if (chunks === MOST_CHUNKS) break;
  }
  const { bits = 8, colourType } = pngHead(data) ?? {};
  return { bits, palette: colourType === INDEXED, animated, pixelAspects: [aspectOf(density)] };
}

/** Pixels for each unit across and down, whatever the unit is. */
type Density = NonNullable<CodestreamHeader["density"]>;

/** No device samples one direction so much finer than the other; such densities mean nothing. */
const MOST_ASPECT = 100;

/** Height of a pixel divided by its width; 1 where the densities say nothing. */
function aspectOf({ across, down }: Density = { across: 1, down: 1 }): number {
  const aspect = across / down;
  return aspect >= 1 / MOST_ASPECT && aspect <= MOST_ASPECT ? aspect : 1;
}

/** True if the end is there: the IEND chunk with its check sum, wherever it stands. */
function pngIsEnded(bytes: Uint8Array): boolean {
  const end = Buffer.from("IEND\xae\x42\x60\x82", "latin1");
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).lastIndexOf(end) >= 0;
}
