/** The one place that opens what is built in build/Release. */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

/** Node looks for a file on the disk each time that it is asked for one that it has loaded. */
const opened = new Map<string, unknown>();

/** @throws what Node.js throws where the addon is not built or cannot be loaded */
export function openAddon(name: "addon" | "confine"): unknown {
  if (!opened.has(name)) {
    const path = fileURLToPath(new URL(`../../../build/Release/${name}.node`, import.meta.url));
    opened.set(name, createRequire(import.meta.url)(path) as unknown);
  }
  return opened.get(name);
}
