/** The real engine, where the addon has been built. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { type Engine } from "../../src/engine/types.js";
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

/** An engine of the test's own and a new folder, until the test ends. */
export function engineWithFolder(t: Test, name: string): { engine: Engine; folder: string } {
  const folder = mkdtempSync(join(tmpdir(), `radserve-${name}-`));
  const own = createEngine({ provider: "cpu" });
  t.teardown(async () => {
    await own.close();
    rmSync(folder, { recursive: true });
  });
  return { engine: own, folder };
}
