/**
 * The addon as a package brings it: prebuilt/ with the two binaries and prebuilt.json, which names
 * their hashes, the hash of the ONNX Runtime that they were tried with, and the oldest glibc that
 * has their symbols. What does not match is not used; then the addon is built from its sources.
 */
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { highestSymbols } from "./symbols.mjs";

export const BINARIES = ["addon.node", "confine.node"];
const SONAME = "libonnxruntime.so.1";

const sha256 = (file) => createHash("sha256").update(readFileSync(file)).digest("hex");

/** ONNX Runtime's library as npm has installed it; undefined where it has not. */
export function npmRuntime(root) {
  const name = "com.github.asus4.onnxruntime";
  const places = createRequire(path.join(root, "package.json")).resolve.paths(name) ?? [];
  return places
    .map((folder) => path.join(folder, name, "Plugins/Linux/x64/libonnxruntime.so"))
    .find((file) => existsSync(file));
}

const numbers = (version) => version.split(".").map(Number);

function isOlder(found, needed) {
  const [[a, b], [c, d]] = [numbers(found), numbers(needed)];
  return a < c || (a === c && b < d);
}

export function writePrebuilt(release, runtime, target) {
  mkdirSync(target, { recursive: true });
  const files = Object.fromEntries(
    BINARIES.map((name) => {
      copyFileSync(path.join(release, name), path.join(target, name));
      return [name, sha256(path.join(target, name))];
    }),
  );
  const glibc = BINARIES.map(
    (name) => highestSymbols(path.join(target, name)).GLIBC ?? "2.2.5",
  ).reduce((most, one) => (isOlder(most, one) ? one : most));
  const about = { platform: "linux", arch: "x64", glibc, onnxruntime: sha256(runtime), files };
  writeFileSync(path.join(target, "prebuilt.json"), `${JSON.stringify(about, null, 2)}\n`);
}

/** Why what was built elsewhere cannot be used here; undefined where it can. */
function unfit(root) {
  const about = JSON.parse(readFileSync(path.join(root, "prebuilt/prebuilt.json"), "utf8"));
  if (process.platform !== about.platform || process.arch !== about.arch)
    return `it is for ${about.platform} ${about.arch}, this is ${process.platform} ${process.arch}`;
  const here = process.report.getReport().header.glibcVersionRuntime;
  if (here === undefined || isOlder(here, about.glibc))
    return `it needs glibc ${about.glibc}, found ${here ?? "another C library"}`;
  for (const [name, hash] of Object.entries(about.files))
    if (sha256(path.join(root, "prebuilt", name)) !== hash)
      return `${name} is not the file that was packed`;
  const runtime = npmRuntime(root);
  if (runtime === undefined || sha256(runtime) !== about.onnxruntime)
    return "the installed ONNX Runtime is not the one that it was tried with";
  return undefined;
}

/** A file appears whole or not at all. */
function place(file, target) {
  copyFileSync(file, `${target}.new`);
  renameSync(`${target}.new`, target);
}

/**
 * Puts the packed addon in its place. False where there is none or it does not fit, which is said.
 */
export function usePrebuilt(root) {
  if (process.env.ONNXRUNTIME_ROOT || !existsSync(path.join(root, "prebuilt/prebuilt.json")))
    return false;
  const why = unfit(root);
  const release = path.join(root, "build", "Release");
  if (why === undefined) {
    mkdirSync(release, { recursive: true });
    for (const name of BINARIES) place(path.join(root, "prebuilt", name), path.join(release, name));
    place(npmRuntime(root), path.join(release, SONAME));
    try {
      createRequire(import.meta.url)(path.join(release, "addon.node"));
      return true;
    } catch (error) {
      console.error(`radserve: The packed addon does not load (${error.message.split("\n")[0]}).`);
    }
  } else console.error(`radserve: The packed addon is not used: ${why}.`);
  console.error("radserve: It is built from its sources instead.");
  return false;
}
