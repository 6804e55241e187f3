/** An engine for the length of one command. */
import type { Config } from "../config.js";
import type { Engine } from "../engine/engine.js";
import { startEngine } from "../server/start-engine.js";

/** Runs `work` with the engine that the settings ask for, and closes it. A GPU that cannot be used falls back as in the server. */
export async function withEngine<T>(
  config: Config,
  work: (engine: Engine, providers: Config["providers"]) => Promise<T>,
): Promise<T> {
  const { engine, providers } = startEngine(config);
  try {
    return await work(engine, providers);
  } finally {
    await engine.close();
  }
}
