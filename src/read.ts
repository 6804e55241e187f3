/** Bytes to an Image, by what they are and never by a file's name. */
import { isDicom } from "./dicom/file.js";
import { readDicom } from "./dicom/image.js";
import { RadserveError } from "./errors.js";
import type { Image } from "./image.js";
import type { OpenedInput } from "./paths.js";
import { rasterFormat, readRaster } from "./raster.js";
import { readSeriesFolder } from "./series-folder.js";
import { checkFileSize, MAX_FILE_BYTES, readWhole } from "./whole-file.js";

export { checkFileSize, isDicom, MAX_FILE_BYTES };

/** So many bytes tell the formats apart. */
export const SNIFF_BYTES = 160;

/** What the first bytes (SNIFF_BYTES are enough) begin; undefined where it is nothing that can be read. */
export function sniffFormat(head: Uint8Array): Image["source"]["format"] | undefined {
  // DICOM first: its preamble may be the header of a TIFF over the same pixels (PS3.10 section 7.1)
  return isDicom(head) ? "dicom" : rasterFormat(head);
}

/**
 * Reads an image: DICOM, PNG, JPEG or TIFF. The bytes are kept and frames are decoded when asked for; they must not
 * change meanwhile.
 * Throws RadserveError: unsupported_format, unsupported_transfer_syntax, no_pixel_data, corrupt_image, truncated_image.
 */
export async function readImage(bytes: Uint8Array): Promise<Image> {
  const format = sniffFormat(bytes.subarray(0, SNIFF_BYTES));
  if (format === "dicom") return readDicom(bytes);
  if (format !== undefined) return readRaster(bytes, format);
  throw new RadserveError(
    "unsupported_format",
    bytes.length === 0
      ? "The file is empty. Send DICOM, PNG, JPEG or TIFF."
      : "The file is neither DICOM nor PNG, JPEG or TIFF (judged by its content). Convert it to one of these.",
    { supported: ["dicom", "png", "jpeg", "tiff"] },
  );
}

/**
 * Reads what a client named: a file, or a folder that holds one series. `input` has to stay open as long as the image
 * is used: the slices of a series are read from it when they are asked for.
 * Throws what readImage throws; unsupported_format for a file that is too long; series_invalid for a folder that holds
 * no volume.
 */
export async function readInput(input: OpenedInput): Promise<Image> {
  return input.kind === "folder" ? readSeriesFolder(input) : readImage(await readWhole(input.fd));
}
