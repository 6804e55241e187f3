/** ONNX Runtime with CUDA, in files of npm packages. */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";

export const VERSION = "1.29.0";

/**
 * The core and its provider must be of one version; the hashes hold them to the ones that were
 * tried together. `from` is a path inside node_modules.
 */
export const GPU_LIBRARIES = [
  {
    from: "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1",
    sha256: "89688f5cf51c7e31befbb7b9101bc027799009b18d1baa9a5b1146a72e69538d",
    saysVersion: true,
  },
  {
    from: "com.github.asus4.onnxruntime.linux-x64-gpu/Plugins/Linux/x64/libonnxruntime_providers_cuda.so",
    sha256: "56cf3254b118ad837ccc4ed8f6d1b23504bbf7ef91b34cbc0b289cb7f10b3037",
    saysVersion: true,
  },
  {
    from: "com.github.asus4.onnxruntime.linux-x64-gpu/Plugins/Linux/x64/libonnxruntime_providers_shared.so",
    sha256: "c6a12593396095f5670160e284c35d1700b7708cf3037b7042e2a5200ccae772",
    saysVersion: false,
  },
];

/** What is wrong with a library that was fetched; undefined if it is the pinned one. */
export function faultOf(file, { sha256, saysVersion }) {
  if (!existsSync(file)) return "is missing";
  const bytes = readFileSync(file);
  const found = createHash("sha256").update(bytes).digest("hex");
  if (found !== sha256) return `has sha256 ${found}, expected ${sha256}`;
  return saysVersion && !bytes.includes(`${VERSION}\0`)
    ? `does not say that it is version ${VERSION}`
    : undefined;
}
