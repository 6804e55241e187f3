/**
 * Whether an object is whole, told while its bytes go by: its elements are walked to the end (PS3.5
 * section 7), with their lengths, sequences, items and fragments, and native pixels have the length
 * that their attributes say. Values are skipped, so that the memory is that of one header, however
 * the bytes are cut into pieces.
 *
 * What is only odd, as implicit elements in an explicit data set or a missing delimiter, is judged
 * by the reader of images, which knows all that is in circulation: `isOdd` says so.
 */
import { errors, type RadserveError } from "../../../base/errors.js";
import { describeTag, dictionaryVr, type Tag } from "../../../images/dicom/dictionary.js";
import {
  isDelimiter,
  isVr,
  isLongVr,
  ITEM,
  ITEM_END,
  MOST_SEEN,
  SEQUENCE_END,
  UNDEFINED,
  type Encoding,
} from "../../../images/dicom/headers.js";
import { transferSyntax } from "../../../images/dicom/transfer-syntax.js";
import { checkPixels, cut, isPixels, NOTED, type NotedValues } from "./pixel-length.js";

const MAX_DEPTH = 32;
const HEADER_BYTES = 12;
/** Groups 0008 and 0010, with which data sets begin, as they read in the wrong byte order. */
const SWAPPED_GROUPS = [0x0800, 0x1000];

/** What is open; `end` is the offset of its end, Infinity where a delimiter ends it. */
interface SequenceLevel {
  kind: "items" | "elements" | "fragments";
  tag: Tag;
  end: number;
  encoding: Encoding;
}

const damaged = (attribute: string, found: string): RadserveError =>
  errors.corrupt_image(`${attribute}: ${found}. The object is damaged at its source.`, {
    attribute,
    found,
  });

export class WholeObject {
  /** The bytes are no data set as the transfer syntax says; nothing more is looked at. */
  isOdd = false;
  readonly #levels: SequenceLevel[];
  /** A header that was begun, and how much of it is there. */
  readonly #held = Buffer.alloc(HEADER_BYTES);
  #filled = 0;
  /** Bytes of a value that are still to be skipped, or kept in `#noted`. */
  #left = 0;
  #inside: Tag = 0;
  #valueBytes = 0;
  #keeps: Buffer | undefined;
  #at = 0;
  #seen = 0;
  #last: Tag = 0;
  #isFirst = true;
  #pixels: { tag: Tag; length: number; fragments: number } | undefined;
  readonly #noted: NotedValues = new Map();

  /**
   * @param syntax of the data set, without preamble and File Meta Information
   * @param isImage its class is one of images: it has pixels
   */
  constructor(
    syntax: string,
    private readonly isImage = true,
  ) {
    const { explicit, littleEndian } = transferSyntax(syntax);
    const encoding = { explicit, littleEndian };
    this.#levels = [{ kind: "elements", tag: 0, end: Infinity, encoding }];
  }

