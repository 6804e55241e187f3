/** The gateway while it runs: what comes in, what goes out, and what is to be said of both. */
import { ConfigError, ERRORS } from "../../base/errors.js";
import { faultForLog } from "../../base/log.js";
import { counted } from "../../base/table.js";
import { leaveMark, SPOOL_MARK } from "../../files/folder-mark.js";
import { conditionsFrom, type Condition } from "../../server/condition.js";
import { REMEDIES as OF_SERVER } from "../../server/conditions.js";
import type { Core } from "../../server/feature.js";
import { delivers, DeliveryService } from "./deliver/service.js";
import type { Gateway } from "./gateway.js";
import { deliveryMetrics, receptionMetrics } from "./metrics.js";
import { ReceptionService } from "./service.js";
import { NO_GATEWAY, readGateway, receives, type GatewaySettings } from "./settings.js";

/** The words of its conditions, each with what to do. */
const REMEDIES = {
  dicom_port_closed:
    "Stop the program that has the port (EADDRINUSE), allow this user a port below 1024 (EACCES), or set another in the file of RADSERVE_GATEWAY. Radserve tries again by itself.",
  received_waiting:
    "radserve doctor and the log say more about the code. Radserve tries again by itself.",
  received_conflict:
    "Find out which of the objects is right. Correct PatientID or the UIDs at the source and send again, and remove what is wrong: radserve received list shows the studies, those of another patient as apart, and radserve received remove takes one. The condition ends then.",
  received_share_full: ERRORS.spool_share_full.remedy,
  sender_refused:
    "The log (a sender is refused again and again) and the page's view Gateway name it. Correct its settings or its token, or peers and dicom.ae_title in the file of RADSERVE_GATEWAY, and run radserve models reload. The warning ends when the sender is let in, or an hour after its last try.",
  destination_away:
    "radserve deliver list says why. Check that it runs and can be reached from this server. Radserve tries again by itself.",
  delivery_set_aside:
    "radserve deliver list says which and why. Correct the cause, then run radserve deliver retry, with --to for another destination; radserve deliver drop gives it up.",
  webhook_away:
    "Check that it runs, can be reached from this server, and has the same secret (radserve gateway echo). Radserve tries again by itself; results are delivered all the same.",
  webhook_given_up:
    "radserve deliver list says which. When the webhook takes messages, run radserve deliver retry --all, or radserve deliver drop ID where nobody needs them.",
  delivery_unreadable:
    "The log names each file, which lies in the folder deliveries. Put it back from a backup, or remove it and run radserve deliver scan, which makes the queue again from the results' own files.",
  result_untrusted:
    "If they are yours, run radserve adopt on their folders: that computes them again and signs what is equal. Results of 0.6 need radserve adopt --without-replay (docs/operations.md, upgrading from 0.6). Remove the others.",
  gateway_file_refused:
    "Correct the file of RADSERVE_GATEWAY, and run radserve models reload (SIGHUP). The file of before stays in force until then.",
} as const;

const of = conditionsFrom({
  ...REMEDIES,
  // The port for DICOM has certificates, too
  certificate_expires: OF_SERVER.certificate_expires,
  certificate_refused: OF_SERVER.certificate_refused,
});

/** Undefined where nothing comes in, and nothing goes out or waits for that. @throws ConfigError */
export async function startGateway(core: Core): Promise<Gateway | undefined> {
  const { config, roots, audit, jobs, log } = core;
  const settings = (await readGateway(config)) ?? NO_GATEWAY;
  let inForce = settings;
  let refused: string | undefined;
  // What waits for a destination that is not named any more has to be told, too
  const outgoing = delivers(settings, config)
    ? new DeliveryService({ config, settings, outputRoots: roots.output, audit, log })
    : undefined;
  // A worker takes no requests, of no kind
  const incoming =
    config.role === "worker" || !receives(settings)
      ? undefined
      : new ReceptionService({ config, settings, bulk: jobs, audit, log });
  if (incoming === undefined && outgoing === undefined && settings.spool === undefined)
    return undefined;
  await markSpool(settings.spool, log);
  return {
    reception: incoming,
    deliveries: outgoing,
    sending: outgoing,
    spool: settings.spool,
    metrics: [
      ...(incoming === undefined ? [] : receptionMetrics(incoming)),
      ...(outgoing === undefined ? [] : deliveryMetrics(outgoing)),
    ],
    conditions: () => [
      ...(refused === undefined ? [] : [of("gateway_file_refused", "gateway", refused)]),
      ...troublesOf(incoming).filter(isWrongHere),
      ...undelivered(outgoing),
    ],
    warnings: () => troublesOf(incoming).filter((one) => !isWrongHere(one)),
    async reload() {
      try {
        const next = (await readGateway(config)) ?? NO_GATEWAY;
        refused = undefined;
        const later = laterFields(inForce, next);
        // The port and its spool are opened, and closed, by a start
        if (receives(settings) !== receives(next)) later.push("rules");
        inForce = next;
        // No rules and no peers are in force, too: nobody is let in whom the file does not name
        await incoming?.reload({ ...next, spool: incoming.spool });
        log.info({ rules: next.rules.length }, "the gateway's file was read again");
        if (later.length > 0)
          log.warn(
            { fields: later },
            "changes of the gateway's file that count from the next start on",
          );
      } catch (error) {
        if (!(error instanceof ConfigError)) throw error;
        refused = error.message;
        log.error(
          { why: error.message },
          "the gateway's file is wrong: the one of before stays in force",
        );
      }
    },
    async leave() {
      await incoming?.close();
      outgoing?.hurry();
    },
    async close() {
      await outgoing?.close();
    },
  };
}

