/** A DICOM file that is an image by itself, and not a slice of a series. */
import { RadserveError } from "../../base/errors.js";
import { warn, type Image } from "../image.js";
import { partCaveats } from "./concatenation.js";
import { readDicom } from "./dicom-image.js";
import { offRightAngles } from "./volume.js";

/**
 * Reads a DICOM file as readDicom does. A part of a concatenation is read with a caveat: models of single frames take
 * its frames, and it is no volume.
 * Throws what readDicom throws, and corrupt_image if a frame's orientation is none: the sides of the patient would be
 * drawn from it, and segments would be placed by it.
 */
export function readSingleFile(bytes: Uint8Array, mostElements?: number): Image {
  const image = readDicom(bytes, mostElements);
  for (const { code, message } of partCaveats(image.attributes)) warn(image.warnings, code, message);
  for (let frame = 0; frame < image.frameCount; frame++) checkOrientation(image, frame);
  return image;
}

/** The same rule as for the slices of a series, where it is series_invalid. */
function checkOrientation(image: Image, frame: number): void {
  const plane = image.plane(frame);
  if (plane === undefined || offRightAngles(plane) === undefined) return;
  throw new RadserveError(
    "corrupt_image",
    `Expected ImageOrientationPatient as two unit vectors at right angles, found ${plane.orientation.join("\\")}` +
      `${image.frameCount === 1 ? "" : ` in frame ${frame + 1}`}. Correct the attribute at the source.`,
    { reason: "invalid_orientation", frame: frame + 1 },
  );
}
