/** Pictures as pixels: made, put together, at another size, and as PNG. */
import sharp from "sharp";

/** Rows top to bottom, three bytes (RGB) a pixel. */
export interface Picture {
  width: number;
  height: number;
  rgb: Uint8Array;
}

export function blank(width: number, height: number, colour: readonly number[]): Picture {
  return { width, height, rgb: Buffer.alloc(width * height * 3, Buffer.from(colour)) };
}

/** Copies a panel into a larger picture. */
export function paste(into: Picture, panel: Picture, left: number, top: number): void {
  for (let y = 0; y < panel.height; y++)
    into.rgb.set(
      panel.rgb.subarray(y * panel.width * 3, (y + 1) * panel.width * 3),
      ((top + y) * into.width + left) * 3,
    );
}

/** PNG, 8 bits, RGB. Level 4 takes half the time of level 6 for 4 % more bytes. */
export function pngOf({ width, height, rgb }: Picture): Promise<Uint8Array> {
  return sharp(rgb, { raw: { width, height, channels: 3 } })
    .png({ compressionLevel: 4, adaptiveFiltering: false, palette: false })
    .toBuffer();
}

/** What a PNG shows. */
export async function pixelsOf(png: Uint8Array): Promise<Picture> {
  const { data, info } = await sharp(png)
    .removeAlpha()
    .toColourspace("srgb")
    .raw()
    .toBuffer({ resolveWithObject: true });
  if (info.channels !== 3) throw new Error("The overlay is a colour picture");
  return { width: info.width, height: info.height, rgb: data };
}

/** Where each of `target` pixels begins and ends among `source` pixels; one whole pixel each if it enlarges. */
function spans(source: number, target: number): { from: Int32Array; to: Int32Array } {
  const from = new Int32Array(target);
  const to = new Int32Array(target);
  for (let i = 0; i < target; i++) {
    const start = Math.floor((i * source) / target);
    from[i] = start;
    to[i] = Math.max(start + 1, Math.floor(((i + 1) * source) / target));
  }
  return { from, to };
}

/** The picture at another size: each pixel enlarged to whole pixels, or the average of those it covers. */
export function resized(picture: Picture, width: number, height: number): Picture {
  if (picture.width === width && picture.height === height) return picture;
  const rgb = new Uint8Array(width * height * 3);
  const [xs, ys] = [spans(picture.width, width), spans(picture.height, height)];
  const at = (array: Int32Array, i: number): number => array[i] ?? 0;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [x0, x1, y0, y1] = [at(xs.from, x), at(xs.to, x), at(ys.from, y), at(ys.to, y)];
      const count = (x1 - x0) * (y1 - y0);
      for (let c = 0; c < 3; c++) {
        let sum = 0;
        for (let sy = y0; sy < y1; sy++)
          for (let sx = x0; sx < x1; sx++) sum += picture.rgb[(sy * picture.width + sx) * 3 + c] ?? 0;
        rgb[(y * width + x) * 3 + c] = Math.round(sum / count);
      }
    }
  return { width, height, rgb };
}

/**
 * A mask at panel size: one label for each pixel (0: none), and the share of the pixel that it covers, 0 to 255;
 * undefined if every label covers its pixels whole.
 */
export interface Cover {
  label: Uint8Array;
  share: Uint8Array | undefined;
}

/**
 * Nothing vanishes when a mask shrinks: a label counts from the first source pixel that a panel pixel covers, and of
 * several labels the one that is rarest in the whole mask.
 */
export function cover(mask: Uint8Array, rows: number, columns: number, width: number, height: number): Cover {
  if (width === columns && height === rows) return { label: mask, share: undefined };
  const label = new Uint8Array(width * height);
  const [xs, ys] = [spans(columns, width), spans(rows, height)];
  if (width >= columns && height >= rows) {
    // Each panel pixel covers one source pixel
    for (let y = 0, at = 0; y < height; y++) {
      const row = (ys.from[y] ?? 0) * columns;
      for (let x = 0; x < width; x++, at++) label[at] = mask[row + (xs.from[x] ?? 0)] ?? 0;
    }
    return { label, share: undefined };
  }
  const share = new Uint8Array(width * height);
  const totals = totalsOf(mask);
  totals[0] = 0xffffffff;
  for (let y = 0; y < height; y++) {
    const y0 = ys.from[y] ?? 0;
    const y1 = ys.to[y] ?? 0;
    for (let x = 0; x < width; x++) {
      const x0 = xs.from[x] ?? 0;
      const x1 = xs.to[x] ?? 0;
      let best = 0;
      let count = 0;
      for (let sy = y0; sy < y1; sy++)
        for (let from = sy * columns + x0, end = sy * columns + x1; from < end; from++) {
          const value = mask[from] ?? 0;
          if (value === best) count++;
          else if ((totals[value] ?? 0) < (totals[best] ?? 0)) {
            best = value;
            count = 1;
          }
        }
      const at = y * width + x;
      label[at] = best;
      share[at] = best === 0 ? 0 : Math.ceil((255 * count) / ((x1 - x0) * (y1 - y0)));
    }
  }
  return { label, share };
}

/** The number of pixels of each label, counted by runs, which masks consist of. */
function totalsOf(mask: Uint8Array): Uint32Array {
  const totals = new Uint32Array(256);
  for (let begin = 0, end = 0; begin < mask.length; begin = end) {
    const value = mask[begin] ?? 0;
    while (end < mask.length && mask[end] === value) end++;
    totals[value] = (totals[value] ?? 0) + end - begin;
  }
  return totals;
}