/** Nodes that have no gateway, and share the spool, know it by its mark. */
async function markSpool(spool: string | undefined, log: Core["log"]): Promise<void> {
  if (spool === undefined) return;
  await leaveMark(spool, SPOOL_MARK).catch((error: unknown) =>
    log.warn(
      { fault: faultForLog(error) },
      `the spool could not be marked (${SPOOL_MARK}): nodes without the gateway do not know it`,
    ),
  );
}

/** What a start alone opens: a changed one is told, and waits. */
const LATER = ["spool", "peer_share", "destinations", "deliver", "webhooks"] as const;
const OF_PORT = ["port", "host", "tls", "associations"] as const;

function laterFields(before: GatewaySettings, next: GatewaySettings): string[] {
  const differ = (a: unknown, b: unknown) => JSON.stringify(a) !== JSON.stringify(b);
  return [
    ...LATER.filter((field) => differ(before[field], next[field])),
    ...OF_PORT.filter((field) => differ(before.dicom?.[field], next.dicom?.[field])).map(
      (field) => `dicom.${field}`,
    ),
  ];
}

const troublesOf = (reception: ReceptionService | undefined): Condition[] =>
  (reception?.figures.troubles ?? []).map(({ condition, where, message }) =>
    of(condition, where, message),
  );

/**
 * A refused sender is a warning: whoever can reach the port could otherwise make this server look
 * broken.
 */
const isWrongHere = ({ condition }: Condition): boolean => condition !== "sender_refused";

function undelivered(deliveries: DeliveryService | undefined): Condition[] {
  if (deliveries === undefined) return [];
  const { destinations, webhooks, untrusted, unreadable } = deliveries.figures;
  const untold = Object.entries(webhooks).flatMap(([name, { due, given_up, away_since }]) => {
    const where = `webhook ${name}`;
    const found: Condition[] = [];
    if (away_since !== null && due > 0) {
      const message = `${name} has taken no message since ${away_since}; waiting: ${counted(due, "message")}.`;
      found.push(of("webhook_away", where, message));
    }
    if (given_up > 0) {
      const message = `${name}: ${counted(given_up, "message")} given up.`;
      found.push(of("webhook_given_up", where, message));
    }
    return found;
  });
  const waits = Object.entries(destinations).flatMap(([name, one]) => {
    const where = `destination ${name}`;
    const found: Condition[] = [];
    const away = (did: string, since: string | null, waiting: number) => {
      if (since === null || waiting === 0) return;
      const message = `${name} has ${did} since ${since}; waiting: ${counted(waiting, "object")}.`;
      found.push(of("destination_away", where, message));
    };
    if (one.away_since !== null && one.waiting > 0)
      away("accepted nothing", one.away_since, one.waiting);
    else away("answered no question for a proof", one.silent_since, one.sent);
    if (one.set_aside > 0) {
      const message = `${name}: ${counted(one.set_aside, "object")} set aside.`;
      found.push(of("delivery_set_aside", where, message));
    }
    return found;
  });
  const ofQueue: Condition[] = [];
  const tell = (condition: "result_untrusted" | "delivery_unreadable", message: string) =>
    ofQueue.push(of(condition, "deliveries", message));
  if (untrusted > 0)
    tell(
      "result_untrusted",
      `Results that wait to be delivered and are not trusted: ${untrusted}.`,
    );
  if (unreadable > 0)
    tell(
      "delivery_unreadable",
      `Files of the queue of deliveries that cannot be read: ${unreadable}. What they name is not sent.`,
    );
  return [...waits, ...untold, ...ofQueue];
}
