/** A state directory that was copied: both nodes say so, and the younger takes no images. */
import { copyFileSync, mkdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkOf, bulkPlace, placeBeside, startBulk, writeSlices } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { startServer } from "../support/server.js";
import { until } from "../support/until.js";

const IMAGES = 24;
const SHORT = { nodeBeat: 300, bulkFigures: 200, conditionsLook: 200 };

t.test("two nodes with one identity", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const durations = withDurations(SHORT);
  const place = bulkPlace(t, { ...durations, DATABASE_URL: url, RADSERVE_NODE_NAME: "original" });
  const first = await startBulk(t, place);
  const stateOf = ({ environment }: typeof place) => environment["RADSERVE_STATE_DIR"]!;
  await until("it is known", async () => {
    const { rows } = await pool.query("select from radserve.instance");
    return rows.length === 1;
  });
  const copied = placeBeside(t, place, { ...durations, RADSERVE_NODE_NAME: "copy" });
  mkdirSync(stateOf(copied));
  copyFileSync(path.join(stateOf(place), "node-id"), path.join(stateOf(copied), "node-id"));
  const second = bulkOf(await startServer(copied));
  for (const { server } of [first, second]) {
    const said = await server.logged(({ condition }) => condition === "node_copied");
    t.match(said, {
      where: "node original",
      msg: /original since .*, and copy since .*The younger takes no images\.$/,
    });
  }
  const input = path.join(place.input, "many");
  writeSlices(input, IMAGES);
  const job = (output: string) =>
    second.submit({
      input_folder_path: input,
      output_folder_path: path.join(place.output, output),
      outputs: ["json"],
    });
  t.match(await second.ended(await job("both")), { counts: { succeeded: IMAGES } });
  const ended = async ({ server }: typeof first) =>
    /^radserve_bulk_items_total\{state="succeeded"\} (\d+)$/m.exec(
      await (await fetch(`${server.url}/metrics`)).text(),
    )?.[1];
  await until("the figures are there", async () => (await ended(first)) === String(IMAGES));
  t.equal(await ended(second), undefined, "the copy has run nothing");
  t.notOk(
    [...first.server.log, ...second.server.log].some(({ msg }) => /silent for too long/.test(msg)),
    "neither takes the other for dead",
  );
  const stopped = new Promise((resolve) => first.server.process.once("exit", resolve));
  first.server.process.kill("SIGTERM");
  t.equal(await stopped, 0);
  t.match(await second.ended(await job("alone")), { counts: { succeeded: IMAGES } });
  await second.server.stop();
});
