/**
 * kill -9 while images come in: what was acknowledged is there, whole and once; every series is a
 * job, and no set of objects is two.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Job } from "../../../src/jobs/schema.js";
import { Client } from "../../../src/commands/client.js";
import { GATEWAY_SUBJECT } from "../../../src/features/gateway/subject.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { linesOf } from "../../support/audit.js";
import { associate, filesBelow, object } from "../../support/gateway.js";
import { freePort, issueToken, type Place } from "../../support/server.js";
import { allJobs } from "../lib/job.js";
import { ServingNode } from "../lib/node.js";
import { Killer, processesOf } from "../lib/killing.js";
import { seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";

/** Objects of a series; each series is a study. */
const OF_SERIES = 10;
const LONGEST_MS = 600_000;

/**
 * Sends slices of a series until each was acknowledged, over as many associations as that takes.
 */
export async function sendUntilKept(
  port: number,
  study: string,
  series: string,
  slices: Iterable<number>,
  attributes: Record<string, string> = {},
): Promise<void> {
  const left = new Set(slices);
  while (left.size > 0) {
    try {
      const caller = await associate(port);
      for (const z of left) {
        const uids = {
          StudyInstanceUID: study,
          SeriesInstanceUID: series,
          SOPInstanceUID: `${series}.${z}`,
          ...attributes,
        };
        if ((await caller.store(object(z, uids))).status === 0) left.delete(z);
      }
      await caller.release();
    } catch {
      // It was killed: again, from the first object that was not acknowledged
      await delay(100);
    }
  }
}

async function receiveWhileDying(options: Options): Promise<Outcome> {
  const began = performance.now();
  const port = await freePort();
  const prepare = ({ input, output, directory }: Place) => {
    const file = path.join(directory, "gateway.json");
    mkdirSync(path.join(input, "spool"));
    const rule = {
      name: "all",
      quiet: "2s",
      // A kill between the last object and the release: nobody sends such a series again
      resend: "6s",
      models: ["ct-tissue"],
      outputs: ["json"],
      output_folder: path.join(output, "received"),
    };
    const gateway = {
      spool: path.join(input, "spool"),
      dicom: { port },
      peers: { ct1: { ae_title: "CT ONE" } },
      rules: [rule],
    };
    writeFileSync(file, JSON.stringify(gateway));
    return { RADSERVE_GATEWAY: file, RADSERVE_JOB_REPORTS: "off" };
  };
  const node = await ServingNode.start({ prepare });
  const killer = new Killer(processesOf(node), options);
  const faults: string[] = [];
  try {
    const client = new Client(node.url, await issueToken(node.place, "--subject", GATEWAY_SUBJECT));
    killer.start();
    let sent = 0;
    for (; sent < options.items || killer.kills < options.kills; sent += OF_SERIES) {
      const study = `1.2.826.${1_000 + sent / OF_SERIES}`;
      await sendUntilKept(port, study, `${study}.1`, Array(OF_SERIES).keys());
    }
    await killer.stop();
    const kept = objectsIn(path.join(node.input, "spool"));
    if (kept !== sent)
      faults.push(`${kept} objects in the spool of ${sent} that were acknowledged`);
    const whole = await jobsOfAll(client, sent / OF_SERIES, OF_SERIES, [node.place]);
    for (const [folder, jobs] of whole)
      if (jobs.length !== 1) faults.push(`${jobs.length} jobs of all objects of ${folder}`);
      else if (jobs[0]?.counts.succeeded !== 1)
        faults.push(`${folder}: ${JSON.stringify(jobs[0]?.counts)}`);
    if (whole.size !== sent / OF_SERIES)
      faults.push(`${whole.size} series with a job of ${sent / OF_SERIES}`);
    const slices = slicesOf(path.join(node.output, "received"));
    if (slices !== sent) faults.push(`receipts of ${slices} slices of ${sent}`);
    const killed = Object.entries(killer.killed)
      .map(([name, count]) => `${name} ${count}`)
      .join(", ");
    return {
      summary: `${sent} objects in ${whole.size} series, killed: ${killed}; ${seconds(began)}`,
      faults,
    };
  } finally {
    await killer.stop();
    await node.stop();
    await node.remove();
  }
}

/** Objects in a spool; notes of receptions that were interrupted lie beside them. */
export const objectsIn = (spool: string): number =>
  filesBelow(path.join(spool, "series")).filter((name) => name.endsWith(".dcm")).length;

/** Paths of the receipts below a folder, in it: not of files and folders that are hidden. */
export const receiptsBelow = (results: string): string[] =>
  filesBelow(results).filter((name) => name.endsWith(".json") && !/(^|\/)\./.test(name));

/**
 * Slices in the receipts of series, each once: what came of a series before the rest of its study
 * has a receipt by the name of the study beside it, and a slice that was alone for a while one of
 * its own.
 */
export const slicesOf = (results: string): number =>
  new Set(
    receiptsBelow(results)
      .map((name) =>
        receiptSchema.parse(JSON.parse(readFileSync(path.join(results, name), "utf8"))),
      )
      .flatMap(({ source }) => source.slices?.map(({ sop_instance_uid: uid }) => uid) ?? []),
  ).size;

/**
 * The jobs that were made of whole groups, by their folders, once each group has an ended one.
 * @param whole objects of a group
 * @param places of all nodes
 */
export async function jobsOfAll(
  client: Client,
  groups: number,
  whole: number,
  places: readonly Place[],
): Promise<Map<string, Job[]>> {
  for (const end = Date.now() + LONGEST_MS; ;) {
    const jobs = await allJobs(client);
    const submitted = places
      .flatMap(linesOf)
      .filter(({ kind, count }) => kind === "submitted" && count === whole);
    const ids = new Set(submitted.map(({ job_id: id }) => id));
    const folders = new Map<string, Job[]>();
    for (const job of jobs.filter(({ job_id: id }) => ids.has(id))) {
      const folder = job.request.input_folder_path ?? "";
      folders.set(folder, [...(folders.get(folder) ?? []), job]);
    }
    const open = jobs.some(({ finished_at }) => finished_at === null);
    if ((folders.size >= groups && !open) || Date.now() > end) return folders;
    await delay(500);
  }
}

export const gateway: Record<string, Scenario> = {
  gateway: {
    description: "kill -9 of supervisor and serving process while series come in by C-STORE",
    run: receiveWhileDying,
  },
};
