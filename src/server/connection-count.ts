/**
 * How many connections there are, in all and of one address; and what was refused, told in sums.
 */
import { durations } from "../base/durations.js";
import type { Logger } from "../base/log.js";
import { limitedAs, type ClientAddresses } from "./client-address.js";

/** Why a connection was refused, as the log and /metrics say it. */
export type RefusedFor =
  | "too_many_connections"
  | "too_many_of_address"
  | "too_many_waiting"
  | "slow_reader"
  | "closed_idle"
  | "not_tls"
  | "tls_failed";

/**
 * Counts refusals. The first is logged at once, the others together every ten seconds: nobody can
 * flood the log.
 */
export class RefusedConnections {
  readonly totals = new Map<RefusedFor, number>();
  readonly #untold = new Map<RefusedFor, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly log: Logger) {}

  /** @param more fields of the log's line, where this one has a line of its own */
  note(
    why: RefusedFor,
    more: { address?: string | undefined; fault?: string | undefined } = {},
  ): void {
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

/**
 * Trusted proxies speak for many: only the limit in all holds for them, as for an address that is
 * not known.
 */
export class ConnectionCount {
  #all = 0;
  readonly #ofAddress = new Map<string, number>();

  constructor(
    private readonly limits: ConnectionLimits,
    private readonly addresses: ClientAddresses,
  ) {}

  get all(): number {
    return this.#all;
  }

  /**
   * Why there is no room for one more; undefined where there is. @param address as `plainAddress`
   * gives it
   */
  whyFull(address: string | undefined): "too_many_of_address" | "too_many_connections" | undefined {
    const key = this.#keyOf(address);
    const { max_connections, max_connections_per_address } = this.limits;
    if (key !== undefined && (this.#ofAddress.get(key) ?? 0) >= max_connections_per_address)
      return "too_many_of_address";
    return this.#all >= max_connections ? "too_many_connections" : undefined;
  }

  /** @returns takes it off the count again; to be called once */
  add(address: string | undefined): () => void {
    const key = this.#keyOf(address);
    const change = (by: 1 | -1) => {
      this.#all += by;
      if (key === undefined) return;
      const count = (this.#ofAddress.get(key) ?? 0) + by;
      if (count === 0) this.#ofAddress.delete(key);
      else this.#ofAddress.set(key, count);
    };
    change(1);
    return () => change(-1);
  }

  #keyOf(address: string | undefined): string | undefined {
    return address === undefined || this.addresses.isProxy(address)
      ? undefined
      : limitedAs(address);
  }
}
