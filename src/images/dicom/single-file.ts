/** A DICOM file that is an image by itself, and not a slice of a series. */
import { addWarnings, type Image } from "../image.js";
import { partCaveats } from "./concatenation.js";
import { readDicom } from "./dicom-image.js";

/**
 * Reads a DICOM file as readDicom does. A part of a concatenation is read with a caveat: models of
 * single frames take its frames, and it is no volume. So is a file whose frames lie nowhere. Throws
 * what readDicom throws.
 */
export async function readSingleFile(bytes: Uint8Array, mostElements?: number): Promise<Image> {
  const image = readDicom(bytes, mostElements);
  await image.settle();
  addWarnings(image.warnings, partCaveats(image.attributes));
  // Reading a frame's geometry says what is wrong with it
  for (let frame = 0; frame < image.frameCount; frame++) image.plane(frame);
  return image;
}
