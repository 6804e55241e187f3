/**
 * `npm run bench -- rest [--quick]`: what the installed server costs while nobody asks for
 * anything, against its goals: the time until it is ready, its memory and its processor time at
 * rest, each also after bulk work. The full run takes about five minutes; --quick shows in one that
 * it works, and its idle times are too short to mean anything.
 */
import { setTimeout as delay } from "node:timers/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { acceptedSchema, jobSchema } from "../src/jobs/schema.js";
import { Client } from "../src/commands/client.js";
import { hasEnded } from "../src/commands/job-text.js";
import { descendants } from "../test/crash/lib/processes.js";
import { writeCt } from "./lib/bulk-images.js";
import { cpuSeconds, pss } from "./lib/process-tree.js";
import { machine, startServer, type BenchServer } from "./lib/server.js";
import { median, sum } from "./lib/statistics.js";

const { values } = parseArgs({ options: { quick: { type: "boolean", default: false } } });
const STARTS = values.quick ? 3 : 7;
/** Longer than threads, connections and decoders are kept without work. */
const SETTLING_MS = values.quick ? 5_000 : 60_000;
const IDLE_MS = values.quick ? 10_000 : 60_000;
const IMAGES = values.quick ? 40 : 2_000;
const LOOK_MS = 500;
const MINUTE_MS = 60_000;

const GOALS = { ready_ms: 500, memory_mib: 200, idle_cpu_s_a_minute: 0.1 };

/**
 * The server's first process, and that of its private database where it is no child of the server.
 */
function rootsOf(server: BenchServer): number[] {
  const [own, postmaster] = [server.process.pid!, server.postmaster()];
  return postmaster === undefined || descendants(own).includes(postmaster)
    ? [own]
    : [own, postmaster];
}

interface Rest {
  memory_mib: number;
  /** Of it, what the private database holds. */
  database_mib: number;
  idle_cpu_s_a_minute: number;
}

/** After a while without work. Nothing is asked meanwhile. */
async function atRest(server: BenchServer): Promise<Rest> {
  await delay(SETTLING_MS);
  const used = () => sum(rootsOf(server).map(cpuSeconds));
  const [before, began] = [used(), performance.now()];
  await delay(IDLE_MS);
  const cpu = ((used() - before) * MINUTE_MS) / (performance.now() - began);
  const postmaster = server.postmaster();
  return {
    memory_mib: sum(rootsOf(server).map(pss)),
    database_mib: postmaster === undefined ? 0 : pss(postmaster),
    idle_cpu_s_a_minute: cpu,
  };
}

/** A folder of CT slices with all objects, to its end. */
async function bulkWork(server: BenchServer): Promise<void> {
  const folder = join(server.input, "ct");
  writeCt(folder, IMAGES);
  const client = new Client(server.url, server.token);
  const { job_id } = await client.call(acceptedSchema, "POST", "/bulk_inference", {
    input_folder_path: folder,
    output_folder_path: join(server.output, "ct"),
    outputs: ["json", "png", "sr", "seg", "sc"],
  });
  for (;;) {
    const job = await client.call(jobSchema, "GET", `/bulk_inference/${job_id}`);
    if (!hasEnded(job)) await delay(LOOK_MS);
    else if (job.counts.succeeded === IMAGES) return;
    else
      throw new Error(
        `Expected ${IMAGES} images that succeed, found ${JSON.stringify(job.counts)}.`,
      );
  }
}

/** Also how far the starts lie from each other. */
async function starts(server: BenchServer): Promise<number[]> {
  // The first one reads from the disk what the others find in memory
  const times: number[] = [];
  for (let i = 0; i < STARTS; i++) {
    await server.restart();
    times.push(server.readyMs);
  }
  return times;
}

function row(figure: string, found: number, goal: number, more: object = {}) {
  return {
    figure,
    found: Number(found.toFixed(found < 10 ? 2 : 0)),
    goal,
    met: found <= goal,
    ...more,
  };
}

const server = await startServer();
try {
  const times = await starts(server);
  const before = await atRest(server);
  await bulkWork(server);
  const after = await atRest(server);
  const rows = [
    row(
      `ready after the start, warm disk, median of ${STARTS}, ms`,
      median(times),
      GOALS.ready_ms,
      {
        least: Math.round(Math.min(...times)),
        most: Math.round(Math.max(...times)),
      },
    ),
    row("memory (PSS) at rest, MiB", before.memory_mib, GOALS.memory_mib),
    row(
      `memory (PSS) at rest after ${IMAGES} images of bulk work, MiB`,
      after.memory_mib,
      GOALS.memory_mib,
      {
        database: Math.round(after.database_mib),
      },
    ),
    row(
      "processor time at rest, s a minute",
      before.idle_cpu_s_a_minute,
      GOALS.idle_cpu_s_a_minute,
    ),
    row(
      "processor time at rest after bulk work, s a minute",
      after.idle_cpu_s_a_minute,
      GOALS.idle_cpu_s_a_minute,
    ),
  ];
  console.log(machine());
  console.table(rows);
} finally {
  await server.stop();
}
