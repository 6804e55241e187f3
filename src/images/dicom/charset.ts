/**
 * Specific Character Set (PS3.3 C.12.1.1.2, PS3.5 section 6.1): bytes of a text value to a string.
 */
import { TextDecoder } from "node:util";
import { warn, type Warning } from "../image.js";
import { SINGLE_VALUE_VRS } from "./dictionary.js";

/**
 * The decoder of the bytes that are not ASCII, by the number of the repertoire in ISO_IR; 6 is
 * ASCII alone.
 */
const ENCODINGS: ReadonlyMap<string, string | undefined> = new Map([
  ["6", undefined],
  ["100", "windows-1252"],
  ["101", "iso-8859-2"],
  ["109", "iso-8859-3"],
  ["110", "iso-8859-4"],
  ["144", "iso-8859-5"],
  ["127", "iso-8859-6"],
  ["126", "iso-8859-7"],
  ["138", "iso-8859-8"],
  ["148", "iso-8859-9"],
  ["203", "iso-8859-15"],
  ["13", "shift_jis"],
  ["166", "windows-874"],
  ["192", "utf-8"],
  ["149", "euc-kr"],
  // Reached by escape sequences alone
  ["58", undefined],
  ["87", undefined],
  ["159", undefined],
]);

/** Encodings of more than one byte a character. */
const MULTI_BYTE = new Set(["utf-8", "euc-kr", "gb18030", "gbk"]);

/**
 * Other names of repertoires, without what is no letter or digit, by which people mean the same.
 */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ["", "6"],
  ["ASCII", "6"],
  ["USASCII", "6"],
  ["UTF8", "192"],
  ["UNICODE11UTF8", "192"],
  ...[100, 101, 109, 110, 144, 127, 126, 138, 148].map((ir, i): [string, string] => [
    `ISO8859${i + 1}`,
    `${ir}`,
  ]),
  ["ISO885911", "166"],
  ["ISO885915", "203"],
  ["LATIN1", "100"],
  ["LATIN2", "101"],
  ["LATIN3", "109"],
  ["LATIN4", "110"],
  ["LATIN5", "148"],
  ["LATIN9", "203"],
]);

type CharacterSet = "ascii" | "jisx0208" | "jisx0212";

interface Escape {
  bytes: string;
  g0?: CharacterSet;
  g1?: string;
}

/**
 * Escape sequences (PS3.3 tables C.12-3 and C.12-4), without the ESC: what they put into G0 or G1.
 */
const ESCAPES: readonly Escape[] = [
  { bytes: "$)C", g1: "euc-kr" },
  { bytes: "$)A", g1: "gb18030" },
  { bytes: "$(D", g0: "jisx0212" },
  { bytes: "$B", g0: "jisx0208" },
  { bytes: "(B", g0: "ascii" },
  { bytes: "(J", g0: "ascii" },
  { bytes: ")I", g1: "shift_jis" },
  { bytes: "-A", g1: "windows-1252" },
  { bytes: "-B", g1: "iso-8859-2" },
  { bytes: "-C", g1: "iso-8859-3" },
  { bytes: "-D", g1: "iso-8859-4" },
  { bytes: "-L", g1: "iso-8859-5" },
  { bytes: "-G", g1: "iso-8859-6" },
  { bytes: "-F", g1: "iso-8859-7" },
  { bytes: "-H", g1: "iso-8859-8" },
  { bytes: "-M", g1: "iso-8859-9" },
  { bytes: "-b", g1: "iso-8859-15" },
  { bytes: "-T", g1: "windows-874" },
];

const ESC = 0x1b;
const SPACE = 0x20;
const EQUALS = 0x3d;
const BACKSLASH = 0x5c;
const CARET = 0x5e;
/** The character that stands for bytes that no declared set explains. */
export const UNEXPLAINED = "\ufffd";

