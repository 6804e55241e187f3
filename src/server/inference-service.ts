/** What inference runs on in a server: the engine, the models, and the worker threads. */
import type { Audit } from "../audit/audit.js";
import { PassingFault } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { usualMemory } from "../base/memory-limits.js";
import { within } from "../base/waiting.js";
import { resultForms, type Config } from "../config.js";
import type { Engine } from "../engine/engine.js";
import type { EngineOptions } from "../engine/types.js";
import type { ResultPartName, Sending } from "../inference/result-hook.js";
import { InferencePool } from "../inference/worker-pool.js";
import type { FatalModel } from "../models/set.js";
import { MemoryShares } from "./memory-shares.js";
import { ServedModels } from "./served-models.js";
import { startEngine, trialsOf, type StartedEngine } from "./start-engine.js";

/** After the grace time, how long cancelled work may take to notice. */
const LAST_WAIT_MS = 2_000;

export interface InferenceOptions {
  config: Config;
  audit: Audit;
  log: Logger;
  /** The parts of features in the threads. */
  resultParts: readonly ResultPartName[];
  /** Undefined where results are sent nowhere. */
  sending: () => Sending | undefined;
  /** Models that took a process with them. */
  fatal: readonly FatalModel[];
  /** Told which model is loaded now, and undefined after each. */
  loading: (model: string | undefined) => Promise<void>;
}

export class InferenceService {
  readonly engine: Engine;
  /** Other threads make their engines with the same. */
  readonly engineOptions: EngineOptions;
  readonly pool: InferencePool;
  readonly models: ServedModels;
  /** The settings ask for a GPU that cannot be used, and the CPU has its place. */
  readonly lacksGpu: boolean;
  readonly #idleLook: NodeJS.Timeout;

  /**
   * @throws PassingFault if the engine cannot be started, or cannot use the GPU that it was told to
   * use
   */
  constructor({ config, audit, log, resultParts, sending, fatal, loading }: InferenceOptions) {
    const started = startedEngine(config, log);
    const { engine, providers, options, fault } = started;
    this.lacksGpu = fault !== undefined;
    const images = config.memory ?? usualMemory();
    const pool: InferencePool = new InferencePool({
      threads: config.threads,
      maxQueue: config.max_queue,
      itemMs: config.deadline_seconds * 1000,
      memory: images,
      models: () => this.models.entries,
      engine: options,
      outputs: config.outputs,
      forms: resultForms(config),
      resultParts,
      sending,
      cancelRunning: (cancelId) => engine.cancel(cancelId),
      log,
    });
    this.engine = engine;
    this.engineOptions = options;
    this.pool = pool;
    const shares = new MemoryShares(engine, pool, images);
    this.models = new ServedModels({
      directory: config.models_dir,
      stateDir: config.state_dir,
      engine,
      providers,
      fatal,
      loading,
      trials: trialsOf(config, started, shares),
      hold: (bytes, runs) => shares.hold(bytes, runs),
      mostBytes: (besideOthers) => shares.mostToLoad(besideOthers),
      changed: () => shares.look(),
      settled: () => pool.settled(),
      audit,
      log,
    });
    this.#idleLook = everyIdleLook((config.model_idle ?? NEVER) * 1000, engine);
  }

  /** Ends what was admitted within the grace time, and fails the rest. */
  async finish(graceMs: number, log: Logger): Promise<void> {
    clearInterval(this.#idleLook);
    const { pool } = this;
    const drained = pool.drain();
    if (await within(drained, graceMs)) return;
    log.warn({ running: pool.running, queued: pool.queued }, "grace time over: failing the rest");
    pool.abandon();
    await within(drained, LAST_WAIT_MS);
  }

  /** @returns false where a model that is being loaded goes on with it */
  async close(): Promise<boolean> {
    await this.pool.close();
    // ONNX Runtime may fold constants for minutes before it looks whether a load is still wanted
    return within(
      this.models.close().then(() => this.engine.close()),
      LAST_WAIT_MS,
    );
  }
}

/**
 * Throws PassingFault if the engine cannot be started, or cannot use the GPU that it was told to
 * use.
 */
function startedEngine(config: Config, log: Logger): StartedEngine {
  let started;
  try {
    started = startEngine(config);
  } catch (error) {
    // The driver of a GPU may come up after this
    throw new PassingFault(
      error instanceof Error ? error.message : "The engine cannot be started.",
      {
        cause: error,
      },
    );
  }
  if (started.fault !== undefined)
    log.warn(
      { fault: faultForLog(started.fault) },
      "cuda cannot be used; running on the cpu as RADSERVE_GPU_FALLBACK says",
    );
  return started;
}

/**
 * Seconds after which a model leaves where the settings name no time; those that could not come
 * back are looked for all the same.
 */
const NEVER = 10 * 365 * 86_400;

/**
 * How often it is looked for models that nobody has used for so long: they go a tenth of that time
 * too late at most.
 */
function everyIdleLook(idleMs: number, engine: Engine): NodeJS.Timeout {
  const step = Math.min(Math.max(idleMs / 10, 100), 60_000);
  return setInterval(() => engine.leaveIdle(idleMs), step).unref();
}
