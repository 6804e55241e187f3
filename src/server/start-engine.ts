/** The one place that decides whether the CPU takes the place of a GPU that cannot be used. */
import { engineSettings, type Config } from "../config.js";
import { createEngine, type Engine } from "../engine/engine.js";
import type { EngineOptions } from "../engine/types.js";
import { ModelTrials } from "../models/trial.js";
import type { MemoryShares } from "./memory-shares.js";

export interface StartedEngine {
  engine: Engine;
  /** Its options: the engines of worker threads are made with the same. */
  options: EngineOptions;
  /** The providers that models may run on. */
  providers: Config["providers"];
  /** Why CUDA cannot be used, if the CPU took its place. */
  fault?: unknown;
}

/**
 * Starts the engine that the settings ask for. The CPU takes the place of CUDA only if
 * RADSERVE_GPU_FALLBACK says so.
 * @throws RadserveError as createEngine does
 */
export function startEngine(config: Config): StartedEngine {
  const options = engineSettings(config);
  try {
    return { engine: createEngine(options), options, providers: config.providers };
  } catch (fault) {
    if (options.provider === "cpu" || config.gpu_fallback !== "cpu") throw fault;
    const { modelsLeave = false, openvino = false } = options;
    const cpu = { provider: "cpu", modelsLeave, openvino } as const;
    const others = config.providers.filter((one) => one !== "cuda" && one !== "cpu");
    return { engine: createEngine(cpu), options: cpu, providers: [...others, "cpu"], fault };
  }
}

/** The process that tries the models of this engine. */
export function trialsOf(
  config: Config,
  { engine, providers }: StartedEngine,
  { weights }: Pick<MemoryShares, "weights">,
): ModelTrials {
  const { onnxRuntimeVersion: version, threads } = engine.info();
  const { state_dir: stateDir } = config;
  // It is not even opened where nobody asks for it
  const openvinoVersion = providers.includes("openvino") ? engine.openvinoVersion : undefined;
  return new ModelTrials({ stateDir, providers, version, openvinoVersion, threads, weights });
}