/** The value representation says which characters are delimiters, at which sets are reset. */
export type TextDecode = (bytes: Uint8Array, vr: string) => string;

type RunDecode = (bytes: Uint8Array) => string;

const decoders = new Map<string | undefined, RunDecode>();

function decoder(encoding: string | undefined): RunDecode {
  let found = decoders.get(encoding);
  if (found === undefined) {
    found =
      encoding !== undefined && (MULTI_BYTE.has(encoding) || encoding === "euc-jp")
        ? multiByte(encoding)
        : singleByte(encoding);
    decoders.set(encoding, found);
  }
  return found;
}

function multiByte(encoding: string): RunDecode {
  const decoding = new TextDecoder(encoding);
  return (bytes) => decoding.decode(bytes);
}

const BEYOND_ASCII = /[\x80-\xff]/;

/**
 * ASCII, and what the encoding has for the bytes of G1: C1 is in no repertoire of DICOM, and JIS X
 * 0201 ends early.
 */
function singleByte(encoding: string | undefined): RunDecode {
  const decoding = new TextDecoder(encoding);
  const [first, last] =
    encoding === undefined ? [0x80, 0x7f] : encoding === "shift_jis" ? [0xa1, 0xdf] : [0xa0, 0xff];
  const characters = Array.from({ length: 256 }, (_, byte) =>
    byte < 0x80
      ? String.fromCharCode(byte)
      : byte >= first && byte <= last
        ? decoding.decode(Uint8Array.of(byte))
        : UNEXPLAINED,
  );
  return (bytes) => {
    const buffer = Buffer.isBuffer(bytes)
      ? bytes
      : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const text = buffer.toString("latin1");
    return BEYOND_ASCII.test(text) ? Array.from(bytes, (byte) => characters[byte]).join("") : text;
  };
}

/** Encodings that know no code extension. */
const STANDING_ALONE = new Set(["utf-8", "gb18030", "gbk"]);

/** A value of Specific Character Set, and what is odd about it. */
interface Term {
  encoding: string | undefined;
  /** The term as it should be written; undefined if there is no such set. */
  name: string | undefined;
}

function termOf(text: string, several: boolean): Term {
  const plain = text.toUpperCase().replace(/[^A-Z0-9]/g, "");
  if (plain === "GB18030" || plain === "GBK") return { encoding: plain.toLowerCase(), name: plain };
  const number = /^(?:ISO)?(?:2022)?IR(\d+)$/.exec(plain)?.[1] ?? ALIASES.get(plain) ?? "";
  if (!ENCODINGS.has(number)) return { encoding: undefined, name: undefined };
  const extended = several && number !== "192";
  const name = text === "" ? "" : `${extended ? "ISO 2022 IR " : "ISO_IR "}${number}`;
  return { encoding: ENCODINGS.get(number), name };
}

/**
 * A decoder for the values of Specific Character Set. Bytes that no declared set explains become
 * U+FFFD, one for each: those of an unknown set, and those beyond ASCII where none is declared. A
 * set that is misspelled and can be no other is taken, with a warning. Text is decoded before it is
 * split at backslashes, because the second byte of a multi-byte character can be one.
 */
