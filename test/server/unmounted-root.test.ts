/**
 * A root whose share went away, at a mount point that the server's user may not use: what the node
 * says, and what it does not advise.
 */
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { createLog } from "../../src/base/log.js";
import { folders } from "../../src/commands/doctor/folders.js";
import { Shares } from "../../src/server/shares.js";
import { configOf, makePlace } from "../support/server.js";

t.test("a mount point is no folder to be opened for writing", async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const config = configOf(place);
  mkdirSync(config.state_dir, { recursive: true, mode: 0o700 });
  const seen = { [place.output]: { mark: null, mounted: true } };
  writeFileSync(path.join(config.state_dir, "roots-seen.json"), JSON.stringify(seen));
  // As docs/operations.md advises it; whoever is root may write there all the same
  chmodSync(place.output, 0o555);
  const shares = new Shares({
    config,
    spool: () => undefined,
    jobs: () => ({ nodes: [], self: null, trouble: null }),
    log: createLog("silent"),
  });
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
