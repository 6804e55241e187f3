/** The client's side of the HTTP contract, for commands that speak to a running server. */
import { readFileSync } from "node:fs";
import http from "node:http";
import type https from "node:https";
import net from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import type tls from "node:tls";
import type { z } from "zod";
import { clientSettings, type ClientSettings, type Config } from "../config.js";
import { backOff, type BackOff } from "../base/back-off.js";
import { durations } from "../base/durations.js";
import { ConfigError, errorObjectSchema, errors, RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";

/** Between two attempts to reach a server that does not answer. */
const RETRY: BackOff = { first: 200, most: 2_000 };

/** What a proxy answers while no server behind it does (RFC 9110, 15.6.3 to 15.6.5). */
const OF_PROXIES = new Set([502, 503, 504]);

/** Nothing answers at the address, or not now: the same call may succeed later. */
class Unreachable extends RadserveError {}

export interface ClientPatience {
  /** Milliseconds to go on trying while the server does not answer; for ever where absent. */
  forMs?: number;
  signal?: AbortSignal;
  /** Told at every attempt that failed. */
  onRetry?: (why: RadserveError) => void;
}

/** Advice about certificates that one side refuses, by Node's codes and messages. */
const TLS_ADVICE: [RegExp, string][] = [
  [
    /^(?:DEPTH_ZERO_)?SELF_SIGNED|^UNABLE_TO_(?:GET_ISSUER|VERIFY)/,
    "Name its CA in RADSERVE_TLS_CA (or NODE_EXTRA_CA_CERTS).",
  ],
  [/^ERR_TLS_CERT_ALTNAME_INVALID /, "Use a name in RADSERVE_URL that its certificate has."],
  [/^CERT_HAS_EXPIRED /, "Its certificate has expired; put a new one on the server."],
  [
    /ALERT_CERTIFICATE_REQUIRED|ALERT_(?:BAD_CERTIFICATE|UNKNOWN_CA)|alert handshake failure/,
    "It asks clients for a certificate: set RADSERVE_TLS_CLIENT_CERT and RADSERVE_TLS_CLIENT_KEY.",
  ],
];
const USUAL_ADVICE = "Start it with radserve serve, or set RADSERVE_URL.";

/** Throws ConfigError where the file cannot be read. */
function readPem(setting: "ca" | "cert" | "key", file: string | undefined): Record<string, Buffer> {
  if (file === undefined) return {};
  try {
    return { [setting]: readFileSync(file) };
  } catch (error) {
    const name = `RADSERVE_TLS_${setting === "ca" ? "CA" : `CLIENT_${setting.toUpperCase()}`}`;
    throw new ConfigError(`${name}: expected a file in PEM; it cannot be read (${errno(error)}).`);
  }
}

/** Loaded only for a server that speaks TLS: it takes a tenth of the time of `radserve status`. */
const tlsOfNode = () => process.getBuiltinModule("node:tls");
const httpsOfNode = () => process.getBuiltinModule("node:https");

/** Answers that come later are not waited for. */
export interface ClientLimits {
  /** For all answers together, from the first on. */
  withinMs?: number;
  /** For each. */
  eachMs?: number;
}

export class Client {
  readonly #agent: http.Agent | https.Agent;
  readonly #tls: tls.ConnectionOptions;
  readonly #end: AbortSignal | undefined;

  /**
   * @param files in PEM, for https
   * @throws ConfigError where one of them cannot be read
   */
  constructor(
    readonly url: string,
    private readonly token: string | undefined,
    files: Partial<Pick<ClientSettings, "ca" | "cert" | "key">> = {},
    private readonly limits: ClientLimits = {},
  ) {
    const { ca, cert, key } = files;
    const { withinMs } = limits;
    this.#end = withinMs === undefined ? undefined : AbortSignal.timeout(withinMs);
    this.#tls = { ...readPem("ca", ca), ...readPem("cert", cert), ...readPem("key", key) };
    this.#agent = url.startsWith("https:")
      ? new (httpsOfNode().Agent)({ keepAlive: true, ...this.#tls })
      : new http.Agent({ keepAlive: true });
  }

  /** When the certificate that the server shows ends; undefined over plain HTTP. */
  async certificateEnd(): Promise<Date | undefined> {
    if (!this.url.startsWith("https:")) return undefined;
    const { hostname, port } = new URL(this.url);
    const host = hostname.replace(/^\[|\]$/g, "");
    const servername = net.isIP(host) === 0 ? { servername: host } : {};
    return new Promise((resolve, reject) => {
      const options = { ...this.#tls, ...servername, host, port: Number(port || 443) };
      const socket = tlsOfNode().connect(options, () => {
        resolve(new Date(socket.getPeerCertificate().valid_to));
        socket.destroy();
      });
      socket.once("error", reject);
      const late = () => {
        socket.destroy();
        reject(this.#silent());
      };
      if (this.isLate) late();
      else this.#end?.addEventListener("abort", late, { once: true });
    });
  }

  /** The time for its answers is over. */
  get isLate(): boolean {
    return this.#end?.aborted === true;
  }

  get hasToken(): boolean {
    return this.token !== undefined;
  }

  /**
   * One request.
   * @throws RadserveError model_unavailable where nothing answers, or something that is no Radserve
   */
  async send(
    method: string,
    endpoint: string,
    body?: unknown,
  ): Promise<{ status: number; body: unknown }> {
    let reply: { status: number; text: string };
    const { eachMs } = this.limits;
    const each = eachMs === undefined ? undefined : AbortSignal.timeout(eachMs);
    try {
      const text = body === undefined ? undefined : JSON.stringify(body);
      reply = await this.#exchange(method, endpoint, text, each);
    } catch (error) {
      if (this.isLate || each?.aborted === true) throw this.#silent();
      const code = errno(error);
      // Some alerts of TLS 1.2 have no code of their own, and stand in the message
      const words = `${code} ${error instanceof Error ? error.message : ""}`;
      const advice = TLS_ADVICE.find(([kind]) => kind.test(words))?.[1] ?? USUAL_ADVICE;
      throw new Unreachable(
        "model_unavailable",
        `Expected a Radserve at ${this.url}; none answers${code === "" ? "" : ` (${code})`}. ${advice}`,
        undefined,
        { cause: error },
      );
    }
    try {
      return { status: reply.status, body: JSON.parse(reply.text) as unknown };
    } catch {
      throw this.#stranger(reply.status);
    }
  }

  #exchange(
    method: string,
    endpoint: string,
    body: string | undefined,
    each: AbortSignal | undefined,
  ): Promise<{ status: number; text: string }> {
    const ends = [this.#end, each].filter((end) => end !== undefined);
    const { request } = this.url.startsWith("https:") ? httpsOfNode() : http;
    return new Promise((resolve, reject) => {
      const sent = request(this.url + endpoint, {
        method,
        agent: this.#agent,
        signal: AbortSignal.any(ends),
        headers: {
          ...(this.token === undefined ? {} : { Authorization: this.token }),
          ...(body === undefined
            ? {}
            : { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) }),
        },
      });
      sent.once("error", reject);
      sent.once("response", (response) => {
        text(response).then(
          (read) => resolve({ status: response.statusCode ?? 0, text: read }),
          reject,
        );
      });
      sent.end(body);
    });
  }

  /**
   * One request whose answer must be of this form. Throws the server's own error where it refuses.
   */
  async call<T>(
    schema: z.ZodType<T>,
    method: string,
    endpoint: string,
    body?: unknown,
  ): Promise<T> {
    const { status, body: answer } = await this.send(method, endpoint, body);
    if (status >= 400) throw this.#refusal(status, answer);
    const parsed = schema.safeParse(answer);
    if (!parsed.success) throw this.#stranger(status);
    return parsed.data;
  }

  /** `call`, again and again while the server does not answer, restarts or cannot take work now. */
  async callPatiently<T>(
    schema: z.ZodType<T>,
    patience: ClientPatience,
    ...[method, endpoint, body]: [method: string, endpoint: string, body?: unknown]
  ): Promise<T> {
    const end = performance.now() + (patience.forMs ?? Infinity);
    for (let failures = 1; ; failures++) {
      const pause = backOff(failures, RETRY);
      try {
        return await this.call(schema, method, endpoint, body);
      } catch (error) {
        if (!(error instanceof Unreachable) || performance.now() + pause > end) throw error;
        patience.onRetry?.(error);
        await delay(
          pause,
          undefined,
          patience.signal === undefined ? {} : { signal: patience.signal },
        );
      }
    }
  }

  #refusal(status: number, answer: unknown): RadserveError {
    const { data } = errorObjectSchema.safeParse(answer);
    if (data === undefined) return this.#stranger(status);
    const { error, message, details } = data;
    if ([408, 429, 503].includes(status)) return new Unreachable(error, message, details);
    if (status !== 401)
      return RadserveError.fromObject({ error, message, ...(details && { details }) });
    return new RadserveError(
      error,
      `${message}. ${this.url} refuses the token in RADSERVE_TOKEN; make another with radserve token issue --subject NAME.`,
      details,
    );
  }

  #silent(): RadserveError {
    const { withinMs = 0, eachMs = withinMs } = this.limits;
    return new Unreachable(
      "model_unavailable",
      `Expected an answer of the Radserve at ${this.url} within ${eachMs / 1000} s; it takes connections and does not answer, or the network loses them. Its process may be stopped, swapped out, or held by a share that is dead: look at it with ps (state T or D) and at dmesg, and restart it.`,
    );
  }

  #stranger(status: number): RadserveError {
    if (OF_PROXIES.has(status))
      return new Unreachable(
        "model_unavailable",
        `Expected a Radserve at ${this.url}; a proxy answered ${status}, because no server behind it answers. Start one, or see the proxy's log.`,
      );
    return errors.model_unavailable(
      `Expected a Radserve of this version at ${this.url}; found something else, which answered ${status}. Check RADSERVE_URL.`,
    );
  }
}

/** The server that the settings name, with the token where there is one. */
export function openClient(config: Config, limits: ClientLimits): Client {
  const { url, token, ...tls } = clientSettings(config);
  return new Client(url, token, tls, limits);
}

/**
 * The server that the settings name. Throws ConfigError where there is no token.
 * @param eachMs an answer that comes later is not waited for
 */
export function clientWithToken(config: Config, eachMs = durations.commandCall): Client {
  const client = openClient(config, { eachMs });
  if (client.hasToken) return client;
  throw new ConfigError(
    "RADSERVE_TOKEN: expected the token of this client; found none. Make one with: radserve token issue --subject NAME",
  );
}

/** The query of an address, of those fields that are given. */
export const queryOf = (fields: Record<string, string | undefined>) =>
  new URLSearchParams(
    Object.entries(fields).filter((field): field is [string, string] => field[1] !== undefined),
  ).toString();