export function textDecoder(terms: readonly string[], warnings: Warning[] = []): TextDecode {
  const several = terms.length > 1;
  const found = terms.map((text) => termOf(text, several));
  found.forEach(({ name }, i) => {
    const text = terms[i] ?? "";
    if (name === text) return;
    const said = /^[\w .:-]{1,16}$/.test(text) ? `"${text}"` : "a text";
    if (name === undefined)
      warn(
        warnings,
        "character_set_unknown",
        `SpecificCharacterSet holds ${said}, which is not a character set of DICOM; text beyond ASCII was not read.`,
      );
    else
      warn(
        warnings,
        "character_set_spelling",
        `SpecificCharacterSet holds ${said}; it was read as ${name}.`,
      );
  });
  const alone = found.find(({ encoding }) => STANDING_ALONE.has(encoding ?? ""));
  if (alone !== undefined && several) {
    // Text in another set does not look like UTF-8 by chance; any other set would be a guess
    const isSure =
      alone.encoding === "utf-8" || found.every((one) => one === alone || !one.encoding);
    warn(
      warnings,
      isSure ? "character_set_spelling" : "character_set_unknown",
      `SpecificCharacterSet holds ${alone.name} beside others, which has to stand alone (PS3.3 C.12.1.1.2); ` +
        (isSure ? "it was read as that." : "text beyond ASCII was not read."),
    );
    return decoder(isSure ? alone.encoding : undefined);
  }
  const initial = found[0]?.encoding;
  const decode = decoder(initial);
  const extended = several || /2022/.test(terms[0] ?? "");
  if (!extended || alone !== undefined) return decode;
  return (bytes, vr) => (bytes.includes(ESC) ? decodeExtended(bytes, initial, vr) : decode(bytes));
}

/** Two-byte JIS codes to what the EUC-JP decoder takes: high bits set, JIS X 0212 behind 0x8F. */
function eucJp(codes: Uint8Array, set: CharacterSet): string {
  const out: number[] = [];
  for (let i = 0; i + 1 < codes.length; i += 2) {
    if (set === "jisx0212") out.push(0x8f);
    out.push((codes[i] ?? 0) | 0x80, (codes[i + 1] ?? 0) | 0x80);
  }
  return decoder("euc-jp")(Uint8Array.from(out)) + (codes.length % 2 === 0 ? "" : UNEXPLAINED);
}

/** The sequence that begins behind an ESC. A text may hold millions of them: nothing is made. */
function escapeAt(bytes: Uint8Array, at: number): Escape | undefined {
  return ESCAPES.find((sequence) => {
    for (let i = 0; i < sequence.bytes.length; i++)
      if (sequence.bytes.charCodeAt(i) !== bytes[at + i]) return false;
    return true;
  });
}

/**
 * Whether the set of the first value is in force again from here on (PS3.5 section 6.1.2.5.3): at
 * control characters, between values, and between the components of a name. In other texts "^" and
 * "=" are characters as any.
 */
function resetsSets(byte: number, vr: string): boolean {
  if (byte === BACKSLASH) return !SINGLE_VALUE_VRS.has(vr);
  return byte < SPACE || (vr === "PN" && (byte === CARET || byte === EQUALS));
}

function decodeExtended(bytes: Uint8Array, initial: string | undefined, vr: string): string {
  let g0: CharacterSet = "ascii";
  let g1 = initial;
  let text = "";
  let start = 0;
  const flush = (stop: number) => {
    const run = bytes.subarray(start, stop);
    text += g0 === "ascii" ? decoder(g1)(run) : eucJp(run, g0);
    start = stop;
  };
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] ?? 0;
    if (byte === ESC) {
      const found = escapeAt(bytes, i + 1);
      if (found === undefined) continue;
      flush(i);
      g0 = found.g0 ?? g0;
      g1 = found.g1 ?? g1;
      i += found.bytes.length;
      start = i + 1;
    } else if (g0 === "ascii" && resetsSets(byte, vr)) {
      // In a multi-byte G0 the same byte is half a character
      if (g1 !== initial && !multiByteTail(bytes, start, i, g1)) {
        flush(i);
        g1 = initial;
      }
    }
  }
  flush(bytes.length);
  return text;
}

/** True if the byte at `at` is the second half of a GB 18030 character rather than a delimiter. */
function multiByteTail(
  bytes: Uint8Array,
  start: number,
  at: number,
  g1: string | undefined,
): boolean {
  if (g1 !== "gb18030") return false;
  let high = 0;
  for (let i = at - 1; i >= start && (bytes[i] ?? 0) >= 0x80; i--) high++;
  return high % 2 === 1;
}
