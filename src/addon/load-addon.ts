/** The one place that opens build/Release/addon.node. Each user declares the part of its interface that it calls. */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { RadserveError } from "../base/errors.js";

/** @throws RadserveError internal where the addon is not built or cannot be loaded */
export function loadAddon(): unknown {
  const path = fileURLToPath(new URL("../../../build/Release/addon.node", import.meta.url));
  try {
    return createRequire(import.meta.url)(path) as unknown;
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split("\n")[0] ?? "") : "";
    throw new RadserveError(
      "internal",
      `The native engine cannot be loaded (${reason}). Build it with: npm run rebuild`,
      undefined,
      { cause },
    );
  }
}
