/**
 * Objects as bytes: Explicit VR Little Endian, or Implicit if it is asked for; text in UTF-8 (PS3.5
 * sections 6 and 7).
 */
import { createHash } from "node:crypto";
import { sha256 } from "../../files/durable-files.js";
import { VERSION } from "../../base/version.js";
import { MOST_SEEN } from "../../images/dicom/headers.js";
import {
  EXPLICIT_VR_LITTLE_ENDIAN,
  IMPLICIT_VR_LITTLE_ENDIAN,
} from "../../images/dicom/transfer-syntax.js";
import {
  attributeOf,
  ElementWriter,
  ITEM,
  ITEM_END,
  SEQUENCE_END,
  type Attribute,
  type PlainValue,
} from "./element-writer.js";
import { derivedUid } from "./uid.js";

/** Elements and items of an object at most: the reader counts file meta information, too. */
export const MOST_OF_OBJECT = MOST_SEEN - 1000;

/** An object would have more elements and items than are read. Its message says so, in words. */
export class ObjectTooLarge extends Error {
  /** @param advice what takes less */
  constructor(advice?: string) {
    const most = `it would have more than ${MOST_OF_OBJECT} elements and items, and no more are read of a file`;
    super(advice === undefined ? most : `${most}; ${advice}`);
  }
}

/**
 * Of something of which there may be very many, before each takes memory.
 * @param least elements and items that each has at least
 * @throws ObjectTooLarge
 */
export function checkMany(count: number, least: number, advice?: string): void {
  if (count * least > MOST_OF_OBJECT) throw new ObjectTooLarge(advice);
}

export type Value =
  string | number | readonly (string | number)[] | readonly Dataset[] | Uint8Array;

/** Keyword to value. Undefined leaves an attribute out, "" and [] write it empty. */
export interface Dataset {
  [keyword: string]: Value | undefined;
}

function isDatasets(
  value: readonly (string | number)[] | readonly Dataset[],
): value is readonly Dataset[] {
  return typeof value[0] === "object";
}

type Elements = [Attribute, Value][];

/** Elements in the order of their tags. */
function ordered(dataset: Dataset): Elements {
  const elements: Elements = [];
  for (const keyword of Object.keys(dataset)) {
    const value = dataset[keyword];
    if (value !== undefined) insert(elements, [attributeOf(keyword), value]);
  }
  return elements;
}

/** By insertion: most data sets are items of a few elements, and Array's own sort copies them. */
function insert(elements: Elements, element: Elements[number]): void {
  const end = elements.push(element) - 1;
  let at = end;
  while (at > 0 && (elements[at - 1]?.[0].tag ?? 0) > element[0].tag) at -= 1;
  if (at === end) return;
  elements.copyWithin(at + 1, at, end);
  elements[at] = element;
}

/** @throws ObjectTooLarge */
function write(elements: Elements, encapsulated: boolean, writer: ElementWriter): void {
  if (writer.count > MOST_OF_OBJECT) throw new ObjectTooLarge();
  for (const [attribute, value] of elements) {
    if (value instanceof Uint8Array) {
      // Pixel Data, for pixels of at most eight bits (PS3.5 section 8.2, A.2)
      if (encapsulated) writer.fragment(attribute.tag, value);
      else writer.binary(attribute.tag, value);
    } else if (typeof value === "object" && value.length > 0 && isDatasets(value)) {
      writer.sequence(attribute.tag);
      for (const item of value) {
        writer.put(ITEM);
        write(ordered(item), encapsulated, writer);
        writer.put(ITEM_END);
      }
      writer.put(SEQUENCE_END);
    } else writer.plain(attribute, value as PlainValue);
  }
}

/**
 * The bytes of a data set, in pieces, one behind the other. Pixel Data is put in as it is.
 * @param transferSyntaxUid of a compression if Pixel Data is one encapsulated frame; Implicit VR
 * Little Endian if a value may be longer than the 65,534 bytes that Explicit VR has room for (PS3.5
 * section 7.1.2)
 */
export function dataSetBytes(dataset: Dataset, transferSyntaxUid: string): Uint8Array[] {
  return bytesOf(ordered(dataset), transferSyntaxUid);
}

