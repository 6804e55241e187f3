// Builds build/Release/addon.node, or takes the one that a package brings (prebuilt.mjs). Run by
// `npm ci` and, with --clean, which always builds, by `npm run rebuild`. What is missing is said in
// one line each, with the fix; the compiler is heard only when it fails.
import { spawnSync } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import console from "node:console";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { npmRuntime, usePrebuilt } from "./prebuilt.mjs";
import { gpuIsInstalled, placeGpuLibraries } from "./setup-gpu.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const clean = process.argv.includes("--clean");
const require = createRequire(import.meta.url);

/**
 * First line that the program prints for --version, or undefined where there is no such program.
 */
function version(program) {
  const run = spawnSync(program, ["--version"], { encoding: "utf8" });
  return run.status === 0 ? run.stdout.split("\n")[0] : undefined;
}

function compiles(compiler, source) {
  const parameters = ["-std=c++20", "-x", "c++", "-fsyntax-only", "-"];
  return spawnSync(compiler, parameters, { input: source }).status === 0;
}

function missing() {
  const lines = [];
  if (process.platform !== "linux" || process.arch !== "x64")
    lines.push(`Radserve runs on Linux x64; this is ${process.platform} ${process.arch}.`);
  const compiler = (process.env.CXX ? [process.env.CXX] : ["c++", "g++", "clang++"]).find(version);
  if (compiler === undefined)
    lines.push(
      "A C++20 compiler is missing. Debian, Ubuntu: apt install g++. Red Hat: dnf install gcc-c++.",
    );
  else if (!compiles(compiler, "#include <span>\n#include <stop_token>\nstd::stop_token token;\n"))
    lines.push(
      `A compiler with C++20 and its library is needed (GCC 11 or newer), found: ${version(compiler)}.`,
    );
  if (!["ninja", "make", "gmake"].some(version))
    lines.push("make is missing. Debian, Ubuntu: apt install make. Red Hat: dnf install make.");
  const cmake = /(\d+)\.(\d+)/.exec(version("cmake") ?? "");
  if (cmake === null)
    lines.push("CMake is missing. Debian, Ubuntu: apt install cmake. Red Hat: dnf install cmake.");
  else if (Number(cmake[1]) < 3 || (Number(cmake[1]) === 3 && Number(cmake[2]) < 18))
    lines.push(
      `CMake 3.18 or newer is needed, found ${cmake[0]}. Install a newer one, for example pip install cmake.`,
    );
  const release = process.env.ONNXRUNTIME_ROOT;
  if (release && !["include", "lib"].every((folder) => existsSync(path.join(release, folder))))
    lines.push(
      `ONNXRUNTIME_ROOT is ${release}: expected an unpacked official release with include/ and lib/ there.`,
    );
  if (!release && npmRuntime(root) === undefined)
    lines.push(
      "ONNX Runtime is missing in node_modules. Run npm ci, or set ONNXRUNTIME_ROOT to an unpacked official release.",
    );
  return lines;
}

function build() {
  // A tree configured for other headers or another runtime would be built as before; configuring is
  // cheap.
  rmSync(path.join(root, "build", "CMakeCache.txt"), { force: true });
  if (clean) rmSync(path.join(root, "build"), { recursive: true, force: true });
  const cli = path.join(path.dirname(require.resolve("cmake-js/package.json")), "bin", "cmake-js");
  const options = [
    ["CDRADSERVE_WARNINGS_AS_ERRORS", clean ? "ON" : "OFF"],
    ["CDONNXRUNTIME_ROOT", process.env.ONNXRUNTIME_ROOT ?? ""],
  ].map(([key, value]) => `--${key}=${value}`);
  // A compiler takes up to a gigabyte
  const atOnce = Math.max(
    1,
    Math.min(os.availableParallelism(), Math.floor(os.totalmem() / 2 ** 30)),
  );
  const jobs = String(process.env.RADSERVE_BUILD_JOBS ?? atOnce);
  return spawnSync(
    process.execPath,
    [cli, "build", "--directory", root, "--parallel", jobs, ...options],
    {
      cwd: root,
      encoding: "utf8",
      maxBuffer: 1 << 28,
    },
  );
}

const addon = path.join(root, "build", "Release", "addon.node");
// npx in a clone installs the clone into every new npm cache; a server may run with what is built.
if (process.env.npm_command === "exec" && !clean && existsSync(addon)) process.exit(0);

// A package brings the addon; a clone has none and builds it.
if (!clean && usePrebuilt(root)) process.exit(0);

const lines = missing();
if (lines.length > 0) {
  for (const line of lines) console.error(`radserve: ${line}`);
  process.exit(1);
}
const result = build();
if (result.status !== 0 || !existsSync(addon)) {
  console.error(result.stdout);
  console.error(result.stderr);
  console.error("radserve: The native engine did not build; the compiler's output is above.");
  process.exit(1);
}
if (gpuIsInstalled()) placeGpuLibraries();
