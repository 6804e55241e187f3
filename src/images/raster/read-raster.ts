/**
 * PNG, JPEG and TIFF as Images: values as stored, 8 or 16 bits, upright, colour profiles left out.
 * A decoder process decodes them; nothing that it says is believed without a check.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { asRadserveError, errors, RadserveError } from "../../base/errors.js";
import { DecodingFailed, decodeApart, type FileApart } from "../decoder/decoder.js";
import {
  checkedFrame,
  warn,
  type Image,
  type Interpretation,
  type PixelFormat,
  type SourceIdentity,
  type TransformStep,
  type Warning,
} from "../image.js";
import {
  declaredBy,
  firstFrameBytes,
  isCutShort,
  type Declared,
  type RasterFormat,
} from "./declared.js";
import {
  PIXEL_LIMIT,
  type Layout,
  type PixelsSaid,
  type RasterMetadata,
  type RasterOrder,
} from "./raster-orders.js";
import { withOrientations } from "./tiff-tags.js";

const NO_MEANING: Interpretation = {
  modality: { kind: "identity" },
  units: undefined,
  voi: [],
  padding: undefined,
  palette: undefined,
};

function failure(error: unknown, format: RasterFormat, bytes: Uint8Array): RadserveError {
  if (!(error instanceof DecodingFailed)) return asRadserveError(error);
  const said = error.message;
  const name = format.toUpperCase();
  if (/exceeds pixel limit/i.test(said))
    return errors.unsupported_format(
      `The ${name} image has more than ${PIXEL_LIMIT} pixels, the most that is read.`,
    );
  const code = isCutShort(bytes, format, said) ? "truncated_image" : "corrupt_image";
  return new RadserveError(
    code,
    code === "truncated_image"
      ? `The ${name} file ends before its pixels do. Send it again from its source.`
      : `The ${name} file cannot be decoded. It is damaged.`,
    undefined,
    { cause: error },
  );
}

const metadataSchema: z.ZodType<RasterMetadata> = z
  .object({
    format: z.string(),
    space: z.string(),
    depth: z.string(),
    hasAlpha: z.boolean(),
    orientation: z.int().min(1).max(8).optional(),
    pages: z.int().positive().optional(),
    width: z.int().positive(),
    height: z.int().positive(),
  })
  .refine(({ width, height }) => width * height <= PIXEL_LIMIT);

const pixelsSchema: z.ZodType<PixelsSaid> = z.object({
  width: z.int().positive(),
  height: z.int().positive(),
  channels: z.int().positive(),
  opaque: z.boolean(),
  inPalette: z.boolean(),
});

/** How samples of fewer bits than eight, and indices, became eight-bit samples. */
function stepsOf(declared: Declared, layout: Layout): TransformStep[] {
  const { bits, palette } = declared;
  if (palette)
    return [
      { step: layout.samples === 3 ? "palette_to_rgb" : "palette_to_grey", bits, to_bits: 8 },
    ];
  return bits < 8
    ? [{ step: "scale_samples", bits, to_bits: 8, factor: 255 / (2 ** bits - 1) }]
    : [];
}

function layoutOf(metadata: RasterMetadata, format: RasterFormat): Layout {
  const { space, depth } = metadata;
  const bits = depth === "uchar" ? 8 : depth === "ushort" ? 16 : undefined;
  const grey = space === "b-w" || space === "grey16";
  if (bits === undefined || !(grey || space === "srgb" || space === "rgb" || space === "rgb16"))
    throw errors.unsupported_format(
      `The ${format.toUpperCase()} image is ${space} with samples of type ${depth}; supported are greyscale and RGB of ` +
        "8 or 16 bits. Convert it.",
    );
  if (grey) return { colourspace: bits === 8 ? "b-w" : "grey16", samples: 1, bits };
  return { colourspace: bits === 8 ? "srgb" : "rgb16", samples: 3, bits };
}

/**
 * Frames in memory while one is decoded: what the decoder works on, what it sends, and what comes
 * from it.
 */
const FRAMES_AT_ONCE = 3;

/**
 * Bytes that reading the file takes in all processes beside its own, by its header: the file once
 * more, and its first frame.
 */
export function rasterBytes(bytes: Uint8Array, format: RasterFormat): number {
  return bytes.length + FRAMES_AT_ONCE * firstFrameBytes(bytes, format);
}

/**
 * Reads a PNG, JPEG or TIFF; pages of a TIFF are frames. An EXIF orientation is applied and
 * recorded as a transform, so coordinates are those of the upright picture; transparency is dropped
 * with a warning. A TIFF whose white is zero keeps its stored values and is MONOCHROME1. Samples of
 * 1, 2 and 4 bits are spread to 0..255, and said to be.
 * @param check asked while the decoder works; what it throws stops the decoder Throws
 * RadserveError: unsupported_format, corrupt_image, truncated_image; internal where the decoder
 * cannot be confined; what the check throws.
 */
