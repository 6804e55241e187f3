/** Faults of the system: their names, and errors as node:fs makes them. */
import { constants } from "node:os";

const NAMES = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));

/**
 * The name of a fault of the system (errno(3)), of Node or of PostgreSQL, for example ENOENT or
 * 57P03; empty where it has none. Node calls a fault that libuv has no name for "Unknown system
 * error -122": a quota that is used up (EDQUOT) and a share that went away (ESTALE) are among them.
 */
export function errno(thrown: unknown): string {
  if (!(thrown instanceof Error && "code" in thrown && typeof thrown.code === "string")) return "";
  const unnamed = /^Unknown system error -(\d+)$/.exec(thrown.code);
  return (unnamed && NAMES.get(Number(unnamed[1]))) ?? thrown.code;
}

/** What a call gives; undefined where it throws, for whoever need not know why. */
export function tried<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch {
    return undefined;
  }
}

/**
 * For `.catch` of what makes a file, a link or a folder: what has the name already stays; any other
 * error goes on.
 */
export function ifThere(error: unknown): void {
  if (errno(error) !== "EEXIST") throw error;
}

/**
 * An error like one of node:fs, but without the path, which can hold a patient's name.
 * @param number as errno(3) has it
 */
export function systemError(number: number, syscall: string): NodeJS.ErrnoException {
  const code = NAMES.get(number) ?? `errno ${number}`;
  return Object.assign(new Error(`${code}, ${syscall}`), { code, errno: -number, syscall });
}
