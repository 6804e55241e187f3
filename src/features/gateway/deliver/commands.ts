/**
 * `radserve deliver`: what goes to destinations, by a running server, and what can be said without
 * one.
 */
import { readdir } from "node:fs/promises";
import path from "node:path";
import { durations } from "../../../base/durations.js";
import { ConfigError } from "../../../base/errors.js";
import { createLog } from "../../../base/log.js";
import { counted, table } from "../../../base/table.js";
import type { Config } from "../../../config.js";
import { openDestination } from "./open-destination.js";
import { isFinished, objectToSend, Outbox } from "./outbox.js";
import { changersText } from "./proof.js";
import { queueOf } from "./service.js";
import { readGateway, type GatewaySettings } from "../settings.js";
import {
  deliveryName,
  isStagingName,
  nameOfHelper,
  undeliveredNumber,
} from "../../../files/helper-names.js";
import { resolveRoots } from "../../../files/roots.js";
import { readReceipt } from "../../../results/receipt/read-receipt.js";
import { PREVIOUS, PREVIOUS_DELIVERY } from "../../../results/commit/staging.js";
import {
  readDeliveryFile,
  type AttributeChange,
  type Delivered,
  type DeliveryFile,
} from "../../../results/receipt/delivery.js";
import { receiptName } from "../../../results/receipt/names.js";
import { distrust, TO_TRUST } from "../../../results/receipt/seal.js";
import { droppedSchema, retriedSchema } from "./endpoints.js";
import { deliveryListSchema, objectsIn, type Changed } from "./messages.js";
import { clientWithToken, queryOf } from "../../../commands/client.js";
import { print, remark, type ExitStatus, type JsonOption } from "../../../commands/run.js";

interface Choice extends JsonOption {
  destination?: string;
}

export async function deliverList(
  config: Config,
  options: Choice & { limit: string },
): Promise<ExitStatus> {
  const { destination, limit, json } = options;
  const page = `/deliveries?${queryOf({ destination, limit })}`;
  const found = await clientWithToken(config).call(deliveryListSchema, "GET", page);
  const { deliveries, hidden } = found;
  if (json === true) print(JSON.stringify(found, null, 2));
  else if (deliveries.length > 0)
    print(
      table([
        ["ID", "DESTINATION", "STATE", "SINCE", "OBJECT", "REASON"],
        ...deliveries.flatMap(({ id, destinations, events }) => [
          ...Object.entries(destinations).flatMap(([to, objects]) =>
            objects
              .filter(() => destination === undefined || destination === to)
              .map(({ state, at, path: file, reason = "" }) => [id, to, state, at, file, reason]),
          ),
          ...events
            .filter((one) => destination === undefined || destination === one.destination)
            .map(({ webhook, event, destination: of, state, since, reason = "" }) => [
              id,
              `webhook ${webhook}`,
              state,
              since,
              `message: ${event} at ${of}`,
              reason,
            ]),
        ]),
      ]),
    );
  else if (hidden === 0) remark("Nothing is waiting or set aside.");
  if (json !== true && deliveries.length === Number(limit))
    remark(
      `Shown: the newest ${counted(deliveries.length, "result")}; --limit shows more, if there are more.`,
    );
  if (json !== true) tellHidden(hidden);
  return 0;
}

/** What a token does not see is not there for it, and yet may be what somebody looks for. */
function tellHidden(hidden: number): void {
  if (hidden === 0) return;
  remark(
    `${counted(hidden, "result")} more ${hidden === 1 ? "waits or was" : "wait or were"} set aside, of other subjects or in folders that this token does not reach. A token with the claim admin sees all of its folders.`,
  );
}

/** Results of which a line is printed. */
const MOST_LINES = 50;

