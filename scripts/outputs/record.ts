/** What a checkout answers and writes, one line of JSON for each case. */
import { appendFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { sha256 } from "../../src/files/durable-files.js";
import type { Case } from "./cases.js";
import { startServer, type Answer, type Server } from "./server.js";
import { filesBelow, type Workplace } from "./workplace.js";

export interface Line {
  id: string;
  status: number;
  answer: unknown;
  /** SHA-256 by path below the case's output folder. */
  files: Record<string, string>;
}

/** The contract leaves these out of every comparison, or makes them anew for each request. */
const LEFT_OUT = new Set([
  "request_id",
  "timings_ms",
  "job_id",
  "status_url",
  "created_at",
  "finished_at",
  "images_per_second",
  "estimated_end",
]);
/** In place of the id of a job, which is random. */
const JOB = "<job>";
const AT_A_TIME = 4;
const TIMINGS = /,\n {2}"timings": \{\n[\s\S]*?\n {2}\}/;
/** It is over the timings too, and by another key in each recording. */
const MAC = /,\n {2}"mac": \{\n[\s\S]*?\n {2}\}/;

/**
 * The answer with the roots' own names replaced, because each recording has another output root.
 */
function neutral(answer: unknown, roots: Readonly<Record<string, string>>): unknown {
  const text = JSON.stringify(answer, (key, value: unknown) =>
    LEFT_OUT.has(key) ? undefined : value,
  );
  return JSON.parse(replaced(text, roots)) as unknown;
}

/** Times in the report of a job: of the job, of the steps of an image, and of each image. */
const REPORT_TIMES = [
  /<div><dt>(?:Begun|Ended)<\/dt><dd>[^<]*<\/dd><\/div>/g,
  /<section><h2>Times of one image<\/h2>[\s\S]*?<\/section>/g,
  /,\d+(?=\r\n)/g,
];

const replaced = (text: string, roots: Readonly<Record<string, string>>): string =>
  Object.entries(roots).reduce((rest, [name, path]) => rest.replaceAll(path, name), text);

/**
 * Hashes of all files; of a receipt without its timings and its MAC, of a job's report without
 * times and the names of roots, otherwise byte for byte.
 */
function hashesOf(folder: string, roots: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    filesBelow(folder).map((file) => {
      const bytes = readFileSync(join(folder, file));
      const name = replaced(file, roots);
      const isReport = /^radserve-report-.*\.(?:csv|html)$/.test(file);
      if (!file.endsWith(".json") && !isReport) return [name, sha256(bytes)];
      const text = bytes.toString("latin1");
      const rest = isReport
        ? REPORT_TIMES.reduce((left, times) => left.replace(times, ""), replaced(text, roots))
        : text.replace(TIMINGS, "").replace(MAC, "");
      return [name, sha256(Buffer.from(rest, "latin1"))];
    }),
  );
}

function bodyOf(
  { models, outputs, more }: Case,
  input: string,
  output: string,
): Record<string, unknown> {
  return {
    input_image_path: input,
    output_folder_path: output,
    ...(models === undefined ? {} : { models }),
    ...(outputs === undefined ? {} : { outputs }),
    ...more,
  };
}

async function single(server: Server, one: Case, input: string, output: string): Promise<Answer> {
  const body = bodyOf(one, input, output);
  const answer = await server.ask("POST", "/single_inference", body);
  return one.again === true ? server.ask("POST", "/single_inference", body) : answer;
}

/** An answer, and the job that it is about. */
interface JobAnswer extends Answer {
  jobId?: string;
}

/**
 * A folder as one job, to its end; the answer is the job and its items, without what the nodes say
 * of themselves, which is another in each process.
 */
async function bulk(server: Server, one: Case, input: string, output: string): Promise<JobAnswer> {
  const accepted = await server.ask("POST", "/bulk_inference", {
    input_folder_path: input,
    output_folder_path: output,
    outputs: one.outputs,
  });
  if (accepted.status !== 202) return accepted;
  const { job_id: jobId } = accepted.body as { job_id: string };
  const page = `/bulk_inference/${jobId}`;
  let job: Answer;
  do {
    await delay(100);
    job = await server.ask("GET", page);
  } while (!["completed", "cancelled"].includes((job.body as { state: string }).state));
  const items = await server.ask("GET", `${page}/items?limit=1000`);
  // A checkout of 0.6 calls its nodes boxes
  const {
    boxes = [],
    nodes = boxes,
    pinned,
    ...rest
  } = job.body as Partial<Record<"boxes" | "nodes", object[]>> & { pinned?: object };
  // Of each installation
  const pins = pinned && { ...pinned, result_key: undefined };
  const body = { job: { ...rest, pinned: pins, nodes: nodes.length } };
  return { status: job.status, body: { ...body, items: items.body }, jobId };
}

async function inspect(server: Server, input: string): Promise<Answer> {
  const { status, stdout } = await server.command("inspect", input, "--json");
  return { status, body: JSON.parse(stdout) as unknown };
}

async function lineOf(server: Server, place: Workplace, one: Case, at: number): Promise<Line> {
  const input = join(place.input, one.input);
  const output = join(server.output, String(at));
  mkdirSync(output);
  const answer: JobAnswer =
    one.command === "inspect"
      ? await inspect(server, input)
      : await (one.command === "bulk" ? bulk : single)(server, one, input, output);
  if (answer.status === 503)
    throw new Error(`The server takes no work: ${JSON.stringify(answer.body)}`);
  const { jobId } = answer;
  const roots = {
    "<output>": output,
    "<input>": place.input,
    "<outputs>": server.output,
    ...(jobId !== undefined && { [JOB]: jobId }),
  };
  const line = {
    id: one.id,
    status: answer.status,
    answer: neutral(answer.body, roots),
    files: hashesOf(output, roots),
  };
  rmSync(output, { recursive: true });
  return line;
}

/** Runs all cases, a few at a time: what one writes must not depend on what runs beside it. */
export async function record(checkout: string, place: Workplace, file: string): Promise<void> {
  const server = await startServer(checkout, place);
  writeFileSync(file, `${JSON.stringify({ inputs: place.sha256 })}\n`);
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => void server.stop().finally(() => process.exit(1)));
  const began = performance.now();
  let next = 0;
  const take = async () => {
    for (let at = next++; at < place.cases.length; at = next++) {
      const one = place.cases[at];
      if (one === undefined) return;
      appendFileSync(file, `${JSON.stringify(await lineOf(server, place, one, at))}\n`);
      const seconds = Math.round((performance.now() - began) / 1000);
      if ((at + 1) % 100 === 0)
        console.log(`${at + 1} of ${place.cases.length} after ${seconds} s`);
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_A_TIME }, take));
  } finally {
    await server.stop();
  }
}
