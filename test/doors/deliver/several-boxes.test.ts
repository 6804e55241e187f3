/** Deliveries of jobs, of boxes that share a queue, and by the command line. */
import { readdirSync, rmSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, nameOf, startBulk, startWorker, writeSlices } from "../../support/bulk.js";
import { deliveringPlace, deliveryOf, listed, proven } from "../../support/deliveries.js";
import { until } from "../../support/postgres.js";
import { radserve } from "../../support/server.js";
import { webPacs } from "../../support/web-pacs.js";

const COUNT = 6;
const names = Array.from({ length: COUNT }, (_, i) => nameOf(i));

await t.test("the objects of a job are delivered, whichever box makes them, and after its end", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs }, { spool: true }, bulkPlace(t));
  const bulk = await startBulk(t, place);
  const worker = await startWorker(t, place, { RADSERVE_DOORS: place.environment["RADSERVE_DOORS"]! });
  const input = path.join(place.input, "many");
  writeSlices(input, COUNT);
  const id = await bulk.submit({
    ...{ input_folder_path: input, output_folder_path: place.output, outputs: ["sr"] },
    destinations: ["pacs"],
  });
  const job = await bulk.ended(id);
  t.match(job, { counts: { succeeded: COUNT }, request: { destinations: ["pacs"] } });
  const item = async () => (await bulk.items(id)).flatMap(({ deliveries = [] }) => deliveries);
  await until(async () => (await listed(bulk.server)).length === COUNT);
  t.same(new Set((await item()).map(({ state }) => state)), new Set(["waiting"]));
  // One of the boxes is gone, with whatever it had
  for (const pid of [worker.servingPid(), worker.process.pid!]) process.kill(pid, "SIGKILL");
  await pacs.start();
  await until(() => names.every((name) => proven(place, name)));
  t.equal(pacs.kept.size, COUNT);
  t.equal(pacs.sent.length, COUNT, "none twice");
  t.match(
    await item(),
    Array.from({ length: COUNT }, () => ({ destination: "pacs", state: "proven", how: "wado-rs" })),
  );
  t.same(readdirSync(path.join(place.input, "spool/deliveries")), []);
  // A queue that was lost is made again from what lies beside the receipts
  await pacs.stop();
  const again = await bulk.submit({
    ...{ input_folder_path: input, output_folder_path: path.join(place.output, "again"), outputs: ["sr"] },
    destinations: ["pacs"],
  });
  await bulk.ended(again);
  process.kill(bulk.server.servingPid(), "SIGKILL");
  rmSync(path.join(place.input, "spool/deliveries"), { recursive: true });
  t.match(await radserve(place, "deliver", "scan"), { status: 0, stdout: /^6 results/ });
  await pacs.start();
  const folder = path.join(place.output, "again");
  await until(() => names.every((name) => proven({ output: folder }, name)));
  t.match(deliveryOf({ output: folder }, names[0]!), { priority: "bulk", request_id: `${again}.0` });
});

await t.test("the commands say what waits, try again, and read back", async (t) => {
  const pacs = await webPacs(t);
  pacs.behave("refuse");
  const place = deliveringPlace({ pacs });
  const bulk = await startBulk(t, place);
  const { server } = bulk;
  Object.assign(place.environment, { RADSERVE_URL: server.url, RADSERVE_TOKEN: server.token });
  const input = path.join(place.input, "image.dcm");
  const request = { input_image_path: input, output_folder_path: place.output, outputs: ["sr"] };
  await server.post("/single_inference", { ...request, deliver: "wait" });
  t.match(await radserve(place, "deliver", "list"), {
    status: 0,
    stdout: /pacs +refused .*image\.dcm\.ct-tissue\.sr\.dcm +.*0122/,
  });
  t.match(await radserve(place, "status"), { stdout: /delivery_set_aside/ });
  pacs.behave("keep");
  t.match(await radserve(place, "deliver", "retry"), { status: 0, stdout: /^1 objects/ });
  await until(() => proven(place));
  t.match(await radserve(place, "deliver", "list"), { status: 0, stderr: /Nothing waits/ });
  const receipt = path.join(place.output, "image.dcm.json");
  t.match(await radserve(place, "deliver", "verify", receipt), { status: 0, stdout: /pacs +proven/ });
  pacs.kept.clear();
  t.match(await radserve(place, "deliver", "verify", place.output), { status: 1, stdout: /pacs +missing/ });
});
