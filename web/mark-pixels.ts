/**
 * The pixels of a picture of marks, as the server has them (PNG, ISO/IEC 15948). A canvas would
 * give back others: it keeps colours multiplied by their alpha, in whole numbers, and a label that
 * is drawn by its probability came back in many colours.
 */

export interface MarkPixels {
  width: number;
  height: number;
  /** RGBA, rows from the top. */
  data: Uint8ClampedArray;
}

/** Bytes of a pixel. */
const PIXEL = 4;
const SIGNATURE = 8;
/** Length, type and CRC-32 of a chunk. */
const AROUND_CHUNK = 12;
const IDAT = 0x49444154;
/** 8 bits a channel, RGBA, packed and filtered in the ways that PNG has. */
const RGBA_8 = 0x08060000;
/** What a row begins with whose bytes are those of its pixels. */
const NO_FILTER = 0;

/** @throws Error of a PNG that the server does not make, or that breaks off */
export async function pixelsOf(file: Blob): Promise<MarkPixels> {
  const bytes = await file.arrayBuffer();
  const view = new DataView(bytes);
  const [width, height] = [view.getUint32(16), view.getUint32(20)];
  if (view.getUint32(24) !== RGBA_8 || view.getUint8(28) !== 0)
    throw new Error("Expected a PNG of RGBA in 8 bits, without interlacing");
  const packed: ArrayBuffer[] = [];
  for (let at = SIGNATURE; at + AROUND_CHUNK <= bytes.byteLength;) {
    const [length, type] = [view.getUint32(at), view.getUint32(at + 4)];
    if (type === IDAT) packed.push(bytes.slice(at + 8, at + 8 + length));
    at += AROUND_CHUNK + length;
  }
  const plain = new Blob(packed).stream().pipeThrough(new DecompressionStream("deflate"));
  const rows = new Uint8Array(await new Response(plain).arrayBuffer());
  const row = width * PIXEL;
  if (rows.length !== (row + 1) * height) throw new Error("Expected all rows of a PNG");
  const data = new Uint8ClampedArray(row * height);
  for (let y = 0; y < height; y++) {
    const from = y * (row + 1);
    if (rows[from] !== NO_FILTER) throw new Error("Expected a PNG without filters");
    data.set(rows.subarray(from + 1, from + 1 + row), y * row);
  }
  return { width, height, data };
}
