/**
 * Lines of the audit about requests: each request with a good token, unless its route says
 * otherwise, and refused tokens.
 */
import { Action } from "../audit/action.js";
import type { Audit } from "../audit/audit.js";
import { asRadserveError } from "../base/errors.js";
import type { Context } from "./services.js";
import type { Route } from "./route.js";
import { TokenRefused } from "./tokens.js";

/**
 * Values of parameters that stand in the audit as they were sent: states, numbers and cursors, and
 * nothing that could be a name.
 */
const PLAIN = /^[\w-]{1,40}$/;
/** Parameters that may name a patient or a study, whatever they look like. */
const NAMES: ReadonlySet<string> = new Set(["path", "input_path", "patient", "text"]);
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Checks who calls, and writes down refusals. @throws what `access` throws */
export async function admitted(
  ctx: Context,
  route: Route,
  audit: Audit,
  access: () => Promise<void>,
): Promise<void> {
  try {
    await access();
  } catch (error) {
    const refused = asRadserveError(error);
    const { reason, who } =
      refused.cause instanceof TokenRefused
        ? refused.cause
        : { reason: refused.code, who: ctx.state.caller };
    audit.refusals.add({
      address: ctx.state.address,
      reason,
      endpoint: ctx.state.route,
      request_id: ctx.state.requestId,
      subject: who?.subject,
      jti: who?.jti,
    });
    throw error;
  }
  if (ctx.state.caller !== undefined && route.audited !== false)
    ctx.state.action = new Action(audit, about(ctx, route));
}

function about(ctx: Context, route: Route): ConstructorParameters<typeof Action>[1] {
  const { address, caller, requestId } = ctx.state;
  const { id } = ctx["params"] as { id?: string };
  const query = Object.keys(route.query?.shape ?? {})
    .filter((name) => !NAMES.has(name))
    .map((name) => [name, ctx.query[name]] as const)
    .filter(
      (pair): pair is readonly [string, string] =>
        typeof pair[1] === "string" && PLAIN.test(pair[1]),
    );
  return {
    kind: route.auditedAs ?? "page",
    endpoint: ctx.state.route,
    request_id: requestId,
    ...(caller === undefined ? {} : { subject: caller.subject }),
    ...(caller?.jti === undefined ? {} : { jti: caller.jti }),
    ...(caller?.signedIn === undefined ? {} : { signed_in: caller.signedIn }),
    ...(address === undefined ? {} : { address }),
    ...(id !== undefined && UUID.test(id) ? { job_id: id.toLowerCase() } : {}),
    ...(query.length === 0
      ? {}
      : { query: new URLSearchParams(Object.fromEntries(query)).toString() }),
  };
}

/**
 * Does the work of an endpoint between its lines. One that changes something has a line before, so
 * that nothing is changed that could not be written down; one that tells something gives no answer
 * before its line is on the disk. An inference has its line before its result appears.
 * @throws what `work` throws; RadserveError audit_failed
 */
export async function recorded(
  { state }: Context,
  route: Route,
  work: () => Promise<void>,
): Promise<void> {
  const { action } = state;
  if (action === undefined) return work();
  const changes = route.method !== "GET" && route.auditedAs !== "inference";
  if (changes) await action.asked();
  try {
    await work();
  } catch (error) {
    // The refusal is answered all the same: it gives nothing out
    await action.failed(asRadserveError(error)).catch(() => undefined);
    throw error;
  }
  await action.done().catch((error: unknown) => {
    if (!changes) throw error;
  });
}
