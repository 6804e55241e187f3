/**
 * The walker over an encoded data set (PS3.5 section 7): where each element lies, nothing decoded, nothing copied.
 *
 * It is our own on purpose. dcmjs's reader throws on multi-valued character sets and on a missing preamble, leaves
 * big-endian pixels unswapped and copies the pixels; a reader of medical pixels must also check every length against
 * the real size of the file and say which attribute broke. dcmjs stays the data dictionary and the serialiser.
 */
import { RadserveError } from "../../base/errors.js";
import type { Warning } from "../image.js";
import { beginsCodestream } from "./codestream.js";
import { describeTag, dictionaryVr, tagName, type Tag } from "./dictionary.js";
import type { Encoding } from "./walk-types.js";

export interface Fragment {
  /** Offset of its item tag from the first fragment's item tag, as offset tables count. */
  relative: number;
  offset: number;
  length: number;
}

/** Encapsulated pixel data (PS3.5 annex A.4). */
export interface Encapsulated {
  /** Bytes of the Basic Offset Table item; empty where it is. */
  offsetTable: Uint8Array;
  fragments: Fragment[];
  /** False where the Sequence Delimitation Item is missing. */
  delimited: boolean;
  /** The last fragment runs past the end of the file. */
  truncated: boolean;
  /** Offset behind the delimiter, or where the fragments end without one. */
  end: number;
}

export interface Element {
  tag: Tag;
  vr: string;
  /** Of the value. */
  offset: number;
  /** Of the value as declared; for undefined length as walked. */
  length: number;
  /** The bytes that are there; less than `length` only for pixel data in a file cut short. */
  available: number;
  encoding: Encoding;
  /** Items of a sequence of undefined length (others are walked when asked for). */
  items?: DataSet[];
  encapsulated?: Encapsulated;
}

/** Elements by tag; a repeated tag keeps its first value. */
export interface DataSet {
  elements: Map<Tag, Element>;
  encoding: Encoding;
  /** Offset after its last byte, delimiter included. */
  end: number;
}

export interface Walk {
  bytes: Uint8Array;
  view: DataView;
  warnings: Warning[];
}

const ITEM = 0xfffee000;
const ITEM_END = 0xfffee00d;
const SEQUENCE_END = 0xfffee0dd;
const UNDEFINED = 0xffffffff;
const PIXEL_TAGS = new Set<Tag>([0x7fe00008, 0x7fe00009, 0x7fe00010]);
const MAX_DEPTH = 32;
const IMPLICIT_LITTLE: Encoding = { explicit: false, littleEndian: true };

const SHORT_VRS = new Set("AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split(" "));
const LONG_VRS = new Set("OB OD OF OL OV OW SQ SV UC UN UR UT UV".split(" "));

export function newWalk(bytes: Uint8Array): Walk {
  return { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), warnings: [] };
}

/** Adds a caveat once. */
export function warn(warnings: Warning[], code: string, message: string): void {
  if (!warnings.some((w) => w.code === code && w.message === message)) warnings.push({ code, message });
}

function corrupt(message: string, tag?: Tag): RadserveError {
  return new RadserveError("corrupt_image", message, tag === undefined ? undefined : { tag: tagName(tag) });
}

function truncated(tag: Tag | undefined, needed: number, size: number): RadserveError {
  const where = tag === undefined ? "between elements" : `inside ${describeTag(tag)}`;
  return new RadserveError(
    "truncated_image",
    `The file ends ${where}: ${needed} bytes were expected and it has ${size}. Send the file again from its source.`,
    { expected_bytes: needed, found_bytes: size },
  );
}

export function isVr(code: string): boolean {
  return SHORT_VRS.has(code) || LONG_VRS.has(code);
}

function vrAt(walk: Walk, offset: number): string {
  return String.fromCharCode(walk.bytes[offset] ?? 0, walk.bytes[offset + 1] ?? 0);
}

function tagAt(walk: Walk, offset: number, little: boolean): Tag {
  return walk.view.getUint16(offset, little) * 65536 + walk.view.getUint16(offset + 2, little);
}

/** Groups 0008 and 0010, with which data sets begin, as they read in the wrong byte order. */
const SWAPPED_GROUPS = [0x0800, 0x1000];

/** The encoding of a whole data set with the byte order that its first element has, whatever was declared. */
export function withByteOrder(walk: Walk, offset: number, declared: Encoding): Encoding {
  const { explicit, littleEndian } = declared;
  if (!explicit || offset + 8 > walk.bytes.length || !isVr(vrAt(walk, offset + 4))) return declared;
  if (!SWAPPED_GROUPS.includes(walk.view.getUint16(offset, littleEndian))) return declared;
  warn(
    walk.warnings,
    "byte_order_mismatch",
    `The transfer syntax says ${littleEndian ? "little" : "big"} endian but the data set has the other byte order.`,
  );
  return { explicit, littleEndian: !littleEndian };
}