function bytesOf(elements: Elements, transferSyntaxUid: string): Uint8Array[] {
  const implicit = transferSyntaxUid === IMPLICIT_VR_LITTLE_ENDIAN;
  const writer = new ElementWriter(implicit);
  write(elements, !implicit && transferSyntaxUid !== EXPLICIT_VR_LITTLE_ENDIAN, writer);
  return writer.pieces();
}

/** Implementation Class UID: every file says which software wrote it (PS3.7 section D.3.3.2). */
export const IMPLEMENTATION_CLASS_UID = derivedUid("implementation", []);
/** At most 16 characters (PS3.7 D.3.3.2.3). */
export const IMPLEMENTATION_VERSION = `RADSERVE_${VERSION}`.slice(0, 16);

/** The elements in front of SOP Instance UID, and those behind it. */
function aroundName(dataset: Dataset): [Elements, Elements] {
  const name = attributeOf("SOPInstanceUID").tag;
  const elements = ordered(dataset);
  const behind = elements.findIndex(([{ tag }]) => tag >= name);
  return behind < 0 ? [elements, []] : [elements.slice(0, behind), elements.slice(behind)];
}

/** An object ready to be written: its file, and its names for those that refer to it. */
export interface DicomObject {
  sopClassUid: string;
  sopInstanceUid: string;
  seriesInstanceUid: string;
  bytes: Uint8Array;
  /** SHA-256 of the bytes, hex. */
  sha256: string;
}

/**
 * Names and serialises an object. Its SOP Instance UID comes from all other bytes of its data set,
 * which say when the analysis began: equal UIDs are equal bytes, and other bytes have another UID.
 * @param dataset without SOPInstanceUID; with SOPClassUID and SeriesInstanceUID
 * @param seed what else tells the object from others: the source's and the model's hashes, the
 * configuration
 * @param transferSyntaxUid of a compression if Pixel Data is one encapsulated frame
 * @throws ObjectTooLarge
 */
export function dicomObject(
  dataset: Dataset,
  seed: readonly unknown[],
  transferSyntaxUid = EXPLICIT_VR_LITTLE_ENDIAN,
): DicomObject {
  const { SOPClassUID: sopClassUid, SeriesInstanceUID: seriesInstanceUid } = dataset;
  if (typeof sopClassUid !== "string" || typeof seriesInstanceUid !== "string")
    throw new Error("An object has a SOP class and a series");
  const [front, rest] = aroundName(dataset);
  const before = bytesOf(front, transferSyntaxUid);
  const behind = bytesOf(rest, transferSyntaxUid);
  const content = createHash("sha256");
  for (const piece of [...before, ...behind]) content.update(piece);
  const sopInstanceUid = derivedUid("instance", [content.digest("hex"), ...seed]);
  const bytes = Buffer.concat([
    fileHead(sopClassUid, sopInstanceUid, transferSyntaxUid),
    ...before,
    ...dataSetBytes({ SOPInstanceUID: sopInstanceUid }, transferSyntaxUid),
    ...behind,
  ]);
  return { sopClassUid, sopInstanceUid, seriesInstanceUid, bytes, sha256: sha256(bytes) };
}

const META_LENGTH = { tag: 0x00020000, vr: "UL" };
const META_VERSION = 0x00020001;
const VERSION_BYTES = new Uint8Array([0, 1]);
const PREAMBLE = Buffer.concat([Buffer.alloc(128), Buffer.from("DICM")]);

/** Preamble and file meta information (PS3.10 section 7.1). */
export function fileHead(
  sopClassUid: string,
  sopInstanceUid: string,
  transferSyntaxUid: string,
): Uint8Array {
  const meta = new ElementWriter();
  meta.binary(META_VERSION, VERSION_BYTES);
  meta.plain({ tag: 0x00020002, vr: "UI" }, sopClassUid);
  meta.plain({ tag: 0x00020003, vr: "UI" }, sopInstanceUid);
  meta.plain({ tag: 0x00020010, vr: "UI" }, transferSyntaxUid);
  meta.plain({ tag: 0x00020012, vr: "UI" }, IMPLEMENTATION_CLASS_UID);
  meta.plain({ tag: 0x00020013, vr: "SH" }, IMPLEMENTATION_VERSION);
  const elements = Buffer.concat(meta.pieces());
  const length = new ElementWriter();
  length.plain(META_LENGTH, elements.length);
  return Buffer.concat([PREAMBLE, ...length.pieces(), elements]);
}
