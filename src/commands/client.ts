/** The client's side of the HTTP contract, for commands that speak to a running server. */
import { setTimeout as delay } from "node:timers/promises";
import type { z } from "zod";
import { clientSettings, type Config } from "../config.js";
import { ConfigError, errorObjectSchema, RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";

/** Longest pause between two attempts to reach a server that is away. */
const LONGEST_PAUSE_MS = 2_000;

export interface Reply {
  status: number;
  body: unknown;
}

/** Nothing answers at the address, or not now: the same call may succeed later. */
class Away extends RadserveError {}

export interface Patience {
  /** Milliseconds to go on trying while the server is away; for ever where absent. */
  forMs?: number;
  signal?: AbortSignal;
  /** Told at every attempt that failed. */
  onAway?: (why: RadserveError) => void;
}

/** fetch says no more than "fetch failed"; what failed is in its cause. */
function reasonOf(error: unknown): string {
  const code = error instanceof Error ? errno(error.cause) : "";
  return code === "" ? "" : ` (${code})`;
}

export class Client {
  constructor(
    readonly url: string,
    private readonly token: string | undefined,
  ) {}

  get hasToken(): boolean {
    return this.token !== undefined;
  }

  /**
   * One request.
   * @throws RadserveError model_unavailable where nothing answers, or something that is no Radserve
   */
  async send(method: string, page: string, body?: unknown): Promise<Reply> {
    let response: Response;
    let text: string;
    try {
      response = await fetch(this.url + page, {
        method,
        headers: {
          ...(this.token === undefined ? {} : { Authorization: this.token }),
          ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      text = await response.text();
    } catch (error) {
      throw new Away(
        "model_unavailable",
        `Expected a Radserve at ${this.url}; none answers${reasonOf(error)}. Start it with radserve serve, or set RADSERVE_URL.`,
        undefined,
        { cause: error },
      );
    }
    try {
      return { status: response.status, body: JSON.parse(text) as unknown };
    } catch {
      throw this.#stranger(response.status);
    }
  }

  /** One request whose answer must be of this form. Throws the server's own error where it refuses. */
  async call<T>(schema: z.ZodType<T>, method: string, page: string, body?: unknown): Promise<T> {
    const { status, body: answer } = await this.send(method, page, body);
    if (status >= 400) throw this.#refusal(status, answer);
    const parsed = schema.safeParse(answer);
    if (!parsed.success) throw this.#stranger(status);
    return parsed.data;
  }

  /** `call`, again and again while the server is away, restarts or cannot take work now. */
  async callPatiently<T>(
    schema: z.ZodType<T>,
    patience: Patience,
    ...[method, page, body]: [method: string, page: string, body?: unknown]
  ): Promise<T> {
    const end = performance.now() + (patience.forMs ?? Infinity);
    for (let pause = 200; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      try {
        return await this.call(schema, method, page, body);
      } catch (error) {
        if (!(error instanceof Away) || performance.now() + pause > end) throw error;
        patience.onAway?.(error);
        await delay(pause, undefined, patience.signal === undefined ? {} : { signal: patience.signal });
      }
    }
  }

  #refusal(status: number, answer: unknown): RadserveError {
    const { data } = errorObjectSchema.safeParse(answer);
    if (data === undefined) return this.#stranger(status);
    const { error, message, details } = data;
    if (status === 503 || status === 429) return new Away(error, message, details);
    if (status !== 401) return RadserveError.fromObject({ error, message, ...(details && { details }) });
    return new RadserveError(
      error,
      `${message}. ${this.url} refuses the token in RADSERVE_TOKEN; make another with radserve token issue --subject NAME.`,
      details,
    );
  }

  #stranger(status: number): RadserveError {
    return new RadserveError(
      "model_unavailable",
      `Expected a Radserve of this version at ${this.url}; found something else, which answered ${status}. Check RADSERVE_URL.`,
    );
  }
}

/** The server that the settings name, with the token where there is one. */
export function openClient(config: Config): Client {
  const { url, token } = clientSettings(config);
  return new Client(url, token);
}

/** The server that the settings name. Throws ConfigError where there is no token. */
export function clientWithToken(config: Config): Client {
  const client = openClient(config);
  if (client.hasToken) return client;
  throw new ConfigError(
    "RADSERVE_TOKEN: expected the token of this client; found none. Make one with: radserve token issue --subject NAME",
  );
}
