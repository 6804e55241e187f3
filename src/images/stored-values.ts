/**
 * Stored values read from a frame's bytes (PS3.5 section 8.1.1), and what a modality transform
 * makes of them.
 */
import type { Interpretation, ModalityTransform, PixelFormat } from "./image.js";

/**
 * Reads the value of a container, masked to BitsStored at HighBit and sign-extended from HighBit
 * (PS3.5 section 8.1.1).
 */
export function valueReader(data: Uint8Array, format: PixelFormat): (index: number) => number {
  const { bitsAllocated, bitsStored, highBit, signed } = format;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (format.float)
    return bitsAllocated === 32
      ? (i) => view.getFloat32(i * 4, true)
      : (i) => view.getFloat64(i * 8, true);
  const word =
    bitsAllocated === 8
      ? (i: number) => data[i] ?? 0
      : bitsAllocated === 16
        ? (i: number) => view.getUint16(i * 2, true)
        : (i: number) => view.getUint32(i * 4, true);
  // Left-aligned in 32 bits, the shift back drops what is below and extends the sign
  const left = 31 - highBit;
  const right = 32 - bitsStored;
  return signed ? (i) => (word(i) << left) >> right : (i) => (word(i) << left) >>> right;
}

/**
 * Calls `look` with the stored values of a grey frame, in order, without Pixel Padding and without
 * NaN, until it returns true.
 */
export function someValue(
  data: Uint8Array,
  format: PixelFormat,
  padding: Interpretation["padding"],
  look: (stored: number) => boolean,
): boolean {
  const read = valueReader(data, format);
  const count = format.rows * format.columns;
  const [from, to] = paddingRange(padding);
  for (let i = 0; i < count; i++) {
    const value = read(i);
    if ((value >= from && value <= to) || Number.isNaN(value)) continue;
    if (look(value)) return true;
  }
  return false;
}

/**
 * The stored values that are Pixel Padding, from the least to the greatest, whichever the file
 * gives first; none where nothing is.
 */
export function paddingRange(padding: Interpretation["padding"]): [number, number] {
  if (padding === undefined) return [Infinity, -Infinity];
  return [Math.min(padding.from, padding.to), Math.max(padding.from, padding.to)];
}

/**
 * The least and the greatest value of a grey frame whose containers are all value (16 bits stored
 * of 16), Pixel Padding included; undefined of other frames. It is for what is checked of every
 * frame: someValue takes many times as long.
 */
export function extremesOfWords(
  data: Uint8Array,
  { rows, columns, bitsAllocated, bitsStored, signed, float }: PixelFormat,
): [number, number] | undefined {
  const isWhole = bitsAllocated === 16 && bitsStored === 16 && !float && data.byteOffset % 2 === 0;
  if (!isWhole) return undefined;
  const view = signed ? Int16Array : Uint16Array;
  const values = new view(data.buffer as ArrayBuffer, data.byteOffset, rows * columns);
  let [least, most] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? 0;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return [least, most];
}

/**
 * The least and the greatest value that the format can hold; infinite for floating-point pixels.
 */
export function storedRange({ bitsStored, signed, float }: PixelFormat): [number, number] {
  if (float) return [-Infinity, Infinity];
  const least = signed ? -(2 ** (bitsStored - 1)) : 0;
  return [least, least + 2 ** bitsStored - 1];
}

/**
 * One format that holds the values of all of these, of one size and of grey whole numbers: the
 * fewest bits that do. Undefined if there is none.
 */
export function commonFormat(formats: readonly PixelFormat[]): PixelFormat | undefined {
  const [first] = formats;
  if (first === undefined || formats.every((each) => isStoredAlike(each, first))) return first;
  const isGrey = ({ float, samplesPerPixel, photometricInterpretation: tag }: PixelFormat) =>
    !float && samplesPerPixel === 1 && tag !== "PALETTE COLOR";
  if (!formats.every(isGrey)) return undefined;
  const ends = formats.flatMap((format) => storedRange(format));
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const signed = least < 0;
  const bitsStored = Math.ceil(Math.log2(Math.max(most + 1, -least))) + (signed ? 1 : 0);
  const bitsAllocated = ([8, 16, 32] as const).find((bits) => bits >= bitsStored);
  if (bitsAllocated === undefined) return undefined;
  return { ...first, bitsAllocated, bitsStored, highBit: bitsStored - 1, signed };
}

export function isStoredAlike(a: PixelFormat, b: PixelFormat): boolean {
  return (["bitsAllocated", "bitsStored", "highBit", "signed"] as const).every(
    (key) => a[key] === b[key],
  );
}

/** The stored values of a grey frame in a format that holds them all. */
export function storedAs(data: Uint8Array, from: PixelFormat, to: PixelFormat): Uint8Array {
  const read = valueReader(data, from);
  const count = from.rows * from.columns;
  const words = { 8: Uint8Array, 16: Uint16Array, 32: Uint32Array, 64: undefined }[
    to.bitsAllocated
  ];
  if (words === undefined) throw new RangeError("Whole numbers have 32 bits at most");
  const out = new words(count);
  for (let i = 0; i < count; i++) out[i] = read(i);
  return new Uint8Array(out.buffer);
}

/** The modality value of a stored one (PS3.3 C.11.1). */
export function modalityValue(modality: ModalityTransform, stored: number): number {
  switch (modality.kind) {
    case "identity":
      return stored;
    case "rescale":
      return stored * modality.slope + modality.intercept;
    case "lut": {
      const { entries, firstMapped } = modality.lut;
      const index = Math.max(0, Math.min(entries.length - 1, Math.round(stored) - firstMapped));
      return entries[index] ?? 0;
    }
  }
}
