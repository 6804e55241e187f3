/**
 * The bulk queue as the serving process sees it: calls go to the bulk thread and answers come back;
 * the images it asks for go to the worker threads. The thread starts when it is first needed, and
 * again when it dies.
 */
import { randomUUID } from "node:crypto";
import { giveBackOfThread } from "../addon/bytes.js";
import { Action } from "../audit/action.js";
import type { Audit } from "../audit/audit.js";
import type { Config } from "../config.js";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { asRadserveError, errors } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { ServiceThread, ThreadEnded } from "../base/service-thread.js";
import { within } from "../base/waiting.js";
import type { Progress } from "../engine/types.js";
import type { JobProgress } from "./schema.js";
import type { KnownDestinations } from "../inference/request.js";
import type { InferencePool } from "../inference/worker-pool.js";
import type { KnownModels } from "../models/entry.js";
import type { OperationName } from "./api.js";
import type { BulkAnswer, BulkCall } from "./call.js";
import type {
  BulkFigures,
  FromThread,
  ItemOutcome,
  ItemToRun,
  BulkThreadOptions,
  ToThread,
} from "./messages.js";
import { BulkUnavailable } from "./database-trouble.js";
import { noDatabase } from "./local-database.js";

const FIRST_DELAY_MS = 200;
const LONGEST_DELAY_MS = 30_000;
/** A thread that lived this long was healthy. */
const HEALTHY_MS = 60_000;
/**
 * How many items are taken beyond those that run, so that no worker thread waits for the database.
 */
const AHEAD_PER_THREAD = 2;
/** How long the thread may take to write down what has ended. */
const LAST_WAIT_MS = 5_000;
/** The thread forgets old jobs when it starts, so it starts at least so often. */
const LONGEST_REST_MS = 86_400_000;

export interface BulkOptions {
  config: Config;
  roots: { input: string[]; output: string[] };
  /** Those of the settings, once all features have started. */
  destinations: () => KnownDestinations | undefined;
  /** Whether there is one for jobs, once all features have started. */
  hasDatabase: () => boolean;
  pool: InferencePool;
  models: KnownModels & { ready(): boolean; loaded: Promise<void> };
  log: Logger;
  audit: Audit;
  /** How far the work with a cancel id is that goes window by window. */
  progress: (cancelId: number) => Progress | undefined;
  /** The process before this one ended by its own fault. */
  crashed: boolean;
}

