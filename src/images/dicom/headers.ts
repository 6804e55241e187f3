/**
 * The headers of elements (PS3.5 section 7.1): tag, value representation and length, in the byte
 * order and with or without explicit VRs, whatever the file declares.
 */
import { errors, RadserveError } from "../../base/errors.js";
import { warn, type Warning } from "../image.js";
import { describeTag, dictionaryVr, tagName, type Tag } from "./dictionary.js";

/** How a data set is encoded; it can change from item to item (UN content, PS3.5 section 6.2.2). */
export interface Encoding {
  explicit: boolean;
  littleEndian: boolean;
}

/** The bytes that are walked, and what was odd about them. */
export interface Walk {
  bytes: Uint8Array;
  view: DataView;
  warnings: Warning[];
  /** Elements, items and fragments seen so far. */
  seen: number;
  /** How many may be seen. */
  most: number;
  /**
   * False where they have been counted already, and are seen again because somebody asks for them.
   */
  counts: boolean;
  /** How many there are in the whole file. */
  all: number;
  /**
   * Where nested sequences of undefined length end, by where they begin: they are walked once, not
   * once more for each sequence around them whose items are asked for. Undefined inside a sequence
   * whose faults are not told.
   */
  ends: Map<number, number> | undefined;
}

/**
 * Elements, items and fragments that are walked at most. Each takes time and memory whatever its
 * length, so a file of empty ones would stop its thread. An enhanced object of 20,000 frames has
 * some 500,000.
 */
export const MOST_SEEN = 2_000_000;

/** A file has more elements than its reader allowed; it can be read with room for more. */
export class TooManyElements extends Error {}

/** A file holds more of something than is read, so that no part of it can be used. */
export class OverBudget extends RadserveError {}

/** @param what of which there is more, in the plural */
export function overBudget(most: number, what: string): OverBudget {
  return new OverBudget(
    "unsupported_format",
    `Expected at most ${most} ${what}, found more. Split the object at its source.`,
    { most },
  );
}

/**
 * Counts one more element, item, fragment or delimiter.
 * @throws OverBudget unsupported_format beyond the most that are ever walked
 * @throws TooManyElements beyond what this walk may see
 */
export function count(walk: Walk): void {
  if (!walk.counts || ++walk.seen <= walk.most) return;
  if (walk.most < MOST_SEEN) throw new TooManyElements();
  throw overBudget(MOST_SEEN, "elements and items in a file");
}

export interface Header {
  tag: Tag;
  vr: string;
  length: number;
  /** Offset of the value. */
  value: number;
}

export const ITEM = 0xfffee000;
export const ITEM_END = 0xfffee00d;
export const SEQUENCE_END = 0xfffee0dd;
export const UNDEFINED = 0xffffffff;

const SHORT_VRS = new Set(
  "AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split(" "),
);
const LONG_VRS = new Set("OB OD OF OL OV OW SQ SV UC UN UR UT UV".split(" "));
const LIKE_A_VR = /^[A-Z]{2}$/;

/** @param most elements, items and fragments that may be seen */
export function newWalk(bytes: Uint8Array, most = MOST_SEEN): Walk {
  return {
    bytes,
    view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    warnings: [],
    seen: 0,
    most,
    counts: true,
    all: 0,
    ends: new Map(),
  };
}

export function corrupt(message: string, tag?: Tag): RadserveError {
  return errors.corrupt_image(message, tag === undefined ? undefined : { tag: tagName(tag) });
}

export function truncated(tag: Tag | undefined, needed: number, size: number): RadserveError {
  const where = tag === undefined ? "between elements" : `inside ${describeTag(tag)}`;
  return errors.truncated_image(
    `The file ends ${where}: ${needed} bytes were expected and it has ${size}. Send the file again from its source.`,
    { expected_bytes: needed, found_bytes: size },
  );
}

/** The value representations by their two letters as one number, the first in the upper byte. */
const VRS: ReadonlyMap<number, { vr: string; long: boolean }> = new Map(
  [...SHORT_VRS, ...LONG_VRS].map((vr) => [
    vr.charCodeAt(0) * 256 + vr.charCodeAt(1),
    { vr, long: LONG_VRS.has(vr) },
  ]),
);

/** Whether the length of a value in Explicit VR has four bytes (PS3.5 table 7.1-1). */
export const isLongVr = (code: string): boolean => LONG_VRS.has(code);
export const isVr = (code: string): boolean => SHORT_VRS.has(code) || LONG_VRS.has(code);

/** True for the tags of items and of the delimiters of items and sequences. */
export const isDelimiter = (tag: Tag): boolean => tag >= ITEM && tag <= SEQUENCE_END;

/** Undefined where the two letters are no value representation that there is. */
const knownVrAt = ({ view }: Walk, offset: number) => VRS.get(view.getUint16(offset, false));

function vrAt(walk: Walk, offset: number): string {
  return String.fromCharCode(walk.bytes[offset] ?? 0, walk.bytes[offset + 1] ?? 0);
}

export function tagAt(walk: Walk, offset: number, little: boolean): Tag {
  return walk.view.getUint16(offset, little) * 65536 + walk.view.getUint16(offset + 2, little);
}

/** Groups 0008 and 0010, with which data sets begin, as they read in the wrong byte order. */
const SWAPPED_GROUPS = [0x0800, 0x1000];

