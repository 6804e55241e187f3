/** Who holds the lock of a NAME: how a process names itself in the lock's file, and whether it is known to be dead. */
import { randomUUID } from "node:crypto";
import { readFile, readlink } from "node:fs/promises";
import { hostname } from "node:os";
import { z } from "zod";
import { errno } from "../base/errno.js";

const ownerSchema = z.object({
  token: z.string(),
  host: z.string(),
  boot_id: z.string(),
  pid_namespace: z.string(),
  pid: z.int(),
  started: z.string(),
  lease_ms: z.number().min(10).max(3_600_000),
  beat: z.string(),
});
export type Owner = z.infer<typeof ownerSchema>;

/** Undefined if the text is not whole, or of no lock. */
export function parseOwner(text: string): Owner | undefined {
  try {
    return ownerSchema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

export const serialise = (owner: Owner): string => `${JSON.stringify(owner)}\n`;

/** It has a fixed width, so that a rewrite never leaves a tail of the last one. */
export const beatText = (count: number): string => count.toString().padStart(12, "0");

/** Dead for certain: the owner ran on this kernel, in this PID namespace, and there is no such process any more. */
export async function isDead(owner: Owner): Promise<boolean> {
  const here = await machine();
  if (
    owner.boot_id !== here.boot_id ||
    owner.pid_namespace !== here.pid_namespace ||
    owner.host !== here.host ||
    here.boot_id === ""
  )
    return false;
  const started = await startTime(owner.pid);
  if (started !== undefined && owner.started !== "") return started !== owner.started;
  return !exists(owner.pid);
}

/** Sees processes that /proc hides, too: a signal that is not permitted has found its process. */
function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return errno(error) !== "ESRCH";
  }
}

/** When this process started, which does not change. */
let ownStart: Promise<string> | undefined;

export async function self(leaseMs: number): Promise<Owner> {
  ownStart ??= startTime(process.pid).then((time) => time ?? "");
  return {
    token: randomUUID(),
    ...(await machine()),
    pid: process.pid,
    started: await ownStart,
    lease_ms: leaseMs,
    beat: beatText(0),
  };
}

let machineFacts: Promise<Pick<Owner, "host" | "boot_id" | "pid_namespace">> | undefined;
function machine(): Promise<Pick<Owner, "host" | "boot_id" | "pid_namespace">> {
  machineFacts ??= (async () => ({
    host: hostname(),
    boot_id: (await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => "")).trim(),
    pid_namespace: await readlink("/proc/self/ns/pid").catch(() => ""),
  }))();
  return machineFacts;
}

async function startTime(pid: number): Promise<string | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => undefined);
  return stat === undefined ? undefined : startIn(stat);
}

/**
 * When a process started, in clock ticks since boot, by the text of its /proc/PID/stat: tells it from a later one with
 * its number. Empty for one that has ended with all its threads and only waits for its parent to take note.
 */
function startIn(stat: string): string | undefined {
  // The second field is the command in parentheses and may hold anything (proc(5)): the others are counted behind it
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, threads, start] = [fields[0], fields[17], fields[19]];
  // A killed thread finishes the system call that it is in, when the first one may have ended already
  return (state === "Z" || state === "X") && Number(threads) <= 1 ? "" : start;
}
