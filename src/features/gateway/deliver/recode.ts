/**
 * Objects in the transfer syntaxes that peers take who do not take an object's own: values stay
 * equal, and pixels are decompressed (PS3.5 sections 10.1, A.4).
 */
import { storedFrames } from "../../../images/dicom/case.js";
import { openFile, readFileMeta, type DicomFile } from "../../../images/dicom/dicom-file.js";
import { tagOf } from "../../../images/dicom/dictionary.js";
import { itemsOf, type DataSet } from "../../../images/dicom/elements.js";
import { readImage } from "../../../images/read-image.js";
import {
  EXPLICIT_VR_BIG_ENDIAN,
  EXPLICIT_VR_LITTLE_ENDIAN,
  IMPLICIT_VR_LITTLE_ENDIAN,
  RLE_LOSSLESS,
} from "../../../images/dicom/transfer-syntax.js";
import { fileHead } from "../../../results/dicom/elements.js";
import {
  isLongVr,
  isVr,
  ITEM,
  ITEM_END,
  SEQUENCE_END,
  UNDEFINED,
} from "../../../images/dicom/headers.js";
import { inOtherOrder } from "./byte-order.js";

/** What every peer takes, the one with value representations first. */
export const PLAIN = [EXPLICIT_VR_LITTLE_ENDIAN, IMPLICIT_VR_LITTLE_ENDIAN];

/**
 * The transfer syntaxes in which an object of ours can be sent, its own first. Big Endian is
 * retired, and comes last.
 */
export function syntaxesOf(own: string): readonly string[] {
  if (own === RLE_LOSSLESS) return [own, ...PLAIN, EXPLICIT_VR_BIG_ENDIAN];
  return own === EXPLICIT_VR_LITTLE_ENDIAN ? [...PLAIN, EXPLICIT_VR_BIG_ENDIAN] : [own];
}

/**
 * The data set of a file in one of the syntaxes of `syntaxesOf`.
 * @throws RadserveError if its pixels cannot be decompressed
 */
export async function dataSetIn(bytes: Buffer, syntax: string): Promise<Iterable<Uint8Array>> {
  const own = readFileMeta(bytes)?.transferSyntax;
  const plain = own === RLE_LOSSLESS && syntax !== own ? await plainFile(bytes) : bytes;
  if (syntax !== own && syntax !== EXPLICIT_VR_LITTLE_ENDIAN)
    return syntax === IMPLICIT_VR_LITTLE_ENDIAN
      ? inImplicitVr(openFile(plain))
      : inBigEndian(openFile(plain));
  return [plain.subarray(readFileMeta(plain)?.end)];
}

const PIXEL_DATA = 0x7fe00010;
/** Bytes of the header of Pixel Data in Explicit VR. */
const HEADER_BYTES = 12;

/**
 * The same file in Explicit VR Little Endian, with its pixels as they are, colour by pixel.
 * @throws RadserveError if they cannot be decompressed
 */
export async function plainFile(bytes: Buffer): Promise<Buffer> {
  const { attributes, dataSet } = openFile(bytes);
  const image = await readImage(bytes);
  const frames: Uint8Array[] = [];
  for await (const frame of storedFrames(image)) frames.push(frame);
  const pixels = Buffer.concat(frames);
  const uid = (keyword: string) => attributes.string(keyword) ?? "";
  const at = dataSet.elements.get(PIXEL_DATA)?.offset;
  const start = readFileMeta(bytes)?.end;
  if (at === undefined || start === undefined) throw new Error("An image has pixels");
  const before = Buffer.from(bytes.subarray(start, at - HEADER_BYTES));
  const planar = dataSet.elements.get(tagOf("PlanarConfiguration") ?? 0);
  if (planar !== undefined) before.writeUInt16LE(0, planar.offset - start);
  const head = Buffer.alloc(HEADER_BYTES);
  header(PIXEL_DATA, 0).copy(head);
  head.write(image.format.bitsAllocated > 8 ? "OW" : "OB", 4, "latin1");
  head.writeUInt16LE(0, 6);
  head.writeUInt32LE(pixels.length + (pixels.length % 2), 8);
  return Buffer.concat([
    fileHead(uid("SOPClassUID"), uid("SOPInstanceUID"), EXPLICIT_VR_LITTLE_ENDIAN),
    before,
    head,
    pixels,
    Buffer.alloc(pixels.length % 2),
  ]);
}

