/** The question of the server to its thread that compares weeks, and the answer. */
import { z } from "zod";

export interface DriftQuestion {
  /** The server's output roots, and the folders of them that the caller may see; real paths. */
  roots: readonly string[];
  folders: string[];
  /** Receipts that are read at most. */
  most: number;
  /** A day of the week that is compared with those before; the last one if undefined. */
  week: string | undefined;
}

const p = z.number().min(0).max(1);
const count = z.int().min(0);
const line = { model: z.string(), version: z.string(), shadow: z.boolean(), scanner: z.string() };
const pairOf = { shadow: z.string(), active: z.string(), label: z.string() };

export const driftSchema = z.strictObject({
  receipts: count,
  untrusted: count.describe("Receipts that are not trusted, of which nothing is counted"),
  whole: z
    .boolean()
    .describe(
      "False where the folders have more receipts than are read, or some cannot be read now",
    ),
  folders: z.array(z.string()).describe("The output folders of the token"),
  fewest_studies: count.describe("With fewer on either side nothing is tested"),
  false_marks: p.describe("Expected share of false marks among all marks (Benjamini-Hochberg)"),
  tested: count,
  changes: z.array(
    z.strictObject({
      ...line,
      measure: z.string().describe("score, found, refused, failed or caveat"),
      label: z.string().optional(),
      before: z.number().describe("Median of scores, or share from 0 to 1, in the weeks before"),
      now: z.number(),
      studies_before: count,
      studies_now: count,
      test: z.enum(["Mann-Whitney", "Fisher"]),
      above: z
        .number()
        .optional()
        .describe("Probability that a score of the last week is above one of before"),
      p,
      q: p.describe("p adjusted for all comparisons"),
      marked: z.boolean(),
    }),
  ),
  lines: z.array(
    z.strictObject({
      ...line,
      weeks: z.array(
        z.strictObject({
          monday: z.string().describe("UTC"),
          studies: count,
          refused: count,
          failed: count,
          caveats: count,
          work_ms: z.number().nullable(),
          labels: z.array(
            z.strictObject({
              label: z.string(),
              found: count,
              median_score: z.number().nullable(),
            }),
          ),
        }),
      ),
    }),
  ),
  shadow: z.array(
    z.strictObject({
      ...pairOf,
      both: count,
      neither: count,
      onlyShadow: count,
      onlyActive: count,
      p,
      q: p,
      marked: z.boolean(),
    }),
  ),
});
export type DriftView = z.infer<typeof driftSchema>;

/** What the server asks the thread. */
export interface DriftThread {
  compare(question: DriftQuestion): Promise<DriftView>;
}
