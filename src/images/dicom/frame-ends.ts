/**
 * Whether the compressed frames of a file are there to their ends, by their markers and lengths:
 * nothing is decoded, so that even a hostile file takes no longer than it is.
 */
import { readCodestream } from "./codestream.js";
import type { DicomFile } from "./dicom-file.js";
import { encodedFrames } from "./frame-sources.js";
import { readImagePixel, type ImagePixel } from "./pixel-format.js";
import { endsRle } from "./rle.js";

/**
 * True of frames that are not compressed, too. JPEG XL does not say where it ends. Throws
 * corrupt_image and truncated_image for what is no frame at all.
 */
export function framesEnd(file: DicomFile): boolean {
  const element = file.attributes.element("PixelData");
  if (element === undefined) return true;
  const pixel = readImagePixel(file.attributes, "PixelData", file.walk.warnings);
  const frames = encodedFrames(file, element, pixel);
  if (frames === undefined) return true;
  const ends = {
    codec: (frame: Uint8Array) => readCodestream(frame).ended,
    rle: (frame: Uint8Array) => endsRle(frame, bytesOfSegment(pixel)),
    native: () => true,
    "deflated-frames": () => true,
  }[frames.coding];
  for (let frame = 0; frame < pixel.frameCount; frame++)
    if (!ends(frames.bytesOf(frame))) return false;
  return true;
}

/** One byte of each sample (PS3.5 G.2); one segment has the bits of all samples. */
function bytesOfSegment({ format, bitsAllocated }: ImagePixel): number {
  const pixels = format.rows * format.columns;
  return bitsAllocated === 1 ? Math.ceil((pixels * format.samplesPerPixel) / 8) : pixels;
}
