/**
 * Writes schemas/sign-in.schema.json from the schema of the file of sign-in. `npm run build && node
 * dist/scripts/build-sign-in-schema.js`
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import prettier from "prettier";
import { signInJsonSchema } from "../src/features/sign-in/settings.js";
import { packageRoot } from "../src/models/files.js";
import { isMain } from "./lib/model-folder.js";

export const schemaPath = join(packageRoot(), "schemas", "sign-in.schema.json");

/** The file's text, in the repository's format. */
export async function signInSchemaText(): Promise<string> {
  const config = await prettier.resolveConfig(schemaPath);
  return prettier.format(JSON.stringify(signInJsonSchema()), { ...config, parser: "json" });
}

if (isMain(import.meta.url)) writeFileSync(schemaPath, await signInSchemaText());
