/** What a server knows of itself: whether it is ready, what is wrong, figures, the last hour. */
import type { Audit } from "../audit/audit.js";
import type { RadserveError } from "../base/errors.js";
import type { Logger } from "../base/log.js";
import type { Config } from "../config.js";
import type { WatchedCertificates } from "../files/certificates.js";
import type { BulkService } from "../jobs/service.js";
import { Conditions } from "./conditions.js";
import type { Connections } from "./connections.js";
import { History } from "./history.js";
import type { InferenceService } from "./inference-service.js";
import type { WatchedKeys } from "./keys.js";
import { Metrics } from "./metrics.js";
import { healthOfModels, unready } from "./readiness.js";
import type { RunningFeatures } from "./running-features.js";

/** How often what jobs have done is counted for the last hour. */
const HISTORY_LOOK_MS = 5_000;

export interface Watched {
  config: Config;
  audit: Audit;
  keyring: WatchedKeys;
  clients: { connections: Connections; certificates: WatchedCertificates | undefined };
  inference: Pick<InferenceService, "engine" | "models" | "pool">;
  jobs: BulkService;
  /** Those that have started. */
  features: RunningFeatures;
  stopping: () => boolean;
  log: Logger;
}

export class Monitoring {
  readonly metrics: Metrics;
  readonly history: History;
  readonly conditions: Conditions;
  readonly #historyLook: NodeJS.Timeout;

  constructor(private readonly watched: Watched) {
    const { config, keyring, clients, inference, jobs, features, stopping, log } = watched;
    const { engine, models, pool } = inference;
    const { connections, certificates } = clients;
    this.metrics = new Metrics({
      pool,
      connections,
      models,
      bulk: jobs,
      certificates: () => certificates?.expiries ?? [],
      features: features.all.flatMap((running) => running.metrics ?? []),
      engine: () => engine.stats(),
    });
    this.history = new History(() => jobs.figures.ended);
    this.#historyLook = setInterval(() => this.history.look(), HISTORY_LOOK_MS);
    this.conditions = new Conditions({
      config,
      log,
      // A server that loads or stops is not ready, and nothing is wrong with it
      fault: () => (models.loading !== undefined || stopping() ? undefined : this.fault()),
      keys: () => keyring.trouble(),
      models: () => healthOfModels(inference),
      engine: () => engine.stats(),
      certificates: () => certificates,
      bulk: () => jobs.figures,
      features,
    });
  }

  /** Why the server is not ready; undefined where it is. */
  readonly fault = (): RadserveError | undefined => unready(this.watched);

  close(): void {
    clearInterval(this.#historyLook);
    this.conditions.close();
  }
}
