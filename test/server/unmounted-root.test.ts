/**
 * A root whose share went away, at a mount point that the server's user may not use: what the node
 * says, and what it does not advise.
 */
import { chmodSync, mkdirSync, realpathSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import t from "tap";
import { durations, setDurations } from "../../src/base/durations.js";
import { createLog } from "../../src/base/log.js";
import { folders } from "../../src/commands/doctor/folders.js";
import type { Config } from "../../src/config.js";
import { isAbsent, watchRoots } from "../../src/files/absent-roots.js";
import { patiently } from "../../src/files/usable.js";
import { Shares } from "../../src/server/shares.js";
import { configOf, makePlace } from "../support/server.js";

/** What a node without a database sees of its roots. */
const sharesOf = (config: Config): Shares =>
  new Shares({
    config,
    spool: () => undefined,
    jobs: () => ({ nodes: [], self: null, trouble: null }),
    log: createLog("silent"),
  });

t.test("a mount point is no folder to be opened for writing", async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const config = configOf(place);
  mkdirSync(config.state_dir, { recursive: true, mode: 0o700 });
  const seen = { [place.output]: { mark: null, mounted: true } };
  writeFileSync(path.join(config.state_dir, "roots-seen.json"), JSON.stringify(seen));
  // As docs/operations.md advises it; whoever is root may write there all the same
  chmodSync(place.output, 0o555);
  const shares = sharesOf(config);
  await shares.look();
  t.match(shares.conditions(), [
    {
      condition: "share_unavailable",
      where: "output root",
      message: /was a mount point before.*not mounted/,
      remedy: /^Mount the share/,
    },
  ]);
  t.match(shares.fault(), { code: "share_unavailable" });
  const [found] = (await folders(config)).filter(({ name }) => name === "output root");
  t.match(found, { ok: false, found: /is not mounted/, fix: /^Mount the share/ });
  t.notMatch(JSON.stringify([shares.conditions(), found]), /Let the server's user write/);
});

t.test("a process that stood still itself takes no folder for silent", async (t) => {
  const { folderLook } = durations;
  t.teardown(() => setDurations({ folderLook }));
  setDurations({ folderLook: 500 });
  // The answer takes some turns of the event loop, and comes after the pause
  const answer = patiently(`root ${t.testdir()}`, async () => {
    for (let i = 0; i < 5; i++) await turn();
    return "an answer";
  });
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * durations.folderLook);
  t.equal(await answer, "an answer");
});

t.test("a root that is slow to say what it is has lost no mark", async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const config = configOf(place);
  mkdirSync(config.state_dir, { recursive: true, mode: 0o700 });
  writeFileSync(path.join(place.output, ".radserve-root"), "a-name\n");
  const output = realpathSync(place.output);
  watchRoots({ input: [realpathSync(place.input)], output: [output] });
  const shares = sharesOf(config);
  await shares.look();
  t.strictSame(shares.conditions(), []);
  // A look at it does not end, and the next one is not begun beside it
  let answer: ((found: object) => void) | undefined;
  const held = new Promise<object>((resolve) => (answer = resolve));
  const waited = patiently(`root ${place.output}`, () => held);
  await shares.look();
  t.match(shares.conditions(), [{ where: "output root", message: /does not answer/ }]);
  t.notOk(isAbsent("output", output), "requests are not refused for a moment");
  await shares.look();
  t.ok(isAbsent("output", output), "they would wait for it, each with a thread");
  answer?.({ mark: "a-name", empty: false, mounted: false });
  await waited;
  await shares.look();
  t.strictSame(shares.conditions(), []);
  t.notOk(isAbsent("output", output), "it is back");
});
