/**
 * `npm run pack:engine [-- FOLDER] [--built]`: makes radserve-engine-VERSION.tgz, the engine of
 * graphs as a package of its own: the addon for every Linux with glibc 2.31 or newer, ONNX Runtime,
 * one file of JavaScript, its types, and what engine/ has. It has no dependencies and no scripts.
 * With --built the addon is that of build/Release, for this machine's C library and newer ones.
 */
import { spawnSync } from "node:child_process";
import console from "node:console";
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { buildPortable } from "./portable.mjs";
import { npmRuntime } from "./prebuilt.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
/** Where the file lies that opens the addon decides where it looks for that. */
const BUNDLE = "dist/src/graph/index.js";
const ADDON = "engine.node";

function run(program, parameters) {
  const { status, stdout, stderr } = spawnSync(program, parameters, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} failed.\n${stdout}${stderr}`);
  return stdout;
}

/** The types of the face, and of what they mention. */
function writeTypes(folder) {
  const words =
    "--declaration --emitDeclarationOnly --stripInternal --strict --exactOptionalPropertyTypes --skipLibCheck --module nodenext --target es2022 --lib ES2023,ESNext.Disposable --types node --ignoreConfig";
  const places = ["--rootDir", root, "--outDir", path.join(folder, "dist")];
  const face = path.join(root, "src/graph/index.ts");
  run(path.join(root, "node_modules/.bin/tsgo"), [face, ...words.split(" "), ...places]);
  for (const other of readdirSync(path.join(folder, "dist/src")))
    if (other !== "graph") rmSync(path.join(folder, "dist/src", other), { recursive: true });
}

function manifest() {
  const {
    version,
    license,
    engines,
    os: systems,
    cpu,
  } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  return {
    name: "radserve-engine",
    version,
    description: "ONNX models in Node.js on threads of their own: ONNX Runtime, CPU and CUDA",
    keywords: ["onnx", "onnxruntime", "inference", "worker threads", "cuda"],
    license,
    type: "module",
    engines,
    os: systems,
    cpu,
    libc: ["glibc"],
    exports: {
      ".": {
        types: BUNDLE.replace(/^|\.js$/g, (end) => (end === "" ? "./" : ".d.ts")),
        default: `./${BUNDLE}`,
      },
      "./package.json": "./package.json",
    },
    bin: { "radserve-engine-cuda": "bin/cuda.mjs" },
  };
}

const notices = () =>
  [
    ["node-addon-api", "LICENSE.md"],
    ["node-api-headers", "LICENSE"],
  ]
    .map(([name, file]) =>
      [name, readFileSync(path.join(root, "node_modules", name, file), "utf8").trim()].join("\n\n"),
    )
    .join(`\n\n${"=".repeat(80)}\n`);

async function stage(folder, release) {
  const to = (...names) => path.join(folder, ...names);
  mkdirSync(to("build/Release"), { recursive: true });
  mkdirSync(to("bin"));
  mkdirSync(to("onnxruntime"));
  copyFileSync(path.join(release, ADDON), to("build/Release/addon.node"));
  copyFileSync(npmRuntime(root), to("build/Release/libonnxruntime.so.1"));
  const runtime = path.join(root, "node_modules/com.github.asus4.onnxruntime");
  for (const name of ["LICENSE", "ThirdPartyNotices.txt"])
    copyFileSync(path.join(runtime, name), to("onnxruntime", name));
  cpSync(path.join(root, "engine/README.md"), to("README.md"));
  cpSync(path.join(root, "engine/cuda.mjs"), to("bin/cuda.mjs"));
  cpSync(path.join(root, "scripts/gpu-libraries.mjs"), to("bin/gpu-libraries.mjs"));
  cpSync(path.join(root, "LICENSE"), to("LICENSE"));
  writeFileSync(to("NOTICES.txt"), `${notices()}\n`);
  await build({
    absWorkingDir: root,
    entryPoints: ["src/graph/index.ts"],
    outfile: to(BUNDLE),
    bundle: true,
    format: "esm",
    platform: "node",
    target: "es2022",
    logLevel: "warning",
  });
  writeTypes(folder);
  writeFileSync(to("package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);
}

/** Makes the tarball in a folder and gives its path. */
export async function packEngine(target, built = false) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-pack-engine-"));
  try {
    const own = path.join(root, "build/Release");
    await stage(folder, built ? own : await buildPortable([ADDON]));
    mkdirSync(target, { recursive: true });
    const options = ["--ignore-scripts", "--json", "--pack-destination", target];
    const [{ filename, size, entryCount }] = JSON.parse(run("npm", ["pack", ...options, folder]));
    const file = path.join(target, filename);
    console.error(`${file}: ${entryCount} files, ${(size / 2 ** 20).toFixed(1)} MiB`);
    return file;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    options: { built: { type: "boolean", default: false } },
    allowPositionals: true,
  });
  const target = path.resolve(positionals[0] ?? path.join(root, "build/package"));
  console.log(await packEngine(target, values.built));
}
