/**
 * Checks the layout of the native sources; with --write, puts it right. clang-format leaves
 * comments as they are, so that lists in them stay lists: their width is looked at here.
 */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const WIDTH = 100;
const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const require = createRequire(import.meta.url);
const cli = path.join(path.dirname(require.resolve("clang-format/package.json")), "index.js");
const files = readdirSync(path.join(root, "native"), { recursive: true })
  .map((name) => path.join("native", String(name)))
  .filter((name) => /\.(cc|h)$/.test(name))
  .sort();
const mode = process.argv.includes("--write") ? ["-i"] : ["--dry-run", "--Werror"];
const run = spawnSync(process.execPath, [cli, ...mode, ...files], { cwd: root, stdio: "inherit" });
const wide = files.flatMap((name) =>
  readFileSync(path.join(root, name), "utf8")
    .split("\n")
    .flatMap((line, at) =>
      /^\s*\/\//.test(line) && line.length > WIDTH ? [`${name}:${at + 1}`] : [],
    ),
);
for (const place of wide)
  console.error(`${place}: Expected a comment of at most ${WIDTH} columns.`);
process.exitCode = wide.length > 0 ? 1 : (run.status ?? 1);
