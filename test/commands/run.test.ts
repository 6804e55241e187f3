/** Commands in a shell whose other programs leave early, or whose disk is full. */
import { spawnSync } from "node:child_process";
import path from "node:path";
import t from "tap";
import { makePlace, root } from "../support/server.js";

const place = makePlace();
t.teardown(() => place.remove());

/** Runs `radserve models list`, and what a shell puts behind it. */
function list(behind: string) {
  const script = `"$NODE" "$MAIN" models list ${behind}; echo "status \${PIPESTATUS[0]}"`;
  const environment = {
    ...place.environment,
    NODE: process.execPath,
    MAIN: path.join(root, "dist/src/main.js"),
  };
  return spawnSync("bash", ["-c", script], { env: environment, encoding: "utf8" });
}

t.test("a reader that has gone ends a command without a word", (t) => {
  t.match(list("| true"), { stdout: /^status 141$/m, stderr: /^$/ });
  t.match(list("2>&1 | true"), { stdout: /^status 141$/m });
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
