/** RLE Lossless (PS3.5 annex G) in the addon, at once and on the calling thread; no engine has to be there. */
import { loadAddon, type Addon } from "./engine-native.js";

let addon: Addon | undefined;

/** One frame, RGB by pixel in 8 bits, as `rows` by `columns`. */
export function packRle(rgb: Uint8Array, rows: number, columns: number): Uint8Array {
  addon ??= loadAddon();
  return addon.packRle(rgb, 3, rows, columns);
}

/** What is wrong with a segment, from 0: it lies outside its frame, or ends before its pixels do or inside a run. */
export type RleFault = NonNullable<ReturnType<Addon["unpackRle"]>>;

/**
 * Decodes a frame to whole pixels, by pixel and little endian.
 * @param frame with a header of as many segments as a pixel has bytes, at most 15
 * @param out all its pixels, of samples of `sampleBytes` bytes; holds anything after a fault
 */
export function unpackRle(
  frame: Uint8Array,
  samples: number,
  sampleBytes: number,
  out: Uint8Array,
): RleFault | undefined {
  addon ??= loadAddon();
  return addon.unpackRle(frame, samples, sampleBytes, out);
}
