/**
 * `npm run bench -- bulk [--quick] [--only ct|dx] [--ct N] [--dx N]`: bulk work of 2,000 CT slices
 * and of 200 radiographs (or of as many as is said), with receipts alone and with all objects,
 * against the limit of this machine, computed before and after it in the same run from the parts of
 * one image on one core, once with every core at it and once with one alone. Also: what the queue
 * costs, resident memory, and single requests while bulk work saturates the machine. One object of
 * figures; README and RESULTS.md quote the full run on a quiet machine.
 */
import { execFile } from "node:child_process";
import { cpSync, linkSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "../src/commands/client.js";
import { acceptedSchema, jobSchema, type Job } from "../src/jobs/schema.js";
import { done, hasEnded } from "../src/commands/job-text.js";
import { modelFolder } from "../scripts/lib/model-folder.js";
import { SERVING_FLAGS } from "../src/server/serving-child.js";
import { writeCt, writeDx } from "./lib/bulk-images.js";
import { writeBenchModel } from "./lib/bulk-model.js";
import type { Direct, Parts } from "./lib/bulk-parts.js";
import { cpuSeconds } from "./lib/process-tree.js";
import { machine, memoryOf, startServer, type BenchServer } from "./lib/server.js";
import { mean, median, quantile, sum } from "./lib/statistics.js";

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    ct: { type: "string" },
    dx: { type: "string" },
  },
});

const USUAL = values.quick ? { ct: 40, dx: 4 } : { ct: 2_000, dx: 200 };
const SIZES = { ...USUAL, ct: Number(values.ct ?? USUAL.ct), dx: Number(values.dx ?? USUAL.dx) };
const ALL = "json,png,sr,seg,sc";
/** Memory is compared from this item on. */
const MEMORY_FROM = 500;
const SINGLE_EVERY_MS = 250;
/**
 * Answered before, so that the threads of single requests are as warm as the parts of the limit.
 */
const WARM_SINGLES = values.quick ? 4 : 60;
/** Looking at a job counts its items, and the looking takes from the cores that it measures. */
const LOOK_EVERY_MS = 500;
/**
 * This share of the images is done again and again before, so that the server is as warm as the
 * other runs.
 */
const WARM_SHARE = 0.1;
const WARM_UP_MS = 3_000;
const cores = os.availableParallelism();

const GOALS = { vs_limit: 0.85, queue_overhead: 0.03, memory_growth: 1.05, single_p95_vs_limit: 1 };

interface Workload {
  name: string;
  kind: "ct" | "dx";
  outputs: string;
  /** Images on each core for the limit, before and after: some seconds' work. */
  parts: number;
  /** The share of the images that go without the queue, before and after. */
  direct: number;
}

interface Measured {
  images: number;
  images_per_second: number;
  /** Between the tenth and the ninetieth percent. */
  steady_images_per_second: number;
  /**
   * From the cost of one image (decode, run, write) on one core while all cores do the same work.
   */
  limit_images_per_second: number;
  vs_limit: number;
  /**
   * From its cost on one core while the others rest, times the cores: more than they reach
   * together.
   */
  lone_limit_images_per_second: number;
  vs_lone_limit: number;
  /** The rate over the limit with preparation and post-processing included. */
  vs_whole: number;
  /** The same images through the worker threads, without queue and database. */
  direct_images_per_second: number;
  /** The share of the time that the direct way saves. */
  queue_overhead: number;
  /** Processor time of PostgreSQL, of all cores over the whole time. */
  postgres_cpu_share: number;
  /** Resident memory of the server: the last tenth of the images by the tenth from item 500 on. */
  memory_growth: number;
  memory_mib: number;
  /** What was measured before the bulk run and after it; above are the means. */
  references: Pick<
    Measured,
    "limit_images_per_second" | "lone_limit_images_per_second" | "direct_images_per_second"
  >[];
  /** Before: of one core, while the others rest. */
  parts: Parts;
}

const partsProgram = fileURLToPath(new URL("./lib/bulk-parts.js", import.meta.url));
const say = (text: string) => process.stderr.write(`${text}\n`);

/**
 * Runs a program asynchronously, because connections to the server would go stale while this
 * process waits.
 */
async function run(...[program, ...words]: [string, ...string[]]): Promise<unknown> {
  const { stdout } = await promisify(execFile)(program, words, { maxBuffer: 2 ** 26 });
  return JSON.parse(stdout);
}

/** Processor seconds of the database so far. */
function databaseSeconds(server: BenchServer): number {
  const postmaster = server.postmaster();
  return postmaster === undefined ? 0 : cpuSeconds(postmaster);
}

interface Sample {
  time: number;
  done: number;
  memory: number;
}

interface Followed {
  job: Job;
  samples: Sample[];
  databaseSeconds: number;
}

