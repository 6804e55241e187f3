/** Which objects of a result a destination takes: a part of its settings. */
import { z } from "zod";
import { modelName, outputKindSchema } from "../../../manifest/manifest.js";
import type { Delivered } from "../../../results/receipt/delivery.js";

export const takes = {
  outputs: z
    .array(outputKindSchema.exclude(["json", "png"]))
    .min(1)
    .optional()
    .describe("Kinds of objects that are sent there; all if absent"),
  models: z
    .array(modelName)
    .min(1)
    .optional()
    .describe("Models whose objects are sent there; all if absent"),
};

/** Whether a destination is sent an object, whose name ends in its kind. */
export function isTaken(
  { path, model }: Pick<Delivered, "path" | "model">,
  {
    outputs,
    models,
  }: { outputs?: readonly string[] | undefined; models?: readonly string[] | undefined },
): boolean {
  const kind = /\.([a-z]+)\.dcm$/.exec(path)?.[1] ?? "";
  return outputs?.includes(kind) !== false && models?.includes(model) !== false;
}
