/**
 * The audit of one process: it collects what has happened, writes it in groups, and reports when
 * the disk has it. The serving process has one on its main thread. A command that issues a token
 * opens one for a moment.
 */
import os from "node:os";
import { setImmediate } from "node:timers/promises";
import { durations } from "../base/durations.js";
import { ConfigError, errors, RadserveError, refusalFor } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { faultForLog, type Logger } from "../base/log.js";
import { AuditChain, type Timed } from "./chain.js";
import { headText, type AuditFacts } from "./entry.js";
import { hashOf, openFolder, type HashedKind } from "./folders.js";
import { RefusedTokens } from "./refused-tokens.js";
import type { KeyObject } from "node:crypto";

/** Lines that are written together at most: making them takes the main thread some milliseconds. */
const MOST_TOGETHER = 256;
const HEAD_EVERY_MS = 60_000;

interface WaitingLine {
  line: Timed;
  resolve: () => void;
  reject: (error: RadserveError) => void;
}

interface Outage {
  since: string;
  /** Actions that were refused for want of a line. */
  count: number;
}

export function auditFailed(cause?: unknown): RadserveError {
  const why = errno(cause);
  return errors.audit_failed(
    "Expected to write down in the audit what was asked for; that could not be done, so nothing was done. " +
      "Tell the administrator: the disk of the state directory may be full or not writable.",
    why === "" ? undefined : { errno: why },
    { cause },
  );
}

export class Audit {
  readonly refusals: RefusedTokens;
  #waiting: WaitingLine[] = [];
  #writing: Promise<void> | undefined;
  #outage: Outage | undefined;
  #again: NodeJS.Timeout | undefined;
  #said: string;
  #headTimer: NodeJS.Timeout | undefined;

  private constructor(
    private readonly chain: AuditChain,
    private readonly names: KeyObject,
    private readonly log: Logger,
  ) {
    this.#said = headText(chain.head);
    this.refusals = new RefusedTokens((facts) => void this.record(facts).catch(() => undefined));
    if (chain.wasCut)
      log.error(
        { head: this.#said },
        "the end of the audit is gone: its last line is older than the head that was said; radserve audit verify says more",
      );
  }

  /**
   * Opens the audit of a state directory, and makes it where there is none. Its first line is this
   * one.
   * @throws ConfigError where its keys are gone or wrong, or nothing can be written
   */
  static async open(stateDir: string, first: AuditFacts, log: Logger): Promise<Audit> {
    try {
      const place = await openFolder(stateDir);
      const chain = new AuditChain({ ...place, stateDir }, os.hostname());
      const audit = new Audit(chain, place.keys.names, log);
      await audit.record(first);
      if (chain.isHeadGone)
        log.error(
          "the head of the audit is gone, and lines may be gone with it; radserve audit verify --head says more",
        );
      return audit;
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      const why = errno(error instanceof RadserveError ? error.cause : error) || "unknown";
      throw refusalFor(
        why,
        `RADSERVE_STATE_DIR: expected to write the audit in ${stateDir}; that cannot be done (${why}). Make room on ` +
          "its disk, and let this user write to the folder audit and its files.",
        { cause: error },
      );
    }
  }

  /** The keyed hash that stands for a name in the lines. */
  hash(what: HashedKind, name: string): string {
    return hashOf(this.names, what, name);
  }

  /** True while no line can be written. */
  get isFailing(): boolean {
    return this.#outage !== undefined;
  }

  /** Writes a line, and resolves when the disk has it. @throws RadserveError audit_failed */
  record(facts: AuditFacts): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ line: { ...facts, time: new Date().toISOString() }, resolve, reject });
      // Lines that come in this turn of the event loop go together
      this.#writing ??= setImmediate().then(() => this.#write());
    });
  }

  /** Says the head now, and each minute in which it has moved. */
  sayHeads(): void {
    void this.#sayHead();
    this.#headTimer = setInterval(() => void this.#sayHead(), HEAD_EVERY_MS).unref();
  }

  /** Writes what waits, says the last head, and closes the file. */
  async close(): Promise<void> {
    this.refusals.close();
    clearInterval(this.#headTimer);
    while (this.#writing !== undefined) await this.#writing;
    clearTimeout(this.#again);
    await this.#sayHead();
    this.chain.close();
  }

  /** @param isRetry true: writing is tried though nothing waits */
  async #write(isRetry = false): Promise<void> {
    while (this.#waiting.length > 0 || isRetry) {
      isRetry = false;
      const group = this.#waiting.splice(0, MOST_TOGETHER);
      const outage = this.#outage;
      // What takes too long is refused, whatever becomes of its lines
      const late = setTimeout(
        () => this.#fail([...group.splice(0), ...this.#waiting.splice(0)], undefined),
        durations.auditLine,
      );
      try {
        const trouble = outage && {
          kind: "trouble" as const,
          time: new Date().toISOString(),
          ...outage,
        };
        await this.chain.append([...(trouble ? [trouble] : []), ...group.map(({ line }) => line)]);
        if (outage !== undefined && trouble !== undefined) {
          const count = outage.count - trouble.count;
          this.#outage = count > 0 ? { since: new Date().toISOString(), count } : undefined;
          this.log.info({ count: trouble.count }, "the audit is written again");
        }
        // Their time was over before the disk had them: the next line says so
        isRetry = this.#outage !== undefined;
        for (const { resolve } of group) resolve();
      } catch (error) {
        this.#fail(group, error);
      } finally {
        clearTimeout(late);
      }
    }
    this.#writing = undefined;
  }

  /**
   * Refuses what waited for these lines, and tries again by itself, so that readiness comes back.
   */
  #fail(group: readonly WaitingLine[], cause: unknown): void {
    if (this.#outage === undefined)
      this.log.error(
        { fault: faultForLog(cause) },
        "the audit cannot be written; what needs a line is refused",
      );
    this.#outage ??= { since: new Date().toISOString(), count: 0 };
    this.#outage.count += group.length;
    for (const { reject } of group) reject(auditFailed(cause));
    this.#again ??= setTimeout(() => {
      this.#again = undefined;
      if (this.#outage !== undefined) this.#writing ??= this.#write(true);
    }, durations.auditRetry).unref();
  }

  async #sayHead(): Promise<void> {
    const head = headText(this.chain.head);
    if (head === this.#said && this.chain.head.seq !== 0) return;
    this.#said = head;
    this.log.info({ head }, "audit head");
    await this.chain.sayHead().catch((error: unknown) => {
      this.log.warn({ fault: faultForLog(error) }, "the head of the audit could not be kept");
    });
  }
}