/** The declared encoding of a whole data set, with the byte order that its first element shows. */
export function withByteOrder(walk: Walk, offset: number, declared: Encoding): Encoding {
  const { explicit, littleEndian } = declared;
  if (!explicit || offset + 8 > walk.bytes.length) return declared;
  if (knownVrAt(walk, offset + 4) === undefined) return declared;
  if (!SWAPPED_GROUPS.includes(walk.view.getUint16(offset, littleEndian))) return declared;
  warn(
    walk.warnings,
    "byte_order_mismatch",
    `The transfer syntax says ${littleEndian ? "little" : "big"} endian but the data set has the other byte order.`,
  );
  return { explicit, littleEndian: !littleEndian };
}

/**
 * The encoding of the data set that begins at `offset`. Its first element is believed against the
 * declared encoding: files exist whose explicit sequences hold implicit items, and files whose
 * transfer syntax names the wrong one.
 */
export function encodingAt(walk: Walk, offset: number, end: number, declared: Encoding): Encoding {
  if (offset + 8 > end || !declared.littleEndian) return declared;
  const tag = tagAt(walk, offset, true);
  if (isDelimiter(tag)) return declared;
  const known = knownVrAt(walk, offset + 4);
  const length = walk.view.getUint32(offset + 4, true);
  if (declared.explicit) {
    if (known !== undefined || LIKE_A_VR.test(vrAt(walk, offset + 4))) return declared;
    if (length !== UNDEFINED && offset + 8 + length > end) return declared;
    warnOfImplicit(walk);
    return { ...declared, explicit: false };
  }
  if (known === undefined) return declared;
  const listed = dictionaryVr(tag);
  const fits = listed !== known.vr && offset + 8 + length <= end;
  if (fits && !(listed === "UN" && readsOnAsExplicit(walk, offset, end, tag))) return declared;
  warn(
    walk.warnings,
    "explicit_in_implicit",
    "Explicit VR elements were found in an implicit VR data set.",
  );
  return { ...declared, explicit: true };
}

function warnOfImplicit({ warnings }: Walk): void {
  warn(
    warnings,
    "implicit_in_explicit",
    "Implicit VR elements were found in an explicit VR data set.",
  );
}

/**
 * For a tag that no dictionary knows: true if another element follows when it is read as explicit,
 * and only then.
 */
function readsOnAsExplicit(walk: Walk, offset: number, end: number, tag: Tag): boolean {
  if (
    offset + 12 > end ||
    goesOn(walk, offset + 8 + walk.view.getUint32(offset + 4, true), end, tag, true)
  )
    return false;
  const { value, length } = readHeader(walk, offset, end, { explicit: true, littleEndian: true });
  return goesOn(walk, value + length, end, tag, true);
}

/** True if an element of a higher tag, or the end, follows at `offset`. */
function goesOn(walk: Walk, offset: number, end: number, after: Tag, little: boolean): boolean {
  if (offset === end) return true;
  if (offset + 8 > end) return false;
  const tag = tagAt(walk, offset, little);
  if (tag <= after) return false;
  const isSameGroup = tag >>> 16 === after >>> 16;
  return isDelimiter(tag) || isSameGroup || knownVrAt(walk, offset + 4) !== undefined;
}

/** Throws RadserveError: corrupt_image, truncated_image. */
export function readHeader(walk: Walk, offset: number, end: number, encoding: Encoding): Header {
  const { view } = walk;
  const little = encoding.littleEndian;
  if (offset + 8 > end) throw truncated(undefined, offset + 8, walk.bytes.length);
  const tag = tagAt(walk, offset, little);
  const length = view.getUint32(offset + 4, little);
  if (isDelimiter(tag)) return { tag, vr: "", length, value: offset + 8 };
  if (!encoding.explicit) return { tag, vr: dictionaryVr(tag), length, value: offset + 8 };
  const short = view.getUint16(offset + 6, little);
  const known = knownVrAt(walk, offset + 4);
  if (known?.long === false) return { tag, vr: known.vr, length: short, value: offset + 8 };
  const vr = known?.vr ?? vrAt(walk, offset + 4);
  // VRs of later editions have the long form too (PS3.5 section 6.2, note)
  if (known !== undefined || LIKE_A_VR.test(vr)) {
    if (offset + 12 > end) throw truncated(tag, offset + 12, walk.bytes.length);
    const called = known?.vr ?? "UN";
    return { tag, vr: called, length: view.getUint32(offset + 8, little), value: offset + 12 };
  }
  const follows = (at: number) => goesOn(walk, at, end, tag, little);
  // Some writers put these for a representation that they do not know, with the short form behind
  // it
  if (
    /^(?: {2}|\?\?|--|\0\0)$/.test(vr) &&
    !follows(offset + 8 + length) &&
    follows(offset + 8 + short)
  ) {
    warn(
      walk.warnings,
      "vr_unknown",
      `The value representation of ${describeTag(tag)} does not exist.`,
    );
    return { tag, vr: dictionaryVr(tag), length: short, value: offset + 8 };
  }
  if (length !== UNDEFINED && offset + 8 + length > end)
    throw corrupt(
      `The element ${describeTag(tag)} at byte ${offset} has no value representation and its length leads out of the ` +
        "file. The file is damaged or its transfer syntax is wrong.",
      tag,
    );
  warnOfImplicit(walk);
  return { tag, vr: dictionaryVr(tag), length, value: offset + 8 };
}