async function follow(server: BenchServer, body: object): Promise<Followed> {
  const client = new Client(server.url, server.token);
  const before = databaseSeconds(server);
  const { job_id } = await client.call(acceptedSchema, "POST", "/bulk_inference", body);
  const samples: Sample[] = [];
  for (;;) {
    const job = await client.call(jobSchema, "GET", `/bulk_inference/${job_id}`);
    samples.push({ time: performance.now(), done: done(job), memory: memoryOf(server) });
    if (hasEnded(job)) return { job, samples, databaseSeconds: databaseSeconds(server) - before };
    await delay(LOOK_EVERY_MS);
  }
}

const seconds = (job: Job) => (Date.parse(job.finished_at!) - Date.parse(job.created_at)) / 1000;

function steadyRate(samples: Sample[], count: number): number {
  const at = (share: number) => samples.find((sample) => sample.done >= share * count)!;
  const [from, to] = [at(0.1), at(0.9)];
  return ((to.done - from.done) / (to.time - from.time)) * 1000;
}

function memoryGrowth(samples: Sample[], count: number): { growth: number; last: number } {
  const start = Math.min(MEMORY_FROM, count / 4);
  const between = (from: number, to: number) =>
    median(
      samples
        .filter((sample) => sample.done >= from && sample.done <= to)
        .map(({ memory }) => memory),
    );
  const last = between(count * 0.9, count);
  return { growth: last / between(start, start + count / 10), last };
}

const rateOf = (parts: Parts) => 1000 / (parts.decode_ms + parts.ort_ms + parts.write_ms);

/** Jobs of a folder like the one that is measured. */
async function warmUp(
  server: BenchServer,
  name: string,
  outputs: string,
  files: string[],
): Promise<void> {
  const folder = join(server.input, `${name}-warm`);
  mkdirSync(folder);
  for (const file of files) linkSync(file, join(folder, basename(file)));
  const began = performance.now();
  for (let i = 0; i === 0 || performance.now() - began < WARM_UP_MS; i++)
    await follow(server, {
      input_folder_path: folder,
      output_folder_path: join(server.output, `${name}-warm-${i}`),
      outputs: outputs.split(","),
    });
}

/** What the same images cost without a server, as images a second. */
interface Reference {
  limit: number;
  lone: number;
  direct: number;
  /** The limit with all that an image costs. */
  whole: number;
  parts: Parts;
}

async function reference(
  { name, outputs, parts, direct: share }: Workload,
  scratch: string,
  models: string,
  files: string[],
): Promise<Reference> {
  // The lists are files, because ONNX Runtime overflows its stack on a command line of more than
  // some 30,000 characters.
  const [some, many] = [join(models, "../some.json"), join(models, "../many.json")];
  writeFileSync(some, JSON.stringify(files.slice(0, parts)));
  writeFileSync(many, JSON.stringify(files.slice(0, Math.ceil(share * files.length))));
  const program = [process.execPath, ...SERVING_FLAGS, partsProgram] as const;
  /**
   * Each run has a folder of its own, because results that lie there already are not made again.
   */
  const partsOn = async (core: number, folder: string) =>
    (await run(
      "taskset",
      "-c",
      String(core),
      ...program,
      models,
      join(scratch, folder),
      outputs,
      some,
    )) as Parts;
  say(`${name}: one core`);
  const lone = await partsOn(0, "lone");
  say(`${name}: each core`);
  const each = await Promise.all(
    Array.from({ length: cores }, (_, core) => partsOn(core, `core-${core}`)),
  );
  say(`${name}: without the queue`);
  const direct = (await run(...program, "--direct", models, scratch, outputs, many)) as Direct;
  if (direct.failed > 0)
    throw new Error(`${name}: ${direct.failed} images failed without the queue`);
  rmSync(scratch, { recursive: true });
  return {
    limit: sum(each.map(rateOf)),
    lone: cores * rateOf(lone),
    direct: direct.images / direct.seconds,
    whole: sum(each.map(({ total_ms }) => 1000 / total_ms)),
    parts: lone,
  };
}

