/** Something that is wrong now, as ready, the page, `radserve status` and the log say it. */
import { z } from "zod";

export const conditionSchema = z.strictObject({
  condition: z.string().describe("One word for what is wrong; docs/operations.md lists them"),
  where: z.string().describe("The model, disk, job or destination that is affected; never a path"),
  message: z.string(),
  remedy: z.string().describe("What to do"),
});
export type Condition = z.infer<typeof conditionSchema>;

/** Makes conditions of words, each with its remedy. */
export const conditionsFrom =
  <W extends string>(remedies: Readonly<Record<W, string>>) =>
  (condition: W, where: string, message: string): Condition => ({
    condition,
    where,
    message,
    remedy: remedies[condition],
  });
