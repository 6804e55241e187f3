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
  EXPLICIT_VR_LITTLE_ENDIAN,
  IMPLICIT_VR_LITTLE_ENDIAN,
  RLE_LOSSLESS,
} from "../../../images/dicom/transfer-syntax.js";
import { fileHead } from "../../../results/dicom/elements.js";
import { ITEM, ITEM_END, SEQUENCE_END, UNDEFINED } from "../../../images/dicom/headers.js";

/** What every peer takes, the one with value representations first. */
export const PLAIN = [EXPLICIT_VR_LITTLE_ENDIAN, IMPLICIT_VR_LITTLE_ENDIAN];

/** The transfer syntaxes in which an object of ours can be sent, its own first. */
export function syntaxesOf(own: string): readonly string[] {
  if (own === RLE_LOSSLESS) return [own, ...PLAIN];
  return own === EXPLICIT_VR_LITTLE_ENDIAN ? PLAIN : [own];
}

/**
 * The data set of a file in one of the syntaxes of `syntaxesOf`.
 * @throws RadserveError if its pixels cannot be decompressed
 */
export async function dataSetIn(bytes: Buffer, syntax: string): Promise<Iterable<Uint8Array>> {
  const own = readFileMeta(bytes)?.transferSyntax;
  const plain = own === RLE_LOSSLESS && syntax !== own ? await decompressed(bytes) : bytes;
  return syntax === IMPLICIT_VR_LITTLE_ENDIAN && syntax !== own
    ? inImplicitVr(openFile(plain))
    : [plain.subarray(readFileMeta(plain)?.end)];
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
