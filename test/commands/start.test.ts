/**
 * The documented way to call the commands in a clone: bin/radserve, from anywhere, by anybody,
 * changing nothing.
 */
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { VERSION } from "../../src/base/version.js";
import { root } from "../support/server.js";

const NOBODY = 65534;
const command = path.join(root, "bin/radserve");

/**
 * Root may write everywhere: then the command runs as a user who may not, if the clone lies where
 * that one comes.
 */
function stranger(): { uid?: number; gid?: number } {
  const nobody = { uid: NOBODY, gid: NOBODY };
  if (process.getuid?.() !== 0) return {};
  return spawnSync("test", ["-x", command], nobody).status === 0 ? nobody : {};
}

/** Name, size and time of change of everything below the folders that a build writes to. */
function built(): string[] {
  return ["dist/src", "build/Release", "node_modules", "node_modules/.bin"].flatMap((folder) =>
    readdirSync(path.join(root, folder)).map((name) => {
      const { size, mtimeMs } = lstatSync(path.join(root, folder, name));
      return `${folder}/${name} ${size} ${mtimeMs}`;
    }),
  );
}

t.test("from another folder, through a link, by a user who may not write in the clone", (t) => {
  const before = built();
  const directory = t.testdir({ elsewhere: {} });
  const link = path.join(directory, "radserve");
  symlinkSync(command, link);
  const cwd = path.join(directory, "elsewhere");
  for (const words of [["--version"], ["token", "--help"]]) {
    // The test runner's NODE_OPTIONS would write in the clone.
    const bare = ["-u", "NODE_OPTIONS", link, ...words];
    const run = spawnSync("env", bare, { cwd, encoding: "utf8", ...stranger() });
    t.match(run, {
      status: 0,
      stderr: "",
      stdout: new RegExp(`^${VERSION}$|Usage: radserve token`, "m"),
    });
  }
  t.strictSame(built(), before, "nothing was built or installed");
  t.end();
});

t.test("a clone that is not built says what to run", (t) => {
  const clone = t.testdir({ bin: {}, dist: { src: {} } });
  copyFileSync(command, path.join(clone, "bin/radserve"));
  const env = { ...process.env, RADSERVE_NODE: process.execPath };
  const run = () =>
    spawnSync(path.join(clone, "bin/radserve"), ["--help"], { env, encoding: "utf8" });
  t.match(run(), {
    status: 1,
    stdout: "",
    stderr: /^radserve: \S+ is not built yet\. In it, run npm ci\.\n$/,
  });
  writeFileSync(path.join(clone, "dist/src/main.js"), 'console.log("started");');
  t.match(run(), {
    status: 1,
    stderr: /has no addon.* Run node \S+\/scripts\/build-addon\.mjs\n$/,
  });
  mkdirSync(path.join(clone, "build/Release"), { recursive: true });
  writeFileSync(path.join(clone, "build/Release/addon.node"), "");
  t.match(run(), { status: 0, stdout: "started\n" });
  t.end();
});

t.test("npx in a clone that is built builds nothing", (t) => {
  const before = built();
  const environment = { ...process.env, npm_command: "exec" };
  for (const script of ["build-addon.mjs", "prepare.mjs"]) {
    const file = path.join(root, "scripts", script);
    t.match(spawnSync(process.execPath, [file], { env: environment, encoding: "utf8" }), {
      status: 0,
      stdout: "",
      stderr: "",
    });
  }
  t.strictSame(built(), before);
  t.end();
});
