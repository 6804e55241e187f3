/**
 * Elements in Explicit or Implicit VR Little Endian (PS3.5 section 7.1), one behind the other in
 * one growing buffer. It writes what our objects hold and checks what would make an element
 * unreadable; dcmjs, which can write anything, makes several streams for each element, and the
 * tests hold this writer's bytes against its.
 */
import { cached } from "../../base/cached.js";
import { dictionaryVr, tagOf, type Tag } from "../../images/dicom/dictionary.js";
import { decimalString } from "./values.js";

export type PlainValue = string | number | readonly (string | number)[];

/** How the values of a VR are written (PS3.5 table 6.2-1). */
type ValueForm =
  | { kind: "ascii"; pad: number; longest: number }
  | { kind: "text" }
  | { kind: "number"; bytes: number; write: (buffer: Buffer, value: number, at: number) => void };

const SPACE = 0x20;
const ascii = (longest: number, pad = SPACE): ValueForm => ({ kind: "ascii", pad, longest });
const TEXT: ValueForm = { kind: "text" };
const number = (
  bytes: number,
  write: (buffer: Buffer, value: number, at: number) => void,
): ValueForm => ({
  kind: "number",
  bytes,
  write,
});

function writeTag(buffer: Buffer, tag: Tag, at: number): number {
  return buffer.writeUInt16LE(tag & 0xffff, buffer.writeUInt16LE(tag >>> 16, at));
}

const FORMS: Readonly<Record<string, ValueForm>> = {
  AE: ascii(16),
  AS: ascii(4),
  CS: ascii(16),
  DA: ascii(8),
  DS: ascii(16),
  DT: ascii(26),
  IS: ascii(12),
  TM: ascii(14),
  UI: ascii(64, 0),
  LO: TEXT,
  LT: TEXT,
  PN: TEXT,
  SH: TEXT,
  ST: TEXT,
  UC: TEXT,
  UR: TEXT,
  UT: TEXT,
  AT: number(4, (buffer, value, at) => writeTag(buffer, value, at)),
  FD: number(8, (buffer, value, at) => buffer.writeDoubleLE(value, at)),
  FL: number(4, (buffer, value, at) => buffer.writeFloatLE(value, at)),
  SL: number(4, (buffer, value, at) => buffer.writeInt32LE(value, at)),
  SS: number(2, (buffer, value, at) => buffer.writeInt16LE(value, at)),
  UL: number(4, (buffer, value, at) => buffer.writeUInt32LE(value, at)),
  US: number(2, (buffer, value, at) => buffer.writeUInt16LE(value, at)),
};

/** VRs with a length of 32 bits behind two bytes of nothing (PS3.5 table 7.1-1). */
const LONG_VRS = new Set(["OB", "SQ", "UC", "UR", "UT"]);
/** The length of what ends with a delimiter. */
const UNDEFINED = 0xffffffff;
const LONGEST_SHORT = 0xffff;

/** Tag and VR of an attribute. */
export interface Attribute {
  tag: Tag;
  vr: string;
}

/** @throws Error if the dictionary does not know the keyword */
export const attributeOf = cached((keyword: string): Attribute => {
  const tag = tagOf(keyword);
  if (tag === undefined) throw new Error(`The dictionary does not know ${keyword}`);
  const vr = dictionaryVr(tag);
  // US or SS by PixelRepresentation, which is 0 in all our objects
  return { tag, vr: vr === "xs" ? "US" : vr };
});

/** A value as text, several of them with backslashes between. */
function textOf(vr: string, value: PlainValue): string {
  const one = (each: string | number): string =>
    typeof each === "string" ? each : vr === "DS" ? decimalString(each) : String(each);
  return typeof value === "object" ? value.map(one).join("\\") : one(value);
}

/** @throws Error if one of the values is longer than its VR allows */
function checkLongest(vr: string, longest: number, text: string): void {
  if (text.length <= longest) return;
  for (const each of text.split("\\"))
    if (each.length > longest) throw new Error(`Expected ${vr} of at most ${longest} characters`);
}

const FIRST_BYTES = 16 * 1024;
/** Bytes of a tag, its VR and a length of 32 bits. */
const HEADER_BYTES = 12;
/** Bytes of one UTF-16 unit in UTF-8, at most. */
const MOST_UTF8 = 3;

export class ElementWriter {
  #buffer = Buffer.allocUnsafe(FIRST_BYTES);
  #at = 0;
  /** Where the bytes begin that are in no piece yet. */
  #from = 0;
  readonly #pieces: Uint8Array[] = [];
  /** Elements that were written, and the beginnings and ends of items. */
  count = 0;

  /** @param implicit elements say no VR */
  constructor(private readonly implicit = false) {}

