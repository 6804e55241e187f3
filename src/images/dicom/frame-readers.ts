/** Frames as the file holds them to stored values: native, RLE, deflated or through a codec. */
import { inflateRawSync } from "node:zlib";
import { errno } from "../../base/errno.js";
import { errors, RadserveError } from "../../base/errors.js";
import { warn, type Codec, type PixelFormat, type Warning } from "../image.js";
import { checkHeader, codecOf } from "./codecs.js";
import { decodedColour, doubtOf, foreseen, uncodedColour } from "./coded-colour.js";
import { readCodestream, type CodestreamHeader } from "./codestream.js";
import {
  checkStoredBits,
  clampOvershoot,
  isTooLongForConstant,
  warnOfStrayBits,
} from "./decode-check.js";
import { decode } from "./decoders.js";
import type { DicomFile } from "./dicom-file.js";
import type { Element } from "./elements.js";
import { encodedFrames, type EncodedFrames } from "./frame-sources.js";
import { frameLength, nativeFrame, nativePixels } from "./native-pixels.js";
import type { ImagePixel } from "./pixel-format.js";
import { decodeRle, decodeRleBits } from "./rle.js";
import type { TransferSyntax } from "./transfer-syntax.js";

/** Stored values of one frame, and how much compressed data they came from. */
export interface DecodedFrame {
  data: Uint8Array;
  /** Bytes of compressed data, if they are more than a constant frame can have; else 0. */
  suspectBytes: number;
  /** Warnings about this frame; the image takes them over when the frame's turn comes. */
  warnings?: Warning[];
}

export interface FrameReader {
  /** Where there is a doubt about the colours, they are RGB in it until the values have decided. */
  format: PixelFormat;
  /** Why only values tell what the colours are; undefined where they are known. */
  doubt?: string | undefined;
  /** A frame that is asked for `ahead` of its turn may be decoded on another thread. */
  read: (index: number, ahead?: boolean) => Promise<DecodedFrame>;
  /** Set if a decoder thread can decode the frames. */
  codec?: Codec;
}

/**
 * How the frames of a file are read: by its transfer syntax, unless the bytes are something else,
 * which is warned of. Throws RadserveError: corrupt_image, truncated_image,
 * unsupported_transfer_syntax.
 */
export function frameReader(file: DicomFile, element: Element, pixel: ImagePixel): FrameReader {
  const encoded = encodedFrames(file, element, pixel);
  switch (encoded?.coding) {
    case undefined:
      return nativeReader(file, element, pixel);
    case "rle":
      return rleReader(file, pixel, encoded);
    case "codec":
      return codecReader(file, pixel, encoded);
    case "deflated-frames":
    case "native":
      return rawFrameReader(file, element, pixel, encoded);
  }
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
  const { format, doubt } = colouredPixels(native.pixel);
  const overlays = overlayBits(file);
  return {
    format,
    doubt,
    read: (index) => Promise.resolve(lookedThrough(nativeFrame(native, index), format, overlays)),
  };
}

/** The format of frames that no codec with colours of its own has coded. */
function colouredPixels({ format, tag }: ImagePixel, isFull = !format.packed422) {
  if (format.samplesPerPixel !== 3) return { format, doubt: undefined };
  const colour = uncodedColour(tag, isFull);
  return {
    format: { ...format, photometricInterpretation: foreseen(colour) },
    doubt: doubtOf(colour),
  };
}

/** Looks for stray bits in a frame that no codec judged. */
function lookedThrough(data: Uint8Array, format: PixelFormat, overlays: number): DecodedFrame {
  const warnings: Warning[] = [];
  warnOfStrayBits(data, format, overlays, warnings);
  return { data, suspectBytes: 0, warnings };
}

/**
 * Bits of the container that overlays lie in (PS3.5 section 8.1.2, retired): 60xx groups with a
 * position and no data.
 */
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

