/**
 * The file `.NAME.delivery.json` beside a receipt: to where the result is delivered, and how far
 * that is. It appears with the result, so that whoever publishes it knows what was asked for, and
 * is rewritten when something of it was sent or proven. The receipt does not change: it says what
 * was found, and this what became of it.
 */
import { lstat } from "node:fs/promises";
import { z } from "zod";
import { errors } from "../../base/errors.js";
import { storedJson } from "../../base/stored-json.js";
import { ifMissing, withPlain } from "../../files/durable-files.js";
import { fillFrom } from "../../files/descriptor.js";
import { checkSeal, distrust, macSchema, seal, TO_TRUST, type Trust } from "./seal.js";
import { PLAIN_NAME, uid } from "./uid.js";

export const DELIVERY_SCHEMA = "radserve.delivery/1";

/** Longer than any: a result has few objects, each of which takes a kilobyte a destination. */
const LONGEST = 4 * 1024 * 1024;

export const DELIVERY_STATES = [
  "waiting",
  "sent",
  "accepted",
  "proven",
  "refused",
  "unproven",
] as const satisfies string[];
export type DeliveryState = (typeof DELIVERY_STATES)[number];

const STATE_MEANING =
  "waiting: to be sent, perhaps again; sent: the destination has acknowledged it, and its proof is due; " +
  "proven: it was read back and is equal; accepted: the destination has acknowledged it, and " +
  "no proof is configured; refused, unproven: set aside, with the reason";

/** An item of OriginalAttributesSequence (0400,0561) in an object that was read back. */
const changeSchema = z.object({
  attributes: z.array(z.string()).describe("Keywords"),
  system: z.string().optional().describe("ModifyingSystem, in the destination's own words"),
  why: z.string().optional().describe("ReasonForTheAttributeModification: COERCE or CORRECT"),
  at: z.string().optional().describe("AttributeModificationDateTime"),
});
export type AttributeChange = z.infer<typeof changeSchema>;

/** One object on its way to one destination. */
export const deliveredSchema = z.object({
  path: z.string().describe("In the file a name beside the receipt; in HTTP answers the full path"),
  model: z.string(),
  sop_class_uid: uid,
  sop_instance_uid: uid,
  series_instance_uid: uid,
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  state: z.enum(DELIVERY_STATES).describe(STATE_MEANING),
  at: z.iso.datetime().describe("Since when it is in this state"),
  how: z.string().optional().describe("How a proven object was read back"),
  reason: z.string().optional().describe("Why it failed, in the destination's own words"),
  warning: z.string().optional().describe("Warning of the destination when it took the object"),
  coerced: z.array(z.string()).optional().describe("Attributes that the destination has changed"),
  changed_by: z
    .array(changeSchema)
    .optional()
    .describe("Who changed attributes, where OriginalAttributesSequence says it"),
  tries: z
    .int()
    .min(0)
    .describe(
      "How often the destination has failed with it in this state, before it was set aside",
    ),
  resent: z
    .int()
    .min(1)
    .optional()
    .describe("How often it was sent again: the destination took it, and did not have it"),
  attempts: z
    .int()
    .min(1)
    .optional()
    .describe("How often it was tried in vain, with pauses of one kind; each time it is longer"),
  attempted_at: z.iso.datetime().optional().describe("When it was last tried in vain"),
  pause: z
    .enum(["commitment"])
    .optional()
    .describe("Until the next request for commitment; without it, as after any failure"),
  full_since: z.iso
    .datetime()
    .optional()
    .describe("Since when the destination answers that it has no resources for it"),
  transactions: z
    .array(uid)
    .optional()
    .describe("Requests for commitment, of which a report of success is taken whenever it comes"),
  asked: z.boolean().optional().describe("The last of them is not reported yet"),
});
export type Delivered = z.infer<typeof deliveredSchema>;

/** What a webhook is told of the objects of a result and a destination. */
export const DELIVERY_EVENTS = ["proven", "accepted", "set_aside"] as const satisfies string[];

const EVENT_MEANING =
  "proven: all objects are; accepted: the destination has acknowledged all of them, and not all " +
  "are to be proven; set_aside: the destination refuses one of them, or does not show it";

/** A message to a webhook, which goes out until it is taken or given up. */
export const deliveryEventSchema = z.object({
  id: z
    .string()
    .regex(/^[\w.-]{1,100}$/)
    .describe("Of the message: each repeat has the same"),
  event: z.enum(DELIVERY_EVENTS).describe(EVENT_MEANING),
  webhook: z.string(),
  destination: z.string(),
  at: z.iso.datetime().describe("When it happened"),
  objects: z
    .array(
      deliveredSchema.pick({
        sop_class_uid: true,
        sop_instance_uid: true,
        series_instance_uid: true,
        state: true,
      }),
    )
    .describe("The objects of the destination, as they were then"),
  state: z
    .enum(["due", "told", "given_up"])
    .describe("given_up: the webhook did not take it within give_up_after"),
  since: z.iso.datetime().describe("Since when it is in this state"),
  reason: z.string().optional().describe("Why the webhook did not take it"),
  attempts: deliveredSchema.shape.attempts,
  attempted_at: deliveredSchema.shape.attempted_at,
});
export type DeliveryEvent = z.infer<typeof deliveryEventSchema>;