  /** The next bytes. @throws RadserveError corrupt_image, unsupported_format */
  add(piece: Buffer): void {
    for (let at = 0; at < piece.length && !this.isOdd;) {
      if (this.#left > 0) {
        const some = Math.min(this.#left, piece.length - at);
        this.#keeps?.set(piece.subarray(at, at + some), this.#keeps.length - this.#left);
        this.#left -= some;
        this.#at += some;
        at += some;
        if (this.#left === 0) this.#afterValue();
        continue;
      }
      const some = Math.min(this.#needed() - this.#filled, piece.length - at);
      piece.copy(this.#held, this.#filled, at, at + some);
      this.#filled += some;
      at += some;
      if (this.#filled === this.#needed()) this.#header();
    }
  }

  /** All has come. @throws RadserveError truncated_image, corrupt_image */
  end(): void {
    if (this.isOdd) return;
    if (this.#left > 0) {
      const there = this.#valueBytes - this.#left;
      throw cut(describeTag(this.#inside), `${there} of ${this.#valueBytes} bytes`);
    }
    const [, ...open] = this.#levels;
    if (this.#filled > 0 && open.length === 0 && this.#pixels !== undefined) {
      // Some bytes behind the pixels; a header that was begun may be any
      this.isOdd = true;
      return;
    }
    if (this.#filled > 0) throw cut("Data set", "ends inside the header of an element");
    const last = open.at(-1);
    if (last !== undefined) throw cut(describeTag(last.tag), "no delimiter at its end");
    checkPixels(this.#noted, this.#pixels, this.isImage);
  }

  #level(): SequenceLevel {
    const level = this.#levels.at(-1);
    if (level === undefined) throw new Error("The data set itself is always open.");
    return level;
  }

  /** Bytes of the header that is read now, as far as it is known. */
  #needed(): number {
    if (this.#filled < 8) return 8;
    const { kind, encoding } = this.#level();
    if (kind !== "elements" || !encoding.explicit) return 8;
    if (isDelimiter(this.#tag(encoding))) return 8;
    return isLongVr(this.#held.toString("latin1", 4, 6)) ? HEADER_BYTES : 8;
  }

  #tag({ littleEndian }: Encoding): Tag {
    const [group, element] = littleEndian
      ? [this.#held.readUInt16LE(0), this.#held.readUInt16LE(2)]
      : [this.#held.readUInt16BE(0), this.#held.readUInt16BE(2)];
    return group * 65536 + element;
  }

  #length({ littleEndian }: Encoding, at: number): number {
    return littleEndian ? this.#held.readUInt32LE(at) : this.#held.readUInt32BE(at);
  }

  #header(): void {
    const { kind, encoding } = this.#level();
    const tag = this.#tag(encoding);
    this.#at += this.#filled;
    if (++this.#seen > MOST_SEEN)
      throw errors.unsupported_format(
        `Expected at most ${MOST_SEEN} elements and items; found more. Split the object at its source.`,
        { attribute: "Data set", found: `more than ${MOST_SEEN} elements and items` },
      );
    if (kind === "elements") this.#element(tag, encoding);
    else this.#item(tag, this.#length(encoding, 4), kind);
    this.#filled = 0;
    if (this.#left === 0) this.#close();
  }

  /** An item, a fragment, or the delimiter of what holds them. */
  #item(tag: Tag, length: number, kind: "items" | "fragments"): void {
    const level = this.#level();
    if (tag === SEQUENCE_END && level.end === Infinity) {
      this.#levels.pop();
      return;
    }
    // Writers exist that leave delimiters out
    if (tag !== ITEM || (kind === "fragments" && length === UNDEFINED)) {
      this.isOdd = true;
      return;
    }
    this.#fits(ITEM, length, level);
    if (kind === "fragments") {
      // The offset table may be empty, a frame has bytes
      const counts = length > 0 || this.#pixels?.fragments === 0;
      if (counts && level.tag === this.#pixels?.tag && this.#levels.length === 2)
        this.#pixels.fragments += 1;
      this.#skip(level.tag, length);
      return;
    }
    const end = length === UNDEFINED ? Infinity : this.#at + length;
    this.#push({ kind: "elements", tag: level.tag, end, encoding: level.encoding });
    this.#isFirst = true;
  }

  #element(tag: Tag, encoding: Encoding): void {
    const level = this.#level();
    if (tag === ITEM_END && level.end === Infinity && this.#levels.length > 1) {
      this.#levels.pop();
      return;
    }
    const isOuter = this.#levels.length === 1;
    const vr = encoding.explicit ? this.#held.toString("latin1", 4, 6) : dictionaryVr(tag);
    const looksExplicit = isVr(this.#held.toString("latin1", 4, 6));
    const isOdd =
      isDelimiter(tag) ||
      (this.#seen === 1 && SWAPPED_GROUPS.includes(tag >>> 16)) ||
      (encoding.explicit ? !looksExplicit : this.#isFirst && looksExplicit) ||
      (isOuter && tag <= this.#last);
    this.#isFirst = false;
    if (isOuter) this.#last = tag;
    if (isOdd) {
      this.isOdd = true;
      return;
    }
    const long = !encoding.explicit || this.#filled === HEADER_BYTES;
    const length = long
      ? this.#length(encoding, this.#filled - 4)
      : encoding.littleEndian
        ? this.#held.readUInt16LE(6)
        : this.#held.readUInt16BE(6);
    this.#fits(tag, length, level);
    this.#value(tag, vr, length, encoding, isOuter);
  }

  #value(tag: Tag, vr: string, length: number, encoding: Encoding, isOuter: boolean): void {
    if (isOuter && isPixels(tag)) this.#pixels = { tag, length, fragments: 0 };
    if (length === UNDEFINED) {
      if (isPixels(tag) || vr.startsWith("O"))
        this.#push({ kind: "fragments", tag, end: Infinity, encoding });
      else {
        // UN of undefined length is a sequence in implicit little endian (PS3.5 section 6.2.2)
        const isUnknown = vr === "UN" && encoding.explicit;
        const inner = isUnknown ? { explicit: false, littleEndian: true } : encoding;
        this.#push({ kind: "items", tag, end: Infinity, encoding: inner });
      }
    } else if (vr === "SQ" && length > 0)
      this.#push({ kind: "items", tag, end: this.#at + length, encoding });
    else {
      if (isOuter && NOTED.has(tag) && length <= 64) {
        const bytes = Buffer.alloc(length);
        // No bytes of an empty value come
        if (length > 0) this.#keeps = bytes;
        this.#noted.set(tag, { bytes, littleEndian: encoding.littleEndian });
      }
      this.#skip(tag, length);
    }
  }

  #skip(tag: Tag, length: number): void {
    this.#inside = tag;
    this.#valueBytes = this.#left = length;
  }

  #afterValue(): void {
    this.#keeps = undefined;
    this.#close();
  }

  /** Ends what ends here by its length. */
  #close(): void {
    while (this.#levels.length > 1 && this.#level().end === this.#at) this.#levels.pop();
  }

  #push(level: SequenceLevel): void {
    if (this.#levels.length > MAX_DEPTH)
      throw damaged(describeTag(level.tag), `nested deeper than ${MAX_DEPTH} levels`);
    this.#levels.push(level);
  }

  /** What lies in something of a given length ends in it. */
  #fits(tag: Tag, length: number, { tag: holder }: SequenceLevel): void {
    const room = Math.min(...this.#levels.map(({ end }) => end)) - this.#at;
    if (room < 0 || (length !== UNDEFINED && length > room)) {
      const what = tag === ITEM ? "an item" : describeTag(tag);
      throw damaged(describeTag(holder), `${what} leads out of it`);
    }
  }
}
