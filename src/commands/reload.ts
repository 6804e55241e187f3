/**
 * `radserve models reload`: tells the server of this machine to look at its models again, and what
 * came of it.
 */
import { setTimeout as delay } from "node:timers/promises";
import { type Config } from "../config.js";
import { ConfigError, errors } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { monotonic } from "../base/monotonic.js";
import { holderHere } from "../files/state-lock.js";
import { readReload, type ReloadOutcome } from "../models/reload-note.js";
import { print, type ExitStatus, type JsonOption } from "./run.js";

const LOOK_MS = 100;
/** Large models are loaded, warmed and tried one after the other. */
const PATIENCE_MS = 15 * 60_000;

/** Throws ConfigError where no server of this machine holds the state directory. */
export async function reload(config: Config, { json = false }: JsonOption): Promise<ExitStatus> {
  const pid = holderHere(config.state_dir);
  if (pid === undefined)
    throw new ConfigError(
      `RADSERVE_STATE_DIR: expected a server of this machine that runs with ${config.state_dir}; found none. ` +
        "Start it with radserve serve, which loads the models, or set RADSERVE_STATE_DIR as it has it.",
    );
  const before = readReload(config.state_dir)?.asked;
  const sent = monotonic();
  tell(pid);
  while (monotonic() - sent < PATIENCE_MS) {
    const outcome = readReload(config.state_dir);
    // One from before the machine started may say a later moment
    if (outcome !== undefined && outcome.asked >= sent && outcome.asked !== before)
      return say(outcome, json);
    if (holderHere(config.state_dir) !== pid)
      throw errors.model_unavailable("The server ended before it had reloaded its models.");
    await delay(LOOK_MS);
  }
  throw errors.model_unavailable("The server has not said what came of it; its log may.");
}

function tell(pid: number): void {
  try {
    process.kill(pid, "SIGHUP");
  } catch (error) {
    throw new ConfigError(
      `Expected to be allowed to signal the server, process ${pid}; found ${errno(error)}. Run this as the user that runs it.`,
    );
  }
}

function say({ report, error }: ReloadOutcome, json: boolean): ExitStatus {
  if (report === undefined)
    throw errors.model_unavailable(error ?? "The models could not be reloaded.");
  if (json) print(JSON.stringify(report, null, 2));
  else {
    for (const kind of ["added", "replaced", "removed", "unchanged"] as const)
      for (const name of report[kind]) print(`${kind}\t${name}`);
    for (const { name, error: found, kept } of report.failed)
      print(`failed\t${name}: ${found.message}${kept ? " The previous version stays." : ""}`);
  }
  return report.failed.length === 0 ? 0 : 1;
}