/** In the file nothing that it names lies elsewhere. */
const deliveredBeside = deliveredSchema.extend({ path: z.string().regex(PLAIN_NAME) });

const fields = {
  schema: z.literal(DELIVERY_SCHEMA),
  id: z
    .string()
    .regex(/^[\w.-]{1,100}$/)
    .describe("Also the name of its entry in the queue"),
  open: z.boolean().describe("Something of it waits, or is to be proven or told"),
  priority: z.enum(["stat", "routine", "bulk"]),
  subject: z.string().describe("Who asked for it"),
  request_id: z.string(),
  asked_at: z.iso.datetime(),
  destinations: z
    .record(z.string(), z.array(deliveredBeside).nullable())
    .describe("The objects for each destination; null until somebody has looked which it takes"),
};
export const deliverySchema = z.object({
  ...fields,
  events: z
    .array(deliveryEventSchema)
    .optional()
    .describe("What webhooks were told of it, and what they are to be told"),
  replaces: z
    .object(fields)
    .optional()
    .describe(
      "How far the result was delivered that this one replaces, when it did; it stays where it is",
    ),
  mac: macSchema.optional(),
});
export type Delivery = z.infer<typeof deliverySchema>;

/** What is asked for before anything is sent. */
export function deliveryOf(
  asked: Pick<Delivery, "id" | "priority" | "subject" | "request_id" | "asked_at">,
  destinations: readonly string[],
): Delivery {
  const to = Object.fromEntries(destinations.map((name) => [name, null]));
  return { schema: DELIVERY_SCHEMA, ...asked, open: true, destinations: to };
}

/** A file in the place of a delivery's; without a delivery where it is none (any more). */
export type DeliveryFile =
  | { delivery: Delivery; trust: Trust }
  | { delivery: undefined; trust: Extract<Trust, { trusted: false }> };

const DAMAGED = { delivery: undefined, trust: { trusted: false, why: "wrong_mac" } } as const;

/**
 * What a file says, and whether it is trusted; undefined where there is none.
 * @param name NAME of the result that it is of
 */
export async function readDeliveryFile(
  file: string,
  name: string,
): Promise<DeliveryFile | undefined> {
  const found = await withPlain<DeliveryFile>(file, async (fd, { size }) => {
    if (size > LONGEST) return DAMAGED;
    const room = Buffer.alloc(size);
    const bytes = room.subarray(0, await fillFrom(fd, room));
    const trust = await checkSeal("delivery", name, bytes);
    const delivery = deliverySchema.safeParse(storedJson(bytes)).data;
    delete delivery?.mac;
    return delivery === undefined ? DAMAGED : { delivery, trust };
  });
  if (found !== undefined) return found;
  // A link or a folder in its place
  return lstat(file).then(() => DAMAGED, ifMissing(undefined));
}

/** The same; undefined, too, where the file is not trusted. */
export async function readDelivery(file: string, name: string): Promise<Delivery | undefined> {
  const found = await readDeliveryFile(file, name);
  return found?.trust.trusted === true ? found.delivery : undefined;
}

/** The text of the file, with its MAC. */
export const deliveryText = (delivery: Delivery, name: string): Promise<string> =>
  seal("delivery", name, `${JSON.stringify(delivery, null, 2)}\n`);

/** The error for something that is to be delivered and is not trusted. */
export const notTrusted = (what: "receipt" | "delivery", trust: Trust) =>
  errors.result_untrusted(
    `Expected ${what === "receipt" ? "the receipt NAME.json" : "the file .NAME.delivery.json"} of this installation; ${trust.trusted ? "it is of another result" : distrust(trust)}. Nothing of it is delivered. ${TO_TRUST}`,
  );

/**
 * What became of each object, as answers tell of it. @param pathOf the client's path of a name
 * beside the receipt
 */
export function deliveriesOf(delivery: Delivery | undefined, pathOf: (name: string) => string) {
  return Object.entries(delivery?.destinations ?? {}).flatMap(([destination, objects]) =>
    (objects ?? []).map(({ path, sop_instance_uid, state, how, reason, warning }) => ({
      destination,
      path: pathOf(path),
      sop_instance_uid,
      state,
      ...(how === undefined ? {} : { how }),
      ...(reason === undefined ? {} : { reason }),
      ...(warning === undefined ? {} : { warning }),
    })),
  );
}
