/**
 * A native data set in Implicit VR Little Endian, which every peer takes (PS3.5 section 10.1):
 * headers change, values do not.
 */
import type { DicomFile } from "../../../images/dicom/dicom-file.js";
import { itemsOf, type DataSet } from "../../../images/dicom/elements.js";
import { ITEM, ITEM_END, SEQUENCE_END, UNDEFINED } from "../../../images/dicom/headers.js";

function header(tag: number, length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt16LE(tag >>> 16, 0);
  bytes.writeUInt16LE(tag & 0xffff, 2);
  bytes.writeUInt32LE(length, 4);
  return bytes;
}

/** @param dataSet that of the file, which is in Explicit VR Little Endian, or of an item */
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
