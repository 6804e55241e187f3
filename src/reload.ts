/**
 * What the last reload of the models came to, in a file of the state directory. The server writes it; the command that
 * asked for the reload, and can do so by a signal only, reads it.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import type { ReloadReport } from "./models.js";

const names = z.array(z.string());
const reportSchema = z.object({
  added: names,
  replaced: names,
  removed: names,
  unchanged: names,
  failed: z.array(
    z.object({
      name: z.string(),
      error: z.object({ error: z.string(), message: z.string() }),
      kept: z.boolean(),
    }),
  ),
});

const outcomeSchema = z.object({
  /** When the server heard of it, milliseconds since the epoch. */
  asked: z.number(),
  report: reportSchema.optional(),
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

/** Undefined where there was none. */
export function readReload(directory: string): ReloadOutcome | undefined {
  try {
    return outcomeSchema.parse(JSON.parse(readFileSync(fileIn(directory), "utf8")));
  } catch {
    return undefined;
  }
}
