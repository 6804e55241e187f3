/** What is read of a JPEG XL header (ISO/IEC 18181-1 annexes D to F), bit by bit. */
import t from "tap";
import type { Warning } from "../../../src/images/image.js";
import { decodedColour } from "../../../src/images/dicom/coded-colour.js";
import { readCodestream } from "../../../src/images/dicom/codestream.js";
import { readImage } from "../../../src/images/read-image.js";
import { dicomFile, imageAttributes, SYNTAXES } from "../../support/dicom.js";
import { warned } from "../../support/expect.js";

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

/**
 * A JPEG of 16 x 16 pixels, 4:4:4, its upper half red and its lower half blue, as libjxl
 * recompressed it: coded as YCbCr, of which the decoder makes RGB.
 */
const RECOMPRESSED = Buffer.from(
  "/wpDQCTgWwAQABwCCGAIYAhg/v8OgCgaAIXGxm4AAAAFAADwAwAAAAAAAAAQsCRRZBw7Ic0dBmAmBYV7cEBxjo4x" +
    "itmejwCQVvwsMAT3QLidBgClqc7VA4anseAEEHPpJQAwk+fOT/SDUGhn5gq6v2TrWuK95kPQtubT5hCVHh+VTutb" +
    "fgxVnw9ACAAAAAAAoCQB",
  "base64",
);
/** Of them what lies before the frame. */
const HEADER_BYTES = 5;

const box = (type: string, content: Buffer) => {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(8 + content.length);
  head.write(type, 4, "latin1");
  return Buffer.concat([head, content]);
};
const part = (index: number, content: Buffer) =>
  box("jxlp", Buffer.concat([Buffer.from([index >>> 24, 0, 0, index & 255]), content]));

t.test("recompressed JPEG is RGB, and told", async (t) => {
  const signature = Buffer.from([0x0d, 0x0a, 0x87, 0x0a]);
  const inParts = Buffer.concat([
    box("JXL ", signature),
    box("ftyp", Buffer.from("jxl \0\0\0\0jxl ", "latin1")),
    part(0, RECOMPRESSED.subarray(0, HEADER_BYTES)),
    part(0x80000001, RECOMPRESSED.subarray(HEADER_BYTES)),
  ]);
  for (const frame of [RECOMPRESSED, inParts])
    for (const PhotometricInterpretation of ["YBR_FULL", "YBR_FULL_422"]) {
      const image = await readImage(
        dicomFile({
          transferSyntax: SYNTAXES["jpeg-xl"],
          attributes: imageAttributes({
            Rows: 16,
            Columns: 16,
            BitsAllocated: 8,
            BitsStored: 8,
            HighBit: 7,
            SamplesPerPixel: 3,
            PlanarConfiguration: 0,
            PhotometricInterpretation,
          }),
          pixels: { fragments: [frame] },
        }),
      );
      t.equal(image.format.photometricInterpretation, "RGB");
      const [red, , blue] = await image.frame(0);
      t.ok(red !== undefined && red > 180 && blue !== undefined && blue < 60, "red is red");
      t.strictSame(warned(image), ["photometric_mismatch"]);
      t.match(image.warnings[0]?.message, "the frames were believed");
    }
});
