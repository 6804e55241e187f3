/**
 * `radserve deliver`: what goes to destinations, by a running server, and what can be said without
 * one.
 */
import { readdir } from "node:fs/promises";
import path from "node:path";
import { ConfigError } from "../../../base/errors.js";
import { createLog } from "../../../base/log.js";
import { counted, table } from "../../../base/table.js";
import type { Config } from "../../../config.js";
import { openDestination } from "./open-destination.js";
import { objectToSend, Outbox } from "./outbox.js";
import { queueOf } from "./service.js";
import { readDoors, type DoorsSettings } from "../settings.js";
import {
  deliveryName,
  isStagingName,
  nameOfHelper,
  undeliveredNumber,
} from "../../../files/helper-names.js";
import { resolveRoots } from "../../../files/roots.js";
import { readReceipt } from "../../../results/commit/reuse.js";
import { PREVIOUS, PREVIOUS_DELIVERY } from "../../../results/commit/staging.js";
import { readDelivery, type Delivered, type Delivery } from "../../../results/receipt/delivery.js";
import { receiptName } from "../../../results/receipt/names.js";
import { deliveryListSchema, retriedSchema } from "./endpoints.js";
import { clientWithToken } from "../../../commands/client.js";
import { print, remark, type ExitStatus, type JsonOption } from "../../../commands/run.js";

interface Choice extends JsonOption {
  destination?: string;
}

const queryOf = (fields: Record<string, string | undefined>) =>
  new URLSearchParams(
    Object.entries(fields).filter((field): field is [string, string] => field[1] !== undefined),
  ).toString();

export async function deliverList(
  config: Config,
  options: Choice & { limit: string },
): Promise<ExitStatus> {
  const { destination, limit, json } = options;
  const page = `/deliveries?${queryOf({ destination, limit })}`;
  const { deliveries } = await clientWithToken(config).call(deliveryListSchema, "GET", page);
  if (json === true) print(JSON.stringify({ deliveries }, null, 2));
  else if (deliveries.length === 0) remark("Nothing is waiting or set aside.");
  else
    print(
      table([
        ["ID", "DESTINATION", "STATE", "SINCE", "OBJECT", "REASON"],
        ...deliveries.flatMap(({ id, destinations }) =>
          Object.entries(destinations).flatMap(([to, objects]) =>
            objects
              .filter(() => destination === undefined || destination === to)
              .map(({ state, at, path: file, reason = "" }) => [id, to, state, at, file, reason]),
          ),
        ),
      ]),
    );
  return 0;
}

export async function deliverRetry(
  config: Config,
  id: string | undefined,
  { destination, json }: Choice,
): Promise<ExitStatus> {
  const page = `/deliveries/retry?${queryOf({ id, destination })}`;
  const { retried } = await clientWithToken(config).call(retriedSchema, "POST", page);
  if (json === true) print(JSON.stringify({ retried }, null, 2));
  else print(`${counted(retried, "set-aside object")} will be sent again.`);
  return 0;
}

/** @throws ConfigError where there are no destinations */
async function doorsOf(config: Config): Promise<DoorsSettings> {
  const doors = await readDoors(config);
  if (doors !== undefined && Object.keys(doors.destinations).length > 0) return doors;
  throw new ConfigError("RADSERVE_DOORS: expected a file with destinations; found none.");
}

/** A result beside whose receipt it is said to where it is delivered. */
interface Found {
  folder: string;
  name: string;
  delivery: Delivery;
  /**
   * The receipt, and where the objects lie: elsewhere of a result that a newer one has replaced.
   */
  receipt: string;
  place: string;
}

const beside = (folder: string, name: string, delivery: Delivery): Found => ({
  folder,
  name,
  delivery,
  place: folder,
  receipt: path.join(folder, receiptName(name)),
});

/**
 * The deliveries of receipts, and of all in folders, at any depth. @throws ConfigError where a path
 * is neither
 */
async function* deliveriesIn(paths: readonly string[]): AsyncGenerator<Found> {
  for (const given of paths.map((one) => path.resolve(one))) {
    const { dir, name } = path.parse(given);
    const one = given.endsWith(".json")
      ? await readDelivery(path.join(dir, deliveryName(name)))
      : undefined;
    if (one !== undefined) yield beside(dir, name, one);
    else yield* deliveriesBelow(given);
  }
}

