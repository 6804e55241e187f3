/**
 * Images in by HTTP as DICOM has it (STOW-RS), and studies that are said to be complete; only where
 * there is a gateway.
 */
import { z } from "zod";
import { errors } from "../../../base/errors.js";
import { parseBody } from "../../../base/json-body.js";
import { GATEWAY } from "../gateway.js";
import type { ReceptionService } from "../service.js";
import { GATEWAY_SUBJECT } from "../subject.js";
import { shuttingDown } from "../../../inference/worker-pool.js";
import { piecesOf } from "../../../server/file-transfer.js";
import { callerOf, rootsOf } from "../../../server/handlers.js";
import { type Context, type Endpoint, type Services } from "../../../server/services.js";
import type { Caller } from "../../../server/tokens.js";
import { boundaryIn, parametersOf } from "../content-type.js";
import type { Reach } from "./reach.js";
import {
  changedSchema,
  RECEIVED_STATES,
  receivedDetailsSchema,
  receivedSchema,
  UNMADE,
} from "./received.js";
import { sendersSchema } from "./senders.js";

function receptionOf(services: Services): ReceptionService {
  const { reception } = services.features.of(GATEWAY) ?? {};
  if (reception === undefined)
    throw errors.not_found("This server has no gateway. The setting RADSERVE_GATEWAY starts it.");
  if (services.stopping()) throw shuttingDown();
  return reception;
}

const reachOf = async (caller: Caller, services: Services): Promise<Reach> => ({
  ...(await rootsOf(caller, services)),
  destinations: caller.destinations,
});

/** The boundary of a body of DICOM objects (RFC 2387, PS3.18 section 8.6.1.2). */
function boundaryOf(ctx: Context): string {
  const given = ctx.get("Content-Type");
  if (
    !/^multipart\/related\s*;/i.test(given) ||
    parametersOf(given).get("type")?.toLowerCase() !== "application/dicom"
  )
    throw errors.unsupported_format(
      'Expected Content-Type multipart/related with type="application/dicom"; found another.',
    );
  const boundary = boundaryIn(given);
  if (boundary === undefined)
    throw errors.bad_request(
      "Expected a boundary of 1 to 200 characters in Content-Type; found none, or a longer one.",
    );
  if (!["", "identity"].includes(ctx.get("Content-Encoding")))
    throw errors.bad_request(
      "Expected the bytes of the objects as they are; found a Content-Encoding.",
    );
  return boundary;
}

const item = z.record(
  z.string(),
  z.object({ vr: z.string(), Value: z.array(z.unknown()).optional() }),
);

/** POST /dicomweb/studies: objects into the spool. */
export const stow: Endpoint = {
  answer: {
    StoreInstancesResponse: item.describe("A data set in the DICOM JSON Model (PS3.18 annex F)"),
  },
  handler: async (ctx, services) => {
    const reception = receptionOf(services);
    const caller = callerOf(ctx);
    const { address } = ctx.state;
    await reception.requireReach(caller.subject, address, await reachOf(caller, services));
    const { status, body } = await reception.store(
      caller.subject,
      address,
      boundaryOf(ctx),
      piecesOf(ctx.req),
    );
    ctx.status = status;
    ctx.body = JSON.stringify(body);
    ctx.type = "application/dicom+json";
  },
};

const completedSchema = z.object({
  received: z.array(
    z.object({
      peer: z.string(),
      series: z.array(z.string()).describe("SeriesInstanceUIDs"),
      rule: z
        .string()
        .nullable()
        .describe("null where no rule takes the series: it is kept, and no job is made"),
      job_id: z.uuid().nullable(),
      objects: z.int(),
      why: z.enum(UNMADE).nullable().describe("Why no job is made; null where one is"),
    }),
  ),
});

/**
 * Whoever may see and steer what was received.
 * @throws RadserveError path_not_allowed
 */
