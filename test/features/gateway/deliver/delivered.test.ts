/** From a request to the PACS and back: real server and files, and a PACS over HTTP. */
import path from "node:path";
import t from "tap";
import { linesOf } from "../../../support/audit.js";
import {
  conditions,
  deliveringPlace,
  deliveryOf,
  infer,
  listed,
  proven,
  startDelivering,
  statesOf,
} from "../../../support/deliveries.js";
import { webPacs } from "../../../support/web-pacs.js";
import { until } from "../../../support/until.js";

await t.test("a server with a good destination and two bad ones", async (t) => {
  const bad = { lie: await webPacs(t), spoil: await webPacs(t) };
  const pacs = await webPacs(t);
  const place = deliveringPlace({ pacs, ...bad });
  const server = await startDelivering(t, place);

  await t.test(
    "a request that waits answers when its objects are proven, and a repeat sends nothing",
    async (t) => {
      const { status, body } = await infer(server, { deliver: "wait" });
      t.equal(status, 200);
      t.same(
        body.deliveries
          ?.map(({ path: file, ...one }) => [path.relative(place.output, file), one.state, one.how])
          .sort(),
        ["seg", "sr"].map((kind) => [`image.dcm.ct-tissue.${kind}.dcm`, "proven", "wado-rs"]),
      );
      t.equal(pacs.kept.size, 2);
      t.match(deliveryOf(place), { open: false, request_id: body.request_id, subject: "tester" });
      const again = await infer(server, { deliver: "wait" });
      t.match(again.body, { reused: true, deliveries: [{ state: "proven" }, { state: "proven" }] });
      t.equal(pacs.sent.length, 2);
      // The last of them may come after the answer
      const lines = await until("the audit has three lines of it", () => {
        const found = linesOf(place).filter(({ kind }) => kind === "delivery");
        return found.length >= 3 && found;
      });
      t.same(
        lines.map(({ outcome, destination, count }) => `${outcome} ${destination} ${count}`),
        ["asked pacs 2", "sent pacs 2", "proven pacs 2"],
      );
    },
  );

  for (const manner of ["lie", "spoil"] as const)
    await t.test(
      `a PACS that says SUCCESS and has ${manner === "lie" ? "nothing" : "other bytes"} is found out`,
      async (t) => {
        bad[manner].behave(manner);
        const output = path.join(place.output, manner);
        const { body } = await infer(server, {
          output_folder_path: output,
          destinations: [manner],
          deliver: "wait",
          outputs: ["seg"],
        });
        t.match(body.deliveries, [
          { state: "unproven", reason: manner === "lie" ? /^missing/ : /^differs/ },
        ]);
        t.equal(bad[manner].sent.length, 3, "not repeated without end");
        t.match(deliveryOf({ output }).destinations[manner], [{ resent: 2 }]);
      },
    );
});

await t.test(
  "a destination that is away delays its own alone, and has what waits when it is back",
  async (t) => {
    const [pacs, archive] = [await webPacs(t), await webPacs(t)];
    await archive.stop();
    const place = deliveringPlace({ pacs, archive });
    const server = await startDelivering(t, place);
    const { body } = await infer(server, { deliver: "queue", destinations: ["archive", "pacs"] });
    t.equal(body.deliveries?.length, 4);
    await until("the object is proven", () => proven(place));
    t.same(statesOf(deliveryOf(place), "archive"), ["waiting", "waiting"]);
    await until("there is a condition", async () => (await conditions(server)).length > 0);
    t.match(await conditions(server), [
      { condition: "destination_away", where: "destination archive" },
    ]);
    await server.logged(
      ({ destination, msg }) => destination === "archive" && msg === "results were not all stored",
    );
    t.match(await listed(server), [
      { receipt_path: path.join(place.output, "image.dcm.json"), replaced: false },
    ]);
    const metrics = async () => (await fetch(`${server.url}/metrics`)).text();
    const total = /radserve_deliveries_total\{destination="pacs",state="proven"\} 2/;
    await until("the total is in the metrics", async () => total.test(await metrics()));
    t.match(await metrics(), /radserve_deliveries\{destination="archive",state="waiting"\} 2/);
    await archive.start();
    await until("the object is proven at the archive", () => proven(place, undefined, "archive"));
    t.equal(archive.kept.size, 2);
    t.equal(pacs.sent.length, 2);
    await until("there is no condition", async () => (await conditions(server)).length === 0);
    await until("no delivery is listed", async () => (await listed(server)).length === 0);
    t.notMatch(JSON.stringify(server.log), /Nobody|1\.2\.3\.4/, "no word of the patient");
  },
);

await t.test(
  "what is refused is set aside with the reason, is not sent again, and is when somebody says so",
  async (t) => {
    const pacs = await webPacs(t);
    pacs.behave("refuse");
    const place = deliveringPlace({ pacs });
    const server = await startDelivering(t, place);
    const { body } = await infer(server, { deliver: "wait" });
    t.match(body.deliveries, [
      { state: "refused", reason: /0122/ },
      { state: "refused", reason: /0122/ },
    ]);
    await infer(server, { deliver: "wait" });
    t.equal(pacs.sent.length, 2, "a repeat of the request sends nothing");
    await until("there is a condition", async () => (await conditions(server)).length > 0);
    t.match(await conditions(server), [{ condition: "delivery_set_aside" }]);
    process.kill(server.servingPid(), "SIGKILL");
    await until(
      "one delivery is listed",
      async () => (await listed(server).catch(() => [])).length === 1,
    );
    pacs.behave("keep");
    const retried = await server.post("/deliveries/retry?destination=pacs", "");
    t.match(await retried.json(), { retried: 2 });
    await until(
      "the delivery is closed and proven",
      () => !deliveryOf(place).open && statesOf(deliveryOf(place))?.[0] === "proven",
    );
    t.match(
      linesOf(place).find(({ endpoint }) => endpoint === "POST /deliveries/retry"),
      { subject: "tester" },
    );
  },
);

await t.test("kill -9 between the result and sending, and between sending and proof", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const server = await startDelivering(t, place);
  await infer(server);
  process.kill(server.servingPid(), "SIGKILL");
  const go = pacs.holdReading();
  await pacs.start();
  await until(
    "all objects are sent",
    () => statesOf(deliveryOf(place))?.every((state) => state === "sent") === true,
  );
  process.kill(server.servingPid(), "SIGKILL");
  go();
  await until("the objects are proven", () => proven(place));
  t.equal(pacs.sent.length, 2, "what was sent is not sent again");
});
