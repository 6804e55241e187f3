/** What a PNG says of itself before its pixels (PNG third edition, W3C 2025): depth, colour type, animation. */

export interface PngHeader {
  /** Depth of a sample, or of an index into the palette. */
  bits: number;
  palette: boolean;
  animated: boolean;
}

/** An acTL chunk stands among the few chunks before the pixels. */
const MOST_CHUNKS = 1000;
const HEADER_AT = 8;

/** Reads the chunks before the pixels; it believes what it finds, for the decoder checks them all. */
export function readPngHeader(bytes: Uint8Array): PngHeader {
  const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let animated = false;
  let at = HEADER_AT;
  for (let i = 0; i < MOST_CHUNKS && at + 8 <= data.length; i++) {
    const type = data.toString("latin1", at + 4, at + 8);
    animated ||= type === "acTL";
    if (type === "IDAT") break;
    // Length, type and check sum surround the data
    at += 12 + data.readUInt32BE(at);
  }
  return { bits: data[HEADER_AT + 16] ?? 8, palette: data[HEADER_AT + 17] === 3, animated };
}

/** True if the end is there: the IEND chunk with its check sum, wherever it stands. */
export function pngIsEnded(bytes: Uint8Array): boolean {
  const end = Buffer.from("IEND\xae\x42\x60\x82", "latin1");
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).lastIndexOf(end) >= 0;
}
