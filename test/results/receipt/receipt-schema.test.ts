/** The published schema is the one the product checks by. `node dist/test/results/receipt-schema.test.js --write` renews it. */
import { readFile, writeFile } from "node:fs/promises";
import { format } from "prettier";
import t from "tap";
import { receiptJsonSchema } from "../../../src/results/receipt/receipt-schema.js";

const file = new URL("../../../../schemas/receipt.schema.json", import.meta.url);
const schema = receiptJsonSchema();
if (process.argv.includes("--write"))
  await writeFile(file, await format(JSON.stringify(schema), { parser: "json", printWidth: 110 }));

t.same(
  JSON.parse(await readFile(file, "utf8")),
  schema,
  "schemas/receipt.schema.json is old: run this test once with --write",
);
t.match(schema, { required: ["schema"], properties: { models: { type: "array" } } });
