/**
 * Images in by HTTP as DICOM has it (STOW-RS), and studies that are said to be complete; only where
 * there is a gateway.
 */
import { z } from "zod";
import { errors } from "../../../base/errors.js";
import { GATEWAY } from "../gateway.js";
import type { ReceptionService } from "../service.js";
import { GATEWAY_SUBJECT } from "../subject.js";
import { shuttingDown } from "../../../inference/worker-pool.js";
import { piecesOf } from "../../../server/file-transfer.js";
import { callerOf, rootsOf } from "../../../server/handlers.js";
import { type Context, type Endpoint, type Services } from "../../../server/services.js";
import type { Caller } from "../../../server/tokens.js";
import { UNMADE } from "./marks.js";
import type { Reach } from "./reach.js";

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
  const parameter = (name: string) => {
    const [, quoted, plain] =
      new RegExp(`;\\s*${name}=(?:"([^"]{1,250})"|([^\\s;"]{1,250}))`, "i").exec(given) ?? [];
    return quoted ?? plain;
  };
  const boundary = parameter("boundary");
  if (
    !/^multipart\/related\s*;/i.test(given) ||
    parameter("type")?.toLowerCase() !== "application/dicom"
  )
    throw errors.unsupported_format(
      'Expected Content-Type multipart/related with type="application/dicom"; found another.',
    );
  // RFC 2046 has 70 characters at most, and Orthanc sends 73
  if (boundary === undefined || !/^[\x20-\x7e]{1,200}$/.test(boundary))
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
    await reception.requireReach(caller.subject, await reachOf(caller, services));
    const { status, body } = await reception.store(
      caller.subject,
      ctx.state.address,
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

/** POST /gateway/received/:study/complete: jobs of all that has come of a study, now. */
export const complete: Endpoint = {
  answer: { Completed: completedSchema },
  handler: async (ctx, services) => {
    const reception = receptionOf(services);
    const caller = callerOf(ctx);
    const { admin, subject } = caller;
    if (!admin && subject !== GATEWAY_SUBJECT)
      throw errors.path_not_allowed(
        `Expected a token with the claim admin, or for the subject ${GATEWAY_SUBJECT}; found another.`,
      );
    const reach = await reachOf(caller, services);
    const { study = "" } = ctx["params"] as { study?: string };
    ctx.body = { received: await reception.complete(study, reach) } satisfies z.infer<
      typeof completedSchema
    >;
  },
};
