/**
 * A node that does not reach the database for long ends its work: by then its images are another
 * node's, with another version of the model, and nothing of it may lie over their results.
 */
import { mkdirSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import { bulkOf, bulkPlace, hold, placeBeside, startBulk, writeSlices } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { setVersion, versionsIn } from "../support/model-versions.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { startServer } from "../support/server.js";
import { until } from "../support/until.js";

const IMAGES = 3;
/** Before it is cut off, the node has signs of life in time, however busy the machine is. */
const SHORT = {
  nodeBeat: 300,
  nodeSilent: 4_000,
  nodeLease: 8_000,
  bulkFigures: 200,
  itemsAhead: 0,
  jobPinAnew: 1_000,
};
const SOCKET = ".s.PGSQL.5432";

/** A way to a database that can be cut. */
async function wayTo(t: Test, url: string, folder: string) {
  mkdirSync(folder);
  const address = new URL(url);
  const real = path.join(address.searchParams.get("host")!, SOCKET);
  const open = new Set<net.Socket>();
  const server = net.createServer((near) => {
    const far = net.connect(real);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(one);
      one.pipe(other);
      one.on("error", () => other.destroy()).on("close", () => open.delete(one));
    }
  });
  const listen = () =>
    new Promise<void>((resolve) => server.listen(path.join(folder, SOCKET), resolve));
  const cut = () => {
    server.close();
    for (const socket of open) socket.destroy();
  };
  await listen();
  t.teardown(cut);
  address.searchParams.set("host", folder);
  return { url: address.href, cut, mend: listen };
}

t.test("a node that is cut off from the database", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations(SHORT),
    DATABASE_URL: url,
    RADSERVE_ROLE: "api",
    RADSERVE_NODE_NAME: "asked",
  });
  const api = await startBulk(t, place);
  const way = await wayTo(t, url, path.join(place.directory, "way"));
  const worker = { ...withDurations(SHORT), RADSERVE_ROLE: "worker" };
  const cut = bulkOf(
    await startServer(
      placeBeside(t, place, { ...worker, DATABASE_URL: way.url, RADSERVE_NODE_NAME: "cut" }),
    ),
  );
  const input = path.join(place.input, "many");
  const output = path.join(place.output, "many");
  const names = writeSlices(input, IMAGES);
  const release = await hold(t, output, names);
  const id = await api.submit({
    input_folder_path: input,
    output_folder_path: output,
    models: ["ct-tissue"],
    outputs: ["json"],
  });
  await api.until(id, ({ counts }) => counts.running === IMAGES);
  way.cut();
  const beside = placeBeside(t, place, { ...worker, RADSERVE_NODE_NAME: "other" });
  setVersion(beside, "1.2.0");
  const other = bulkOf(await startServer(beside));
  await cut.server.logged(({ msg }) => /cut off from the database for so long/.test(msg));
  await until("what it had begun has ended", async () =>
    /^radserve_inferences_running 0$/m.test(
      await (await fetch(`${cut.server.url}/metrics`)).text(),
    ),
  );
  await api.until(id, ({ pinned_anew }) => pinned_anew.length === 1);
  await release();
  t.match(await api.ended(id), {
    state: "completed",
    counts: { succeeded: IMAGES, failed: 0 },
    pinned: { models: { "ct-tissue": { version: "1.2.0" } } },
  });
  await way.mend();
  await cut.server.logged(({ msg }) => /the items went to other nodes/.test(msg));
  t.strictSame(versionsIn(output), { "ct-tissue 1.2.0": IMAGES });
  await Promise.all([cut.server.stop(), other.server.stop()]);
});
