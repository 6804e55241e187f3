/**
 * Keeps this box busy with items: takes as many as the worker threads can hold, sends them there, and writes down what
 * became of them. It runs in the bulk thread; the images are read and inferred elsewhere.
 */
import { stat } from "node:fs/promises";
import type { Config } from "../config.js";
import { durations } from "../base/durations.js";
import { asRadserveError } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { within } from "../base/waiting.js";
import { openOutputFolder } from "../files/guarded-paths.js";
import { NameLock } from "../files/name-lock.js";
import { narrowRoots, type Root } from "../files/roots.js";
import { withName } from "../results/commit/commit.js";
import { asUnavailable, isTableLoss, type Database } from "./database.js";
import { beat, enter, freeSilent, leave, type FreedItem, type Instance } from "./boxes.js";
import {
  cancelledAmong,
  lease,
  ownItems,
  pauseJob,
  settle,
  someSuspect,
  tidy,
  type LeasedItem,
  type Settled,
} from "./leases.js";
import type { FromThread, ItemOutcome, ItemToRun } from "./messages.js";
import { asOutcome, judge, withinBase, type Pause } from "./outcome.js";
import { LookAhead } from "./look-ahead.js";
import { pathsOf, type ItemPaths } from "./item-paths.js";
import { conclude } from "./conclude.js";
import type { DatabaseTroubles } from "./database-trouble.js";
import { BulkUnavailable } from "./database-trouble.js";

const FIRST_TROUBLE_MS = 200;
/** With the wait for a lock before it, this is shorter than the time after which a box counts as silent. */
const LONGEST_TROUBLE_MS = 2_000;
/** How long what a dead process left may take to remove: longer than the lease of an owner on another machine. */
const CLEAR_MS = 60_000;
/** How long the box waits, when it stops, until a report that was begun is given up. */
const LAST_REPORT_MS = 1_000;

export interface RunnerOptions {
  config: Config;
  roots: { input: string[]; output: string[] };
  window: number;
  instance: () => Instance;
  database: Database;
  log: Logger;
  send: (message: FromThread) => void;
  /** The models are loaded and every required one passed its check. */
  ready: () => boolean;
  troubles: DatabaseTroubles;
  /** Makes tables that are gone anew. @param jobs those that this box worked on */
  repair: (jobs: readonly string[]) => Promise<void>;
  /** Whether the tables are those that this box knew. */
  recognise: () => Promise<void>;
}

interface Flying {
  item: LeasedItem;
  paths: ItemPaths;
}

interface Bounds {
  input: Root[];
  output: Root[];
}

/** Where items that were taken together may read and write: looked up once for each job, and each of its folders. */
interface Looked {
  bounds: Map<string, Promise<Bounds>>;
  folders: Map<string, ReturnType<typeof withinBase>>;
}

/** An item under whose name something may have been left. */
type Leftover = Pick<FreedItem, "input" | "output" | "request">;

/** Nobody will take the names of items that do not run again. */
const overOf = (freed: readonly FreedItem[]) => freed.filter(({ state }) => state !== "queued");

let lastId = 0;

/** Whether somebody else, who may be frozen, holds the name of an item's results. */
function isNameTaken({ name, outputFolder }: ItemPaths): Promise<boolean> {
  return NameLock.isTaken(outputFolder, name);
}

export class Runner {
  readonly #flying = new Map<number, Flying>();
  readonly #landed: Settled[] = [];
  readonly #lookAhead: LookAhead;
  readonly #pauses = new Map<string, Pause>();
  readonly #ended: Record<string, number> = {};
  #instance: Instance | undefined;
  #stopping = false;
  #closed = false;
  #wake: () => void = () => undefined;
  #poked = false;
  #round: NodeJS.Timeout | undefined;
  #trouble = 0;
  #beatAt = 0;
  #tidyAt = 0;
  #lookAtCancelled = false;
  #concluding = false;
  #concluded: Promise<void> = Promise.resolve();
  #done: Promise<void> | undefined;

