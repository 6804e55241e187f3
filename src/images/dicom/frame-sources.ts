/**
 * The encoded frames of encapsulated pixel data: where the bytes of each lie in the file, and what
 * they are coded as.
 */
import { errors } from "../../base/errors.js";
import { warn, type PixelFormat } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";
import { beginsCodestream } from "./codestream.js";
import type { DicomFile } from "./dicom-file.js";
import type { Element } from "./elements.js";
import {
  readFragments,
  type Encapsulated,
  findFrames,
  frameBytes,
  type ExtendedOffsets,
  type OffsetTable,
  type FrameSource,
} from "./frame-fragments.js";
import { ITEM, tagAt } from "./headers.js";
import { frameLength } from "./native-pixels.js";
import type { ImagePixel } from "./pixel-format.js";
import {
  ENCAPSULATED_UNCOMPRESSED,
  type PixelCoding,
  type TransferSyntax,
} from "./transfer-syntax.js";

/** A frame larger than this has to be at least a 5,000th of its size when compressed. */
const IMPLAUSIBLE_BYTES = 1 << 26;
const IMPLAUSIBLE_RATIO = 5000;

export interface EncodedFrames {
  coding: PixelCoding;
  /** The bytes of a frame, from 0. */
  bytesOf(index: number): Uint8Array;
}

/**
 * Finds the encoded frames of a file; undefined if its pixel data is not encapsulated. Their coding
 * is that of the transfer syntax unless the bytes are something else, which is warned of. Throws
 * RadserveError: corrupt_image, truncated_image.
 */
export function encodedFrames(
  file: DicomFile,
  element: Element,
  pixel: ImagePixel,
): EncodedFrames | undefined {
  const { walk, transferSyntax: syntax } = file;
  const encapsulated = element.encapsulated ?? withDefinedLength(file, element);
  if (encapsulated === undefined) return undefined;
  const sources = findFrames({
    bytes: walk.bytes,
    encapsulated,
    frameCount: pixel.frameCount,
    extended: extendedOffsets(file.attributes),
    begins: (fragment) => beginsCodestream(fragment) || beginsRle(fragment, pixel.format),
    warnings: walk.warnings,
  });
  const bytesOf = (index: number) => frameBytes(walk.bytes, sources[index] ?? { fragments: [] });
  if (pixel.format.float)
    throw errors.corrupt_image(
      "Float Pixel Data is compressed, which the standard does not allow.",
    );
  checkPlausible(sources, pixel.format);
  const coding = codingOf(bytesOf(0), syntax, pixel.format);
  if (coding !== syntax.coding)
    warn(
      walk.warnings,
      syntax.coding === "native" ? "encapsulated_in_native" : "codestream_mismatch",
      `The transfer syntax is ${syntax.name} but the pixel data is ${coding === "rle" ? "RLE" : "compressed"}; ` +
        "it was decoded by its content.",
    );
  return { coding, bytesOf };
}

/**
 * Tells by its first bytes what the first frame is: codestreams begin with markers, RLE with its
 * segments' number and place.
 */
function codingOf(frame: Uint8Array, syntax: TransferSyntax, format: PixelFormat): PixelCoding {
  const isRle = beginsRle(frame, format);
  switch (syntax.coding) {
    case "rle":
      return beginsCodestream(frame) ? "codec" : "rle";
    case "codec":
      return isRle ? "rle" : "codec";
    case "deflated-frames":
      return "deflated-frames";
    case "native":
      return syntax.uid === ENCAPSULATED_UNCOMPRESSED ? "native" : isRle ? "rle" : "codec";
  }
}

/**
 * Whether it begins with the header of an RLE frame (PS3.5 G.5): the number of its segments, and
 * where the first begins.
 */
function beginsRle(bytes: Uint8Array, format: PixelFormat): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return (
    bytes.length >= 64 &&
    view.getUint32(0, true) === (format.samplesPerPixel * format.bitsAllocated) / 8 &&
    view.getUint32(4, true) === 64
  );
}

/**
 * Compressed frames whose element has a defined length, as some writers leave it: as items or as
 * one bare codestream. Undefined for native pixels.
 */
function withDefinedLength(
  { walk, transferSyntax, attributes }: DicomFile,
  element: Element,
): Encapsulated | undefined {
  const { offset, available: length, encoding } = element;
  const end = offset + length;
  let found: Encapsulated | undefined;
  if (transferSyntax.coding === "native") return undefined;
  if (length >= 8 && tagAt(walk, offset, encoding.littleEndian) === ITEM)
    // The length ends what a delimiter would
    found = {
      ...readFragments({ ...walk, counts: true }, offset, end, encoding.littleEndian, true),
      delimited: true,
    };
  else if (beginsCodestream(attributes.bytes(element)))
    found = {
      offsetTable: new Uint8Array(0),
      fragments: [{ relative: 0, offset, length }],
      delimited: true,
      truncated: length < element.length,
      end,
    };
  if (found !== undefined)
    warn(
      walk.warnings,
      "defined_length",
      "The compressed pixel data has a defined length, which the standard forbids.",
    );
  return found;
}

/** Sizes that lie must not make a codec allocate gigabytes. */
function checkPlausible(sources: FrameSource[], format: PixelFormat): void {
  const size = frameLength(format);
  const shortest = Math.min(
    ...sources.slice(0, 1000).map((s) => s.fragments.reduce((sum, f) => sum + f.length, 0)),
  );
  if (size > IMPLAUSIBLE_BYTES && size > shortest * IMPLAUSIBLE_RATIO)
    throw errors.truncated_image(
      `Rows and Columns call for ${size} bytes a frame, but a compressed frame has only ${shortest}.`,
      { expected_bytes: size, found_bytes: shortest },
    );
}

function extendedOffsets(attributes: DataSetAttributes): ExtendedOffsets | undefined {
  const read = (keyword: string): OffsetTable | undefined => {
    const element = attributes.element(keyword);
    if (element === undefined) return undefined;
    const bytes = attributes.bytes(element);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return { entries: bytes.length >>> 3, at: (i) => Number(view.getBigUint64(i * 8, true)) };
  };
  const offsets = read("ExtendedOffsetTable");
  return offsets === undefined
    ? undefined
    : { offsets, lengths: read("ExtendedOffsetTableLengths") };
}
