/**
 * What a server remembers of the model ct-tissue after its first start. A model that a server has
 * not seen before is tried in a process of its own, which takes a sixth of what a start takes; in
 * whole runs the model is tried once, and each server begins with what was found. A test file that
 * is run by its name has servers that try it themselves.
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { loadConfig } from "../../src/config.js";
import { readModelFolder } from "../../src/models/read.js";
import { startEngine, trialsOf } from "../../src/server/start-engine.js";
import { shippedModels } from "./manifests.js";

/** What the processes of the test files find in their environment: the remembered trials. */
const TRIED = "RADSERVE_TEST_TRIED";
/** Where a server remembers its trials, in its state directory. */
const FILE = "tried-models.json";

/**
 * Tries the model as a server of these settings would.
 * @returns what the processes of test files need in their environment
 */
export async function triedModel(): Promise<Record<string, string>> {
  const state = mkdtempSync(path.join(os.tmpdir(), "radserve-tried-"));
  const config = loadConfig({ directory: state, environment: { RADSERVE_STATE_DIR: state } });
  const started = startEngine(config);
  const trials = trialsOf(config, started, { weights: Number.MAX_SAFE_INTEGER });
  try {
    const report = await readModelFolder(path.join(shippedModels, "ct-tissue"));
    await trials.of(report, { bytes: 2 ** 30, besideOthers: true, stop: undefined });
    return { [TRIED]: readFileSync(path.join(state, FILE), "utf8") };
  } finally {
    trials.rest();
    await started.engine.close();
    rmSync(state, { recursive: true });
  }
}

/** Lets a server that has not started before know of it. */
export function rememberTried(state: string): void {
  const tried = process.env[TRIED];
  if (tried === undefined || existsSync(path.join(state, FILE))) return;
  mkdirSync(state, { recursive: true, mode: 0o700 });
  writeFileSync(path.join(state, FILE), tried, { mode: 0o600 });
}
