/** Whether a destination answers: C-ECHO (PS3.4 annex A), or a query of DICOMweb. */
import { request as plainRequest } from "node:http";
import { request as tlsRequest, type RequestOptions } from "node:https";
import { durations } from "../../base/durations.js";
import { ConfigError } from "../../base/errors.js";
import { IMPLICIT_VR_LITTLE_ENDIAN } from "../../images/dicom/transfer-syntax.js";
import {
  readCredentials,
  type DestinationSettings,
  type DicomSettings,
  type StowSettings,
} from "./deliver/destination-settings.js";
import { ping, post } from "./deliver/webhook.js";
import type { WebhookSettings } from "./deliver/webhook-settings.js";
import { VERIFICATION } from "./dimse/acceptor.js";
import { STATUS } from "./dimse/command.js";
import { call } from "./dimse/requestor.js";

export interface Echo {
  ok: boolean;
  /** What it said, or what is wrong. */
  found: string;
}

/** Longer than a peer over a slow line takes, and shorter than a person waits. */
const MOST_MS = 10_000;

/** Calls a destination, and sends nothing of any patient. Never throws. */
export const echo = (name: string, settings: DestinationSettings): Promise<Echo> =>
  unlessThrown(() =>
    settings.type === "dicom" ? echoDicom(name, settings) : echoWeb(name, settings),
  );

/** Sends a webhook a signed `ping`. Never throws. @param node name of this one */
export const echoWebhook = (name: string, settings: WebhookSettings, node: string): Promise<Echo> =>
  unlessThrown(async () => {
    const posted = await post(name, settings, ping(node), AbortSignal.timeout(MOST_MS));
    return posted.state === "told"
      ? { ok: true, found: "it takes a ping" }
      : { ok: false, found: `it does not take a ping: ${withoutEnd(posted.reason)}` };
  });

async function unlessThrown(call: () => Promise<Echo>): Promise<Echo> {
  try {
    return await call();
  } catch (error) {
    const found = error instanceof Error ? error.message : String(error);
    return { ok: false, found: error instanceof ConfigError ? found : withoutEnd(found) };
  }
}

const withoutEnd = (text: string): string => text.replace(/\.$/, "");

async function echoDicom(name: string, settings: DicomSettings): Promise<Echo> {
  const { host, port, called_ae: calledAe, calling_ae: callingAe } = settings;
  const { tls } = await readCredentials(name, settings);
  const caller = await call(
    { host, port, ...(tls === undefined ? {} : { tls }) },
    {
      callingAe,
      calledAe,
      contexts: [{ abstractSyntax: VERIFICATION, transferSyntaxes: [IMPLICIT_VR_LITTLE_ENDIAN] }],
      mostData: 16_384,
      pduTimeout: MOST_MS,
      idleTimeout: MOST_MS,
    },
  );
  try {
    const context = caller.contextOf(VERIFICATION);
    // It took the association, and knows both titles
    if (context === undefined)
      return { ok: true, found: `${calledAe} takes associations, but no C-ECHO` };
    const { status } = await caller.echo(context);
    return status === STATUS.success
      ? { ok: true, found: `${calledAe} answers C-ECHO` }
      : { ok: false, found: `${calledAe} answers C-ECHO with status 0x${status.toString(16)}` };
  } finally {
    await caller.release().catch(() => caller.abort());
  }
}

async function echoWeb(name: string, settings: StowSettings): Promise<Echo> {
  const { tls, authorization } = await readCredentials(name, settings);
  const options: RequestOptions = {
    ...tls,
    signal: AbortSignal.timeout(Math.min(MOST_MS, durations.deliveryWhole)),
    headers: {
      Accept: "application/dicom+json",
      ...(authorization === undefined ? {} : { Authorization: authorization }),
    },
  };
  const status = await new Promise<number>((resolve, reject) => {
    const send = tls === undefined ? plainRequest : tlsRequest;
    const request = send(`${settings.url}/studies?limit=1`, options, (response) => {
      response.destroy();
      resolve(response.statusCode ?? 0);
    });
    request.on("error", reject);
    request.end();
  });
  if (status === 401 || status === 403)
    return { ok: false, found: `it answers ${status}: token_file or basic_file is not right` };
  if (status === 404) return { ok: false, found: "it answers 404: url is not a DICOMweb service" };
  // A store alone need not answer queries
  const isThere = (status >= 200 && status < 300) || status === 405 || status === 501;
  return { ok: isThere, found: `it answers a query with ${status}` };
}
