/** The files of a graph, with the hashes that a manifest pins. */
import { basename, dirname, join, posix } from "node:path";
import { errors } from "../base/errors.js";
import type { Manifest } from "../manifest/manifest.js";
import { externalData, staysInside } from "./external-data.js";
import { fault, fileSha256 } from "./files.js";

/**
 * The graph, and the files that it keeps constants in, as a manifest beside it pins them.
 * @throws RadserveError bad_request for what is no ONNX model, or needs a file that is not there or
 * lies elsewhere
 */
export async function graphFiles(path: string): Promise<Manifest["files"]> {
  const own = { path: basename(path), sha256: await fileSha256(path) };
  const inside = await Promise.all(
    externalData(path).map(async (location) => {
      const shown = posix.normalize(location);
      if (!staysInside(location))
        throw errors.bad_request(
          `Expected weights below the graph's folder, found "${location}". Save the graph again with its external data beside it.`,
        );
      try {
        return { path: shown, sha256: await fileSha256(join(dirname(path), location)) };
      } catch (error) {
        throw errors.bad_request(
          `Expected the graph's weights in ${shown}, beside it, found that it cannot be read: ${fault(error)}. Put the file there.`,
        );
      }
    }),
  );
  return [own, ...inside];
}
