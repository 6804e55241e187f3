/** Pictures as PNG. */
import sharp from "sharp";
import type { Picture } from "../../addon/picture.js";

/** PNG, 8 bits, RGB. Without a filter the two panels of a picture are alike, which compresses better than any filter. */
export function pngOf({ width, height, rgb }: Picture): Promise<Uint8Array> {
  return sharp(rgb, { raw: { width, height, channels: 3 } })
    .png({ compressionLevel: 4, adaptiveFiltering: false, palette: false })
    .toBuffer();
}