export class BulkService {
  readonly #thread: ServiceThread<ToThread, BulkAnswer | undefined>;
  /** The pool's number of an item and what it is, by the thread's number of it. */
  readonly #running = new Map<number, { cancelId: number; item: ItemToRun["item"] }>();
  #startedAt = 0;
  #deaths = 0;
  #stopping = false;
  #figures: BulkFigures = {
    open: 0,
    queued: 0,
    running: 0,
    paused: 0,
    paused_for: {},
    left_alone: {},
    ended: {},
    nodes: [],
    trouble: null,
  };
  #calledAt = 0;
  /** Resolves when the thread that ends has ended. */
  #leaving: Promise<void> | undefined;
  #waking: NodeJS.Timeout | undefined;
  /** How many items ended in each state since this process began. */
  readonly #ended: Record<string, number> = {};

  constructor(private readonly options: BulkOptions) {
    const { config, roots, destinations, pool, crashed, log } = options;
    this.#thread = new ServiceThread({
      file: new URL("../jobs-thread.js", import.meta.url),
      workerData: {
        config,
        roots,
        // Read when the thread starts
        get destinations() {
          return destinations();
        },
        crashed,
        processId: randomUUID(),
        window: pool.bulkWidth + config.threads * AHEAD_PER_THREAD,
      } satisfies Omit<BulkThreadOptions, "memory">,
      places: pool.places,
      answering: (message: FromThread) => this.#hear(message),
      failed: (error) => log.error({ fault: faultForLog(error) }, "the bulk thread failed"),
      died: () => this.#died(),
      exited: giveBackOfThread,
    });
  }

  /** True once anybody has asked for jobs, or there may be some to go on with. */
  get isOpen(): boolean {
    return this.#startedAt > 0;
  }

  get figures(): BulkFigures {
    return this.#figures;
  }

  /** Models were loaded or reloaded. */
  tellModels(): void {
    const { models } = this.options;
    const problems = models.problems.map(({ name, error }) => ({ name, error }));
    this.#thread.note({
      type: "models",
      models: { entries: [...models.entries], problems },
      ready: models.ready(),
    });
  }

  /** @throws RadserveError what the endpoint documents */
  async call(operation: OperationName, call: Omit<BulkCall, "progress">): Promise<BulkAnswer> {
    if (!this.options.hasDatabase()) throw noDatabase();
    this.#calledAt = monotonic();
    // One that goes to rest is not to be asked; the next takes over the database
    await this.#leaving;
    if (this.#stopping) throw errors.shutting_down("The server is stopping.");
    this.start();
    try {
      const whole = { ...call, progress: this.#progressOf(call.jobId) };
      return (await this.#thread.call({ type: "call", operation, call: whole })) as BulkAnswer;
    } catch (error) {
      if (!(error instanceof ThreadEnded)) throw error;
      throw new BulkUnavailable(
        "The bulk queue is starting again.",
        "Send the request again shortly.",
      );
    }
  }

  #progressOf(jobId: string): JobProgress[] {
    return [...this.#running.values()].flatMap(({ cancelId, item }) => {
      if (item.job_id !== jobId) return [];
      const progress = this.options.progress(cancelId);
      return progress === undefined
        ? []
        : { index: item.item, windows_done: progress.done, windows: progress.windows };
    });
  }

  /** Takes no more items; those that run go on. */
  stop(): void {
    this.#stopping = true;
    this.#thread.note({ type: "stop" });
  }

  /** Waits until everything is written down and given back, and ends the thread. */
  async close(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#waking);
    await this.#leave();
  }

  /**
   * Ends the thread when all is written down, and the node's own database with it. Repeated calls
   * wait for the same end.
   */
  #leave(): Promise<void> {
    if (!this.#thread.isRunning && this.#leaving === undefined) return Promise.resolve();
    this.#leaving ??= (async () => {
      await within(
        this.#thread.call({ type: "close" }).catch(() => undefined),
        LAST_WAIT_MS,
      );
      await this.#thread.end();
      this.#forget();
      // It is alive no more
      this.#figures = { ...this.#figures, nodes: [] };
      this.#leaving = undefined;
    })();
    return this.#leaving;
  }

  /**
   * Ends what only costs while no job is open; the next call starts it again within a second or
   * two.
   */
  #restIfIdle(): void {
    if (this.options.config.database_url !== undefined || this.#figures.open > 0) return;
    if (this.#thread.pending > 0 || this.#running.size > 0) return;
    if (
      this.#leaving !== undefined ||
      monotonic() - Math.max(this.#calledAt, this.#startedAt) < durations.bulkRest
    )
      return;
    this.options.log.info("no bulk job is open: the bulk database rests until the next call");
    void this.#leave();
    this.#waking = setTimeout(() => this.start(), LONGEST_REST_MS).unref();
  }

  /** Starts the thread, also before anybody asks, because there may be jobs to go on with. */
  start(): void {
    if (this.#thread.isRunning || this.#stopping) return;
    clearTimeout(this.#waking);
    this.#thread.start();
    this.#startedAt = monotonic();
    void this.options.models.loaded.then(() => this.tellModels());
  }

  /** Nothing that a thread has asked for concerns the next one. */
  #forget(): void {
    for (const { cancelId } of this.#running.values()) this.options.pool.cancel(cancelId);
    this.#running.clear();
  }

  #died(): void {
    this.#forget();
    // If it was told to end, whoever waits for that has it now
    if (this.#leaving !== undefined || this.#stopping) return;
    this.#deaths = monotonic() - this.#startedAt > HEALTHY_MS ? 1 : this.#deaths + 1;
    const wait = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** (this.#deaths - 1));
    this.options.log.error({ restart_in_ms: wait }, "the bulk thread ended; starting it again");
    setTimeout(() => this.start(), wait).unref();
  }

  #hear(message: FromThread): void {
    if (message.type === "run") for (const item of message.items) void this.#run(item);
    else if (message.type === "cancel") {
      const running = this.#running.get(message.id);
      if (running !== undefined) this.options.pool.cancel(running.cancelId);
    } else if (message.type === "figures") {
      for (const [state, items] of Object.entries(message.ended))
        this.#ended[state] = (this.#ended[state] ?? 0) + items;
      this.#figures = { ...message.figures, ended: { ...this.#ended } };
      this.#restIfIdle();
    } else this.#figures = { ...this.#figures, trouble: message.trouble };
  }

  async #run({ id, item, task }: ItemToRun): Promise<void> {
    const { pool, audit } = this.options;
    const paths = { inputPath: task.inputPath, outputPath: task.outputFolder };
    const action = new Action(audit, { kind: "item", ...item, ...paths });
    const cancelId = pool.newCancelId();
    this.#running.set(id, { cancelId, item });
    let outcome: ItemOutcome;
    try {
      const run = { ...task, cancelId, priority: "bulk" as const };
      outcome = { ok: true, result: await pool.runForSummary(run, action) };
    } catch (thrown) {
      const error = asRadserveError(thrown);
      const code = errno(error.cause);
      outcome = { ok: false, error: error.toObject(), ...(code === "" ? {} : { errno: code }) };
      // Nothing was committed: a line that cannot be written holds up nothing
      action.failed(error.code).catch(() => undefined);
    }
    // The thread that asked has ended: the next one begins its numbers anew, and means another item
    // by this one
    if (this.#running.get(id)?.cancelId !== cancelId) return;
    this.#running.delete(id);
    this.#thread.note({ type: "ended", id, outcome });
  }
}
