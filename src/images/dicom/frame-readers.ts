/** Frames as the file holds them to stored values: native, RLE, deflated or through a codec. */
import { inflateRawSync } from "node:zlib";
import { errno } from "../../base/errno.js";
import { RadserveError } from "../../base/errors.js";
import type { Image, PixelFormat } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";
import { beginsCodestream, readCodestream, type CodestreamHeader } from "./codestream.js";
import { checkHeader } from "./codecs.js";
import { decode, framesAhead } from "./decoders.js";
import { fragmentsWithin, warn, type Element, type Encapsulated } from "./elements.js";
import type { DicomFile } from "./dicom-file.js";
import { decodedColour, type ImagePixel } from "./pixel-format.js";
import { findFrames, frameBytes, type FrameSource } from "./frame-fragments.js";
import { checkStoredBits, clampOvershoot, isTooLongForConstant, warnOfStrayBits } from "./decode-check.js";
import { frameLength, nativeFrame, nativePixels } from "./native-pixels.js";
import { decodeRle, decodeRleBits } from "./rle.js";
import type { PixelCoding, TransferSyntax } from "./transfer-syntax.js";

/** A frame larger than this has to be at least a 5,000th of its size when compressed. */
const IMPLAUSIBLE_BYTES = 1 << 26;
const IMPLAUSIBLE_RATIO = 5000;

/** Stored values of one frame, and how much compressed data they came from. */
export interface Decoded {
  data: Uint8Array;
  /** More compressed data than a constant frame can have; 0 where that cannot be said. */
  suspectBytes: number;
  /** What was odd about this frame; the image takes it over when the frame's turn comes. */
  warnings?: Image["warnings"];
}

export interface FrameReader {
  format: PixelFormat;
  /** `ahead` of its turn a frame may be decoded on another thread. */
  read(index: number, ahead?: boolean): Promise<Decoded>;
  /** How many frames to begin ahead of the one asked for; none where absent. */
  depth?(): number;
}

/**
 * How the frames of a file are read: by its transfer syntax, unless the bytes are something else, which is said.
 * Throws RadserveError: corrupt_image, truncated_image, unsupported_transfer_syntax.
 */
export function frameReader(file: DicomFile, element: Element, pixel: ImagePixel): FrameReader {
  const { walk, transferSyntax: syntax } = file;
  const encapsulated = element.encapsulated ?? withDefinedLength(file, element);
  if (encapsulated === undefined) return nativeReader(file, element, pixel);
  const sources = findFrames({
    bytes: walk.bytes,
    encapsulated,
    frameCount: pixel.frameCount,
    extended: extendedOffsets(file.attributes),
    warnings: walk.warnings,
  });
  const encoded = (index: number) => frameBytes(walk.bytes, sources[index] ?? { fragments: [] });
  if (pixel.format.float)
    throw new RadserveError(
      "corrupt_image",
      "Float Pixel Data is compressed, which the standard does not allow.",
    );
  checkPlausible(sources, pixel.format);
  switch (codingOf(encoded(0), syntax, pixel)) {
    case "rle":
      if (syntax.coding !== "rle") warnOfContent(syntax, "RLE", walk.warnings);
      return rleReader(file, pixel, encoded);
    case "deflated-frames":
    case "native":
      return rawFrameReader(file, element, pixel, encoded);
    case "codec":
      if (syntax.coding !== "codec") warnOfContent(syntax, "compressed", walk.warnings);
      return codecReader(file, pixel, encoded);
  }
}

/** What the first frame is, where it shows: codestreams begin with markers, RLE with its segments' number and place. */
function codingOf(frame: Uint8Array, syntax: TransferSyntax, pixel: ImagePixel): PixelCoding {
  const { bitsAllocated, samplesPerPixel } = pixel.format;
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  const isRle =
    frame.length >= 64 &&
    view.getUint32(0, true) === (samplesPerPixel * bitsAllocated) / 8 &&
    view.getUint32(4, true) === 64;
  switch (syntax.coding) {
    case "rle":
      return beginsCodestream(frame.subarray(0, 16)) ? "codec" : "rle";
    case "codec":
      return isRle ? "rle" : "codec";
    case "deflated-frames":
      return "deflated-frames";
    case "native":
      return syntax.uid === "1.2.840.10008.1.2.1.98" ? "native" : isRle ? "rle" : "codec";
  }
}

function warnOfContent({ name, coding }: TransferSyntax, is: string, warnings: Image["warnings"]): void {
  warn(
    warnings,
    coding === "native" ? "encapsulated_in_native" : "codestream_mismatch",
    `The transfer syntax is ${name} but the pixel data is ${is}; it was decoded by its content.`,
  );
}