/**
 * The encoding of the data set that begins at `offset`, where its first element contradicts the declared one: files
 * exist whose explicit sequences hold implicit items, and whose transfer syntax names the wrong one of the two.
 */
function encodingAt(walk: Walk, offset: number, end: number, declared: Encoding): Encoding {
  if (offset + 8 > end || !declared.littleEndian) return declared;
  const tag = tagAt(walk, offset, true);
  if (isDelimiter(tag)) return declared;
  const vr = vrAt(walk, offset + 4);
  if (declared.explicit) {
    if (isVr(vr) || /^[A-Z]{2}$/.test(vr)) return declared;
    const length = walk.view.getUint32(offset + 4, true);
    if (length !== UNDEFINED && offset + 8 + length > end) return declared;
    warn(
      walk.warnings,
      "implicit_in_explicit",
      "Implicit VR elements were found in an explicit VR data set.",
    );
    return { ...declared, explicit: false };
  }
  if (!isVr(vr)) return declared;
  const known = dictionaryVr(tag);
  const length = walk.view.getUint32(offset + 4, true);
  const fits = known !== vr && offset + 8 + length <= end;
  if (fits && !(known === "UN" && readsOnAsExplicit(walk, offset, end, tag))) return declared;
  warn(walk.warnings, "explicit_in_implicit", "Explicit VR elements were found in an implicit VR data set.");
  return { ...declared, explicit: true };
}

/** Of a tag that no dictionary knows: whether another element follows it as explicit, and none as implicit. */
function readsOnAsExplicit(walk: Walk, offset: number, end: number, tag: Tag): boolean {
  if (offset + 12 > end || goesOn(walk, offset + 8 + walk.view.getUint32(offset + 4, true), end, tag, true))
    return false;
  const { value, length } = readHeader(walk, offset, end, { explicit: true, littleEndian: true });
  return goesOn(walk, value + length, end, tag, true);
}

interface Header {
  tag: Tag;
  vr: string;
  length: number;
  value: number;
}

function isDelimiter(tag: Tag): boolean {
  return tag >= ITEM && tag <= SEQUENCE_END;
}

/** True where a later element, or the end, follows at `offset`. */
function goesOn(walk: Walk, offset: number, end: number, after: Tag, little: boolean): boolean {
  if (offset === end) return true;
  if (offset + 8 > end) return false;
  const tag = tagAt(walk, offset, little);
  return tag > after && (isDelimiter(tag) || tag >>> 16 === after >>> 16 || isVr(vrAt(walk, offset + 4)));
}

function readHeader(walk: Walk, offset: number, end: number, encoding: Encoding): Header {
  const { view } = walk;
  const little = encoding.littleEndian;
  if (offset + 8 > end) throw truncated(undefined, offset + 8, walk.bytes.length);
  const tag = tagAt(walk, offset, little);
  if (isDelimiter(tag) || !encoding.explicit)
    return {
      tag,
      vr: isDelimiter(tag) ? "" : dictionaryVr(tag),
      length: view.getUint32(offset + 4, little),
      value: offset + 8,
    };
  const vr = vrAt(walk, offset + 4);
  if (SHORT_VRS.has(vr)) return { tag, vr, length: view.getUint16(offset + 6, little), value: offset + 8 };
  // VRs of later editions have the long form too (PS3.5 section 6.2, note)
  if (LONG_VRS.has(vr) || /^[A-Z]{2}$/.test(vr)) {
    if (offset + 12 > end) throw truncated(tag, offset + 12, walk.bytes.length);
    return {
      tag,
      vr: LONG_VRS.has(vr) ? vr : "UN",
      length: view.getUint32(offset + 8, little),
      value: offset + 12,
    };
  }
  const length = view.getUint32(offset + 4, little);
  const short = view.getUint16(offset + 6, little);
  const follows = (at: number) => goesOn(walk, at, end, tag, little);
  // What some writers put for a representation they do not know, with the short form behind it
  if (/^(?: {2}|\?\?|--|\0\0)$/.test(vr) && !follows(offset + 8 + length) && follows(offset + 8 + short)) {
    warn(
      walk.warnings,
      "vr_unknown",
      `The value representation of ${describeTag(tag)} is none that there is.`,
    );
    return { tag, vr: dictionaryVr(tag), length: short, value: offset + 8 };
  }
  if (length !== UNDEFINED && offset + 8 + length > end)
    throw corrupt(
      `The element ${describeTag(tag)} at byte ${offset} has no value representation and its length leads out of the ` +
        "file. The file is damaged or its transfer syntax is wrong.",
      tag,
    );
  warn(walk.warnings, "implicit_in_explicit", "Implicit VR elements were found in an explicit VR data set.");
  return { tag, vr: dictionaryVr(tag), length, value: offset + 8 };
}

