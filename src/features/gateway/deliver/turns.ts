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
  /** Pieces of work beside each other. */
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
  #failures = 0;
  /** The pause is over. */
  #waited = false;
  #awaySince: Date | undefined;
  /** Ends a rest: something may be due; or something new has come. */
  #alarm = new AbortController();
  #news = new AbortController();
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
    this.#alarm.abort();
    this.#news.abort();
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
    this.#failures += 1;
    this.starved();
  }

  /** It is there, and takes nothing. */
  starved(): void {
    this.#awaySince ??= new Date();
  }

  reached(): void {
    this.#failures = 0;
    this.#awaySince = undefined;
  }

  /**
   * A result has had its turn, and the next one when what became of it is written: whoever computes
   * a newer result has NAME, and nothing else waits for that.
   */
  wrote({ busy }: Pending, written: Promise<void>): void {
    const done = written.finally(() => {
      this.#writing.delete(done);
      busy.delete(this.#name);
      this.#alarm.abort();
    });
    this.#writing.add(done);
  }

  #isClosed(): boolean {
    return this.options.closing.aborted;
  }

  async #run(): Promise<void> {
    const { outbox, turn, ready, atOnce } = this.options;
    await ready;
    while (!this.#isClosed()) {
      [this.#alarm, this.#news] = [new AbortController(), new AbortController()];
      const mayTry = this.#working.size < atOnce && (this.#failures === 0 || this.#waited);
      this.#waited = false;
      if (mayTry && outbox.due(turn).length > 0) {
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
        this.#alarm.abort();
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
    const { outbox, turn, closing, atOnce } = this.options;
    // Another node may reach what this one does not, but would do again what does not stand beside
    // its receipt yet
    if (this.#working.size === 0 && this.#writing.size === 0) await this.#release();
    const pause = async (ms: number, signal: AbortSignal) => {
      await delay(Math.max(0, Math.min(ms, durations.gatewayRetryMost)), undefined, {
        signal,
      }).catch(() => undefined);
    };
    if (this.#failures > 0) {
      const whole = backOff(this.#failures, gatewayRetry());
      const least = Math.min(whole, durations.gatewayRetry);
      await pause(least, closing);
      await pause(whole - least, this.#news.signal);
      this.#waited = true;
      return;
    }
    const isFree = this.#working.size < atOnce;
    const until = isFree ? outbox.nextDue(turn) - monotonic() : Infinity;
    await pause(until, this.#alarm.signal);
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
