// `npm run trial -- cuda`: the CUDA path without a GPU. Fetches the provider as setup:gpu does,
// builds a stand-in for the CUDA libraries (native/test/cuda), and runs the C++ program test_cuda
// with it. All of it lies in build-cuda-test/. --build stops before the program is run; --program
// FILTER runs the tests whose names contain the text. --tsan builds the program under
// ThreadSanitizer, in a folder of its own.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync, existsSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { fetchGpuLibraries, placeGpuLibraries } from "./setup-gpu.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const fetched = path.join(root, "build-cuda-test", "gpu");
const tsan = process.argv.includes("--tsan");
const folder = path.join(root, tsan ? "build-cuda-test-tsan" : "build-cuda-test");
const stubs = path.join(folder, "stubs");
const provider = path.join(folder, "libonnxruntime_providers_cuda.so");

/** The file of native/test/cuda that holds the functions of a library which do something. */
const SOURCES = {
  "libcudart.so.13": "runtime.cc",
  "libcublas.so.13": "blas.cc",
  "libcublasLt.so.13": "blas.cc",
  "libcudnn.so.9": "dnn.cc",
};

function run(program, parameters, options = {}) {
  const { status } = spawnSync(program, parameters, { cwd: root, stdio: "inherit", ...options });
  if (status !== 0) process.exit(status ?? 1);
}

/** What the provider imports from each CUDA library, and what it looks up in cuDNN by name. */
function imports() {
  const table = spawnSync("readelf", ["--dyn-syms", "--wide", provider], {
    encoding: "utf8",
    maxBuffer: 1 << 28,
  }).stdout;
  const found = {};
  for (const library of Object.keys(SOURCES)) found[library] = new Set();
  for (const [, name, library] of table.matchAll(/ UND (\w+)@(\S+)/g)) found[library]?.add(name);
  for (const [, name] of readFileSync(provider, "latin1").matchAll(/\0(cudnn[A-Z]\w+)(?=\0)/g))
    found["libcudnn.so.9"].add(name);
  return found;
}

/** For each library a source of stubs, and the version of its symbols. */
function writeStubs() {
  mkdirSync(stubs, { recursive: true });
  for (const [library, names] of Object.entries(imports())) {
    const source = readFileSync(path.join(root, "native/test/cuda", SOURCES[library]), "utf8");
    const real = new Set([...source.matchAll(/^STAND_IN\((\w+)\)/gm)].map(([, name]) => name));
    const lines = [...names]
      .filter((name) => !real.has(name))
      .map((name) => `int ${name}() { return 0; }`);
    put(`${library}.cc`, `extern "C" {\n${lines.join("\n")}\n}\n`);
    put(`${library}.map`, `${library} { global: *; };\n`);
  }
}

/** Leaves a file as it is if it says the same, so that nothing is built again. */
function put(name, text) {
  const file = path.join(stubs, name);
  if (!existsSync(file) || readFileSync(file, "utf8") !== text) writeFileSync(file, text);
}

mkdirSync(folder, { recursive: true });
fetchGpuLibraries(fetched);
placeGpuLibraries(fetched, folder);
writeStubs();
run("cmake", [
  "-S",
  root,
  "-B",
  folder,
  "--log-level=WARNING",
  "-DCMAKE_BUILD_TYPE=Release",
  "-DRADSERVE_ADDON=OFF",
  "-DRADSERVE_CUDA_TESTS=ON",
  // With the options of the addon's build (build-addon.mjs, cmake-js), or of test-native.mjs, so
  // that a compiler's cache has it
  ...(tsan
    ? ["-DRADSERVE_SANITIZE=thread"]
    : ["-DRADSERVE_WARNINGS_AS_ERRORS=OFF", "-DCMAKE_CXX_FLAGS=-DBUILDING_NODE_EXTENSION"]),
]);
run("cmake", [
  "--build",
  folder,
  "--target",
  "test_cuda",
  "raw_ort",
  "--parallel",
  String(process.env.RADSERVE_BUILD_JOBS ?? 2),
]);
if (!process.argv.includes("--build")) {
  const at = process.argv.indexOf("--program");
  run(path.join(folder, "test_cuda"), at < 0 ? [] : [process.argv[at + 1]], {
    env: {
      ...process.env,
      LD_LIBRARY_PATH: path.join(folder, "stand-in"),
      // The runtime and its provider are not built under the sanitizer, which cannot see how their
      // threads wait. Where they first use a variable of a thread, it guesses the length of glibc's
      // block, and may end the process over what lies before it
      TSAN_OPTIONS: "ignore_noninstrumented_modules=1:intercept_tls_get_addr=0",
    },
  });
}