async function* deliveriesBelow(folder: string): AsyncGenerator<Found> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => {
    throw new ConfigError(
      `${folder}: expected a receipt with a delivery beside it, or a folder that can be read.`,
    );
  });
  for (const entry of entries) {
    const at = path.join(folder, entry.name);
    if (entry.isDirectory() && !isStagingName(entry.name)) yield* deliveriesBelow(at);
    const name = nameOfHelper(entry.name);
    if (name === undefined) continue;
    if (undeliveredNumber(entry.name, name) !== undefined) {
      const delivery = await readDelivery(path.join(at, PREVIOUS_DELIVERY));
      const [receipt, place] = [path.join(at, PREVIOUS), path.join(at, "previous")];
      if (delivery !== undefined) yield { folder, name, delivery, receipt, place };
    } else if (entry.name === deliveryName(name)) {
      const delivery = await readDelivery(at);
      if (delivery !== undefined) yield beside(folder, name, delivery);
    }
  }
}

/** Reads every object back that was delivered, and changes nothing. */
export async function deliverVerify(
  config: Config,
  paths: string[],
  { json }: JsonOption,
): Promise<ExitStatus> {
  const doors = await doorsOf(config);
  const opened = new Map(
    Object.entries(doors.destinations).map(([name, settings]) => [
      name,
      openDestination(name, settings),
    ]),
  );
  const { signal } = new AbortController();
  const read: { destination: string; path: string; state: string; reason?: string }[] = [];
  try {
    for await (const { delivery, place, receipt: file } of deliveriesIn(paths)) {
      const receipt = await readReceipt(file);
      const study = (receipt.kind === "receipt" && receipt.receipt.source.study_instance_uid) || "";
      for (const [destination, objects] of Object.entries(delivery.destinations))
        for (const object of (objects ?? []).filter(wasDelivered)) {
          const file = path.join(place, object.path);
          const toSend = await objectToSend(file, study, object);
          const proved = toSend && (await opened.get(destination)?.prove(toSend, signal));
          const reason = toSend === undefined ? "its file is gone" : "no destination of this name";
          const { state, ...more } = proved ?? { state: "unknown", reason };
          read.push({
            destination,
            path: file,
            state,
            ...("reason" in more ? { reason: more.reason } : {}),
          });
        }
    }
  } finally {
    for (const destination of opened.values()) destination.close();
  }
  if (json === true) print(JSON.stringify({ objects: read }, null, 2));
  else if (read.length === 0) remark("Nothing was delivered there.");
  else
    print(
      table([
        ["DESTINATION", "STATE", "OBJECT", "REASON"],
        ...read.map(({ destination, state, path: file, reason = "" }) => [
          destination,
          state,
          file,
          reason,
        ]),
      ]),
    );
  return read.every(({ state }) => state === "proven") ? 0 : 1;
}

const wasDelivered = ({ state }: Delivered) => ["sent", "accepted", "proven"].includes(state);

/** Puts what is open into the queue, which a running server looks through every few seconds. */
export async function deliverScan(
  config: Config,
  folders: string[],
  { json }: JsonOption,
): Promise<ExitStatus> {
  const doors = await doorsOf(config);
  const outputRoots = await resolveRoots(config.output_roots, "RADSERVE_OUTPUT_ROOTS");
  const outbox = new Outbox({
    folder: queueOf(doors, config),
    outputRoots,
    destinations: doors.destinations,
    minimumFreeBytes: config.minimum_free_disk,
    log: createLog("silent"),
    found: () => undefined,
  });
  let found = 0;
  for await (const { folder, name, delivery } of deliveriesIn(
    folders.length > 0 ? folders : outputRoots,
  )) {
    if (!delivery.open) continue;
    await outbox.keep({ folder, name, reused: false, delivery });
    found += 1;
  }
  if (json === true) print(JSON.stringify({ found }, null, 2));
  else print(`${counted(found, "undelivered result")} in the queue.`);
  return 0;
}
