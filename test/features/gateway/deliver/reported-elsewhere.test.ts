/** A report of a commitment that comes to another node than the one that has asked for it. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { bulkPlace, startBulk, startWorker } from "../../../support/bulk.js";
import { deliveringPlace, deliveryOf, infer, proven } from "../../../support/deliveries.js";
import { HOUR_MS } from "../../../support/held.js";
import { freePort, type Place, type TestServer } from "../../../support/server.js";
import { dicomPeer, type StorePeer } from "../../../support/store-peer.js";
import { until } from "../../../support/until.js";

const to = (pacs: StorePeer, port: number, more: object = {}) => ({
  type: "dicom",
  host: "127.0.0.1",
  port: pacs.port,
  called_ae: "PACS",
  prove: "commitment",
  listen: { port },
  ...more,
});

/** Another node of a place, with another way to the PACS. */
async function startOther(t: Test, place: Place, pacs: object): Promise<TestServer> {
  const file = place.environment["RADSERVE_GATEWAY"]!;
  const other = path.join(place.directory, "other.json");
  const settings = JSON.parse(readFileSync(file, "utf8")) as object;
  writeFileSync(other, JSON.stringify({ ...settings, destinations: { pacs } }));
  return startWorker(t, place, { RADSERVE_GATEWAY: other });
}

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
  const place = deliveringPlace(
    {},
    { spool: true, destinations: { pacs: to(pacs, ports[0]) }, deliver: ["pacs"] },
    bulkPlace(t),
    { proofWithin: 600_000 },
  );
  const bulk = await startBulk(t, place);
  await infer(bulk.server, { outputs: ["sr"] });
  await until("the first node has asked", () => asked === 1);
  const worker = await startOther(t, place, to(pacs, ports[1]));
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

await t.test("so does one that is reported to a node which knows of no sending", async (t) => {
  const ports = [await freePort(), await freePort()] as const;
  const asked = () => deliveryOf(place).destinations["pacs"]?.[0]?.transactions !== undefined;
  const pacs = await dicomPeer(t, {
    callBack: () => ports[0],
    reports: () => until("the request is written down", asked).then(() => undefined),
  });
  // It cannot send, and tries that again after the end of the test
  const place = deliveringPlace(
    {},
    {
      spool: true,
      destinations: { pacs: to(pacs, ports[0], { port: await freePort() }) },
      deliver: ["pacs"],
    },
    bulkPlace(t),
    { proofWithin: HOUR_MS, gatewayRetry: HOUR_MS, gatewayRetryMost: HOUR_MS },
  );
  const bulk = await startBulk(t, place);
  await infer(bulk.server, { outputs: ["sr"] });
  await until("the first node has tried it", () =>
    /ECONNREFUSED/.test(JSON.stringify(deliveryOf(place).destinations)),
  );
  await startOther(t, place, to(pacs, ports[1]));
  await until("it is proven", () => proven(place));
  t.match(deliveryOf(place).destinations["pacs"], [{ how: "commitment" }]);
});
