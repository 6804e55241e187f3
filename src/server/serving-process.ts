/**
 * The serving process: engine, models, worker threads and HTTP. It does not listen; the supervisor
 * hands it connections, so that they wait, and are not refused, while it is replaced after a crash.
 */
import { Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { ConfigError, PassingFault } from "../base/errors.js";
import { createLog, faultForLog, logLast, type Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import type { Config } from "../config.js";
import { BulkService } from "../jobs/service.js";
import { Clients } from "./clients.js";
import type { ServingFeature } from "./feature.js";
import { InferenceService } from "./inference-service.js";
import { MemoryWatch } from "./memory-watch.js";
import { FailedRequests } from "./failed-requests.js";
import { Monitoring } from "./monitoring.js";
import type { FromServing, ToServing } from "./process-messages.js";
import { routesOf } from "./routes.js";
import { RunningFeatures } from "./running-features.js";
import { openServerFiles, type ServerFiles } from "./server-files.js";

/** What has started, for the stop and the reload. */
interface Parts {
  config: Config;
  files: ServerFiles;
  clients: Clients;
  inference: InferenceService;
  jobs: BulkService;
  features: RunningFeatures;
  monitoring: Monitoring;
  memory: MemoryWatch;
}

type Start = Omit<Extract<ToServing, { type: "start" }>, "type">;

class ServingProcess {
  #parts: Parts | undefined;
  #stopped: Promise<void> | undefined;
  /** Requests are refused from now on. */
  #takesNoMore = false;
  /** Asked while it started. */
  #isReloadAsked = false;

  constructor(
    private readonly features: readonly ServingFeature[],
    private readonly log: Logger,
  ) {}

  /**
   * @param start crashed: the process before this one ended by its own fault; forMemory: the system
   * ended it for memory; fatal: models that took a process with them
   * @throws ConfigError
   */
  async start({ config, address, crashed, forMemory, fatal }: Start): Promise<void> {
    const { log } = this;
    const files = await openServerFiles(config, crashed, log);
    const { roots, audit } = files;
    const clients = await Clients.open(config, log);
    const features = new RunningFeatures();
    const inference = new InferenceService({
      config,
      audit,
      log,
      resultParts: this.features.flatMap((one) => one.resultPart?.({ config, roots }) ?? []),
      sending: () => features.sending,
      fatal,
      loading: (model) => tell({ type: "loading", model }),
    });
    const { engine, engineOptions, pool, models } = inference;
    const memory = new MemoryWatch(
      engine,
      pool,
      (running) => void tell({ type: "memory", running }),
    );
    const jobs = new BulkService({
      config,
      address,
      roots,
      pool,
      models,
      crashed,
      forMemory,
      audit,
      progress: (cancelId) => engine.progress(cancelId),
      log,
      destinations: () => features.sending?.destinations,
      hasDatabase: () => config.database_url !== undefined || features.localDatabase !== undefined,
    });
    const core = { config, roots, jobs, audit, places: pool.places, engine: engineOptions, log };
    for (const feature of this.features) {
      const running = await feature.start?.(core);
      if (running !== undefined) features.add(feature.name, running);
    }
    const stopping = () => this.#takesNoMore;
    const leaving = () => this.#stopped !== undefined;
    const parts = { config, clients, inference, jobs, features };
    const monitoring = new Monitoring({ ...parts, ...files, leaving, log });
    const failed = new FailedRequests();
    const services = { ...parts, ...files, monitoring, failed, stopping, leaving };
    await clients.serve(routesOf(this.features), services);
    // The nodes of a database know one another; the node's own may hold jobs of before
    const holdsJobs = config.role !== "api" && features.localDatabase?.isMade === true;
    if (config.database_url !== undefined || holdsJobs) jobs.start();
    this.#parts = { ...parts, files, monitoring, memory };
    void monitoring.conditions.watch();
    if (this.#isReloadAsked) this.reload();
    void inference.models.loadPostponed(() => jobs.tellModels());
  }

  /** A connection from the supervisor; undefined where the client had gone before it arrived. */
  take(socket: Socket | undefined): void {
    this.#parts?.clients.take(socket);
  }

  /** Reads certificates, models and the files of features again. */
  reload(): void {
    if (this.#parts === undefined) {
      this.#isReloadAsked = true;
      return;
    }
    const { clients, inference, jobs, features } = this.#parts;
    clients.reload();
    void features.reload();
    void inference.models.reload(() => jobs.tellModels());
  }

  /**
   * A signal to the whole group comes twice, from the supervisor too: whoever asks again waits for
   * the same end.
   */
  stop(): Promise<void> {
    if (this.#stopped === undefined) {
      const seconds = this.#parts?.config.drain_seconds ?? 0;
      const drains = seconds > 0 ? `answering for ${seconds} s, then ` : "";
      this.log.info(`stopping: ${drains}finishing what was admitted`);
    }
    return (this.#stopped ??=
      this.#parts === undefined ? Promise.resolve() : this.#end(this.#parts));
  }

  /**
   * Whoever balances the load learns that this node is not ready, and who only notices connections
   * that are refused is refused those: a request that has come is answered.
   */
  async #drain({ config, clients }: Parts): Promise<void> {
    await delay(config.drain_seconds * 1000);
    await tell({ type: "closing" });
    await clients.leaveQuiet();
  }

  async #end(parts: Parts): Promise<void> {
    const { config, files, clients, inference, jobs, features, monitoring, memory } = parts;
    jobs.rest();
    if (config.drain_seconds > 0) await this.#drain(parts);
    this.#takesNoMore = true;
    const graceMs = config.grace_seconds * 1000;
    const graceEnds = monotonic() + graceMs;
    await features.leave();
    jobs.stop();
    monitoring.close();
    await inference.finish(graceMs, this.log);
    await jobs.close();
    void tell({ type: "closing" });
    await clients.close(graceEnds - monotonic());
    await features.close();
    files.keyring.close();
    memory.close();
    const isUnloaded = await inference.close();
    await files.audit.record({ kind: "stop" }).catch(() => undefined);
    await files.audit.close();
    if (isUnloaded) return;
    this.log.warn("a model that is being loaded could not be stopped in time: ending without it");
    process.exit(0);
  }
}

/** Resolves when the supervisor's end of the pipe has it: what comes next may end this process. */
function tell(message: FromServing): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined) resolve();
    else process.send(message, () => resolve());
  });
}

