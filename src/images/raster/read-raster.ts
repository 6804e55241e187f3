/** PNG, JPEG and TIFF as Images, through sharp: values as stored, 8 or 16 bits, upright, colour profiles left out. */
import { createHash } from "node:crypto";
import sharp, { type Metadata, type Sharp } from "sharp";
import { readCodestream, type CodestreamHeader } from "../dicom/codestream.js";
import { RadserveError } from "../../base/errors.js";
import type { Image, Interpretation, PixelFormat, SourceIdentity, TransformStep, Warning } from "../image.js";
import { pngIsEnded, readPngHeader } from "./png-chunks.js";
import { readTiffPages } from "./tiff-tags.js";

type RasterFormat = "png" | "jpeg" | "tiff";

/** 134 megapixels, as of DICOM frames: more than any radiograph, less than what exhausts a server. */
const PIXEL_LIMIT = 1 << 27;

const SIGNATURES: readonly [RasterFormat, readonly number[]][] = [
  ["png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ["jpeg", [0xff, 0xd8, 0xff]],
  ["tiff", [0x49, 0x49, 0x2a, 0x00]],
  ["tiff", [0x4d, 0x4d, 0x00, 0x2a]],
  ["tiff", [0x49, 0x49, 0x2b, 0x00]],
  ["tiff", [0x4d, 0x4d, 0x00, 0x2b]],
];

/** Which of the three the first bytes begin; undefined where none. */
export function rasterFormat(head: Uint8Array): RasterFormat | undefined {
  return SIGNATURES.find(([, bytes]) => bytes.every((byte, i) => head[i] === byte))?.[0];
}

const NO_MEANING: Interpretation = {
  modality: { kind: "identity" },
  units: undefined,
  voi: [],
  padding: undefined,
  palette: undefined,
};

const SAYS_TRUNCATED = /premature end|truncat|unexpected end|read error|not enough data|out of data/i;

function failure(error: unknown, format: RasterFormat, bytes: Uint8Array): RadserveError {
  const reason = error instanceof Error ? error.message : String(error);
  const name = format.toUpperCase();
  if (/exceeds pixel limit/i.test(reason))
    return new RadserveError(
      "unsupported_format",
      `The ${name} image has more than ${PIXEL_LIMIT} pixels, the most that is read.`,
    );
  const code = isCutShort(bytes, format, reason) ? "truncated_image" : "corrupt_image";
  return new RadserveError(
    code,
    code === "truncated_image"
      ? `The ${name} file ends before its pixels do. Send it again from its source.`
      : `The ${name} file cannot be decoded. It is damaged.`,
    undefined,
    { cause: error },
  );
}

/** PNG and JPEG have an end that is there or is not; a TIFF has none, and only the decoder can say. */
function isCutShort(bytes: Uint8Array, format: RasterFormat, reason: string): boolean {
  if (format === "png") return !pngIsEnded(bytes);
  if (format === "tiff") return SAYS_TRUNCATED.test(reason);
  try {
    return !readCodestream(bytes).ended;
  } catch (error) {
    return error instanceof RadserveError && error.code === "truncated_image";
  }
}

/** JPEG of other processes than the decoder's is whole and yet cannot be decoded. */
function checkJpeg(bytes: Uint8Array): void {
  let header: CodestreamHeader;
  try {
    header = readCodestream(bytes);
  } catch {
    // The decoder judges what is damaged
    return;
  }
  const { precision, lossless, kind } = header;
  if (kind === "jpeg" && !lossless && precision === 8) return;
  throw new RadserveError(
    "unsupported_format",
    `The JPEG image is ${kind === "jpeg-ls" ? "JPEG-LS" : lossless ? "lossless JPEG" : "JPEG"} of ${precision} bits a sample; ` +
      "supported are baseline and progressive JPEG of 8 bits. Send it as DICOM or PNG.",
  );
}

function open(bytes: Uint8Array, page: number): Sharp {
  return sharp(bytes, {
    failOn: "error",
    limitInputPixels: PIXEL_LIMIT,
    // The values of the file, not what a profile makes of them
    ignoreIcc: true,
    page,
  });
}

/** What the file's own header says and the decoder does not. */
interface Declared {
  /** Undefined where the decoder has to say. */
  pages: number | undefined;
  /** Stored white is zero: the decoder inverts it, which is undone. */
  inverted: boolean;
  /** Bits of a stored sample or index. */
  bits: number;
  palette: boolean;
  animated: boolean;
}

function declaredBy(bytes: Uint8Array, format: RasterFormat): Declared {
  const plain = { pages: undefined, inverted: false, bits: 8, palette: false, animated: false };
  if (format === "png") return { ...plain, ...readPngHeader(bytes) };
  if (format === "jpeg") {
    checkJpeg(bytes);
    return plain;
  }
  const pages = readTiffPages(bytes);
  const { photometric = 1, bits = 8 } = pages[0] ?? {};
  return { ...plain, pages: pages.length, bits, inverted: photometric === 0, palette: photometric === 3 };
}

/** How samples of fewer bits than eight, and indices, became eight-bit samples. */
function stepsOf(declared: Declared, layout: Layout): TransformStep[] {
  const { bits, palette } = declared;
  if (palette)
    return [{ step: layout.samples === 3 ? "palette_to_rgb" : "palette_to_grey", bits, to_bits: 8 }];
  return bits < 8 ? [{ step: "scale_samples", bits, to_bits: 8, factor: 255 / (2 ** bits - 1) }] : [];
}

interface Layout {
  colourspace: "b-w" | "srgb" | "grey16" | "rgb16";
  samples: 1 | 3;
  bits: 8 | 16;
}

function layoutOf(metadata: Metadata, format: RasterFormat): Layout {
  const { space, depth } = metadata;
  const bits = depth === "uchar" ? 8 : depth === "ushort" ? 16 : undefined;
  const grey = space === "b-w" || space === "grey16";
  if (bits === undefined || !(grey || space === "srgb" || space === "rgb" || space === "rgb16"))
    throw new RadserveError(
      "unsupported_format",
      `The ${format.toUpperCase()} image is ${space} with samples of type ${depth}; supported are greyscale and RGB of ` +
        "8 or 16 bits. Convert it.",
    );
  if (grey) return { colourspace: bits === 8 ? "b-w" : "grey16", samples: 1, bits };
  return { colourspace: bits === 8 ? "srgb" : "rgb16", samples: 3, bits };
}

/**
 * Reads a PNG, JPEG or TIFF; pages of a TIFF are frames. An EXIF orientation is applied and recorded as a transform,
 * so coordinates are those of the upright picture; transparency is dropped with a warning. A TIFF whose white is zero
 * keeps its stored values and is MONOCHROME1. Samples of 1, 2 and 4 bits are spread to 0..255, and said to be.
 * Throws RadserveError: unsupported_format, corrupt_image, truncated_image.
 */
export async function readRaster(bytes: Uint8Array, format: RasterFormat): Promise<Image> {
  const declared = declaredBy(bytes, format);
  let metadata: Metadata;
  try {
    metadata = await open(bytes, 0).metadata();
  } catch (error) {
    throw failure(error, format, bytes);
  }
  if (metadata.format !== format)
    throw new RadserveError(
      "unsupported_format",
      `The file begins like ${format.toUpperCase()} but is none.`,
    );
  if (declared.pages !== undefined && declared.pages !== (metadata.pages ?? 1))
    throw new RadserveError(
      "corrupt_image",
      `The TIFF file has ${declared.pages} directories, of which ${metadata.pages ?? 1} are pages. It is damaged.`,
    );
  const image = new RasterImage(bytes, format, metadata, declared);
  // PNG, JPEG and TIFF have no frame table to check the length against: decoding is the only proof
  await image.frame(0);
  return image;
}

class RasterImage implements Image {
  readonly source: SourceIdentity;
  readonly format: PixelFormat;
  readonly frameCount: number;
  readonly attributes = undefined;
  readonly warnings: Warning[] = [];
  readonly transforms: TransformStep[] = [];
  readonly #bytes: Uint8Array;
  readonly #layout: Layout;
  readonly #kind: RasterFormat;
  readonly #inverted: boolean;
  readonly #hasAlpha: boolean;
  /** The frame decoded last: reading decodes the first one, which is mostly the only one. */
  #last: { index: number; data: Uint8Array } | undefined;

  constructor(bytes: Uint8Array, kind: RasterFormat, metadata: Metadata, declared: Declared) {
    this.#bytes = bytes;
    this.#kind = kind;
    this.#layout = layoutOf(metadata, kind);
    this.#inverted = declared.inverted;
    this.#hasAlpha = metadata.hasAlpha;
    this.frameCount = declared.pages ?? 1;
    const { width, height } = metadata.autoOrient;
    this.format = {
      rows: height,
      columns: width,
      samplesPerPixel: this.#layout.samples,
      bitsAllocated: this.#layout.bits,
      bitsStored: this.#layout.bits,
      highBit: this.#layout.bits - 1,
      signed: false,
      float: false,
      photometricInterpretation:
        this.#layout.samples === 3 ? "RGB" : this.#inverted ? "MONOCHROME1" : "MONOCHROME2",
      packed422: false,
    };
    this.transforms.push(...stepsOf(declared, this.#layout));
    if (declared.animated)
      this.warnings.push({
        code: "animation_dropped",
        message: "The PNG is animated; only its first picture was read.",
      });
    const orientation = metadata.orientation ?? 1;
    if (orientation !== 1) this.transforms.push({ step: "exif_orientation", orientation });
    this.source = {
      format: kind,
      fileSha256: createHash("sha256").update(bytes).digest("hex"),
      bytes: bytes.length,
      sopClassUid: undefined,
      sopInstanceUid: undefined,
      studyInstanceUid: undefined,
      seriesInstanceUid: undefined,
      transferSyntaxUid: undefined,
      modality: undefined,
    };
  }

  async frame(index: number): Promise<Uint8Array> {
    if (!Number.isInteger(index) || index < 0 || index >= this.frameCount)
      throw new RadserveError(
        "bad_request",
        `Expected a frame from 0 to ${this.frameCount - 1} but received ${index}.`,
      );
    if (this.#last?.index !== index) this.#last = { index, data: await this.#decode(index) };
    return this.#last.data;
  }

  async #decode(index: number): Promise<Uint8Array> {
    const { samples, bits, colourspace } = this.#layout;
    const depth = bits === 8 ? "uchar" : "ushort";
    try {
      const { data, info } = await open(this.#bytes, index)
        .autoOrient()
        .toColourspace(colourspace)
        .raw({ depth })
        .toBuffer({ resolveWithObject: true });
      const channels = info.channels as number;
      const isSize = info.width === this.format.columns && info.height === this.format.rows;
      if (!isSize || (channels !== samples && channels !== samples + 1))
        throw new RadserveError(
          "unsupported_format",
          `Page ${index + 1} differs from the first in size or colour. Split the file into single pages.`,
        );
      if (channels > samples) return this.#withoutAlpha(data, samples, bits);
      if (this.#hasAlpha) this.#noteAlpha(await this.#alpha(index));
      if (this.#inverted) invert(data);
      return data;
    } catch (error) {
      throw error instanceof RadserveError ? error : failure(error, this.#kind, this.#bytes);
    }
  }

  /** Of eight-bit grey pictures: the decoder leaves it out of these, and of these alone. */
  async #alpha(index: number): Promise<boolean> {
    const alpha = await open(this.#bytes, index).extractChannel("alpha").raw().toBuffer();
    return alpha.every((value) => value === 0xff);
  }

  #withoutAlpha(data: Uint8Array, samples: number, bits: 8 | 16): Uint8Array {
    const bytes = bits / 8;
    const from = bytes * (samples + 1);
    const kept = bytes * samples;
    const pixels = data.length / from;
    const out = new Uint8Array(pixels * kept);
    let opaque = true;
    for (let i = 0; i < pixels; i++) {
      for (let b = 0; b < kept; b++) out[i * kept + b] = data[i * from + b] ?? 0;
      for (let b = kept; b < from; b++) opaque &&= data[i * from + b] === 0xff;
    }
    this.#noteAlpha(opaque);
    return out;
  }

  #noteAlpha(opaque: boolean): void {
    if (opaque || this.warnings.some((w) => w.code === "alpha_dropped")) return;
    this.warnings.push({
      code: "alpha_dropped",
      message: "The image is partly transparent; its alpha channel was dropped.",
    });
  }

  interpretation(): Interpretation {
    return NO_MEANING;
  }

  spacing(): undefined {
    return undefined;
  }

  plane(): undefined {
    return undefined;
  }

  pixelAspect(): number {
    return 1;
  }
}

/** Undoes in place what the decoder did to a picture whose white is zero. */
function invert(data: Uint8Array): void {
  // Of 16 bits too: 65535 - v is v with every bit turned, byte by byte
  for (let i = 0; i < data.length; i++) data[i] = 0xff - (data[i] ?? 0);
}
