/**
 * Pixels that say they are signed in images whose pixels are not: Pixel Representation has the one
 * value 0 in digital X-ray, mammography and intra-oral X-ray (PS3.3 C.8.11.3), ultrasound
 * (C.8.5.6), multi-frame secondary captures (A.8.2 to A.8.5), X-ray angiography and fluoroscopy
 * (C.8.7.1), intravascular tomography (C.8.27), visible light (C.8.12), ophthalmic photography and
 * tomography (C.8.17) and RT images (C.8.8.2). A value without the upper bit means the same either
 * way. Whether a value with the upper bit is large or negative cannot be known.
 */
import { errors } from "../../base/errors.js";
import { warn, type Interpretation, type PixelFormat, type Warning } from "../image.js";
import { someValue } from "../stored-values.js";
import type { DicomFile } from "./dicom-file.js";

const UNSIGNED =
  /^1\.2\.840\.10008\.5\.1\.4\.1\.1\.(?:1\.[123](?:\.1)?|3|3\.1|6|6\.[12]|7\.[1-4]|12\.[123](?:\.1)?|14\.[12]|77\.1\.(?:[1-4](?:\.1)?|5\.[12456]|[67])|481\.1)$/;

/** @returns whether the values of frames have to be looked at */
export function warnOfSigned(
  { attributes, mediaStorageSopClass }: Pick<DicomFile, "attributes" | "mediaStorageSopClass">,
  { signed, float, bitsStored }: PixelFormat,
  warnings: Warning[],
): boolean {
  const uid = attributes.string("SOPClassUID") ?? mediaStorageSopClass ?? "";
  if (!signed || float || !UNSIGNED.test(uid)) return false;
  warn(
    warnings,
    "signed_pixels",
    `PixelRepresentation is 1, and images of this class have unsigned pixels; it makes no difference to values below ${2 ** (bitsStored - 1)}. A frame with others is refused.`,
  );
  return true;
}

/**
 * @param data the stored values of the frame
 * @param frame from 0
 * @throws RadserveError decode_suspect if a value has the upper bit
 */
export function checkSigned(
  data: Uint8Array,
  format: PixelFormat,
  padding: Interpretation["padding"],
  frame: number,
): void {
  if (!someValue(data, format, padding, (value) => value < 0)) return;
  throw errors.decode_suspect(
    `Expected unsigned pixels, as images of this class have, found PixelRepresentation 1 and values in frame ${frame + 1} that are negative by it, ` +
      `and ${2 ** (format.bitsStored - 1)} or more without it: nobody can know which is meant. Correct PixelRepresentation at the source.`,
    { reason: "signed_pixels", attribute: "PixelRepresentation", frame: frame + 1 },
  );
}
