/**
 * The published schema is the one the product checks by. `node
 * dist/test/results/receipt/receipt-schema.test.js --write` renews it.
 */
import { readFile, writeFile } from "node:fs/promises";
import { format } from "prettier";
import t from "tap";
import { z } from "zod";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";

const file = new URL("../../../../schemas/receipt.schema.json", import.meta.url);
const { $schema, ...rest } = z.toJSONSchema(receiptSchema, { target: "draft-2020-12" });
const schema = {
  $schema,
  title: "Radserve receipt",
  description:
    "NAME.json: what was read, what each model said, and which files hold it. Written last.",
  ...rest,
};
if (process.argv.includes("--write"))
  await writeFile(file, await format(JSON.stringify(schema), { parser: "json", printWidth: 110 }));

t.same(
  JSON.parse(await readFile(file, "utf8")),
  schema,
  "schemas/receipt.schema.json is old: run this test once with --write",
);
t.match(schema, { required: ["schema"], properties: { models: { type: "array" } } });
