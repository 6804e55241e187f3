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
const PIXELS_OF_MEANING =
  "tensor (where absent): of the input tensor; source: of the image as it came, whose sides the " +
  "graph is given as Columns and Rows (the deployed graphs of RT-DETR, D-FINE and DEIM)";
export const pixelsOf = z.enum(["tensor", "source"]).optional().describe(PIXELS_OF_MEANING);
const IGNORED_MEANING =
  "Which columns of scores (channels of maps, classes of a tensor of them), counted from 0, are " +
  'no label: a background class, "no object", or what was never trained. Softmax goes over them ' +
  "too; they are never a finding";
export const ignored = z
  .array(z.int().min(0).max(65_535))
  .min(1)
  .max(65_535)
  .optional()
  .describe(IGNORED_MEANING);
const ACTIVATED_MEANING =
  "Maps are activated before (where absent) or after they go back to the source's grid: after, " +
  "logits are interpolated (SegFormer and other networks of a coarser map). For inputs with " +
  "resampling, resampling.activation says it";
export const activated = z.enum(["before", "after"]).optional().describe(ACTIVATED_MEANING);
export const maxBoxes = z
  .int()
  .min(1)
  .max(100_000)
  .describe("Number of the best boxes that are kept; boxes outside the image do not count");
