/**
 * `npm run trial -- engine-package [--built]`: makes the package radserve-engine, installs it in a
 * project from outside (test/outside-project), without network, compiler and scripts, and runs that
 * under Node.js 22, 24 and 26. Then programs over onnxruntime-node, transformers.js among them
 * (test/drop-in-project), run over it and over the package in its place: what comes out must be the
 * same. --built as in pack-engine.mjs. Ends with 1 where something is not as it should be.
 */
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { onnxModel } from "../dist/scripts/lib/onnx-model.js";
import { endlessGraph } from "../dist/test/support/endless.js";
import { fetchNode, VERSIONS } from "./node-versions.mjs";
import { compareDropIn } from "./drop-in.mjs";
import { packEngine } from "./pack-engine.mjs";
import { OLDEST_GLIBC } from "./portable.mjs";
import { tryProgram } from "./run.mjs";
import { highestSymbols, isNewer } from "./symbols.mjs";
import { check } from "./trial.mjs";

/** Of a processor: how long it takes by the clock depends on what else the machine does. */
const LONGEST_INSTALL_S = 10;
const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const built = process.argv.includes("--built");
const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-outside-"));
const project = path.join(folder, "project");
const home = path.join(project, "node_modules/radserve-engine");
// Whatever asks for a compiler, or for the network, finds what is none.
const env = {
  ...process.env,
  CXX: "no-compiler",
  CC: "no-compiler",
  npm_config_cache: path.join(folder, "cache"),
  npm_config_offline: "true",
  npm_config_registry: "http://127.0.0.1:9",
};

const run = (program, parameters) =>
  tryProgram(program, parameters, { cwd: project, env, timeout: 600_000 });

const value = (name) => ({ name, dtype: "float32", shape: ["n", 2] });

try {
  const tarballs = await packEngine(folder, built);
  cpSync(path.join(root, "test/outside-project"), project, { recursive: true });
  const models = {
    add: {
      inputs: [value("x")],
      outputs: [value("y")],
      nodes: [{ op: "Add", inputs: ["x", "x"], outputs: ["y"] }],
    },
    endless: endlessGraph(value("x"), value("y")),
  };
  for (const [name, graph] of Object.entries(models))
    writeFileSync(path.join(folder, `${name}.onnx`), onnxModel({ name, ...graph }));
  const options = ["--ignore-scripts", "--no-audit", "--no-fund"];
  const installed = run("npm", ["install", ...options, tarballs.engine]);
  check(
    `installed in ${installed.seconds.toFixed(1)} s without network, compiler and scripts`,
    installed.status === 0 && installed.processor < LONGEST_INSTALL_S,
    installed.text,
  );
  const { scripts, dependencies } = JSON.parse(
    readFileSync(path.join(home, "package.json"), "utf8"),
  );
  const outside = Object.keys(dependencies).filter(
    (name) => !existsSync(path.join(home, "node_modules", name, "package.json")),
  );
  check(
    "it has no scripts, and brings what it depends on",
    scripts === undefined && outside.length === 0,
  );
  const needed = [
    "README.md",
    "LICENSE",
    "NOTICES.txt",
    "onnxruntime/LICENSE",
    "dist/src/graph/index.d.ts",
    "dist/src/graph/onnxruntime/index.d.ts",
  ];
  const missing = needed.filter((name) => !existsSync(path.join(home, name)));
  check(
    "licences, notices, types and a page of its own are in it",
    missing.length === 0,
    missing.join("\n"),
  );
  const files = readdirSync(home, { recursive: true, encoding: "utf8" });
  check(
    "no source and no map is in it",
    !files.some((name) => /(?<!\.d)\.ts$|\.map$|\.cc$/.test(name)),
  );
  if (!built) {
    const { GLIBC, GLIBCXX } = highestSymbols(path.join(home, "build/Release/addon.node"));
    check(
      `the addon needs glibc ${GLIBC} and ${GLIBCXX ?? "nothing"} of libstdc++`,
      !isNewer(GLIBC, OLDEST_GLIBC) && GLIBCXX === undefined,
    );
  }
  const compiler = path.join(root, "node_modules/.bin/tsgo");
  const words =
    "main.mjs worker.mjs --allowJs --checkJs --noEmit --strict --module nodenext --target es2022 --lib ES2023,ESNext.Disposable --types node";
  const types = path.join(root, "node_modules/@types");
  const checked = run(compiler, [...words.split(" "), "--typeRoots", types]);
  check("its types say what it does", checked.status === 0, checked.text);
  const programs = { 24: process.execPath };
  for (const line of Object.keys(VERSIONS))
    programs[line] = path.join(fetchNode(VERSIONS[line]), "node");
  for (const [line, program] of Object.entries(programs)) {
    const ran = run(program, [
      "main.mjs",
      ...Object.keys(models).map((name) => path.join(folder, `${name}.onnx`)),
    ]);
    check(
      `the project runs on Node.js ${line}, in ${ran.seconds.toFixed(1)} s`,
      ran.status === 0,
      ran.text,
    );
  }
  compareDropIn(folder, tarballs);
} catch (error) {
  check(error.message, false, error.stack);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
