/** What a server has on disks before it serves anybody: keys, the audit, and its folders. */
import path from "node:path";
import { Audit } from "../audit/audit.js";
import { durations } from "../base/durations.js";
import type { Logger } from "../base/log.js";
import { VERSION } from "../base/version.js";
import type { Config } from "../config.js";
import { watchRoots } from "../files/absent-roots.js";
import { rememberMountPoints, resolveRoots } from "../files/roots.js";
import { RunningClock, runningClockOf } from "../files/running-clock.js";
import { signingKeyId, useResultKeys } from "../results/receipt/seal.js";
import { WatchedKeys } from "./keys.js";

export interface ServerFiles {
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  audit: Audit;
  keyring: WatchedKeys;
}

/**
 * Comes before the first thread is started: each gets what is known then.
 * @param crashed the process before this one ended by its own fault
 * @throws ConfigError where a folder cannot be used
 */
export async function openServerFiles(
  config: Config,
  crashed: boolean,
  log: Logger,
): Promise<ServerFiles> {
  useResultKeys(config.keys_dir);
  await signingKeyId();
  const clock = new RunningClock(runningClockOf(config));
  clock.tick();
  setInterval(() => clock.tick(), durations.clockTick).unref();
  const started = { kind: "start", version: VERSION, after_crash: crashed } as const;
  const audit = await Audit.open(config.state_dir, started, log);
  audit.sayHeads();
  const roots = {
    input: await resolveRoots(config.input_roots, "RADSERVE_INPUT_ROOTS"),
    output: await resolveRoots(config.output_roots, "RADSERVE_OUTPUT_ROOTS"),
  };
  await rememberMountPoints([...roots.input, ...roots.output]);
  watchRoots(roots);
  const revoked = path.join(config.state_dir, "revoked-tokens");
  const keyring = new WatchedKeys(config.keys_dir, (message) => log.error(message), revoked);
  return { roots, audit, keyring };
}
