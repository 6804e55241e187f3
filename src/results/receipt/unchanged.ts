/** Files and images that are still what a receipt says of them. */
import { createHash } from "node:crypto";
import { errors, type RadserveError } from "../../base/errors.js";
import { readWhole } from "../../files/descriptor.js";
import { hashFile, sha256, withPlain } from "../../files/durable-files.js";
import { storedFrames } from "../../images/dicom/case.js";
import type { Image } from "../../images/image.js";
import type { OutputFile, Receipt } from "./receipt.js";

/** Reads a file with room for it, and works on its bytes. */
export type Reading = <T>(
  file: { size: number; read: () => Promise<Uint8Array> },
  work: (bytes: Uint8Array, mostElements?: number) => Promise<T>,
) => Promise<T>;

/** For a command, which has its memory for itself. */
export const UNCOUNTED: Reading = async ({ read }, work) => work(await read());

/**
 * Whether a file of that size can be the one that a receipt lists: whatever lies there now is not
 * read whole to find out that it is not. A receipt of before lists no size.
 */
export const mayBe = async (
  at: string,
  size: number,
  { bytes, sha256: hash }: OutputFile,
): Promise<boolean> => (bytes === undefined ? (await hashFile(at)) === hash : size === bytes);

/**
 * Works on a file that the receipt lists.
 * @param folder in which the receipt lies
 * @throws RadserveError result_changed where its bytes are not those that were written; what the
 * work throws
 */
export async function withFileOf<T>(
  { folder }: { folder: string },
  file: OutputFile,
  work: (bytes: Uint8Array, mostElements?: number) => Promise<T>,
  reading: Reading = UNCOUNTED,
): Promise<T> {
  const wrong = (found: string) =>
    changed(`${file.path} beside the receipt, with the SHA-256 that it lists; ${found}.`);
  const at = `${folder}/${file.path}`;
  const done = file.path.includes("/")
    ? undefined
    : await withPlain(at, async (fd, { size }) => {
        if (!(await mayBe(at, size, file))) throw wrong("it has another");
        const result = await reading({ size, read: () => readWhole(fd) }, (bytes, most) => {
          if (sha256(bytes) !== file.sha256) throw wrong("it has another");
          return work(bytes, most);
        });
        return { result };
      });
  if (done === undefined) throw wrong("it is not there");
  return done.result;
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
