/**
 * Builds the page for people: web/ into dist/web, one script, one style sheet and an icon, whose names have a hash of
 * their content. Prints how large they are compressed, and fails beyond the budget.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const BUDGET_BYTES = 150_000;

const root = fileURLToPath(new URL("..", import.meta.url));
const out = path.join(root, "dist/web");

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { metafile } = await build({
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
  metafile: true,
  logLevel: "warning",
});

const files = Object.keys(metafile.outputs).map((file) => path.relative("dist/web", file));
const called = (extension) => `/${files.find((file) => file.endsWith(extension))}`;
const page = readFileSync(path.join(root, "web/index.html"), "utf8")
  .replace("SCRIPT", called(".js"))
  .replace("STYLE", called(".css"))
  .replace("ICON", called(".svg"));
writeFileSync(path.join(out, "index.html"), page);

const sizes = ["index.html", ...files].map(
  (file) => gzipSync(readFileSync(path.join(out, file)), { level: 9 }).length,
);
const total = sizes.reduce((sum, size) => sum + size, 0);
console.log(
  `page: ${files.length + 1} files, ${(total / 1000).toFixed(1)} kB compressed (at most ${BUDGET_BYTES / 1000})`,
);
if (total > BUDGET_BYTES) {
  console.error("The page is larger than its budget.");
  process.exitCode = 1;
}
