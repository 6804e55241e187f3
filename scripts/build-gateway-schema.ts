/**
 * Writes schemas/gateway.schema.json from the schema of the gateway's file. `npm run build && node
 * dist/scripts/build-gateway-schema.js`
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import prettier from "prettier";
import { gatewayJsonSchema } from "../src/features/gateway/settings.js";
import { packageRoot } from "../src/models/files.js";
import { isMain } from "./lib/model-folder.js";

export const schemaPath = join(packageRoot(), "schemas", "gateway.schema.json");

/** The file's text, in the repository's format. */
export async function gatewaySchemaText(): Promise<string> {
  const config = await prettier.resolveConfig(schemaPath);
  return prettier.format(JSON.stringify(gatewayJsonSchema()), { ...config, parser: "json" });
}

if (isMain(import.meta.url)) writeFileSync(schemaPath, await gatewaySchemaText());