/** Runs this process under its supervisor until it is told to stop, or the supervisor is gone. */
export function serveUnderSupervisor(features: () => Promise<readonly ServingFeature[]>): void {
  let serving: ServingProcess | undefined;
  // Node would print the message, and messages of the system quote file names.
  process.on("uncaughtException", (error) => {
    logLast({ fault: faultForLog(error) }, "uncaught: the serving process ends");
    process.exit(1);
  });
  const stop = () => {
    void (serving?.stop() ?? Promise.resolve()).then(() => {
      process.exitCode = 0;
      if (process.connected) process.disconnect();
    });
  };
  const start = async (how: Start) => {
    const log = createLog(how.config.log_level);
    try {
      serving = new ServingProcess(await features(), log);
      await serving.start(how);
      // Told to stop while it started, and stopped: what has started since would keep the process
      if (!process.connected) process.exit();
      void tell({ type: "open" });
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      const passing = !(error instanceof ConfigError) || error instanceof PassingFault;
      process.exitCode = passing ? 1 : 2;
      const { message } = error;
      // Threads of a half-started engine would keep the process.
      void tell({ type: "unusable", message, passing }).then(() => process.exit());
    }
  };
  process.on("message", (message: ToServing, handle: unknown) => {
    if (message.type === "start") void start(message);
    else if (message.type === "reload") serving?.reload();
    else if (message.type === "stop") stop();
    else {
      void tell({ type: "taken", id: message.id });
      serving?.take(handle instanceof Socket ? handle : undefined);
    }
  });
  process.on("SIGTERM", stop);
  // Ctrl-C reaches the whole group; the supervisor decides what becomes of this process.
  process.on("SIGINT", () => undefined);
  process.on("disconnect", () => {
    if (process.exitCode === undefined) process.exit(1);
  });
}