/** References before and after, because the machine's speed changes within minutes. */
async function measure(
  workload: Workload,
  server: BenchServer,
  models: string,
  files: string[],
): Promise<Measured> {
  const { name, outputs } = workload;
  const referred = () => reference(workload, join(server.output, `${name}-scratch`), models, files);
  const before = await referred();
  say(`${name}: bulk`);
  await warmUp(server, name, outputs, files.slice(0, Math.ceil(WARM_SHARE * files.length)));
  const {
    job,
    samples,
    databaseSeconds: spent,
  } = await follow(server, {
    input_folder_path: join(files[0]!, ".."),
    output_folder_path: join(server.output, name),
    outputs: outputs.split(","),
  });
  if (job.counts.succeeded !== files.length) throw new Error(`${name}: ${JSON.stringify(job)}`);
  rmSync(join(server.output, name), { recursive: true });
  const both = [before, await referred()];
  const steady = steadyRate(samples, files.length);
  const over = (pick: (one: Reference) => number) => mean(both.map(pick));
  const limit = over((one) => one.limit);
  const loneLimit = over((one) => one.lone);
  const unqueued = over((one) => one.direct);
  const memory = memoryGrowth(samples, files.length);
  const rate = files.length / seconds(job);
  return {
    images: files.length,
    images_per_second: rate,
    steady_images_per_second: steady,
    limit_images_per_second: limit,
    vs_limit: rate / limit,
    lone_limit_images_per_second: loneLimit,
    vs_lone_limit: rate / loneLimit,
    vs_whole: rate / over((one) => one.whole),
    direct_images_per_second: unqueued,
    queue_overhead: 1 - rate / unqueued,
    postgres_cpu_share: spent / (seconds(job) * cores),
    memory_growth: memory.growth,
    memory_mib: memory.last,
    references: both.map(({ limit: limited, lone, direct }) => ({
      limit_images_per_second: limited,
      lone_limit_images_per_second: lone,
      direct_images_per_second: direct,
    })),
    parts: before.parts,
  };
}

interface Latency {
  singles: number;
  p95_ms: number;
  /** Longest run of the bulk work's model + one run + own decode and write, each on one core. */
  limit_ms: number;
  single_p95_vs_limit: number;
}

/**
 * Single CT requests, one after the other, while bulk work of another kind saturates the machine.
 */
async function latency(
  server: BenchServer,
  bulk: { folder: string; parts: Parts },
  single: { files: string[]; parts: Parts },
): Promise<Latency> {
  const times: number[] = [];
  const ended = new AbortController();
  const output = join(server.output, "latency");
  const request = async (file: string, name: string) => {
    const began = performance.now();
    const { status } = await server.post({
      input_image_path: file,
      output_folder_path: join(output, name),
      outputs: ALL.split(","),
    });
    if (status !== 200) throw new Error(`A single request was answered ${status}.`);
    return performance.now() - began;
  };
  for (let i = 0; i < WARM_SINGLES; i++)
    await request(single.files[i % single.files.length]!, `warm-${i}`);
  const job = follow(server, {
    input_folder_path: bulk.folder,
    output_folder_path: join(output, "bulk"),
    outputs: ALL.split(","),
  }).finally(() => ended.abort());
  for (const [i, file] of single.files.entries()) {
    await delay(SINGLE_EVERY_MS);
    if (ended.signal.aborted) break;
    times.push(await request(file, `single-${i}`));
  }
  await job;
  const p95 = quantile(times, 0.95);
  const { decode_ms, ort_ms, write_ms } = single.parts;
  const limit = bulk.parts.ort_ms + ort_ms + decode_ms + write_ms;
  return { singles: times.length, p95_ms: p95, limit_ms: limit, single_p95_vs_limit: p95 / limit };
}

const scratch = mkdtempSync(join(os.tmpdir(), "radserve-bench-"));
const models = join(scratch, "models");
mkdirSync(models);
cpSync(modelFolder("ct-tissue"), join(models, "ct-tissue"), { recursive: true });
await writeBenchModel(models);
const server = await startServer({ RADSERVE_MODELS_DIR: models });
try {
  say("images");
  const files = {
    ct: values.only === "dx" ? [] : writeCt(join(server.input, "ct"), SIZES.ct),
    dx: values.only === "ct" ? [] : await writeDx(join(server.input, "dx"), SIZES.dx),
  };
  const few = (count: number) => (values.quick ? 4 : count);
  const workloads: Workload[] = [
    { name: "ct_json", kind: "ct", outputs: "json", parts: few(500), direct: 1 },
    { name: "ct_all", kind: "ct", outputs: ALL, parts: few(40), direct: 0.25 },
    { name: "dx_json", kind: "dx", outputs: "json", parts: few(20), direct: 0.5 },
    { name: "dx_all", kind: "dx", outputs: ALL, parts: few(15), direct: 0.5 },
  ];
  const measured: Record<string, Measured> = {};
  for (const workload of workloads) {
    if (files[workload.kind].length === 0) continue;
    measured[workload.name] = await measure(workload, server, models, files[workload.kind]);
  }
  const { ct_all, dx_all } = measured;
  const single =
    ct_all === undefined || dx_all === undefined
      ? undefined
      : await latency(
          server,
          { folder: join(server.input, "dx"), parts: dx_all.parts },
          { files: files.ct, parts: ct_all.parts },
        );
  const result = {
    ...machine(),
    quick: values.quick,
    goals: GOALS,
    ...measured,
    ...(single === undefined ? {} : { single_while_bulk: single }),
  };
  console.log(JSON.stringify(result, undefined, 2));
} finally {
  await server.stop();
  rmSync(scratch, { recursive: true, force: true });
}
