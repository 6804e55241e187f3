/** The engine of a command: bounded as that of a server is, and gone when the command ends. */
import { createLog } from "../base/log.js";
import { usualMemory } from "../base/memory-limits.js";
import { within } from "../base/waiting.js";
import type { Config } from "../config.js";
import type { Engine } from "../engine/engine.js";
import { loadModels, type ModelSet } from "../models/set.js";
import type { ModelTrials } from "../models/trial.js";
import { MemoryShares } from "../server/memory-shares.js";
import { startEngine, trialsOf } from "../server/start-engine.js";
import { endAfterwards } from "./run.js";

/** How long runs that were told to stop may take to notice. */
const LAST_WAIT_MS = 2_000;

/** What a command runs models with. */
export interface CommandEngine {
  engine: Engine;
  providers: Config["providers"];
  trials: ModelTrials;
  /** Bytes that a model may take to be loaded and run. */
  mostBytes: number;
}

/**
 * Runs `work` with the engine that the settings ask for, and closes it. A GPU that cannot be used
 * falls back as in the server, and models have the memory that they have there. A run that goes on
 * after it was told to stop ends with the command.
 */
export async function withEngine<T>(
  config: Config,
  work: (given: CommandEngine) => Promise<T>,
): Promise<T> {
  const started = startEngine(config);
  const { engine, providers } = started;
  const alone = { memory: 0, hold: () => () => undefined };
  const shares = new MemoryShares(engine, alone, config.memory ?? usualMemory());
  const trials = trialsOf(config, started, shares);
  try {
    return await work({ engine, providers, trials, mostBytes: shares.mostToLoad(false) });
  } finally {
    trials.rest();
    if (!(await within(engine.close(), LAST_WAIT_MS))) endAfterwards();
  }
}

/** The models of the settings' folder, for a command. @throws RadserveError as loadModels does */
export const modelsOf = (
  { models_dir: directory }: Config,
  { engine, providers, trials, mostBytes }: CommandEngine,
): Promise<ModelSet> =>
  loadModels({
    directory,
    engine,
    providers,
    trials,
    mostBytes: () => mostBytes,
    log: createLog("silent"),
  });
