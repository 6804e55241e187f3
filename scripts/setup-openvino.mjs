// `npm run setup:openvino [-- WHEEL]`: puts OpenVINO's libraries and notices into the folder
// openvino beside addon.node, from its wheel on PyPI, which pip fetches from the registry that it
// is told to use, or that lies at a path.
import { spawnSync } from "node:child_process";
import console from "node:console";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { FILES, faultOf, filesOf, VERSION, WHEEL } from "./openvino-libraries.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const release = path.join(root, "build", "Release");

function fail(message) {
  console.error(`radserve: ${message}`);
  process.exit(1);
}

/** Fetches the wheel into a folder and gives its path. Ends the process where it cannot. */
function fetchWheel(folder) {
  const python = process.env.RADSERVE_PYTHON ?? "python3";
  const what = ["download", "--no-deps", "--only-binary", ":all:", "--dest", folder];
  const { python: version, abi, platform } = WHEEL;
  const which = ["--python-version", version, "--implementation", "cp", "--abi", abi];
  const pip = ["-m", "pip", ...what, ...which, "--platform", platform, `openvino==${VERSION}`];
  const { status } = spawnSync(python, pip, { stdio: ["ignore", "ignore", "inherit"] });
  const [wheel] = readdirSync(folder).filter((name) => name.endsWith(".whl"));
  if (status !== 0 || wheel === undefined)
    fail(
      `${python} -m pip could not fetch openvino ${VERSION}. Fetch the wheel for ${WHEEL.abi} and ${WHEEL.platform} elsewhere, and give its path: npm run setup:openvino -- WHEEL`,
    );
  return path.join(folder, wheel);
}

/**
 * Unpacks the files that are needed into a folder, which appears whole; a running server keeps the
 * libraries that it has opened.
 */
function place(wheel, folder) {
  const made = `${folder}.new`;
  rmSync(made, { recursive: true, force: true });
  mkdirSync(path.join(made, "licensing"), { recursive: true });
  const missing = new Set(FILES);
  for (const { name, read } of filesOf(readFileSync(wheel))) {
    if (!missing.delete(name)) continue;
    const within = name.includes("/licensing/") ? "licensing" : ".";
    writeFileSync(path.join(made, within, path.basename(name)), read());
  }
  if (missing.size > 0) fail(`${wheel} lacks ${[...missing].join(", ")}.`);
  const old = `${folder}.old`;
  rmSync(old, { recursive: true, force: true });
  if (existsSync(folder)) renameSync(folder, old);
  renameSync(made, folder);
  rmSync(old, { recursive: true, force: true });
}

function main([given]) {
  if (!existsSync(path.join(release, "addon.node")))
    fail("The addon is not built. Run npm ci first.");
  if (given !== undefined && !existsSync(given)) fail(`${given}: there is no such wheel.`);
  const scratch = mkdtempSync(path.join(os.tmpdir(), "radserve-openvino-"));
  try {
    const wheel = given ?? fetchWheel(scratch);
    const fault = faultOf(wheel);
    if (fault !== undefined) fail(`${wheel} ${fault}: it is not the wheel of openvino ${VERSION}.`);
    place(wheel, path.join(release, "openvino"));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  const addon = createRequire(import.meta.url)(path.join(release, "addon.node"));
  const { version, problem } = addon.openvino();
  if (problem !== "") fail(`OpenVINO is in place and cannot be used: ${problem}`);
  console.log(
    `OpenVINO ${version} is in place. Set RADSERVE_PROVIDERS=openvino,cpu, and compare a model with radserve models compare.`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main(process.argv.slice(2));
