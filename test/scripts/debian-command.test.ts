/**
 * The command of the Debian package, with a program in the place of Radserve that says how it was
 * started.
 */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import t from "tap";
import { root } from "../support/server.js";

/**
 * Prints its user, groups, folder, home, state directory and words, passes its input on, and ends
 * with 7.
 */
const PROGRAM = `#!/bin/sh
echo "$(id -u):$(id -g):$(id -G)" "$(pwd)" "$HOME" "$RADSERVE_STATE_DIR" "$@"
cat
echo told >&2
exit 7
`;

/** A user that this machine need not know. */
const OWNER = 54_321;

t.test(
  "the command of the Debian package",
  { skip: process.geteuid?.() !== 0 && "needs root" },
  (t) => {
    // Another user reaches it, wherever the clone is
    const folder = mkdtempSync(path.join(tmpdir(), "radserve-command-"));
    t.teardown(() => rmSync(folder, { recursive: true }));
    chmodSync(folder, 0o755);
    for (const below of ["opt/radserve/bin", "usr/bin", "state", "here"])
      mkdirSync(path.join(folder, below), { recursive: true });
    const command = path.join(folder, "usr/bin/radserve");
    copyFileSync(path.join(root, "deploy/debian/radserve"), command);
    writeFileSync(path.join(folder, "opt/radserve/bin/radserve"), PROGRAM);
    chmodSync(command, 0o755);
    chmodSync(path.join(folder, "opt/radserve/bin/radserve"), 0o755);
    const [state, here] = [path.join(folder, "state"), path.join(folder, "here")];
    const run = (more: Record<string, string>) => {
      const env = {
        PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
        HOME: "/root",
        RADSERVE_STATE_DIR: state,
        ...more,
      };
      const words = ["infer", "./a b", "--", "$(id)"];
      const { status, stdout, stderr } = spawnSync(command, words, {
        cwd: here,
        env,
        encoding: "utf8",
        input: "in",
      });
      return { status, stdout, stderr };
    };

    t.match(
      run({}).stdout,
      `0:0:0 ${here} /root ${state} infer`,
      "a state directory of root's: as root",
    );
    chownSync(state, OWNER, OWNER);
    t.strictSame(
      run({}),
      {
        status: 7,
        stdout: `${OWNER}:${OWNER}:${OWNER} ${here} ${state} ${state} infer ./a b -- $(id)\nin`,
        stderr: "told\n",
      },
      "as the owner of the state directory, with words, folder, streams and status as they are",
    );
    mkdirSync(path.join(folder, "etc/radserve"), { recursive: true });
    const lines = [
      "# A=1",
      "  LEFT=1 ",
      "AROUND = a b\t",
      'QUOTED="a b" \r',
      "LONG=a\\",
      "b",
      "GIVEN=file",
      "$(id)=2",
    ];
    writeFileSync(path.join(folder, "etc/radserve/environment"), lines.join("\n"));
    writeFileSync(
      path.join(folder, "opt/radserve/bin/radserve"),
      '#!/bin/sh\nfor name in LEFT AROUND QUOTED LONG GIVEN; do eval "echo \\"$name=\\$$name;\\""; done\n',
    );
    t.equal(
      run({ GIVEN: "here" }).stdout,
      "LEFT=1;\nAROUND=a b;\nQUOTED=a b;\nLONG=ab;\nGIVEN=here;\n",
      "the unit's file is read as systemd reads it",
    );
    writeFileSync(path.join(folder, "opt/radserve/bin/radserve"), PROGRAM);
    mkdirSync(path.join(folder, "other"));
    chownSync(path.join(folder, "other"), OWNER + 1, OWNER + 1);
    t.match(
      run({ RADSERVE_STATE_DIR: path.join(folder, "other") }).stdout,
      `${OWNER + 1}:${OWNER + 1}:`,
    );
    t.end();
  },
);
