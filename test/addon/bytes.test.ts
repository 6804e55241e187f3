/**
 * Planes of the addon against planes pixel by pixel, of every length and beginning at every place.
 */
import t from "tap";
import { equalTo, nonZero, packBits, release, unpackedBits } from "../../src/addon/bytes.js";
import { random } from "../support/dicom.js";

t.test("compared, packed and unpacked as one by one", (t) => {
  const chance = random(3);
  const some = (most: number) => Math.floor(chance() * most);
  const values = [0, 1, 2, 3, 127, 128, 255];
  const faults: string[] = [];
  for (let round = 0; round < 2000; round++) {
    const [length, from, at] = [1 + some(70), some(9), some(40)];
    const bytes = Uint8Array.from({ length: from + length }, () => values[some(7)]!).subarray(from);
    const value = values[some(7)]!;
    const equal = bytes.map((byte) => (byte === value ? 1 : 0));
    const what = `${length} pixels from ${from}, value ${value}, bit ${at}`;
    if (Buffer.compare(equalTo(bytes, value, length), equal) !== 0) faults.push(`equal: ${what}`);
    const set = bytes.map((byte) => (byte === 0 ? 0 : 1));
    if (Buffer.compare(nonZero(bytes, length), set) !== 0) faults.push(`set: ${what}`);
    const bits = new Uint8Array(Math.ceil((at + length) / 8));
    for (let bit = 0; bit < at; bit += 3) bits[bit >>> 3]! |= 1 << (bit & 7);
    const expected = bits.slice();
    equal.forEach((bit, i) => (expected[(at + i) >>> 3]! |= bit << ((at + i) & 7)));
    packBits(equal, bits, at);
    if (Buffer.compare(bits, expected) !== 0) faults.push(`packed: ${what}`);
    if (Buffer.compare(unpackedBits(bits, at, length), equal) !== 0)
      faults.push(`unpacked: ${what}`);
  }
  t.same(faults, []);
  t.equal(
    unpackedBits(new Uint8Array([255]), 0, 12).join(""),
    "111111110000",
    "nothing behind the end",
  );
  t.equal(equalTo(new Uint8Array([0]), 0, 6).join(""), "100000", "nor in a mask that is too short");
  t.end();
});

t.test("released where they have a buffer to themselves", (t) => {
  const pixels = new Uint8Array(1 << 16).fill(7);
  const row = pixels.subarray(1024);
  release(row);
  t.equal(pixels[1024], 7, "a part of others stays");
  release(pixels.subarray(0, 1024));
  const before = process.memoryUsage().arrayBuffers;
  release(pixels);
  const freed = before - process.memoryUsage().arrayBuffers;
  t.ok(freed >= 1 << 16, "at once");
  t.equal(pixels.length, 0);
  t.equal(row[0], undefined);
  t.doesNotThrow(() => release(pixels), "once more");
  t.end();
});
