/**
 * Lookup tables: modality and VOI (PS3.3 C.11.1.1, C.11.2.1), palettes and segmented palettes
 * (C.7.6.3.1.5, C.7.9.2).
 */
import { errors, type RadserveError } from "../../base/errors.js";
import { warn, type LookupTable, type Palette, type Warning } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";

interface Descriptor {
  entries: number;
  firstMapped: number;
  bits: number;
}

function corrupt(attribute: string, problem: string): RadserveError {
  return errors.corrupt_image(`${attribute} ${problem}. Correct the attribute at the source.`, {
    attribute,
  });
}

/**
 * The first and third value are always unsigned; the second has the sign of the stored values, or
 * for VOI LUTs of what comes out of the modality transform (PS3.3 C.11.2.1.1). 0 entries are
 * 65,536.
 */
function descriptor(item: DataSetAttributes, keyword: string, signed: boolean): Descriptor {
  const [entries, first, bits] = item.numbersAs(keyword, "US") ?? [];
  if (entries === undefined || first === undefined || bits === undefined)
    throw corrupt(keyword, "needs three values");
  if (bits < 8 || bits > 16)
    throw corrupt(keyword, `says ${bits} bits an entry where 8 to 16 are possible`);
  return {
    entries: entries === 0 ? 65536 : entries,
    firstMapped: signed && first > 32767 ? first - 65536 : first,
    bits,
  };
}

/** Entries as words, or as bytes packed two to a word, low byte first, if their number says so. */
function unpacked(words: number[], { entries }: Descriptor, keyword: string): Uint16Array {
  if (words.length >= entries) return Uint16Array.from(words.slice(0, entries));
  if (words.length !== Math.ceil(entries / 2))
    throw corrupt(
      keyword,
      `has ${words.length} words where its descriptor says ${entries} entries`,
    );
  const out = new Uint16Array(entries);
  for (let i = 0; i < entries; i++) out[i] = ((words[i >>> 1] ?? 0) >>> ((i & 1) * 8)) & 0xff;
  return out;
}

/** Data of a table as 16-bit words; one byte each if it was written as OB with a byte an entry. */
function dataOf(item: DataSetAttributes, keyword: string, table: Descriptor): Uint16Array {
  const element = item.element(keyword);
  if (element === undefined) throw corrupt(keyword, "is absent");
  if (element.vr !== "OB" || element.length >= table.entries * 2)
    return unpacked(item.numbersAs(keyword, "US") ?? [], table, keyword);
  const bytes = item.numbersAs(keyword, "OB") ?? [];
  if (bytes.length < table.entries)
    throw corrupt(
      keyword,
      `has ${bytes.length} bytes where its descriptor says ${table.entries} entries`,
    );
  return Uint16Array.from(bytes.slice(0, table.entries));
}

/**
 * Bits of a table whose entries are wider than its descriptor says, which happens with 8 for 16.
 */
function realBits(bits: number, ...tables: Uint16Array[]): number {
  return tables.some((t) => t.some((entry) => entry > 2 ** bits - 1)) ? 16 : bits;
}

/**
 * LUTDescriptor and LUTData of a Modality or VOI LUT Sequence item. Throws corrupt_image.
 * @param signed whether the values that go in can be negative
 */
export function readLut(item: DataSetAttributes, signed: boolean): LookupTable {
  const found = descriptor(item, "LUTDescriptor", signed);
  const entries = dataOf(item, "LUTData", found);
  return { firstMapped: found.firstMapped, bits: realBits(found.bits, entries), entries };
}

/** A VOI LUT, as readLut; its bits say what white is. */
export function readVoiLut(
  item: DataSetAttributes,
  signed: boolean,
  warnings: Warning[],
): LookupTable {
  const lut = readLut(item, signed);
  return { ...lut, bits: shownBits(lut.bits, [lut.entries], warnings) };
}