/**
 * Where the walk goes on behind an item or delimiter that lies in no sequence, as behind sequences whose length is
 * written as 0: over a whole item, over the head alone where its length is 0 too.
 */
function behindStray(walk: Walk, { tag, length, value }: Header, end: number, encoding: Encoding): number {
  warn(
    walk.warnings,
    "stray_item",
    "An item or delimiter lies outside any sequence; what it holds was ignored.",
  );
  if (tag !== ITEM) return value;
  if (length === UNDEFINED) return walkDataSet(walk, value, end, encoding, 1).end;
  return value + length <= end ? value + length : value;
}

/**
 * Walks the elements from `offset` to `end` or to a delimiter. At the top level (`depth` 0) damage behind the pixel
 * data is a warning and the walk ends; damage before it is an error.
 * Throws RadserveError: corrupt_image, truncated_image.
 */
export function walkDataSet(
  walk: Walk,
  offset: number,
  end: number,
  declared: Encoding,
  depth = 0,
  stopBefore?: (tag: Tag) => boolean,
): DataSet {
  if (depth > MAX_DEPTH)
    throw corrupt(`Sequences are nested deeper than ${MAX_DEPTH} levels. The file is damaged.`);
  const encoding = encodingAt(walk, offset, end, declared);
  const elements = new Map<Tag, Element>();
  let seenPixels = false;
  let last: Tag = 0;
  let strayFrom: Tag = 0;
  while (offset < end) {
    try {
      if (offset + 4 <= end && stopBefore?.(tagAt(walk, offset, encoding.littleEndian))) break;
      if (seenPixels && offset + 4 <= end && tagAt(walk, offset, true) === 0)
        throw corrupt("Zeros lie behind the pixel data.");
      const header = readHeader(walk, offset, end, encoding);
      if (isDelimiter(header.tag)) {
        if (header.tag === ITEM_END && depth > 0) return { elements, encoding, end: header.value };
        if (depth > 0) {
          warn(walk.warnings, "missing_delimiter", "An item ends without its delimiter.");
          return { elements, encoding, end: offset };
        }
        if (seenPixels) throw corrupt("Items lie behind the pixel data.");
        if (header.tag === ITEM) strayFrom = last;
        offset = behindStray(walk, header, end, encoding);
        continue;
      }
      const element = readElement(walk, header, end, encoding, depth);
      // Tags ascend (PS3.5 section 7.1): what begins again from below belongs to the item without a sequence
      if (!elements.has(header.tag) && header.tag >= strayFrom) elements.set(header.tag, element);
      last = Math.max(last, header.tag);
      seenPixels ||= PIXEL_TAGS.has(header.tag);
      offset = header.value + element.length;
    } catch (error) {
      if (!(error instanceof RadserveError) || depth > 0 || !seenPixels) throw error;
      warn(
        walk.warnings,
        "trailing_data",
        "Bytes behind the pixel data are no DICOM elements; they were ignored.",
      );
      break;
    }
  }
  return { elements, encoding, end: offset };
}

function readElement(walk: Walk, header: Header, end: number, encoding: Encoding, depth: number): Element {
  const { tag, vr, length, value } = header;
  const element: Element = { tag, vr, offset: value, length, available: length, encoding };
  if (length === UNDEFINED) {
    // Fragments are not only in the image's own pixels: icons and private elements have them too
    if (PIXEL_TAGS.has(tag) || vr.startsWith("O")) {
      element.encapsulated = readFragments(walk, value, end, encoding.littleEndian);
      const isImage = depth === 0 && PIXEL_TAGS.has(tag);
      if (!isImage && !element.encapsulated.delimited) throw truncated(tag, end + 8, end);
      element.length = element.encapsulated.end - value;
      element.available = element.length;
      return element;
    }
    // UN of undefined length is a sequence in implicit little endian (PS3.5 section 6.2.2, note 4)
    const inner = vr === "UN" && encoding.explicit ? IMPLICIT_LITTLE : encoding;
    const sequence = walkItems(walk, value, end, inner, depth + 1, true);
    element.items = sequence.items;
    element.length = sequence.end - value;
    element.available = element.length;
    return element;
  }
  if (length % 2 === 1)
    warn(walk.warnings, "odd_length", `The length of ${describeTag(tag)} is odd; even lengths are required.`);
  if (value + length > end) {
    // A file cut short in its pixels is judged where the frames are counted
    if (depth > 0 || !PIXEL_TAGS.has(tag)) throw truncated(tag, value + length, walk.bytes.length);
    element.available = end - value;
  }
  return element;
}

