// `npm run setup:openvino [-- WHEEL]`: puts OpenVINO's libraries and notices into the folder
// openvino beside addon.node, from its wheel on PyPI, which pip fetches from the registry that it
// is told to use, or that lies at a path.
import { spawnSync } from "node:child_process";
import console from "node:console";
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { fromBufferPromise } from "yauzl";
import { downloadInto, faultOf, FILES, VERSION } from "./openvino-libraries.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const release = path.join(root, "build", "Release");
const HOW = `Fetch it where there is a network, with "python3 ${downloadInto(".").join(" ")}", and give its path: npm run setup:openvino -- WHEEL`;

/** Fetches the wheel into a folder and gives its path. */
function fetchWheel(folder) {
  const python = process.env.RADSERVE_PYTHON ?? "python3";
  const { status } = spawnSync(python, downloadInto(folder), {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [wheel] = readdirSync(folder).filter((name) => name.endsWith(".whl"));
  if (status !== 0 || wheel === undefined)
    throw new Error(`${python} -m pip could not fetch openvino ${VERSION}. ${HOW}`);
  return path.join(folder, wheel);
}

/** The bytes of the pinned wheel: those whose hash was taken are those that are unpacked. */
function readWheel(wheel) {
  let bytes;
  try {
    bytes = readFileSync(wheel);
  } catch (error) {
    throw new Error(
      `Expected a wheel of openvino ${VERSION} at ${wheel}, found none that can be read (${error.code}). ${HOW}`,
      { cause: error },
    );
  }
  const fault = faultOf(bytes);
  if (fault !== undefined)
    throw new Error(`${wheel} ${fault}: it is not the wheel of openvino ${VERSION}. ${HOW}`);
  return bytes;
}

/** Unpacks the files that are needed into a folder, whose length and CRC-32 yauzl checks. */
async function unpack(bytes, folder) {
  mkdirSync(path.join(folder, "licensing"), { recursive: true });
  const missing = new Set(FILES);
  const wheel = await fromBufferPromise(bytes, { lazyEntries: true });
  for await (const entry of wheel.eachEntry()) {
    if (!missing.delete(entry.fileName)) continue;
    const within = entry.fileName.includes("/licensing/") ? "licensing" : ".";
    const file = path.join(folder, within, path.basename(entry.fileName));
    await pipeline(await wheel.openReadStreamPromise(entry), createWriteStream(file));
  }
  if (missing.size > 0) throw new Error(`The wheel lacks ${[...missing].join(", ")}.`);
}

/** The folder appears whole; a running server keeps the libraries that it has opened. */
async function place(bytes, folder) {
  const [made, old] = [`${folder}.new`, `${folder}.old`];
  for (const left of [made, old]) rmSync(left, { recursive: true, force: true });
  try {
    await unpack(bytes, made);
    if (existsSync(folder)) renameSync(folder, old);
    renameSync(made, folder);
  } finally {
    for (const left of [made, old]) rmSync(left, { recursive: true, force: true });
  }
}

async function main([given]) {
  if (!existsSync(path.join(release, "addon.node")))
    throw new Error("The addon is not built. Run npm ci first.");
  const scratch = mkdtempSync(path.join(os.tmpdir(), "radserve-openvino-"));
  try {
    await place(readWheel(given ?? fetchWheel(scratch)), path.join(release, "openvino"));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  const addon = createRequire(import.meta.url)(path.join(release, "addon.node"));
  const { version, problem } = addon.openvino();
  if (problem !== "") throw new Error(`OpenVINO is in place and cannot be used: ${problem}`);
  console.log(
    `OpenVINO ${version} is in place. Set RADSERVE_PROVIDERS=openvino,cpu, and compare a model with radserve models compare.`,
  );
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`radserve: ${error.message}`);
  process.exitCode = 1;
});
