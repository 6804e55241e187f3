/** Findings of doctor, each about one thing that serving needs. */
import path from "node:path";
import { within } from "../../base/waiting.js";
import { folderFault } from "../../files/usable.js";

export interface Diagnosis {
  name: string;
  /** False for what keeps Radserve, or a part of it, from working; the exit status tells of it. */
  ok: boolean;
  found: string;
  /** The fix of a problem, or advice if all is ok. */
  fix?: string;
  /**
   * What of `found` strangers may read: no path, name, address or number of anybody. Without it a
   * report has the finding's name alone.
   */
  shareable?: string;
  /** What was asked has not answered. */
  late?: true;
}

export const good = (name: string, found: string): Diagnosis => ({ name, ok: true, found });
export const bad = (name: string, found: string, fix: string): Diagnosis => ({
  name,
  ok: false,
  found,
  fix,
});
/** It works, and somebody may want it otherwise. */
export const advice = (name: string, found: string, fix: string): Diagnosis => ({
  name,
  ok: true,
  found,
  fix,
});

/** A finding that names nothing of this house, so that a report may have all of it. */
export const shared = (finding: Diagnosis): Diagnosis => ({
  ...finding,
  shareable: withoutPaths(finding.found),
});

/**
 * A text with no more of an absolute path than the name of a library, because folders can name
 * people. A path ends at the last slash before punctuation: folders may have spaces.
 */
const withoutPaths = (text: string) =>
  text.replace(/(?<![\w.])\/(?:[^'":;,()\n]*\/)?[^\s'":;,()/]*/g, (found) =>
    /\.(so[.\d]*|node)$/.test(found) ? path.basename(found) : "(path)",
  );

export const wordsOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

/**
 * One check. What it throws is its finding: one broken part must not hide what is wrong with the
 * others.
 */
export async function checked(
  name: string,
  look: () => Diagnosis[] | Promise<Diagnosis[]>,
  fix: string,
): Promise<Diagnosis[]> {
  try {
    return await look();
  } catch (error) {
    return [bad(name, wordsOf(error), fix)];
  }
}

/**
 * A check that asks something outside of this process: a disk, a database, a server. If that does
 * not answer in time, this is the check's finding, and the other findings are shown all the same.
 */
export async function inTime(
  name: string,
  findings: Promise<Diagnosis[]>,
  milliseconds: number,
): Promise<Diagnosis[]> {
  if (await within(findings, milliseconds)) return findings;
  return [
    {
      late: true,
      ...bad(
        name,
        `no answer within ${milliseconds / 1000} s`,
        "What it asks is stuck: look at shares, disks (dmesg), the network and the database that it names.",
      ),
    },
  ];
}

/** Why this user cannot use a folder so; undefined where it can. */
export async function whyUnusable(folder: string, mode: number): Promise<string | undefined> {
  return (await folderFault(folder, mode))?.found;
}
