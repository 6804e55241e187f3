/** Fields that several kinds of outputs have. */
import { z } from "zod";
import { code, colour, text } from "../texts.js";

export const label = z.strictObject({
  label: z.string().min(1).max(64),
  code: code.optional().describe("What was found; required in stage final"),
  category: code.optional().describe("Segmented property category (PS3.16 CID 7150)"),
  finding_site: code.optional(),
  laterality: code.optional(),
  colour: colour.optional(),
  threshold: z
    .number()
    .optional()
    .describe("Present where the score is at or above; site.json may override"),
});
export type Label = z.infer<typeof label>;

export const labels = z.array(label).min(1).max(255);
export const score = z.number().min(0).max(1);
export const onInput = text
  .optional()
  .describe("The image tensor on whose grid it is; required if there are several image inputs");
export const normalised = z
  .boolean()
  .describe("0 to 1 of the input tensor's sides, instead of its pixels");
export const maxBoxes = z
  .int()
  .min(1)
  .max(100_000)
  .describe("Number of the best boxes that are kept; boxes outside the image do not count");
