/** Images that commands are given: no roots, any path that the user may read. */
import type { Image } from "../images/image.js";
import { withInput } from "../files/guarded-paths.js";
import { readInput, type FolderChoice } from "../inference/read-input.js";

/**
 * Reads a file or a folder that holds one series, and holds it open while it is used.
 * @param file absolute path; @param choice which series of a folder is meant, or which case;
 * @throws what reading throws
 */
export async function withImageFile<T>(
  file: string,
  use: (image: Image) => Promise<T>,
  choice: FolderChoice = {},
): Promise<T> {
  return withInput(file, undefined, async (opened) =>
    use(await readInput(opened, undefined, choice)),
  );
}
