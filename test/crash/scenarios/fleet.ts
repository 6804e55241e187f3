/**
 * Three nodes behind nginx, as somebody who looks after them has it: fifty jobs while everything is
 * killed; a release that is rolled out under clients; a database that comes back from a backup.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { hasEnded } from "../../../src/commands/job-text.js";
import { NO_NODE_CAN_RUN } from "../../../src/jobs/pins.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { conditionSchema } from "../../../src/server/condition.js";
import { commandsAre } from "../../support/needs.js";
import { olderProgram } from "../../support/older-program.js";
import { Fleet } from "../lib/fleet.js";
import { writeImages, type TestImage } from "../lib/images.js";
import { CrashJob, type Asked } from "../lib/job.js";
import { Killer } from "../lib/killing.js";
import {
  notAllSucceeded,
  seconds,
  type Options,
  type Outcome,
  type Scenario,
} from "../lib/scenario.js";
import { verify } from "../lib/verify.js";

/** Rows and columns: what is tried is the work round an image. */
const SIDE = 32;
const JOBS = 50;

interface Sent {
  job: CrashJob;
  images: TestImage[];
  input: string;
  output: string;
}

/** Folders of their own for each job, and no image twice. */
async function send(
  fleet: Fleet,
  names: readonly string[],
  each: number,
  first = 0,
): Promise<Sent[]> {
  const sent: Sent[] = [];
  for (const [i, name] of names.entries()) {
    const asked = fleet.asked(i);
    const [input, output] = [path.join(asked.input, name), path.join(asked.output, name)];
    const images = writeImages(input, each, { first: first + i * each, side: SIDE });
    sent.push({ images, input, output, job: await submit(asked, name, input, output) });
  }
  return sent;
}

const submit = (asked: Asked, key: string, input: string, output: string): Promise<CrashJob> =>
  CrashJob.submit(asked, key, { input_folder_path: input, output_folder_path: output });

const namesOf = (what: string, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `${what}-${i}`);

/** What the receipts below a folder were made with. */
function versionsBelow(folder: string): Set<string> {
  const receipts = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".dcm.json"),
  );
  return new Set(
    receipts.map((name) => {
      const text = readFileSync(path.join(folder, name), "utf8");
      const { radserve_version: release, models } = receiptSchema.parse(JSON.parse(text));
      return [release, ...models.map(({ name, version }) => `${name} ${version}`)].join(", ");
    }),
  );
}

/** What is wrong with jobs that have ended, and with what lies in their folders. */
async function faultsOf(jobs: readonly Sent[]): Promise<{ receipts: number; faults: string[] }> {
  const faults: string[] = [];
  let receipts = 0;
  for (const { job, images, input, output } of jobs) {
    const name = path.basename(output);
    const ended = await job.untilEnded();
    const inputs = new Set((await job.items()).map((item) => item.input_image_path));
    const verified = verify(images, input, output, { files: 0 });
    receipts += verified.receipts;
    if (inputs.size !== images.length)
      faults.push(`${name}: ${inputs.size} images among its items of ${images.length}`);
    faults.push(
      ...[...notAllSucceeded(ended, images.length), ...verified.faults].map(
        (fault) => `${name}: ${fault}`,
      ),
    );
  }
  return { receipts, faults };
}

const mixed = (jobs: readonly Sent[]): string[] =>
  jobs.flatMap(({ output }) => {
    const versions = versionsBelow(output);
    return versions.size > 1 ? [`${output}: results of ${[...versions].join(" and of ")}`] : [];
  });

async function underKills(options: Options): Promise<Outcome> {
  const began = performance.now();
  const fleet = await Fleet.start();
  const killer = new Killer(fleet.victims(), options);
  try {
    const jobs = await send(fleet, namesOf("killed", JOBS), Math.ceil(options.items / JOBS));
    killer.start();
    for (const { job } of jobs) await job.untilEnded();
    await killer.stop();
    const { receipts, faults } = await faultsOf(jobs);
    const by = Object.entries(killer.killed).map(([name, times]) => `${times} ${name}`);
    const summary = `${receipts} receipts of ${jobs.length} jobs, ${killer.kills} kills (${by.join(", ")}), seed ${options.seed}, ${seconds(began)}`;
    return { summary, faults: [...faults, ...mixed(jobs)] };
  } finally {
    await killer.stop();
    await fleet.stop();
  }
}

