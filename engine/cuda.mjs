#!/usr/bin/env node
// `radserve-engine-cuda`: puts ONNX Runtime with CUDA beside the addon, from the packages that have
// it, and says whether CUDA works here.
import { copyFileSync, existsSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import console from "node:console";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { faultOf, GPU_LIBRARIES, VERSION } from "./gpu-libraries.mjs";

const release = fileURLToPath(new URL("../build/Release", import.meta.url));

/** Where a file of a package lies, seen from here and from where the command was called. */
function find(from) {
  const folders = [process.cwd(), path.dirname(fileURLToPath(import.meta.url))];
  return folders
    .flatMap((folder) => createRequire(path.join(folder, "x")).resolve.paths("x") ?? [])
    .map((folder) => path.join(folder, from))
    .find((file) => existsSync(file));
}

for (const library of GPU_LIBRARIES) {
  const file = find(library.from);
  const fault = file === undefined ? "is missing" : faultOf(file, library);
  if (fault !== undefined) {
    console.error(
      `radserve-engine-cuda: ${file ?? library.from} ${fault}. Install it: npm i --ignore-scripts onnxruntime-node@${VERSION} com.github.asus4.onnxruntime.linux-x64-gpu@0.4.9`,
    );
    process.exit(1);
  }
  const place = path.join(release, path.basename(file));
  copyFileSync(file, `${place}.new`);
  renameSync(`${place}.new`, place);
}
const addon = createRequire(import.meta.url)(path.join(release, "addon.node"));
addon.start({ threads: 1 });
const problem = addon.cudaProblem(0);
console.log(problem === "" ? "CUDA works here." : `CUDA does not work here yet: ${problem}`);
