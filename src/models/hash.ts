/** Hashes of a model: canonical JSON of the manifest, files on disk, and both together. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import type { Manifest } from "../manifest/manifest.js";
import { canonicalJson } from "../base/canonical-json.js";

/** SHA-256 of a file, hex; read in pieces, because weights can be larger than memory allows. */
export async function fileSha256(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

/** Every file that a manifest names: the graph, its companions, and the canary's tensors. */
export function modelFiles(manifest: Pick<Manifest, "files" | "canary">): Manifest["files"] {
  const canary = manifest.canary;
  return [
    ...manifest.files,
    ...(canary === undefined ? [] : [canary.input, ...canary.expected.map((e) => e.file)]),
  ];
}

/** Identity of a model: SHA-256 over its manifest's canonical JSON, then each file's declared hash and path, a line each. */
export function modelSha256(manifest: Manifest): string {
  const lines = modelFiles(manifest).map((file) => `${file.sha256}  ${file.path}`);
  return createHash("sha256")
    .update([canonicalJson(manifest), ...lines, ""].join("\n"))
    .digest("hex");
}