const CLIENTS = 4;
/** The time in which a balancer that asks for readiness learns that a node stops. */
const DRAIN_SECONDS = 5;
const SINGLES = 200;
const BETWEEN_NODES_MS = 3_000;

/** Asks for images one after the other until it is stopped; counts how each request ended. */
async function client(
  { url, first }: Fleet,
  number: number,
  token: string,
  running: () => boolean,
  counts: Map<string, number>,
): Promise<void> {
  const input = path.join(first.input, "singles");
  const images = readdirSync(input, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".dcm"),
  );
  for (let i = 0; running(); i++) {
    const body = JSON.stringify({
      input_image_path: path.join(input, images[i % images.length]!),
      output_folder_path: path.join(first.output, `singles-${number}`),
      outputs: ["json"],
      models: ["ct-tissue"],
    });
    const headers = { Authorization: token, "Content-Type": "application/json" };
    const ended = await fetch(`${url}/single_inference`, { method: "POST", headers, body }).then(
      async (answer) => {
        const text = await answer.text();
        return answer.status === 200 ? "200" : `${answer.status} ${text.slice(0, 80)}`;
      },
      (error: unknown) => String(error),
    );
    counts.set(ended, (counts.get(ended) ?? 0) + 1);
    await delay(100);
  }
}

/** Jobs that wait for the earlier release, because something of them is done, are let go on. */
async function letGoOn(jobs: readonly Sent[]): Promise<{ resumed: number; faults: string[] }> {
  const faults: string[] = [];
  let resumed = 0;
  for (const { job, output } of jobs) {
    const seen = await job.until(
      "at its end, or waiting",
      (now) =>
        hasEnded(now) ||
        (now.paused_reason?.code === NO_NODE_CAN_RUN &&
          now.counts.running === 0 &&
          now.counts.succeeded > 0),
    );
    const versions = versionsBelow(output);
    if (versions.size > 1) faults.push(`${output}: ${[...versions].join(" and ")} by itself`);
    if (hasEnded(seen)) continue;
    resumed += 1;
    await job.resume();
  }
  return { resumed, faults };
}

async function upgrade(options: Options): Promise<Outcome> {
  const began = performance.now();
  const directory = mkdtempSync(path.join(os.tmpdir(), "radserve-older-"));
  const main = olderProgram({ directory });
  const fleet = await Fleet.start({
    main,
    settings: { RADSERVE_DRAIN_SECONDS: String(DRAIN_SECONDS) },
  });
  let running = true;
  const counts = new Map<string, number>();
  try {
    writeImages(path.join(fleet.first.input, "singles"), SINGLES, { first: 900_000, side: SIDE });
    const token = await fleet.token(0);
    const clients = Array.from({ length: CLIENTS }, (_, i) =>
      client(fleet, i, token, () => running, counts),
    );
    const each = Math.ceil(options.items / JOBS);
    const jobs = await send(fleet, namesOf("before", JOBS / 2), each);
    for (const [i, node] of fleet.nodes.entries()) {
      await node.upgrade();
      options.say(`node ${i + 1} has this release`);
      const first = (JOBS / 2 + i * 5) * each;
      jobs.push(...(await send(fleet, namesOf(`while-${i + 1}`, 5), each, first)));
      await delay(BETWEEN_NODES_MS);
    }
    const { resumed, faults } = await letGoOn(jobs);
    running = false;
    await Promise.all(clients);
    const { receipts, faults: wrong } = await faultsOf(jobs);
    const ended = await Promise.all(jobs.map(({ job }) => job.look()));
    const anew = ended.filter(({ warnings }) =>
      warnings.some(({ code }) => code === "pinned_anew"),
    ).length;
    const refused = [...counts].filter(([how]) => how !== "200");
    faults.push(...wrong, ...refused.map(([how, times]) => `${times} requests: ${how}`));
    const summary = `${counts.get("200") ?? 0} requests of ${CLIENTS} clients, ${refused.length} kinds of refusal; ${receipts} receipts of ${jobs.length} jobs: ${anew} got this release before they began, ${resumed} waited for the earlier one and were resumed, the others kept what they were sent with; ${seconds(began)}`;
    return { summary, faults };
  } finally {
    running = false;
    await fleet.stop();
    rmSync(directory, { recursive: true });
  }
}

