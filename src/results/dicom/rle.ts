/**
 * RLE Lossless (PS3.5 annex G) for the pictures that are written: a quarter of the bytes, exact, read everywhere. By
 * hand: the codec package's encoder takes as long as all the drawing. What is written is read back before it is kept.
 */

export const RLE_LOSSLESS = "1.2.840.10008.1.2.5";

const HEADER = 64;
const PLANES = 3;
const LONGEST = 128;

/**
 * One frame, RGB by pixel in 8 bits, as an RLE codestream: three planes, each row by row. Equal pixels give equal bytes.
 */
export function rleFrame(rgb: Uint8Array, rows: number, columns: number): Uint8Array {
  // At worst a control byte for every 128 of a row, and a segment's last byte to make it even
  const most = HEADER + PLANES * (rows * (columns + Math.ceil(columns / LONGEST)) + 1);
  const out = new Uint8Array(most);
  const header = new DataView(out.buffer);
  header.setUint32(0, PLANES, true);
  // Behind its end stands what is equal to no byte
  const row = new Uint16Array(columns + 2).fill(0xffff);
  let end = HEADER;
  for (let plane = 0; plane < PLANES; plane++) {
    header.setUint32(4 + 4 * plane, end, true);
    for (let y = 0, at = plane; y < rows; y++) {
      for (let x = 0; x < columns; x++, at += PLANES) row[x] = rgb[at] ?? 0;
      end = packRow(row, columns, out, end);
    }
    // Segments are of even length (G.3.1)
    end += end % 2;
  }
  return out.slice(0, end);
}

/**
 * PackBits of one row (G.3.1): what lies between runs as it is, and a run of two with it, which alone would save nothing.
 * @returns the new end
 */
function packRow(row: Uint16Array, length: number, out: Uint8Array, end: number): number {
  let literal = 0;
  for (let at = 0; at < length;) {
    const value = row[at] ?? 0;
    if (value !== row[at + 1] || (literal !== at && value !== row[at + 2])) {
      at++;
      continue;
    }
    end = packLiteral(row, literal, at, out, end);
    const begin = at;
    while (row[at] === value) at++;
    for (let left = at - begin; left > 0; left -= LONGEST) {
      const count = Math.min(left, LONGEST);
      // One alone is a literal
      out[end++] = count === 1 ? 0 : 257 - count;
      out[end++] = value;
    }
    literal = at;
  }
  return packLiteral(row, literal, length, out, end);
}

function packLiteral(row: Uint16Array, from: number, to: number, out: Uint8Array, end: number): number {
  for (let at = from; at < to;) {
    const count = Math.min(to - at, LONGEST);
    out[end++] = count - 1;
    for (const stop = at + count; at < stop; at++) out[end++] = row[at] ?? 0;
  }
  return end;
}
