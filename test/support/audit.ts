/** The audit of a test's server: its files, its lines, and what a command says of it. */
import { execFileSync, spawnSync } from "node:child_process";
import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { auditPaths } from "../../src/audit/folders.js";
import { readLine, type AuditEntry } from "../../src/audit/entry.js";
import { radserve, type Place, type Ran } from "./server.js";

export const pathsOf = (place: Place) => auditPaths(place.environment["RADSERVE_STATE_DIR"]!);

/** Paths of its files, the oldest first. */
export function filesOf(place: Place): string[] {
  const { folder } = pathsOf(place);
  return readdirSync(folder)
    .sort()
    .map((name) => path.join(folder, name));
}

export function textOf(place: Place): string {
  return filesOf(place)
    .map((file) => readFileSync(file, "utf8"))
    .join("");
}

/** Lines that are whole, with their MACs. */
export function linesOf(place: Place): AuditEntry[] {
  return textOf(place)
    .split("\n")
    .flatMap((line) => readLine(line)?.entry ?? []);
}

export interface Report extends Ran {
  ok: boolean;
  head: string;
  lines: number;
  faults: { file: string; line: number; message: string }[];
  notes: { file: string; line: number; message: string }[];
}

/** What `radserve audit verify` finds. */
export async function verified(place: Place, ...options: string[]): Promise<Report> {
  const ran = await radserve(place, "audit", "verify", "--json", ...options);
  return { ...ran, ...(JSON.parse(ran.stdout) as Omit<Report, keyof Ran>) };
}

export const mounts = (folder: string, size: string) =>
  spawnSync("mount", ["-t", "tmpfs", "-o", `size=${size},mode=700`, "tmpfs", folder]).status === 0;

/** Gives the audit of a place a small disk of its own; undefined where this user may not mount. */
export function onSmallDisk(place: Place): { fill: () => void; free: () => void } | undefined {
  const { folder } = pathsOf(place);
  mkdirSync(folder, { recursive: true });
  if (!mounts(folder, "512k")) return undefined;
  const remove = place.remove.bind(place);
  place.remove = () => {
    execFileSync("umount", ["-l", folder]);
    remove();
  };
  const filler = path.join(folder, "filler");
  return {
    fill() {
      try {
        for (;;) appendFileSync(filler, Buffer.alloc(512));
      } catch {
        // Full
      }
    },
    free: () => rmSync(filler),
  };
}
