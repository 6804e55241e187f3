/**
 * `npm run test:deb`: makes the Debian package, installs it with dpkg in an empty root, runs the demo with the package's
 * own Node.js, and removes it again. Needs root, as dpkg does. Ends with 1 where something is not as it should be.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { packDebian } from "./deb.mjs";
import { OLDEST_GLIBC } from "./portable.mjs";

const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-deb-test-"));
const root = path.join(folder, "root");

/** The machine's own Node.js is not on the path, so that only the package's can be found. */
function run(program, parameters, more = {}) {
  const { status, stdout, stderr } = spawnSync(program, parameters, {
    ...{ cwd: folder, encoding: "utf8", timeout: 240_000, maxBuffer: 1 << 28 },
    env: { PATH: "/usr/sbin:/sbin:/bin", HOME: folder, LC_ALL: "C.UTF-8", ...more },
  });
  return { status, text: `${stdout}${stderr}` };
}

function check(what, holds, text = "") {
  console.log(`${holds ? "ok    " : "FAILED"} ${what}`);
  if (holds) return;
  console.log(text);
  process.exitCode = 1;
}

const dpkg = (...words) =>
  run("dpkg", [`--root=${root}`, "--force-script-chrootless", "--force-depends", ...words]);

try {
  const file = await packDebian(folder);
  for (const name of ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"])
    mkdirSync(path.join(root, name), { recursive: true });
  for (const name of [
    "var/lib/dpkg/status",
    "var/lib/dpkg/available",
    "etc/passwd",
    "etc/group",
    "etc/shadow",
  ])
    writeFileSync(path.join(root, name), "");
  const installed = dpkg("-i", file);
  check("dpkg -i in an empty root", installed.status === 0, installed.text);
  const user = readFileSync(path.join(root, "etc/passwd"), "utf8");
  check("the user radserve is made", /^radserve:x:\d+:\d+:.*nologin$/m.test(user), user);
  const { mode, uid } = statSync(path.join(root, "var/lib/radserve"));
  check("who owns the state directory alone", (mode & 0o777) === 0o700 && user.includes(`:${uid}:`));
  const unit = readFileSync(path.join(root, "lib/systemd/system/radserve.service"), "utf8");
  check("the unit runs the package's Node.js", unit.includes("ExecStart=/opt/radserve/node/bin/node "), unit);
  const settings = { RADSERVE_STATE_DIR: path.join(folder, "state") };
  const version = run(path.join(root, "usr/bin/radserve"), ["--version"], settings);
  check(`radserve ${version.text.trim()} answers`, version.status === 0, version.text);
  const home = path.join(root, "opt/radserve");
  const symbols = fileURLToPath(new URL("symbols.mjs", import.meta.url));
  const needed = run(process.execPath, [symbols, "--most", OLDEST_GLIBC, home]);
  console.log(needed.text.replace(/^/gm, "       "));
  check(`no binary needs a newer glibc than ${OLDEST_GLIBC}`, needed.status === 0);
  const demo = run(path.join(home, "node/bin/node"), [
    path.join(home, "dist/scripts/demo/main.js"),
    "--exit",
  ]);
  check("the demo", demo.status === 0 && existsSync(path.join(folder, "demo-output")), demo.text);
  const removed = dpkg("--purge", "radserve");
  check(
    "and it is gone after --purge",
    removed.status === 0 && !existsSync(path.join(home, "dist")),
    removed.text,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