/** How the elements of a data set are written. */
interface Encoding {
  /** @param vr the value representation of an element; undefined of an item */
  header: (tag: number, length: number, vr?: string) => Buffer;
  /** @param bytes of the value in Little Endian */
  value: (bytes: Uint8Array, vr: string) => Uint8Array;
}

/** Bytes of the longest value whose length Explicit VR says in two bytes (PS3.5 section 7.1.2). */
const LONGEST_SHORT = 0xfffe;

const EXPLICIT: Encoding = { header: explicitHeader, value: (bytes) => bytes };
const IMPLICIT: Encoding = { header, value: (bytes) => bytes };
const BIG_ENDIAN: Encoding = { header: bigHeader, value: inOtherOrder };

/**
 * The file of a native object in Explicit VR Little Endian. A value that is too long for its value
 * representation has UN (PS3.5 section 6.2.2).
 */
export function explicitFile(bytes: Buffer): Buffer {
  const file = openFile(bytes);
  const uid = (keyword: string) => file.attributes.string(keyword) ?? "";
  const head = fileHead(uid("SOPClassUID"), uid("SOPInstanceUID"), EXPLICIT_VR_LITTLE_ENDIAN);
  return Buffer.concat([head, ...encoded(file, file.dataSet, EXPLICIT)]);
}

/** A native data set in Implicit VR Little Endian: headers change, values do not. */
export const inImplicitVr = (file: DicomFile) => encoded(file, file.dataSet, IMPLICIT);

/** A native data set in Explicit VR Big Endian (PS3.5 section A.3). */
export const inBigEndian = (file: DicomFile) => encoded(file, file.dataSet, BIG_ENDIAN);

/** @param dataSet that of the file, which is in Little Endian, or of an item */
function* encoded(file: DicomFile, dataSet: DataSet, encoding: Encoding): Generator<Uint8Array> {
  const { walk } = file;
  const { header, value } = encoding;
  for (const element of dataSet.elements.values()) {
    const { tag, offset, length, vr } = element;
    // Group lengths count bytes that change
    if ((tag & 0xffff) === 0) continue;
    const items = itemsOf(walk, element);
    if (items === undefined) {
      yield header(tag, length, vr);
      yield value(walk.bytes.subarray(offset, offset + length), vr);
      continue;
    }
    yield header(tag, UNDEFINED, "SQ");
    for (const item of items) {
      yield header(ITEM, UNDEFINED);
      yield* encoded(file, item, encoding);
      yield header(ITEM_END, 0);
    }
    yield header(SEQUENCE_END, 0);
  }
}

/** In Implicit VR Little Endian. */
function header(tag: number, length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt16LE(tag >>> 16, 0);
  bytes.writeUInt16LE(tag & 0xffff, 2);
  bytes.writeUInt32LE(length, 4);
  return bytes;
}

/** The header of an element in Explicit VR Little Endian; of an item without a VR. */
function explicitHeader(tag: number, length: number, vr?: string): Buffer {
  if (vr === undefined) return header(tag, length);
  const written = isVr(vr) && (isLongVr(vr) || length <= LONGEST_SHORT) ? vr : "UN";
  const isLong = isLongVr(written);
  const bytes = Buffer.alloc(isLong ? HEADER_BYTES : 8);
  header(tag, 0).copy(bytes);
  bytes.write(written, 4, "latin1");
  if (isLong) {
    bytes.writeUInt16LE(0, 6);
    bytes.writeUInt32LE(length, 8);
  } else bytes.writeUInt16LE(length, 6);
  return bytes;
}

/** The header of an element in Explicit VR Big Endian; of an item without a VR. */
function bigHeader(tag: number, length: number, vr?: string): Buffer {
  const isLong = vr !== undefined && isLongVr(vr);
  const bytes = Buffer.alloc(isLong ? HEADER_BYTES : 8);
  bytes.writeUInt16BE(tag >>> 16, 0);
  bytes.writeUInt16BE(tag & 0xffff, 2);
  if (vr !== undefined) bytes.write(vr, 4, "latin1");
  if (vr === undefined || isLong) bytes.writeUInt32BE(length, isLong ? 8 : 4);
  else bytes.writeUInt16BE(length, 6);
  return bytes;
}
