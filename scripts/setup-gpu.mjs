// `npm run setup:gpu`: fetches ONNX Runtime with the CUDA execution provider into gpu/ and puts it
// beside addon.node. Needs at run time: CUDA 13, cuDNN 9, an NVIDIA driver from 580 on. Other
// versions: ONNXRUNTIME_ROOT and npm run rebuild.
import { spawnSync } from "node:child_process";
import console from "node:console";
import { constants, copyFileSync, existsSync, mkdirSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { faultOf, GPU_LIBRARIES, VERSION } from "./gpu-libraries.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const release = path.join(root, "build", "Release");
const gpu = path.join(root, "gpu");

const filesIn = (folder) =>
  GPU_LIBRARIES.map(({ from }) => path.join(folder, "node_modules", from));

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

const faultsIn = (folder) =>
  filesIn(folder).flatMap((file, i) => {
    const fault = faultOf(file, GPU_LIBRARIES[i]);
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
  console.log(`ONNX Runtime ${VERSION} with the CUDA execution provider is in place.`);
  console.log(
    problem === ""
      ? "CUDA works here. Set RADSERVE_PROVIDERS=cuda to use it."
      : `CUDA does not work here yet: ${problem}`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
