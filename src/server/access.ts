/**
 * Who may call a route, and how often: its token, what its subject may have at a time, and
 * addresses that need none.
 */
import type { Config } from "../config.js";
import { errors, RadserveError } from "../base/errors.js";
import { LOOPBACK, Networks, plainAddress } from "../base/networks.js";
import { FailedTokens } from "./failed-tokens.js";
import type { Context } from "./services.js";
import type { LivingKeyring } from "./keys.js";
import type { Route } from "./route.js";
import type { RunningFeatures } from "./running-features.js";
import { authenticate, withoutBlanks, type Caller } from "./tokens.js";

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
      throw errors.rate_limited(
        `Expected at most ${this.perSecond} requests a second of one subject; found more. Send the next in ${wait} s.`,
        { retry_after: wait },
      );
    }
    // Deleting first keeps the map in the order of last use, so that the first is the one to
    // forget.
    this.#buckets.delete(subject);
    this.#buckets.set(subject, { left: left - 1, at: now });
    if (this.#buckets.size > MOST_SUBJECTS) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
  }
}

/**
 * Names of headers that Prometheus and its like, curl and browsers send. Nobody can list what
 * proxies add: each maker has names of its own for the client's address, for a trace or for TLS.
 */
const OF_CLIENTS =
  /^(?:host|connection|user-agent|accept(?:-.*)?|authorization|cache-control|pragma|cookie|referer|dnt|priority|sec-.*|upgrade-insecure-requests|x-prometheus-.*)$/;

/**
 * True if the request may come from a proxy: it has any other header (also an empty one, because a
 * proxy may have emptied it), or it is HTTP/1.0, which nginx uses unless it is configured
 * otherwise.
 */
function isForwarded({ req }: Context): boolean {
  return (
    req.httpVersion === "1.0" || Object.keys(req.headers).some((name) => !OF_CLIENTS.test(name))
  );
}

/**
 * True where the connection comes from this machine or an allowed address, and no proxy speaks for
 * somebody else, trusted or not.
 */
function isLocal(ctx: Context, allowed: Networks): boolean {
  const peer = plainAddress(ctx.req.socket.remoteAddress);
  return peer !== undefined && !isForwarded(ctx) && allowed.has(peer);
}

/** How many requests of each subject are in work or wait. */
export class RequestsInWork {
  readonly #counts = new Map<string, number>();

  /** @param what the requests are, in words */
  constructor(
    private readonly most: number,
    private readonly what: string,
  ) {}

  /**
   * Counts one request until the function that it gives is called. Throws rate_limited where there
   * are too many.
   */
  enter(subject: string): () => void {
    const before = this.#counts.get(subject) ?? 0;
    if (before >= this.most)
      throw errors.rate_limited(
        `Expected at most ${this.most} ${this.what} of one subject at a time; found more. Send it again when one of them is answered.`,
      );
    this.#counts.set(subject, before + 1);
    return () => {
      const left = (this.#counts.get(subject) ?? 0) - 1;
      if (left > 0) this.#counts.set(subject, left);
      else this.#counts.delete(subject);
    };
  }
}

/** Bulk requests of one subject whose bodies, which may have megabytes, are in memory at a time. */
const MOST_BULK_BODIES = 16;

/** Uploads of one subject at a time: each holds a connection, and a file that is written. */
const MOST_UPLOADS = 16;

export interface Access {
  /**
   * Judges the token of a request. Throws unauthorized, for an address with many failures after a
   * while, and rate_limited.
   */
  check(ctx: Context, route: Route): Promise<void>;
  /** Counts an allowed request until the function that it gives is called. Throws rate_limited. */
  enter(ctx: Context, route: Route): () => void;
}

interface AccessOptions {
  config: Config;
  keyring: LivingKeyring;
  features: Pick<RunningFeatures, "people">;
}

export function accessTo({ config, keyring, features }: AccessOptions): Access {
  const rate = new RateLimit(config.rate_limit);
  const failed = new FailedTokens(config.failed_tokens);
  const inWork = new RequestsInWork(config.requests_per_subject, "requests");
  const uploads = new RequestsInWork(MOST_UPLOADS, "uploads");
  const bulkBodies = new RequestsInWork(MOST_BULK_BODIES, "bulk requests");
  const local = new Networks([...LOOPBACK, ...config.metrics_allow]);
  /** A token decides; only without one it is asked whom a proxy signed in. */
  const callerOf = async ({ req }: Context): Promise<Caller> => {
    // Node's headers.authorization is the first of several; joined, as RFC 9110, 5.3 reads them,
    // they are no token.
    const token = withoutBlanks(req.headersDistinct.authorization?.join(",") ?? "");
    const person = token === "" ? await features.people?.callerOf(req) : undefined;
    if (person !== undefined) return person;
    await keyring.fresh();
    return authenticate(token, keyring, config);
  };
  return {
    async check(ctx, route) {
      if (route.auth === "open" || (route.auth === "local" && isLocal(ctx, local))) return;
      try {
        ctx.state.caller = await callerOf(ctx);
      } catch (error) {
        if (error instanceof RadserveError && error.code === "unauthorized")
          await failed.slow(ctx.state.address, ctx.res);
        throw error;
      }
      rate.take(ctx.state.caller.subject);
    },
    enter({ state: { caller } }, route) {
      if (caller === undefined) return () => undefined;
      const fewer =
        route.hasLargeBody === true ? [bulkBodies] : route.takesFile === undefined ? [] : [uploads];
      const entered: (() => void)[] = [];
      const leave = () => entered.forEach((leaveOne) => leaveOne());
      try {
        for (const counted of [inWork, ...fewer]) entered.push(counted.enter(caller.subject));
      } catch (error) {
        leave();
        throw error;
      }
      return leave;
    },
  };
}
