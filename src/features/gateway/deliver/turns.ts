/**
 * The turns of one kind at one destination: what is due is taken up, some at a time, by one node at
 * a time, so that what is urgent goes first whoever has it. After a failure there is a pause, which
 * grows.
 */
import { setTimeout as delay } from "node:timers/promises";
import { backOff } from "../../../base/back-off.js";
import { durations } from "../../../base/durations.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { monotonic } from "../../../base/monotonic.js";
import { NameLock } from "../../../files/name-lock.js";
import { gatewayRetry } from "../retry.js";
import { turnName, type Outbox, type Pending, type Turn } from "./outbox.js";

export interface TurnsOptions {
  turn: Turn;
  outbox: Outbox;
  /** The folder of the queue. */
  queue: string;
  log: Logger;
  /**
   * Resolves when what a process before has left was looked at, so that what is urgent goes first.
   */
  ready: Promise<unknown>;
  /** How many results are worked on at the same time. */
  atOnce: number;
  /** Ends what goes on. */
  closing: AbortSignal;
  /**
   * Works on the first of what is due, which it marks as busy before it waits for anything.
   * @param due not empty
   */
  work: (due: readonly Pending[]) => Promise<void>;
}

export class Turns {
  readonly #name: string;
  /** Tries in vain, one after the other; what fails beside one of them fails of the same outage. */
  #failures = 0;
  /** What goes on now was begun after a pause, and says whether the destination is back. */
  #isRetry = false;
  /** The end of the pause, and when it may end for something new (milliseconds of `monotonic`). */
  #pause = { until: 0, least: 0 };
  #awaySince: Date | undefined;
  /** Ends a rest. */
  #alarm = new AbortController();
  #lock: NameLock | undefined;
  readonly #working = new Set<Promise<void>>();
  readonly #writing = new Set<Promise<void>>();
  readonly #loop: Promise<void>;

  constructor(private readonly options: TurnsOptions) {
    this.#name = turnName(options.turn);
    this.#loop = this.#run();
  }

  /** Since when the destination is away; undefined if it is not, as far as anybody has tried. */
  get awaySince(): Date | undefined {
    return this.#awaySince;
  }

  /** Something new may be due: it need not wait for the end of a pause. */
  wake(): void {
    this.#pause.until = Math.min(this.#pause.until, this.#pause.least);
    this.again();
  }

  /** Something may be due, after whatever pause there is. */
  again(): void {
    this.#alarm.abort();
  }

  /** Resolves when nothing goes on any more, after `closing`. */
  async ended(): Promise<void> {
    this.wake();
    await this.#loop;
  }

  away(): void {
    if (this.#failures === 0 || this.#isRetry) this.#failures += 1;
    this.#isRetry = false;
    const pause = backOff(this.#failures, gatewayRetry());
    const now = monotonic();
    this.#pause = { until: now + pause, least: now + Math.min(pause, durations.gatewayRetry) };
    this.#awaySince ??= new Date();
  }

  /** It answers, but has no room, or fails: there is no pause, and it is told as away. */
  full(): void {
    this.#awaySince ??= new Date();
  }

  reached(): void {
    this.#failures = 0;
    this.#pause = { until: 0, least: 0 };
    this.#awaySince = undefined;
    this.again();
  }

  /** A result has its turn now. */
  began({ busy }: Pending): void {
    busy.add(this.#name);
  }

  /** A result has no turn for so many milliseconds. */
  postpone({ notBefore }: Pending, ms: number): void {
    notBefore.set(this.#name, monotonic() + ms);
  }

  /**
   * A result has had its turn, and the next one when what became of it is written: whoever computes
   * a newer result has NAME, and nothing else waits for that.
   */
  wrote({ busy }: Pending, written: Promise<void>): void {
    const done = written.finally(() => {
      this.#writing.delete(done);
      busy.delete(this.#name);
      this.again();
    });
    this.#writing.add(done);
  }

  #isClosed(): boolean {
    return this.options.closing.aborted;
  }

  /** There is room for more; one try at a time says whether a destination is still away. */
  get #isFree(): boolean {
    return this.#working.size < (this.#failures > 0 ? 1 : this.options.atOnce);
  }

  async #run(): Promise<void> {
    const { outbox, turn, ready } = this.options;
    await ready;
    while (!this.#isClosed()) {
      this.#alarm = new AbortController();
      if (this.#isFree && monotonic() >= this.#pause.until && outbox.due(turn).length > 0) {
        this.#isRetry = this.#failures > 0;
        try {
          await this.#take();
          const due = outbox.due(turn);
          if (due.length > 0) this.#start(due);
          continue;
        } catch (error) {
          this.#failed(error);
        }
      }
      await this.#rest();
    }
    await Promise.all(this.#working);
    await Promise.all(this.#writing);
    await this.#release();
  }

  #start(due: readonly Pending[]): void {
    const work = this.options
      .work(due)
      .catch((error: unknown) => this.#failed(error))
      .finally(() => {
        this.#working.delete(work);
        this.again();
      });
    this.#working.add(work);
  }

  #failed(error: unknown): void {
    if (this.#isClosed()) return;
    const { log, turn } = this.options;
    log.warn(
      { destination: turn.destination, fault: faultForLog(error) },
      "results could not be delivered; it is tried again",
    );
    this.away();
  }

  /** Waits until something may be due; while the destination is away, until it is tried again. */
  async #rest(): Promise<void> {
    const { outbox, turn } = this.options;
    // Another node may reach what this one does not, but would do again what does not stand beside
    // its receipt yet
    if (this.#working.size === 0 && this.#writing.size === 0) await this.#release();
    const until = this.#isFree ? Math.max(outbox.nextDue(turn), this.#pause.until) : Infinity;
    const ms = Math.max(0, Math.min(until - monotonic(), durations.gatewayRetryMost));
    await delay(ms, undefined, { signal: this.#alarm.signal }).catch(() => undefined);
  }

  async #release(): Promise<void> {
    await this.#lock?.release();
    this.#lock = undefined;
  }

  async #take(): Promise<void> {
    if (this.#lock !== undefined && (await this.#lock.isHeld())) return;
    await this.#release();
    const check = () => this.options.closing.throwIfAborted();
    const limits = { check, pauseMs: durations.deliveryLook / 4 };
    this.#lock = await NameLock.take(this.options.queue, this.#name, limits);
  }
}
