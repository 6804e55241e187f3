/**
 * Checks the layout that prettier does not see: the native sources by clang-format, and the width
 * of comments in all languages, which both programs leave as they are, so that lists in them stay
 * lists. With --write, clang-format puts its part right.
 */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import console from "node:console";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const WIDTH = 100;
const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const require = createRequire(import.meta.url);
const cli = path.join(path.dirname(require.resolve("clang-format/package.json")), "index.js");

const filesOf = (folder, extensions) =>
  readdirSync(path.join(root, folder), { recursive: true })
    .map((name) => path.join(folder, String(name)))
    .filter((name) => extensions.test(name))
    .sort();

const native = filesOf("native", /\.(cc|h)$/);
const mode = process.argv.includes("--write") ? ["-i"] : ["--dry-run", "--Werror"];
const run = spawnSync(process.execPath, [cli, ...mode, ...native], { cwd: root, stdio: "inherit" });

const COMMENT = /^\s*(\/\/|\/?\*)/;
const scripts = ["src", "test", "scripts", "bench", "web"].flatMap((folder) =>
  filesOf(folder, /\.(ts|tsx|mjs|cjs|c)$/),
);
const wide = [...native, ...scripts].flatMap((name) =>
  readFileSync(path.join(root, name), "utf8")
    .split("\n")
    .flatMap((line, at) =>
      COMMENT.test(line) && line.length > WIDTH && !line.includes("://")
        ? [`${name}:${at + 1}`]
        : [],
    ),
);
for (const place of wide)
  console.error(`${place}: Expected a comment of at most ${WIDTH} columns.`);
process.exitCode = wide.length > 0 ? 1 : (run.status ?? 1);
