/** A report of a commitment that comes to another node than the one that has asked for it. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, startBulk, startWorker } from "../../../support/bulk.js";
import { deliveringPlace, deliveryOf, infer, proven } from "../../../support/deliveries.js";
import { freePort } from "../../../support/server.js";
import { dicomPeer } from "../../../support/store-peer.js";
import { until } from "../../../support/until.js";

await t.test("a commitment that is reported to another node counts", async (t) => {
  const ports = [await freePort(), await freePort()] as const;
  let report: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (report = resolve));
  let asked = 0;
  const pacs = await dicomPeer(t, {
    // The PACS knows one address of the AE title, and that is not who asked
    callBack: () => ports[1],
    reports: () => {
      asked += 1;
      return held;
    },
  });
  const to = (listen: number) => ({
    type: "dicom",
    host: "127.0.0.1",
    port: pacs.port,
    called_ae: "PACS",
    prove: "commitment",
    listen: { port: listen },
  });
  const place = deliveringPlace(
    {},
    { spool: true, destinations: { pacs: to(ports[0]) }, deliver: ["pacs"] },
    bulkPlace(t),
    { proofWithin: 600_000 },
  );
  const bulk = await startBulk(t, place);
  await infer(bulk.server, { outputs: ["sr"] });
  await until("the first node has asked", () => asked === 1);
  const file = place.environment["RADSERVE_GATEWAY"]!;
  const other = path.join(place.directory, "other.json");
  const settings = JSON.parse(readFileSync(file, "utf8")) as object;
  writeFileSync(other, JSON.stringify({ ...settings, destinations: { pacs: to(ports[1]) } }));
  const worker = await startWorker(t, place, { RADSERVE_GATEWAY: other });
  await until("the other node knows of it", async () =>
    /^radserve_deliveries{destination="pacs",state="sent"} 1$/m.test(
      await (await fetch(`${worker.url}/metrics`)).text(),
    ),
  );
  report();
  await until("it is proven", () => proven(place));
  t.match(deliveryOf(place).destinations["pacs"], [{ how: "commitment" }]);
  t.equal(asked, 1, "nobody has asked again");
  t.equal(pacs.objects.size, 1);
});