async function stewardOf(ctx: Context, services: Services) {
  const reception = receptionOf(services);
  const caller = callerOf(ctx);
  if (!caller.admin && caller.subject !== GATEWAY_SUBJECT)
    throw errors.path_not_allowed(
      `Expected a token with the claim admin, or for the subject ${GATEWAY_SUBJECT}; found another.`,
    );
  const { study = "" } = ctx["params"] as { study?: string };
  return { reception, reach: await reachOf(caller, services), study };
}

const listQuery = z.strictObject({
  peer: z.string().max(80).optional().describe("Only what this peer sent"),
  state: z.enum(RECEIVED_STATES).optional().describe("Only series in this state"),
  limit: z.coerce.number().int().min(1).max(1000).default(100).describe("How many at most"),
});
export const receivedListSchema = z.object({ received: z.array(receivedSchema) });

/** GET /gateway/received: what lies in the spool, by series. */
export const listReceived: Endpoint = {
  query: listQuery,
  answer: { ReceivedList: receivedListSchema },
  handler: async (ctx, services) => {
    const { reception, reach } = await stewardOf(ctx, services);
    const received = await reception.list(parseBody(listQuery, { ...ctx.query }), reach);
    ctx.body = { received } satisfies z.infer<typeof receivedListSchema>;
  },
};

/** GET /gateway/senders: what has come from whom, and what was refused. */
export const listSenders: Endpoint = {
  answer: { SenderList: sendersSchema },
  handler: async (ctx, services) => {
    const { reception, reach } = await stewardOf(ctx, services);
    ctx.body = (await reception.senders(reach)) satisfies z.infer<typeof sendersSchema>;
  },
};

export const receivedStudySchema = z.object({ received: z.array(receivedDetailsSchema) });

/** GET /gateway/received/:study: the series of a study, and what each rule says to them. */
export const showReceived: Endpoint = {
  answer: { ReceivedStudy: receivedStudySchema },
  handler: async (ctx, services) => {
    const { reception, reach, study } = await stewardOf(ctx, services);
    const received = await reception.show(study, reach);
    ctx.body = { received } satisfies z.infer<typeof receivedStudySchema>;
  },
};

const choiceQuery = z.strictObject({
  peer: z.string().max(80).optional().describe("Only what this peer sent"),
  series: z.string().max(64).optional().describe("SeriesInstanceUID; all of the study if absent"),
});
export const removedSchema = z.object({ removed: z.array(changedSchema) });
export const replaceableSchema = z.object({ replaceable: z.array(changedSchema) });

/** POST /gateway/received/:study/remove: objects leave the spool, and their UIDs are free. */
export const removeReceived: Endpoint = {
  query: choiceQuery,
  answer: { ReceivedRemoved: removedSchema },
  handler: async (ctx, services) => {
    const { reception, reach, study } = await stewardOf(ctx, services);
    const choice = parseBody(choiceQuery, { ...ctx.query });
    const removed = await reception.remove(study, choice, reach);
    ctx.body = { removed } satisfies z.infer<typeof removedSchema>;
  },
};

/** POST /gateway/received/:study/replace: corrected objects may take the place of others. */
export const replaceReceived: Endpoint = {
  query: choiceQuery,
  answer: { ReceivedReplaceable: replaceableSchema },
  handler: async (ctx, services) => {
    const { reception, reach, study } = await stewardOf(ctx, services);
    const choice = parseBody(choiceQuery, { ...ctx.query });
    const replaceable = await reception.replace(study, choice, reach);
    ctx.body = { replaceable } satisfies z.infer<typeof replaceableSchema>;
  },
};

/** POST /gateway/received/:study/complete: jobs of all that has come of a study, now. */
export const complete: Endpoint = {
  answer: { Completed: completedSchema },
  handler: async (ctx, services) => {
    const { reception, reach, study } = await stewardOf(ctx, services);
    ctx.body = { received: await reception.complete(study, reach) } satisfies z.infer<
      typeof completedSchema
    >;
  },
};
