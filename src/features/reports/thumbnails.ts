/**
 * Small forms of pictures that lie beside receipts. A picture that is not the receipt's, or cannot
 * be read, is left out.
 */
import { sha256, withPlain } from "../../files/durable-files.js";
import { readWhole } from "../../files/descriptor.js";
import { readImage } from "../../images/read-image.js";

/** Longest side: small text that is burned into an image cannot be read, large letters may be. */
const LONGEST_SIDE = 320;
/** Pictures are below this; whatever is larger is none of ours. */
const LARGEST_FILE = 32 * 1024 * 1024;
const QUALITY = 78;

export interface Small {
  /** JPEG. */
  bytes: Uint8Array;
  width: number;
  height: number;
}

/**
 * @param file a PNG, decoded in the decoder process; undefined if it is not there, or not the one
 * with this SHA-256
 */
export async function thumbnail(file: string, expected: string): Promise<Small | undefined> {
  const bytes = await withPlain(file, async (fd, { size }) =>
    size > LARGEST_FILE ? undefined : readWhole(fd),
  );
  if (bytes === undefined || sha256(bytes) !== expected) return undefined;
  const image = await readImage(bytes);
  const { rows: height, columns: width, samplesPerPixel, bitsAllocated } = image.format;
  if (bitsAllocated !== 8) return undefined;
  const channels = samplesPerPixel === 3 ? 3 : 1;
  const { default: sharp } = await import("sharp");
  const { data, info } = await sharp(await image.frame(0), { raw: { width, height, channels } })
    .resize({ width: LONGEST_SIDE, height: LONGEST_SIDE, fit: "inside", withoutEnlargement: true })
    .jpeg({ quality: QUALITY })
    .toBuffer({ resolveWithObject: true });
  image.release?.();
  return { bytes: data, width: info.width, height: info.height };
}
