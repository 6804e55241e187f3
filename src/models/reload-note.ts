/**
 * Keeps the outcome of the last reload of the models in a file of the state directory. The server
 * writes it; the command that asked for the reload, and can do so by a signal only, reads it.
 */
import path from "node:path";
import { z } from "zod";
import { tried } from "../base/errno.js";
import { errorCode } from "../base/errors.js";
import { storedJson } from "../base/stored-json.js";
import { replacePrivately } from "../files/private-file.js";
import { textOfRegularSync } from "../files/regular-file.js";

const names = z.array(z.string());

export const reloadReportSchema = z.object({
  added: names,
  /** Models that are now served as their folders say today. */
  replaced: names,
  removed: names,
  unchanged: names,
  /** Models that failed. An older version that served goes on serving: it is kept. */
  failed: z.array(
    z.object({
      name: z.string(),
      error: z.object({ error: errorCode, message: z.string() }),
      kept: z.boolean(),
    }),
  ),
});
export type ReloadReport = z.infer<typeof reloadReportSchema>;

const outcomeSchema = z.object({
  /** When the server heard of it, in milliseconds of `monotonic`. */
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
  replacePrivately(fileIn(directory), JSON.stringify(outcome));
}

export const readReload = (directory: string): ReloadOutcome | undefined =>
  tried(() => outcomeSchema.parse(storedJson(textOfRegularSync(fileIn(directory)))));
