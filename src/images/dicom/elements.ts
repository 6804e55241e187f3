/**
 * The walker over an encoded data set (PS3.5 section 7): where each element lies, nothing decoded,
 * nothing copied.
 *
 * It is our own on purpose. dcmjs's reader throws on multi-valued character sets and on a missing
 * preamble, leaves big-endian pixels unswapped and copies the pixels; a reader of medical pixels
 * must also check every length against the real size of the file and say which attribute broke.
 * dcmjs stays the data dictionary and the serialiser.
 */
import { RadserveError } from "../../base/errors.js";
import { warn } from "../image.js";
import { describeTag, dictionaryVr, tagName, type Tag } from "./dictionary.js";
import { readFragments, type Encapsulated } from "./frame-fragments.js";
import {
  corrupt,
  count,
  encodingAt,
  isDelimiter,
  ITEM,
  ITEM_END,
  OverBudget,
  overBudget,
  readHeader,
  SEQUENCE_END,
  tagAt,
  truncated,
  UNDEFINED,
  withByteOrder,
  type Encoding,
  type Header,
  type Walk,
} from "./headers.js";

export interface Element {
  tag: Tag;
  vr: string;
  /** Byte offset where the value starts. */
  offset: number;
  /** Bytes of the value as declared; for undefined length, as many as were walked. */
  length: number;
  /** The bytes that are there; less than `length` only for pixel data in a file cut short. */
  available: number;
  encoding: Encoding;
  /** How the items of a sequence of undefined length are encoded. */
  inner?: Encoding;
  /** Items of a sequence, once they were asked for. */
  items?: DataSet[];
  encapsulated?: Encapsulated;
}

/** Elements by tag; of a repeated tag the first. */
export interface DataSet {
  elements: Map<Tag, Element>;
  /** Tags that stand twice with different values (PS3.5 section 7.1 has each once). */
  doubled?: Tag[];
  encoding: Encoding;
  /** Offset after its last byte, delimiter included. */
  end: number;
}

const PIXEL_TAGS = new Set<Tag>([0x7fe00008, 0x7fe00009, 0x7fe00010]);
const MAX_DEPTH = 32;
/** Elements that are kept of one data set or item: no standard has so many. */
const MOST_KEPT = 1 << 16;
/** Items that are made of one sequence, where there are not more frames that they may describe. */
const MOST_ITEMS = 1 << 18;
export const IMPLICIT_LITTLE: Encoding = { explicit: false, littleEndian: true };

/**
 * Walks a whole data set, in the byte order that its first element shows; otherwise as walkDataSet.
 */
export function walkWhole(
  walk: Walk,
  offset: number,
  declared: Encoding,
  stopBefore?: (tag: Tag) => boolean,
): DataSet {
  const encoding = withByteOrder(walk, offset, declared);
  return walkDataSet(walk, offset, walk.bytes.length, encoding, 0, stopBefore);
}

/**
 * Walks the elements from `offset` to `end` or to a delimiter, and keeps them; what their sequences
 * hold is counted, and made when it is asked for. At the top level (`depth` 0) damage behind the
 * pixel data is a warning and the walk ends; damage before it is an error. Throws RadserveError:
 * corrupt_image, truncated_image, unsupported_format.
 */
export function walkDataSet(
  walk: Walk,
  offset: number,
  end: number,
  declared: Encoding,
  depth = 0,
  stopBefore?: (tag: Tag) => boolean,
): DataSet {
  const encoding = encodingAt(walk, offset, end, declared);
  const elements = new Map<Tag, Element>();
  const doubled: Tag[] = [];
  let last: Tag = 0;
  let strayFrom: Tag = 0;
  let seen = 0;
  const keep = (element: Element | undefined) => {
    if (++seen > MOST_KEPT) throw overBudget(MOST_KEPT, "elements in one data set or item");
    if (element === undefined) {
      strayFrom = last;
      return;
    }
    // Tags ascend (PS3.5 section 7.1): what begins again from below belongs to the item without a
    // sequence
    const { tag } = element;
    const first = tag >= strayFrom ? elements.get(tag) : undefined;
    if (first !== undefined) noteDoubled(walk, first, element, doubled);
    else if (tag >= strayFrom) elements.set(tag, element);
    last = Math.max(last, tag);
  };
  return {
    elements,
    doubled,
    encoding,
    end: walkElements(walk, offset, end, encoding, depth, keep, stopBefore),
  };
}

/**
 * Walks a data set as walkDataSet does, without keeping anything unless `keep` does.
 * @param keep takes each element, and undefined where an item lies outside any sequence
 * @returns the offset behind them
 */
