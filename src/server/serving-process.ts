/**
 * The serving process: engine, models, worker threads and HTTP. It does not listen; the supervisor
 * hands it connections, so that they wait, and are not refused, while it is replaced after a crash.
 */
import type http from "node:http";
import https from "node:https";
import { Socket } from "node:net";
import path from "node:path";
import { Audit } from "../audit/audit.js";
import { BulkService } from "../jobs/service.js";
import { usualMemory } from "../base/process-memory.js";
import { signingKeyId, useResultKeys } from "../results/receipt/seal.js";
import { resultForms, type Config } from "../config.js";
import { ConfigError, RadserveError } from "../base/errors.js";
import { durations } from "../base/durations.js";
import { VERSION } from "../base/version.js";
import { RunningClock, runningClockOf } from "../files/running-clock.js";
import { WatchedCertificates } from "../files/certificates.js";
import { ClientAddresses } from "./client-address.js";
import { Connections } from "./connections.js";
import { Conditions } from "./conditions.js";
import { healthOfModels, unready } from "./handlers.js";
import { type ServedModels } from "./services.js";
import { WatchedKeys } from "./keys.js";
import { within } from "../base/waiting.js";
import { createLog, faultForLog, logLast, type Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import type { FromServing, ToServing } from "./process-messages.js";
import type { Engine } from "../engine/engine.js";
import { type ServingFeature } from "./feature.js";
import { RunningFeatures } from "./running-features.js";
import { History } from "./history.js";
import { Metrics } from "./metrics.js";
import { loadModels, type ModelSet } from "../models/set.js";
import { writeReload, type ReloadReport } from "../models/reload-note.js";
import { rememberMountPoints, resolveRoots } from "../files/roots.js";
import { InferencePool } from "../inference/worker-pool.js";
import { createServer } from "./http-server.js";
import { contractOf, routesOf } from "./routes.js";
import { startEngine, type StartedEngine } from "./start-engine.js";

/** After the grace time, how long cancelled work may take to notice, and answers to be written. */
const LAST_WAIT_MS = 2_000;
/** How often what jobs have done is counted for the last hour. */
const HISTORY_LOOK_MS = 5_000;

/** The models while they load, and after. */
class LoadingModels implements ServedModels {
  readonly loaded: Promise<void>;
  #set: ModelSet | undefined;
  #loading: string | undefined = "";

  readonly #stop = new AbortController();

  /**
   * @param load loads them until the signal; it tells which one it loads, and undefined after each
   */
  constructor(
    load: (tell: (name: string | undefined) => void, stop: AbortSignal) => Promise<ModelSet>,
    log: Logger,
  ) {
    const loading = load((name) => {
      if (this.#loading !== undefined) this.#loading = name ?? "";
    }, this.#stop.signal).finally(() => {
      this.#loading = undefined;
    });
    this.loaded = loading.then(
      (set) => {
        this.#set = set;
        log.info(
          { models: set.entries.length, problems: set.problems.length, ready: set.ready() },
          "models loaded",
        );
      },
      (error: unknown) => log.error({ fault: faultForLog(error) }, "models could not be loaded"),
    );
  }

  get entries() {
    return this.#set?.entries ?? [];
  }

  get problems() {
    return this.#set?.problems ?? [];
  }

  get loading() {
    return this.#loading;
  }

  ready(): boolean {
    return this.#set?.ready() ?? false;
  }

  /** @param settled resolves when no task works with the entries of before */
  async reload(settled: () => Promise<void>): Promise<ReloadReport | undefined> {
    await this.loaded;
    return this.#set?.reload({ swapped: settled });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.loaded;
    await this.#set?.close();
  }
}

/**
 * Throws ConfigError if the engine cannot be started, or cannot use the GPU that it was told to
 * use.
 */
function startedEngine(config: Config, log: Logger): StartedEngine {
  let started;
  try {
    started = startEngine(config);
  } catch (error) {
    throw new ConfigError(
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

/** Writes down which models serve. The log says it where the audit cannot. */
async function tellModels(audit: Audit, { entries }: ServedModels): Promise<void> {
  const models = entries.map(({ name, version, sha256, state }) => ({
    name,
    version,
    sha256,
    status: state,
  }));
  await audit.record({ kind: "models", models }).catch(() => undefined);
}

/**
 * How often it is looked for models that nobody has used for so long: they go a tenth of that time
 * too late at most.
 */
function everyIdleLook(idleMs: number, engine: Engine): NodeJS.Timeout {
  const step = Math.min(Math.max(idleMs / 10, 100), 60_000);
  return setInterval(() => engine.leaveIdle(idleMs), step);
}

/** The parts that are open before the engine is started. */
interface OpenedParts {
  audit: Audit;
  roots: { input: string[]; output: string[] };
  certificates: WatchedCertificates | undefined;
  connections: Connections;
  crashed: boolean;
  fatal: readonly string[];
}

class ServingProcess {
  #connections: Connections | undefined;
  #certificates: WatchedCertificates | undefined;
  #stopped: Promise<void> | undefined;
  #server: http.Server | https.Server | undefined;
  #stop: (() => Promise<void>) | undefined;
  #reload: (() => Promise<ReloadReport | undefined>) | undefined;
  #stateDir: string | undefined;

  constructor(
    private readonly features: readonly ServingFeature[],
    private readonly log: Logger,
  ) {}

  async start(config: Config, crashed: boolean, fatal: readonly string[]): Promise<void> {
    this.#stateDir = config.state_dir;
    // Before the first thread is started: each gets what is known then
    useResultKeys(config.keys_dir);
    await signingKeyId();
    const clock = new RunningClock(runningClockOf(config));
    clock.tick();
    setInterval(() => clock.tick(), durations.clockTick).unref();
    const started = { kind: "start", version: VERSION, after_crash: crashed } as const;
    const audit = await Audit.open(config.state_dir, started, this.log);
    audit.sayHeads();
    const roots = {
      input: await resolveRoots(config.input_roots, "RADSERVE_INPUT_ROOTS"),
      output: await resolveRoots(config.output_roots, "RADSERVE_OUTPUT_ROOTS"),
    };
    await rememberMountPoints([...roots.input, ...roots.output]);
    const certificates = await WatchedCertificates.open(config, this.log);
    this.#certificates = certificates;
    const addresses = new ClientAddresses(config.trusted_proxies);
    const connections = new Connections({
      ...config,
      addresses,
      tls: certificates !== undefined,
      log: this.log,
    });
    this.#connections = connections;
    const parts = await this.#startParts(config, {
      audit,
      roots,
      certificates,
      connections,
      crashed,
      fatal,
    });
    const { bulk, models, conditions } = parts;
    const tls = certificates?.options;
    const routes = routesOf(this.features);
    const contract = () => contractOf(this.features, routes);
    const server = createServer({
      ...parts,
      routes,
      contract,
      addresses,
      connections,
      log: this.log,
      tls,
    });
    this.#server = server;
    // Without listen() node starts no watch over slow requests and idle connections; this event
    // starts it.
    server.emit("listening");
    if (server instanceof https.Server) {
      server.on("tlsClientError", (error, socket) => connections.endHandshake(socket, error));
      await certificates?.watch(server);
    }
    // A database of many nodes may hold jobs of the others; the node's own those of before
    const holdsJobs =
      config.database_url !== undefined || parts.features.localDatabase?.isMade === true;
    if (config.role !== "api" && holdsJobs) bulk.start();
    this.#stop = async () => {
      await parts.features.leave();
      bulk.stop();
      conditions.close();
      for (const timer of parts.timers) clearInterval(timer);
      await this.#finish(parts.pool, bulk, config.grace_seconds * 1000);
      await parts.features.close();
      parts.keyring.close();
      certificates?.close();
      await parts.pool.close();
      // ONNX Runtime may fold constants for minutes before it looks whether a load is still wanted
      const unloaded = await within(
        models.close().then(() => parts.engine.close()),
        LAST_WAIT_MS,
      );
      await audit.record({ kind: "stop" }).catch(() => undefined);
      await audit.close();
      if (unloaded) return;
      this.log.warn("a model that is being loaded could not be stopped in time: ending without it");
      process.exit(0);
    };
    void models.loaded.then(() => tellModels(audit, models));
    void conditions.watch();
  }

  /** Starts what works for the requests: engine, models, threads, and what tells of them. */
  async #startParts(
    config: Config,
    { audit, roots, certificates, connections, crashed, fatal }: OpenedParts,
  ) {
    const { engine, providers, options } = startedEngine(config, this.log);
    const keyring = new WatchedKeys(
      config.keys_dir,
      (message) => this.log.error(message),
      path.join(config.state_dir, "revoked-tokens"),
    );
    const features = new RunningFeatures();
    const pool = new InferencePool({
      threads: config.threads,
      maxQueue: config.max_queue,
      itemMs: config.deadline_seconds * 1000,
      memory: config.memory ?? usualMemory(),
      models: () => models.entries,
      engine: options,
      outputs: config.outputs,
      forms: resultForms(config),
      resultParts: this.features.flatMap((one) => one.resultPart?.({ config, roots }) ?? []),
      sending: () => features.sending,
      cancelRunning: (cancelId) => engine.cancel(cancelId),
      log: this.log,
    });
    const models: LoadingModels = new LoadingModels(
      (tell, stop) =>
        loadModels({
          stop,
          directory: config.models_dir,
          engine,
          providers,
          log: this.log,
          fatal,
          hold: (bytes: number) => pool.hold(bytes),
          loading: (name) => {
            tell(name);
            return tellLoading(name);
          },
        }),
      this.log,
    );
    const progress = (cancelId: number) => engine.progress(cancelId);
    const bulk = new BulkService({
      config,
      roots,
      pool,
      models,
      crashed,
      audit,
      progress,
      log: this.log,
      destinations: () => features.sending?.destinations,
      hasDatabase: () => config.database_url !== undefined || features.localDatabase !== undefined,
    });
    const core = { config, roots, jobs: bulk, audit, places: pool.places, log: this.log };
    for (const feature of this.features) {
      const running = await feature.start?.({ ...core, engine: options });
      if (running !== undefined) features.add(feature.name, running);
    }
    const metrics = new Metrics({
      pool,
      connections,
      models,
      bulk,
      certificates: () => certificates?.expiries ?? [],
      features: features.all.flatMap((running) => running.metrics ?? []),
      engine: () => engine.stats(),
    });
    const history = new History(() => bulk.figures.ended);
    const timers = [setInterval(() => history.look(), HISTORY_LOOK_MS)];
    if (config.model_idle !== undefined)
      timers.push(everyIdleLook(config.model_idle * 1000, engine));
    const stopping = () => this.#stopped !== undefined;
    this.#reload = async () => {
      const report = await models.reload(() => pool.settled());
      if (report !== undefined) void tellModels(audit, models);
      bulk.tellModels();
      return report;
    };
    const parts = {
      config,
      roots,
      models,
      engine,
      pool,
      bulk,
      features,
      metrics,
      history,
      audit,
      keyring,
      stopping,
    };
    const conditions = new Conditions({
      config,
      log: this.log,
      // A server that loads or stops is not ready, and nothing is wrong with it
      fault: () => (models.loading !== undefined || stopping() ? undefined : unready(parts)),
      keys: () => keyring.trouble(),
      models: () => healthOfModels(parts),
      gpus: () => engine.stats().gpus,
      certificates: () => certificates,
      bulk: () => bulk.figures,
      features,
    });
    return { ...parts, conditions, timers };
  }

  /** A connection from the supervisor; undefined where the client had gone before it arrived. */
  take(socket: Socket | undefined): void {
    if (socket === undefined || this.#connections?.admit(socket) !== true) return;
    this.#server?.emit("connection", socket);
    socket.resume();
  }

  async reload(): Promise<void> {
    const asked = monotonic();
    if (this.#server instanceof https.Server) void this.#certificates?.reload(this.#server);
    const outcome = await this.#reloadModels();
    try {
      // Tells the command that may have asked for the reload
      if (this.#stateDir !== undefined) writeReload(this.#stateDir, { asked, ...outcome });
    } catch (error) {
      this.log.warn(
        { fault: faultForLog(error) },
        "what the reload came to could not be written down",
      );
    }
  }

  async #reloadModels(): Promise<{ report: ReloadReport } | { error: string }> {
    try {
      const report = await this.#reload?.();
      if (report !== undefined) {
        this.#tellReload(report);
        return { report };
      }
      const error = "no models to reload: they could not be loaded at the start";
      this.log.error(error);
      return { error };
    } catch (thrown) {
      const error = "models could not be reloaded; the old ones stay";
      this.log.error({ fault: faultForLog(thrown) }, error);
      return { error: thrown instanceof RadserveError ? `${error}: ${thrown.message}` : error };
    }
  }

  #tellReload({ failed, ...rest }: ReloadReport): void {
    const fields = {
      ...rest,
      failed: failed.map(({ name, error, kept }) => ({ name, kept, error })),
    };
    const done = rest.added.length + rest.replaced.length + rest.removed.length;
    const names = failed.map(({ name }) => name).join(", ");
    const more = failed.length === 0 ? "" : `, ${failed.length} failed (${names})`;
    this.log[failed.length === 0 ? "info" : "error"](
      fields,
      `models reloaded: ${done} changed${more}`,
    );
  }

  /**
   * A signal to the whole group comes twice, from the supervisor too: whoever asks again waits for
   * the same end.
   */
  stop(): Promise<void> {
    if (this.#stopped === undefined) this.log.info("stopping: finishing what was admitted");
    return (this.#stopped ??= this.#stop?.() ?? Promise.resolve());
  }

  /** Answers what was admitted within the grace time, and fails the rest. */
  async #finish(pool: InferencePool, bulk: BulkService, graceMs: number): Promise<void> {
    const drained = pool.drain();
    if (!(await within(drained, graceMs))) {
      this.log.warn(
        { running: pool.running, queued: pool.queued },
        "grace time over: failing the rest",
      );
      pool.abandon();
      await within(drained, LAST_WAIT_MS);
    }
    await bulk.close();
    tell({ type: "closing" });
    await this.#connections?.close(LAST_WAIT_MS);
  }
}

/** Resolves when the supervisor's end of the pipe has it: what comes next may end this process. */
function tellLoading(model: string | undefined): Promise<void> {
  return new Promise((resolve) => {
    const message: FromServing = { type: "loading", model };
    if (process.send === undefined) resolve();
    else process.send(message, () => resolve());
  });
}

function tell(message: FromServing): void {
  process.send?.(message);
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
  const start = async (config: Config, crashed: boolean, fatal: readonly string[]) => {
    const log = createLog(config.log_level);
    try {
      serving = new ServingProcess(await features(), log);
      await serving.start(config, crashed, fatal);
      // Told to stop while it started, and stopped: what has started since would keep the process
      if (!process.connected) process.exit();
      tell({ type: "open" });
    } catch (error) {
      if (
        !(error instanceof ConfigError) &&
        !(error instanceof RadserveError) &&
        !(error instanceof Error)
      )
        throw error;
      // Threads of a half-started engine would keep the process.
      process.exitCode = 2;
      const message: FromServing = { type: "unusable", message: error.message };
      process.send?.(message, () => process.exit());
    }
  };
  process.on("message", (message: ToServing, handle: unknown) => {
    if (message.type === "start") void start(message.config, message.crashed, message.fatal);
    else if (message.type === "reload") void serving?.reload();
    else if (message.type === "stop") stop();
    else {
      tell({ type: "taken", id: message.id });
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
