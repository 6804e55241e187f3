/** npm's `prepare`: compiles the TypeScript. With `--omit=dev` there is no compiler and dist/ has to be there already. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiler = fileURLToPath(new URL("../node_modules/typescript/bin/tsc", import.meta.url));

if (!existsSync(compiler)) {
  if (!existsSync(`${root}/dist/src/main.js`)) {
    console.error("radserve: TypeScript is not installed and dist/ is not built. Run: npm ci");
    process.exitCode = 1;
  }
} else {
  const { status } = spawnSync(process.execPath, [compiler, "-p", root], { stdio: "inherit" });
  process.exitCode = status ?? 1;
}
