/**
 * Bytes of pixels rearranged by the addon, at once and on the calling thread; no engine has to be
 * there.
 */
import { setTimeout as delay } from "node:timers/promises";
import { loadAddon } from "./load-addon.js";

/** Shorter ones may share a buffer with others, and are not worth the call. */
const LEAST_RELEASED_BYTES = 1 << 16;

interface BytesAddon {
  packRle(pixels: Uint8Array, planes: number, rows: number, columns: number): Uint8Array;
  unpackRle(
    frame: Uint8Array,
    samples: number,
    sampleBytes: number,
    out: Uint8Array,
  ): { fault: "outside" | "short" | "cut_run"; segment: number } | undefined;
  rleHolds(frame: Uint8Array, pixels: Uint8Array, planes: number): boolean;
  markPlane(bytes: Uint8Array, value: number, flip: boolean, plane: Uint8Array): void;
  packBits(plane: Uint8Array, bits: Uint8Array, at: number): void;
  unpackBits(bits: Uint8Array, at: number, plane: Uint8Array): void;
  /**
   * The index of the first value with bits outside its own that are no sign; -1 if there is none.
   */
  findStray(bytes: Uint8Array, containerBytes: number, outside: number, sign: number): number;
  /** Frees the memory of an array that has a buffer to itself; then it has no bytes. */
  releaseBytes(bytes: Uint8Array | Float32Array): void;
  /**
   * Gives back what the models' runs keep for the next ones, and what is free in the whole process,
   * on a thread beside.
   */
  giveBack(): void;
}

const GIVEN_BACK_MS = 100;
/**
 * An ended thread's memory is free when its heap is torn down; several that end together are waited
 * for.
 */
const TORN_DOWN_MS = 1_000;

const addon = (): BytesAddon => loadAddon() as BytesAddon;

/**
 * One frame of RLE Lossless (PS3.5 annex G), RGB by pixel in 8 bits, rows top to bottom: three
 * planes, each row by row. Equal pixels give equal bytes. By hand: the codec package's encoder
 * takes as long as all the drawing.
 */
export function packRle(rgb: Uint8Array, rows: number, columns: number): Uint8Array {
  return addon().packRle(rgb, 3, rows, columns);
}

/**
 * The fault of a segment, from 0: it lies outside its frame, or ends before its pixels do or inside
 * a run.
 */
export type RleFault = NonNullable<ReturnType<BytesAddon["unpackRle"]>>;

/**
 * Decodes a frame of RLE Lossless to whole pixels, by pixel and little endian.
 * @param frame with a header of as many segments as a pixel has bytes, at most 15
 * @param out all its pixels, of samples of `sampleBytes` bytes; holds anything after a fault
 */
export function unpackRle(
  frame: Uint8Array,
  samples: number,
  sampleBytes: number,
  out: Uint8Array,
): RleFault | undefined {
  return addon().unpackRle(frame, samples, sampleBytes, out);
}

/**
 * Whether a frame of RLE Lossless, RGB in 8 bits, holds these pixels; it is not unpacked whole.
 * @param frame with a whole header
 */
export function rleHolds(frame: Uint8Array, rgb: Uint8Array): boolean {
  return addon().rleHolds(frame, rgb, 3);
}

/**
 * 1 where a byte is the value, 0 elsewhere; as long as `length`, with 0 where there are no more
 * bytes.
 */
export function equalTo(bytes: Uint8Array, value: number, length: number): Uint8Array {
  const plane = new Uint8Array(length);
  addon().markPlane(bytes, value, false, plane);
  return plane;
}

/**
 * 1 where a byte is not zero, 0 elsewhere; as long as `length`, with 0 where there are no more
 * bytes.
 */
export function nonZero(bytes: Uint8Array, length: number): Uint8Array {
  const plane = new Uint8Array(length);
  addon().markPlane(bytes, 0, true, plane);
  return plane;
}

/**
 * Packs a plane of 0 and 1 from bit `at` on, the first pixel in the lowest bit (PS3.5 section
 * 8.1.1).
 * @param bits zero from there on
 */
export function packBits(plane: Uint8Array, bits: Uint8Array, at: number): void {
  addon().packBits(plane, bits, at);
}

/**
 * A plane of 0 and 1 from bit `at` on, the first pixel in the lowest bit; 0 where there are no more
 * bits.
 */
export function unpackedBits(bits: Uint8Array, at: number, length: number): Uint8Array {
  const plane = new Uint8Array(length);
  addon().unpackBits(bits, at, plane);
  return plane;
}

/**
 * The first value that has bits outside its own, which are to be zero (PS3.5 section 8.1.1);
 * undefined if none has.
 * @param containerBytes 1, 2 or 4; little endian
 * @param outside the bits
 * @param sign number of the highest bit of signed values, which may fill all of those; undefined
 * for unsigned ones
 */
export function findStray(
  bytes: Uint8Array,
  containerBytes: number,
  outside: number,
  sign: number | undefined,
): number | undefined {
  const found = addon().findStray(bytes, containerBytes, outside >>> 0, sign ?? -1);
  return found < 0 ? undefined : found;
}

/**
 * Frees an array's memory now, and not with some later garbage collection: V8 collects a thread's
 * whole heap for every 64 MiB of pixels, and what is free at once is still in the processor's cache
 * when it is used again. It has no bytes from then on. Nobody may read it any more, least of all
 * another thread or a call that was not waited for. A part of a larger buffer is left.
 */
export function release(bytes: Uint8Array | Float32Array): void {
  if (bytes.byteLength >= LEAST_RELEASED_BYTES) addon().releaseBytes(bytes);
}

/**
 * Collects all garbage of this thread now. Does nothing where Node.js was started without
 * --expose-gc.
 */
export function collect(): void {
  globalThis.gc?.();
}

/**
 * Collects all garbage of this thread, and gives what is free in the whole process back to the
 * system, also what models keep for their next runs. V8 collects when more is asked for, and so a
 * thread that has nothing to do would keep what it worked on last; arenas and the C library keep
 * what was freed. Does nothing where Node.js was started without --expose-gc.
 */
export async function giveBack(): Promise<void> {
  if (globalThis.gc === undefined) return;
  // From Node.js 22 on a collection of the usual flavour keeps the pages of the heap that it
  // empties
  globalThis.gc({ type: "major", execution: "sync", flavor: "last-resort" });
  // Memory that the addon lent to arrays which were collected comes back in a later turn of the
  // event loop
  await delay(GIVEN_BACK_MS);
  addon().giveBack();
}

let afterThread: NodeJS.Timeout | undefined;

/**
 * A thread of this process ends: what it leaves free is given back to the system soon, which the C
 * library does not.
 */
export function giveBackOfThread(): void {
  afterThread ??= setTimeout(() => {
    afterThread = undefined;
    addon().giveBack();
  }, TORN_DOWN_MS).unref();
}
