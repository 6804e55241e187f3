/**
 * `npm run test:package`: makes the tarball, installs it in an empty folder on a machine without a compiler (as far as it
 * can be told here: none is found), and runs the demo from there. Ends with 1 where something is not as it should be.
 */
import { spawnSync } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { pack } from "./pack.mjs";

const LONGEST_INSTALL_S = 60;
const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-package-"));
const prefix = path.join(folder, "prefix");
const home = path.join(prefix, "node_modules/radserve");
// Whatever asks for a compiler finds a name that is none.
const env = { ...process.env, CXX: "no-compiler", CC: "no-compiler", npm_command: "" };

function run(program, parameters, options = {}) {
  const began = Date.now();
  const { status, stdout, stderr } = spawnSync(program, parameters, {
    ...{ cwd: folder, env, encoding: "utf8", timeout: 300_000, maxBuffer: 1 << 28 },
    ...options,
  });
  return { status, text: `${stdout}${stderr}`, seconds: (Date.now() - began) / 1000 };
}

function check(what, holds, text = "") {
  console.log(`${holds ? "ok    " : "FAILED"} ${what}`);
  if (holds) return;
  console.log(text);
  process.exitCode = 1;
}

try {
  const tarball = pack(folder);
  const options = ["--prefix", prefix, "--no-audit", "--no-fund"];
  const installed = run("npm", ["install", ...options, tarball]);
  check(
    `installed in ${installed.seconds.toFixed(1)} s without a compiler`,
    installed.status === 0,
    installed.text,
  );
  check(`in less than ${LONGEST_INSTALL_S} s`, installed.seconds < LONGEST_INSTALL_S);
  const files = readdirSync(home, { recursive: true, encoding: "utf8" }).filter(
    (name) => !name.startsWith("node_modules"),
  );
  const tests = files.filter((name) => /(^|\/)test\/|\.test\.|^src\//.test(name));
  check("no test and no source of one in it", tests.length === 0, tests.join("\n"));
  const version = run(path.join(prefix, "node_modules/.bin/radserve"), ["--version"]);
  check(`radserve ${version.text.trim()} answers`, version.status === 0, version.text);
  const demo = run(process.execPath, [path.join(home, "dist/scripts/demo/main.js"), "--exit"]);
  check(
    `the demo, in ${demo.seconds.toFixed(1)} s`,
    demo.status === 0 && existsSync(path.join(folder, "demo-output")),
    demo.text,
  );
  appendFileSync(path.join(home, "prebuilt/addon.node"), "x");
  const other = run(process.execPath, [path.join(home, "scripts/build-addon.mjs")]);
  check(
    "an addon that is not the packed one is not used",
    other.status === 1 && /addon\.node is not the file that was packed/.test(other.text),
    other.text,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