function rleReader(file: DicomFile, pixel: ImagePixel, encoded: EncodedFrames): FrameReader {
  const overlays = overlayBits(file);
  // RLE planes are never subsampled
  const { format, doubt } = colouredPixels(pixel);
  return {
    format,
    doubt,
    read: (index) =>
      // A rejected promise rather than a throw
      Promise.resolve().then(() =>
        pixel.bitsAllocated === 1
          ? { data: decodeRleBits(encoded.bytesOf(index), format), suspectBytes: 0 }
          : lookedThrough(decodeRle(encoded.bytesOf(index), format), format, overlays),
      ),
  };
}

/**
 * Frames that are raw deflate streams (PS3.5 annex A.4.13), or encapsulated without compression
 * (annex A.4.11).
 */
function rawFrameReader(
  file: DicomFile,
  element: Element,
  pixel: ImagePixel,
  encoded: EncodedFrames,
): FrameReader {
  const one = { ...pixel, frameCount: 1 };
  const { warnings } = file.walk;
  const plain = (index: number) =>
    file.transferSyntax.coding === "deflated-frames"
      ? inflateFrame(encoded.bytesOf(index), pixel)
      : encoded.bytesOf(index);
  // The element is all frames, and its length says nothing about one of them
  const pixelsOf = (index: number) => {
    const bytes = plain(index);
    return nativePixels(bytes, { ...element, length: bytes.length }, one, warnings);
  };
  const { format, doubt } = colouredPixels(pixelsOf(0).pixel);
  const overlays = overlayBits(file);
  return {
    format,
    doubt,
    read: (index) =>
      Promise.resolve().then(() => {
        const pixels = pixelsOf(index);
        // The length of a frame says whether it is subsampled
        if (pixels.pixel.format.packed422 !== format.packed422)
          throw errors.corrupt_image(
            `Of frame ${index + 1} and the first, one is subsampled as YBR_FULL_422 says and the other has three full samples a pixel. Correct the object at its source.`,
            { frame: index + 1 },
          );
        return lookedThrough(nativeFrame(pixels, 0), format, overlays);
      }),
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

function codecReader(file: DicomFile, pixel: ImagePixel, encoded: EncodedFrames): FrameReader {
  const { warnings } = file.walk;
  const first = readCodestream(encoded.bytesOf(0));
  const declared = pixel.format;
  checkHeader(first, declared);
  warnOfMismatch(file.transferSyntax, declared, first, warnings);
  const { tag } = pixel;
  const colour = decodedColour(tag, first, warnings);
  const format = {
    ...declared,
    highBit: codedHighBit(declared, first, warnings),
    photometricInterpretation: foreseen(colour),
  };
  const overlays = overlayBits(file);
  // A reversible wavelet cut off is lossy too, which only the attribute tells
  const lossy = file.attributes.string("LossyImageCompression") === "01";
  return {
    format,
    doubt: doubtOf(colour),
    codec: codecOf(first),
    read: async (index, ahead = false) => {
      const header = readCodestream(encoded.bytesOf(index));
      checkHeader(header, format);
      const own = decodedColour(tag, header, []);
      if (foreseen(own) !== foreseen(colour) || doubtOf(own) !== doubtOf(colour))
        throw errors.corrupt_image(
          `Frame ${index + 1} is coded in another colour space than the first.`,
        );
      const decoded = await decode(header, format, ahead);
      const { data } = decoded;
      if ((lossy || header.lossy) && header.precision > format.bitsStored)
        clampOvershoot(data, format, decoded.warnings);
      checkStoredBits(data, format, overlays, header.kind);
      // Above HighBit they were looked for
      if (format.highBit >= format.bitsStored)
        warnOfStrayBits(data, format, overlays, decoded.warnings);
      return { ...decoded, suspectBytes: isTooLongForConstant(header) ? header.entropyBytes : 0 };
    },
  };
}

/**
 * Codecs give values in the low bits: if the codestream has too few for HighBit, that cannot be the
 * place.
 */
function codedHighBit(format: PixelFormat, header: CodestreamHeader, warnings: Warning[]): number {
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
  warnings: Warning[],
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
