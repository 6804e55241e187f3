/**
 * Objects as bytes: Explicit VR Little Endian, text in UTF-8 (PS3.5 sections 6 and 7). dcmjs writes every element; what
 * it would guess (VRs that depend on the object, forms of numbers) is decided here. What it has written is kept: most of
 * an object (codes, the model's names, the source's UIDs) stands in the one before it too, and dcmjs makes streams of
 * its own for each element.
 */
import { Kept } from "../../base/bounded-cache.js";
import { canonicalJson } from "../../base/canonical-json.js";
import { sha256 } from "../../files/durable-files.js";
import { VERSION } from "../../base/version.js";
import { dcmjsData, dictionaryVr, SINGLE_VALUE_VRS, tagOf, type Tag } from "../../images/dicom/dictionary.js";
import { EXPLICIT_VR_LITTLE_ENDIAN } from "../../images/dicom/transfer-syntax.js";
import { derivedUid } from "./uid.js";
import { decimalString } from "./values.js";

export type Value = string | number | readonly (string | number)[] | readonly Dataset[] | Uint8Array;

/** Keyword to value. Undefined leaves an attribute out, "" and [] write it empty. */
export interface Dataset {
  [keyword: string]: Value | undefined;
}

interface Element {
  vr: string;
  Value: unknown[];
}

/** A plain value (neither sequence nor bytes) as dcmjs takes it for this VR. */
function plainValues(vr: string, values: readonly (string | number)[]): unknown[] {
  if (values.length === 0) return [];
  switch (vr) {
    case "DS":
      return values.map((v) => (typeof v === "number" ? decimalString(v) : v));
    case "IS":
      return values.map(String);
    case "PN":
      return [values.join("\\")];
    default:
      return [...values];
  }
}

function vrOf(keyword: string, tag: Tag): string {
  const vr = dictionaryVr(tag);
  if (vr === "UN" || vr.length !== 2 || /[a-z]/.test(vr))
    throw new Error(`The attribute ${keyword} has no settled VR`);
  return vr;
}

type Plain = string | number | readonly (string | number)[];

function plainElement(vr: string, value: Plain): Element {
  if (typeof value === "object") return { vr, Value: vr === "SQ" ? [] : plainValues(vr, value) };
  if (value === "") return { vr, Value: [] };
  const values = SINGLE_VALUE_VRS.has(vr) || typeof value === "number" ? [value] : value.split("\\");
  return { vr, Value: plainValues(vr, values) };
}

function isDatasets(value: readonly (string | number)[] | readonly Dataset[]): value is readonly Dataset[] {
  return typeof value[0] === "object";
}

/** A frame is one fragment, as RLE demands (PS3.5 section A.4.2). */
const WRITE = { fragmentMultiframe: false };

function written(tag: Tag, { vr, Value }: Element, transferSyntaxUid = EXPLICIT_VR_LITTLE_ENDIAN): Buffer {
  const data = dcmjsData();
  const stream = new data.WriteBufferStream(256, true);
  const key = tag.toString(16).padStart(8, "0").toUpperCase();
  data.DicomMessage.writeTagObject(stream, key, vr, Value, transferSyntaxUid, WRITE);
  return Buffer.from(stream.getBuffer());
}

const MOST_KEPT_BYTES = 1 << 20;
/** Bytes that an entry takes beside its characters and its value. */
const ENTRY_BYTES = 200;
const kept = new Kept<Buffer>(MOST_KEPT_BYTES, (bytes, key) => ENTRY_BYTES + 2 * key.length + bytes.length);

/** A key that differs for any two values that may be written differently; 0 and -0 are two, as their floats are. */
function keyOf(keyword: string, value: Plain): string {
  if (typeof value === "string") return `${keyword}=${value}`;
  if (typeof value === "number") return `${keyword}#${numberKey(value)}`;
  let key = `${keyword}[`;
  for (const each of value)
    key += typeof each === "number" ? `#${numberKey(each)},` : `${each.length}:${each},`;
  return key;
}

const numberKey = (value: number): string => (Object.is(value, -0) ? "-0" : String(value));

/** Elements in the order of their tags. */
function ordered(dataset: Dataset): [Tag, string, Value][] {
  const elements: [Tag, string, Value][] = [];
  for (const keyword of Object.keys(dataset)) {
    const value = dataset[keyword];
    if (value === undefined) continue;
    const tag = tagOf(keyword);
    if (tag === undefined) throw new Error(`The dictionary does not know ${keyword}`);
    elements.push([tag, keyword, value]);
  }
  return elements.sort(([a], [b]) => a - b);
}

/** Sequences and items are of undefined length and end with their delimiters (PS3.5 section 7.5). */
const ITEM = Buffer.from("feff00e0ffffffff", "hex");
const ITEM_END = Buffer.from("feff0de000000000", "hex");
const SEQUENCE_END = Buffer.from("feffdde000000000", "hex");

function sequenceHeader(tag: Tag): Buffer {
  const header = Buffer.from("0000000053510000ffffffff", "hex");
  header.writeUInt16LE(tag >>> 16, 0);
  header.writeUInt16LE(tag & 0xffff, 2);
  return header;
}

