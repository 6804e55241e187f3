/** Files and images that are still what a receipt says of them. */
import { createHash } from "node:crypto";
import { errors, type RadserveError } from "../../base/errors.js";
import { readWhole } from "../../files/descriptor.js";
import { sha256, withPlain } from "../../files/durable-files.js";
import { storedFrames } from "../../images/dicom/case.js";
import type { Image } from "../../images/image.js";
import type { OutputFile, Receipt } from "./receipt.js";

/**
 * The bytes of a file that the receipt lists.
 * @param folder in which the receipt lies
 * @throws RadserveError result_changed where they are not those that were written
 */
export async function fileOf(
  { folder }: { folder: string },
  file: OutputFile,
): Promise<Uint8Array> {
  const bytes = file.path.includes("/")
    ? undefined
    : await withPlain(`${folder}/${file.path}`, readWhole);
  if (bytes === undefined || sha256(bytes) !== file.sha256)
    throw changed(
      `${file.path} beside the receipt, with the SHA-256 that it lists; ${bytes === undefined ? "it is not there" : "it has another"}.`,
    );
  return bytes;
}

/**
 * A PACS may correct attributes of an image that was worked on: the same pixels are the same image.
 * @throws RadserveError result_changed
 */
export async function requireImage(image: Image, named: Receipt["source"]): Promise<void> {
  if (image.source.fileSha256 === named.file_sha256) return;
  const pixels = createHash("sha256");
  for await (const frame of storedFrames(image)) pixels.update(frame);
  if (pixels.digest("hex") !== named.pixel_sha256)
    throw changed("the image that the receipt names; the one at this path has other pixels.");
}

export function changed(expectation: string): RadserveError {
  return errors.result_changed(`Expected ${expectation}`);
}
