/** Values in the other order of bytes (PS3.5 section 7.3). */

/** Bytes that are swapped together, by value representation; of all others, none. */
const WIDTHS: Readonly<Record<string, number>> = {
  AT: 2,
  OW: 2,
  SS: 2,
  US: 2,
  xs: 2,
  ox: 2,
  lt: 2,
  FL: 4,
  OF: 4,
  OL: 4,
  SL: 4,
  UL: 4,
  up: 4,
  FD: 8,
  OD: 8,
  OV: 8,
  SV: 8,
  UV: 8,
};

/** The bytes of a value in the other order; the same ones where the order does not matter. */
export function inOtherOrder(bytes: Uint8Array, vr: string): Uint8Array {
  const width = WIDTHS[vr] ?? 1;
  if (width === 1 || bytes.length % width !== 0) return bytes;
  const swapped = Buffer.from(bytes);
  if (width === 2) return swapped.swap16();
  return width === 4 ? swapped.swap32() : swapped.swap64();
}
