/**
 * What the last reload of the models came to, in a file of the state directory. The server writes it; the command that
 * asked for the reload, and can do so by a signal only, reads it.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { reloadReportSchema, type ReloadReport } from "./reload-report.js";

const outcomeSchema = z.object({
  /** When the server heard of it, milliseconds since the epoch. */
  asked: z.number(),
  report: reloadReportSchema.optional(),
  /** Why there is no report: nothing was reloaded. */
  error: z.string().optional(),
});
export type ReloadOutcome = z.infer<typeof outcomeSchema>;

const fileIn = (directory: string): string => path.join(directory, "reload.json");

export function writeReload(
  directory: string,
  outcome: { asked: number; report?: ReloadReport; error?: string },
): void {
  const file = fileIn(directory);
  writeFileSync(`${file}.new`, JSON.stringify(outcome), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** The last outcome; undefined if there was no reload. */
export function readReload(directory: string): ReloadOutcome | undefined {
  try {
    return outcomeSchema.parse(JSON.parse(readFileSync(fileIn(directory), "utf8")));
  } catch {
    return undefined;
  }
}
