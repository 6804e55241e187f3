/**
 * Writes models/model.schema.json from the manifest's schema. `npm run write -- model-schema`
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import prettier from "prettier";
import { modelJsonSchema } from "../src/manifest/rules.js";
import { packageRoot } from "../src/models/files.js";
import { isMain } from "./lib/model-folder.js";

export const schemaPath = join(packageRoot(), "models", "model.schema.json");

/** The file's text, in the repository's format. */
export async function modelSchemaText(): Promise<string> {
  const config = await prettier.resolveConfig(schemaPath);
  return prettier.format(JSON.stringify(modelJsonSchema()), { ...config, parser: "json" });
}

if (isMain(import.meta.url)) writeFileSync(schemaPath, await modelSchemaText());
