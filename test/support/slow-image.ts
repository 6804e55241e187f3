/**
 * An image that takes one thread long to decode, in one call of the codec that nothing can
 * interrupt from inside; from five tiles on, for fewer may go to the decoder process.
 */
import {
  attributesOf,
  compress,
  dicomFile,
  random,
  SYNTAXES,
  type Attributes,
  type Raw,
} from "./dicom.js";

/**
 * A multiple of 64 samples in each of the five decompositions, so that equal tiles are coded by
 * equal bytes.
 */
const TILE = 2048;
const SIZ = 0xff51;
const SOT = 0xff90;

/**
 * Noise in JPEG 2000, which has to be decoded bit by bit: some two seconds of one core for each
 * tile. One tile is coded, and stands in the codestream again and again (ISO/IEC 15444-1 A.4.2,
 * A.5.1).
 * @param tiles how many of 2048 by 2048 samples lie below each other in a frame
 * @returns a DICOM file
 */
export async function slowImage(
  tiles: number,
  attributes: Attributes = {},
  frames = 1,
): Promise<Buffer> {
  noise ??= coded();
  const { raw, tile } = await noise;
  const whole = tiled(tile, tiles);
  return dicomFile({
    transferSyntax: SYNTAXES.jpeg2000,
    attributes: attributesOf(
      { ...raw, rows: TILE * tiles },
      { ...attributes, NumberOfFrames: String(frames) },
    ),
    pixels: { fragments: Array<Uint8Array>(frames).fill(whole) },
  });
}

/** Coding it takes as long as decoding it: once for all images of a file. */
let noise: ReturnType<typeof coded> | undefined;

async function coded(): Promise<{ raw: Raw; tile: Buffer }> {
  const next = random(7);
  const size = { rows: TILE, columns: TILE, samples: 1, bitsAllocated: 16, bitsStored: 16 };
  const raw: Raw = { ...size, data: new Uint8Array(TILE * TILE * 2).map(() => next() * 256) };
  return { raw, tile: Buffer.from(await compress("jpeg2000", raw)) };
}

function tiled(one: Buffer, tiles: number): Buffer {
  let at = 2;
  const header = Buffer.from(one);
  while (one.readUInt16BE(at) !== SOT) {
    // Ysiz; the sizes of a tile stay
    if (one.readUInt16BE(at) === SIZ) header.writeUInt32BE(TILE * tiles, at + 10);
    at += 2 + one.readUInt16BE(at + 2);
  }
  // Psot may say 0: up to the end of the codestream, which is EOC
  const length = one.readUInt32BE(at + 6) || one.length - 2 - at;
  const parts = Array.from({ length: tiles }, (_, index) => {
    const part = Buffer.from(one.subarray(at, at + length));
    part.writeUInt16BE(index, 4);
    part.writeUInt32BE(length, 6);
    return part;
  });
  return Buffer.concat([header.subarray(0, at), ...parts, one.subarray(at + length)]);
}