export async function readRaster(
  bytes: Uint8Array,
  format: RasterFormat,
  check: () => void,
): Promise<Image> {
  const declared = declaredBy(bytes, format);
  const decodable = format === "tiff" ? withOrientations(bytes) : bytes;
  const file = decodeApart("raster", decodable, format.toUpperCase(), check);
  let metadata: RasterMetadata;
  try {
    const order: RasterOrder = { do: "metadata" };
    metadata = (await file.ask(order, metadataSchema, () => 0)).said;
  } catch (error) {
    throw failure(error, format, bytes);
  }
  if (metadata.format !== format)
    throw errors.unsupported_format(
      `The file starts like a ${format.toUpperCase()} but is not a valid one.`,
    );
  if (declared.pages !== undefined && declared.pages !== (metadata.pages ?? 1))
    throw errors.corrupt_image(
      `The TIFF file has ${declared.pages} directories, of which ${metadata.pages ?? 1} are pages. It is damaged.`,
    );
  const image = new RasterImage({ bytes, file, kind: format, metadata, declared });
  if (decodable !== bytes)
    warn(
      image.warnings,
      "value_ignored",
      "Orientation should be from 1 to 8 (TIFF 6.0) but is not; it was read as absent.",
    );
  // PNG, JPEG and TIFF have no frame table to check the length against: decoding is the only proof
  await image.frame(0);
  if (image.frameCount === 1) file.release();
  return image;
}

interface RasterFile {
  bytes: Uint8Array;
  /** The same, for the decoder. */
  file: FileApart;
  kind: RasterFormat;
  metadata: RasterMetadata;
  declared: Declared;
}

class RasterImage implements Image {
  readonly source: SourceIdentity;
  readonly format: PixelFormat;
  readonly frameCount: number;
  readonly attributes = undefined;
  readonly interpretation = () => NO_MEANING;
  readonly spacing = () => undefined;
  readonly plane = () => undefined;
  readonly pixelAspect: (frame: number) => number;
  readonly warnings: Warning[] = [];
  readonly transforms: TransformStep[] = [];
  readonly #layout: Layout;
  readonly #hasAlpha: boolean;
  /** The frame decoded last: reading decodes the first one, which is mostly the only one. */
  #last: { index: number; data: Uint8Array } | undefined;

  constructor(private readonly of: RasterFile) {
    const { bytes, kind, metadata, declared } = of;
    this.#layout = layoutOf(metadata, kind);
    this.#hasAlpha = metadata.hasAlpha;
    this.frameCount = declared.pages ?? 1;
    const { width, height } = metadata;
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
        this.#layout.samples === 3 ? "RGB" : declared.inverted ? "MONOCHROME1" : "MONOCHROME2",
      packed422: false,
    };
    this.transforms.push(...stepsOf(declared, this.#layout));
    if (declared.animated)
      warn(
        this.warnings,
        "animation_dropped",
        "The PNG is animated; only its first picture was read.",
      );
    const orientation = metadata.orientation ?? 1;
    if (orientation !== 1) this.transforms.push({ step: "exif_orientation", orientation });
    // From 5 on the picture was turned by a quarter, and its pixels with it
    const aspects = declared.pixelAspects.map((one) => (orientation < 5 ? one : 1 / one));
    this.pixelAspect = (frame) => aspects[frame] ?? 1;
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
    checkedFrame(index, this.frameCount);
    if (this.#last?.index !== index) this.#last = { index, data: await this.#decode(index) };
    return this.#last.data;
  }

  async #decode(index: number): Promise<Uint8Array> {
    const {
      rows: height,
      columns: width,
      samplesPerPixel: samples,
      bitsAllocated: bits,
    } = this.format;
    const { bytes, file, kind, declared } = this.of;
    const same = (found: PixelsSaid) =>
      found.width === width && found.height === height && found.channels === samples;
    const order: RasterOrder = {
      do: "pixels",
      page: index,
      layout: this.#layout,
      width,
      height,
      hasAlpha: this.#hasAlpha,
    };
    try {
      const expected = (found: PixelsSaid) =>
        same(found) ? (width * height * samples * bits) / 8 : 0;
      const { said, bytes: data } = await file.ask(order, pixelsSchema, expected);
      if (!same(said))
        throw errors.unsupported_format(
          `Page ${index + 1} differs from the first in size or colour. Split the file into single pages.`,
        );
      if (!said.inPalette)
        throw errors.corrupt_image(
          "The PNG has pixels whose index is beyond its palette, so that they have no colour. It is damaged.",
        );
      if (!said.opaque)
        warn(
          this.warnings,
          "alpha_dropped",
          "The image is partly transparent; its alpha channel was dropped.",
        );
      if (declared.inverted) invert(data);
      return data;
    } catch (error) {
      throw failure(error, kind, bytes);
    }
  }

  release(): void {
    this.of.file.release();
  }
}

/** Undoes in place what the decoder did to a picture whose white is zero. */
function invert(data: Uint8Array): void {
  // This holds for 16 bits too: 65535 - v is v with every bit turned, byte by byte
  for (let i = 0; i < data.length; i++) data[i] = 0xff - (data[i] ?? 0);
}
