// `npm run setup:gpu`: fetches ONNX Runtime with the CUDA execution provider into gpu/ and puts it beside addon.node.
// Needs at run time: CUDA 13, cuDNN 9, an NVIDIA driver from 580 on. Other versions: ONNXRUNTIME_ROOT and npm run rebuild.
import { spawnSync } from "node:child_process";
import console from "node:console";
import { createHash } from "node:crypto";
import { constants, copyFileSync, existsSync, readFileSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const release = path.join(root, "build", "Release");
const version = "1.29.0";

/** The core and its provider must be of one version; the hashes hold them to the ones that were tried together. */
const libraries = [
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
].map((library) => ({ ...library, file: path.join(root, "gpu", "node_modules", library.from) }));

export const gpuIsInstalled = () =>
  !process.env.ONNXRUNTIME_ROOT && libraries.every(({ file }) => existsSync(file));

/** Copies the libraries beside addon.node; each appears whole or not at all, a running server keeps its own. */
export function placeGpuLibraries() {
  for (const { file } of libraries) {
    const target = path.join(release, path.basename(file));
    copyFileSync(file, `${target}.new`, constants.COPYFILE_FICLONE);
    renameSync(`${target}.new`, target);
  }
}

function fail(message) {
  console.error(`radserve: ${message}`);
  process.exit(1);
}

function checkLibraries() {
  for (const { file, sha256, saysVersion } of libraries) {
    if (!existsSync(file))
      fail(`${file} is missing. Remove gpu/node_modules and run npm run setup:gpu again.`);
    const bytes = readFileSync(file);
    const found = createHash("sha256").update(bytes).digest("hex");
    if (found !== sha256)
      fail(`${file} has sha256 ${found}, expected ${sha256}. Remove gpu/node_modules and try again.`);
    if (saysVersion && !bytes.includes(`${version}\0`))
      fail(`${file} does not say that it is version ${version}.`);
  }
}

function main() {
  if (!existsSync(path.join(release, "addon.node"))) fail("The addon is not built. Run npm ci first.");
  const npm = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], {
    cwd: path.join(root, "gpu"),
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (npm.status !== 0) fail("npm could not install gpu/package.json; its message is above.");
  checkLibraries();
  placeGpuLibraries();
  const addon = createRequire(import.meta.url)(path.join(release, "addon.node"));
  const { providers } = addon.start({ threads: 1, queueLimit: 1, queueBytes: 1 });
  if (!providers.includes("CUDAExecutionProvider")) fail("The runtime in place does not offer CUDA.");
  const problem = addon.cudaProblem(0);
  console.log(`ONNX Runtime ${version} with the CUDA execution provider is in place.`);
  console.log(
    problem === ""
      ? "CUDA works here. Set RADSERVE_PROVIDERS=cuda to use it."
      : `CUDA does not work here yet: ${problem}`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