function walkElements(
  walk: Walk,
  offset: number,
  end: number,
  encoding: Encoding,
  depth: number,
  keep?: (element: Element | undefined) => void,
  stopBefore?: (tag: Tag) => boolean,
): number {
  if (depth > MAX_DEPTH) throw tooDeep();
  let seenPixels = false;
  while (offset < end) {
    try {
      if (offset + 4 <= end && stopBefore?.(tagAt(walk, offset, encoding.littleEndian))) break;
      if (seenPixels && offset + 4 <= end && tagAt(walk, offset, true) === 0)
        throw corrupt("Zeros lie behind the pixel data.");
      count(walk);
      const header = readHeader(walk, offset, end, encoding);
      const { tag } = header;
      if (isDelimiter(tag)) {
        if (tag === ITEM_END && depth > 0) return header.value;
        if (depth > 0) {
          warn(walk.warnings, "missing_delimiter", "An item ends without its delimiter.");
          return offset;
        }
        if (seenPixels) throw corrupt("Items lie behind the pixel data.");
        if (tag === ITEM) keep?.(undefined);
        offset = behindStray(walk, header, end, encoding);
        continue;
      }
      offset = walkElement(walk, header, end, encoding, depth, keep);
      seenPixels ||= PIXEL_TAGS.has(tag);
    } catch (error) {
      if (!isDamage(error) || depth > 0 || !seenPixels) throw error;
      warn(
        walk.warnings,
        "trailing_data",
        "Bytes behind the pixel data are no DICOM elements; they were ignored.",
      );
      break;
    }
  }
  return offset;
}

/**
 * True for what is wrong with some bytes; false for what is too much altogether, and for faults of
 * the program.
 */
function isDamage(error: unknown): boolean {
  return error instanceof RadserveError && !(error instanceof OverBudget);
}

function tooDeep(): OverBudget {
  const message = `Sequences are nested deeper than ${MAX_DEPTH} levels. The file is damaged.`;
  return new OverBudget("corrupt_image", message, { most: MAX_DEPTH });
}

/**
 * Readers differ in which of two elements of one tag they take; if their values are the same, no
 * matter.
 */
function noteDoubled(walk: Walk, first: Element, second: Element, doubled: Tag[]): void {
  const { tag } = first;
  if ((tag & 0xffff) === 0) return;
  const bytes = ({ offset, available }: Element) => walk.bytes.subarray(offset, offset + available);
  if (first.vr === second.vr && Buffer.compare(bytes(first), bytes(second)) === 0)
    warn(
      walk.warnings,
      "doubled_element",
      `${describeTag(tag)} stands twice, with the same value.`,
    );
  else doubled.push(tag);
}

/**
 * Where the walk goes on behind an item or delimiter that lies in no sequence, as behind sequences
 * whose length is written as 0: over a whole item, or over the head alone if the item's length is 0
 * too.
 */
function behindStray(
  walk: Walk,
  { tag, length, value }: Header,
  end: number,
  encoding: Encoding,
): number {
  warn(
    walk.warnings,
    "stray_item",
    "An item or delimiter lies outside any sequence; what it holds was ignored.",
  );
  if (tag !== ITEM) return value;
  if (length === UNDEFINED)
    return walkElements(walk, value, end, encodingAt(walk, value, end, encoding), 1);
  return value + length <= end ? value + length : value;
}

/**
 * @param keep takes the element; without it, it is only counted
 * @returns the offset behind its value
 */
function walkElement(
  walk: Walk,
  header: Header,
  end: number,
  encoding: Encoding,
  depth: number,
  keep: ((element: Element) => void) | undefined,
): number {
  const { tag, vr, length, value } = header;
  if (length === UNDEFINED) return ofUndefinedLength(walk, header, end, encoding, depth, keep);
  if (length % 2 === 1)
    warn(
      walk.warnings,
      "odd_length",
      `The length of ${describeTag(tag)} is odd; even lengths are required.`,
    );
  let available = length;
  if (value + length > end) {
    // A file cut short in its pixels is judged where the frames are counted
    if (depth > 0 || !PIXEL_TAGS.has(tag)) throw truncated(tag, value + length, walk.bytes.length);
    available = end - value;
  }
  countInside(walk, header, encoding, depth);
  keep?.({ tag, vr, offset: value, length, available, encoding });
  return value + length;
}

/** Nested sequences whose ends are kept: those of a report, not of each frame of a long image. */
const MOST_ENDS = 1 << 12;