/**
 * The bytes of a data set, in pieces, one behind the other. Pixel Data is put in as it is: through dcmjs's streams it
 * would go four times, in pieces of 256 bytes.
 * @param transferSyntaxUid of a compression if Pixel Data is one encapsulated frame
 */
export function dataSetBytes(
  dataset: Dataset,
  transferSyntaxUid: string,
  into: Uint8Array[] = [],
): Uint8Array[] {
  for (const [tag, keyword, value] of ordered(dataset)) {
    if (value instanceof Uint8Array) {
      into.push(...pixelData(tag, value, transferSyntaxUid));
    } else if (typeof value === "object" && value.length > 0 && isDatasets(value)) {
      into.push(sequenceHeader(tag));
      for (const item of value) {
        into.push(ITEM);
        dataSetBytes(item, transferSyntaxUid, into);
        into.push(ITEM_END);
      }
      into.push(SEQUENCE_END);
    } else {
      const plain = value as Plain;
      const make = () => written(tag, plainElement(vrOf(keyword, tag), plain));
      into.push(kept.get(keyOf(keyword, plain), make));
    }
  }
  return into;
}

/** Sequence Delimitation Item behind the fragments (PS3.5 section A.4). */
const DELIMITER_BYTES = 8;

/**
 * Pixel Data, the only binary value of our objects: OB, for pixels of at most eight bits (PS3.5 section 8.2, A.2). The
 * element is written empty, and the pixels are put in afterwards.
 */
function pixelData(tag: Tag, pixels: Uint8Array, transferSyntaxUid: string): Uint8Array[] {
  const empty = written(tag, { vr: "OB", Value: [new ArrayBuffer(0)] }, transferSyntaxUid);
  // Its length, or that of its one fragment, stands right before where the pixels belong
  const end = empty.length - (transferSyntaxUid === EXPLICIT_VR_LITTLE_ENDIAN ? 0 : DELIMITER_BYTES);
  const padding = Buffer.alloc(pixels.length % 2);
  empty.writeUInt32LE(pixels.length + padding.length, end - 4);
  return [empty.subarray(0, end), pixels, padding, empty.subarray(end)];
}

/** Implementation Class UID: every file says which software wrote it (PS3.7 section D.3.3.2). */
const IMPLEMENTATION_CLASS = derivedUid("implementation", []);

/** A hash of all that the data set holds; equal hashes are equal bytes. */
function contentHash(dataset: Dataset): string {
  const flat = Object.entries(dataset).map(([keyword, value]) => [
    keyword,
    value instanceof Uint8Array ? sha256(value) : (value ?? null),
  ]);
  return sha256(canonicalJson(Object.fromEntries(flat)));
}

/** An object ready to be written: its file, and its names for those that refer to it. */
export interface DicomObject {
  sopClassUid: string;
  sopInstanceUid: string;
  seriesInstanceUid: string;
  bytes: Uint8Array;
}

/**
 * Names and serialises an object. Its SOP Instance UID comes from all that it holds, the start of the analysis among
 * it: equal UIDs are equal bytes, and other bytes have another UID.
 * @param dataset without SOPInstanceUID; with SOPClassUID and SeriesInstanceUID
 * @param seed what else tells the object from others: the source's and the model's hashes, the configuration
 * @param transferSyntaxUid of a compression if Pixel Data is one encapsulated frame
 */
export function dicomObject(
  dataset: Dataset,
  seed: readonly unknown[],
  transferSyntaxUid = EXPLICIT_VR_LITTLE_ENDIAN,
): DicomObject {
  const { SOPClassUID: sopClassUid, SeriesInstanceUID: seriesInstanceUid } = dataset;
  if (typeof sopClassUid !== "string" || typeof seriesInstanceUid !== "string")
    throw new Error("An object has a SOP class and a series");
  const sopInstanceUid = derivedUid("instance", [contentHash(dataset), ...seed]);
  const bytes = Buffer.concat([
    fileHead(sopClassUid, sopInstanceUid, transferSyntaxUid),
    ...dataSetBytes({ ...dataset, SOPInstanceUID: sopInstanceUid }, transferSyntaxUid),
  ]);
  return { sopClassUid, sopInstanceUid, seriesInstanceUid, bytes };
}

/** Preamble and file meta information (PS3.10 section 7.1). */
function fileHead(sopClassUid: string, sopInstanceUid: string, transferSyntaxUid: string): Buffer {
  const head = new (dcmjsData().DicomDict)({
    "00020001": { vr: "OB", Value: [new Uint8Array([0, 1]).buffer] },
    "00020002": { vr: "UI", Value: [sopClassUid] },
    "00020003": { vr: "UI", Value: [sopInstanceUid] },
    "00020010": { vr: "UI", Value: [transferSyntaxUid] },
    "00020012": { vr: "UI", Value: [IMPLEMENTATION_CLASS] },
    "00020013": { vr: "SH", Value: [`RADSERVE_${VERSION}`.slice(0, 16)] },
  });
  return Buffer.from(head.write());
}
