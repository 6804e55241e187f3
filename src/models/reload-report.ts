/** What a reload of the models came to. */
import { z } from "zod";
import { errorCode } from "../base/errors.js";

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
