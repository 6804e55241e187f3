/** Faults as the log may tell them. */
import { errno } from "./errno.js";

/** A fault of another thread, as its own `faultForLog` told it. */
export class DistantFault extends Error {
  override readonly name = "DistantFault";

  /** @param code the system's own code behind it, for example EIO; empty if there is none */
  constructor(
    readonly fault: Record<string, unknown>,
    readonly code: string,
  ) {
    super("Another thread failed");
  }
}

/**
 * Whatever was thrown, without its words: messages of the system quote file names, and those can
 * name patients.
 */
export function faultForLog(thrown: unknown): Record<string, unknown> {
  if (thrown instanceof DistantFault) return thrown.fault;
  if (!(thrown instanceof Error)) return { type: typeof thrown };
  const name = errno(thrown);
  const code = name === "" ? {} : { code: name };
  const frames = (thrown.stack ?? "")
    .split("\n")
    .filter((line) => /^\s+at /.test(line))
    .map((line) => line.trim());
  const cause = thrown.cause === undefined ? {} : { cause: faultForLog(thrown.cause) };
  return { type: thrown.name, ...code, message: withoutNames(thrown.message), frames, ...cause };
}

/** Quoted text and paths are taken out of a message. */
export function withoutNames(message: string): string {
  return message
    .replaceAll(/'[^']*'|"[^"]*"|`[^`]*`/g, "'...'")
    .split(/(\s)/)
    .map((word) => (/[/\\]/.test(word) ? "..." : word))
    .join("")
    .slice(0, 500);
}
