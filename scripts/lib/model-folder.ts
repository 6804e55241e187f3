/** Writing into a model's folder: its files, and their hashes into its manifest. */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { packageRoot } from "../../src/models/files.js";

/** The folder of a model that ships. */
export function modelFolder(name: string): string {
  return join(packageRoot(), "models", name);
}

/**
 * Writes files by their paths inside the folder and pins each in model.json, which must name it
 * already.
 */
export function writeModelFiles(folder: string, files: Readonly<Record<string, Uint8Array>>): void {
  const manifest = join(folder, "model.json");
  let text = readFileSync(manifest, "utf8");
  for (const [path, bytes] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), bytes);
    text = pin(text, path, createHash("sha256").update(bytes).digest("hex"));
  }
  writeFileSync(manifest, text);
}

function pin(manifest: string, path: string, sha256: string): string {
  const name = path.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const entry = new RegExp(`("path":\\s*"${name}",\\s*"sha256":\\s*")[0-9a-f]{64}`);
  if (!entry.test(manifest))
    throw new Error(`model.json names no file "${path}" with a sha256 after it`);
  return manifest.replace(entry, `$1${sha256}`);
}

/** True where a script is the program and not imported by a test. */
export function isMain(moduleUrl: string): boolean {
  return process.argv[1] !== undefined && moduleUrl === pathToFileURL(process.argv[1]).href;
}
