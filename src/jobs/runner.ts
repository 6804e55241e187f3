/**
 * Keeps this node busy with items: takes as many as the worker threads can hold, sends them there,
 * and writes down what became of them. It runs in the bulk thread; the images are read and inferred
 * elsewhere.
 */
import { randomUUID } from "node:crypto";
import { stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { backOff, spread, type BackOff } from "../base/back-off.js";
import { durations } from "../base/durations.js";
import { asRadserveError } from "../base/errors.js";
import { faultForLog } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import type { Notes } from "../base/remote.js";
import { within } from "../base/waiting.js";
import { openOutputFolder } from "../files/guarded-paths.js";
import { NameLock } from "../files/name-lock.js";
import { narrowRoots, type Root } from "../files/roots.js";
import { patiently } from "../files/usable.js";
import { taskOf } from "../inference/task.js";
import { withName } from "../results/commit/commit.js";
import {
  beat,
  enter,
  freeSilent,
  leave,
  type NodeContext,
  type FreedItem,
  type Instance,
  type NodeFacts,
} from "./nodes.js";
import { takeOverRelease, UnrunnableJobs } from "./pin-anew.js";
import { pinsText, type Pins } from "./pins.js";
import { clockOffset } from "./clock-offset.js";
import { conclude } from "./conclude.js";
import type { WriteReport } from "./feature.js";
import { asUnavailable, isTableLoss } from "./database.js";
import { BulkUnavailable } from "./database-trouble.js";
import { pathsOf, type ItemPaths } from "./item-paths.js";
import {
  cancelledAmong,
  lease,
  ownItems,
  hinderJob,
  settle,
  someSuspect,
  tidy,
  type LeasedItem,
  type Settled,
} from "./leases.js";
import type { KnownJobs } from "./known-jobs.js";
import { traced, type JobRequest } from "./jobs.js";
import { markAgain, OUTPUT_REPLACED } from "./mark-again.js";
import { LookAhead } from "./look-ahead.js";
import type { JobsOwner, ItemOutcome, ItemToRun } from "./messages.js";
import { lookAgain, mayBeElsewhere, MISSING_HERE } from "./missing-images.js";
import {
  judge,
  NOT_RUN,
  SHARE_SILENT,
  withinBase,
  type JudgedItem,
  type Pause,
} from "./outcome.js";

/**
 * When the database is tried again. With the wait for a lock before it, the longest is shorter than
 * the time after which a node counts as silent.
 */
const RETRY: BackOff = { first: 200, most: 2_000 };
/**
 * How long what a dead process left may take to remove: longer than the lease of an owner on
 * another machine.
 */
const CLEAR_MS = 60_000;
/** How an image ends that did not stop by itself, too. */
const STOPPED = new Set(["cancelled", "deadline_exceeded"]);
/** How long the node waits, when it stops, until a report that was begun is given up. */
const LAST_REPORT_MS = 1_000;

/** How often it is looked whether the node is cut off: a question may hang for a minute. */
const CUT_OFF_LOOK_MS = 1_000;

const LEFT_TO_OTHERS = { ...NOT_RUN, why: MISSING_HERE } as const;

export interface RunnerOptions extends NodeContext {
  window: number;
  instance: () => Instance;
  owner: Pick<Notes<JobsOwner>, "run" | "cancel" | "pinned">;
  known: KnownJobs;
  /** The models are loaded and every required one passed its check. */
  ready: () => boolean;
  /** What this node has; another object when it has changed. */
  facts: () => NodeFacts;
  /** What this node has now of the models that a request names. */
  pinsOf: (request: JobRequest) => Promise<Pins>;
  /** Makes tables that are gone anew. @param jobs those that this node worked on */
  repair: (jobs: readonly string[]) => Promise<void>;
  /** Says so if the tables are not those that this node knew. */
  recognise: () => Promise<void>;
  /** Told when the database knows this node. */
  entered: () => void;
  /** Undefined where jobs have no reports. */
  writeReport: WriteReport | undefined;
}

/** An item that a worker thread has, or is about to get. */
interface ItemInFlight {
  item: LeasedItem;
  paths: ItemPaths;
}

/** Where an item may read and write, or why its job has to wait. */
interface RunnerBounds {
  input: Root[];
  output: Root[] | Pause;
}

const SILENT: JudgedItem = { ending: NOT_RUN, pause: SHARE_SILENT };

/** Undefined where the folder does not answer. */
const isNameTaken = ({ outputFolder, name }: ItemPaths): Promise<boolean | undefined> =>
  patiently(`name ${outputFolder}/${name}`, () => NameLock.isTaken(outputFolder, name));

let lastId = 0;

export class Runner {
  readonly #inFlight = new Map<number, ItemInFlight>();
  /** Items that have ended and are not written down yet. */
  readonly #settled: Settled[] = [];
  readonly #lookAhead: LookAhead;
  readonly #pauses = new Map<string, Pause>();
  /** Jobs of which this node has left images to others, because it does not find them. */
  #jobsLeftToOthers = new Set<string>();
  #counts: Record<string, number> = {};
  #instance: Instance | undefined;
  #stopping = false;
  readonly #closing = new AbortController();
  /** Aborted when the next round is to begin. */
  #alarm = new AbortController();
  #writeSoon: NodeJS.Timeout | undefined;
  #failures = 0;
  #beatAt = 0;
  /** When this node could reach the database again, after it had been silent itself. */
  #backAt = -Infinity;
  /** The facts that the database has. */
  #told: NodeFacts | undefined;
  #toldReady = false;
  #clockOffset: number | undefined;
  #tidyAt = 0;
  #checkCancelled = false;
  readonly #unrunnable = new UnrunnableJobs();
  #concluding: Promise<void> | undefined;
  #marking = false;
  #loop: Promise<void> | undefined;
  #cutOffLook: NodeJS.Timeout | undefined;

  constructor(private readonly options: RunnerOptions) {
    this.#lookAhead = new LookAhead(options.window);
  }

  start(): void {
    this.#loop ??= this.#run();
    this.#cutOffLook ??= setInterval(() => this.#endIfCutOff(), CUT_OFF_LOOK_MS).unref();
  }

  /**
   * Begins a round at once, unless the database fails. @param cancelled jobs may have been
   * cancelled
   */
  wake(cancelled = false): void {
    this.#checkCancelled ||= cancelled;
    this.#alarm.abort();
  }

  /** This node, as the database knows it; undefined while it does not. */
  get instance(): Instance | undefined {
    return this.#instance;
  }

  /** How many items ended in each state since the last call. */
  takeCounts(): Record<string, number> {
    const counts = this.#counts;
    this.#counts = {};
    return counts;
  }

  /** Takes no more items. */
  stop(): void {
    this.#stopping = true;
    this.wake();
  }

  /** Writes down what has ended, gives back what has not, and leaves. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.stop();
    await this.#loop;
    clearInterval(this.#cutOffLook);
  }

  /** A worker thread is done with an item. */
  async ended(id: number, outcome: ItemOutcome): Promise<void> {
    const found = this.#inFlight.get(id);
    if (found === undefined) return;
    const { roots, log } = this.options;
    try {
      const judged = await patiently(`item ${id}`, () => judge(outcome, { ...found, roots }));
      if (judged === undefined) {
        this.#end(id, SILENT);
        return;
      }
      this.#end(id, judged);
      const { ending } = judged;
      // Its thread may have been ended in the midst of it, and nobody takes its name again
      if (!outcome.ok && ending.state !== "queued" && STOPPED.has(outcome.error.error))
        this.#clear(found.item);
    } catch (error) {
      log.error({ fault: faultForLog(error) }, "an item's end could not be judged");
      this.#end(id, { ending: { state: "queued", afterSeconds: 5, counts: true } });
    }
  }

  #end(id: number, { ending, missing, pause }: JudgedItem): void {
    const item = this.#inFlight.get(id)?.item;
    if (item === undefined) return;
    this.#inFlight.delete(id);
    this.#settled.push({ item, ending, missing });
    if (pause !== undefined) this.#pauses.set(item.job_id, pause);
    // Written down with others, unless the threads will soon want more
    if (this.#inFlight.size < this.#lookAhead.low) this.wake();
    else this.#writeSoon ??= setTimeout(() => this.wake(), durations.itemsAhead);
  }

  async #run(): Promise<void> {
    for (;;) {
      this.#alarm = new AbortController();
      try {
        await this.#round();
        this.#failures = 0;
        this.options.troubles.well();
      } catch (error) {
        await this.#failed(error);
      }
      if (this.#closing.signal.aborted && (await this.#leave())) return;
      await this.#rest();
    }
  }

  async #failed(error: unknown): Promise<void> {
    const { database, log, troubles, repair } = this.options;
    this.#failures += 1;
    await this.options.known.keep();
    log.warn({ fault: faultForLog(error) }, "the database of the bulk queue failed; trying again");
    const known = asUnavailable(error, database.connection);
    if (known instanceof BulkUnavailable) troubles.failed(database.problem() ?? known);
    if (!isTableLoss(error)) return;
    await repair([...this.#jobs()]).catch((fault: unknown) =>
      log.error({ fault: faultForLog(fault) }, "the bulk tables could not be made again"),
    );
  }

  /** Ends the work on all items, which are of other nodes, or soon are. */
  #endAll(): void {
    for (const id of this.#inFlight.keys()) this.options.owner.cancel(id);
    this.#inFlight.clear();
  }

  /**
   * A node that has not reached a shared database for so long ends its work: a job whose items went
   * to other nodes may have been given other versions since, and what this one still wrote would
   * lie over their results.
   */
  #endIfCutOff(): void {
    const { config, log } = this.options;
    const isShared = config.database_url !== undefined;
    const silent = monotonic() - this.#beatAt;
    const items = this.#inFlight.size;
    if (!isShared || items === 0 || silent < durations.nodeLease + durations.jobPinAnew) return;
    log.warn(
      { items },
      "cut off from the database for so long that other nodes may have the items with other versions: their work is ended here",
    );
    this.#endAll();
  }

  async #rest(): Promise<void> {
    const failing = this.#failures > 0;
    const milliseconds = failing ? spread(backOff(this.#failures, RETRY)) : durations.bulkPoll;
    // While the database fails only close() ends the wait, and after it nothing does
    const signal = failing ? this.#closing.signal : this.#alarm.signal;
    const options = failing && signal.aborted ? {} : { signal };
    await delay(milliseconds, undefined, options).catch(() => undefined);
  }

  /** One round of the loop; nothing else speaks to the database for this runner. */
  async #round(): Promise<void> {
    const { database, ready } = this.options;
    const instance = await this.#alive();
    await this.#settle(instance);
    const isTidyDue = monotonic() - this.#tidyAt > durations.nodeBeat;
    if (this.#checkCancelled || isTidyDue) await this.#stopCancelled();
    if (isTidyDue) {
      this.#tidyAt = monotonic();
      // What cut this node off may have cut off the others: they have time to come back, too
      if (monotonic() - this.#backAt > durations.nodeLease)
        this.#clearEnded(await freeSilent(database.pool, instance));
      if (instance.works) await this.#pinAnew(instance);
      await tidy(database.pool);
      const left = await lookAgain(database.pool, instance, [...this.#jobsLeftToOthers]);
      this.#jobsLeftToOthers = new Set(left);
      await this.#giveBackUnheard(instance);
      if (instance.works) this.#conclude(instance);
    }
    if (instance.works && !this.#stopping && ready()) await this.#take(instance);
  }

  /** Jobs of which nothing was done, and that no node can run any more, go on. */
  async #pinAnew(instance: Instance): Promise<void> {
    const { config, database, log, owner, pinsOf } = this.options;
    if (config.database_url === undefined) await takeOverRelease(database.pool);
    if (!this.#isReady) return;
    const found = await this.#unrunnable.pinAnew(database.pool, instance, pinsOf);
    for (const { id: job, subject, pins, before } of found) {
      log.warn(
        { job, with: pinsText(pins), before: pinsText(before) },
        "no node has what a bulk job was submitted with, and nothing of it was done: it goes on with what this node has",
      );
      owner.pinned(job, subject, pins);
    }
  }

  /**
   * Says that this node lives. If it was taken for dead, its items are others' now and it begins
   * anew.
   */
  async #alive(): Promise<Instance> {
    const { database, log, recognise, facts } = this.options;
    const at = monotonic();
    const now = facts();
    if (this.#instance !== undefined) {
      const same = now === this.#told && this.#isReady === this.#toldReady;
      if (same && at - this.#beatAt < durations.nodeBeat) return this.#instance;
      if (await this.#beat(this.#instance, now)) {
        const back = monotonic();
        // The last sign of another may be older by the time between two
        if (back - this.#beatAt > durations.nodeLease - durations.nodeBeat) this.#backAt = back;
        this.#beatAt = at;
        await this.#look(this.#instance);
        return this.#instance;
      }
      log.warn(
        { items: this.#inFlight.size },
        "silent for too long: the items went to other nodes",
      );
      this.#endAll();
      this.#settled.length = 0;
      this.#instance = undefined;
      await recognise();
    }
    const instance = this.options.instance();
    this.#beatAt = monotonic();
    if (this.#failures > 0) this.#backAt = this.#beatAt;
    const ready = this.#isReady;
    const freed = await enter(database.pool, instance, ready, now);
    [this.#told, this.#toldReady] = [now, ready];
    this.#instance = instance;
    await this.#look(instance);
    if (freed.length > 0)
      log.warn({ items: freed.length }, "items of a process that ended run again");
    this.#clearEnded(freed);
    this.options.entered();
    return instance;
  }

  /** It takes items: one that stops leaves them to others. */
  get #isReady(): boolean {
    return this.options.ready() && !this.#stopping;
  }

  /**
   * Tells the database that this node lives, and what has changed; and compares the clocks.
   * @returns false if it was taken for dead meanwhile
   */
  async #beat(instance: Instance, facts: NodeFacts): Promise<boolean> {
    const { pool } = this.options.database;
    const changed = facts === this.#told ? undefined : facts;
    const ready = this.#isReady;
    const asked = monotonic();
    const at = await beat(pool, instance, ready, changed, this.#clockOffset);
    if (at === undefined) return false;
    [this.#told, this.#toldReady] = [facts, ready];
    this.#clockOffset = clockOffset(asked, at) ?? this.#clockOffset;
    return true;
  }

  /** Says so if the tables lack jobs that this node knows. */
  async #look({ name }: Instance): Promise<void> {
    const { database, known, log } = this.options;
    const lost = await known.look(database.pool, name);
    if (lost.length === 0) return;
    log.error(
      { lost_jobs: lost },
      "the database is older than it was: a backup was put back, or a standby has taken over that had not heard of everything. Send these jobs again; only what is missing is computed",
    );
  }

  /** Nobody will take the names of items that do not run again. */
  #clearEnded(freed: readonly FreedItem[]): void {
    for (const item of freed) if (item.state !== "queued") this.#clear(item);
  }

  /**
   * Takes the name of an item, and so removes what a dead process left under it; nothing waits for
   * that.
   */
  #clear(item: Pick<FreedItem, "input" | "output" | "request">): void {
    this.#takeName(item).catch((error: unknown) =>
      this.options.log.warn(
        { fault: faultForLog(error) },
        "what a dead process left could not be removed",
      ),
    );
  }

  async #takeName(item: Pick<FreedItem, "input" | "output" | "request">): Promise<void> {
    const { config, roots } = this.options;
    const { name, outputFolder } = pathsOf(item.request, item, config.path_map);
    const found = await stat(outputFolder).catch(() => undefined);
    if (found?.isDirectory() !== true) return;
    const output = await openOutputFolder(outputFolder, roots.output, { create: false });
    try {
      const limits = { deadline: monotonic() + CLEAR_MS };
      await withName(output.fdPath, name, limits, () => Promise.resolve());
    } finally {
      output.close();
    }
  }

  /** Nothing waits for it: the folders may lie on a share that does not answer. */
  #conclude(instance: Instance): void {
    const { config, roots, database, log } = this.options;
    const stopped = () => this.#closing.signal.aborted;
    const context = { config, roots, database, log, stopped, instance };
    this.#concluding ??= conclude(context, this.options.writeReport).finally(
      () => (this.#concluding = undefined),
    );
  }

  async #settle(instance: Instance): Promise<void> {
    const { database, log, config } = this.options;
    clearTimeout(this.#writeSoon);
    this.#writeSoon = undefined;
    if (this.#settled.length === 0) return;
    const settled = await this.#leftToOthers([...this.#settled], instance);
    this.#lookAhead.ended(settled.length);
    for (const [job, pause] of Array.from(this.#pauses)) {
      const paused = await hinderJob(database.pool, job, pause, instance);
      this.#pauses.delete(job);
      if (pause.code === OUTPUT_REPLACED) this.#markAgain(job);
      log.warn(
        { job, reason: pause.code },
        paused ? "a bulk job waits" : "a bulk job is left to other nodes",
      );
    }
    const busy = this.#jobs(settled.length);
    await settle(database.pool, instance, settled, busy, config.pause_after_failures);
    this.#settled.splice(0, settled.length);
    for (const { ending } of settled)
      if (ending.state !== "queued")
        this.#counts[ending.state] = (this.#counts[ending.state] ?? 0) + 1;
    // The last item of a job may have been among them
    if (this.#inFlight.size === 0) this.#conclude(instance);
  }

  /** What this node does not find, and another may, does not fail here. */
  async #leftToOthers(ended: readonly Settled[], instance: Instance): Promise<Settled[]> {
    const missing = ended.flatMap((one) => (one.missing === true ? [one.item] : []));
    const left = await mayBeElsewhere(this.options.database.pool, instance, missing);
    for (const { job_id } of left) this.#jobsLeftToOthers.add(job_id);
    return ended.map((one) => (left.has(one.item) ? { ...one, ending: LEFT_TO_OTHERS } : one));
  }

  /** Nothing waits for it: many results may have to be read. One job at a time. */
  #markAgain(job: string): void {
    if (this.#marking) return;
    this.#marking = true;
    void this.#lookForOwn(job).finally(() => (this.#marking = false));
  }

  async #lookForOwn(job: string): Promise<void> {
    const { log } = this.options;
    try {
      if (!(await markAgain(job, this.options))) return;
      log.warn(
        { job },
        "an output folder had no mark, and holds what its job has written: it has its mark again",
      );
      this.wake();
    } catch (error) {
      log.debug({ fault: faultForLog(error) }, "a folder without its mark could not be looked at");
    }
  }

  /**
   * The jobs of items in flight, and of those that are not written down yet but for the first
   * `from`.
   */
  #jobs(from = 0): Set<string> {
    const items = [...this.#inFlight.values(), ...this.#settled.slice(from)];
    return new Set(items.map(({ item }) => item.job_id));
  }

  async #stopCancelled(): Promise<void> {
    this.#checkCancelled = false;
    if (this.#inFlight.size === 0) return;
    const cancelled = await cancelledAmong(this.options.database.pool, [...this.#jobs()]);
    for (const [id, { item }] of this.#inFlight)
      if (cancelled.has(item.job_id)) this.options.owner.cancel(id);
  }

  /** Items that the database gave to this node in an answer that was lost wait again. */
  async #giveBackUnheard(instance: Instance): Promise<void> {
    const items = await ownItems(this.options.database.pool, instance);
    const keyOf = ({ job_id, index }: LeasedItem) => `${job_id} ${index}`;
    const known = new Set(
      [...this.#inFlight.values(), ...this.#settled].map(({ item }) => keyOf(item)),
    );
    const unheard = items.filter((item) => !known.has(keyOf(item)));
    if (unheard.length === 0) return;
    this.options.log.warn(
      { items: unheard.length },
      "items whose giving was not heard of wait again",
    );
    this.#settled.push(...unheard.map((item) => ({ item, ending: NOT_RUN })));
    await this.#settle(instance);
  }

  /** Suspects run one by one with nothing beside them; while one waits, nothing else is begun. */
  async #take(instance: Instance): Promise<void> {
    const { database, log, owner } = this.options;
    const busy = [...this.#inFlight.values()];
    if (busy.length >= this.#lookAhead.low || busy.some(({ item }) => item.alone)) return;
    const suspects = await someSuspect(database.pool, instance);
    if (suspects && busy.length > 0) return;
    const room = suspects ? 1 : this.#lookAhead.most - busy.length;
    let items = await lease(database.pool, instance, room, suspects);
    // Another node may have taken the last suspect.
    if (suspects && items.length === 0)
      items = await lease(database.pool, instance, this.#lookAhead.most, false);
    for (const { job_id, subject } of items) this.options.known.add(job_id, subject);
    const begun = items.filter(({ started_at }) => started_at === null);
    for (const [job, { subject, traceparent }] of new Map(begun.map((item) => [item.job_id, item])))
      log.info({ job, subject, ...traced(traceparent) }, "a bulk job began");
    const bounds = new Map<string, Promise<RunnerBounds>>();
    const prepared = await Promise.all(items.map((item) => this.#prepare(item, bounds)));
    // One may have been ended meanwhile, with all others
    const toRun = prepared
      .filter((one) => one !== undefined)
      .filter(({ id }) => this.#inFlight.has(id));
    if (toRun.length > 0) owner.run(toRun);
  }

  /**
   * @param known bounds of each output folder of each job, which items that were taken together
   * share
   * @returns what a worker thread is told; undefined if the item has to wait or has ended
   */
  async #prepare(
    item: LeasedItem,
    known: Map<string, Promise<RunnerBounds>>,
  ): Promise<ItemToRun | undefined> {
    const { job_id, index, subject, request, traceparent } = item;
    const id = (lastId += 1);
    const paths = pathsOf(request, item, this.options.config.path_map);
    this.#inFlight.set(id, { item, paths });
    try {
      const folder = `${job_id} ${paths.clientOutputBase}`;
      const bounds = known.get(folder) ?? this.#boundsOf(item, paths);
      known.set(folder, bounds);
      const { input, output } = await bounds;
      if ("code" in output) {
        this.#end(id, { ending: NOT_RUN, pause: output });
        return undefined;
      }
      // Nothing runs beside a suspect: while it waited for a frozen node, every other item would
      // wait with it
      const isTaken = item.alone && (await isNameTaken(paths));
      if (isTaken === undefined) {
        this.#end(id, SILENT);
        return undefined;
      }
      if (isTaken) {
        const later = { ...NOT_RUN, afterSeconds: durations.itemName / 1000, why: "name_locked" };
        this.#end(id, { ending: later });
        this.#clear(item);
        return undefined;
      }
      const { series, isCase } = paths;
      const { models, outputs, labels, group, destinations } = request;
      const pinned = item.pins?.models;
      const requestId = `${job_id}.${index}`;
      const task = taskOf({
        requestId,
        ...traced(traceparent),
        subject,
        priority: "bulk",
        startedAt: item.created_at.toISOString(),
        inputPath: paths.input,
        outputFolder: paths.outputFolder,
        name: series !== undefined || isCase ? paths.name : undefined,
        roots: { input, output },
        seriesInstanceUid: series,
        asCase: isCase,
        group: isCase ? undefined : group,
        models,
        pinned,
        outputs,
        labels,
        destinations,
        // An item that runs twice has two results, each of which is delivered
        deliveryId: randomUUID(),
      });
      return { id, item: { subject, job_id, item: index }, task };
    } catch (error) {
      await this.ended(id, { ok: false, error: asRadserveError(error).toObject() });
      return undefined;
    }
  }

  /**
   * The roots that the job's token allowed, as they are now. A share that does not answer holds up
   * its own jobs, and not the round, in which this node says that it lives.
   */
  async #boundsOf(item: LeasedItem, paths: ItemPaths): Promise<RunnerBounds> {
    const { roots } = this.options;
    const found = await patiently(`bounds ${item.job_id} ${paths.outputBase}`, async () => {
      const [input, output] = await Promise.all([
        narrowRoots(roots.input, item.input_roots ?? undefined),
        narrowRoots(roots.output, item.output_roots ?? undefined),
      ]);
      return { input, output: await withinBase(item, paths, output) };
    });
    return found ?? { input: [], output: SHARE_SILENT };
  }

  /** @returns false if the database does not answer and it should be tried again */
  async #leave(): Promise<boolean> {
    if (this.#instance === undefined) return true;
    for (const id of this.#inFlight.keys()) this.#end(id, { ending: NOT_RUN });
    try {
      await this.#settle(this.#instance);
      await leave(this.options.database.pool, this.#instance);
      // It gives a report up that it has begun
      if (this.#concluding !== undefined) await within(this.#concluding, LAST_REPORT_MS);
      return true;
    } catch {
      return false;
    }
  }
}
