/** kill -9 of ours, and a PACS that goes and comes, while results go out: each object is there and proven, and none is sent after that. */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { deliveryName } from "../../../src/files/helper-names.js";
import { readDelivery } from "../../../src/results/receipt/delivery.js";
import { receiptName } from "../../../src/results/receipt/names.js";
import { filesBelow } from "../../support/doors.js";
import type { Place } from "../../support/server.js";
import { webPacs, type WebPacs } from "../../support/web-pacs.js";
import { Box } from "../lib/box.js";
import { writeImages } from "../lib/images.js";
import { CrashJob } from "../lib/job.js";
import { Killer } from "../lib/killing.js";
import { slay } from "../lib/processes.js";
import { notAllSucceeded, seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";

const LONGEST_MS = 600_000;
const AWAY_MS = 1_000;

/** The PACS takes nothing for a moment, and breaks off what it was sent. */
function leave(pacs: WebPacs): boolean {
  void (async () => {
    await pacs.stop();
    await delay(AWAY_MS);
    await pacs.start();
  })();
  return true;
}

async function deliverWhileDying(options: Options): Promise<Outcome> {
  const began = performance.now();
  const ends: (() => Promise<void>)[] = [];
  const pacs = await webPacs({ teardown: (end) => void ends.push(end) });
  const prepare = ({ directory, input }: Place) => {
    const [file, spool] = [path.join(directory, "doors.json"), path.join(input, "spool")];
    mkdirSync(spool);
    const destinations = { pacs: { type: "stow", url: pacs.url, timeout: "20s" } };
    writeFileSync(file, JSON.stringify({ spool, destinations, deliver: ["pacs"] }));
    return { RADSERVE_DOORS: file, RADSERVE_JOB_REPORTS: "off" };
  };
  const box = await Box.start({ prepare });
  const killer = new Killer(
    {
      supervisor: () => box.supervisor() !== undefined && slay(box.supervisor()!),
      "serving process": () => box.serving() !== undefined && slay(box.serving()!),
      PACS: () => leave(pacs),
    },
    options,
  );
  const faults: string[] = [];
  let items = 0;
  try {
    killer.start();
    const jobs: CrashJob[] = [];
    for (; items < options.items || killer.kills < options.kills; items += options.items) {
      const [input, output] = [path.join(box.input, `in-${items}`), path.join(box.output, `out-${items}`)];
      writeImages(input, options.items, { first: items });
      const folders = { input_folder_path: input, output_folder_path: output };
      const job = await CrashJob.submit(box, `job-${items}`, { ...folders, outputs: ["sr"] });
      faults.push(...notAllSucceeded(await job.untilEnded(), options.items));
      jobs.push(job);
    }
    await killer.stop();
    faults.push(...(await notDelivered(box.output, items, pacs)));
    const killed = Object.entries(killer.killed).map(([name, count]) => `${name} ${count}`);
    const again = pacs.sent.length - pacs.kept.size;
    return {
      summary: `${items} objects, killed: ${killed.join(", ")}; ${again} were sent again before they were proven; ${seconds(began)}`,
      faults,
    };
  } finally {
    await killer.stop();
    await box.stop();
    await box.remove();
    for (const end of ends) await end();
  }
}

/** What is not as it was promised, once everything is proven, or the time is over. */
async function notDelivered(output: string, count: number, pacs: WebPacs): Promise<string[]> {
  const receipts = filesBelow(output).filter((file) => file.endsWith(receiptName("")) && !/\/\./.test(file));
  const faults = receipts.length === count ? [] : [`${receipts.length} receipts of ${count}`];
  const end = Date.now() + LONGEST_MS;
  for (const receipt of receipts) {
    const { dir, name } = path.parse(path.join(output, receipt));
    const file = path.join(dir, deliveryName(name));
    for (;;) {
      const delivery = existsSync(file) ? await readDelivery(file) : undefined;
      const [object] = delivery?.destinations["pacs"] ?? [];
      if (object?.state === "proven") {
        const { sop_instance_uid: uid, at } = object;
        if (!pacs.kept.has(uid)) faults.push(`${receipt}: proven, and not there`);
        if ((pacs.sentAt.get(uid) ?? 0) > Date.parse(at)) faults.push(`${receipt}: sent after it was proven`);
        break;
      }
      if (Date.now() > end || (object !== undefined && !["waiting", "sent"].includes(object.state))) {
        faults.push(`${receipt}: ${object?.state ?? "not asked for"}`);
        break;
      }
      await delay(100);
    }
  }
  if (pacs.kept.size !== count) faults.push(`${pacs.kept.size} objects in the PACS of ${count}`);
  return faults;
}

export const deliveries: Record<string, Scenario> = {
  deliveries: {
    description: "kill -9 of supervisor and serving process, and a PACS that goes, while results go out",
    run: deliverWhileDying,
  },
};
