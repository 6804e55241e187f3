/**
 * `radserve serve`: this process listens and does nothing else that could fail. A second one
 * serves; when it crashes it is started again, and connections wait here meanwhile. A native crash
 * so costs the requests in flight alone.
 */
import type { ChildProcess } from "node:child_process";
import net from "node:net";
import os from "node:os";
import { longestStopSeconds, requireFolder, type Config } from "../config.js";
import type { CheckSettings } from "./feature.js";
import { backOff, type BackOff } from "../base/back-off.js";
import { connectionsWithin, descriptorLimit } from "../base/descriptor-limit.js";
import { ConfigError } from "../base/errors.js";
import { readCertificates, refuseOutOfDate } from "../files/certificates.js";
import { plainAddress } from "../base/networks.js";
import { ClientAddresses } from "./client-address.js";
import { ConnectionCount, RefusedConnections, type ConnectionLimits } from "./connection-count.js";
import { firstKeys } from "./first-keys.js";
import { listen } from "./listening.js";
import { lockState, makeStateDirectory } from "../files/state-lock.js";
import {
  createLog,
  faultForLog,
  logForeign,
  logLast,
  logWarnings,
  tellPeople,
  type Logger,
} from "../base/log.js";
import { requireMemory } from "../base/memory-limits.js";
import { killsForMemory } from "../base/memory-kills.js";
import { monotonic } from "../base/monotonic.js";
import type { FatalModel } from "../models/set.js";
import type { RunningWork } from "./memory-watch.js";
import type { FromServing, ToServing } from "./process-messages.js";
import { forkServing } from "./serving-child.js";
import { exposures } from "../files/own-folders.js";
import { resolveRoots } from "../files/roots.js";
import { VERSION } from "../base/version.js";

/** When a serving process that ended is started again. */
const RESTART: BackOff = { first: 100, most: 10_000 };
/** A process that served this long was healthy: the next crash starts from the shortest delay. */
const HEALTHY_MS = 60_000;
/** Crashes before the first connection could be taken, after which starting again is given up. */
const MOST_FAILED_STARTS = 5;
/**
 * Connections that wait for the serving process, at least. It has the settings' limits, and tells
 * those that it refuses; whoever is too much here is closed.
 */
const ROOM: ConnectionLimits = { max_connections: 4096, max_connections_per_address: 1024 };
/** How often it is looked how many processes the system has ended for memory. */
const KILLS_LOOK_MS = 1_000;

/**
 * Ctrl-C under npm arrives twice, from the terminal and from npm: what comes so soon is the same.
 */
const SAME_SIGNAL_MS = 500;

function isRunning(child: ChildProcess | undefined): child is ChildProcess {
  return (
    child !== undefined && child.exitCode === null && child.signalCode === null && child.connected
  );
}

class Supervisor {
  #child: ChildProcess | undefined;
  #open = false;
  #everOpen = false;
  #openedAt = 0;
  #crashes = 0;
  #crashedLast = false;
  /** The model that the serving process loads now. */
  #loading: string | undefined;
  /** What the serving process said that it runs, while memory is short. */
  #running: RunningWork | undefined;
  #endedForMemory = false;
  /** Models that took a serving process with them: the next one goes on without them. */
  readonly #fatal = new Map<string, FatalModel["during"]>();
  /** How often a model ran when memory ran out. */
  readonly #ran = new Map<string, number>();
  /** Processes that the system had ended for memory at the last look, and at the one before. */
  #kills = killsForMemory();
  #killsBefore = this.#kills;
  #stopping = false;
  /** The serving process has said that it does not start. */
  #refused = false;
  #stoppingSince = 0;
  #lastId = 0;
  /** Connections that no serving process has confirmed, in the order of arrival. */
  readonly #waiting = new Map<number, { socket: net.Socket; leave: () => void }>();
  readonly #count: ConnectionCount;
  readonly #refusals: RefusedConnections;
  #finish: (status: number) => void = () => undefined;
  readonly finished = new Promise<number>((resolve) => {
    this.#finish = resolve;
  });

