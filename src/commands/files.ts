/** Image files that commands are given: no roots, any path that the user may read. */
import type { Image } from "../image.js";
import { RadserveError } from "../errors.js";
import { openInput } from "../paths.js";
import { readImage } from "../read.js";

/** @param file absolute path; @throws what reading throws, bad_request for a folder */
export async function readImageFile(file: string): Promise<Image> {
  const opened = await openInput(file, undefined);
  try {
    if (opened.kind === "folder")
      throw new RadserveError("bad_request", "Expected an image file; found a folder.");
    return await readImage(await opened.handle.readFile());
  } finally {
    await opened.close();
  }
}
