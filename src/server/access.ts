/** Who may call a route: its token, its rate, and addresses that need none. */
import { BlockList, isIP } from "node:net";
import type { Config } from "../config.js";
import { RadserveError } from "../base/errors.js";
import type { Context } from "./handlers.js";
import type { Keyring } from "./keys.js";
import type { Route } from "./routes.js";
import { authenticate } from "./tokens.js";

const BURST_SECONDS = 10;
const MOST_SUBJECTS = 10_000;

/** The rate of each subject: a token bucket that holds ten seconds' worth. */
export class RateLimit {
  readonly #buckets = new Map<string, { left: number; at: number }>();

  /** @param perSecond requests a second; 0: no limit */
  constructor(private readonly perSecond: number) {}

  /** Counts one request. Throws rate_limited where the subject has none left. */
  take(subject: string, now = performance.now()): void {
    if (this.perSecond === 0) return;
    const most = Math.max(1, this.perSecond * BURST_SECONDS);
    const before = this.#buckets.get(subject) ?? { left: most, at: now };
    const left = Math.min(most, before.left + ((now - before.at) / 1000) * this.perSecond);
    if (left < 1) {
      const wait = Math.ceil((1 - left) / this.perSecond);
      throw new RadserveError(
        "rate_limited",
        `Expected at most ${this.perSecond} requests a second of one subject; found more. Send the next in ${wait} s.`,
        { retry_after: wait },
      );
    }
    // Deleting first keeps the map in the order of last use, so that the first is the one to forget.
    this.#buckets.delete(subject);
    this.#buckets.set(subject, { left: left - 1, at: now });
    if (this.#buckets.size > MOST_SUBJECTS) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
  }
}

/** Headers of which a proxy adds at least one (RFC 9110, 7.6.3; RFC 7239, and what came before it). */
const OF_PROXIES = [
  "via",
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-proto",
  "x-real-ip",
];

/** True where a proxy speaks for somebody else; an empty header counts, because a proxy may have emptied it. */
function isForwarded({ req }: Context): boolean {
  return OF_PROXIES.some((name) => name in req.headers);
}

/** True where the connection comes from this machine or an allowed address, and no proxy speaks for somebody else. */
function isLocal(ctx: Context, allowed: BlockList): boolean {
  const address = (ctx.req.socket.remoteAddress ?? "").replace(/^::ffff:/, "");
  const family = isIP(address);
  if (family === 0 || isForwarded(ctx)) return false;
  return allowed.check(address, family === 6 ? "ipv6" : "ipv4");
}

function allowList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of ["127.0.0.0/8", "::1", ...networks]) {
    const [address = "", bits] = network.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

export function accessTo({
  config,
  keyring,
}: {
  config: Config;
  keyring: Keyring;
}): (ctx: Context, route: Route) => void {
  const rate = new RateLimit(config.rate_limit);
  const local = allowList(config.metrics_allow);
  return (ctx, route) => {
    if (route.auth === "open" || (route.auth === "local" && isLocal(ctx, local))) return;
    // Node's headers.authorization is the first of several; joined, as RFC 9110, 5.3 reads them, they are no token.
    ctx.state.caller = authenticate(ctx.req.headersDistinct.authorization?.join(","), keyring, config);
    rate.take(ctx.state.caller.subject);
  };
}
