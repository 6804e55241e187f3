/**
 * Three senders bring mixed studies at once, two by C-STORE and one by STOW-RS, while the node is
 * killed, connections break, and the disks of the spool and of the results are full. At the end
 * each study is whole or marked: nothing is lost, doubled, or of a part of a series without saying
 * so.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "../../../src/commands/client.js";
import { receivedListSchema } from "../../../src/features/gateway/receive/endpoints.js";
import type { Received } from "../../../src/features/gateway/receive/received.js";
import { GATEWAY_SUBJECT } from "../../../src/features/gateway/subject.js";
import type { Job } from "../../../src/jobs/schema.js";
import { linesOf } from "../../support/audit.js";
import { random } from "../../support/dicom.js";
import { freePort, issueToken, type Place } from "../../support/server.js";
import { webPacs } from "../../support/web-pacs.js";
import { allJobs } from "../lib/job.js";
import { processesOf } from "../lib/killing.js";
import { mixedStudy, type MixedStudy } from "../lib/mixed-studies.js";
import { verifyResults, verifySpool } from "../lib/mixed-verify.js";
import { ServingNode } from "../lib/node.js";
import { seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";
import { byStore, byStow, Sender } from "../lib/senders.js";
import { noSmallDisk, SmallDisk } from "../lib/small-disk.js";
import { notDelivered } from "./gateway-nodes.js";

const PEERS = ["ct1", "ct2", "stow-pacs"] as const;
const HABITS = { breaks: 0.3, comesBack: 0.6, persists: 0.6, between: 25, pause: 9_000 };
/** Times that a disk is full, for each kill. */
const FULL = 0.4;
const FULL_MS = { least: 200, most: 5_000 };
/** A start keeps less than a minimum, or nothing at all. */
const MINIMUM_FREE = 1024 * 1024;
const PATIENCE = { forMs: 240_000 };
const LONGEST_MS = 1_200_000;

/** The folders of the spool and of the results, and the settings that name them. */
function prepare({ input, output, directory }: Place, port: number, pacs: string) {
  const [inside, outside] = [path.join(input, "disk"), path.join(output, "disk")];
  const disks = [inside, outside].map((folder) => {
    mkdirSync(folder);
    return new SmallDisk(folder);
  });
  const [spool, results] = [path.join(inside, "spool"), path.join(outside, "received")];
  mkdirSync(spool);
  const rule = {
    when: [{ tag: "Modality", in: ["CT"], if_absent: "refuse" }],
    quiet: "3s",
    pause: "60s",
    resend: "6s",
    models: ["ct-tissue"],
    outputs: ["sr"],
    output_folder: results,
  };
  const [one, two, three] = PEERS;
  const gateway = {
    spool,
    dicom: { port },
    peers: { [one]: { ae_title: "CT ONE" }, [two]: { ae_title: "CT TWO" } },
    rules: [
      { ...rule, name: "series", from: [one] },
      { ...rule, name: "study", from: [two], group: "study" },
      { ...rule, name: "whole", from: [three], require: "whole" },
    ],
    destinations: { pacs: { type: "stow", url: pacs, timeout: "20s" } },
    deliver: ["pacs"],
  };
  const file = path.join(directory, "gateway.json");
  writeFileSync(file, JSON.stringify(gateway));
  return { disks, spool, results, settings: { RADSERVE_GATEWAY: file } };
}

async function mixed(options: Options): Promise<Outcome> {
  const began = performance.now();
  const next = random(options.seed);
  const ends: (() => Promise<void>)[] = [];
  const pacs = await webPacs({ teardown: (end) => void ends.push(end) });
  const port = await freePort();
  let made: ReturnType<typeof prepare> | undefined;
  const node = await ServingNode.start({
    settings: {
      RADSERVE_MINIMUM_FREE_DISK: String(MINIMUM_FREE),
      RADSERVE_JOB_REPORTS: "off",
    },
    prepare: (place) => {
      made = prepare(place, port, pacs.url);
      return made.settings;
    },
  });
  const { disks, spool, results } = made!;
  const faults: string[] = [];
  try {
    const studies = Array.from({ length: options.items }, (_, i) => mixedStudy(i, next));
    const stow = byStow(node.url, await issueToken(node.place, "--subject", "pacs"));
    const ways = [byStore(port, "CT ONE"), byStore(port, "CT TWO"), stow];
    const trouble = new Trouble(node, disks, studies, next, options);
    const senders = PEERS.map(
      (peer, i) =>
        new Sender(peer, ways[i]!, HABITS, random(options.seed + i + 1), () => trouble.tick()),
    );
    await Promise.all(
      senders.map((sender, of) => sender.send(studies.filter((_, i) => i % PEERS.length === of))),
    );
    await trouble.end();
    options.say(`all is sent after ${seconds(began)}`);
    await node.untilReady();
    const client = new Client(node.url, await issueToken(node.place, "--subject", GATEWAY_SUBJECT));
    const { received, jobs } = await untilSettled(client, senders, options);
    options.say(`all is settled after ${seconds(began)}`);
    faults.push(...senders.flatMap((sender) => sender.faults), ...faultsOfJobs(jobs, node.place));
    faults.push(...(await notDelivered(results, path.join(spool, "deliveries"), delivered(pacs))));
    const kept = verifySpool(spool, senders);
    const verified = verifyResults(senders, results, pacs.kept, received);
    faults.push(...kept.faults, ...verified.faults);
    const counts = { ...trouble.counts, ...kept.counts, ...verified.counts, jobs: jobs.length };
    for (const sender of senders)
      options.say(`${sender.peer}: ${told(sender.counts)} of ${sender.begun.length} studies`);
    return { summary: `${told(counts)}; seed ${options.seed}, ${seconds(began)}`, faults };
  } finally {
    await node.stop();
    for (const disk of disks) disk.unmount();
    await node.remove();
    for (const end of ends) await end();
  }
}