/** Which objects a command has changed; where there are none, why. */
function tellChanged(changed: Omit<Changed, "chosen">, became: string): void {
  const { results, waiting, without_destination: left, messages, failed, hidden } = changed;
  if (messages > 0) print(`${counted(messages, "message")} to webhooks ${became}.`);
  if (left > 0)
    remark(
      `Left as it is: ${counted(left, "object")} for destinations that the settings do not name; --to NAME moves them.`,
    );
  for (const one of failed) remark(`Left as it is: ${one.receipt_path}: ${one.message}`);
  if (results.length === 0) {
    const onTheWay = `${counted(waiting, "object")} on the way, which Radserve sends by itself`;
    const nothing = hidden === 0 ? "Nothing" : "Nothing of yours";
    if (left === 0 && messages === 0 && failed.length === 0)
      print(`${nothing} is set aside there${waiting === 0 ? "." : `: ${onTheWay}.`}`);
    tellHidden(hidden);
    return;
  }
  const lines = results
    .slice(0, MOST_LINES)
    .map((one) => [one.id, one.destination, String(one.objects), one.receipt_path]);
  print(table([["ID", "SET ASIDE FOR", "OBJECTS", "RESULT"], ...lines]));
  if (results.length > MOST_LINES)
    print(`and ${counted(results.length - MOST_LINES, "more result")}`);
  print(`${counted(objectsIn(changed), "set-aside object")} ${became}.`);
  tellHidden(hidden);
}

export async function deliverRetry(
  config: Config,
  id: string | undefined,
  { destination, to, all, json }: Choice & { to?: string; all?: boolean },
): Promise<ExitStatus> {
  const isChosen = id !== undefined || (destination !== undefined && to === undefined);
  if (!isChosen && all !== true)
    throw new ConfigError(
      "Expected the id of a result, or --all; radserve deliver list shows what was set aside.",
    );
  const every = all === true ? "true" : undefined;
  const page = `/deliveries/retry?${queryOf({ id, destination, to, all: every })}`;
  const answer = await clientWithToken(config, durations.commandWork).call(
    retriedSchema,
    "POST",
    page,
  );
  if (json === true) print(JSON.stringify(answer, null, 2));
  else tellChanged(answer, `will be sent ${to === undefined ? "again" : `to ${to}`}`);
  return answer.failed.length === 0 ? 0 : 1;
}

export async function deliverDrop(
  config: Config,
  id: string | undefined,
  { destination, json }: Choice,
): Promise<ExitStatus> {
  const page = `/deliveries/drop?${queryOf({ id, destination })}`;
  const answer = await clientWithToken(config, durations.commandWork).call(
    droppedSchema,
    "POST",
    page,
  );
  if (json === true) print(JSON.stringify(answer, null, 2));
  else tellChanged(answer, "will not be sent any more");
  return answer.failed.length === 0 ? 0 : 1;
}

/** @throws ConfigError where there are no destinations */
async function gatewayOf(config: Config): Promise<GatewaySettings> {
  const gateway = await readGateway(config);
  if (gateway !== undefined && Object.keys(gateway.destinations).length > 0) return gateway;
  throw new ConfigError("RADSERVE_GATEWAY: expected a file with destinations; found none.");
}

/** A result with a delivery file beside its receipt. */
type DeliveredResult = DeliveryFile & {
  folder: string;
  name: string;
  /**
   * The receipt, and where the objects lie: elsewhere of a result that a newer one has replaced.
   */
  receipt: string;
  place: string;
};

const beside = (folder: string, name: string, found: DeliveryFile): DeliveredResult => ({
  folder,
  name,
  ...found,
  place: folder,
  receipt: path.join(folder, receiptName(name)),
});

/**
 * The deliveries of receipts, and of all in folders, at any depth. @throws ConfigError where a path
 * is neither
 */
async function* deliveriesIn(paths: readonly string[]): AsyncGenerator<DeliveredResult> {
  // Folders that lie in each other, or are named twice, have each result once
  const seen = new Set<string>();
  for (const given of paths.map((one) => path.resolve(one)))
    for await (const one of deliveriesAt(given)) {
      if (!seen.has(one.receipt)) yield one;
      seen.add(one.receipt);
    }
}

async function* deliveriesAt(given: string): AsyncGenerator<DeliveredResult> {
  const { dir, name } = path.parse(given);
  const one = given.endsWith(".json")
    ? await readDeliveryFile(path.join(dir, deliveryName(name)), name)
    : undefined;
  if (one !== undefined) yield beside(dir, name, one);
  else yield* deliveriesBelow(given);
}

