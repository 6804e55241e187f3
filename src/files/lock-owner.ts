/**
 * Who holds the lock of a NAME: how a process names itself in the lock's file, and whether it is
 * known to be dead.
 */
import { randomUUID } from "node:crypto";
import { readlinkSync } from "node:fs";
import { readFile, readlink } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { z } from "zod";
import { errno, tried } from "../base/errno.js";
import { storedJson } from "../base/stored-json.js";

const ownerSchema = z.object({
  token: z.string(),
  host: z.string(),
  boot_id: z.string(),
  pid_namespace: z.string(),
  pid: z.int(),
  started: z.string(),
  /** Earlier versions did not say their thread. */
  thread: z.object({ id: z.int(), started: z.string() }).optional(),
  lease_ms: z.number().min(10).max(3_600_000),
  beat: z.string(),
});
export type LockOwner = z.infer<typeof ownerSchema>;

/** Undefined if the text is not whole, or of no lock. */
export const parseOwner = (text: string) => ownerSchema.safeParse(storedJson(text)).data;

export const serialise = (owner: LockOwner): string => `${JSON.stringify(owner)}\n`;

/** It has a fixed width, so that a rewrite never leaves a tail of the last one. */
export const beatText = (count: number): string => count.toString().padStart(12, "0");

/**
 * Dead for certain: the owner ran on this kernel, in this PID namespace, and there is no such
 * process any more, or no such thread of it. A worker thread that was ended is gone only when none
 * of its file operations runs any more.
 */
export async function isDead(owner: LockOwner): Promise<boolean> {
  const here = await machine();
  if (
    owner.boot_id !== here.boot_id ||
    owner.pid_namespace !== here.pid_namespace ||
    owner.host !== here.host ||
    here.boot_id === ""
  )
    return false;
  const started = await startTime(owner.pid);
  if (started === undefined || owner.started === "") return !exists(owner.pid);
  if (started !== owner.started) return true;
  if (owner.thread === undefined) return false;
  const thread = await startTime(`${owner.pid}/task/${owner.thread.id}`, GONE);
  return thread !== undefined && thread !== owner.thread.started;
}

/** Stands for the start of a thread that is not there; no start is so. */
const GONE = "gone";

/** Sees processes that /proc hides, too: a signal that is not permitted has found its process. */
function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return errno(error) !== "ESRCH";
  }
}

/** This process and this thread, which do not change. */
let ownTimes: Promise<Pick<LockOwner, "started" | "thread">> | undefined;

async function findOwnTimes(): Promise<Pick<LockOwner, "started" | "thread">> {
  const started = (await startTime(process.pid)) ?? "";
  // This thread's number in the kernel (proc(5)); the link is read at once, because libuv's threads
  // have their own
  const id = tried(() => Number(path.basename(readlinkSync("/proc/thread-self"))));
  const threadStarted = id === undefined ? undefined : await startTime(`${process.pid}/task/${id}`);
  return {
    started,
    ...(id === undefined || threadStarted === undefined
      ? {}
      : { thread: { id, started: threadStarted } }),
  };
}

export async function self(leaseMs: number): Promise<LockOwner> {
  ownTimes ??= findOwnTimes();
  return {
    token: randomUUID(),
    ...(await machine()),
    pid: process.pid,
    ...(await ownTimes),
    lease_ms: leaseMs,
    beat: beatText(0),
  };
}

let machineFacts: Promise<Pick<LockOwner, "host" | "boot_id" | "pid_namespace">> | undefined;
function machine(): Promise<Pick<LockOwner, "host" | "boot_id" | "pid_namespace">> {
  machineFacts ??= (async () => ({
    host: hostname(),
    boot_id: (await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => "")).trim(),
    pid_namespace: await readlink("/proc/self/ns/pid").catch(() => ""),
  }))();
  return machineFacts;
}

/**
 * @param place a process, or PID/task/TID for a thread of it
 * @param absent what stands for one that is not there, and not hidden either
 * @returns undefined where nobody knows, for want of descriptors for example
 */
async function startTime(place: number | string, absent?: string): Promise<string | undefined> {
  try {
    return startIn(await readFile(`/proc/${place}/stat`, "utf8"));
  } catch (error) {
    return errno(error) === "ENOENT" || errno(error) === "ESRCH" ? absent : undefined;
  }
}

/**
 * When a process or thread started, in clock ticks since boot, by the text of its stat file: tells
 * it from a later one with its number. Empty for one that has ended with all its threads and only
 * waits for its parent to take note.
 */
function startIn(stat: string): string | undefined {
  // The second field is the command in parentheses and may hold anything (proc(5)): the others are
  // counted behind it
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, threads, start] = [fields[0], fields[17], fields[19]];
  // A killed thread finishes the system call that it is in, when the first one may have ended
  // already
  return (state === "Z" || state === "X") && Number(threads) <= 1 ? "" : start;
}
