/**
 * `node scripts/without-features.mjs [NAME...]`: what stays without a feature is whole. In a copy of
 * the tree each feature is taken out of the list in src/features.ts and its folder deleted; the rest
 * must keep the types and the floors, and build. Then all are taken out, and the quick tests pass
 * that are left.
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
const HERE = [".dependency-cruiser.cjs", "package.json", "tsconfig.json", "node_modules"].concat([
  "build",
  "docs",
  "gpu",
  "models",
  "native",
  "schemas",
  "openapi.yaml",
  "README.md",
]);
/** Folders whose files go with what they import. */
const AROUND = ["test", "bench", "scripts"];
const LIST = "src/features.ts";
/** A test of jobs where there is no database: it needs a Radserve without the private one. */
const ALONE = ["jobs/no-database.test.js"];
const IMPORT = /(?:\bfrom|\bimport)[\s(]+["'](\.{1,2}\/[^"'$]+)["']/g;

const bin = (name) => path.join(root, "node_modules/.bin", name);
const CHECKS = {
  types: [bin("tsgo"), "-p", ".", "--noEmit", "--incremental", "false"],
  floors: [bin("depcruise"), "--config", ".dependency-cruiser.cjs", "src"],
  build: [process.execPath, "scripts/build.mjs"],
};

/** @returns what it said, if it failed */
async function failureOf([program, ...words], cwd) {
  const child = spawn(program, words, { cwd, stdio: ["ignore", "pipe", "pipe"] });
  const chunks = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => chunks.push(data));
  const [code] = await once(child, "close");
  return code === 0 ? undefined : Buffer.concat(chunks).toString();
}

function copyOfTree() {
  const copy = mkdtempSync(path.join(os.tmpdir(), "radserve-without-"));
  for (const name of COPIED)
    cpSync(path.join(root, name), path.join(copy, name), { recursive: true });
  for (const name of HERE) symlinkSync(path.join(root, name), path.join(copy, name));
  return copy;
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

/** @returns lines about what failed */
async function tried(what, features, tests) {
  const began = Date.now();
  const copy = copyOfTree();
  const faults = [];
  try {
    for (const feature of features) takeOut(copy, feature);
    const gone = deleteAround(copy);
    const judge = async (name, command) => {
      const fault = await failureOf(command, copy);
      if (fault !== undefined) faults.push(`FAILED without ${what}: ${name}\n${fault}`);
    };
    await Promise.all(Object.entries(CHECKS).map(([name, command]) => judge(name, command)));
    const left = tests.filter((file) => existsSync(path.join(copy, "dist/test", file)));
    if (faults.length === 0)
      for (const file of left) await judge(file, [process.execPath, `dist/test/${file}`]);
    const seconds = ((Date.now() - began) / 1000).toFixed(0);
    const passed = tests.length === 0 ? "" : `, ${left.length} of ${tests.length} test files pass`;
    if (faults.length === 0)
      console.log(`ok without ${what}: ${gone} files around it went${passed} (${seconds} s)`);
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
  for (const fault of faults) console.log(fault);
  return faults;
}

const all = readdirSync(path.join(root, "src/features"));
const chosen = process.argv.length > 2 ? process.argv.slice(2) : all;
const faults = [];
for (const feature of chosen) faults.push(...(await tried(feature, [feature], [])));
if (process.argv.length === 2)
  faults.push(...(await tried("any feature", all, [...QUICK, ...ALONE])));
process.exitCode = faults.length === 0 ? 0 : 1;