function nativeReader(file: DicomFile, element: Element, pixel: ImagePixel): FrameReader {
  const { walk, transferSyntax: syntax } = file;
  if (syntax.coding !== "native")
    warn(
      walk.warnings,
      "not_encapsulated",
      `The transfer syntax is ${syntax.name} but the pixel data is not compressed; it was read as it is.`,
    );
  const native = nativePixels(file.attributes.bytes(element), element, pixel, walk.warnings);
  const { format } = native.pixel;
  const overlays = overlayBits(file);
  return {
    format,
    read: (index) => Promise.resolve(lookedThrough(nativeFrame(native, index), format, overlays)),
  };
}

/** A frame that no codec judged. */
function lookedThrough(data: Uint8Array, format: PixelFormat, overlays: number): Decoded {
  const warnings: Image["warnings"] = [];
  warnOfStrayBits(data, format, overlays, warnings);
  return { data, suspectBytes: 0, warnings };
}

/** Compressed frames whose element has a defined length, as items or as one bare codestream; undefined for native pixels. */
function withDefinedLength(
  { walk, transferSyntax, attributes }: DicomFile,
  element: Element,
): Encapsulated | undefined {
  if (transferSyntax.coding === "native") return undefined;
  const { offset, available: length } = element;
  const bare = beginsCodestream(attributes.bytes(element).subarray(0, 16));
  const found =
    fragmentsWithin(walk, element) ??
    (bare
      ? {
          offsetTable: new Uint8Array(0),
          fragments: [{ relative: 0, offset, length }],
          delimited: true,
          truncated: length < element.length,
          end: offset + length,
        }
      : undefined);
  if (found !== undefined)
    warn(
      walk.warnings,
      "defined_length",
      "The compressed pixel data has a defined length, which the standard forbids.",
    );
  return found;
}

/** Bits of the container that overlays lie in (PS3.5 section 8.1.2, retired): 60xx groups with a position and no data. */
function overlayBits({ dataSet, walk }: DicomFile): number {
  let bits = 0;
  for (let group = 0x6000; group <= 0x601e; group += 2) {
    const position = dataSet.elements.get(group * 65536 + 0x0102);
    const hasData = dataSet.elements.has(group * 65536 + 0x3000);
    if (hasData || position === undefined || position.available < 2) continue;
    const bit = walk.view.getUint16(position.offset, position.encoding.littleEndian);
    if (bit < 32) bits |= 1 << bit;
  }
  return bits;
}

/** Sizes that lie must not make a codec allocate gigabytes. */
function checkPlausible(sources: FrameSource[], format: PixelFormat): void {
  const size = frameLength(format);
  const shortest = Math.min(
    ...sources.slice(0, 1000).map((s) => s.fragments.reduce((sum, f) => sum + f.length, 0)),
  );
  if (size > IMPLAUSIBLE_BYTES && size > shortest * IMPLAUSIBLE_RATIO)
    throw new RadserveError(
      "truncated_image",
      `Rows and Columns call for ${size} bytes a frame, but a compressed frame has only ${shortest}.`,
      { expected_bytes: size, found_bytes: shortest },
    );
}

function extendedOffsets(
  attributes: DataSetAttributes,
): { offsets: number[]; lengths: number[] | undefined } | undefined {
  const read = (keyword: string) => {
    const element = attributes.element(keyword);
    if (element === undefined) return undefined;
    const bytes = attributes.bytes(element);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Array.from({ length: bytes.length >>> 3 }, (_, i) => Number(view.getBigUint64(i * 8, true)));
  };
  const offsets = read("ExtendedOffsetTable");
  return offsets === undefined ? undefined : { offsets, lengths: read("ExtendedOffsetTableLengths") };
}

type Encoded = (index: number) => Uint8Array;

function rleReader(file: DicomFile, pixel: ImagePixel, encoded: Encoded): FrameReader {
  const overlays = overlayBits(file);
  let { format } = pixel;
  if (format.photometricInterpretation === "YBR_FULL_422") {
    warn(
      file.walk.warnings,
      "not_subsampled",
      "RLE planes are not subsampled; YBR_FULL_422 was read as YBR_FULL.",
    );
    format = { ...format, photometricInterpretation: "YBR_FULL" };
  }
  return {
    format,
    read: (index) =>
      // A rejected promise rather than a throw
      Promise.resolve().then(() =>
        pixel.bitsAllocated === 1
          ? { data: decodeRleBits(encoded(index), format), suspectBytes: 0 }
          : lookedThrough(decodeRle(encoded(index), format), format, overlays),
      ),
  };
}

