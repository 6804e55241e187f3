/**
 * What `radserve explain` says of a result's way to destinations, from the file beside its receipt.
 */
import path from "node:path";
import { deliveryName } from "../files/helper-names.js";
import {
  readDeliveryFile,
  type Delivered,
  type DeliveryEvent,
} from "../results/receipt/delivery.js";
import { distrust } from "../results/receipt/seal.js";

/** Where an object is, or is to go. */
export interface ObjectPlace {
  path: string;
  state: string;
  at: string;
  how?: string;
  reason?: string;
}

/** What became of the objects for a destination, or of a message about them. */
interface OnTheWay {
  time?: string;
  what: string;
  outcome: string;
  message?: string;
  objects?: ObjectPlace[];
}

/** @param objects not empty */
function atDestination(destination: string, objects: readonly Delivered[]): OnTheWay {
  const states = [...new Set(objects.map(({ state }) => state))];
  return {
    time: objects.map(({ at }) => at).reduce((last, at) => (at > last ? at : last)),
    what: `objects for ${destination}`,
    outcome: states.join(", "),
    objects: objects.map(({ path: file, state, at, how, reason }) => ({
      path: file,
      state,
      at,
      ...(how === undefined ? {} : { how }),
      ...(reason === undefined ? {} : { reason }),
    })),
  };
}

const toWebhook = ({
  webhook,
  event,
  destination,
  state,
  since,
  reason,
}: DeliveryEvent): OnTheWay => ({
  time: since,
  what: `message to the webhook ${webhook} (${event} at ${destination})`,
  outcome: state,
  ...(reason === undefined ? {} : { message: reason }),
});

/**
 * Where the objects of a result are: for each destination, and what webhooks were told; nothing
 * where it is not delivered.
 * @param receipt path of NAME.json
 */
export async function whereObjectsAre(receipt: string): Promise<OnTheWay[]> {
  const { dir, name } = path.parse(receipt);
  const file = path.join(dir, deliveryName(name));
  const found = await readDeliveryFile(file, name);
  if (found === undefined) return [];
  const { delivery, trust } = found;
  if (delivery === undefined || !trust.trusted)
    return [{ what: `the file ${file}`, outcome: "result_untrusted", message: distrust(trust) }];
  const { destinations, events = [] } = delivery;
  return [
    ...Object.entries(destinations).map(([destination, objects]) =>
      objects === null || objects.length === 0
        ? {
            what: `objects for ${destination}`,
            outcome: objects === null ? "waiting" : "none that it takes",
          }
        : atDestination(destination, objects),
    ),
    ...events.map(toWebhook),
  ];
}

export const placeText = ({ path: file, state, at, how, reason }: ObjectPlace): string =>
  `  ${file}: ${state} since ${at}${how === undefined ? "" : `, by ${how}`}${reason === undefined ? "" : `; ${reason}`}`;