/** The palette of PALETTE COLOR images. Throws corrupt_image if a table is absent or wrong. */
export function readPalette(
  attributes: DataSetAttributes,
  signed: boolean,
  warnings: Warning[],
): Palette {
  const table = (colour: string) => {
    const found = descriptor(attributes, `${colour}PaletteColorLookupTableDescriptor`, signed);
    return { ...found, data: paletteEntries(attributes, colour, found) };
  };
  const [red, green, blue] = [table("Red"), table("Green"), table("Blue")] as const;
  if ([green, blue].some((t) => t.firstMapped !== red.firstMapped || t.entries !== red.entries))
    throw corrupt("The palette descriptors", "differ between the colours");
  const bits = shownBits(red.bits, [red.data, green.data, blue.data], warnings);
  // 8 and 16 are what there should be (PS3.3 C.7.6.3.1.5); others are spread to 16
  const spread = ({ data }: { data: Uint16Array }) =>
    bits > 8 ? data.map((entry) => entry << (16 - bits)) : data;
  return {
    firstMapped: red.firstMapped,
    bits: bits > 8 ? 16 : 8,
    red: spread(red),
    green: spread(green),
    blue: spread(blue),
  };
}

/**
 * Tables said to be of more than 8 bits whose every entry fits 8 would show nothing but black: they
 * are of 8.
 */
function shownBits(bits: number, tables: Uint16Array[], warnings: Warning[]): number {
  if (bits <= 8 || tables.some((table) => table.some((entry) => entry > 255)))
    return realBits(bits, ...tables);
  warn(
    warnings,
    "table_bits",
    `A lookup table says ${bits} bits an entry but has no entry above 255; 8 bits were taken.`,
  );
  return 8;
}

function paletteEntries(
  attributes: DataSetAttributes,
  colour: string,
  found: Descriptor,
): Uint16Array {
  const plain = `${colour}PaletteColorLookupTableData`;
  if (attributes.has(plain)) return dataOf(attributes, plain, found);
  const segmented = `Segmented${plain}`;
  if (!attributes.has(segmented)) throw corrupt(plain, "is absent");
  const bytewise = found.bits <= 8 && attributes.element(segmented)?.vr === "OB";
  const codes = attributes.numbersAs(segmented, bytewise ? "OB" : "US") ?? [];
  // Codes of 8 bits lie in words as the entries of a plain table do: low byte first, in either byte
  // order
  const packed = found.bits <= 8 && !bytewise;
  return expandSegments(
    packed ? codes.flatMap((w) => [w & 0xff, w >>> 8]) : codes,
    found,
    segmented,
  );
}

/**
 * Discrete, linear and indirect segments (PS3.3 C.7.9.2). `codes` are words for 16-bit tables,
 * bytes for 8-bit ones. What is behind the entries that the descriptor names is left out: indirect
 * segments of a few bytes could make more of them than there is memory for.
 */
function expandSegments(codes: number[], found: Descriptor, keyword: string): Uint16Array {
  const out: number[] = [];
  const isFull = () => out.length === found.entries;
  /** Those without entries fill nothing: more of them than this are a circle. */
  let most = codes.length + found.entries;
  const wordBytes = found.bits > 8 ? 2 : 1;
  let at = 0;
  const next = () => {
    const code = codes[at++];
    if (code === undefined) throw corrupt(keyword, "ends inside a segment");
    return code;
  };
  const segment = (nested: boolean) => {
    const opcode = next();
    const length = next();
    if (most-- === 0) throw corrupt(keyword, "repeats segments that have no entries");
    if (opcode === 0) {
      for (let i = 0; i < length && !isFull(); i++) out.push(next());
    } else if (opcode === 1) {
      const [from, last] = [out.at(-1), next()];
      if (from === undefined) throw corrupt(keyword, "begins with a linear segment");
      for (let i = 1; i <= length && !isFull(); i++)
        out.push(Math.round(from + ((last - from) * i) / length));
    } else if (opcode === 2 && !nested) {
      const resume = () =>
        wordBytes === 2
          ? next() + next() * 65536
          : next() + next() * 256 + next() * 65536 + next() * 16777216;
      const target = resume() / wordBytes;
      const back = at;
      at = target;
      for (let i = 0; i < length && !isFull(); i++) segment(true);
      at = back;
    } else {
      throw corrupt(keyword, `has the segment type ${opcode}, which is none`);
    }
  };
  while (!isFull()) segment(false);
  return Uint16Array.from(out);
}