/** Frames that are raw deflate streams (PS3.5 annex A.4.13), or encapsulated without compression (annex A.4.11). */
function rawFrameReader(file: DicomFile, element: Element, pixel: ImagePixel, encoded: Encoded): FrameReader {
  const one = { ...pixel, frameCount: 1 };
  const { warnings } = file.walk;
  const plain = (index: number) =>
    file.transferSyntax.coding === "deflated-frames" ? inflateFrame(encoded(index), pixel) : encoded(index);
  const first = nativePixels(plain(0), element, one, warnings);
  return {
    format: first.pixel.format,
    read: (index) =>
      Promise.resolve().then(() => ({
        data: nativeFrame(nativePixels(plain(index), element, one, warnings), 0),
        suspectBytes: 0,
      })),
  };
}

function inflateFrame(deflated: Uint8Array, pixel: ImagePixel): Uint8Array {
  // The longest form of the frame, and room for padding
  const limit = frameLength(pixel.format) + 4096;
  try {
    return inflateRawSync(deflated, { maxOutputLength: limit });
  } catch (error) {
    const early = errno(error) === "Z_BUF_ERROR";
    throw new RadserveError(
      early ? "truncated_image" : "corrupt_image",
      early
        ? "A deflated frame ends before its last block."
        : "A deflated frame cannot be inflated or is too long.",
      undefined,
      { cause: error },
    );
  }
}

function codecReader(file: DicomFile, pixel: ImagePixel, encoded: Encoded): FrameReader {
  const { warnings } = file.walk;
  const first = readCodestream(encoded(0));
  const declared = pixel.format;
  checkHeader(first, declared);
  warnOfMismatch(file.transferSyntax, declared, first, warnings);
  const tag = file.attributes.string("PhotometricInterpretation")?.toUpperCase() ?? "";
  if (/^YBR_(RCT|ICT)$/.test(tag) && first.kind !== "jpeg-xl" && !first.componentTransform)
    warn(
      warnings,
      "photometric_mismatch",
      `PhotometricInterpretation is ${tag} but the codestream has no such transform; the frames were taken as RGB.`,
    );
  const format = {
    ...declared,
    highBit: codedHighBit(declared, first, warnings),
    photometricInterpretation: decodedColour(declared.photometricInterpretation, first, warnings),
  };
  const overlays = overlayBits(file);
  // A reversible wavelet cut off is lossy too, which only the attribute tells
  const lossy = file.attributes.string("LossyImageCompression") === "01";
  return {
    format,
    depth: () => framesAhead(first, format, pixel.frameCount),
    read: async (index, ahead = false) => {
      const header = readCodestream(encoded(index));
      checkHeader(header, format);
      if (decodedColour(declared.photometricInterpretation, header, []) !== format.photometricInterpretation)
        throw new RadserveError(
          "corrupt_image",
          `Frame ${index + 1} is coded in another colour space than the first.`,
        );
      const decoded = await decode(header, format, ahead);
      const { data } = decoded;
      if ((lossy || header.lossy) && header.precision > format.bitsStored)
        clampOvershoot(data, format, decoded.warnings);
      checkStoredBits(data, format, overlays, header.kind);
      // Above they were looked for
      if (format.highBit >= format.bitsStored) warnOfStrayBits(data, format, overlays, decoded.warnings);
      return { ...decoded, suspectBytes: isTooLongForConstant(header) ? header.entropyBytes : 0 };
    },
  };
}

/** Codecs give values in the low bits: where the codestream has too few for HighBit, that cannot be the place. */
function codedHighBit(format: PixelFormat, header: CodestreamHeader, warnings: Image["warnings"]): number {
  const { bitsStored, highBit } = format;
  if (highBit === bitsStored - 1 || header.precision > highBit) return highBit;
  warn(
    warnings,
    "high_bit_mismatch",
    `HighBit is ${highBit} but the codestream has ${header.precision} bits a sample; the low ${bitsStored} bits were taken.`,
  );
  return bitsStored - 1;
}

function warnOfMismatch(
  syntax: TransferSyntax,
  format: PixelFormat,
  header: CodestreamHeader,
  warnings: Image["warnings"],
): void {
  if (syntax.codestream !== undefined && syntax.codestream !== header.kind)
    warn(
      warnings,
      "codestream_mismatch",
      `The transfer syntax is ${syntax.name} but the frames are ${header.kind}; they were decoded as what they are.`,
    );
  const isJpeg2000 = header.kind === "jpeg2000" || header.kind === "htj2k";
  if (isJpeg2000 && header.signed !== format.signed)
    warn(
      warnings,
      "sign_mismatch",
      `PixelRepresentation is ${format.signed ? 1 : 0} but the codestream is ${header.signed ? "signed" : "unsigned"}; ` +
        "values are read by PixelRepresentation.",
    );
  if (header.precision !== format.bitsStored)
    warn(
      warnings,
      "precision_mismatch",
      `BitsStored is ${format.bitsStored} but the codestream has ${header.precision} bits a sample.`,
    );
}
