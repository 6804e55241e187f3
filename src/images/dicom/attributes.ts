/** Values of a walked data set by keyword, decoded when asked for (PS3.5 section 6.2). */
import { withoutEnd, withoutEnds } from "../../base/ends.js";
import { errors, RadserveError } from "../../base/errors.js";
import { warn, type Attributes, type Warning } from "../image.js";
import {
  multiplicityFault,
  numberFault,
  readingOf,
  textFault,
  wanted,
  type AttributeFault,
  type AttributeReading,
} from "./attributes-read.js";
import { textDecoder, UNEXPLAINED, type TextDecode } from "./charset.js";
import { describeTag, dictionaryVr, SINGLE_VALUE_VRS, tagOf, type Tag } from "./dictionary.js";
import { IMPLICIT_LITTLE, itemsOf, type DataSet, type Element } from "./elements.js";
import { corrupt, newWalk, type Walk } from "./headers.js";
import { decimal, PADDING } from "./value-forms.js";

const SPECIFIC_CHARACTER_SET = 0x00080005;
const PIXEL_REPRESENTATION = 0x00280103;

/** VRs whose text follows Specific Character Set; the others are ISO 646. */
const CHARSET_VRS = new Set(["LO", "LT", "PN", "SH", "ST", "UC", "UT", "UN"]);
/** VRs of numbers that are written as text. */
const NUMBER_TEXTS = new Set(["DS", "IS"]);
const TEXT_VRS = new Set("AE AS CS DA DS DT IS LO LT PN SH ST TM UC UI UN UR UT".split(" "));

/** Values of an attribute that are read at most: as many as an image may have frames. */
const MOST_VALUES = 1_000_000;
/**
 * Of a text in the file's character sets, which are decoded byte by byte. Names and descriptions
 * cannot be longer than 64 KiB in an explicit data set; in an implicit one nothing bounds them.
 */
const MOST_TEXT_BYTES = 1 << 20;

/**
 * How many values a text has: a multi-byte character may hold the code of a backslash, so that it
 * is an upper bound.
 */
function valuesIn(text: Uint8Array): number {
  let values = 1;
  for (let at = text.indexOf(BACKSLASH); at >= 0; at = text.indexOf(BACKSLASH, at + 1)) values += 1;
  return values;
}
const BACKSLASH = 0x5c;

function requireFew(tag: Tag, values: number): void {
  if (values > MOST_VALUES)
    throw corrupt(
      `Expected at most ${MOST_VALUES} values in ${describeTag(tag)}, found ${values}. Correct the attribute at the source.`,
      tag,
    );
}

/** Attributes that have the VR of the pixels in explicit data sets: US or SS. */
const SIGNED_AS_PIXELS = [
  "SmallestImagePixelValue",
  "LargestImagePixelValue",
  "SmallestPixelValueInSeries",
  "LargestPixelValueInSeries",
  "PixelPaddingValue",
].flatMap((keyword) => tagOf(keyword) ?? []);

/** Whether those name signed pixels; undefined if none names a sign. */
function signOfVrs({ elements }: DataSet): boolean | undefined {
  const vrs = SIGNED_AS_PIXELS.map((tag) => elements.get(tag)?.vr);
  const vr = vrs.find((found) => found === "US" || found === "SS");
  return vr === undefined ? undefined : vr === "SS";
}

interface ValueContext {
  decode: TextDecode;
  /**
   * Pixel Representation 1, or without it the sign that others name: values that may be US or SS
   * are SS.
   */
  signed: boolean;
}

/** A private element, wherever its creator's block begins. */
export interface PrivateElement {
  creator: string;
  group: number;
  /** Its last two digits: 0x75 of (0021,xx75). */
  element: number;
  /** Its VR where the file does not say it, as in Implicit VR; LO if it is not given. */
  vr?: string;
}

type NumberReader = (view: DataView, offset: number, little: boolean) => number;

