/** What a server knows of itself: whether it is ready, what is wrong, figures, the last hour. */
import type { Audit } from "../audit/audit.js";
import type { RadserveError } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { resultSettings, type Config } from "../config.js";
import type { WatchedCertificates } from "../files/certificates.js";
import type { BulkService } from "../jobs/service.js";
import { identitiesOf } from "../models/identity.js";
import { resultKeyIds } from "../results/receipt/seal.js";
import { Conditions } from "./conditions.js";
import type { Connections } from "./connections.js";
import { History } from "./history.js";
import { firstKeys } from "./first-keys.js";
import { lackingHere, peersOf } from "./fleet.js";
import type { InferenceService } from "./inference-service.js";
import type { WatchedKeys } from "./keys.js";
import { Metrics } from "./metrics.js";
import { healthOfModels, notYetKnown, unready } from "./readiness.js";
import type { RunningFeatures } from "./running-features.js";
import { Shares } from "./shares.js";

/** How often what jobs have done is counted for the last hour. */
const HISTORY_LOOK_MS = 5_000;

export interface Watched {
  config: Config;
  audit: Audit;
  keyring: WatchedKeys;
  clients: { connections: Connections; certificates: WatchedCertificates | undefined };
  inference: Pick<InferenceService, "engine" | "models" | "pool" | "lacksGpu">;
  jobs: BulkService;
  /** Those that have started. */
  features: RunningFeatures;
  /** It is to stop, and may still answer. */
  leaving: () => boolean;
  log: Logger;
}

export class Monitoring {
  readonly metrics: Metrics;
  readonly history: History;
  readonly conditions: Conditions;
  readonly #historyLook: NodeJS.Timeout;
  readonly #shares: Shares;
  #resultKeys: string[] = [];

  constructor(private readonly watched: Watched) {
    const { config, keyring, clients, inference, jobs, features, leaving, log } = watched;
    const shares = new Shares({
      config,
      spool: () => features.spool,
      jobs: () => jobs.figures,
      log,
    });
    this.#shares = shares;
    const { engine, models, pool } = inference;
    const { connections, certificates } = clients;
    this.metrics = new Metrics({
      pool,
      connections,
      models,
      missing: () => engine.missing(),
      bulk: jobs,
      certificates: () => certificates?.expiries ?? [],
      features: features.all.flatMap((running) => running.metrics ?? []),
      engine: () => engine.stats(),
    });
    this.history = new History(() => jobs.figures.ended);
    this.#historyLook = setInterval(() => this.history.look(), HISTORY_LOOK_MS);
    this.conditions = new Conditions({
      log,
      // A server that starts, loads or stops is not ready, and nothing is wrong with it
      fault: () => (models.loading !== undefined || leaving() ? undefined : this.#fault()),
      keys: () => keyring.trouble(),
      models: () => healthOfModels(inference),
      loading: () => models.loading !== undefined,
      lacksGpu: inference.lacksGpu,
      engine: () => engine.stats(),
      certificates: () => certificates,
      bulk: () => jobs.figures,
      folders: {
        look: () => this.#look(),
        conditions: () => shares.conditions(),
        known: () => shares.known,
      },
      features,
    });
  }

  /** Looks at roots and keys, and tells the other nodes. */
  async #look(): Promise<void> {
    const { config, keyring, jobs } = this.watched;
    await this.#shares.look();
    await this.#makeFirstKeys();
    this.#resultKeys = await resultKeyIds();
    jobs.tellFacts({
      keys: keyring.keys().map(({ kid }) => kid),
      result_keys: this.#resultKeys,
      roots: this.#shares.seen(),
      settings: resultSettings(config),
    });
  }

  /** Those that were not made at the start, because the database did not answer. */
  async #makeFirstKeys(): Promise<void> {
    const { config, keyring, jobs, log } = this.watched;
    const { nodes, self } = jobs.figures;
    if (!keyring.neverHadKeys || self === null) return;
    // To make keys opens the database, only to be told the same there
    if (peersOf(nodes, self).some(({ keys }) => keys.length > 0)) return;
    try {
      if ((await firstKeys(config)).isNew) log.info("the first keys were made");
    } catch (error) {
      log.error({ fault: faultForLog(error) }, "the first keys could not be made");
    }
  }

  /** Why the server is not ready; undefined where it is. */
  readonly fault = (): RadserveError | undefined =>
    this.#fault() ?? (this.#shares.known ? undefined : notYetKnown());

  #fault(): RadserveError | undefined {
    const { inference, jobs, keyring } = this.watched;
    const { nodes, self } = jobs.figures;
    return unready({
      ...this.watched,
      shares: this.#shares,
      lacking: () =>
        lackingHere(nodes, self, {
          models: identitiesOf(inference.models.entries),
          keys: keyring.keys().map(({ kid }) => kid),
          roots: this.#shares.seen(),
        }),
      lacksResultKeys: () =>
        this.#resultKeys.length === 0 &&
        peersOf(nodes, self).some(({ result_keys }) => result_keys.length > 0),
    });
  }

  close(): void {
    clearInterval(this.#historyLook);
    this.conditions.close();
  }
}
