/** The real engine on the CPU, and models in it. */
import "./result-keys.js";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";
import { createLog } from "../../src/base/log.js";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import { loadModels, type ModelSet } from "../../src/models/set.js";

let opened: Engine | undefined;

/**
 * One engine for a test file, on the CPU: the next file of the process has a new one once this one
 * is closed.
 */
export function engine(): Engine {
  if (opened !== undefined) return opened;
  const own = createEngine({ provider: "cpu" });
  const close = own.close.bind(own);
  own.close = () => {
    opened = undefined;
    return close();
  };
  opened = own;
  return own;
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

/**
 * The models of a directory, in the engine of the process unless the test has its own; nothing is
 * logged.
 */
export const modelsOf = (directory: string, own: Engine = engine()): Promise<ModelSet> =>
  loadModels({ directory, engine: own, providers: ["cpu"], log: createLog("silent") });
