/**
 * npm's `prepare`: compiles the TypeScript, and builds the page for people. With `--omit=dev` there
 * is no compiler and dist/ has to be there already. `npx radserve` in a clone runs it once for
 * every npm cache: then dist/ stays as it is, because a server may run from it.
 */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiler = fileURLToPath(new URL("../node_modules/esbuild", import.meta.url));
const isBuilt = existsSync(`${root}/dist/src/main.js`);

if (!existsSync(compiler)) {
  if (!isBuilt) {
    console.error("radserve: esbuild is not installed and dist/ is not built. Run: npm ci");
    process.exitCode = 1;
  }
} else if (process.env.npm_command !== "exec" || !isBuilt) {
  await import("./build.mjs");
}
