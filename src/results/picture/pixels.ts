/** What a picture that was drawn shows, read back from its PNG. */
import sharp from "sharp";

/** A picture's pixels, RGB by pixel in 8 bits. */
export interface Pixels {
  rows: number;
  columns: number;
  rgb: Uint8Array;
}

/** @param png the overlay as it is written beside the receipt */
export async function pixelsOf(png: Uint8Array): Promise<Pixels> {
  const { data, info } = await sharp(png)
    .removeAlpha()
    .toColourspace("srgb")
    .raw()
    .toBuffer({ resolveWithObject: true });
  if (info.channels !== 3) throw new Error("The overlay is a colour picture");
  return { rows: info.height, columns: info.width, rgb: data };
}