const NUMBER_READERS: Readonly<Record<string, { size: number; read: NumberReader }>> = {
  US: { size: 2, read: (v, o, l) => v.getUint16(o, l) },
  SS: { size: 2, read: (v, o, l) => v.getInt16(o, l) },
  OW: { size: 2, read: (v, o, l) => v.getUint16(o, l) },
  UL: { size: 4, read: (v, o, l) => v.getUint32(o, l) },
  OL: { size: 4, read: (v, o, l) => v.getUint32(o, l) },
  SL: { size: 4, read: (v, o, l) => v.getInt32(o, l) },
  FL: { size: 4, read: (v, o, l) => v.getFloat32(o, l) },
  OF: { size: 4, read: (v, o, l) => v.getFloat32(o, l) },
  FD: { size: 8, read: (v, o, l) => v.getFloat64(o, l) },
  OD: { size: 8, read: (v, o, l) => v.getFloat64(o, l) },
  UV: { size: 8, read: (v, o, l) => Number(v.getBigUint64(o, l)) },
  SV: { size: 8, read: (v, o, l) => Number(v.getBigInt64(o, l)) },
  AT: { size: 4, read: (v, o, l) => v.getUint16(o, l) * 0x10000 + v.getUint16(o + 2, l) },
  OB: { size: 1, read: (v, o) => v.getUint8(o) },
};

const NO_GROUPS: ReadonlySet<number> = new Set();

/** Of text that follows no Specific Character Set: ISO 646. */
const plainText = textDecoder([]);

const unpadded = (text: string): string => withoutEnds(text, PADDING);

/**
 * `Attributes` of one data set or item. Items that have no character set or Pixel Representation
 * inherit them.
 */
export class DataSetAttributes implements Attributes {
  readonly #walk: Walk;
  readonly #dataSet: DataSet;
  readonly #context: ValueContext;
  /** Made when a sequence is asked for: a file can have two million items. */
  #sequences: Map<Tag, DataSetAttributes[]> | undefined;
  /** Groups of private elements, made when one is asked for: the items of every frame are asked. */
  #privateGroups: ReadonlySet<number> | undefined;
  #comparedText: string | undefined;

  constructor(walk: Walk, dataSet: DataSet, parent?: ValueContext) {
    this.#walk = walk;
    this.#dataSet = dataSet;
    // Private ones count when they are asked for: most mean nothing here
    this.#requireOnce((tag) => (tag >>> 16) % 2 === 0);
    this.#context = parent ?? { decode: plainText, signed: signOfVrs(dataSet) === true };
    const charset = dataSet.elements.get(SPECIFIC_CHARACTER_SET);
    const pixelRepresentation = dataSet.elements.get(PIXEL_REPRESENTATION);
    if (charset !== undefined || pixelRepresentation !== undefined)
      this.#context = {
        decode:
          charset === undefined
            ? this.#context.decode
            : textDecoder(this.#text(charset), walk.warnings),
        signed:
          pixelRepresentation === undefined
            ? this.#context.signed
            : this.#numbers(pixelRepresentation)[0] === 1,
      };
    for (const element of dataSet.elements.values()) this.#check(element);
  }

