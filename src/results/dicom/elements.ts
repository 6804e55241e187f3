/**
 * Data sets by keyword as bytes: Explicit VR Little Endian, text in UTF-8 (PS3.5 sections 6 and 7). dcmjs writes every
 * element; what it would guess (VRs that depend on the object, forms of numbers) is decided here. What it has written is
 * kept: most of an object (codes, the model's names, the source's UIDs) stands in the one before it too, and dcmjs makes
 * streams of its own for each element.
 */
import { data } from "../../images/dicom/dcmjs.js";
import { dictionaryVr, tagOf, type Tag } from "../../images/dicom/dictionary.js";
import { Kept } from "../../base/bounded-cache.js";

export type Value = string | number | readonly (string | number)[] | readonly Dataset[] | Uint8Array;

/** Keyword to value. Undefined leaves an attribute out, "" and [] write it empty. */
export interface Dataset {
  [keyword: string]: Value | undefined;
}

interface Element {
  vr: string;
  Value: unknown[];
}

export const EXPLICIT_VR_LITTLE_ENDIAN = "1.2.840.10008.1.2.1";
/** One value each: a backslash in them is text. */
const SINGLE_VALUE_VRS = new Set(["LT", "ST", "UT", "UR"]);
const LONGEST_DS = 16;

/** A number as a Decimal String: the shortest form that is exact, else as many digits as 16 characters hold. */
export function decimalString(value: number): string {
  if (!Number.isFinite(value)) throw new RangeError(`Expected a finite number for a DS, found ${value}`);
  const exact = String(value);
  if (exact.length <= LONGEST_DS) return exact;
  for (let digits = 15; digits > 0; digits--) {
    const shorter = String(Number(value.toPrecision(digits)));
    if (shorter.length <= LONGEST_DS) return shorter;
  }
  return value.toExponential(8);
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

function vrOf(keyword: string, tag: Tag, dataset: Dataset): string {
  const vr = dictionaryVr(tag);
  // Pixel Data in Explicit VR: OB for one bit and eight, OW beyond (PS3.5 section 8.2, A.2)
  if (vr === "ox") return Number(dataset["BitsAllocated"]) > 8 ? "OW" : "OB";
  if (vr === "xs") return "US";
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
  const stream = new data.WriteBufferStream(256, true);
  const key = tag.toString(16).padStart(8, "0").toUpperCase();
  data.DicomMessage.writeTagObject(stream, key, vr, Value, transferSyntaxUid, WRITE);
  return Buffer.from(stream.getBuffer());
}

const MOST_KEPT_BYTES = 1 << 20;
/** What an entry takes beside its characters and bytes. */
const ENTRY_BYTES = 200;
const kept = new Kept<Buffer>(MOST_KEPT_BYTES, (bytes, key) => ENTRY_BYTES + 2 * key.length + bytes.length);

/** Different for every two values that may be written differently: 0 and -0 too, whose floats are not the same. */
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
 * @param transferSyntaxUid where Pixel Data is one encapsulated frame
 */
export function dataSetBytes(
  dataset: Dataset,
  transferSyntaxUid: string,
  into: Uint8Array[] = [],
): Uint8Array[] {
  for (const [tag, keyword, value] of ordered(dataset)) {
    if (value instanceof Uint8Array) {
      const vr = vrOf(keyword, tag, dataset);
      if (keyword === "PixelData") into.push(...pixelData(tag, vr, value, transferSyntaxUid));
      else into.push(written(tag, { vr, Value: [evenBytes(value).buffer] }));
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
      const make = () => written(tag, plainElement(vrOf(keyword, tag, dataset), plain));
      into.push(kept.get(keyOf(keyword, plain), make));
    }
  }
  return into;
}

/** dcmjs takes ArrayBuffers, and pads no binary value. */
function evenBytes(value: Uint8Array): Uint8Array<ArrayBuffer> {
  const padded = new Uint8Array(value.length + (value.length % 2));
  padded.set(value);
  return padded;
}

/** Sequence Delimitation Item behind the fragments (PS3.5 section A.4). */
const DELIMITER_BYTES = 8;

/** Written empty, and the pixels put in afterwards. */
function pixelData(tag: Tag, vr: string, pixels: Uint8Array, transferSyntaxUid: string): Uint8Array[] {
  const empty = written(tag, { vr, Value: [new ArrayBuffer(0)] }, transferSyntaxUid);
  // Its length, or that of its one fragment, stands right before where the pixels belong
  const end = empty.length - (transferSyntaxUid === EXPLICIT_VR_LITTLE_ENDIAN ? 0 : DELIMITER_BYTES);
  const padding = Buffer.alloc(pixels.length % 2);
  empty.writeUInt32LE(pixels.length + padding.length, end - 4);
  return [empty.subarray(0, end), pixels, padding, empty.subarray(end)];
}
