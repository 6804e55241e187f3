/** Images that commands are given: no roots, any path that the user may read. */
import type { Image } from "../images/image.js";
import { openInput } from "../files/guarded-paths.js";
import { readInput } from "../inference/read-input.js";

/**
 * Reads a file or a folder that holds one series, and holds it open while it is used.
 * @param file absolute path; @throws what reading throws
 */
export async function withImageFile<T>(file: string, use: (image: Image) => Promise<T>): Promise<T> {
  const opened = await openInput(file, undefined);
  try {
    return await use(await readInput(opened));
  } finally {
    opened.close();
  }
}
