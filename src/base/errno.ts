/** Faults of the system: their names, and errors as node:fs makes them. */
import { getSystemErrorName } from "node:util";

/** The name of a fault of the system (errno(3)), of Node or of PostgreSQL, for example ENOENT or 57P03; empty where it has none. */
export function errno(thrown: unknown): string {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : "";
}

/**
 * An error as those of node:fs are, without the path, which can be a patient's name.
 * @param number as errno(3) has it
 */
export function systemError(number: number, syscall: string): NodeJS.ErrnoException {
  const code = getSystemErrorName(-number);
  return Object.assign(new Error(`${code}, ${syscall}`), { code, errno: -number, syscall });
}
