/** Manifests and model folders for tests. */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Manifest } from "../../src/manifest/manifest.js";
import { packageRoot } from "../../src/models/files.js";

export const shippedModels = join(packageRoot(), "models");

/** A shipped manifest, to be changed freely. */
export function shipped(name: string): Manifest {
  return JSON.parse(readFileSync(join(shippedModels, name, "model.json"), "utf8")) as Manifest;
}

/** A copy of a shipped model's folder under another name, with changes to its manifest. */
export function copyModel(
  directory: string,
  from: string,
  name: string,
  change: (manifest: Manifest) => unknown = (manifest) => manifest,
): string {
  const folder = join(directory, name);
  mkdirSync(directory, { recursive: true });
  cpSync(join(shippedModels, from), folder, { recursive: true });
  const manifest = { ...shipped(from), name };
  change(manifest);
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
  return folder;
}
