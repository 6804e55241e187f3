/** A volume as the bytes of a .nii.gz file. */
import { pipeline, Readable } from "node:stream";
import { createGzip } from "node:zlib";
import { niftiHeader } from "./header.js";
import type { NiftiVolume } from "./volume.js";

/**
 * Piece by piece, so that a long series is never in memory whole. The gzip header has no time and
 * no name: equal volumes are equal bytes.
 * @throws what reading the slices throws
 */
export async function* niftiFile(volume: NiftiVolume): AsyncGenerator<Buffer> {
  const gzip = createGzip();
  // A fault of a slice ends the compression, which throws it below
  pipeline(Readable.from(uncompressed(volume)), gzip, () => undefined);
  yield* gzip as AsyncIterable<Buffer>;
}

async function* uncompressed({ grid, type, slices }: NiftiVolume): AsyncGenerator<Uint8Array> {
  yield niftiHeader(grid, type);
  yield* slices();
}
