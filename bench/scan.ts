/**
 * `npm run bench -- scan [--files N]`: the scan of a large folder after the 202, without its images
 * being run (the job is held). All files lie in one folder, then the same number in folders of 500:
 * files a second, resident memory along the way, the longest time that HTTP was silent, and how
 * long the whole job takes to be cancelled.
 */
import { copyFileSync, linkSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { acceptedSchema, jobListSchema, jobSchema, type Job } from "../src/jobs/schema.js";
import { Client } from "../src/commands/client.js";
import { writeCt } from "./lib/bulk-images.js";
import { memoryOf, startServer, type BenchServer } from "./lib/server.js";
import { median, sum } from "./lib/statistics.js";

const { values } = parseArgs({ options: { files: { type: "string", default: "100000" } } });
const FILES = Number(values.files);
const PER_FOLDER = 500;
/** Hard links of one content: ext4 allows 65,000. */
const LINKS = 50_000;
const LOOK_MS = 250;

interface Measured {
  files: number;
  seconds: number;
  files_per_second: number;
  /**
   * Resident MiB of the server's processes when the first tenth was found, when half was, and at
   * the end.
   */
  memory_mib: { first_tenth: number; half: number; last_tenth: number };
  memory_growth: number;
  /** The longest that GET /health/live, asked all the while, took. */
  longest_answer_ms: number;
  cancel_seconds: number;
}

/** The same slice under many names; every 50,000th is a file of its own. */
function writeFiles(source: string, folder: string, nameOf: (i: number) => string): void {
  let content = source;
  for (let i = 0; i < FILES; i++) {
    const file = join(folder, nameOf(i));
    mkdirSync(dirname(file), { recursive: true });
    if (i % LINKS === 0) copyFileSync(source, (content = file));
    else linkSync(content, file);
  }
}

/** Asks again and again, so that a thread that is held up shows. */
async function longestAnswer(url: string, signal: AbortSignal): Promise<number> {
  let longest = 0;
  while (!signal.aborted) {
    const began = performance.now();
    await (await fetch(`${url}/health/live`)).text();
    longest = Math.max(longest, performance.now() - began);
    await delay(2);
  }
  return longest;
}

async function measure(server: BenchServer, folder: string): Promise<Measured> {
  const client = new Client(server.url, server.token);
  const ended = new AbortController();
  const answers = longestAnswer(server.url, ended.signal);
  const began = performance.now();
  const { job_id } = await client.call(acceptedSchema, "POST", "/bulk_inference", {
    input_folder_path: folder,
    output_folder_path: join(server.output, "scan"),
  });
  const page = `/bulk_inference/${job_id}`;
  await client.call(jobSchema, "POST", `${page}/pause`);
  const samples: { found: number; memory: number }[] = [];
  let job: Job;
  do {
    await delay(LOOK_MS);
    job = await client.call(jobSchema, "GET", page);
    const found = sum(Object.values(job.counts));
    samples.push({ found, memory: memoryOf(server) });
  } while (job.total === null);
  const seconds = (performance.now() - began) / 1000;
  if (job.total !== FILES) throw new Error(`${job.total} of ${FILES} files were found.`);
  const asked = performance.now();
  await client.call(jobSchema, "DELETE", page);
  const cancel = (performance.now() - asked) / 1000;
  ended.abort();
  const between = (from: number, to: number) =>
    median(
      samples
        .filter(({ found }) => found >= from * FILES && found <= to * FILES)
        .map((s) => s.memory),
    );
  const memory = {
    first_tenth: between(0.05, 0.15),
    half: between(0.45, 0.55),
    last_tenth: between(0.9, 1),
  };
  return {
    files: FILES,
    seconds,
    files_per_second: FILES / seconds,
    memory_mib: memory,
    memory_growth: memory.last_tenth / memory.first_tenth,
    longest_answer_ms: await answers,
    cancel_seconds: cancel,
  };
}

const scratch = mkdtempSync(join(os.tmpdir(), "radserve-bench-"));
const server = await startServer();
try {
  const [source] = writeCt(scratch, 1) as [string];
  // The database starts at the first call
  await new Client(server.url, server.token).call(jobListSchema, "GET", "/bulk_inference");
  const result: Record<string, Measured> = {};
  const layouts: [string, (i: number) => string][] = [
    ["one_folder", (i) => `${i}.dcm`],
    ["folders_of_500", (i) => join(String(Math.floor(i / PER_FOLDER)), `${i}.dcm`)],
  ];
  for (const [name, nameOf] of layouts) {
    const folder = join(server.input, name);
    writeFiles(source, folder, nameOf);
    result[name] = await measure(server, folder);
    rmSync(folder, { recursive: true });
  }
  console.log(JSON.stringify(result, undefined, 2));
} finally {
  await server.stop();
  rmSync(scratch, { recursive: true, force: true });
}
