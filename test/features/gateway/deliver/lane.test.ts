/** The way to a destination, where results are replaced while they have their turn. */
import { mkdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { createLog } from "../../../../src/base/log.js";
import {
  bytesToSend,
  type Destination,
} from "../../../../src/features/gateway/deliver/destination.js";
import {
  destinationSchema,
  proofPolicy,
} from "../../../../src/features/gateway/deliver/destination-settings.js";
import { DestinationLane } from "../../../../src/features/gateway/deliver/lane.js";
import { Outbox } from "../../../../src/features/gateway/deliver/outbox.js";
import { withName } from "../../../../src/results/commit/commit.js";
import { deliveryFor, sample } from "../../../support/commits.js";
import { until } from "../../../support/until.js";

const name = "slice.dcm";

await t.test("a result that is replaced during its turn is sent from its new place", async (t) => {
  const folder = path.join(t.testdir(), "output");
  const queue = path.join(path.dirname(folder), "queue");
  mkdirSync(folder);
  const settings = destinationSchema.parse({ type: "stow", url: "http://127.0.0.1/dicom-web" });
  const log = createLog("silent");
  const outbox = new Outbox({
    folder: queue,
    outputRoots: [folder],
    destinations: { pacs: settings },
    webhooks: {},
    minimumFreeBytes: 0,
    log,
    found: () => lane.wake(),
    news: () => undefined,
  });
  const put = async (id: string, uid: string, content: string) => {
    const { files, receipt } = sample(name, "pixels", { model: content });
    Object.assign(receipt.models[0]!.outputs[0]!, {
      sop_class_uid: "1.2",
      sop_instance_uid: uid,
      series_instance_uid: "1.4",
    });
    const asked = deliveryFor(id);
    await outbox.keep({ folder, name, reused: false, delivery: asked });
    await withName(folder, name, {}, (held) => held.commit(files, receipt, undefined, asked));
    await outbox.adopt(id);
  };
  const sent: string[] = [];
  const became: string[] = [];
  let turns = 0;
  const destination: Destination = {
    async *send(objects) {
      turns += 1;
      if (turns === 1) await put("b", "1.3.2", "new");
      for (const object of objects) {
        const bytes = await bytesToSend(object);
        if (Buffer.isBuffer(bytes)) sent.push(bytes.toString());
        yield [object.sop_instance_uid, Buffer.isBuffer(bytes) ? { state: "stored" } : bytes];
      }
    },
    prove: () => Promise.resolve({ state: "not_provable", reason: "Nobody asks for it." }),
    close: () => undefined,
  };
  const lane: DestinationLane = new DestinationLane({
    name: "pacs",
    destination,
    proves: false,
    policy: proofPolicy(settings),
    outbox,
    queue,
    log,
    ready: Promise.resolve(),
    rested: () => undefined,
    asked: () => Promise.resolve(),
    became: ({ outcome }) => void became.push(outcome),
  });
  t.teardown(async () => {
    await lane.close();
    outbox.close();
  });
  await put("a", "1.3.1", "old");
  await until("both have an outcome", () => became.length === 2);
  t.same(sent, ["old", "new"]);
  t.same(became, ["accepted", "accepted"]);
});
