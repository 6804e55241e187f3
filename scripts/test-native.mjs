// Builds and runs the pure C++ tests, linked with the libraries of the addon; --asan or --tsan
// build all of it under that sanitizer, in a folder of its own.
import { spawnSync } from "node:child_process";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const sanitizers = { "--asan": "address", "--tsan": "thread" };
const flag = process.argv.slice(2).find((argument) => argument in sanitizers);
const folder = path.join(
  root,
  flag === undefined ? "build" : `build-native-test${flag.replace("--", "-")}`,
);

function run(program, ...parameters) {
  const { status } = spawnSync(program, parameters, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}

if (flag === undefined) run(process.execPath, path.join(root, "scripts/build-addon.mjs"));
else
  run(
    "cmake",
    "-S",
    root,
    "-B",
    folder,
    "--log-level=WARNING",
    "-DRADSERVE_ADDON=OFF",
    "-DCMAKE_BUILD_TYPE=Release",
    `-DRADSERVE_SANITIZE=${sanitizers[flag]}`,
  );
const jobs = String(process.env.RADSERVE_BUILD_JOBS ?? 2);
run("cmake", "--build", folder, "--target", "native_tests", "--parallel", jobs);
run("ctest", "--test-dir", folder, "--output-on-failure", "--parallel", jobs);
