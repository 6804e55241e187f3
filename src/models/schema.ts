/** The manifest's published JSON Schema. */
import { z } from "zod";
import { manifestSchema } from "../manifest/rules.js";

/**
 * JSON Schema 2020-12 of model.json, for editors and for other programs. Rules over several fields are not in it;
 * `radserve models check` has them all.
 */
export function modelJsonSchema(): Record<string, unknown> {
  const { $schema, ...schema } = z.toJSONSchema(manifestSchema, { io: "input" });
  return {
    $schema,
    title: "Radserve model manifest",
    description: "models/<name>/model.json; `radserve models check` explains every mistake.",
    ...schema,
  };
}
