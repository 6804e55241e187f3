/**
 * A cine of 100 compressed frames: decoded by one thread, and with the decoder threads of a request
 * that is alone.
 */
import os from "node:os";
import { shareDecoding } from "../../src/images/dicom/decoders.js";
import { readImage } from "../../src/images/read-image.js";
import { attributesOf, compress, dicomFile, picture, SYNTAXES } from "../../test/support/dicom.js";
import { median } from "./statistics.js";

export interface CineRow {
  coding: string;
  frames: number;
  threads: number;
  one_ms: number;
  shared_ms: number;
  /** Shared by one: less is faster. */
  ratio: number;
}

const FRAMES = 100;
const DIFFERENT = 5;
const CODERS = ["jpeg2000", "jpeg-ls", "jpeg-lossless"] as const;

async function timed(file: Uint8Array, threads: number): Promise<number> {
  shareDecoding(() => true, threads);
  const image = await readImage(file);
  const began = performance.now();
  for (let i = 0; i < image.frameCount; i++) await image.frame(i);
  return performance.now() - began;
}

/** Wall-clock, by turns, the start of the threads included. */
export async function cines(rounds: number): Promise<CineRow[]> {
  const threads = Math.max(1, os.availableParallelism() - 1);
  const layout = { rows: 512, columns: 512, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const raws = Array.from({ length: DIFFERENT }, (_, seed) => picture(layout, seed));
  const rows: CineRow[] = [];
  for (const coding of CODERS) {
    const frames = await Promise.all(raws.map((raw) => compress(coding, raw)));
    const file = dicomFile({
      transferSyntax: SYNTAXES[coding],
      attributes: attributesOf(raws[0]!, { NumberOfFrames: String(FRAMES) }),
      pixels: { fragments: Array.from({ length: FRAMES }, (_, i) => frames[i % DIFFERENT]!) },
    });
    const one: number[] = [];
    const shared: number[] = [];
    await timed(file, 0);
    for (let round = 0; round < rounds; round++) {
      one.push(await timed(file, 0));
      shared.push(await timed(file, threads));
    }
    const [one_ms, shared_ms] = [median(one), median(shared)];
    rows.push({ coding, frames: FRAMES, threads, one_ms, shared_ms, ratio: shared_ms / one_ms });
  }
  return rows;
}