  constructor(
    private readonly config: Config,
    /** Where clients reach it. */
    private readonly address: string,
    private readonly log: Logger,
    private readonly callbacks: { onOpen: () => void; onClosing: () => void },
    /** A serving process that has been started already. */
    private first: ChildProcess | undefined,
  ) {
    const { max_connections: all, max_connections_per_address: ofAddress } = config;
    const limits = {
      max_connections: Math.max(all, ROOM.max_connections),
      max_connections_per_address: Math.max(ofAddress, ROOM.max_connections_per_address),
    };
    this.#count = new ConnectionCount(limits, new ClientAddresses(config.trusted_proxies));
    this.#refusals = new RefusedConnections(log);
    setInterval(() => {
      this.#killsBefore = this.#kills;
      this.#kills = killsForMemory();
    }, KILLS_LOOK_MS).unref();
  }

  start(): void {
    let child: ChildProcess;
    try {
      child = isRunning(this.first) ? this.first : forkServing();
    } catch (error) {
      this.#notStarted(error);
      return;
    }
    this.first = undefined;
    if (child.pid === undefined) {
      // What never began never exits, and may lack its streams and its channel
      child.once("error", (error) => this.#notStarted(error));
      return;
    }
    this.#child = child;
    child.on("message", (message) => this.#hear(message as FromServing));
    child.on("error", (error) =>
      this.log.error({ fault: error.name }, "the serving process could not be reached"),
    );
    child.on("exit", (status, signal) => this.#ended(status, signal));
    if (child.stderr !== null) logForeign(child.stderr, this.log, child.pid);
    this.#tell({
      type: "start",
      config: this.config,
      address: this.address,
      crashed: this.#crashedLast,
      forMemory: this.#endedForMemory,
      fatal: [...this.#fatal].map(([name, during]) => ({ name, during })),
    });
  }

  connect(socket: net.Socket): void {
    const address = plainAddress(socket.remoteAddress);
    const full = this.#count.whyFull(address);
    if (full !== undefined) {
      this.#refusals.note(full, { address });
      socket.destroy();
      return;
    }
    const id = (this.#lastId += 1);
    this.#waiting.set(id, { socket, leave: this.#count.add(address) });
    socket.on("error", () => socket.destroy());
    if (this.#open) this.#hand(id, socket);
  }

  reload(): void {
    this.log.info("reloading the models");
    // It tries them all again
    this.#fatal.clear();
    this.#ran.clear();
    this.#tell({ type: "reload" });
  }

  /** The first call finishes what was admitted; the second ends at once. */
  stop(): void {
    if (this.#stopping) {
      if (monotonic() - this.#stoppingSince >= SAME_SIGNAL_MS) this.#child?.kill("SIGKILL");
      return;
    }
    this.#stopping = true;
    this.#stoppingSince = monotonic();
    if (this.#child === undefined) {
      this.#finish(0);
      return;
    }
    this.#tell({ type: "stop" });
    const limit = longestStopSeconds(this.config) * 1000;
    setTimeout(() => this.#child?.kill("SIGKILL"), limit).unref();
  }

  #tell(message: ToServing): void {
    this.#child?.send(message, () => undefined);
  }

  /**
   * The connection stays open here until the other side says that it has it: one that was on its
   * way into a process that died goes to the next.
   */
  #hand(id: number, socket: net.Socket): void {
    const message: ToServing = { type: "connection", id };
    if (socket.destroyed) this.#forget(id);
    else this.#child?.send(message, socket, { keepOpen: true }, () => undefined);
  }

  #forget(id: number): void {
    const waiting = this.#waiting.get(id);
    waiting?.leave();
    waiting?.socket.destroy();
    this.#waiting.delete(id);
  }

  #hear(message: FromServing): void {
    if (message.type === "taken") {
      this.#forget(message.id);
    } else if (message.type === "loading") {
      this.#loading = message.model;
    } else if (message.type === "memory") {
      this.#running = message.running;
    } else if (message.type === "open") {
      this.#open = true;
      this.#openedAt = monotonic();
      if (!this.#everOpen) this.callbacks.onOpen();
      this.#everOpen = true;
      for (const [id, { socket }] of this.#waiting) this.#hand(id, socket);
    } else if (message.type === "closing") {
      if (this.#stopping) this.callbacks.onClosing();
    } else if (this.#everOpen) {
      // It has served with these settings: what is wrong now (a share away, a key file) may be
      // right again later.
      this.log.error(
        { reason: message.message },
        "the serving process cannot start as things are now",
      );
    } else {
      this.log.error({ reason: message.message }, "the server does not start");
      tellPeople(message.message);
      this.#stopping = true;
      this.#refused = true;
      this.#finish(message.passing ? 1 : 2);
    }
  }

  #ended(status: number | null, signal: NodeJS.Signals | null): void {
    this.#child = undefined;
    const wasOpen = this.#open;
    this.#open = false;
    if (this.#stopping) {
      if (status !== 0 && !this.#refused)
        this.log.error({ status, signal }, "the serving process did not end when asked");
      this.#finish(status ?? 1);
      return;
    }
    // A look may have come between its end and this
    const forMemory = signal === "SIGKILL" && killsForMemory() > this.#killsBefore;
    this.#endedForMemory = forMemory;
    // These signals come from outside: an operator, or a container's end
    this.#crashedLast = forMemory || (signal !== "SIGKILL" && signal !== "SIGTERM");
    if (this.#crashedLast && this.#loading !== undefined) {
      this.#fatal.set(this.#loading, "loaded");
      this.log.error(
        { model: this.#loading, memory: forMemory },
        "the serving process ended while it loaded this model",
      );
    } else if (forMemory && this.#running !== undefined) this.#blame(this.#running);
    this.#loading = undefined;
    this.#running = undefined;
    if (wasOpen && monotonic() - this.#openedAt > HEALTHY_MS) this.#crashes = 0;
    this.#startAgain(
      { status, signal, memory: forMemory },
      forMemory
        ? "the system ended the serving process because memory ran out; starting it again"
        : "the serving process ended; starting it again",
    );
  }

  /**
   * The system has no room for a process now, or its program is away. What the one before it ended
   * of stays known: none has run since.
   */
  #notStarted(error: unknown): void {
    if (this.#stopping) this.#finish(1);
    else
      this.#startAgain(
        { fault: faultForLog(error) },
        "the serving process could not be started; starting it again",
      );
  }

  #startAgain(why: object, message: string): void {
    this.#crashes += 1;
    if (!this.#everOpen && this.#crashes >= MOST_FAILED_STARTS) {
      tellPeople(
        "The serving process ended before it could serve, five times; its last lines say why.",
      );
      this.#finish(1);
      return;
    }
    const delay = backOff(this.#crashes, RESTART);
    this.log.error({ ...why, restart_in_ms: delay }, message);
    setTimeout(() => {
      if (!this.#stopping) this.start();
    }, delay);
  }

  /**
   * Memory ran out while this ran. A model that ran alone has taken it; of several, those that ran
   * the second time.
   */
  #blame({ models, requests }: RunningWork): void {
    for (const model of models) {
      const times = (this.#ran.get(model) ?? 0) + 1;
      this.#ran.set(model, times);
      if (times > 1 || models.length === 1) this.#fatal.set(model, "ran");
    }
    this.log.error(
      { models, requests, memory: true },
      "memory ran out while these models and requests ran",
    );
  }
}

/**
 * Checks the settings before anything is started.
 * @returns descriptors that features may take
 * @throws ConfigError
 */
async function checkedForServing(
  config: Config,
  checks: readonly CheckSettings[],
): Promise<number> {
  for (const [key, list] of [
    ["RADSERVE_INPUT_ROOTS", config.input_roots],
    ["RADSERVE_OUTPUT_ROOTS", config.output_roots],
  ] as const) {
    if (list.length === 0)
      throw new ConfigError(
        `${key}: expected at least one folder (colon-separated, absolute); found none. ` +
          "Nothing outside these folders is read or written, so there is no default.",
      );
    await resolveRoots(list, key);
  }
  requireMemory();
  requireFolder(config.models_dir, "RADSERVE_MODELS_DIR");
  if (!config.keys_dir_is_default) requireFolder(config.keys_dir, "RADSERVE_KEYS_DIR");
  const certificates = await readCertificates(config);
  if (certificates !== undefined) refuseOutOfDate(certificates);
  let descriptors = 0;
  for (const check of checks) descriptors += await check(config);
  const [exposure] = await exposures(config);
  if (exposure !== undefined)
    throw new ConfigError(
      `${exposure.setting}: expected folders apart from Radserve's own; ${exposure.found}. ${exposure.fix}`,
    );
  return descriptors;
}

/**
 * The settings with no more connections than there are descriptors for. Throws ConfigError where
 * there are too few.
 */
function withinDescriptors(config: Config, ofFeatures: number): Config {
  const most = connectionsWithin(descriptorLimit(), config.threads, ofFeatures);
  if (config.max_connections <= most) return config;
  const warning = `RADSERVE_MAX_CONNECTIONS is ${config.max_connections}, but this process may open ${descriptorLimit()} files: at most ${most} connections are taken. Raise the limit of open files.`;
  return { ...config, max_connections: most, warnings: [...config.warnings, warning] };
}

/**
 * Serves until SIGTERM or SIGINT. Gives the exit status.
 * @param first a serving process that waits to be told to start; the caller ends it where this
 * throws
 * @throws ConfigError before anything serves
 */
export async function supervise(
  given: Config,
  checks: readonly CheckSettings[],
  first?: ChildProcess,
): Promise<number> {
  const config = withinDescriptors(given, await checkedForServing(given, checks));
  let supervisor: Supervisor | undefined;
  // Before the lock says whom to signal: without it the signal would end the process
  process.on("SIGHUP", () => supervisor?.reload());
  makeStateDirectory(config.state_dir);
  const lock = lockState(config.state_dir);
  const server = net.createServer({ pauseOnConnect: true, noDelay: true });
  try {
    const { isNew: newKey, withheld } = await firstKeys(config);
    const { address, port } = await listen(server, config);
    const host = address === "0.0.0.0" || address === "::" ? "127.0.0.1" : address;
    const scheme = config.tls_cert === undefined ? "http" : "https";
    const url = `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
    const log = createLog(config.log_level);
    logWarnings(log);
    process.on("uncaughtException", (error) => {
      logLast(
        { fault: faultForLog(error) },
        "uncaught: the supervisor ends, and the serving process with it",
      );
      process.exit(1);
    });
    for (const warning of config.warnings) log.warn(warning);
    if (withheld !== undefined)
      log.error(`the keys folder is empty, and no key is made: ${withheld}`);
    const onOpen = () => {
      log.info(
        { version: VERSION, address, port, providers: config.providers, threads: config.threads },
        "serving",
      );
      tellPeople(
        `Radserve ${VERSION} serves on ${url} (state: ${config.state_dir}). ` +
          `${newKey ? "Its first key was created. " : ""}A token: radserve token issue --subject NAME`,
      );
    };
    const supervising = new Supervisor(
      config,
      host === "127.0.0.1" && host !== config.host ? url.replace(host, os.hostname()) : url,
      log,
      { onOpen, onClosing: () => server.close() },
      first,
    );
    supervisor = supervising;
    server.on("connection", (socket) => supervising.connect(socket));
    process.on("SIGTERM", () => supervising.stop());
    process.on("SIGINT", () => supervising.stop());
    supervising.start();
    return await supervising.finished;
  } finally {
    server.close();
    lock.release();
  }
}
