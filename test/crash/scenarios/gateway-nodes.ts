/**
 * Two nodes with one spool, one queue of deliveries and one PostgreSQL, and an Orthanc that results
 * go to; everything is killed. Studies come to both nodes, half of each to either and some objects
 * to both at once: each object is kept once, each study is one job of all its objects, and each
 * result is in the Orthanc, proven, and not sent after that.
 */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "../../../src/commands/client.js";
import { GATEWAY_SUBJECT } from "../../../src/features/gateway/subject.js";
import { deliveryName } from "../../../src/files/helper-names.js";
import { readDeliveryFile } from "../../../src/results/receipt/delivery.js";
import { commandsAre, needs } from "../../support/needs.js";
import { DICOM_WEB_PLUGIN } from "../../support/pacs.js";
import { freePort, issueToken, type Place } from "../../support/server.js";
import { ServingNode } from "../lib/node.js";
import { Killer, processesOf } from "../lib/killing.js";
import { CrashOrthanc } from "../lib/orthanc.js";
import { SharedPostgres } from "../lib/postgres.js";
import { seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";
import { jobsOfAll, objectsIn, receiptsBelow, sendUntilKept, slicesOf } from "./gateway.js";
import { secondNode } from "./kills.js";

const SERIES = 2;
const OF_SERIES = 6;
const OF_STUDY = SERIES * OF_SERIES;
const LONGEST_MS = 600_000;

/** The slices of a series that go to a node; every third goes to both. */
const slicesFor = (node: number) =>
  [...Array(OF_SERIES).keys()].filter((z) => z % 3 === 0 || z % 3 === node + 1);

async function bothWays(options: Options): Promise<Outcome> {
  const began = performance.now();
  const pacs = await CrashOrthanc.start();
  const postgres = await SharedPostgres.start();
  const ports = [await freePort(), await freePort()];
  let shared: Place | undefined;
  const prepare = (place: Place) => {
    shared ??= place;
    const [file, spool] = [
      path.join(place.directory, "gateway.json"),
      path.join(shared.input, "spool"),
    ];
    mkdirSync(spool, { recursive: true });
    const rule = {
      name: "all",
      group: "study",
      quiet: "2s",
      resend: "6s",
      models: ["ct-tissue"],
      outputs: ["sr"],
      output_folder: path.join(shared.output, "received"),
    };
    const gateway = {
      spool,
      dicom: { port: ports[place === shared ? 0 : 1] },
      peers: { ct1: { ae_title: "CT ONE" } },
      rules: [rule],
      destinations: { pacs: { type: "stow", url: pacs.url, timeout: "20s" } },
      deliver: ["pacs"],
    };
    writeFileSync(file, JSON.stringify(gateway));
    return { RADSERVE_GATEWAY: file, RADSERVE_JOB_REPORTS: "off" };
  };
  const first = await ServingNode.start({ prepare, settings: { DATABASE_URL: postgres.url } });
  const second = await secondNode(first, postgres.url, { role: "both", prepare });
  const nodes = [first, second];
  const killer = new Killer(
    {
      ...processesOf(first, " of the first"),
      ...processesOf(second, " of the second"),
      PostgreSQL: () => postgres.kill(),
      Orthanc: () => pacs.kill(),
    },
    options,
  );
  const faults: string[] = [];
  try {
    const client = new Client(
      first.url,
      await issueToken(first.place, "--subject", GATEWAY_SUBJECT),
    );
    killer.start();
    let sent = 0;
    for (; sent < options.items || killer.kills < options.kills; sent += OF_STUDY) {
      const study = `1.2.826.${1_000 + sent / OF_STUDY}`;
      const series = Array.from({ length: SERIES }, (_, i) => `${study}.${i + 1}`);
      await Promise.all(
        ports.map(async (port, node) => {
          for (const one of series) await sendUntilKept(port, study, one, slicesFor(node));
        }),
      );
    }
    await killer.stop();
    const kept = objectsIn(path.join(first.input, "spool"));
    if (kept !== sent)
      faults.push(`${kept} objects in the spool of ${sent} that were acknowledged`);
    const places = nodes.map(({ place }) => place);
    const whole = await jobsOfAll(client, sent / OF_STUDY, OF_STUDY, places);
    if (whole.size !== sent / OF_STUDY)
      faults.push(`${whole.size} studies with a job of ${sent / OF_STUDY}`);
    for (const [folder, jobs] of whole)
      if (jobs.length !== 1) faults.push(`${jobs.length} jobs of all objects of ${folder}`);
      else if (jobs[0]?.counts.succeeded !== SERIES)
        faults.push(`${folder}: ${JSON.stringify(jobs[0]?.counts)}`);
    const results = path.join(first.output, "received");
    const slices = slicesOf(results);
    if (slices !== sent) faults.push(`receipts of ${slices} slices of ${sent}`);
    faults.push(...(await notDelivered(results, path.join(first.input, "spool/deliveries"), pacs)));
    const killed = Object.entries(killer.killed).map(([name, count]) => `${name} ${count}`);
    const again = pacs.sent.length - pacs.sentAt.size;
    return {
      summary: `${sent} objects in ${whole.size} studies, ${pacs.sentAt.size} results delivered, ${again} sent again before they were proven; killed: ${killed.join(", ")}; ${seconds(began)}`,
      faults,
    };
  } finally {
    await killer.stop();
    await Promise.all(nodes.map((node) => node.stop()));
    await postgres.stop();
    await pacs.stop();
    for (const node of [second, first]) await node.remove();
  }
}

/**
 * What is not as it was promised, once the queue is empty or the time is over.
 * @param queue the folder of the deliveries in the spool
 * @param clocks milliseconds by which the clocks of nodes are wrong, at most
 */
export async function notDelivered(
  results: string,
  queue: string,
  pacs: { sentAt: ReadonlyMap<string, number>; instances: () => Promise<ReadonlySet<string>> },
  clocks = 0,
): Promise<string[]> {
  const waiting = () => readdirSync(queue).filter((name) => name.endsWith(".json"));
  for (const end = Date.now() + LONGEST_MS; waiting().length > 0 && Date.now() < end;)
    await delay(200);
  const faults = waiting().map((name) => `${name} is in the queue`);
  const kept = await pacs.instances();
  for (const uid of pacs.sentAt.keys())
    if (!kept.has(uid)) faults.push(`${uid}: sent, and not in the PACS`);
  if (kept.size !== pacs.sentAt.size)
    faults.push(`${kept.size} objects in the PACS of ${pacs.sentAt.size}`);
  for (const receipt of receiptsBelow(results)) {
    const { dir, name } = path.parse(path.join(results, receipt));
    const file = path.join(dir, deliveryName(name));
    const delivery = existsSync(file) ? (await readDeliveryFile(file, name))?.delivery : undefined;
    const objects = delivery?.destinations["pacs"] ?? [];
    if (objects.length === 0) faults.push(`${receipt}: not asked for`);
    for (const { state, sop_instance_uid: uid, at } of objects) {
      if (state !== "proven") faults.push(`${receipt}: ${state}`);
      if ((pacs.sentAt.get(uid) ?? 0) > Date.parse(at) + clocks)
        faults.push(`${receipt}: sent after it was proven`);
    }
  }
  return faults;
}

export const gatewayNodes: Record<string, Scenario> = {
  "gateway-two-nodes": {
    description:
      "kill -9 of two nodes with one spool, of their PostgreSQL and of the Orthanc that results go to",
    skip: () => needs(DICOM_WEB_PLUGIN) || commandsAre("Orthanc"),
    run: bothWays,
  },
};
