/**
 * Lengths of time that tests make shorter, in all that a test starts, and that nothing else can
 * change.
 */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import t from "tap";
import { durations, setDurations } from "../../src/base/durations.js";
import { withDurations } from "../support/durations.js";

const file = fileURLToPath(new URL("../support/durations-told.js", import.meta.url));

const toldBy = (env: Record<string, string>): unknown =>
  JSON.parse(execFileSync(process.execPath, [file], { encoding: "utf8", env }));

t.test("a program that a test starts, its threads and its programs have them", (t) => {
  t.strictSame(toldBy(withDurations({ nodeLease: 7 })), [7, 7, 7]);
  t.end();
});

t.test("the environment alone changes nothing", (t) => {
  const { TEST_DURATIONS = "" } = withDurations({ nodeLease: 7 });
  t.strictSame(toldBy({ TEST_DURATIONS }), [12_000, 12_000, 12_000]);
  t.end();
});

t.test("threads of this process have what it has set before", async (t) => {
  const before = { ...durations };
  t.teardown(() => setDurations(before));
  setDurations({ nodeLease: 9 });
  t.strictSame(await once(new Worker(file), "message"), [9]);
  t.equal(durations.nameLease, before.nameLease, "the others stay");
});
