/**
 * The bulk queue as the serving process sees it: calls go to the bulk thread and answers come back;
 * the images it asks for go to the worker threads. The thread starts when it is first needed, and
 * again when it dies.
 */
import { randomUUID } from "node:crypto";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { giveBackOfThread } from "../addon/bytes.js";
import { Action } from "../audit/action.js";
import type { Audit } from "../audit/audit.js";
import type { Config } from "../config.js";
import { backOff, type BackOff } from "../base/back-off.js";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { asRadserveError, errors } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { moved } from "../base/remote.js";
import { ServiceThread } from "../base/service-thread.js";
import { within } from "../base/waiting.js";
import type { Progress } from "../engine/types.js";
import type { JobProgress } from "./schema.js";
import type { KnownDestinations } from "../inference/request.js";
import type { InferencePool } from "../inference/worker-pool.js";
import type { KnownModels } from "../models/entry.js";
import type { OperationName } from "./api.js";
import type { BulkAnswer, BulkCall, Caller, Submitted } from "./call.js";
import type {
  BulkFigures,
  JobsOwner,
  JobsThread,
  ItemOutcome,
  ItemToRun,
  OwnFacts,
  BulkThreadOptions,
} from "./messages.js";
import { unlessEnded } from "./database-trouble.js";
import { noDatabase } from "./local-database.js";

/** When a thread that ended is started again. */
const RESTART: BackOff = { first: 200, most: 30_000 };
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
  /** Where clients reach this node. */
  address: string;
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
  /** The system ended it because memory ran out. */
  forMemory: boolean;
}

export class BulkService {
  readonly #thread: ServiceThread<JobsThread, JobsOwner>;
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
    lost: [],
    ended: {},
    nodes: [],
    self: null,
    trouble: null,
  };
  #facts: OwnFacts | undefined;
  #resting = false;
  #calledAt = 0;
  /** Resolves when the thread that ends has ended. */
  #leaving: Promise<void> | undefined;
  #waking: NodeJS.Timeout | undefined;
  /** How many items ended in each state since this process began. */
  readonly #ended: Record<string, number> = {};

  constructor(private readonly options: BulkOptions) {
    const { config, address, roots, destinations, pool, crashed, forMemory, log } = options;
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
        forMemory,
        address,
        processId: randomUUID(),
        window: pool.bulkWidth + config.threads * AHEAD_PER_THREAD,
      } satisfies Omit<BulkThreadOptions, "memory">,
      places: pool.places,
      owner: this.#owner(),
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
    this.#thread.note.useModels({ entries: [...models.entries], problems }, models.ready());
  }

  /** What this node has now, for the others. */
  tellFacts(facts: OwnFacts): void {
    if (JSON.stringify(facts) === JSON.stringify(this.#facts)) return;
    this.#facts = facts;
    if (this.#thread.isRunning) this.#thread.note.useFacts(facts);
  }

  /** @throws RadserveError what the endpoint documents */
  call(operation: OperationName, call: Omit<BulkCall, "progress">): Promise<BulkAnswer> {
    return this.#ask(() => {
      const whole = { ...call, progress: this.#progressOf(call.jobId) };
      return this.#thread.call.perform(operation, whole);
    });
  }

  /** Keeps a job that the server itself makes. @throws RadserveError of the endpoint of jobs */
  submit(caller: Caller, request: Record<string, unknown>): Promise<Submitted> {
    return this.#ask(() => this.#thread.call.submit(caller, request));
  }

  /** A line for another thread to that of the jobs, which ends with it. */
  line(): Promise<MessagePort> {
    return this.#ask(() => {
      const { port1, port2 } = new MessageChannel();
      this.#thread.note.answerOn(moved(port1, [port1]));
      return Promise.resolve(moved(port2, [port2]));
    });
  }

  async #ask<T>(question: () => Promise<T>): Promise<T> {
    if (!this.options.hasDatabase()) throw noDatabase();
    this.#calledAt = monotonic();
    // One that goes to rest is not to be asked; the next takes over the database
    await this.#leaving;
    if (this.#stopping) throw errors.shutting_down("The server is stopping.");
    this.start();
    return unlessEnded(question());
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

  /** Takes no more items; those that run go on, and calls are answered. */
  rest(): void {
    this.#resting = true;
    if (this.#thread.isRunning) this.#thread.note.stop();
  }

  /** Answers no more calls. */
  stop(): void {
    this.#stopping = true;
    this.rest();
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
        this.#thread.call.close().catch(() => undefined),
        LAST_WAIT_MS,
      );
      await this.#thread.end();
      this.#forget();
      // It is alive no more
      this.#figures = { ...this.#figures, nodes: [], self: null };
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
    if (this.#facts !== undefined) this.#thread.note.useFacts(this.#facts);
    if (this.#resting) this.#thread.note.stop();
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
    const wait = backOff(this.#deaths, RESTART);
    // Of one that the system refuses, to each call anew, `failed` has told
    if (!this.#thread.isRefused)
      this.options.log.error({ restart_in_ms: wait }, "the bulk thread ended; starting it again");
    // A thread that is refused to several calls is still tried again by one timer
    clearTimeout(this.#waking);
    this.#waking = setTimeout(() => this.start(), wait).unref();
  }

  #owner(): JobsOwner {
    return {
      run: (items) => {
        for (const item of items) void this.#run(item);
      },
      cancel: (id) => {
        const running = this.#running.get(id);
        if (running !== undefined) this.options.pool.cancel(running.cancelId);
      },
      pinned: (job_id, subject, { release, models }) => {
        const audited = Object.entries(models).map(([name, { version, sha256, state }]) => ({
          name,
          version,
          sha256,
          status: state,
        }));
        const about = {
          kind: "pinned",
          job_id,
          subject,
          version: release,
          models: audited,
        } as const;
        // The log and the job say it too
        new Action(this.options.audit, about).done().catch(() => undefined);
      },
      figures: (figures, ended) => {
        for (const [state, items] of Object.entries(ended))
          this.#ended[state] = (this.#ended[state] ?? 0) + items;
        this.#figures = { ...figures, ended: { ...this.#ended } };
        this.#restIfIdle();
      },
      trouble: (trouble) => {
        this.#figures = { ...this.#figures, trouble };
      },
    };
  }

  async #run({ id, item, task }: ItemToRun): Promise<void> {
    const { pool, audit } = this.options;
    const paths = { inputPath: task.inputPath, outputPath: task.outputFolder };
    const action = new Action(audit, { kind: "item", ...item, ...paths });
    const cancelId = pool.newCancelId();
    this.#running.set(id, { cancelId, item });
    let outcome: ItemOutcome;
    try {
      const result = await pool.runForSummary({ ...task, cancelId }, item.subject, action);
      outcome = { ok: true, result };
    } catch (thrown) {
      const error = asRadserveError(thrown);
      const code = errno(error.cause);
      outcome = { ok: false, error: error.toObject(), ...(code === "" ? {} : { errno: code }) };
      // Nothing was committed: a line that cannot be written holds up nothing
      action.failed(error).catch(() => undefined);
    }
    // The thread that asked has ended: the next one begins its numbers anew, and means another item
    // by this one
    if (this.#running.get(id)?.cancelId !== cancelId) return;
    this.#running.delete(id);
    this.#thread.note.ended(id, outcome);
  }
}
