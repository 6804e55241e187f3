/** PNG, JPEG and TIFF through sharp (libvips), inside the decoder process. */
import sharp, { type Sharp } from "sharp";
import { withWhitePalette } from "./png-palette.js";
import {
  PIXEL_LIMIT,
  type Layout,
  type PixelsSaid,
  type RasterMetadata,
  type RasterOrder,
} from "./raster-orders.js";

export interface DecodedRaster {
  done: RasterMetadata | PixelsSaid;
  /**
   * As stored, rows top to bottom, colour by pixel, little endian; empty if the answer says another
   * size.
   */
  pixels: Uint8Array;
}

// A JPEG with a gain map (ISO 21496-1, as telephones write) is decoded as any JPEG: the loader for
// gain maps gives the same pixels, but fills up what a damaged file lacks without a word.
sharp.block({ operation: ["VipsForeignLoadUhdr"] });

const NOTHING = new Uint8Array(0);
const OPAQUE = Buffer.alloc(1 << 20, 0xff);

/**
 * What decoders say as a warning alone although pixels are missing: they fill those with grey, with
 * black or with what they decoded last. libjpeg tells the first warning of a picture only, so that
 * stray bytes are harmless before its end alone.
 */
const LACKS_PIXELS =
  /premature (?:end|eo[fl])|line length mismatch|not enough (image )?data|corrupt jpeg data: (?!\d+ extraneous bytes before marker 0xd9)|bad huffman|inconsistent progression|improper jpeg strip/i;

function open(file: Uint8Array, page: number, failOn: "error" | "warning" = "error"): Sharp {
  return sharp(file, {
    failOn,
    limitInputPixels: PIXEL_LIMIT,
    // The values of the file, not what a profile makes of them
    ignoreIcc: true,
    page,
  });
}

/** Throws what sharp throws. */
export async function decodeRaster(file: Uint8Array, order: RasterOrder): Promise<DecodedRaster> {
  return order.do === "metadata" ? metadataOf(file) : pixelsOf(file, order);
}

async function metadataOf(file: Uint8Array): Promise<DecodedRaster> {
  const { format, space, depth, hasAlpha, orientation, pages, autoOrient } = await open(
    file,
    0,
  ).metadata();
  const done = {
    format,
    space,
    depth,
    hasAlpha,
    width: autoOrient.width,
    height: autoOrient.height,
    ...(orientation === undefined ? {} : { orientation }),
    ...(pages === undefined ? {} : { pages }),
  };
  return { done, pixels: NOTHING };
}

async function pixelsOf(
  file: Uint8Array,
  { page, layout, width, height, hasAlpha }: Extract<RasterOrder, { do: "pixels" }>,
): Promise<DecodedRaster> {
  const depth = layout.bits === 8 ? "uchar" : "ushort";
  const decoded = async (picture: Uint8Array, failOn?: "warning") =>
    open(picture, page, failOn)
      .autoOrient()
      .removeAlpha()
      .toColourspace(layout.colourspace)
      .raw({ depth })
      .toBuffer({ resolveWithObject: true });
  // Most warnings are of profiles or unknown tags, and the pixels are whole
  const { data, info } = await decoded(file, "warning").catch((error: unknown) => {
    if (error instanceof Error && LACKS_PIXELS.test(error.message)) throw error;
    return decoded(file);
  });
  const said = { width: info.width, height: info.height, channels: info.channels };
  if (info.width !== width || info.height !== height || info.channels !== layout.samples)
    return { done: { ...said, opaque: true, inPalette: true }, pixels: NOTHING };
  const white = withWhitePalette(file);
  const inPalette = white === undefined || data.equals((await decoded(white)).data);
  return {
    done: { ...said, inPalette, opaque: !hasAlpha || (await isOpaque(open(file, page), depth)) },
    pixels: data,
  };
}

async function isOpaque(picture: Sharp, depth: "uchar" | "ushort"): Promise<boolean> {
  const alpha = await picture
    .extractChannel("alpha")
    .toColourspace(depth === "uchar" ? "b-w" : "grey16")
    .raw({ depth })
    .toBuffer();
  for (let at = 0; at < alpha.length; at += OPAQUE.length) {
    const part = alpha.subarray(at, at + OPAQUE.length);
    if (!part.equals(OPAQUE.subarray(0, part.length))) return false;
  }
  return true;
}

/** Loads what sharp loads when it is first asked: later no file can be opened. */
export async function warmUp(): Promise<void> {
  sharp.cache(false);
  const small = sharp({ create: { width: 2, height: 2, channels: 3, background: "grey" } });
  const layout: Layout = { colourspace: "srgb", samples: 3, bits: 8 };
  for (const format of ["png", "jpeg", "tiff"] as const) {
    const file = await small.clone().toFormat(format).toBuffer();
    await decodeRaster(file, { do: "metadata" });
    await decodeRaster(file, {
      do: "pixels",
      page: 0,
      layout,
      width: 2,
      height: 2,
      hasAlpha: false,
    });
  }
}
