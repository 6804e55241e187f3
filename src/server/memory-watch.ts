/**
 * Tells the supervisor what runs while memory is short. The system ends a process for memory
 * without a word, and afterwards nobody else can say what that was.
 */
import { wholeMemory } from "../base/memory-limits.js";
import type { Engine } from "../engine/engine.js";
import type { InferencePool } from "../inference/worker-pool.js";

/** A network that takes memory as fast as its pages come takes 1 or 2 GiB each second. */
const LOOK_MS = 250;
/** Memory is short from this part of it on: models, images and runs leave more in usual work. */
const SHORT = 0.5;

/** What runs at a time. */
export interface RunningWork {
  /** Names of the models. */
  models: string[];
  /** Ids of requests, and of items of jobs: the job's id, a point, and the item's number. */
  requests: string[];
}

export class MemoryWatch {
  readonly #timer: NodeJS.Timeout;
  #isTold = false;

  /** @param tell what runs, and undefined when memory is no longer short */
  constructor(
    private readonly engine: Pick<Engine, "stats">,
    private readonly pool: Pick<InferencePool, "running" | "runningRequests">,
    private readonly tell: (running: RunningWork | undefined) => void,
  ) {
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const isShort = this.pool.running > 0 && process.memoryUsage.rss() > SHORT * wholeMemory();
    if (isShort) this.tell({ models: this.#models(), requests: this.pool.runningRequests });
    else if (this.#isTold) this.tell(undefined);
    this.#isTold = isShort;
  }

  #models(): string[] {
    const running = this.engine.stats().models.filter(({ started, completed, failed }) => {
      const begun = started.stat + started.routine + started.bulk;
      return begun > completed + failed;
    });
    return [...new Set(running.map(({ name }) => name))];
  }
}
