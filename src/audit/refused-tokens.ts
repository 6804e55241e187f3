/**
 * Refused tokens, so that a flood of them fills no disk: of each address and reason the first is
 * written at once, and how many came after it once a minute. What more addresses than a hundred
 * send in a minute is counted by reason alone.
 */
import { durations } from "../base/durations.js";
import type { AuditFacts } from "./entry.js";

const MOST_IN_WINDOW = 100;

/**
 * One refused token. The subject and jti are known where the signature is right: the token is
 * expired or revoked.
 */
export interface RefusedToken {
  address: string | undefined;
  reason: string;
  endpoint: string;
  request_id: string;
  subject?: string | undefined;
  jti?: string | undefined;
}

export class RefusedTokens {
  readonly #seen = new Map<string, { facts: AuditFacts; count: number; since: string }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly write: (facts: AuditFacts) => void) {}

  add({ address, reason, subject, jti, ...rest }: RefusedToken): void {
    const many = this.#seen.size >= MOST_IN_WINDOW;
    const by = JSON.stringify([address, reason, jti]);
    const key = this.#seen.has(by) || !many ? by : reason;
    const before = this.#seen.get(key);
    if (before !== undefined) {
      before.count += 1;
      return;
    }
    const isOne = key === by;
    const facts: AuditFacts = {
      kind: "refused",
      reason,
      ...(isOne ? { address, subject, jti } : {}),
    };
    this.#seen.set(key, { facts, count: 0, since: new Date().toISOString() });
    this.write({ ...facts, ...rest });
    this.#timer ??= setTimeout(() => this.#tell(), durations.auditWindow).unref();
  }

  /** Tells what has been counted. */
  close(): void {
    this.#tell();
  }

  #tell(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const { facts, count, since } of this.#seen.values())
      if (count > 0) this.write({ ...facts, count, since });
    this.#seen.clear();
  }
}
