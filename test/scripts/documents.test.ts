/** The pages and openapi.yaml say what the sources say. */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import t from "tap";
import { documents } from "../../scripts/documents.js";

for (const [path, text] of documents())
  t.equal(readFileSync(path, "utf8"), text, `${basename(path)}: where it is old, run npm run documents`);