const overviewSchema = z.object({ conditions: z.array(conditionSchema) });
const RESTORED = 5;
/** Jobs that the backup lacks are so many times as large: they are open still when nodes stop. */
const LARGER = 3;
/** The conditions are looked at every five seconds. */
const TOLD_MS = 180_000;

/** The jobs that are not named as lost, once the nodes had time to find out. */
async function notNamed({ client }: Asked, lost: readonly Sent[]): Promise<string[]> {
  for (const end = performance.now() + TOLD_MS; ;) {
    const patience = { forMs: TOLD_MS };
    const found = await client.callPatiently(overviewSchema, patience, "GET", "/overview");
    const told = found.conditions.find(({ condition }) => condition === "jobs_lost")?.message ?? "";
    const silent = lost.filter(({ job }) => !told.includes(job.id));
    if (silent.length === 0 || performance.now() > end)
      return silent.map(({ job }) => `job ${job.id} is lost, and nobody says so: ${told}`);
    await delay(500);
  }
}

async function restore(options: Options): Promise<Outcome> {
  const began = performance.now();
  const fleet = await Fleet.start();
  const { postgres, nodes } = fleet;
  const each = Math.ceil(options.items / (RESTORED * (1 + LARGER)));
  try {
    const kept = await send(fleet, namesOf("kept", RESTORED), each);
    for (const { job } of kept) await job.until("begun", ({ counts }) => counts.succeeded > 0);
    const dump = postgres.dump();
    const lost = await send(fleet, namesOf("lost", RESTORED), LARGER * each, RESTORED * each);
    for (const { job } of kept) await job.untilEnded();
    const before = await Promise.all(lost.map(({ job }) => job.look()));
    const open = lost.filter((_, i) => !hasEnded(before[i]!));
    await Promise.all(nodes.map((node) => node.stop()));
    postgres.restore(dump);
    options.say("the database is that of the backup");
    await Promise.all(nodes.map((node) => node.startAgain()));
    const { receipts, faults } = await faultsOf(kept);
    const items = (await Promise.all(kept.map(({ job }) => job.items()))).flat();
    const reused = items.filter((item) => item.reused === true).length;
    faults.push(...(await notNamed(fleet.asked(0), open)));
    const again: Sent[] = [];
    for (const [i, one] of lost.entries()) {
      const job = await submit(fleet.asked(i), `again-${i}`, one.input, one.output);
      again.push({ ...one, job });
    }
    const sent = await faultsOf(again);
    const computed = (await Promise.all(again.map(({ job }) => job.items())))
      .flat()
      .filter((item) => item.reused !== true).length;
    const done = before.reduce((sum, { counts }) => sum + counts.succeeded, 0);
    if (computed > sent.receipts - done)
      faults.push(`${computed} images of lost jobs were computed, where ${done} had results`);
    const summary = `${receipts} receipts of ${kept.length} jobs of the backup, ${reused} of them taken as they lay; ${open.length} open jobs that it lacks were named, and sent again: ${sent.receipts} receipts, ${computed} of them computed now; ${seconds(began)}`;
    return { summary, faults: [...faults, ...sent.faults] };
  } finally {
    await fleet.stop();
  }
}

const skip = () => commandsAre("nginx", "pg_dump");

export const fleet: Record<string, Scenario> = {
  fleet: {
    description: `${JOBS} jobs of five subjects on three nodes behind nginx, and kill -9 of all processes`,
    skip,
    run: underKills,
  },
  "fleet-upgrade": {
    description: "a release rolled out node by node under clients that count refusals",
    skip,
    run: upgrade,
  },
  "fleet-restore": {
    description: "a shared database put back from a backup while jobs went on",
    skip,
    run: restore,
  },
};
