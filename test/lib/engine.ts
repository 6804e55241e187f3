/** The real engine, where the addon has been built. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createEngine, type Engine } from "../../src/engine.js";
import { packageRoot } from "../../src/models/files.js";

const built = existsSync(join(packageRoot(), "build", "Release", "addon.node"));

/** For tap's `skip`: false, or why tests that need the addon do not run. */
export const noEngine: false | string = built ? false : "the addon is not built (npm run rebuild)";

let opened: Engine | undefined;

/** One engine for the test's process, on the CPU. */
export function engine(): Engine {
  opened ??= createEngine({ provider: "cpu" });
  return opened;
}
