/** The chunks of a PNG (PNG third edition, section 5.3), unchecked: the decoder checks them. */

/** The header chunk stands behind the signature. */
export const HEADER_AT = 8;
/** Length and type before the data of a chunk, and the check sum behind it. */
const BEFORE_DATA = 8;
export const CHECK_SUM_BYTES = 4;

/** The colour type of pixels that are indices of a palette (section 11.2.1). */
export const INDEXED = 3;

export interface PngHead {
  /** Of a sample. */
  bits: number;
  colourType: number;
}

/** What the header chunk says; undefined where the file ends before. */
export function pngHead(data: Buffer): PngHead | undefined {
  const [bits, colourType] = data.subarray(HEADER_AT + BEFORE_DATA + 8);
  return bits === undefined || colourType === undefined ? undefined : { bits, colourType };
}

export interface PngChunk {
  type: string;
  /** Where it begins, where its data begins, and how long that is by its own word. */
  at: number;
  from: number;
  length: number;
}

/** The chunks before the pixels: others do not change how these are read. */
export function* chunksBeforePixels(data: Buffer): Generator<PngChunk, void, undefined> {
  for (let at = HEADER_AT; at + BEFORE_DATA <= data.length;) {
    const from = at + BEFORE_DATA;
    const length = data.readUInt32BE(at);
    const type = data.toString("latin1", at + 4, from);
    if (type === "IDAT") return;
    yield { type, at, from, length };
    at = from + length + CHECK_SUM_BYTES;
  }
}
