/** An engine for the length of one command. */
import { engineSettings, type Config } from "../config.js";
import { createEngine } from "../engine/engine.js";
import { type Engine } from "../engine/types.js";
import { RadserveError } from "../base/errors.js";

type Providers = Config["providers"];

/** Runs `work` with the engine that the settings ask for, and closes it. A GPU that cannot be used falls back as in the server. */
export async function withEngine<T>(
  config: Config,
  work: (engine: Engine, providers: Providers) => Promise<T>,
): Promise<T> {
  const { engine, providers } = start(config);
  try {
    return await work(engine, providers);
  } finally {
    await engine.close();
  }
}

function start(config: Config): { engine: Engine; providers: Providers } {
  const options = engineSettings(config);
  try {
    return { engine: createEngine(options), providers: config.providers };
  } catch (error) {
    if (options.provider === "cpu" || !(error instanceof RadserveError) || config.gpu_fallback !== "cpu")
      throw error;
    return { engine: createEngine({ provider: "cpu" }), providers: ["cpu"] };
  }
}
