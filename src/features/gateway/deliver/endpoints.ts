/**
 * What is not delivered yet, and sending again what was set aside; only where there are
 * destinations.
 */
import { z } from "zod";
import { errors } from "../../../base/errors.js";
import { parseBody } from "../../../base/json-body.js";
import { changedSchema, deliveryListSchema, objectsIn, type DeliveryFilter } from "./messages.js";
import { GATEWAY } from "../gateway.js";
import type { DeliveryService } from "./service.js";
import { folderOf } from "../../../files/roots.js";
import { callerOf, rootsOf } from "../../../server/handlers.js";
import { type Context, type Endpoint, type Services } from "../../../server/services.js";

const choice = {
  id: z.string().max(100).optional().describe("Id of one result in the list"),
  destination: z.string().max(32).optional().describe("Only objects for this destination"),
};
const listQuery = z.strictObject({
  ...choice,
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(1000)
    .default(100)
    .describe("How many at most, the newest first"),
});
const retryQuery = z.strictObject({
  ...choice,
  to: z
    .string()
    .max(32)
    .optional()
    .describe("Send them to this destination in place of the one that they were set aside for"),
  all: z
    .enum(["true", "false"])
    .optional()
    .describe("Must be true with `to` and without `id`: all results are meant"),
});
const dropQuery = z.strictObject(choice);

export const retriedSchema = changedSchema.extend({
  retried: z.int().min(0).describe("Objects that were set aside, and are sent again"),
});

export const droppedSchema = changedSchema.extend({
  dropped: z.int().min(0).describe("Objects that were set aside, and are not sent any more"),
});

function deliveriesOf({ features }: Services): DeliveryService {
  const { deliveries } = features.of(GATEWAY) ?? {};
  if (deliveries !== undefined) return deliveries;
  throw errors.not_found(
    "This server delivers nothing. Destinations in the file of RADSERVE_GATEWAY let it.",
  );
}

/**
 * The results of a caller: of its subject, in the folders that its token reaches.
 * @throws RadserveError destination_not_found
 */
async function filterOf(
  ctx: Context,
  services: Services,
  { id, destination }: Pick<DeliveryFilter, "id" | "destination">,
): Promise<DeliveryFilter> {
  const caller = callerOf(ctx);
  const { all } = deliveriesOf(services).destinations;
  // What is left for a name that the settings had is found by it
  const isKnown =
    destination === undefined ||
    all.includes(destination) ||
    (await deliveriesOf(services).hasFor(destination));
  if (!isKnown)
    throw errors.destination_not_found(
      `Expected the name of a destination; found ${destination}, and there are ${all.join(", ")}.`,
      { field: "destination" },
    );
  const { output } = await rootsOf(caller, services);
  return {
    id,
    destination,
    within: output.map(folderOf),
    ...(caller.admin ? {} : { subject: caller.subject }),
  };
}

export const listDeliveries: Endpoint = {
  query: listQuery,
  answer: { DeliveryList: deliveryListSchema },
  handler: async (ctx, services) => {
    const deliveries = deliveriesOf(services);
    const { limit, ...query } = parseBody(listQuery, { ...ctx.query });
    const found = await deliveries.list(await filterOf(ctx, services, query), limit);
    ctx.body = found satisfies z.infer<typeof deliveryListSchema>;
  },
};

/**
 * Of a token that may send to some destinations only: one of those has to be named.
 * @throws RadserveError path_not_allowed
 */
function mayChange(ctx: Context, destination: string | undefined): void {
  const allowed = callerOf(ctx).destinations;
  if (allowed === undefined || (destination !== undefined && allowed.includes(destination))) return;
  throw errors.path_not_allowed(
    "Expected a destination that this token may send to. Name it, or use another token.",
    { side: "destination" },
  );
}

/** @throws RadserveError not_found for an id of nothing that the caller could change */
function requireOne({ id, destination }: DeliveryFilter, chosen: number): void {
  if (id === undefined || chosen > 0) return;
  const of = destination === undefined ? "" : ` for ${destination}`;
  throw errors.not_found(
    `Expected the id of a result that waits or was set aside${of}; found none of that id: ${id}. radserve deliver list shows them.`,
    { field: "id" },
  );
}

export const retryDeliveries: Endpoint = {
  query: retryQuery,
  answer: { Retried: retriedSchema },
  handler: async (ctx, services) => {
    const deliveries = deliveriesOf(services);
    const { to, all: every, ...query } = parseBody(retryQuery, { ...ctx.query });
    if (to !== undefined && query.id === undefined && every !== "true")
      throw errors.bad_request(
        "Expected id, or all=true: without either, everything that was set aside would go to another destination.",
      );
    const filter = await filterOf(ctx, services, query);
    const { all } = deliveries.destinations;
    if (to !== undefined && !all.includes(to))
      throw errors.destination_not_found(
        `Expected the name of a destination; found ${to}, and there are ${all.join(", ")}.`,
        { field: "to" },
      );
    mayChange(ctx, filter.destination);
    if (to !== undefined) mayChange(ctx, to);
    const { chosen, ...changed } = await deliveries.retry(filter, to);
    requireOne(filter, chosen);
    const retried = objectsIn(changed);
    ctx.state.action?.note({ count: retried });
    ctx.body = { retried, ...changed } satisfies z.infer<typeof retriedSchema>;
  },
};

export const dropDeliveries: Endpoint = {
  query: dropQuery,
  answer: { Dropped: droppedSchema },
  handler: async (ctx, services) => {
    const deliveries = deliveriesOf(services);
    const filter = await filterOf(ctx, services, parseBody(dropQuery, { ...ctx.query }));
    if (filter.id === undefined && filter.destination === undefined)
      throw errors.bad_request("Expected id or destination: everything is not dropped at once.");
    mayChange(ctx, filter.destination);
    const { chosen, ...changed } = await deliveries.drop(filter);
    requireOne(filter, chosen);
    const dropped = objectsIn(changed);
    ctx.state.action?.note({ count: dropped });
    ctx.body = { dropped, ...changed } satisfies z.infer<typeof droppedSchema>;
  },
};
