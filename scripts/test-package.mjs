/**
 * `npm run trial -- package`: makes the tarball, installs it in an empty folder on a machine
 * without a compiler (as far as it can be told here: none is found), and runs the demo from there.
 * Ends with 1 where something is not as it should be.
 */
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { pack } from "./pack.mjs";
import { OLDEST_GLIBC } from "./portable.mjs";
import { BINARIES } from "./prebuilt.mjs";
import { tryProgram } from "./run.mjs";
import { highestSymbols, isNewer } from "./symbols.mjs";
import { check, pageFault, startInstalled } from "./trial.mjs";

/** Of a processor: how long it takes by the clock depends on the network and the machine. */
const LONGEST_INSTALL_S = 60;
const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-package-"));
const prefix = path.join(folder, "prefix");
const home = path.join(prefix, "node_modules/radserve");
// Whatever asks for a compiler finds a name that is none.
const env = { ...process.env, CXX: "no-compiler", CC: "no-compiler", npm_command: "" };

const run = (program, parameters, options = {}) =>
  tryProgram(program, parameters, { cwd: folder, env, timeout: 600_000, ...options });

function place(name) {
  const made = path.join(folder, name);
  mkdirSync(made);
  return made;
}

/**
 * That the packed binary runs on an old system, and is as hard as the one that a clone builds
 * (test/addon/hardening).
 */
function checkBinary(name) {
  const file = path.join(home, "prebuilt", name);
  const { GLIBC, GLIBCXX } = highestSymbols(file);
  const old = !isNewer(GLIBC, OLDEST_GLIBC) && GLIBCXX === undefined;
  check(`${name} needs glibc ${GLIBC} and ${GLIBCXX ?? "nothing"} of libstdc++`, old);
  const table = run("readelf", ["--wide", "--segments", "--dynamic", "--dyn-syms", file]).text;
  const expected = [
    /^\s*GNU_RELRO\s/m,
    /^\s*GNU_STACK\s.*\sRW\s/m,
    /\(FLAGS\).*BIND_NOW/,
    /__stack_chk_fail@/,
    ...(name === "addon.node" ? [/\s__(?!stack)\w+_chk@/] : []),
  ];
  const absent = expected.filter((pattern) => !pattern.test(table));
  const text = absent.join("\n");
  check(
    `${name}: RELRO, BIND_NOW, stack protector, FORTIFY`,
    text === "" && !table.includes("(TEXTREL)"),
    text,
  );
  const own = table
    .split("\n")
    .filter((line) => /\sGLOBAL\s|\sWEAK\s|\sUNIQUE\s/.test(line) && !/\sUND\s/.test(line));
  const seen = own.filter(
    (line) => !/\s(napi_register_module_v1|node_api_module_get_api_version_v1)$/.test(line),
  );
  check(
    `${name} shows only what Node.js asks for`,
    own.length === 2 && seen.length === 0,
    seen.join("\n"),
  );
}

try {
  const tarball = await pack(folder);
  const options = ["--prefix", prefix, "--no-audit", "--no-fund"];
  const installed = run("npm", ["install", ...options, tarball]);
  check(
    `installed in ${installed.seconds.toFixed(1)} s without a compiler`,
    installed.status === 0,
    installed.text,
  );
  check(
    `in less than ${LONGEST_INSTALL_S} s of a processor: ${installed.processor.toFixed(1)} s`,
    installed.processor < LONGEST_INSTALL_S,
  );
  const files = readdirSync(home, { recursive: true, encoding: "utf8" }).filter(
    (name) => !name.startsWith("node_modules"),
  );
  const tests = files.filter((name) => /(^|\/)test\/|\.test\.|^src\//.test(name));
  check("no test and no source of one in it", tests.length === 0, tests.join("\n"));
  check("the versions of the lock are in it", files.includes("npm-shrinkwrap.json"));
  const page = ["dist/web/index.html", "dist/web/assets"].every((name) => files.includes(name));
  check("the page for people is in it", page);
  for (const name of BINARIES) checkBinary(name);
  const version = run(path.join(prefix, "node_modules/.bin/radserve"), ["--version"]);
  check(`radserve ${version.text.trim()} answers`, version.status === 0, version.text);
  const demo = run(process.execPath, [path.join(home, "dist/scripts/demo/main.js"), "--exit"]);
  check(
    `the demo, in ${demo.seconds.toFixed(1)} s`,
    demo.status === 0 && existsSync(path.join(folder, "demo-output")),
    demo.text,
  );
  const server = await startInstalled([path.join(prefix, "node_modules/.bin/radserve")], {
    cwd: folder,
    env: {
      ...env,
      RADSERVE_STATE_DIR: path.join(folder, "state"),
      RADSERVE_INPUT_ROOTS: place("images"),
      RADSERVE_OUTPUT_ROOTS: place("results"),
    },
  });
  const fault = await pageFault(server.url);
  check("GET / shows the page for people", fault === "", fault);
  const ended = await server.stop();
  check("SIGTERM ends it with status 0", ended.status === 0, ended.text);
  appendFileSync(path.join(home, "prebuilt/addon.node"), "x");
  const other = run(process.execPath, [path.join(home, "scripts/build-addon.mjs")]);
  check(
    "an addon that is not the packed one is not used",
    other.status === 1 && /addon\.node is not the file that was packed/.test(other.text),
    other.text,
  );
} catch (error) {
  check(error.message, false, error.stack);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
