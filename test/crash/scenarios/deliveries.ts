/**
 * kill -9 of ours, and a PACS that goes and comes, while results go out: each object is there and
 * proven, and none is sent after that.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { deliveryName } from "../../../src/files/helper-names.js";
import { readDeliveryFile } from "../../../src/results/receipt/delivery.js";
import { receiptName } from "../../../src/results/receipt/names.js";
import { filesBelow } from "../../support/gateway.js";
import { commandsAre, needs } from "../../support/needs.js";
import { DICOM_WEB_PLUGIN } from "../../support/pacs.js";
import type { Place } from "../../support/server.js";
import { webPacs, type WebPacs } from "../../support/web-pacs.js";
import { ServingNode } from "../lib/node.js";
import { writeImages } from "../lib/images.js";
import { CrashJob } from "../lib/job.js";
import { Killer, processesOf, type Victims } from "../lib/killing.js";
import { CrashOrthanc } from "../lib/orthanc.js";
import { SharedPostgres } from "../lib/postgres.js";
import {
  notAllSucceeded,
  seconds,
  type Options,
  type Outcome,
  type Scenario,
} from "../lib/scenario.js";
import { secondNode } from "./kills.js";

const LONGEST_MS = 600_000;
const AWAY_MS = 1_000;

const away = new WeakSet<WebPacs>();

/**
 * The PACS takes nothing for a moment, and breaks off what it was sent. @returns false while it is
 * away
 */
export function leave(pacs: WebPacs): boolean {
  if (away.has(pacs)) return false;
  away.add(pacs);
  void (async () => {
    await pacs.stop();
    await delay(AWAY_MS);
    await pacs.start();
    away.delete(pacs);
  })();
  return true;
}

/** The gateway's file in a place, whose queue lies below `input`. */
function gatewayFile({ directory }: Place, input: string, url: string): Record<string, string> {
  const [file, spool] = [path.join(directory, "gateway.json"), path.join(input, "spool")];
  mkdirSync(spool, { recursive: true });
  const destinations = { pacs: { type: "stow", url, timeout: "20s" } };
  writeFileSync(file, JSON.stringify({ spool, destinations, deliver: ["pacs"] }));
  return { RADSERVE_GATEWAY: file, RADSERVE_JOB_REPORTS: "off" };
}

async function oneNode(options: Options): Promise<Outcome> {
  const ends: (() => Promise<void>)[] = [];
  const pacs = await webPacs({ teardown: (end) => void ends.push(end) });
  const node = await ServingNode.start({
    prepare: (place) => gatewayFile(place, place.input, pacs.url),
  });
  try {
    return await deliverWhileDying(
      node,
      {
        ...processesOf(node),
        PACS: () => leave(pacs),
      },
      { ...pacs, instances: () => Promise.resolve(new Set(pacs.kept.keys())) },
      options,
    );
  } finally {
    await node.stop();
    await node.remove();
    for (const end of ends) await end();
  }
}

/** Whoever of the two sends to the Orthanc is killed again and again, and the other one goes on. */
async function twoNodes(options: Options): Promise<Outcome> {
  const pacs = await CrashOrthanc.start();
  const postgres = await SharedPostgres.start();
  let input: string | undefined;
  const prepare = (place: Place) => gatewayFile(place, (input ??= place.input), pacs.url);
  const first = await ServingNode.start({ prepare, settings: { DATABASE_URL: postgres.url } });
  const second = await secondNode(first, postgres.url, { prepare });
  try {
    return await deliverWhileDying(
      first,
      {
        ...processesOf(first, " of the first"),
        ...processesOf(second, " of the second"),
        PostgreSQL: () => postgres.kill(),
        Orthanc: () => pacs.kill(),
      },
      pacs,
      options,
    );
  } finally {
    await Promise.all([first.stop(), second.stop()]);
    await postgres.stop();
    await pacs.stop();
    for (const node of [second, first]) await node.remove();
  }
}

/** What a PACS says of itself. */
interface Pacs {
  sent: readonly string[];
  sentAt: ReadonlyMap<string, number>;
  instances: () => Promise<ReadonlySet<string>>;
}

async function deliverWhileDying(
  node: ServingNode,
  victims: Victims,
  pacs: Pacs,
  options: Options,
): Promise<Outcome> {
  const began = performance.now();
  const killer = new Killer(victims, options);
  const faults: string[] = [];
  let items = 0;
  try {
    killer.start();
    for (; items < options.items || killer.kills < options.kills; items += options.items) {
      const [input, output] = [
        path.join(node.input, `in-${items}`),
        path.join(node.output, `out-${items}`),
      ];
      writeImages(input, options.items, { first: items });
      const folders = { input_folder_path: input, output_folder_path: output };
      const job = await CrashJob.submit(node, `job-${items}`, { ...folders, outputs: ["sr"] });
      faults.push(...notAllSucceeded(await job.untilEnded(), options.items));
    }
    await killer.stop();
    faults.push(...(await notDelivered(node.output, items, pacs)));
    const killed = Object.entries(killer.killed).map(([name, count]) => `${name} ${count}`);
    const again = pacs.sent.length - pacs.sentAt.size;
    return {
      summary: `${items} objects, killed: ${killed.join(", ")}; ${again} were sent again before they were proven; ${seconds(began)}`,
      faults,
    };
  } finally {
    await killer.stop();
  }
}

/** What is not as it was promised, once everything is proven, or the time is over. */
async function notDelivered(output: string, count: number, pacs: Pacs): Promise<string[]> {
  const receipts = filesBelow(output).filter(
    (file) => file.endsWith(receiptName("")) && !/\/\./.test(file),
  );
  const faults = receipts.length === count ? [] : [`${receipts.length} receipts of ${count}`];
  const proven = new Map<string, string>();
  const end = Date.now() + LONGEST_MS;
  for (const receipt of receipts) {
    const { dir, name } = path.parse(path.join(output, receipt));
    const file = path.join(dir, deliveryName(name));
    for (;;) {
      const delivery = existsSync(file)
        ? (await readDeliveryFile(file, name))?.delivery
        : undefined;
      const [object] = delivery?.destinations["pacs"] ?? [];
      if (object?.state === "proven") {
        const { sop_instance_uid: uid, at } = object;
        proven.set(receipt, uid);
        if ((pacs.sentAt.get(uid) ?? 0) > Date.parse(at))
          faults.push(`${receipt}: sent after it was proven`);
        break;
      }
      if (
        Date.now() > end ||
        (object !== undefined && !["waiting", "sent"].includes(object.state))
      ) {
        faults.push(`${receipt}: ${object?.state ?? "not asked for"}`);
        break;
      }
      await delay(100);
    }
  }
  const kept = await pacs.instances();
  for (const [receipt, uid] of proven)
    if (!kept.has(uid)) faults.push(`${receipt}: proven, and not there`);
  if (kept.size !== count) faults.push(`${kept.size} objects in the PACS of ${count}`);
  return faults;
}

export const deliveries: Record<string, Scenario> = {
  deliveries: {
    description:
      "kill -9 of supervisor and serving process, and a PACS that goes, while results go out",
    run: oneNode,
  },
  "deliveries-two-nodes": {
    description:
      "kill -9 of two nodes with one queue of deliveries, of their PostgreSQL and of the Orthanc",
    skip: () => needs(DICOM_WEB_PLUGIN) || commandsAre("Orthanc"),
    run: twoNodes,
  },
};
