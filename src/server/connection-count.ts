/** How many connections there are, in all and of one address; and what was refused, told in sums. */
import { durations } from "../base/durations.js";
import type { Logger } from "../base/log.js";
import { limitedAs } from "./client-address.js";

/** Why a connection was refused, as the log and /metrics say it. */
export type RefusedFor =
  | "too_many_connections"
  | "too_many_of_address"
  | "too_many_waiting"
  | "slow_reader"
  | "closed_idle"
  | "not_tls"
  | "tls_failed";

/** Counts refusals. The first is logged at once, the others together every ten seconds: nobody can flood the log. */
export class Refusals {
  readonly totals = new Map<RefusedFor, number>();
  readonly #untold = new Map<RefusedFor, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly log: Logger) {}

  /** @param more fields of the log's line, where this one has a line of its own */
  note(why: RefusedFor, more: { address?: string | undefined; fault?: string | undefined } = {}): void {
    this.totals.set(why, (this.totals.get(why) ?? 0) + 1);
    if (this.#timer === undefined) {
      this.log.warn({ refused: { [why]: 1 }, ...more }, "connections refused");
      this.#tellLater();
    } else this.#untold.set(why, (this.#untold.get(why) ?? 0) + 1);
  }

  #tellLater(): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#untold.size === 0) return;
      this.log.warn({ refused: Object.fromEntries(this.#untold) }, "connections refused");
      this.#untold.clear();
      this.#tellLater();
    }, durations.refusedConnections).unref();
  }
}

export interface ConnectionLimits {
  max_connections: number;
  max_connections_per_address: number;
}

export class ConnectionCount {
  #all = 0;
  readonly #ofAddress = new Map<string, number>();

  constructor(private readonly limits: ConnectionLimits) {}

  get all(): number {
    return this.#all;
  }

  get isFull(): boolean {
    return this.#all >= this.limits.max_connections;
  }

  /** @param address of the client; undefined for one that speaks for many, which only the limit in all holds for */
  isFullFor(address: string | undefined): boolean {
    if (address === undefined) return false;
    return (this.#ofAddress.get(limitedAs(address)) ?? 0) >= this.limits.max_connections_per_address;
  }

  /** @returns takes it off the count again; calling it twice does no harm */
  add(address: string | undefined): () => void {
    const key = address === undefined ? undefined : limitedAs(address);
    let counted = true;
    const change = (by: 1 | -1) => {
      this.#all += by;
      if (key === undefined) return;
      const count = (this.#ofAddress.get(key) ?? 0) + by;
      if (count === 0) this.#ofAddress.delete(key);
      else this.#ofAddress.set(key, count);
    };
    change(1);
    return () => {
      if (counted) change(-1);
      counted = false;
    };
  }
}
