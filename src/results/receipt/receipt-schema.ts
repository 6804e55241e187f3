/** The published JSON Schema of the receipt, `schemas/receipt.schema.json`, made from the schema that checks it. */
import { z } from "zod";
import { receiptSchema } from "./receipt.js";

/** JSON Schema, draft 2020-12, of NAME.json. */
export function receiptJsonSchema(): Record<string, unknown> {
  const { $schema, ...rest } = z.toJSONSchema(receiptSchema, { target: "draft-2020-12" });
  return {
    $schema,
    title: "Radserve receipt",
    description: "NAME.json: what was read, what each model said, and which files hold it. Written last.",
    ...rest,
  };
}
