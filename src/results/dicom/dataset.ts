/**
 * Data sets by keyword, and their bytes: Explicit VR Little Endian, text in UTF-8 (PS3.5 sections 6 and 7). dcmjs writes
 * them; what it would guess (VRs that depend on the object, forms of numbers) is decided here.
 */
import { createHash } from "node:crypto";
import dcmjs from "dcmjs";
import { dictionaryVr, tagOf } from "../../dicom/dictionary.js";
import { canonicalJson } from "../../models/hash.js";
import { VERSION } from "../../version.js";
import { derivedUid } from "./uid.js";

export type Value = string | number | readonly (string | number)[] | readonly Dataset[] | Uint8Array;

/** Keyword to value. Undefined leaves an attribute out, "" and [] write it empty. */
export interface Dataset {
  [keyword: string]: Value | undefined;
}

type Element = { vr: string; Value: unknown[] };
type Elements = Record<string, Element>;

const EXPLICIT_VR_LITTLE_ENDIAN = "1.2.840.10008.1.2.1";
/** Says in every file which software wrote it (PS3.7 section D.3.3.2). */
const IMPLEMENTATION_CLASS = derivedUid("implementation", []);
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

function vrOf(keyword: string, tag: number, dataset: Dataset): string {
  const vr = dictionaryVr(tag);
  // Pixel Data in Explicit VR: OB for one bit and eight, OW beyond (PS3.5 section 8.2, A.2)
  if (vr === "ox") return Number(dataset["BitsAllocated"]) > 8 ? "OW" : "OB";
  if (vr === "xs") return "US";
  if (vr === "UN" || vr.length !== 2 || /[a-z]/.test(vr))
    throw new Error(`The attribute ${keyword} has no settled VR`);
  return vr;
}

function isDatasets(value: readonly (string | number)[] | readonly Dataset[]): value is readonly Dataset[] {
  return typeof value[0] === "object";
}

function elementOf(keyword: string, value: Value, dataset: Dataset): [string, Element] {
  const tag = tagOf(keyword);
  if (tag === undefined) throw new Error(`The dictionary does not know ${keyword}`);
  const vr = vrOf(keyword, tag, dataset);
  const key = tag.toString(16).padStart(8, "0").toUpperCase();
  if (value instanceof Uint8Array) {
    // dcmjs takes ArrayBuffers, and pads no binary value
    const padded = new Uint8Array(value.length + (value.length % 2));
    padded.set(value);
    return [key, { vr, Value: [padded.buffer] }];
  }
  if (typeof value === "string" || typeof value === "number") {
    const none = value === "";
    const values = SINGLE_VALUE_VRS.has(vr) || typeof value === "number" ? [value] : value.split("\\");
    return [key, { vr, Value: none ? [] : plainValues(vr, values) }];
  }
  if (value.length > 0 && isDatasets(value)) return [key, { vr, Value: value.map(elementsOf) }];
  return [key, { vr, Value: vr === "SQ" ? [] : plainValues(vr, value as readonly (string | number)[]) }];
}

function elementsOf(dataset: Dataset): Elements {
  const elements: Elements = {};
  for (const [keyword, value] of Object.entries(dataset)) {
    if (value === undefined) continue;
    const [key, element] = elementOf(keyword, value, dataset);
    elements[key] = element;
  }
  return elements;
}

/** A hash of all that the data set holds; equal hashes are equal bytes. */
function contentHash(dataset: Dataset): string {
  const flat = Object.entries(dataset).map(([keyword, value]) => [
    keyword,
    value instanceof Uint8Array ? createHash("sha256").update(value).digest("hex") : (value ?? null),
  ]);
  return createHash("sha256")
    .update(canonicalJson(Object.fromEntries(flat)))
    .digest("hex");
}

/** A frame is one fragment, as RLE demands (PS3.5 section A.4.2). */
const WRITE = { fragmentMultiframe: false };

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
 * @param transferSyntaxUid where Pixel Data is one encapsulated frame
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
  const meta = elementsOf({
    FileMetaInformationVersion: new Uint8Array([0, 1]),
    MediaStorageSOPClassUID: sopClassUid,
    MediaStorageSOPInstanceUID: sopInstanceUid,
    TransferSyntaxUID: transferSyntaxUid,
    ImplementationClassUID: IMPLEMENTATION_CLASS,
    ImplementationVersionName: `RADSERVE_${VERSION}`.slice(0, 16),
  });
  const bytes = fileOf(
    meta,
    { ...dataset, SOPInstanceUID: sopInstanceUid },
    transferSyntaxUid !== EXPLICIT_VR_LITTLE_ENDIAN,
  );
  return { sopClassUid, sopInstanceUid, seriesInstanceUid, bytes };
}

/** Sequence Delimitation Item behind the fragments (PS3.5 section A.4). */
const DELIMITER_BYTES = 8;

/**
 * The file's bytes. dcmjs writes Pixel Data empty and the pixels are put in afterwards: through its streams they would
 * go four times, in pieces of 256 bytes.
 */
function fileOf(meta: Elements, dataset: Dataset, encapsulated: boolean): Uint8Array {
  const { PixelData: pixels } = dataset;
  const file = new dcmjs.data.DicomDict(meta);
  const apart = pixels instanceof Uint8Array;
  file.dict = elementsOf(apart ? { ...dataset, PixelData: new Uint8Array(0) } : dataset);
  const written = Buffer.from(file.write(WRITE));
  if (!apart) return written;
  // The last element: its length, or that of its one fragment, stands right before where the pixels belong
  const end = written.length - (encapsulated ? DELIMITER_BYTES : 0);
  const padding = Buffer.alloc(pixels.length % 2);
  written.writeUInt32LE(pixels.length + padding.length, end - 4);
  return Buffer.concat([written.subarray(0, end), pixels, padding, written.subarray(end)]);
}
