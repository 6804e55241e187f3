/** A server that delivers, and what it says of that. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import type { DeliveryInAnswer } from "../../src/results/receipt/receipt.js";
import { deliverySchema, type Delivery } from "../../src/results/receipt/delivery.js";
import { deliveryListSchema } from "../../src/features/gateway/deliver/messages.js";
import type { Durations } from "../../src/base/durations.js";
import { ctPlace, writeSlice } from "./bulk.js";
import { withDurations } from "./durations.js";
import { startServer, type Place, type TestServer } from "./server.js";
import type { WebPacs } from "./web-pacs.js";

/**
 * A place whose server delivers to these.
 * @param more of the gateway's file; a spool is a folder among the inputs
 * @param lengths other lengths of time
 */
export function deliveringPlace(
  destinations: Record<string, WebPacs>,
  { spool, ...more }: Record<string, unknown> = {},
  place: Place = ctPlace({}),
  lengths: Partial<Durations> = {},
): Place {
  Object.assign(
    place.environment,
    withDurations({
      gatewayRetry: 50,
      gatewayRetryMost: 300,
      gatewayFigures: 50,
      deliveryLook: 200,
      proofWithin: 200,
      ...lengths,
    }),
  );
  const file = path.join(place.directory, "gateway.json");
  const of = ({ url }: WebPacs) => ({ type: "stow", url, timeout: "60s" });
  const folder = path.join(place.input, "spool");
  if (spool === true) mkdirSync(folder);
  const gateway = {
    ...(spool === true ? { spool: folder } : {}),
    destinations: Object.fromEntries(
      Object.entries(destinations).map(([name, pacs]) => [name, of(pacs)]),
    ),
    deliver: [Object.keys(destinations)[0]],
    ...more,
  };
  writeFileSync(file, JSON.stringify(gateway));
  place.environment["RADSERVE_GATEWAY"] = file;
  writeSlice(path.join(place.input, "image.dcm"));
  return place;
}

/** The server of a place, both of which go with the test. */
export async function startDelivering(t: Test, place: Place): Promise<TestServer> {
  const server = await startServer(place);
  t.teardown(async () => {
    await server.stop();
    place.remove();
  });
  return server;
}

/** Results of the image of a place. */
export async function infer(server: Pick<TestServer, "post" | "place">, more: object = {}) {
  const response = await server.post("/single_inference", {
    input_image_path: path.join(server.place.input, "image.dcm"),
    output_folder_path: server.place.output,
    outputs: ["sr", "seg"],
    ...more,
  });
  const body = (await response.json()) as {
    deliveries?: DeliveryInAnswer[];
    request_id: string;
  } & Record<string, unknown>;
  return { status: response.status, body };
}

interface ToldCondition {
  condition: string;
  where: string;
  message: string;
}

/** What the server says is wrong. */
export async function conditions({ url }: TestServer): Promise<ToldCondition[]> {
  const { conditions = [] } = (await (await fetch(`${url}/health/ready`)).json()) as {
    conditions?: ToldCondition[];
  };
  return conditions;
}

/** What waits, or was set aside. */
export async function listed({ url, token }: Pick<TestServer, "url" | "token">) {
  const response = await fetch(`${url}/deliveries`, { headers: { Authorization: token } });
  return deliveryListSchema.parse(await response.json()).deliveries;
}

type Folder = Pick<Place, "output">;

/** The file beside a receipt. */
export const deliveryOf = ({ output }: Folder, name = "image.dcm"): Delivery =>
  deliverySchema.parse(
    JSON.parse(readFileSync(path.join(output, `.${name}.delivery.json`), "utf8")),
  );

export const statesOf = (delivery: Delivery, to = "pacs") =>
  delivery.destinations[to]?.map(({ state }) => state);

/** Each object for a destination is proven. */
export const proven = (folder: Folder, name?: string, to?: string): boolean =>
  statesOf(deliveryOf(folder, name), to)?.every((state) => state === "proven") === true;
