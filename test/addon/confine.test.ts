/** What a process can do no more once it is confined, seen from inside it. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import t from "tap";
import { CONFINE, needs } from "../support/needs.js";

const script = fileURLToPath(new URL("../support/confined-child.js", import.meta.url));

function attempt(what: string): string {
  const { stdout, signal } = spawnSync(process.execPath, ["--jitless", script, what], {
    encoding: "utf8",
  });
  return signal ?? stdout;
}

t.test("a confined process", { skip: needs(CONFINE) }, (t) => {
  for (const [what, expected] of [
    ["open", "EPERM"],
    ["create", "EPERM"],
    ["list", "EPERM"],
    ["stat", "EPERM"],
    ["unlink", "EPERM"],
    ["connect", "EPERM"],
    ["execute", "EPERM"],
    ["kill", "SIGSYS"],
    ["killOwn", "SIGSYS"],
    ["think", "could"],
  ] as const)
    t.equal(attempt(what), expected, what);
  t.match(
    attempt("memory"),
    /^(?:RangeError|ERR_MEMORY_ALLOCATION_FAILED)$/,
    "more memory than it may have",
  );
  t.end();
});
