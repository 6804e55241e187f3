/** From a request to the PACS and back: real server and files, and a PACS over HTTP. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { deliverySchema, type Delivery } from "../../../src/results/receipt/delivery.js";
import type { DeliveryInAnswer } from "../../../src/results/receipt/receipt.js";
import { linesOf } from "../../support/audit.js";
import { writeSlice, ctPlace } from "../../support/bulk.js";
import { withDurations } from "../../support/durations.js";
import { until } from "../../support/postgres.js";
import { startServer, type Place, type TestServer } from "../../support/server.js";
import { webPacs, type WebPacs } from "../../support/web-pacs.js";

/** A place whose server delivers to these. */
function deliveringPlace(destinations: Record<string, WebPacs>, more: object = {}): Place {
  const place = ctPlace(
    withDurations({ doorRetry: 50, doorRetryMost: 300, doorFigures: 50, deliveryLook: 200 }),
  );
  const file = path.join(place.directory, "doors.json");
  const of = ({ url }: WebPacs) => ({ type: "stow", url, timeout: "5s" });
  const doors = {
    destinations: Object.fromEntries(Object.entries(destinations).map(([name, pacs]) => [name, of(pacs)])),
    deliver: [Object.keys(destinations)[0]],
    ...more,
  };
  writeFileSync(file, JSON.stringify(doors));
  place.environment["RADSERVE_DOORS"] = file;
  writeSlice(path.join(place.input, "image.dcm"));
  return place;
}

async function started(t: Test, place: Place): Promise<TestServer> {
  const server = await startServer(place);
  t.teardown(async () => {
    await server.stop();
    place.remove();
  });
  return server;
}

async function infer({ post, place }: TestServer, more: object = {}) {
  const response = await post("/single_inference", {
    input_image_path: path.join(place.input, "image.dcm"),
    output_folder_path: place.output,
    outputs: ["sr", "seg"],
    ...more,
  });
  const body = (await response.json()) as { deliveries?: DeliveryInAnswer[]; request_id: string } & Record<
    string,
    unknown
  >;
  return { status: response.status, body };
}

const deliveryOf = (place: Place, name = "image.dcm"): Delivery =>
  deliverySchema.parse(JSON.parse(readFileSync(path.join(place.output, `.${name}.delivery.json`), "utf8")));
const statesOf = (delivery: Delivery, to = "pacs") => delivery.destinations[to]?.map(({ state }) => state);

await t.test(
  "a request that waits answers when its objects are proven, and a repeat sends nothing",
  async (t) => {
    const pacs = await webPacs(t);
    const place = deliveringPlace({ pacs });
    const server = await started(t, place);
    const { status, body } = await infer(server, { deliver: "wait" });
    t.equal(status, 200);
    t.match(body.deliveries, [
      {
        destination: "pacs",
        state: "proven",
        how: "wado-rs",
        path: `${place.output}/image.dcm.ct-tissue.sr.dcm`,
      },
      { destination: "pacs", state: "proven", path: `${place.output}/image.dcm.ct-tissue.seg.dcm` },
    ]);
    t.equal(pacs.kept.size, 2);
    t.match(deliveryOf(place), { open: false, request_id: body.request_id, subject: "tester" });
    const again = await infer(server, { deliver: "wait" });
    t.match(again.body, { reused: true, deliveries: [{ state: "proven" }, { state: "proven" }] });
    t.equal(pacs.sent.length, 2);
    t.match(
      linesOf(place)
        .filter(({ kind }) => kind === "delivery")
        .map(({ outcome, destination, count }) => `${outcome} ${destination} ${count}`),
      ["asked pacs 2", "sent pacs 2", "proven pacs 2"],
    );
  },
);
