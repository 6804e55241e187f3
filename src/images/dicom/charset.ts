/** Specific Character Set (PS3.3 C.12.1.1.2, PS3.5 section 6.1): bytes of a text value to a string. */
import { TextDecoder } from "node:util";

/** Single-byte repertoires and multi-byte sets without code extensions: defined term to the name TextDecoder knows. */
const ENCODINGS: Readonly<Record<string, string>> = {
  "": "windows-1252",
  "ISO_IR 6": "windows-1252",
  "ISO_IR 100": "windows-1252",
  "ISO_IR 101": "iso-8859-2",
  "ISO_IR 109": "iso-8859-3",
  "ISO_IR 110": "iso-8859-4",
  "ISO_IR 144": "iso-8859-5",
  "ISO_IR 127": "iso-8859-6",
  "ISO_IR 126": "iso-8859-7",
  "ISO_IR 138": "iso-8859-8",
  "ISO_IR 148": "iso-8859-9",
  "ISO_IR 203": "iso-8859-15",
  "ISO_IR 13": "shift_jis",
  "ISO_IR 166": "windows-874",
  "ISO_IR 192": "utf-8",
  "ISO_IR 149": "euc-kr",
  GB18030: "gb18030",
  GBK: "gbk",
};

type CharacterSet = "ascii" | "jisx0208" | "jisx0212";

/** Escape sequences (PS3.3 tables C.12-3 and C.12-4), without the ESC: what they put into G0 or G1. */
const ESCAPES: readonly { bytes: string; g0?: CharacterSet; g1?: string }[] = [
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
const decoders = new Map<string, TextDecoder>();

function decoder(encoding: string): TextDecoder {
  let found = decoders.get(encoding);
  if (found === undefined) {
    found = new TextDecoder(encoding);
    decoders.set(encoding, found);
  }
  return found;
}

export type TextDecode = (bytes: Uint8Array) => string;

/**
 * A decoder for the values of Specific Character Set. Unknown terms decode as Latin-1, so that no byte is lost;
 * bytes that the set does not define become U+FFFD. Text is decoded before it is split at backslashes, because the
 * second byte of a multi-byte character can be one.
 */
export function textDecoder(terms: readonly string[]): TextDecode {
  // ISO 2022 IR n is the code-extension name of ISO_IR n
  const first = (terms[0] ?? "").trim().replace("ISO 2022 IR ", "ISO_IR ");
  const initial = ENCODINGS[first] ?? "windows-1252";
  const extended = terms.length > 1 || /^ISO 2022/.test(terms[0] ?? "");
  if (!extended || initial === "utf-8" || initial === "gb18030" || initial === "gbk")
    return (bytes) => decoder(initial).decode(bytes);
  return (bytes) => (bytes.includes(ESC) ? decodeExtended(bytes, initial) : decoder(initial).decode(bytes));
}

function escapeAt(bytes: Uint8Array, at: number): (typeof ESCAPES)[number] | undefined {
  return ESCAPES.find((e) => Buffer.from(e.bytes, "latin1").every((byte, i) => bytes[at + 1 + i] === byte));
}

/** Two-byte JIS codes to what the EUC-JP decoder takes: high bits set, JIS X 0212 behind 0x8F. */
function eucJp(codes: Uint8Array, set: CharacterSet): string {
  const out: number[] = [];
  for (let i = 0; i + 1 < codes.length; i += 2) {
    if (set === "jisx0212") out.push(0x8f);
    out.push((codes[i] ?? 0) | 0x80, (codes[i + 1] ?? 0) | 0x80);
  }
  return decoder("euc-jp").decode(Uint8Array.from(out));
}

function decodeExtended(bytes: Uint8Array, initial: string): string {
  let g0: CharacterSet = "ascii";
  let g1 = initial;
  let text = "";
  let start = 0;
  const flush = (stop: number) => {
    const run = bytes.subarray(start, stop);
    text += g0 === "ascii" ? decoder(g1).decode(run) : eucJp(run, g0);
    start = stop;
  };
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === ESC) {
      const found = escapeAt(bytes, i);
      if (found === undefined) continue;
      flush(i);
      g0 = found.g0 ?? g0;
      g1 = found.g1 ?? g1;
      i += found.bytes.length;
      start = i + 1;
    } else if (
      g0 === "ascii" &&
      (byte === 0x5c || byte === 0x5e || byte === 0x3d || byte === 10 || byte === 13)
    ) {
      // Delimiters reset the sets (PS3.5 section 6.1.2.5.3); in a multi-byte G0 the same byte is half a character
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
function multiByteTail(bytes: Uint8Array, start: number, at: number, g1: string): boolean {
  if (g1 !== "gb18030") return false;
  let high = 0;
  for (let i = at - 1; i >= start && (bytes[i] ?? 0) >= 0x80; i--) high++;
  return high % 2 === 1;
}