  constructor(private readonly options: RunnerOptions) {
    this.#lookAhead = new LookAhead(options.window);
  }

  start(): void {
    this.#done ??= this.#loop();
  }

  /** There may be something to do. */
  poke(cancelled = false): void {
    this.#lookAtCancelled ||= cancelled;
    this.#poked = true;
    this.#wake();
  }

  get ended(): Record<string, number> {
    return { ...this.#ended };
  }

  /** Takes no more items. */
  stop(): void {
    this.#stopping = true;
    this.poke();
  }

  /** Writes down what has ended, gives back what has not, and leaves. */
  async close(): Promise<void> {
    this.#stopping = true;
    this.#closed = true;
    this.poke();
    await this.#done;
  }

  /** A worker thread is done with an item. */
  async land(id: number, outcome: ItemOutcome): Promise<void> {
    const flying = this.#flying.get(id);
    if (flying === undefined) return;
    const { roots } = this.options;
    try {
      const { ending, pause } = await judge(outcome, { ...flying, roots });
      this.#land(id, flying.item, ending, pause);
    } catch (error) {
      this.options.log.error({ fault: faultForLog(error) }, "an item's end could not be judged");
      this.#land(id, flying.item, { state: "queued", afterSeconds: 5, counts: true });
    }
  }

  #land(id: number, item: LeasedItem, ending: Settled["ending"], pause?: Pause): void {
    if (!this.#flying.delete(id)) return;
    this.#landed.push({ item, ending });
    if (pause !== undefined) this.#pauses.set(item.job_id, pause);
    if (ending.state !== "queued") this.#ended[ending.state] = (this.#ended[ending.state] ?? 0) + 1;
    // Written down with others, unless the threads will soon want more
    if (this.#flying.size < this.#lookAhead.low) this.poke();
    else this.#round ??= setTimeout(() => this.poke(), durations.itemsAhead);
  }

  async #loop(): Promise<void> {
    for (;;) {
      this.#poked = false;
      try {
        await this.#step();
        this.#trouble = 0;
        this.options.troubles.well();
      } catch (error) {
        await this.#failed(error);
      }
      if (this.#closed && (await this.#leave())) return;
      await this.#pause();
    }
  }

  async #failed(error: unknown): Promise<void> {
    const { database, log, troubles, repair } = this.options;
    this.#trouble += 1;
    log.warn({ fault: faultForLog(error) }, "the database of the bulk queue failed; trying again");
    const known = asUnavailable(error, database.connection);
    if (known instanceof BulkUnavailable) troubles.failed(database.problem() ?? known);
    if (!isTableLoss(error)) return;
    const jobs = new Set([...this.#flying.values(), ...this.#landed].map(({ item }) => item.job_id));
    await repair([...jobs]).catch((fault: unknown) =>
      log.error({ fault: faultForLog(fault) }, "the bulk tables could not be made again"),
    );
  }

  async #pause(): Promise<void> {
    const trouble =
      this.#trouble === 0
        ? undefined
        : Math.min(LONGEST_TROUBLE_MS, FIRST_TROUBLE_MS * 2 ** (this.#trouble - 1));
    if (trouble === undefined && this.#poked) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, trouble ?? durations.bulkPoll);
      this.#wake = () => {
        if (trouble !== undefined && !this.#closed) return;
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** One round of the loop; nothing else speaks to the database for this runner. */
  async #step(): Promise<void> {
    const { database } = this.options;
    const instance = await this.#alive();
    await this.#settle(instance);
    if (this.#lookAtCancelled || monotonic() - this.#tidyAt > durations.boxBeat) await this.#stopCancelled();
    if (monotonic() - this.#tidyAt > durations.boxBeat) {
      this.#tidyAt = monotonic();
      this.#clear(overOf(await freeSilent(database.pool, instance)));
      await tidy(database.pool);
      await this.#giveBackUnheard(instance);
      if (instance.works) this.#conclude();
    }
    if (instance.works && !this.#stopping && this.options.ready()) await this.#take(instance);
  }

  /** Says that this box lives; where it was taken for dead, its items are others' now and it begins anew. */
  async #alive(): Promise<Instance> {
    const { pool } = this.options.database;
    if (this.#instance !== undefined) {
      if (monotonic() - this.#beatAt < durations.boxBeat) return this.#instance;
      const at = monotonic();
      if (await beat(pool, this.#instance, this.options.ready())) {
        this.#beatAt = at;
        return this.#instance;
      }
      this.options.log.warn(
        { items: this.#flying.size },
        "silent for too long: the items went to other boxes",
      );
      for (const id of this.#flying.keys()) this.options.send({ type: "cancel", id });
      this.#flying.clear();
      this.#landed.length = 0;
      this.#instance = undefined;
      await this.options.recognise();
    }
    const instance = this.options.instance();
    const at = monotonic();
    const freed = await enter(pool, instance, this.options.ready());
    this.#instance = instance;
    this.#beatAt = at;
    if (freed.length > 0)
      this.options.log.warn({ items: freed.length }, "items of a process that ended run again");
    this.#clear(overOf(freed));
    return instance;
  }

  /** Takes the names of items, and so removes what a dead process left under them. */
  #clear(items: readonly Leftover[]): void {
    for (const item of items)
      this.#recover(item).catch((error: unknown) =>
        this.options.log.warn({ fault: faultForLog(error) }, "what a dead process left could not be removed"),
      );
  }

  async #recover(item: Leftover): Promise<void> {
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
  #conclude(): void {
    const { config, roots, database, log } = this.options;
    if (this.#concluding) return;
    this.#concluding = true;
    this.#concluded = conclude({ config, roots, database, log, stopped: () => this.#closed }).finally(
      () => (this.#concluding = false),
    );
  }

  async #settle(instance: Instance): Promise<void> {
    const { pool } = this.options.database;
    clearTimeout(this.#round);
    this.#round = undefined;
    if (this.#landed.length > 0) this.#lookAhead.ended(this.#landed.length);
    while (this.#landed.length > 0) {
      const some = this.#landed.slice(0, 200);
      for (const [job, pause] of [...this.#pauses]) {
        await pauseJob(pool, job, pause, instance.name);
        this.#pauses.delete(job);
        this.options.log.warn({ job, reason: pause.code }, "a bulk job waits");
      }
      const others = [...this.#flying.values(), ...this.#landed.slice(some.length)];
      const busy = new Set(others.map(({ item }) => item.job_id));
      await settle(pool, instance, some, busy, this.options.config.pause_after_failures);
      this.#landed.splice(0, some.length);
      // The last item of a job may have been among them
      if (this.#flying.size === 0) this.#conclude();
    }
  }

  async #stopCancelled(): Promise<void> {
    this.#lookAtCancelled = false;
    const jobs = [...new Set([...this.#flying.values()].map(({ item }) => item.job_id))];
    if (jobs.length === 0) return;
    const cancelled = await cancelledAmong(this.options.database.pool, jobs);
    for (const [id, { item }] of this.#flying)
      if (cancelled.has(item.job_id)) this.options.send({ type: "cancel", id });
  }

  /** Items that the database gave to this box in an answer that was lost wait again. */
  async #giveBackUnheard(instance: Instance): Promise<void> {
    const items = await ownItems(this.options.database.pool, instance);
    const name = ({ job_id, index }: LeasedItem) => `${job_id} ${index}`;
    const known = new Set([...this.#flying.values(), ...this.#landed].map(({ item }) => name(item)));
    const unheard = items.filter((item) => !known.has(name(item)));
    if (unheard.length === 0) return;
    this.options.log.warn({ items: unheard.length }, "items whose giving was not heard of wait again");
    for (const item of unheard)
      this.#landed.push({ item, ending: { state: "queued", afterSeconds: 0, counts: false } });
    await this.#settle(instance);
  }

  /** Suspects run one by one with nothing beside them; while one waits, nothing else is begun. */
  async #take(instance: Instance): Promise<void> {
    const { database } = this.options;
    const busy = [...this.#flying.values()];
    if (busy.length >= this.#lookAhead.low || busy.some(({ item }) => item.alone)) return;
    const suspects = await someSuspect(database.pool);
    if (suspects && busy.length > 0) return;
    const room = suspects ? 1 : this.#lookAhead.most - busy.length;
    let items = await lease(database.pool, instance, room, suspects);
    // Another box may have taken the last suspect.
    if (suspects && items.length === 0)
      items = await lease(database.pool, instance, this.#lookAhead.most, false);
    const begun = items.filter(({ started_at }) => started_at === null);
    for (const [job, subject] of new Map(begun.map((item) => [item.job_id, item.subject])))
      this.options.log.info({ job, subject }, "a bulk job began");
    const looked: Looked = { bounds: new Map(), folders: new Map() };
    const launched = await Promise.all(items.map((item) => this.#launch(item, looked)));
    const toRun = launched.filter((one) => one !== undefined);
    if (toRun.length > 0) this.options.send({ type: "run", items: toRun });
  }

  /** @returns what a worker thread is told; undefined where the item has to wait or has ended */
  async #launch(item: LeasedItem, { bounds: known, folders }: Looked): Promise<ItemToRun | undefined> {
    const id = (lastId += 1);
    const paths = pathsOf(item.request, item, this.options.config.path_map);
    this.#flying.set(id, { item, paths });
    try {
      const looking = known.get(item.job_id) ?? this.#boundsOf(item);
      known.set(item.job_id, looking);
      const bounds = await looking;
      const folder = `${item.job_id} ${paths.clientOutputBase}`;
      const base = folders.get(folder) ?? withinBase(item, paths, bounds.output);
      folders.set(folder, base);
      const output = await base;
      if ("code" in output) {
        this.#land(id, item, { state: "queued", afterSeconds: 0, counts: false }, output);
        return undefined;
      }
      if (item.alone && (await isNameTaken(paths))) {
        // Nothing runs beside a suspect: while it waited for a frozen box, every other item would wait with it
        const why = "name_locked";
        this.#land(id, item, {
          state: "queued",
          afterSeconds: durations.itemName / 1000,
          counts: false,
          why,
        });
        this.#clear([item]);
        return undefined;
      }
      const { models, outputs } = item.request;
      const task = {
        requestId: `${item.job_id}.${item.index}`,
        inputPath: paths.input,
        outputFolder: paths.outputFolder,
        startedAt: item.created_at.toISOString(),
        roots: { input: bounds.input, output },
        ...(paths.series === undefined ? {} : { seriesInstanceUid: paths.series, name: paths.name }),
        ...(paths.isCase ? { asCase: true, name: paths.name } : {}),
        ...(models === undefined ? {} : { models }),
        ...(outputs === undefined ? {} : { outputs }),
      };
      const { job_id, index, subject } = item;
      return { id, item: { subject, job_id, item: index }, task };
    } catch (error) {
      await this.land(id, asOutcome(asRadserveError(error)));
      return undefined;
    }
  }

  /** The roots that the job's token allowed, as they are now. */
  async #boundsOf({ input_roots, output_roots }: LeasedItem): Promise<Bounds> {
    const { roots } = this.options;
    const [input, output] = await Promise.all([
      narrowRoots(roots.input, input_roots ?? undefined),
      narrowRoots(roots.output, output_roots ?? undefined),
    ]);
    return { input, output };
  }

  /** @returns false where the database does not answer and it should be tried again */
  async #leave(): Promise<boolean> {
    if (this.#instance === undefined) return true;
    for (const [id, { item }] of this.#flying)
      this.#land(id, item, { state: "queued", afterSeconds: 0, counts: false });
    try {
      await this.#settle(this.#instance);
      await leave(this.options.database.pool, this.#instance);
      // It gives a report up that it has begun
      await within(this.#concluded, LAST_REPORT_MS);
      return true;
    } catch {
      return false;
    }
  }
}