  /**
   * An element without items and without binary data. "" and [] write it empty.
   * @throws Error if its VR depends on the object, or its value has not the form of its VR
   */
  plain({ tag, vr }: Attribute, value: PlainValue): void {
    const form = FORMS[vr];
    // A sequence without items
    if (vr === "SQ" && typeof value === "object" && value.length === 0) {
      this.sequence(tag);
      this.put(SEQUENCE_END);
      return;
    }
    if (form === undefined)
      throw new Error(`Expected a settled VR that our objects have, found ${vr}`);
    if (form.kind === "number") this.#numbers(tag, vr, form, value);
    else this.#text(tag, vr, form, textOf(vr, value));
  }

  /**
   * The header of an element whose value comes next; its length is even, or undefined. A value that
   * is too long for its VR is written as UN (PS3.5 section 6.2.2, note 6).
   */
  #header(tag: Tag, vr: string, length: number): void {
    this.#room(HEADER_BYTES);
    this.count += 1;
    const buffer = this.#buffer;
    const isLong = LONG_VRS.has(vr);
    const asUnknown = !isLong && length > LONGEST_SHORT;
    let at = writeTag(buffer, tag, this.#at);
    if (this.implicit) {
      this.#at = buffer.writeUInt32LE(length, at);
      return;
    }
    at += buffer.write(asUnknown ? "UN" : vr, at, "latin1");
    if (isLong || asUnknown) at = buffer.writeUInt32LE(length, buffer.writeUInt16LE(0, at));
    else at = buffer.writeUInt16LE(length, at);
    this.#at = at;
  }

  #text(tag: Tag, vr: string, form: ValueForm & { kind: "ascii" | "text" }, text: string): void {
    if (form.kind === "ascii") checkLongest(vr, form.longest, text);
    const length = form.kind === "ascii" ? text.length : Buffer.byteLength(text);
    this.#header(tag, vr, length + (length % 2));
    this.#room(MOST_UTF8 * text.length + 1);
    this.#at += this.#buffer.write(text, this.#at, form.kind === "ascii" ? "latin1" : "utf8");
    if (length % 2 === 1) this.#buffer[this.#at++] = form.kind === "ascii" ? form.pad : SPACE;
  }

  #numbers(
    tag: Tag,
    vr: string,
    { bytes, write }: ValueForm & { kind: "number" },
    value: PlainValue,
  ): void {
    const values = typeof value === "object" ? value : value === "" ? [] : [value];
    this.#header(tag, vr, bytes * values.length);
    this.#room(bytes * values.length);
    for (const each of values) {
      const given = Number(each);
      if (Number.isNaN(given)) throw new Error(`Expected numbers for ${vr}, found text`);
      write(this.#buffer, given, this.#at);
      this.#at += bytes;
    }
  }

  /** The header of a sequence of undefined length; its items follow, and SEQUENCE_END. */
  sequence(tag: Tag): void {
    this.#header(tag, "SQ", UNDEFINED);
  }

  /** A few bytes as they are, for example one of the delimiters below. */
  put(bytes: Uint8Array): void {
    this.#room(bytes.length);
    if (bytes === ITEM || bytes === ITEM_END) this.count += 1;
    this.#buffer.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  /** Binary data: OB. The bytes are not copied, and padded to even length. */
  binary(tag: Tag, bytes: Uint8Array): void {
    this.#header(tag, "OB", bytes.length + (bytes.length % 2));
    this.#take(bytes);
  }

  /** One frame, compressed, as one fragment behind the table of its offset (PS3.5 section A.4). */
  fragment(tag: Tag, bytes: Uint8Array): void {
    this.#header(tag, "OB", UNDEFINED);
    this.put(FIRST_FRAME);
    this.put(ITEM);
    this.#buffer.writeUInt32LE(bytes.length + (bytes.length % 2), this.#at - 4);
    this.#take(bytes);
    this.put(SEQUENCE_END);
  }

  #take(bytes: Uint8Array): void {
    this.#pieces.push(this.#buffer.subarray(this.#from, this.#at), bytes);
    this.#from = this.#at;
    if (bytes.length % 2 === 1) this.put(PADDING);
  }

  /** Sees that so many more bytes have room. */
  #room(bytes: number): void {
    if (this.#at + bytes <= this.#buffer.length) return;
    const rest = this.#buffer.subarray(this.#from, this.#at);
    this.#buffer = Buffer.allocUnsafe(2 * (rest.length + bytes) + FIRST_BYTES);
    this.#buffer.set(rest);
    this.#from = 0;
    this.#at = rest.length;
  }

  /** All that was written, in pieces, one behind the other. */
  pieces(): Uint8Array[] {
    return [...this.#pieces, this.#buffer.subarray(this.#from, this.#at)];
  }
}

const PADDING = new Uint8Array(1);

/** A Basic Offset Table of one frame, which begins at 0. */
const FIRST_FRAME = Buffer.from("feff00e00400000000000000", "hex");

/**
 * Sequences and items are of undefined length and end with their delimiters (PS3.5 section 7.5).
 */
export const ITEM = Buffer.from("feff00e0ffffffff", "hex");
export const ITEM_END = Buffer.from("feff0de000000000", "hex");
export const SEQUENCE_END = Buffer.from("feffdde000000000", "hex");
