/**
 * `node scripts/without-features.mjs [NAME...]`: what stays without a feature is whole. In a copy
 * of the tree all features are taken out of the list in src/features.ts and their folders deleted:
 * the rest must keep the types and build, and the quick tests that are left must pass. Then each is
 * taken out alone, and the rest must keep the types and build. What is deleted cannot break the
 * direction of imports.
 *
 * The page (web/) is built too, but its types are not looked at: it shows what every feature
 * answers, and takes nothing but types from one.
 *
 * What goes with a feature: src/features/NAME, test/features/NAME, and each file of test/, bench/
 * and scripts/ that imports a file which has gone.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import console from "node:console";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { QUICK } from "./quick-tests.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
/** What is changed there is copied; the rest is as it is here. */
const COPIED = ["src", "test", "bench", "scripts", "web"];
const HERE = [
  ".prettierrc.json",
  "package.json",
  "tsconfig.json",
  "node_modules",
  "build",
  "docs",
  "gpu",
  "models",
  "native",
  "schemas",
  "openapi.yaml",
  "README.md",
];
/** Folders whose files go with what they import. */
const AROUND = ["test", "bench", "scripts"];
const LIST = "src/features.ts";
/** A test of jobs where there is no database: it needs a Radserve without the private one. */
const ALONE = ["jobs/no-database.test.js"];
/** The pages describe a Radserve with all features. */
const WHOLE = ["scripts/pages.test.js"];
const TESTS = [...QUICK.filter((file) => !WHOLE.includes(file)), ...ALONE];
const IMPORT = /(?:\bfrom|\bimport)[\s(]+["'](\.{1,2}\/[^"'$]+)["']/g;

const bin = (name) => path.join(root, "node_modules/.bin", name);
const CHECKS = {
  // What one feature changes is little: the next look begins with what is known of the last
  types: [bin("tsgo"), "-p", ".", "--noEmit", "--tsBuildInfoFile", "types.tsbuildinfo"],
  build: [process.execPath, "scripts/build.mjs"],
};

/** Lines of a failure that are told. */
const MOST_LINES = 40;

/** What failed of a test file; of anything else, the end. */
function partOf(text) {
  const lines = text.split("\n");
  const at = lines.findIndex((line) => /^ *not ok/.test(line));
  return (at < 0 ? lines.slice(-MOST_LINES) : lines.slice(at, at + MOST_LINES)).join("\n");
}

/** @returns what it said, if it failed */
async function failureOf([program, ...words], cwd) {
  // tap ends a file that hangs after this time, also on a very busy machine
  const env = { ...process.env, TAP_TIMEOUT: "600" };
  const child = spawn(program, words, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  const chunks = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => chunks.push(data));
  const [code] = await once(child, "close");
  return code === 0 ? undefined : partOf(Buffer.concat(chunks).toString());
}

/** Copies the tree, and so brings back what was deleted in it. */
function copyTree(copy) {
  for (const name of COPIED)
    cpSync(path.join(root, name), path.join(copy, name), { recursive: true });
}

const sourcesIn = (copy, folder) =>
  readdirSync(path.join(copy, folder), { recursive: true })
    .map((name) => path.join(folder, String(name)))
    .filter((name) => /\.(ts|mjs)$/.test(name));

const isThere = (tree, file) =>
  [file, file.replace(/\.js$/, ".ts")].some((name) => existsSync(path.join(tree, name)));

/** Whether a file imports one that has gone. */
function lacks(copy, file) {
  const text = readFileSync(path.join(copy, file), "utf8");
  return [...text.matchAll(IMPORT)].some(([, to]) => {
    const target = path.join(path.dirname(file), to);
    return isThere(root, target) && !isThere(copy, target);
  });
}

/** Takes a feature out of the list, and deletes its folders. */
function takeOut(copy, feature) {
  const list = readFileSync(path.join(copy, LIST), "utf8");
  const line = new RegExp(`^import \\{ (\\w+) \\} from "./features/${feature}/feature.js";\n`, "m");
  const [whole, name] = line.exec(list) ?? [];
  if (name === undefined) throw new Error(`${LIST} has no line for ${feature}.`);
  const rest = list
    .replace(whole, "")
    .replace(/(FEATURES: [^=]*= \[)([^\]]*)\]/, (_, head, names) => {
      const others = names.split(",").map((one) => one.trim());
      return `${head}${others.filter((one) => one !== "" && one !== name).join(", ")}]`;
    });
  writeFileSync(path.join(copy, LIST), rest);
  for (const folder of ["src/features", "test/features"])
    rmSync(path.join(copy, folder, feature), { recursive: true, force: true });
}

/** Deletes what imports what has gone. @returns how many files */
function deleteAround(copy) {
  for (let gone = 0; ;) {
    const lacking = AROUND.flatMap((folder) => sourcesIn(copy, folder)).filter((file) =>
      lacks(copy, file),
    );
    if (lacking.length === 0) return gone;
    for (const file of lacking) rmSync(path.join(copy, file));
    gone += lacking.length;
  }
}

/** @returns whether what is left is whole */
async function isWhole(copy, what, features, tests) {
  const began = Date.now();
  copyTree(copy);
  for (const feature of features) takeOut(copy, feature);
  const gone = deleteAround(copy);
  let whole = true;
  const judge = async (name, command) => {
    const fault = await failureOf(command, copy);
    if (fault === undefined) return;
    whole = false;
    console.log(`FAILED without ${what}: ${name}\n${fault}`);
  };
  for (const [name, command] of Object.entries(CHECKS)) await judge(name, command);
  const left = tests.filter((file) => existsSync(path.join(copy, "dist/test", file)));
  for (const file of left) await judge(file, [process.execPath, `dist/test/${file}`]);
  const seconds = ((Date.now() - began) / 1000).toFixed(0);
  const passed = tests.length === 0 ? "" : `, ${left.length} of ${tests.length} test files pass`;
  if (whole)
    console.log(`ok without ${what}: ${gone} files around it went${passed} (${seconds} s)`);
  return whole;
}

const all = readdirSync(path.join(root, "src/features"));
const chosen = process.argv.slice(2);
const copy = mkdtempSync(path.join(os.tmpdir(), "radserve-without-"));
try {
  for (const name of HERE) symlinkSync(path.join(root, name), path.join(copy, name));
  const results = [];
  if (chosen.length === 0) results.push(await isWhole(copy, "any feature", all, TESTS));
  for (const feature of chosen.length === 0 ? all : chosen)
    results.push(await isWhole(copy, feature, [feature], []));
  process.exitCode = results.every(Boolean) ? 0 : 1;
} finally {
  rmSync(copy, { recursive: true, force: true });
}
