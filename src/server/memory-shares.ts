/**
 * How the memory of a serving process is shared: images in work have theirs by the setting,
 * networks what that and the process leave, and a model that is loaded beside them takes from both.
 */
import { memoryOfRuns } from "../base/memory-limits.js";
import type { Engine } from "../engine/engine.js";
import type { InferencePool } from "../inference/worker-pool.js";

/** What a model that is loaded beside others may take of each. */
const SHARE_OF_LOADING = 0.5;
/** What the weights of models that make room for each other may keep of what networks have. */
const SHARE_OF_WEIGHTS = 0.5;

export class MemoryShares {
  #ofRuns = 0;
  #held = 0;
  /** Bytes that the weights of models that make room for each other may have together. */
  readonly weights: number;

  /** @param images bytes that images may take */
  constructor(
    private readonly engine: Pick<Engine, "limitRuns" | "limitWeights" | "runMemory">,
    private readonly pool: Pick<InferencePool, "hold" | "memory">,
    private readonly images: number,
  ) {
    this.look();
    this.weights = Math.floor(this.#ofRuns * SHARE_OF_WEIGHTS);
    engine.limitWeights(this.weights);
  }

  /** Looks at what the process has: to be called when its models are others. */
  look(): void {
    const beside = this.pool.memory + this.engine.runMemory();
    const held = Math.max(0, process.memoryUsage.rss() - beside);
    this.#ofRuns = memoryOfRuns(this.images, held);
    this.#limit();
  }

  /** Most bytes that a model may take while it is loaded, alone or beside others that serve. */
  mostToLoad(besideOthers: boolean): number {
    const all = this.images + this.#ofRuns;
    return Math.floor(besideOthers ? all * SHARE_OF_LOADING : all);
  }

  /**
   * Counts bytes that loading a model takes: of what images may have, and of what runs may, so that
   * both go on. The function that it returns gives them back.
   * @param runs bytes that its own runs take meanwhile
   */
  hold(bytes: number, runs: number): () => void {
    const ofImages = Math.min(bytes, this.images * SHARE_OF_LOADING);
    const most = Math.min(this.#ofRuns * SHARE_OF_LOADING, this.#ofRuns - runs);
    const ofRuns = Math.max(0, Math.min(bytes - ofImages, most));
    const giveBack = this.pool.hold(ofImages);
    this.#held += ofRuns;
    this.#limit();
    return () => {
      giveBack();
      this.#held -= ofRuns;
      this.#limit();
    };
  }

  #limit(): void {
    this.engine.limitRuns(Math.floor(this.#ofRuns - this.#held));
  }
}
