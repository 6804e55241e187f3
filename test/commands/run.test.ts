/** Commands in a shell whose other programs leave early, or whose disk is full. */
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { CT_SLICE, dicomFile, imageAttributes } from "../support/dicom.js";
import { isRoot } from "../support/postgres.js";
import { makePlace, radserve, root } from "../support/server.js";

/** Root with fewer rights is an ordinary user to files, and stays root to the machine. */
const notAsRoot = isRoot ? false : "only root can give up rights";

const place = makePlace();
t.teardown(() => place.remove());

/**
 * Runs a command, by default `radserve models list`, and what a shell puts behind it, after what it
 * does before.
 */
function list(behind: string, command = "models list", before = ":") {
  const script = `${before}; "$NODE" "$MAIN" ${command} ${behind}; echo "status \${PIPESTATUS[0]}"`;
  const environment = {
    ...place.environment,
    NODE: process.execPath,
    MAIN: path.join(root, "dist/src/main.js"),
  };
  return spawnSync("bash", ["-c", script], { env: environment, encoding: "utf8" });
}

/**
 * Runs a command that writes to 3, whose reader has gone: in `command | true` the reader may end
 * after a short command.
 */
const withoutReader = (behind: string, command?: string) =>
  list(behind, command, 'exec 3> >(true); wait "$!"');

t.test("a reader that has gone ends a command without a word", (t) => {
  t.match(withoutReader(">&3"), { stdout: /^status 141$/m, stderr: /^$/ });
  t.match(withoutReader(">&3 2>&3"), { stdout: /^status 141$/m });
  // What Commander itself writes: help, the version, and the complaint about a wrong call
  for (const command of ["--help", "serve --help"])
    t.match(withoutReader(">&3", command), { stdout: /^status (0|141)$/m, stderr: /^$/ }, command);
  t.match(withoutReader("2>&3 >/dev/null", "nonsense"), { stdout: /^status 2$/m });
  t.end();
});

t.test("an output that cannot be written is said", (t) => {
  t.match(list("> /dev/full"), {
    stdout: /^status 1$/m,
    stderr: /^Standard output cannot be written \(ENOSPC\)\.\n$/,
  });
  t.match(list("2> /dev/full"), { stdout: /^status 0$/m });
  t.end();
});

t.test(
  "what a terminal would obey is shown instead, in names of files and values of attributes",
  (t) => {
    const file = path.join(place.input, "a\u001b[2J\u009b31m\u202egnp.dcm");
    const attributes = imageAttributes({ ...CT_SLICE, SOPInstanceUID: "1.2\u001b]0;T\u0007" });
    writeFileSync(file, dicomFile({ attributes, pixels: Buffer.alloc(2 * 512 * 512) }));
    const command = (...words: string[]) =>
      spawnSync(process.execPath, [path.join(root, "dist/src/main.js"), ...words], {
        env: place.environment,
        encoding: "utf8",
      });
    const told = command("inspect", file);
    t.match(told.stdout, "SOP instance 1.2\\u001b]0;T\\u0007");
    // oxlint-disable-next-line no-control-regex -- these are what is looked for
    const obeyed = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]/;
    t.notMatch(told.stdout, obeyed);
    const unknown = command("models", "card", "x\u001b[2J");
    t.match(unknown.stderr, "found x\\u001b[2J");
    t.notMatch(unknown.stderr, obeyed);
    const json = command("inspect", file, "--json").stdout;
    t.notMatch(json, obeyed);
    t.match(json, "1.2\\u001b]0;T\\u0007");
    t.doesNotThrow(() => JSON.parse(json) as unknown);
    t.end();
  },
);

t.test(
  "a file that the caller may not read is named, and who may",
  { skip: notAsRoot },
  async (t) => {
    const place = makePlace();
    t.teardown(() => place.remove());
    t.equal((await radserve(place, "init")).status, 0);
    const state = place.environment["RADSERVE_STATE_DIR"]!;
    mkdirSync(path.join(state, "audit"));
    const head = path.join(state, "audit-head");
    writeFileSync(head, "", { mode: 0 });
    const caps = "-dac_override,-dac_read_search";
    const without = ["--bounding-set", caps, "--inh-caps", caps, process.execPath];
    const main = path.join(root, "dist/src/main.js");
    const ran = spawnSync("setpriv", [...without, main, "audit", "verify"], {
      env: { ...process.env, ...place.environment },
      encoding: "utf8",
    });
    t.match(ran, {
      status: 2,
      stderr: /^Expected to be allowed to use .*audit-head; found EACCES\. Run this as/,
    });
  },
);
