/** Entries of the queue, as two nodes make and remove them that remember other things. */
import { mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { createLog } from "../../../../src/base/log.js";
import { destinationSchema } from "../../../../src/features/gateway/deliver/destination-settings.js";
import { Outbox } from "../../../../src/features/gateway/deliver/outbox.js";
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