function walkItems(
  walk: Walk,
  offset: number,
  end: number,
  encoding: Encoding,
  depth: number,
  toDelimiter: boolean,
): { items: DataSet[]; end: number } {
  const items: DataSet[] = [];
  while (offset + 8 <= end) {
    const tag = tagAt(walk, offset, encoding.littleEndian);
    const length = walk.view.getUint32(offset + 4, encoding.littleEndian);
    if (tag === SEQUENCE_END) return { items, end: offset + 8 };
    if (tag !== ITEM) {
      if (!toDelimiter)
        throw corrupt(`Expected an item of a sequence at byte ${offset} but found ${tagName(tag)}.`, tag);
      warn(walk.warnings, "missing_delimiter", "A sequence ends without its delimiter.");
      return { items, end: offset };
    }
    if (length !== UNDEFINED && offset + 8 + length > end) throw truncated(ITEM, offset + 8 + length, end);
    const stop = length === UNDEFINED ? end : offset + 8 + length;
    const item = walkDataSet(walk, offset + 8, stop, encoding, depth);
    items.push(item);
    offset = length === UNDEFINED ? item.end : stop;
  }
  if (toDelimiter) {
    if (end === walk.bytes.length) throw truncated(SEQUENCE_END, end + 8, end);
    warn(walk.warnings, "missing_delimiter", "A sequence ends without its delimiter.");
  }
  return { items, end };
}

/**
 * Items of a sequence; undefined where the element is none. UN of a defined length is tried as implicit little
 * endian. Throws corrupt_image or truncated_image where the items contradict the element's length.
 */
export function itemsOf(walk: Walk, element: Element): DataSet[] | undefined {
  if (element.items !== undefined) return element.items;
  const asUn = element.vr === "UN" && element.encoding.explicit;
  if (element.vr !== "SQ" && !(asUn && dictionaryVr(element.tag) === "SQ")) return undefined;
  const encoding = asUn ? IMPLICIT_LITTLE : element.encoding;
  element.items = walkItems(walk, element.offset, element.offset + element.length, encoding, 1, false).items;
  return element.items;
}

/**
 * Fragments in pixel data of a defined length, as some writers of compressed frames leave it; undefined where the value
 * begins with no item.
 */
export function fragmentsWithin(
  walk: Walk,
  { offset, available, encoding }: Element,
): Encapsulated | undefined {
  const little = encoding.littleEndian;
  if (available < 8 || tagAt(walk, offset, little) !== ITEM) return undefined;
  const found = readFragments(walk, offset, offset + available, little);
  // The length ends what a delimiter would
  return { ...found, delimited: true };
}

function readFragments(walk: Walk, start: number, end: number, little: boolean): Encapsulated {
  const result: Encapsulated = {
    offsetTable: new Uint8Array(0),
    fragments: [],
    delimited: false,
    truncated: false,
    end,
  };
  let offset = start;
  let first = -1;
  for (let isTable = true; offset + 8 <= end; isTable = false) {
    let tag = tagAt(walk, offset, little);
    if (tag !== ITEM && tag !== SEQUENCE_END && !isTable && offset + 9 <= end) {
      // A fragment of odd length whose pad byte is not counted
      const next = tagAt(walk, offset + 1, little);
      if (next === ITEM || next === SEQUENCE_END) {
        tag = next;
        offset += 1;
      }
    }
    if (tag === SEQUENCE_END) return { ...result, delimited: true, end: offset + 8 };
    if (tag !== ITEM) return { ...result, end: offset };
    const length = walk.view.getUint32(offset + 4, little);
    const available = Math.min(length, end - offset - 8);
    if (isTable && !isFrame(walk, offset + 8, available)) {
      result.offsetTable = walk.bytes.subarray(offset + 8, offset + 8 + available);
    } else {
      if (isTable)
        warn(
          walk.warnings,
          "missing_offset_table",
          "Encapsulated data begins with a frame instead of its Basic Offset Table.",
        );
      if (first < 0) first = offset;
      result.fragments.push({ relative: offset - first, offset: offset + 8, length: available });
    }
    if (available < length) return { ...result, truncated: true };
    offset += 8 + length;
  }
  return result;
}

/** True for a frame in the place of the Basic Offset Table, which some writers leave out. The first offset is 0. */
function isFrame(walk: Walk, offset: number, length: number): boolean {
  return beginsCodestream(walk.bytes.subarray(offset, offset + Math.min(length, 16)));
}
