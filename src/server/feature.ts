/**
 * What the server knows of a feature: its endpoints, what it starts, and its metrics and conditions
 * while it runs. The core imports no feature: the list comes from src/features.ts.
 */
import type { Audit } from "../audit/audit.js";
import type { Logger } from "../base/log.js";
import type { MemoryPlaces } from "../base/process-memory.js";
import type { BulkService } from "../jobs/service.js";
import type { Config } from "../config.js";
import type { EngineOptions } from "../engine/types.js";
import type { ResultPartName } from "../inference/result-hook.js";
import type { NamedSchemas } from "./services.js";
import type { Route } from "./route.js";
import type { FeatureName, Running } from "./running-features.js";

/** The parts of the core that a feature may ask for when it starts. */
export interface Core {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  jobs: Pick<BulkService, "submit" | "line">;
  audit: Audit;
  engine: EngineOptions;
  /** Where its threads count their memory. */
  places: MemoryPlaces;
  log: Logger;
}

/**
 * Checks the settings of a feature before anything is started.
 * @returns how many descriptors it may take beside those of the core
 * @throws ConfigError
 */
export type CheckSettings = (config: Config) => Promise<number>;

export interface ServingFeature<R extends Running = Running> {
  /** The name of its folder. */
  readonly name: FeatureName<R>;
  /** Served whether it is on or off: off, they say which setting turns it on. */
  readonly endpoints?: readonly Route[];
  /** Parts of their schemas that generated clients should have a type for. */
  readonly schemas?: NamedSchemas;
  /**
   * Its part at the commit of results, of the threads that make them, which run before it is
   * started; undefined where its settings leave it off.
   */
  resultPart?(core: Pick<Core, "config" | "roots">): ResultPartName | undefined;
  /** Undefined where its settings leave it off. @throws ConfigError */
  start?(core: Core): Promise<R | undefined>;
}
