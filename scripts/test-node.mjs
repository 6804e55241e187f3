/**
 * `npm run trial -- node [LINE...]`: a selection of the tests under other versions of Node.js than
 * the one that comes with Radserve, with the addon as it is built (Node-API is the same for all).
 * Without a line: all of them. The binaries come from npm, in exactly the versions of
 * node-versions.mjs, and stay in ~/.cache/radserve/node.
 */
import { spawnSync } from "node:child_process";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { fetchNode, VERSIONS } from "./node-versions.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");

/**
 * Start, tokens, single requests, a bulk job through PostgreSQL, the commands, and results computed
 * again.
 */
const TESTS = [
  "test/config.test.ts",
  "test/addon/bytes.test.ts",
  "test/commands/run.test.ts",
  "test/http/auth.test.ts",
  "test/http/inference.test.ts",
  "test/http/bulk.test.ts",
  "test/results/commit/verify.test.ts",
];

const lines = process.argv.slice(2);
const unknown = lines.find((line) => !(line in VERSIONS));
if (unknown !== undefined) {
  console.error(
    `No version of Node.js ${unknown} is listed; there are ${Object.keys(VERSIONS).join(", ")}.`,
  );
  process.exit(2);
}
for (const line of lines.length > 0 ? lines : Object.keys(VERSIONS)) {
  const folder = fetchNode(VERSIONS[line]);
  const began = Date.now();
  const env = { ...process.env, RADSERVE_NODE: path.join(folder, "node") };
  const words = [path.join(root, "scripts/test.mjs"), "--no-build", ...TESTS];
  const { status } = spawnSync(process.execPath, words, { cwd: root, stdio: "inherit", env });
  const seconds = Math.round((Date.now() - began) / 1000);
  console.log(
    `${status === 0 ? "ok    " : "FAILED"} Node.js ${VERSIONS[line].version}: ${TESTS.length} files in ${seconds} s`,
  );
  if (status !== 0) process.exitCode = 1;
}
