/**
 * Builds the page for people: web/ into dist/web, one script, one style sheet and an icon, whose
 * names have a hash of their content. Prints how large they are compressed, and fails beyond the
 * budget.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { Buffer } from "node:buffer";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const BUDGET_BYTES = 150_000;

const root = fileURLToPath(new URL("..", import.meta.url));
const out = path.join(root, "dist/web");

const { outputFiles } = await build({
  absWorkingDir: root,
  entryPoints: { page: "web/main.tsx", icon: "web/icon.svg" },
  entryNames: "assets/[name]-[hash]",
  assetNames: "assets/[name]-[hash]",
  outdir: "dist/web",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".svg": "copy" },
  legalComments: "eof",
  write: false,
  logLevel: "warning",
});

const made = new Map(
  outputFiles.map(({ path: file, contents }) => [path.relative(out, file), contents]),
);
// Relative, so that a proxy may put the page below a path
const called = (extension) => `./${[...made.keys()].find((file) => file.endsWith(extension))}`;
const page = readFileSync(path.join(root, "web/index.html"), "utf8")
  .replace("SCRIPT", called(".js"))
  .replace("STYLE", called(".css"))
  .replace("ICON", called(".svg"));
made.set("index.html", Buffer.from(page));

// What is the same stays: a server may read it at this moment.
const old = existsSync(out)
  ? readdirSync(out, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  : [];
for (const { parentPath, name } of old) {
  const file = path.join(parentPath, name);
  if (!made.has(path.relative(out, file))) rmSync(file);
}
for (const [name, contents] of made) {
  const file = path.join(out, name);
  if (existsSync(file) && readFileSync(file).equals(contents)) continue;
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, contents);
}

const sizes = [...made.values()].map((contents) => gzipSync(contents, { level: 9 }).length);
const total = sizes.reduce((sum, size) => sum + size, 0);
console.log(
  `page: ${made.size} files, ${(total / 1000).toFixed(1)} kB compressed (at most ${BUDGET_BYTES / 1000})`,
);
if (total > BUDGET_BYTES) {
  console.error("The page is larger than its budget.");
  process.exitCode = 1;
}