const told = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([what, count]) => `${what} ${count}`)
    .join(", ");

const delivered = ({
  sentAt,
  kept,
}: {
  sentAt: Map<string, number>;
  kept: Map<string, Buffer>;
}) => ({
  sentAt,
  instances: () => Promise.resolve(new Set(kept.keys())),
});

/** Kills and full disks, spread over the objects that are sent. */
class Trouble {
  readonly counts: Record<string, number> = {};
  readonly #at: { object: number; does: () => void }[];
  readonly #full: Promise<void>[] = [];
  #objects = 0;

  constructor(
    node: ServingNode,
    disks: readonly SmallDisk[],
    studies: readonly MixedStudy[],
    private readonly next: () => number,
    private readonly options: Options,
  ) {
    const objects = studies
      .flatMap(({ series }) => series)
      .reduce((sum, { objects: { length } }) => sum + length, 0);
    const victims = Object.entries(processesOf(node));
    const each = (count: number, does: (i: number) => void) =>
      Array.from({ length: count }, (_, i) => ({
        object: Math.floor(((i + this.next()) * objects) / count),
        does: () => does(i),
      }));
    this.#at = [
      ...each(options.kills, (i) => this.#kill(victims[i % victims.length]!)),
      ...each(Math.round(options.kills * FULL), (i) => this.#fill(disks[i % disks.length]!, i)),
    ].sort((a, b) => a.object - b.object);
  }

  /** Before each object. */
  tick(): void {
    this.#objects += 1;
    while ((this.#at[0]?.object ?? Infinity) <= this.#objects) this.#at.shift()?.does();
  }

  /** What did not happen yet happens now; ends when all disks have room. */
  async end(): Promise<void> {
    for (const { does } of this.#at.splice(0)) does();
    await Promise.all(this.#full);
  }

  #kill([name, kill]: [string, () => boolean]): void {
    const again = async () => {
      // In the middle of something of any sender, or of nothing
      await delay(this.next() * 50);
      while (!kill()) await delay(20);
      this.#count(`kills of the ${name}`);
    };
    this.#full.push(again());
  }

  #fill(disk: SmallDisk, i: number): void {
    const left = i % 3 === 0 ? 0 : Math.floor(this.next() * 2 * MINIMUM_FREE);
    const ms = FULL_MS.least + this.next() * (FULL_MS.most - FULL_MS.least);
    const full = async () => {
      disk.fill(left);
      this.#count("full disks");
      await delay(ms);
      disk.free();
    };
    this.#full.push(full());
  }

  #count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
    this.options.say(`${what}: ${this.counts[what]}, after ${this.#objects} objects`);
  }
}

/** Once no series waits, and each job has ended. */
async function untilSettled(
  client: Client,
  senders: readonly Sender[],
  options: Options,
): Promise<{ received: Received[]; jobs: Job[] }> {
  for (const end = Date.now() + LONGEST_MS; ;) {
    const received: Received[] = [];
    for (const { peer } of senders) {
      const route = `/gateway/received?limit=1000&peer=${peer}`;
      const list = await client.callPatiently(receivedListSchema, PATIENCE, "GET", route);
      received.push(...list.received);
    }
    const jobs = await allJobs(client, PATIENCE);
    const waiting = received.filter(({ state }) => state === "waiting").length;
    const open = jobs.filter(({ finished_at: at }) => at === null).length;
    if (waiting + open === 0) return { received, jobs };
    if (Date.now() > end) throw new Error(`${waiting} series wait, ${open} jobs are open`);
    options.say(`${waiting} series wait, ${open} of ${jobs.length} jobs are open`);
    await delay(5_000);
  }
}

/** Jobs of which an image failed, or that the audit does not know. */
function faultsOfJobs(jobs: readonly Job[], place: Place): string[] {
  const submitted = linesOf(place).filter(({ kind }) => kind === "submitted");
  const known = new Set(submitted.map(({ job_id: id }) => id));
  return jobs.flatMap(({ job_id: id, state, counts }) => [
    ...(state === "completed" && counts.failed + counts.partial === 0
      ? []
      : [`job ${id} is ${state}: ${JSON.stringify(counts)}`]),
    ...(known.has(id) ? [] : [`job ${id}: the audit has no line of it`]),
  ]);
}

export const gatewayMixed: Record<string, Scenario> = {
  "gateway-mixed": {
    description:
      "three senders bring mixed studies under kills, broken connections and full disks: each whole or marked",
    skip: noSmallDisk,
    run: mixed,
  },
};
