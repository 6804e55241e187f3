/** Entries of the queue, as two nodes make and remove them that remember other things. */
import { mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { createLog } from "../../../../src/base/log.js";
import { destinationSchema } from "../../../../src/features/gateway/deliver/destination-settings.js";
import { Outbox } from "../../../../src/features/gateway/deliver/outbox.js";
import { webhookSchema } from "../../../../src/features/gateway/deliver/webhook-settings.js";
import type { DeliveryState } from "../../../../src/results/receipt/delivery.js";
import { withName } from "../../../../src/results/commit/commit.js";
import { deliveryFor, sample } from "../../../support/commits.js";

const name = "slice.dcm";

await t.test("what is asked for of a delivery that another node ends has an entry", async (t) => {
  const [folder, queue] = ["output", "queue"].map((one) => path.join(t.testdir(), one)) as [
    string,
    string,
  ];
  mkdirSync(folder);
  const to = destinationSchema.parse({ type: "stow", url: "http://127.0.0.1/dicom-web" });
  const node = () =>
    new Outbox({
      folder: queue,
      outputRoots: [folder],
      destinations: { pacs: to, archive: to },
      webhooks: {},
      minimumFreeBytes: 0,
      log: createLog("silent"),
      found: () => undefined,
      news: () => undefined,
    });
  const [first, second] = [node(), node()];
  const { files, receipt } = sample(name, "pixels", { model: "content" });
  Object.assign(receipt.models[0]!.outputs[0]!, {
    sop_class_uid: "1.2",
    sop_instance_uid: "1.3",
    series_instance_uid: "1.4",
  });
  const asked = deliveryFor("a");
  await first.keep({ folder, name, reused: false, delivery: asked });
  await withName(folder, name, {}, (held) => held.commit(files, receipt, undefined, asked));
  await first.adopt("a");
  const pending = await second.adopt("a");
  if (pending === undefined) throw new Error("The second node does not know the result");
  await second.change(pending, ({ destinations }) => {
    for (const object of destinations["pacs"] ?? []) object.state = "proven";
  });
  t.same(readdirSync(queue), [], "nothing is left to be done");
  const more = { ...deliveryFor("b"), destinations: { archive: null } };
  await first.keep({ folder, name, reused: true, delivery: more });
  const adopted = await first.adopt("b");
  t.match(adopted?.delivery, {
    id: "a",
    destinations: { pacs: [{ state: "proven" }], archive: [{ state: "waiting" }] },
  });
  t.same(readdirSync(queue), ["a.json"]);
});

await t.test("webhooks are told of what is proven late, and not of a drop", async (t) => {
  const [folder, queue] = ["output", "queue"].map((one) => path.join(t.testdir(), one)) as [
    string,
    string,
  ];
  mkdirSync(folder);
  const outbox = new Outbox({
    folder: queue,
    outputRoots: [folder],
    destinations: {
      pacs: destinationSchema.parse({ type: "stow", url: "http://127.0.0.1/dicom-web" }),
    },
    webhooks: {
      ris: webhookSchema.parse({ url: "http://127.0.0.1/ris", secret_file: "/ris.secret" }),
    },
    minimumFreeBytes: 0,
    log: createLog("silent"),
    found: () => undefined,
    news: () => undefined,
  });
  const { files, receipt } = sample(name, "pixels", { one: "content", other: "more" });
  for (const [i, { outputs }] of receipt.models.entries())
    Object.assign(outputs[0]!, {
      sop_class_uid: "1.2",
      sop_instance_uid: `1.3.${i}`,
      series_instance_uid: "1.4",
    });
  const asked = deliveryFor("a");
  await outbox.keep({ folder, name, reused: false, delivery: asked });
  await withName(folder, name, {}, (held) => held.commit(files, receipt, undefined, asked));
  const pending = (await outbox.adopt("a"))!;
  const become = (...states: DeliveryState[]) =>
    outbox.change(pending, ({ destinations }) => {
      destinations["pacs"] = destinations["pacs"]!.slice(0, states.length);
      for (const [i, object] of destinations["pacs"].entries()) object.state = states[i]!;
    });
  const told = () => pending.delivery.events?.map(({ event }) => event) ?? [];
  await become("sent", "sent");
  t.same(told(), []);
  await become("unproven", "unproven");
  t.same(told(), ["set_aside"]);
  await become("proven", "unproven");
  t.same(told(), ["set_aside"], "the same again is no news");
  await become("proven", "proven");
  t.same(told(), ["set_aside", "proven"]);
  await become("sent", "proven");
  await become("unproven", "proven");
  t.same(told(), ["set_aside", "proven", "set_aside"]);
  await outbox.change(pending, ({ destinations }) => void destinations["pacs"]!.shift());
  t.same(told(), ["set_aside", "proven", "set_aside"], "what is left is not all of it");
});
