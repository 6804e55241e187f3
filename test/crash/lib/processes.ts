/** Processes of this machine as /proc shows them, also those inside other PID namespaces. */
import { readdirSync, readFileSync } from "node:fs";

function parentOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // proc(5): the command stands in parentheses and may hold anything; state and parent follow it.
    const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return state === "Z" ? undefined : Number(parent);
  } catch {
    return undefined;
  }
}

export const isAlive = (pid: number): boolean => parentOf(pid) !== undefined;

export function commandOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8")
      .split("\0")
      .filter((word) => word !== "");
  } catch {
    return [];
  }
}

/** All living processes below `ancestor`. */
export function descendants(ancestor: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const parent = parentOf(Number(name));
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const found: number[] = [];
  for (const open = [ancestor]; open.length > 0;) {
    const below = children.get(open.pop()!) ?? [];
    found.push(...below);
    open.push(...below);
  }
  return found;
}

/** kill -9; false where it is gone already. */
export function slay(pid: number, signal: NodeJS.Signals = "SIGKILL"): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}
