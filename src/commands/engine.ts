/** The engine of a command: bounded as that of a server is, and gone when the command ends. */
import { createLog } from "../base/log.js";
import { usualMemory } from "../base/memory-limits.js";
import { within } from "../base/waiting.js";
import type { Config } from "../config.js";
import type { Engine } from "../engine/engine.js";
import { loadModels, type ModelSet } from "../models/set.js";
import type { TriedFirst } from "../models/trial.js";
import { MemoryShares } from "../server/memory-shares.js";
import { startEngine, trialsOf } from "../server/start-engine.js";
import { endAfterwards } from "./run.js";

/** How long runs that were told to stop may take to notice. */
const LAST_WAIT_MS = 2_000;

/** What a command runs models with. */
export interface CommandEngine {
  engine: Engine;
  providers: Config["providers"];
  trials: TriedFirst;
  /** Loads the models of the settings' folder. @throws RadserveError as loadModels does */
  models: () => Promise<ModelSet>;
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
  const most = shares.mostToLoad(false);
  const models = () =>
    loadModels({
      directory: config.models_dir,
      engine,
      providers,
      trials,
      mostBytes: () => most,
      log: createLog("silent"),
    });
  try {
    return await work({ engine, providers, trials: trials.within(most), models });
  } finally {
    trials.rest();
    if (!(await within(engine.close(), LAST_WAIT_MS))) endAfterwards();
  }
}
