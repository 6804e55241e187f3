/**
 * The one place that opens what is built in build/Release. Each user declares the part of its
 * interface that it calls.
 */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { errors } from "../base/errors.js";

/** Node looks for a file on the disk each time that it is asked for one that it has loaded. */
const loaded = new Map<string, unknown>();

/**
 * @param name the engine with all that works on pixels, or what starts and confines decoder
 * processes
 * @throws RadserveError internal where the addon is not built or cannot be loaded
 */
export function loadAddon(name: "addon" | "confine" = "addon"): unknown {
  if (!loaded.has(name)) loaded.set(name, load(name));
  return loaded.get(name);
}

function load(name: "addon" | "confine"): unknown {
  const path = fileURLToPath(new URL(`../../../build/Release/${name}.node`, import.meta.url));
  try {
    return createRequire(import.meta.url)(path) as unknown;
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split("\n")[0] ?? "") : "";
    throw errors.internal(
      `The native ${name === "addon" ? "engine" : "part for decoder processes"} cannot be loaded (${reason}). Build it with: npm run rebuild`,
      undefined,
      { cause },
    );
  }
}
