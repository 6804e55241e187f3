/** What doctor says of one thing that serving needs. */
import { accessSync, constants, statSync } from "node:fs";
import { errno } from "../../base/errno.js";
import { tryMaking } from "../../files/durable-files.js";

export interface Finding {
  name: string;
  /** False for what keeps Radserve, or a part of it, from working; the exit status tells of it. */
  ok: boolean;
  found: string;
  /** What to do; advice where all is ok. */
  fix?: string;
}

export const good = (name: string, found: string): Finding => ({ name, ok: true, found });
export const bad = (name: string, found: string, fix: string): Finding => ({ name, ok: false, found, fix });
/** It works, and somebody may want it otherwise. */
export const advice = (name: string, found: string, fix: string): Finding => ({
  name,
  ok: true,
  found,
  fix,
});

export const wordsOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** One check. What it throws is its finding: one broken part must not hide what is wrong with the others. */
export async function checked(
  name: string,
  look: () => Finding[] | Promise<Finding[]>,
  fix: string,
): Promise<Finding[]> {
  try {
    return await look();
  } catch (error) {
    return [bad(name, wordsOf(error), fix)];
  }
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such folder",
  EACCES: "this user may not (EACCES)",
  EROFS: "its file system is mounted read-only (EROFS)",
  ENOSPC: "its disk is full, or has no inodes left (ENOSPC)",
  EDQUOT: "the quota of this user is used up (EDQUOT)",
  ESTALE: "the share is away (ESTALE)",
  EIO: "the disk or the share fails (EIO)",
};

/** Why this user cannot use a folder so; undefined where it can. */
export function whyNot(folder: string, mode: number): string | undefined {
  try {
    if (!statSync(folder).isDirectory()) return "it is no folder";
    accessSync(folder, mode);
    if ((mode & constants.W_OK) !== 0) tryMaking(folder);
    return undefined;
  } catch (error) {
    const code = errno(error);
    return REASONS[code] ?? (code || "it cannot be used");
  }
}