/** Fragments or items up to their delimiter, which gives the element its length. */
function ofUndefinedLength(
  walk: Walk,
  { tag, vr, value: offset }: Header,
  end: number,
  encoding: Encoding,
  depth: number,
  keep: ((element: Element) => void) | undefined,
): number {
  // Fragments are not only in the image's own pixels: icons and private elements have them too
  if (PIXEL_TAGS.has(tag) || vr.startsWith("O")) {
    const isImage = depth === 0 && PIXEL_TAGS.has(tag);
    const kept = keep !== undefined && isImage;
    const encapsulated = readFragments(walk, offset, end, encoding.littleEndian, kept);
    if (!isImage && !encapsulated.delimited) throw truncated(tag, end + 8, end);
    const length = encapsulated.end - offset;
    const element = { tag, vr, offset, length, available: length, encoding };
    keep?.(isImage ? { ...element, encapsulated } : element);
    return encapsulated.end;
  }
  // UN of undefined length is a sequence in implicit little endian (PS3.5 section 6.2.2, note 4)
  const inner = vr === "UN" && encoding.explicit ? IMPLICIT_LITTLE : encoding;
  const { ends, counts } = walk;
  const behind =
    (counts ? undefined : ends?.get(offset)) ??
    walkItems(walk, offset, end, inner, depth + 1, true);
  if (counts && depth > 0 && ends !== undefined && ends.size < MOST_ENDS) ends.set(offset, behind);
  const length = behind - offset;
  keep?.({ tag, vr, offset, length, available: length, encoding, inner });
  return behind;
}

/**
 * Walks the items of a sequence.
 * @param make is given the bytes of each item; without it they are counted, and what they hold
 * @returns the offset behind them
 */
function walkItems(
  walk: Walk,
  offset: number,
  end: number,
  encoding: Encoding,
  depth: number,
  toDelimiter: boolean,
  make?: (start: number, stop: number) => number,
): number {
  while (offset + 8 <= end) {
    const tag = tagAt(walk, offset, encoding.littleEndian);
    const length = walk.view.getUint32(offset + 4, encoding.littleEndian);
    if (tag === SEQUENCE_END) return offset + 8;
    if (tag !== ITEM) {
      if (!toDelimiter)
        throw corrupt(
          `Expected an item of a sequence at byte ${offset} but found ${tagName(tag)}.`,
          tag,
        );
      warn(walk.warnings, "missing_delimiter", "A sequence ends without its delimiter.");
      return offset;
    }
    if (length !== UNDEFINED && offset + 8 + length > end)
      throw truncated(ITEM, offset + 8 + length, end);
    const start = offset + 8;
    const stop = length === UNDEFINED ? end : start + length;
    count(walk);
    const behind =
      make?.(start, stop) ??
      (start === stop
        ? stop
        : walkElements(walk, start, stop, encodingAt(walk, start, stop, encoding), depth));
    offset = length === UNDEFINED ? behind : stop;
  }
  if (toDelimiter) {
    if (end === walk.bytes.length) throw truncated(SEQUENCE_END, end + 8, end);
    warn(walk.warnings, "missing_delimiter", "A sequence ends without its delimiter.");
  }
  return end;
}

/** How the items of a sequence of defined length are encoded; undefined for what is no sequence. */
function innerOf(vr: string, tag: Tag, encoding: Encoding): Encoding | undefined {
  // UN of a defined length is tried as implicit little endian
  if (vr === "UN" && encoding.explicit && dictionaryVr(tag) === "SQ") return IMPLICIT_LITTLE;
  return vr === "SQ" ? encoding : undefined;
}

/**
 * Counts what a sequence of defined length holds. What is odd or broken in it is told to whoever
 * asks for it.
 */
function countInside(
  walk: Walk,
  { tag, vr, length, value }: Header,
  encoding: Encoding,
  depth: number,
): void {
  const inner = length === 0 ? undefined : innerOf(vr, tag, encoding);
  if (inner === undefined) return;
  const { warnings, ends } = walk;
  walk.warnings = [];
  walk.ends = undefined;
  try {
    walkItems(walk, value, value + length, inner, depth + 1, false);
  } catch (error) {
    if (!isDamage(error)) throw error;
  } finally {
    walk.warnings = warnings;
    walk.ends = ends;
  }
}

/** An item without elements, of which there may be very many. */
const EMPTY: DataSet = { elements: new Map(), encoding: IMPLICIT_LITTLE, end: 0 };

/**
 * Items of a sequence; undefined if the element is not a sequence. UN of a defined length is tried
 * as implicit little endian.
 * @param frames of the image, each of which may have an item
 * @throws RadserveError corrupt_image or truncated_image if the items contradict the element's
 * length, unsupported_format if there are more
 */
export function itemsOf(walk: Walk, element: Element, frames = 1): DataSet[] | undefined {
  const inner = element.inner ?? innerOf(element.vr, element.tag, element.encoding);
  if (inner === undefined || element.items !== undefined) return element.items;
  const items: DataSet[] = [];
  const most = Math.max(frames, MOST_ITEMS);
  const make = (start: number, stop: number) => {
    if (items.length === most) throw overBudget(most, `items in ${describeTag(element.tag)}`);
    const item = start === stop ? EMPTY : walkDataSet(walk, start, stop, inner, 1);
    items.push(item);
    return item.end;
  };
  const { offset, length } = element;
  walkItems(walk, offset, offset + length, inner, 1, element.inner !== undefined, make);
  return (element.items = items);
}