async function* deliveriesBelow(folder: string): AsyncGenerator<DeliveredResult> {
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
      const found = await readDeliveryFile(path.join(at, PREVIOUS_DELIVERY), name);
      const [receipt, place] = [path.join(at, PREVIOUS), path.join(at, "previous")];
      if (found !== undefined) yield { folder, name, ...found, receipt, place };
    } else if (entry.name === deliveryName(name)) {
      const found = await readDeliveryFile(at, name);
      if (found !== undefined) yield beside(folder, name, found);
    }
  }
}

/** An object that was read back. */
interface VerifiedObject {
  destination: string;
  path: string;
  state: string;
  reason?: string;
  coerced?: readonly string[] | undefined;
  changed_by?: readonly AttributeChange[] | undefined;
}

/** What the destination has changed of it, and who, as far as the object says that. */
function changesIn({ coerced = [], changed_by: by = [] }: VerifiedObject): string {
  if (coerced.length === 0) return "";
  const whom = by.length === 0 ? "" : `, by ${changersText(by)}`;
  return `changed: ${coerced.join(", ")}${whom}`;
}

/** Reads every object back that was delivered, and changes nothing. */
export async function deliverVerify(
  config: Config,
  paths: string[],
  { json }: JsonOption,
): Promise<ExitStatus> {
  const gateway = await gatewayOf(config);
  const opened = new Map(
    Object.entries(gateway.destinations).map(([name, settings]) => [
      name,
      openDestination(name, settings),
    ]),
  );
  const { signal } = new AbortController();
  const read: VerifiedObject[] = [];
  try {
    for await (const { name, delivery, trust, place, receipt: file } of deliveriesIn(paths)) {
      const receipt = await readReceipt(file, name);
      const ofReceipt = receipt.kind === "receipt" ? receipt.trust : trust;
      if (delivery === undefined || !trust.trusted || !ofReceipt.trusted) {
        const reason = distrust(trust.trusted ? ofReceipt : trust);
        read.push({ destination: "", path: file, state: "untrusted", reason });
        continue;
      }
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
            ...("coerced" in more ? { coerced: more.coerced } : {}),
            ...("changed_by" in more ? { changed_by: more.changed_by } : {}),
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
        ...read.map((one) => [one.destination, one.state, one.path, one.reason ?? changesIn(one)]),
      ]),
    );
  return read.every(({ state }) => state === "proven") ? 0 : 1;
}

const wasDelivered = ({ state }: Delivered) => ["sent", "accepted", "proven"].includes(state);

/**
 * Puts what is open or was set aside into the queue, which a running server looks through every few
 * seconds.
 */
export async function deliverScan(
  config: Config,
  folders: string[],
  { json }: JsonOption,
): Promise<ExitStatus> {
  const gateway = await gatewayOf(config);
  const outputRoots = await resolveRoots(config.output_roots, "RADSERVE_OUTPUT_ROOTS");
  const outbox = new Outbox({
    folder: queueOf(gateway, config),
    outputRoots,
    destinations: gateway.destinations,
    webhooks: gateway.webhooks,
    minimumFreeBytes: config.minimum_free_disk,
    log: createLog("silent"),
    found: () => undefined,
    news: () => undefined,
  });
  let [found, untrusted] = [0, 0];
  for await (const { folder, name, delivery, trust } of deliveriesIn(
    folders.length > 0 ? folders : outputRoots,
  )) {
    if (delivery !== undefined && isFinished(delivery)) continue;
    if (delivery === undefined || !trust.trusted) {
      untrusted += 1;
      remark(`${path.join(folder, receiptName(name))} is not delivered: ${distrust(trust)}.`);
      continue;
    }
    await outbox.keep({ folder, name, reused: false, delivery });
    found += 1;
  }
  if (untrusted > 0) remark(TO_TRUST);
  if (json === true) print(JSON.stringify({ found, untrusted }, null, 2));
  else print(`${counted(found, "undelivered result")} in the queue.`);
  return untrusted === 0 ? 0 : 1;
}
