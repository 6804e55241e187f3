// Checks the layout of the native sources; with --write, puts it right.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const require = createRequire(import.meta.url);
const cli = path.join(path.dirname(require.resolve("clang-format/package.json")), "index.js");
const files = readdirSync(path.join(root, "native"), { recursive: true })
  .map((name) => path.join("native", String(name)))
  .filter((name) => /\.(cc|h)$/.test(name))
  .sort();
const mode = process.argv.includes("--write") ? ["-i"] : ["--dry-run", "--Werror"];
const run = spawnSync(process.execPath, [cli, ...mode, ...files], { cwd: root, stdio: "inherit" });
process.exitCode = run.status ?? 1;
