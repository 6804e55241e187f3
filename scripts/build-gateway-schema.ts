/**
 * Writes schemas/doors.schema.json from the schema of the doors' file. `npm run build && node
 * dist/scripts/build-doors-schema.js`
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import prettier from "prettier";
import { doorsJsonSchema } from "../src/features/gateway/settings.js";
import { packageRoot } from "../src/models/files.js";
import { isMain } from "./lib/model-folder.js";

export const schemaPath = join(packageRoot(), "schemas", "doors.schema.json");

/** The file's text, in the repository's format. */
export async function doorsSchemaText(): Promise<string> {
  const config = await prettier.resolveConfig(schemaPath);
  return prettier.format(JSON.stringify(doorsJsonSchema()), { ...config, parser: "json" });
}

if (isMain(import.meta.url)) writeFileSync(schemaPath, await doorsSchemaText());
