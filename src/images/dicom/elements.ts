/**
 * The walker over an encoded data set (PS3.5 section 7): where each element lies, nothing decoded, nothing copied.
 *
 * It is our own on purpose. dcmjs's reader throws on multi-valued character sets and on a missing preamble, leaves
 * big-endian pixels unswapped and copies the pixels; a reader of medical pixels must also check every length against
 * the real size of the file and say which attribute broke. dcmjs stays the data dictionary and the serialiser.
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
  /** Items of a sequence of undefined length (others are walked when asked for). */
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
const IMPLICIT_LITTLE: Encoding = { explicit: false, littleEndian: true };

/** Walks a whole data set, in the byte order that its first element shows; otherwise as walkDataSet. */
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
  const doubled: Tag[] = [];
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
        if (header.tag === ITEM_END && depth > 0) return { elements, doubled, encoding, end: header.value };
        if (depth > 0) {
          warn(walk.warnings, "missing_delimiter", "An item ends without its delimiter.");
          return { elements, doubled, encoding, end: offset };
        }
        if (seenPixels) throw corrupt("Items lie behind the pixel data.");
        if (header.tag === ITEM) strayFrom = last;
        offset = behindStray(walk, header, end, encoding);
        continue;
      }
      count(walk);
      const element = readElement(walk, header, end, encoding, depth);
      // Tags ascend (PS3.5 section 7.1): what begins again from below belongs to the item without a sequence
      const first = header.tag >= strayFrom ? elements.get(header.tag) : undefined;
      if (first !== undefined) noteDoubled(walk, first, element, doubled);
      else if (header.tag >= strayFrom) elements.set(header.tag, element);
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
  return { elements, doubled, encoding, end: offset };
}

/** Readers differ in which of two elements of one tag they take; if their values are the same, no matter. */
function noteDoubled(walk: Walk, first: Element, second: Element, doubled: Tag[]): void {
  const { tag } = first;
  if ((tag & 0xffff) === 0) return;
  const bytes = ({ offset, available }: Element) => walk.bytes.subarray(offset, offset + available);
  if (first.vr === second.vr && Buffer.compare(bytes(first), bytes(second)) === 0)
    warn(walk.warnings, "doubled_element", `${describeTag(tag)} stands twice, with the same value.`);
  else doubled.push(tag);
}

/**
 * Where the walk goes on behind an item or delimiter that lies in no sequence, as behind sequences whose length is
 * written as 0: over a whole item, or over the head alone if the item's length is 0 too.
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

function readElement(walk: Walk, header: Header, end: number, encoding: Encoding, depth: number): Element {
  const { tag, vr, length, value } = header;
  const element: Element = { tag, vr, offset: value, length, available: length, encoding };
  if (length === UNDEFINED) return ofUndefinedLength(walk, element, end, depth);
  if (length % 2 === 1)
    warn(walk.warnings, "odd_length", `The length of ${describeTag(tag)} is odd; even lengths are required.`);
  if (value + length > end) {
    // A file cut short in its pixels is judged where the frames are counted
    if (depth > 0 || !PIXEL_TAGS.has(tag)) throw truncated(tag, value + length, walk.bytes.length);
    element.available = end - value;
  }
  return element;
}

/** Fragments or items up to their delimiter, which gives the element its length. */
function ofUndefinedLength(walk: Walk, element: Element, end: number, depth: number): Element {
  const { tag, vr, offset, encoding } = element;
  // Fragments are not only in the image's own pixels: icons and private elements have them too
  if (PIXEL_TAGS.has(tag) || vr.startsWith("O")) {
    const encapsulated = readFragments(walk, offset, end, encoding.littleEndian);
    const isImage = depth === 0 && PIXEL_TAGS.has(tag);
    if (!isImage && !encapsulated.delimited) throw truncated(tag, end + 8, end);
    const length = encapsulated.end - offset;
    return { ...element, length, available: length, encapsulated };
  }
  // UN of undefined length is a sequence in implicit little endian (PS3.5 section 6.2.2, note 4)
  const inner = vr === "UN" && encoding.explicit ? IMPLICIT_LITTLE : encoding;
  const sequence = walkItems(walk, offset, end, inner, depth + 1, true);
  const length = sequence.end - offset;
  return { ...element, length, available: length, items: sequence.items };
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
    count(walk);
    const item =
      stop === offset + 8
        ? { elements: new Map<Tag, Element>(), encoding, end: stop }
        : walkDataSet(walk, offset + 8, stop, encoding, depth);
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
 * Counts what the sequences of a data set hold that are walked when somebody asks for them. Nothing of them is kept, and
 * what is odd or broken in one is told to whoever asks for it.
 * @returns all elements, items and fragments of the file
 * @throws TooManyElements if they are more than the walk may see
 */
export function countAll(walk: Walk, dataSet: DataSet): number {
  const counting = { ...walk, warnings: [] };
  countBelow(counting, dataSet, 0);
  return counting.seen;
}

function countBelow(walk: Walk, { elements }: DataSet, depth: number): void {
  if (depth > MAX_DEPTH) return;
  for (const element of elements.values())
    for (const item of itemsIfWhole(walk, element)) countBelow(walk, item, depth + 1);
}

function itemsIfWhole(walk: Walk, element: Element): readonly DataSet[] {
  try {
    return element.items ?? walkedItems(walk, element) ?? [];
  } catch (error) {
    if (error instanceof RadserveError) return [];
    throw error;
  }
}

/**
 * Items of a sequence; undefined if the element is not a sequence. UN of a defined length is tried as implicit little
 * endian. Throws corrupt_image or truncated_image if the items contradict the element's length.
 */
export function itemsOf(walk: Walk, element: Element): DataSet[] | undefined {
  if (element.items === undefined) {
    const items = walkedItems(walk, element);
    if (items !== undefined) element.items = items;
  }
  return element.items;
}

function walkedItems(walk: Walk, element: Element): DataSet[] | undefined {
  const asUn = element.vr === "UN" && element.encoding.explicit;
  if (element.vr !== "SQ" && !(asUn && dictionaryVr(element.tag) === "SQ")) return undefined;
  const encoding = asUn ? IMPLICIT_LITTLE : element.encoding;
  return walkItems(walk, element.offset, element.offset + element.length, encoding, 1, false).items;
}
