/**
 * `npm run pack:engine [-- FOLDER] [--built]`: makes radserve-engine-VERSION.tgz, the engine of
 * graphs as a package of its own: the addon for every Linux with glibc 2.31 or newer, ONNX Runtime,
 * a file of JavaScript for each of its two faces, their types, and what engine/ has. It has no
 * scripts, and brings the one package that it depends on. Beside it lies
 * radserve-engine-onnxruntime-VERSION.tgz, which npm can put in the place of onnxruntime-node. With
 * --built the addon is that of build/Release, for this machine's C library and newer ones.
 */
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
import { runProgram } from "./run.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
/** How deep the file lies that opens the addon decides where it looks for that. */
const BUNDLE = "dist/src/graph/index.js";
const DROP_IN = "dist/src/graph/onnxruntime/index.js";
/** What the drop-in has its Tensor and InferenceSession from. */
const COMMON = "onnxruntime-common";
const ADDON = "engine.node";

/** The types of the face, and of what they mention. */
function writeTypes(folder) {
  const words =
    "--declaration --emitDeclarationOnly --stripInternal --strict --exactOptionalPropertyTypes --skipLibCheck --module nodenext --target es2022 --lib ES2023,ESNext.Disposable --types node --ignoreConfig";
  const places = ["--rootDir", root, "--outDir", path.join(folder, "dist")];
  const faces = ["index.ts", "onnxruntime/index.ts"].map((file) =>
    path.join(root, "src/graph", file),
  );
  runProgram(path.join(root, "node_modules/.bin/tsgo"), [...faces, ...words.split(" "), ...places]);
  for (const other of readdirSync(path.join(folder, "dist/src")))
    if (other !== "graph") rmSync(path.join(folder, "dist/src", other), { recursive: true });
}

const own = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));

/** A face as `exports` names it. */
const exported = (file) => ({
  types: `./${file.replace(/\.js$/, ".d.ts")}`,
  default: `./${file}`,
});

function manifest() {
  const { version, license, engines, os: systems, cpu, devDependencies } = own;
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
      ".": exported(BUNDLE),
      "./onnxruntime": exported(DROP_IN),
      "./package.json": "./package.json",
    },
    bin: { "radserve-engine-cuda": "bin/cuda.mjs" },
    dependencies: { [COMMON]: devDependencies[COMMON] },
    bundleDependencies: [COMMON],
  };
}

/** A package of one line, whose name npm can put in the place of onnxruntime-node. */
function stageDropIn(folder) {
  const { version, license, engines } = own;
  const line = `export * from "radserve-engine/onnxruntime";\nexport { default } from "radserve-engine/onnxruntime";\n`;
  for (const name of ["index.js", "index.d.ts"]) writeFileSync(path.join(folder, name), line);
  cpSync(path.join(root, "engine/onnxruntime.md"), path.join(folder, "README.md"));
  cpSync(path.join(root, "LICENSE"), path.join(folder, "LICENSE"));
  const described = {
    name: "radserve-engine-onnxruntime",
    version,
    description: "radserve-engine in the place of onnxruntime-node",
    license,
    type: "module",
    engines,
    exports: { ".": exported("index.js"), "./package.json": "./package.json" },
    dependencies: { "radserve-engine": version },
  };
  writeFileSync(path.join(folder, "package.json"), `${JSON.stringify(described, null, 2)}\n`);
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
  const common = path.join("node_modules", COMMON);
  cpSync(path.join(root, common), to(common), {
    recursive: true,
    filter: (file) => !/\.map$|\.min\.js$|(?<!\.d)\.ts$/.test(file),
  });
  // What both faces share is a file of its own, so that there is one EngineError
  await build({
    absWorkingDir: root,
    entryPoints: ["src/graph/index.ts", "src/graph/onnxruntime/index.ts"],
    outdir: to("dist/src"),
    outbase: "src",
    splitting: true,
    chunkNames: "graph/shared-[hash]",
    bundle: true,
    external: [COMMON],
    format: "esm",
    platform: "node",
    target: "es2022",
    logLevel: "warning",
  });
  writeTypes(folder);
  writeFileSync(to("package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);
}

function pack(folder, target) {
  mkdirSync(target, { recursive: true });
  const options = ["--ignore-scripts", "--json", "--pack-destination", target];
  const [{ filename, size, entryCount }] = JSON.parse(
    runProgram("npm", ["pack", ...options, folder]),
  );
  const file = path.join(target, filename);
  console.error(`${file}: ${entryCount} files, ${(size / 2 ** 20).toFixed(1)} MiB`);
  return file;
}

/** Makes both tarballs in a folder and gives their paths: the engine's, and the drop-in's. */
export async function packEngine(target, built = false) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-pack-engine-"));
  try {
    const [engine, dropIn] = ["engine", "onnxruntime"].map((name) => path.join(folder, name));
    for (const one of [engine, dropIn]) mkdirSync(one);
    const here = path.join(root, "build/Release");
    await stage(engine, built ? here : await buildPortable([ADDON]));
    stageDropIn(dropIn);
    return { engine: pack(engine, target), dropIn: pack(dropIn, target) };
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
  const { engine, dropIn } = await packEngine(target, values.built);
  console.log(`${engine}\n${dropIn}`);
}
