/**
 * `npm run build`: every TypeScript file to its JavaScript in dist/, the page for people to dist/web. Types are not looked
 * at: `npm run types` does that. Only what differs is written, because a server may run from dist/; the JavaScript of a
 * source that has gone is removed.
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Buffer } from "node:buffer";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
/** The folders of tsconfig.json. */
const FOLDERS = ["src", "test", "scripts", "bench"];

function filesOf(folder, extension) {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => extension.test(name))
    .map((name) => path.join(folder, name));
}

/** What is at a path; undefined where nothing is. */
function contentOf(file) {
  try {
    return readFileSync(file);
  } catch {
    return undefined;
  }
}

/** Compiles every source, and gives the JavaScript and the source maps by their paths. */
async function compile() {
  const sources = FOLDERS.flatMap((folder) => filesOf(path.join(root, folder), /(?<!\.d)\.ts$/));
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: sources,
    outbase: root,
    outdir: path.join(root, "dist"),
    bundle: false,
    format: "esm",
    platform: "node",
    target: "es2022",
    sourcemap: "linked",
    sourcesContent: false,
    write: false,
    logLevel: "warning",
  });
  return new Map(outputFiles.map(({ path: file, contents }) => [file, contents]));
}

const made = await compile();
let [written, removed] = [0, 0];
for (const [file, contents] of made) {
  if (contentOf(file)?.equals(Buffer.from(contents))) continue;
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(`${file}.new`, contents);
  renameSync(`${file}.new`, file);
  written += 1;
}
for (const folder of FOLDERS)
  for (const file of filesOf(path.join(root, "dist", folder), /\.js(\.map)?$/))
    if (!made.has(file)) {
      rmSync(file);
      removed += 1;
    }
console.log(`dist: ${written} files written, ${removed} removed`);
await import("./build-web.mjs");
