/**
 * `npm run pack -- tarball [FOLDER]`: makes radserve-VERSION.tgz, which installs without a
 * compiler: what is built, the models, the pages and the sources of the addon, without tests. Its
 * dependencies are those of package-lock.json.
 */
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { buildPortable } from "./portable.mjs";
import { npmRuntime, writePrebuilt } from "./prebuilt.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");

/** What `files` of package.json names: what a Radserve, its fallback build and the demo need. */
export function packedFiles() {
  const words = ["pack", "--dry-run", "--ignore-scripts", "--json"];
  const { status, stdout, stderr } = spawnSync("npm", words, {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 26,
  });
  if (status !== 0) throw new Error(`npm pack: ${stderr}`);
  const [{ files }] = JSON.parse(stdout);
  return files.map(({ path: name }) => name);
}

const without = (key, object) =>
  Object.fromEntries(Object.entries(object).filter(([name]) => name !== key));

function stage(folder, release) {
  for (const name of packedFiles()) cpSync(path.join(root, name), path.join(folder, name));
  const own = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  const { scripts } = own;
  const { install, start, rebuild, demo } = scripts;
  const setups = Object.fromEntries(
    ["setup:gpu", "setup:openvino"].map((name) => [name, scripts[name]]),
  );
  const made = {
    ...without("devDependencies", own),
    scripts: { install, start, rebuild, ...setups, demo },
  };
  writeFileSync(path.join(folder, "package.json"), `${JSON.stringify(made, null, 2)}\n`);
  writeFileSync(
    path.join(folder, "npm-shrinkwrap.json"),
    `${JSON.stringify(productionLock(), null, 2)}\n`,
  );
  writePrebuilt(release, npmRuntime(root), path.join(folder, "prebuilt"));
}

/** The lock without what only development needs. */
function productionLock() {
  const lock = JSON.parse(readFileSync(path.join(root, "package-lock.json"), "utf8"));
  const packages = Object.entries(lock.packages).filter(([, { dev }]) => !dev);
  const own = without("devDependencies", lock.packages[""]);
  return { ...lock, packages: { ...Object.fromEntries(packages), "": own } };
}

/** Makes the tarball in a folder and gives its path. Ends the process where it cannot. */
export async function pack(target) {
  for (const needed of ["dist/src/main.js", "dist/web/index.html", "dist/scripts/demo/main.js"])
    if (!existsSync(path.join(root, needed))) {
      console.error(`radserve: ${needed} is missing. Run npm ci first.`);
      process.exit(1);
    }
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-pack-"));
  try {
    stage(folder, await buildPortable());
    mkdirSync(target, { recursive: true });
    const run = spawnSync(
      "npm",
      ["pack", "--ignore-scripts", "--json", "--pack-destination", target],
      {
        cwd: folder,
        encoding: "utf8",
      },
    );
    if (run.status !== 0) {
      console.error(run.stderr);
      process.exit(1);
    }
    const [{ filename, size, entryCount }] = JSON.parse(run.stdout);
    const file = path.join(target, filename);
    console.error(`${file}: ${entryCount} files, ${(size / 2 ** 20).toFixed(1)} MiB`);
    return file;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  console.log(await pack(path.resolve(process.argv[2] ?? path.join(root, "build/package"))));
