/** The features that have started, and what the server may ask of them. */
import type { IncomingMessage } from "node:http";
import type { Sending } from "../inference/result-hook.js";
import type { Condition } from "./condition.js";
import type { ReadMetric } from "./metrics.js";
import type { Caller } from "./tokens.js";

/** People who are signed in by a proxy. */
export interface SignedIn {
  /**
   * The person of a request without a token; undefined where nobody says who it is.
   * @throws RadserveError
   */
  callerOf(request: IncomingMessage): Promise<Caller | undefined>;
}

/** A feature that has started. */
export interface Running {
  /** Set where it sends results on. */
  sending?: Sending | undefined;
  /** A folder that it writes into, which is looked at as the roots are; nobody uploads there. */
  spool?: string | undefined;
  /**
   * Set where it gives jobs a database of this node's own, which holds jobs of before only if it is
   * made.
   */
  localDatabase?: { isMade: boolean } | undefined;
  /** Set where people need no token of their own. */
  people?: SignedIn | undefined;
  /** What is wrong now, as far as it has looked. */
  conditions?(): Condition[];
  /** What may become wrong, or is wrong with others. */
  warnings?(): Condition[];
  /** Looks at files for its conditions; called now and again. */
  look?(): Promise<void>;
  metrics?: readonly ReadMetric[];
  /** Reads its files again, as models are (SIGHUP). */
  reload?(): Promise<void>;
  /**
   * The first step of a stop, before the core finishes what was admitted: takes nothing more from
   * outside, and answers who waits. Results are still made after it, and `sending` still works.
   */
  leave?(): Promise<void>;
  /**
   * The last step, when the core makes no more results: ends its threads. Nothing calls the feature
   * afterwards.
   */
  close?(): Promise<void>;
}

/** The name of a feature, which says what it is while it runs. */
export class FeatureName<R extends Running = Running> {
  /** Only a name of R finds an R. */
  declare private readonly running: R;

  constructor(readonly text: string) {}
}

/** The features that have started, for whoever has the name of one. */
export class RunningFeatures {
  readonly #all = new Map<string, Running>();

  add(name: FeatureName, running: Running): void {
    this.#all.set(name.text, running);
  }

  /** Undefined where it is off. */
  of<R extends Running>(name: FeatureName<R>): R | undefined {
    return this.#all.get(name.text) as R | undefined;
  }

  get names(): string[] {
    return [...this.#all.keys()];
  }

  get all(): readonly Running[] {
    return [...this.#all.values()];
  }

  /** The one that sends results on. */
  get sending(): Sending | undefined {
    return this.all.find(({ sending }) => sending !== undefined)?.sending;
  }

  get people(): SignedIn | undefined {
    return this.all.find(({ people }) => people !== undefined)?.people;
  }

  get localDatabase(): Running["localDatabase"] {
    return this.all.find(({ localDatabase }) => localDatabase !== undefined)?.localDatabase;
  }

  get spool(): string | undefined {
    return this.all.find(({ spool }) => spool !== undefined)?.spool;
  }

  async look(): Promise<void> {
    await Promise.all(this.all.flatMap((running) => running.look?.() ?? []));
  }

  async reload(): Promise<void> {
    await Promise.all(this.all.flatMap((running) => running.reload?.() ?? []));
  }

  async leave(): Promise<void> {
    await Promise.all(this.all.flatMap((running) => running.leave?.() ?? []));
  }

  async close(): Promise<void> {
    await Promise.all(this.all.flatMap((running) => running.close?.() ?? []));
  }
}
