// `npm run setup:gpu`: fetches ONNX Runtime with the CUDA execution provider into gpu/ and puts it
// beside addon.node. Needs at run time: CUDA 13, cuDNN 9, an NVIDIA driver from 580 on. Other
// versions: ONNXRUNTIME_ROOT and npm run rebuild.
import { spawnSync } from "node:child_process";
import console from "node:console";
import { createHash } from "node:crypto";
import { constants, copyFileSync, existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const release = path.join(root, "build", "Release");
const gpu = path.join(root, "gpu");
const version = "1.29.0";

/**
 * The core and its provider must be of one version; the hashes hold them to the ones that were
 * tried together.
 */
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
];

const filesIn = (folder) => libraries.map(({ from }) => path.join(folder, "node_modules", from));

export const gpuIsInstalled = () =>
  !process.env.ONNXRUNTIME_ROOT && filesIn(gpu).every((file) => existsSync(file));

/**
 * Copies the libraries from where they were fetched into a folder; each appears whole or not at
 * all, a running server keeps its own.
 */
export function placeGpuLibraries(fetched = gpu, target = release) {
  for (const file of filesIn(fetched)) {
    const place = path.join(target, path.basename(file));
    copyFileSync(file, `${place}.new`, constants.COPYFILE_FICLONE);
    renameSync(`${place}.new`, place);
  }
}

function fail(message) {
  console.error(`radserve: ${message}`);
  process.exit(1);
}

/** What is wrong with a library that was fetched; undefined if it is the pinned one. */
function faultOf(file, { sha256, saysVersion }) {
  if (!existsSync(file)) return "is missing";
  const bytes = readFileSync(file);
  const found = createHash("sha256").update(bytes).digest("hex");
  if (found !== sha256) return `has sha256 ${found}, expected ${sha256}`;
  return saysVersion && !bytes.includes(`${version}\0`)
    ? `does not say that it is version ${version}`
    : undefined;
}

const faultsIn = (folder) =>
  filesIn(folder).flatMap((file, i) => {
    const fault = faultOf(file, libraries[i]);
    return fault === undefined ? [] : [`${file} ${fault}`];
  });

/**
 * Fetches the libraries into node_modules of that folder. Ends the process if they are not the
 * pinned ones.
 */
export function fetchGpuLibraries(folder = gpu) {
  if (folder !== gpu) {
    if (faultsIn(folder).length === 0) return;
    mkdirSync(folder, { recursive: true });
    for (const name of ["package.json", "package-lock.json", ".npmrc"])
      copyFileSync(path.join(gpu, name), path.join(folder, name));
  }
  const npm = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], {
    cwd: folder,
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (npm.status !== 0) fail("npm could not install gpu/package.json; its message is above.");
  const [fault] = faultsIn(folder);
  if (fault !== undefined)
    fail(`${fault}. Remove ${path.join(folder, "node_modules")} and try again.`);
}

function main() {
  if (!existsSync(path.join(release, "addon.node")))
    fail("The addon is not built. Run npm ci first.");
  fetchGpuLibraries();
  placeGpuLibraries();
  const addon = createRequire(import.meta.url)(path.join(release, "addon.node"));
  const { providers } = addon.start({ threads: 1, queueLimit: 1, queueBytes: 1 });
  if (!providers.includes("CUDAExecutionProvider"))
    fail("The runtime in place does not offer CUDA.");
  const problem = addon.cudaProblem(0);
  console.log(`ONNX Runtime ${version} with the CUDA execution provider is in place.`);
  console.log(
    problem === ""
      ? "CUDA works here. Set RADSERVE_PROVIDERS=cuda to use it."
      : `CUDA does not work here yet: ${problem}`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
