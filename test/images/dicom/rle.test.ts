/**
 * Pictures of every kind of row through the RLE encoder and back through the decoder that sources
 * are read with.
 */
import t from "tap";
import { decodeRle } from "../../../src/images/dicom/rle.js";
import { packRle } from "../../../src/addon/bytes.js";
import { random } from "../../support/dicom.js";

const format = (rows: number, columns: number) => ({
  rows,
  columns,
  samplesPerPixel: 3,
  bitsAllocated: 8 as const,
  bitsStored: 8,
  highBit: 7,
  signed: false,
  float: false,
  photometricInterpretation: "RGB" as const,
  packed422: false,
});

t.test("comes back as it was", (t) => {
  const chance = random(7);
  for (const columns of [1, 2, 3, 127, 128, 129, 130, 257, 300])
    for (const colours of [1, 2, 5, 256]) {
      const rgb = Uint8Array.from({ length: 4 * columns * 3 }, () =>
        Math.floor(chance() * colours),
      );
      const encoded = packRle(rgb, 4, columns);
      const what = `${columns} columns, ${colours} values`;
      t.ok(Buffer.from(decodeRle(encoded, format(4, columns))).equals(rgb), what);
      t.equal(encoded.length % 2, 0, `${what}: even`);
    }
  t.end();
});

t.test(
  "each row and each plane is for itself (PS3.5 G.3.1), a run of 129 is a run and a literal",
  (t) => {
    const rgb = new Uint8Array(2 * 129 * 3).fill(9);
    const encoded = packRle(rgb, 2, 129);
    const row = [129, 9, 0, 9];
    t.same([...encoded.subarray(64)], Array<number[]>(6).fill(row).flat());
    const header = new Uint32Array(encoded.slice(0, 64).buffer);
    t.same([...header.subarray(0, 5)], [3, 64, 72, 80, 0]);
    t.end();
  },
);
