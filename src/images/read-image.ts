/** Bytes to an Image, by what they are and never by a file's name. */
import { errors } from "../base/errors.js";
import { inflatedBytes, isDicom } from "./dicom/dicom-file.js";
import { readSingleFile } from "./dicom/single-file.js";
import type { Image } from "./image.js";
import { KNOWN_FORMAT_BYTES, knownFormat, saidOf } from "./known-formats.js";
import { rasterFormat } from "./raster/declared.js";
import { rasterBytes, readRaster } from "./raster/read-raster.js";

/** This many bytes tell the formats apart. */
export const SNIFF_BYTES = KNOWN_FORMAT_BYTES;

/**
 * The format that the first bytes (SNIFF_BYTES are enough) begin; undefined if it is none that can
 * be read.
 */
export function sniffFormat(head: Uint8Array): Image["source"]["format"] | undefined {
  // DICOM first: its preamble may be the header of a TIFF over the same pixels (PS3.10 section 7.1)
  return isDicom(head) ? "dicom" : rasterFormat(head);
}

/** The same. Throws unsupported_format where it is none. */
export function requireFormat(head: Uint8Array): Image["source"]["format"] {
  const format = sniffFormat(head);
  if (format !== undefined) return format;
  const known = knownFormat(head);
  if (known !== undefined)
    throw errors.unsupported_format(saidOf(known), {
      format: known.id,
      supported: ["dicom", "png", "jpeg", "tiff"],
    });
  throw errors.unsupported_format(
    head.length === 0
      ? "The file is empty. Send DICOM, PNG, JPEG or TIFF."
      : "The file is neither DICOM nor PNG, JPEG or TIFF (judged by its content). Convert it to one of these.",
    { supported: ["dicom", "png", "jpeg", "tiff"] },
  );
}

/**
 * Bytes that reading the file takes beside its own, before its image can be planned: an inflated
 * data set, or the first frame of a PNG, JPEG or TIFF and what decodes it.
 * @param check asked meanwhile; what it throws ends it
 * @param mostElements as readImage takes it
 */
export async function bytesUnpacked(
  bytes: Uint8Array,
  check: () => void,
  mostElements?: number,
): Promise<number> {
  const format = sniffFormat(bytes.subarray(0, SNIFF_BYTES));
  if (format === undefined) return 0;
  return format === "dicom"
    ? inflatedBytes(bytes, check, mostElements)
    : rasterBytes(bytes, format);
}

/**
 * Reads an image: DICOM, PNG, JPEG or TIFF. The bytes are kept and frames are decoded when asked
 * for; they must not change meanwhile.
 * @param check asked while a decoder works on PNG, JPEG or TIFF; what it throws stops the decoder
 * @param mostElements that a DICOM file may have; beyond it TooManyElements is thrown, and it can
 * be read with more Throws RadserveError: unsupported_format, unsupported_transfer_syntax,
 * no_pixel_data, corrupt_image, truncated_image.
 */
export async function readImage(
  bytes: Uint8Array,
  check: () => void = () => undefined,
  mostElements?: number,
): Promise<Image> {
  const format = requireFormat(bytes.subarray(0, SNIFF_BYTES));
  return format === "dicom"
    ? readSingleFile(bytes, mostElements)
    : readRaster(bytes, format, check);
}
