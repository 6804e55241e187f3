/**
 * RLE Lossless (PS3.5 annex G) for the pictures that are written: a quarter of the bytes, exact, read everywhere. By
 * hand: the codec package's encoder takes as long as all the drawing. What is written is read back before it is kept.
 */

export const RLE_LOSSLESS = "1.2.840.10008.1.2.5";

const HEADER = 64;
const PLANES = 3;
const LONGEST = 128;
/** Where frames are coded, one after the other: a thread's, as large as the largest so far. */
let scratch = new Uint8Array(0);

/**
 * One frame, RGB by pixel in 8 bits, as an RLE codestream: three planes, each row by row. Equal pixels give equal bytes.
 */
export function rleFrame(rgb: Uint8Array, rows: number, columns: number): Uint8Array {
  // At worst a control byte for every 128 of a row, and a segment's last byte to make it even
  const most = HEADER + PLANES * (rows * (columns + Math.ceil(columns / LONGEST)) + 1);
  if (scratch.length < most) scratch = new Uint8Array(most);
  const out = scratch;
  const header = new DataView(out.buffer);
  out.fill(0, 0, HEADER);
  header.setUint32(0, PLANES, true);
  let end = HEADER;
  for (let plane = 0; plane < PLANES; plane++) {
    header.setUint32(4 + 4 * plane, end, true);
    for (let y = 0; y < rows; y++) end = packRow(rgb, PLANES * y * columns + plane, columns, out, end);
    // Segments are of even length (G.3.1)
    if (end % 2 === 1) out[end++] = 0;
  }
  return out.slice(0, end);
}

/**
 * PackBits of one plane's row (G.3.1): what lies between runs as it is, and a run of two with it, which alone would save
 * nothing. One pass, without calls: it goes over three million samples a picture.
 * @param at of the row's first sample
 * @returns the new end
 */
function packRow(rgb: Uint8Array, at: number, columns: number, out: Uint8Array, end: number): number {
  const stop = at + PLANES * columns;
  /** Where the literal's control byte stands that is being written, if one is. */
  let control = -1;
  while (at < stop) {
    const value = rgb[at] ?? 0;
    const next = at + PLANES;
    const pair = next < stop && rgb[next] === value;
    const run = pair && (control < 0 || (next + PLANES < stop && rgb[next + PLANES] === value));
    if (!run) {
      if (control < 0 || end - control > LONGEST) control = end++;
      out[control] = end - control - 1;
      out[end++] = value;
      at = next;
      continue;
    }
    const begin = at;
    while (at < stop && rgb[at] === value) at += PLANES;
    for (let left = (at - begin) / PLANES; left > 0; left -= LONGEST) {
      // One alone is a literal
      out[end++] = left === 1 ? 0 : 257 - Math.min(left, LONGEST);
      out[end++] = value;
    }
    control = -1;
  }
  return end;
}
