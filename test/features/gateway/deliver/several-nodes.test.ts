/** Deliveries of jobs, of nodes that share a queue, and by the command line. */
import {
  appendFileSync,
  copyFileSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import {
  bulkPlace,
  hold,
  nameOf,
  startBulk,
  startWorker,
  writeSlices,
} from "../../../support/bulk.js";
import {
  conditions,
  deliveringPlace,
  deliveryOf,
  infer,
  listed,
  proven,
  statesOf,
} from "../../../support/deliveries.js";
import { freePort, radserve } from "../../../support/server.js";
import { webPacs } from "../../../support/web-pacs.js";
import { until } from "../../../support/until.js";

const COUNT = 6;
const names = Array.from({ length: COUNT }, (_, i) => nameOf(i));

await t.test(
  "the objects of a job are delivered, whichever node makes them, and after its end",
  async (t) => {
    const pacs = await webPacs(t);
    await pacs.stop();
    const place = deliveringPlace({ pacs }, { spool: true }, bulkPlace(t));
    const bulk = await startBulk(t, place);
    const worker = await startWorker(t, place, {
      RADSERVE_GATEWAY: place.environment["RADSERVE_GATEWAY"]!,
    });
    const input = path.join(place.input, "many");
    writeSlices(input, COUNT);
    const id = await bulk.submit({
      input_folder_path: input,
      output_folder_path: place.output,
      outputs: ["sr"],
      destinations: ["pacs"],
    });
    const job = await bulk.ended(id);
    t.match(job, { counts: { succeeded: COUNT }, request: { destinations: ["pacs"] } });
    const item = async () => (await bulk.items(id)).flatMap(({ deliveries = [] }) => deliveries);
    await until(
      "all deliveries are listed",
      async () => (await listed(bulk.server)).length === COUNT,
    );
    t.same(new Set((await item()).map(({ state }) => state)), new Set(["waiting"]));
    // One of the nodes is gone, with whatever it had
    for (const pid of [worker.servingPid(), worker.process.pid!]) process.kill(pid, "SIGKILL");
    await pacs.start();
    await until("all objects are proven", () => names.every((name) => proven(place, name)));
    t.equal(pacs.kept.size, COUNT);
    t.equal(pacs.sent.length, COUNT, "none twice");
    t.match(
      await item(),
      Array.from({ length: COUNT }, () => ({
        destination: "pacs",
        state: "proven",
        how: "wado-rs",
      })),
    );
    await until(
      "the queue is empty, and nobody has a turn",
      () => readdirSync(path.join(place.input, "spool/deliveries")).length === 0,
    );
    // A queue that was lost is made again from what lies beside the receipts
    await pacs.stop();
    const again = await bulk.submit({
      input_folder_path: input,
      output_folder_path: path.join(place.output, "again"),
      outputs: ["sr"],
      destinations: ["pacs"],
    });
    await bulk.ended(again);
    process.kill(bulk.server.servingPid(), "SIGKILL");
    rmSync(path.join(place.input, "spool/deliveries"), { recursive: true, maxRetries: 10 });
    t.match(await radserve(place, "deliver", "scan"), {
      status: 0,
      stdout: /^6 undelivered results/,
    });
    await pacs.start();
    const folder = path.join(place.output, "again");
    await until("all objects are proven", () =>
      names.every((name) => proven({ output: folder }, name)),
    );
    t.match(deliveryOf({ output: folder }, names[0]), {
      priority: "bulk",
      request_id: `${again}.0`,
    });
  },
);

await t.test("what an item writes when it runs again is delivered, too", async (t) => {
  const pacs = await webPacs(t);
  pacs.behave("refuse");
  const place = deliveringPlace({ pacs }, {}, bulkPlace(t));
  const bulk = await startBulk(t, place);
  const id = await bulk.submit({
    items: [
      {
        input_image_path: path.join(place.input, "image.dcm"),
        output_folder_path: place.output,
      },
    ],
    outputs: ["sr"],
    destinations: ["pacs"],
  });
  await bulk.ended(id);
  await until("it is set aside", () => statesOf(deliveryOf(place))?.[0] === "refused");
  const first = deliveryOf(place);
  pacs.behave("keep");
  appendFileSync(path.join(place.output, "image.dcm.ct-tissue.sr.dcm"), "\0");
  t.match(await bulk.send("POST", `/bulk_inference/${id}/reconcile?retry=true`), {
    body: { requeued: 1 },
  });
  await bulk.ended(id);
  await until("the object is proven", () => proven(place));
  const { id: delivery, request_id } = deliveryOf(place);
  t.not(delivery, first.id, "of another result");
  t.equal(request_id, first.request_id);
  await until(
    "the first leaves the list, and the queue is empty",
    async () => (await listed(bulk.server)).length === 0,
  );
});

await t.test(
  "another node does not send what one has sent and cannot write down yet",
  async (t) => {
    const pacs = await webPacs(t);
    await pacs.stop();
    const place = deliveringPlace({ pacs }, { spool: true }, bulkPlace(t));
    const bulk = await startBulk(t, place);
    const other = await startWorker(t, place, {
      RADSERVE_GATEWAY: place.environment["RADSERVE_GATEWAY"]!,
    });
    const ask = (name: string) =>
      bulk.server.post("/single_inference", {
        input_image_path: path.join(place.input, name),
        output_folder_path: place.output,
        outputs: ["sr"],
        destinations: ["pacs"],
      });
    const input = path.join(place.input, "image.dcm");
    await ask("image.dcm");
    for (const { url } of [bulk.server, other])
      await until("one delivery waits", async () =>
        /^radserve_deliveries{destination="pacs",state="waiting"} 1$/m.test(
          await (await fetch(`${url}/metrics`)).text(),
        ),
      );
    // What is tried in vain is written down once
    await until("the delivery says that nobody listens", () =>
      /ECONNREFUSED/.test(
        readFileSync(path.join(place.output, ".image.dcm.delivery.json"), "utf8"),
      ),
    );
    // As if a newer result of it were computed
    const letGo = await hold(t, place.output, ["image.dcm"]);
    await pacs.start();
    await until("the object is sent", () => pacs.sent.length > 0);
    // Another result goes its way: whoever sends it may send
    copyFileSync(input, path.join(place.input, "second.dcm"));
    await ask("second.dcm");
    await until("the second object is proven", () => proven(place, "second.dcm"));
    t.same(pacs.sent.length, 2, "each once");
    await letGo();
    await until("the first object is proven", () => proven(place));
    t.same(pacs.sent.length, 2, "each once");
  },
);

await t.test("a node that reaches a destination takes the turn of one that does not", async (t) => {
  const pacs = await webPacs(t);
  const place = deliveringPlace({ pacs }, { spool: true }, bulkPlace(t));
  const file = place.environment["RADSERVE_GATEWAY"]!;
  const settings = readFileSync(file, "utf8");
  const unreachable = `http://127.0.0.1:${await freePort()}/dicom-web`;
  writeFileSync(file, settings.replace(pacs.url, unreachable));
  const bulk = await startBulk(t, place);
  await infer(bulk.server, { outputs: ["sr"] });
  const failed = () =>
    bulk.server.log.filter(({ msg }) => msg === "results were not all stored").length;
  await until("the first node has tried it again", () => failed() > 2);
  const other = path.join(place.directory, "other.json");
  writeFileSync(other, settings);
  await startWorker(t, place, { RADSERVE_GATEWAY: other });
  await until("the other node has sent it", () => proven(place));
  t.equal(pacs.sent.length, 1);
});

await t.test("what one node retries another sends, if that one cannot", async (t) => {
  const pacs = await webPacs(t);
  pacs.behave("refuse");
  const place = deliveringPlace({ pacs }, { spool: true }, bulkPlace(t), { setAsideLook: 200 });
  const file = place.environment["RADSERVE_GATEWAY"]!;
  const settings = readFileSync(file, "utf8");
  const unreachable = `http://127.0.0.1:${await freePort()}/dicom-web`;
  writeFileSync(file, settings.replace(pacs.url, unreachable));
  const { server } = await startBulk(t, place);
  const other = path.join(place.directory, "other.json");
  writeFileSync(other, settings);
  await startWorker(t, place, { RADSERVE_GATEWAY: other });
  await infer(server, { outputs: ["sr"] });
  await until("the other is refused it", () => statesOf(deliveryOf(place))?.[0] === "refused");
  pacs.behave("keep");
  const retried = await server.post("/deliveries/retry?destination=pacs", "");
  t.match(await retried.json(), { retried: 1 });
  await until("the other has sent it", () => proven(place));
});

await t.test("a result whose name somebody has holds up no other of the queue", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs }, {}, bulkPlace(t));
  const bulk = await startBulk(t, place);
  await infer(bulk.server, { outputs: ["sr"] });
  const killed = bulk.server.servingPid();
  const letGo = await hold(t, place.output, ["image.dcm"]);
  process.kill(killed, "SIGKILL");
  await until("the server is gone", () => bulk.server.servingPid() !== killed);
  await pacs.start();
  const output = path.join(place.output, "others");
  const input = path.join(place.input, "others");
  const others = writeSlices(input, 2);
  await bulk.ended(
    await bulk.submit({
      input_folder_path: input,
      output_folder_path: output,
      outputs: ["sr"],
      destinations: ["pacs"],
    }),
  );
  await until("the others are proven", () => others.every((name) => proven({ output }, name)));
  t.equal(pacs.kept.size, 2);
  await letGo();
  await until("it is proven, too", () => proven(place));
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
  await until("it is a condition", async () => (await conditions(server)).length > 0);
  t.match(await radserve(place, "status"), { stdout: /delivery_set_aside/ });
  pacs.behave("keep");
  t.match(await radserve(place, "deliver", "retry", "--all"), {
    status: 0,
    stdout: /^1 set-aside object /m,
  });
  await until("the object is proven", () => proven(place));
  await until("no delivery is listed", async () => (await listed(server)).length === 0);
  t.match(await radserve(place, "deliver", "list"), { status: 0, stderr: /Nothing is waiting/ });
  const receipt = path.join(place.output, "image.dcm.json");
  t.match(await radserve(place, "deliver", "verify", receipt), {
    status: 0,
    stdout: /pacs +proven/,
  });
  const once = await radserve(place, "deliver", "verify", receipt, place.output, `${receipt}/..`);
  t.equal(once.stdout.match(/proven/g)?.length, 1, "what several paths name is read once");
  pacs.kept.clear();
  t.match(await radserve(place, "deliver", "verify", place.output), {
    status: 1,
    stdout: /pacs +missing/,
  });
});
