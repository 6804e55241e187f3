/** Every request with its one answer: what came, whether it was promised, and what was not. */
import { setTimeout as delay } from "node:timers/promises";

/**
 * How long after a kill, or after the start that follows it, a connection may still break because
 * of it.
 */
const AFTERMATH_MS = 5_000;
const LONGEST_ANSWER_MS = 180_000;
const LONGEST_REPETITION_MS = 120_000;
const AGAIN_MS = 250;

/** Refusals that pass: the server says so, and to repeat the request is the answer to it. */
const PASSING = new Set(["overloaded", "shutting_down"]);
/** The server had no processor for longer than a request may take to come (RFC 9110, 15.5.9). */
const TIMEOUT = 408;

export interface Expectation {
  /** Statuses that end the request. */
  statuses: readonly number[];
  /** Codes of errors that are answers here too, beside those: disk_full, deadline_exceeded. */
  codes?: readonly string[];
  /** Codes after which it is sent again, beside overloaded and shutting_down. */
  passing?: readonly string[];
}

export interface Answer {
  status: number;
  body: unknown;
}

const codeOf = (body: unknown): string =>
  typeof body === "object" && body !== null && "error" in body ? String(body.error) : "";

/** fetch says "fetch failed", and its cause what happened. */
function wordsOfFault(error: unknown): string {
  const { cause } = error as { cause?: { code?: string; message?: string } };
  return `${String(error)} (${cause?.code ?? cause?.message ?? "no cause"})`;
}

export class Ledger {
  /** How often each kind of request ended how, for example "single 200". */
  readonly counts: Map<string, number>;
  readonly faults: string[];
  readonly #kills: { at: number; ready: number }[] = [];

  /** @param other of another node; both count together */
  constructor(
    private readonly url: string,
    private readonly token: string,
    other?: Ledger,
  ) {
    this.counts = other?.counts ?? new Map<string, number>();
    this.faults = other?.faults ?? [];
  }

  /**
   * The supervisor or the serving process is killed now.
   * @returns to be called when the server is ready again
   */
  killed(): () => void {
    const at = performance.now();
    // However long the start takes, until it is over the kill explains what breaks
    const kill = { at, ready: Infinity };
    this.#kills.push(kill);
    return () => (kill.ready = performance.now());
  }

  /** When the server was killed last, and when it was ready again. */
  get lastKill(): { at: number; ready: number } | undefined {
    return this.#kills.at(-1);
  }

  count(what: string, times = 1): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + times);
  }

  fault(text: string): void {
    this.count("FAULT");
    if (this.faults.length < 100) this.faults.push(text);
  }

  /**
   * Sends a request until it has an answer that ends it. A connection that breaks is a fault unless
   * a kill explains it, and so is an answer that was not promised.
   */
  async ask(
    kind: string,
    method: string,
    page: string,
    expected: Expectation,
    body?: unknown,
    token = this.token,
  ): Promise<Answer | undefined> {
    const end = performance.now() + LONGEST_REPETITION_MS;
    while (performance.now() < end) {
      const began = performance.now();
      const answer = await this.#send(method, page, body, token).catch(wordsOfFault);
      if (typeof answer === "string") {
        const explained = this.#kills.some(
          ({ at, ready }) => ready >= began - AFTERMATH_MS && at <= performance.now(),
        );
        this.count(`${kind} ${explained ? "cut off by a kill" : "cut off"}`);
        if (!explained)
          this.fault(`${kind}: ${answer}, after ${Math.round(performance.now() - began)} ms`);
      } else {
        const code = codeOf(answer.body);
        this.count(`${kind} ${answer.status}${code === "" ? "" : ` ${code}`}`);
        if (expected.statuses.includes(answer.status) || expected.codes?.includes(code) === true)
          return answer;
        if (
          answer.status !== TIMEOUT &&
          !PASSING.has(code) &&
          expected.passing?.includes(code) !== true
        ) {
          this.fault(`${kind}: ${answer.status} ${JSON.stringify(answer.body).slice(0, 300)}`);
          return undefined;
        }
      }
      await delay(AGAIN_MS);
    }
    this.fault(`${kind}: no answer that ends it within ${LONGEST_REPETITION_MS / 1000} s`);
    return undefined;
  }

  async #send(method: string, page: string, body: unknown, token: string): Promise<Answer> {
    const response = await fetch(this.url + page, {
      method,
      headers: {
        Authorization: token,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(LONGEST_ANSWER_MS),
    });
    const text = await response.text();
    const json = response.headers.get("content-type")?.includes("json") === true;
    return { status: response.status, body: json ? (JSON.parse(text) as unknown) : text };
  }
}