  #requireOnce(matters: (tag: Tag) => boolean): void {
    const doubled = this.#dataSet.doubled?.find(matters);
    if (doubled !== undefined)
      throw corrupt(
        `Expected ${describeTag(doubled)} once (PS3.5 section 7.1), found it twice with different values: readers differ in which one counts. Correct the file at its source.`,
        doubled,
      );
  }

  /** Refuses the file, or takes an element out of it, whose value its attribute cannot have. */
  #check(element: Element): void {
    const reading = element.length === 0 ? undefined : readingOf(element.tag);
    const fault = reading === undefined ? undefined : this.#fault(element, reading);
    if (reading === undefined || fault === undefined) return;
    const message = `${wanted(reading)} but has ${fault.found}`;
    // Their own values were looked at before: tags ascend
    const isDecided = reading.decidedBy.some(
      (tag) => (this.#dataSet.elements.get(tag)?.length ?? 0) > 0,
    );
    if (reading.refused && fault.unsaid === undefined && !isDecided)
      throw errors.corrupt_image(`${message}. Correct the attribute at the source.`, {
        attribute: reading.keyword,
      });
    warn(this.#walk.warnings, "value_ignored", `${message}; it was read as absent.`);
    this.#dataSet.elements.delete(element.tag);
  }

  #fault(element: Element, reading: AttributeReading): AttributeFault | undefined {
    const vr = this.#vr(element);
    const otherVr = { found: `VR ${element.vr}` };
    if (reading.vr === "SQ")
      return element.vr === "SQ" || element.vr === "UN" ? undefined : otherVr;
    if (TEXT_VRS.has(vr)) {
      const texts = this.#text(element);
      if (texts.every((text) => text === ""))
        return texts.length > 1 ? multiplicityFault(reading, texts.length) : undefined;
      return (
        multiplicityFault(reading, texts.length) ??
        (TEXT_VRS.has(reading.vr) && !NUMBER_TEXTS.has(reading.vr)
          ? textFault(reading, texts)
          : numberFault(reading, texts))
      );
    }
    const size = NUMBER_READERS[vr]?.size;
    const isNumber = NUMBER_TEXTS.has(reading.vr) || !TEXT_VRS.has(reading.vr);
    if (size === undefined || vr === "OB" || !isNumber) return otherVr;
    if (element.length % size !== 0) return { found: `${element.length} bytes` };
    return (
      multiplicityFault(reading, element.length / size) ??
      numberFault(reading, this.#binary(element, vr))
    );
  }

  strings(keyword: string): string[] | undefined {
    const element = this.element(keyword);
    if (element === undefined) return undefined;
    if (TEXT_VRS.has(this.#vr(element))) return this.#text(element);
    const isText =
      TEXT_VRS.has(dictionaryVr(element.tag)) && !NUMBER_TEXTS.has(dictionaryVr(element.tag));
    return isText ? [UNEXPLAINED] : this.#numbers(element).map(String);
  }

  string(keyword: string): string | undefined {
    const first = this.strings(keyword)?.[0];
    return first === "" ? undefined : first;
  }

  comparable(keyword: string): string {
    const text = (this.strings(keyword) ?? []).join("\\");
    const element = this.element(keyword);
    if (element === undefined || !text.includes(UNEXPLAINED)) return text;
    return Buffer.from(this.bytes(element)).toString("latin1");
  }

  numbers(keyword: string): number[] | undefined {
    const element = this.element(keyword);
    return element === undefined ? undefined : this.#numbers(element);
  }

  number(keyword: string): number | undefined {
    return this.numbers(keyword)?.[0];
  }

  sequence(keyword: string): DataSetAttributes[] | undefined {
    const tag = tagOf(keyword);
    return tag === undefined ? undefined : this.#itemsOf(tag);
  }

  #itemsOf(tag: Tag): DataSetAttributes[] | undefined {
    const element = this.#dataSet.elements.get(tag);
    if (element === undefined) return undefined;
    let found = this.#sequences?.get(element.tag);
    if (found === undefined) {
      const items = itemsOf(this.#walk, element, this.number("NumberOfFrames"));
      if (items === undefined) return undefined;
      let empty: DataSetAttributes | undefined;
      const attributesOf = (item: DataSet) =>
        new DataSetAttributes(this.#walk, item, this.#context);
      // There may be very many that hold nothing
      found = items.map((item) =>
        item.elements.size === 0 ? (empty ??= attributesOf(item)) : attributesOf(item),
      );
      (this.#sequences ??= new Map()).set(element.tag, found);
    }
    return found;
  }

  has(keyword: string): boolean {
    return this.element(keyword) !== undefined;
  }

  /**
   * Whether attributes that have the VR of the pixels say that these are signed; undefined if none
   * names a sign.
   */
  get signOfVrs(): boolean | undefined {
    return signOfVrs(this.#dataSet);
  }

  /** How many attributes there are. */
  get size(): number {
    return this.#dataSet.elements.size;
  }

  /**
   * Whether the attributes are the same, with the same values, however their numbers are written.
   */
  equals(other: DataSetAttributes): boolean {
    return this.#compared() === other.#compared();
  }

  /** Kept, because what all frames share is compared with each of them. */
  #compared(): string {
    return (this.#comparedText ??= JSON.stringify(this.#comparable()));
  }

  /** The values of an attribute as text that is equal however its numbers are written. */
  compared(keyword: string): string | undefined {
    const numbers = this.numbers(keyword);
    return JSON.stringify(
      numbers === undefined || numbers.length === 0 ? this.strings(keyword) : numbers,
    );
  }

  #comparable(): unknown[] {
    return [...this.#dataSet.elements.values()].map((element) => {
      const items = itemsOf(this.#walk, element);
      if (items !== undefined)
        return items.map((item) =>
          new DataSetAttributes(this.#walk, item, this.#context).#comparable(),
        );
      const vr = this.#vr(element);
      const isText = TEXT_VRS.has(vr) && vr !== "DS" && vr !== "IS";
      return [element.tag, isText ? this.#text(element) : this.#numbers(element)];
    });
  }

  element(keyword: string): Element | undefined {
    const tag = tagOf(keyword);
    return tag === undefined ? undefined : this.#dataSet.elements.get(tag);
  }

  /**
   * First value as text of a private element, as privateValues finds it; undefined if it is absent
   * or empty.
   */
  privateValue(creator: string, group: number, element: number): string | undefined {
    const value = this.privateValues({ creator, group, element })[0];
    return value === "" ? undefined : value;
  }

  /** All values of a private element as text; none if it is absent. Throws what #private throws. */
  privateValues({ vr: known = "LO", ...place }: PrivateElement): string[] {
    const found = this.#private(place);
    if (found === undefined) return [];
    const vr = found.vr === "UN" ? known : found.vr;
    return TEXT_VRS.has(vr)
      ? this.#text({ ...found, vr })
      : this.#binary(found, vr).map((value) => String(value));
  }

  /**
   * The items of a private sequence; none if it is absent, or no sequence where the file does not
   * say its VR. Throws what #private throws.
   */
  privateItems(place: PrivateElement): readonly DataSetAttributes[] {
    const found = this.#private(place);
    if (found === undefined) return [];
    if (found.vr !== "UN" || found.inner !== undefined) return this.#itemsOf(found.tag) ?? [];
    const encoding = found.encoding.explicit ? IMPLICIT_LITTLE : found.encoding;
    try {
      const items = itemsOf(this.#walk, { ...found, vr: "SQ", encoding }) ?? [];
      return items.map((item) => new DataSetAttributes(this.#walk, item, this.#context));
    } catch (error) {
      if (error instanceof RadserveError) return [];
      throw error;
    }
  }

  /** The bytes of a private element. Throws what #private throws. */
  privateBytes(place: PrivateElement): Uint8Array | undefined {
    const found = this.#private(place);
    return found === undefined ? undefined : this.bytes(found);
  }

  /**
   * The private element (PS3.5 section 7.8.1) with this number in the first block of the group that
   * the creator has reserved and that holds it. Throws corrupt_image if the element, or what
   * reserves a block before it, stands twice with different values.
   */
  #private({ creator, group, element }: PrivateElement): Element | undefined {
    if (!this.#hasPrivate(group)) return undefined;
    for (let block = 0x10; block <= 0xff; block++) {
      const reserving = group * 0x10000 + block;
      const reservation = this.#dataSet.elements.get(reserving);
      this.#requireOnce((tag) => tag === reserving);
      if (reservation === undefined || this.#text({ ...reservation, vr: "LO" })[0] !== creator)
        continue;
      const asked = group * 0x10000 + block * 0x100 + element;
      this.#requireOnce((tag) => tag === asked);
      const found = this.#dataSet.elements.get(asked);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #hasPrivate(group: number): boolean {
    if (this.#privateGroups === undefined) {
      const groups = [...this.#dataSet.elements.keys()].map((tag) => tag >>> 16);
      const odd = groups.filter((one) => one % 2 === 1);
      this.#privateGroups = odd.length === 0 ? NO_GROUPS : new Set(odd);
    }
    return this.#privateGroups.has(group);
  }

  /**
   * The bytes that hold these attributes, and how many elements and items they are where they were
   * counted.
   */
  get extent(): { bytes: number; elements: number } {
    return { bytes: this.#walk.bytes.length, elements: this.#walk.all };
  }

  /** Tags of all elements without a value, in items too; sequences without items are among them. */
  emptyElements(found = new Set<Tag>()): Set<Tag> {
    for (const { tag, length, vr } of this.#dataSet.elements.values()) {
      const items = vr === "SQ" ? this.#itemsOf(tag) : undefined;
      if (items === undefined ? length === 0 : items.length === 0) found.add(tag);
      for (const item of items ?? []) item.emptyElements(found);
    }
    return found;
  }

  /** The bytes of a value as they lie in the file. */
  bytes(element: Element): Uint8Array {
    return this.#walk.bytes.subarray(element.offset, element.offset + element.available);
  }

  /**
   * The same attributes on a copy of their own bytes, up to the pixel data, so that a series need
   * not keep the pixels of all its files. What follows the pixel data is left out.
   * @param warnings gets the warnings about items that are read later
   */
  withoutPixels(warnings: Warning[]): DataSetAttributes {
    const pixels = ["FloatPixelData", "DoubleFloatPixelData", "PixelData"].map((keyword) =>
      this.element(keyword),
    );
    const end = Math.min(
      this.#walk.bytes.length,
      ...pixels.map((element) => element?.offset ?? Infinity),
    );
    const kept = [...this.#dataSet.elements].filter(
      ([, { offset, available }]) => offset + available <= end,
    );
    const bytes = new Uint8Array(this.#walk.bytes.subarray(0, end));
    const walk: Walk = { ...newWalk(bytes), all: this.#walk.all, warnings, counts: false };
    return new DataSetAttributes(walk, { ...this.#dataSet, elements: new Map(kept) });
  }

  /** Warnings about items that are read from now on go there. */
  warnInto(warnings: Warning[]): void {
    this.#walk.warnings = warnings;
  }

  /** Numbers of an element read as another VR than its own: lookup tables and their descriptors. */
  numbersAs(keyword: string, vr: "US" | "OB"): number[] | undefined {
    const element = this.element(keyword);
    return element === undefined ? undefined : this.#binary(element, vr);
  }

  /** The VR in force: the file's, or the dictionary's if the file says UN or leaves it open. */
  #vr(element: Element): string {
    const known = dictionaryVr(element.tag);
    // Which of US and SS it is follows from the pixels, whatever an explicit VR says (PS3.3
    // C.7.6.3); text stays text
    if (known === "xs" && ["UN", "US", "SS", "OW", "xs"].includes(element.vr))
      return this.#context.signed ? "SS" : "US";
    if (element.vr === "UN" && known !== "UN") return known;
    switch (element.vr) {
      case "ox":
      case "lt":
        return "OW";
      case "up":
        return "UL";
      default:
        return element.vr;
    }
  }

  #text(element: Element): string[] {
    if (element.length === 0) return [];
    const vr = this.#vr(element);
    const raw = this.bytes(element);
    const hasCharset = CHARSET_VRS.has(vr) || CHARSET_VRS.has(dictionaryVr(element.tag));
    if (hasCharset && raw.length > MOST_TEXT_BYTES)
      throw corrupt(
        `Expected at most ${MOST_TEXT_BYTES} bytes of text in ${describeTag(element.tag)}, found ${raw.length}. Correct the attribute at the source.`,
        element.tag,
      );
    if (!SINGLE_VALUE_VRS.has(vr))
      requireFew(element.tag, raw.length > MOST_VALUES ? valuesIn(raw) : 0);
    const decoded = (hasCharset ? this.#context.decode : plainText)(raw, vr);
    if (SINGLE_VALUE_VRS.has(vr)) return [withoutEnd(decoded, PADDING)];
    return decoded.includes("\\") ? decoded.split("\\").map(unpadded) : [unpadded(decoded)];
  }

  #numbers(element: Element): number[] {
    const vr = this.#vr(element);
    if (!TEXT_VRS.has(vr)) return this.#binary(element, vr);
    const numbers = this.#text(element)
      .filter((value) => value !== "")
      .map(decimal);
    // A place in the list has a meaning: without one value the others would move
    return numbers.every((number) => number !== undefined) ? numbers : [];
  }

  #binary(element: Element, vr: string): number[] {
    const reader = NUMBER_READERS[vr];
    if (reader === undefined) return [];
    const little = element.vr === "UN" || element.encoding.littleEndian;
    const count = Math.floor(element.available / reader.size);
    requireFew(element.tag, count);
    const { view } = this.#walk;
    const numbers: number[] = [];
    for (let i = 0; i < count; i++)
      numbers.push(reader.read(view, element.offset + i * reader.size, little));
    return numbers;
  }
}
