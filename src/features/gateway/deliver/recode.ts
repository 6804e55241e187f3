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
import { ITEM, ITEM_END, SEQUENCE_END, UNDEFINED } from "../../../images/dicom/headers.js";
import { inOtherOrder } from "./byte-order.js";
import type { ObjectToSend } from "./destination.js";

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
  const plain = own === RLE_LOSSLESS && syntax !== own ? await decompressed(bytes) : bytes;
  if (syntax !== own && syntax !== EXPLICIT_VR_LITTLE_ENDIAN)
    return syntax === IMPLICIT_VR_LITTLE_ENDIAN
      ? inImplicitVr(openFile(plain))
      : inBigEndian(openFile(plain));
  return [plain.subarray(readFileMeta(plain)?.end)];
}

/**
 * The same object as a file in Explicit VR Little Endian.
 * @throws RadserveError if its pixels cannot be decompressed
 */
export async function plainFile(
  bytes: Buffer,
  { sop_class_uid, sop_instance_uid }: Pick<ObjectToSend, "sop_class_uid" | "sop_instance_uid">,
): Promise<Buffer> {
  return Buffer.concat([
    fileHead(sop_class_uid, sop_instance_uid, EXPLICIT_VR_LITTLE_ENDIAN),
    ...(await dataSetIn(bytes, EXPLICIT_VR_LITTLE_ENDIAN)),
  ]);
}

const PIXEL_DATA = 0x7fe00010;
/** Bytes of the header of Pixel Data in Explicit VR. */
const HEADER_BYTES = 12;

/** The same file with its pixels as they are, colour by pixel, in Explicit VR Little Endian. */
async function decompressed(bytes: Buffer): Promise<Buffer> {
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

function header(tag: number, length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt16LE(tag >>> 16, 0);
  bytes.writeUInt16LE(tag & 0xffff, 2);
  bytes.writeUInt32LE(length, 4);
  return bytes;
}

/**
 * A native data set in Implicit VR Little Endian: headers change, values do not.
 * @param dataSet that of the file, which is in Explicit VR Little Endian, or of an item
 */
export function* inImplicitVr(
  file: DicomFile,
  dataSet: DataSet = file.dataSet,
): Generator<Uint8Array> {
  const { walk } = file;
  for (const element of dataSet.elements.values()) {
    const { tag, offset, length } = element;
    // Group lengths count bytes that change
    if ((tag & 0xffff) === 0) continue;
    const items = itemsOf(walk, element);
    if (items === undefined) {
      yield header(tag, length);
      yield walk.bytes.subarray(offset, offset + length);
      continue;
    }
    yield header(tag, UNDEFINED);
    for (const item of items) {
      yield header(ITEM, UNDEFINED);
      yield* inImplicitVr(file, item);
      yield header(ITEM_END, 0);
    }
    yield header(SEQUENCE_END, 0);
  }
}

/** Value representations whose length has four bytes (PS3.5 table 7.1-1). */
const LONG = new Set("OB OD OF OL OV OW SQ SV UC UN UR UT UV".split(" "));

/** The header of an element in Explicit VR Big Endian; of an item without a VR. */
function bigHeader(tag: number, length: number, vr?: string): Buffer {
  const isLong = vr !== undefined && LONG.has(vr);
  const bytes = Buffer.alloc(isLong ? HEADER_BYTES : 8);
  bytes.writeUInt16BE(tag >>> 16, 0);
  bytes.writeUInt16BE(tag & 0xffff, 2);
  if (vr !== undefined) bytes.write(vr, 4, "latin1");
  if (vr === undefined || isLong) bytes.writeUInt32BE(length, isLong ? 8 : 4);
  else bytes.writeUInt16BE(length, 6);
  return bytes;
}

/**
 * A native data set in Explicit VR Big Endian (PS3.5 section A.3).
 * @param dataSet as `inImplicitVr` takes it
 */
export function* inBigEndian(
  file: DicomFile,
  dataSet: DataSet = file.dataSet,
): Generator<Uint8Array> {
  const { walk } = file;
  for (const element of dataSet.elements.values()) {
    const { tag, offset, length } = element;
    if ((tag & 0xffff) === 0) continue;
    const items = itemsOf(walk, element);
    if (items === undefined) {
      const { vr } = element;
      yield bigHeader(tag, length, vr);
      yield inOtherOrder(walk.bytes.subarray(offset, offset + length), vr);
      continue;
    }
    yield bigHeader(tag, UNDEFINED, "SQ");
    for (const item of items) {
      yield bigHeader(ITEM, UNDEFINED);
      yield* inBigEndian(file, item);
      yield bigHeader(ITEM_END, 0);
    }
    yield bigHeader(SEQUENCE_END, 0);
  }
}
