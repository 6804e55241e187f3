import type { OpenedInput } from "../files/guarded-paths.js";
import { readWhole } from "../files/descriptor.js";
import type { Image } from "../images/image.js";
import { readImage } from "../images/read-image.js";
import { readSeriesFolder } from "./series-folder.js";

/**
 * Reads what a client named: a file, or a folder that holds one series. `input` has to stay open as long as the image
 * is used: the slices of a series are read from it when they are asked for.
 * @throws RadserveError as readImage does; unsupported_format for a file that is too long; series_invalid for a folder
 * that holds no volume
 */
export async function readInput(input: OpenedInput): Promise<Image> {
  return input.kind === "folder" ? readSeriesFolder(input) : readImage(await readWhole(input.fd));
}
