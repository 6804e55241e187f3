/** What is built in build/Release. Each user declares the part of its interface that it calls. */
import { errors } from "../base/errors.js";
import { openAddon } from "./open-addon.js";

/**
 * @param name the engine with all that works on pixels, or what starts and confines decoder
 * processes
 * @throws RadserveError internal where the addon is not built or cannot be loaded
 */
export function loadAddon(name: "addon" | "confine" = "addon"): unknown {
  try {
    return openAddon(name);
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split("\n")[0] ?? "") : "";
    throw errors.internal(
      `The native ${name === "addon" ? "engine" : "part for decoder processes"} cannot be loaded (${reason}). Build it with: npm run rebuild`,
      undefined,
      { cause },
    );
  }
}
