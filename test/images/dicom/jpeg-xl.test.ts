/** What is read of a JPEG XL header (ISO/IEC 18181-1 annex D), bit by bit. */
import t from "tap";
import type { Warning } from "../../../src/images/image.js";
import { decodedColour } from "../../../src/images/dicom/coded-colour.js";
import { readCodestream } from "../../../src/images/dicom/codestream.js";

/** Bits in the order that they are read in. */
function codestream(...bits: (0 | 1)[]): Buffer {
  const bytes = Buffer.alloc(16);
  bits.forEach((bit, i) => (bytes[i >> 3] = (bytes[i >> 3] ?? 0) | (bit << (i & 7))));
  return Buffer.concat([Buffer.from([0xff, 0x0a]), bytes]);
}

/** 16 x 16, 8 bits, no extra channels, no XYB; the colour encoding is behind it. */
const START = [
  ...([1, 1, 0, 0, 0, 0, 1, 0, 0] as const), // small, 16 rows, square
  ...([0, 0] as const), // neither default nor extra fields
  ...([0, 0, 0] as const), // whole numbers, 8 bits
  ...([1, 0, 0, 0] as const), // modular_16bit_buffers, no extra channels, no XYB
];

t.test("grey is grey, with an ICC profile too", (t) => {
  const cases = [
    ["sRGB as it comes", [1], 3],
    ["grey", [0, 0, 1, 0], 1],
    ["grey with a profile", [0, 1, 1, 0], 1],
    ["RGB with a profile", [0, 1, 0, 0], 3],
  ] as const;
  for (const [name, colour, components] of cases)
    t.match(
      readCodestream(codestream(...START, ...colour)),
      { rows: 16, columns: 16, precision: 8, components },
      name,
    );
  t.end();
});

t.test("grey in XYB is grey, and told", (t) => {
  const warnings: Warning[] = [];
  const grey = readCodestream(codestream(...START, 0, 0, 1, 0));
  t.equal(decodedColour("XYB", grey, warnings), "MONOCHROME2");
  t.match(warnings, [{ code: "photometric_mismatch", message: /is XYB but .* are MONOCHROME2/ }]);
  t.end();
});
