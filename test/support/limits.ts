/** Limits of a process that runs: what the system then refuses, it refuses in earnest. */
import { execFileSync } from "node:child_process";

/**
 * @param name as prlimit(1) calls it
 * @param account whose the process is; root of a container may not set limits of others
 * @returns sets the limit back
 */
export function lowerLimit(
  pid: number,
  name: "nofile" | "nproc",
  most: number,
  account: { uid?: number; gid?: number } = {},
): () => void {
  const prlimit = (...words: string[]): string =>
    execFileSync("prlimit", ["--pid", String(pid), ...words], { ...account, encoding: "utf8" });
  const before = prlimit(`--${name}`, "--output=SOFT", "--noheadings").trim();
  prlimit(`--${name}=${most}:`);
  return () => void prlimit(`--${name}=${before}:`);
}
