/** How figures grow: with the pixels of an image, with the models that are loaded, with the items of a bulk job. */
import { copyFileSync, linkSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { acceptedSchema, jobSchema, type Job } from "../../src/bulk/schema.js";
import { Client } from "../../src/commands/client.js";
import { hasEnded } from "../../src/commands/job-text.js";
import { writeCt } from "../lib/bulk-images.js";
import { pss, watchPss } from "../lib/process-tree.js";
import { startServer, type BenchServer } from "../lib/server.js";
import { median } from "../lib/statistics.js";
import { CONTENDERS, turnFolder } from "./contenders.js";
import { copies, tissue } from "./models.js";
import type { Table } from "./report.js";
import { measure, turn, type Course, type Figures } from "./turns.js";

const round = (value: number): string => (value < 100 ? value.toFixed(1) : value.toFixed(0));
/** These turns are compared with each other and not with a goal: a few rounds show how they grow. */
const ROUNDS = 3;
const AT_ONCE = 4;

/** Of square CT slices, with all objects: Radserve and the script by turns. */
async function pixels(course: Course): Promise<Table> {
  const sides = course.quick ? [512, 1024] : [512, 1024, 2048, 4096];
  const contenders = new Map(["radserve", "script"].map((name) => [name, CONTENDERS[name]!]));
  const rows: string[][] = [];
  for (const side of sides) {
    const turns = await measure(
      { ...course, contenders, rounds: course.quick ? 1 : ROUNDS },
      `ct-${side}`,
      {
        ...{
          title: "",
          images: Math.max(4, Math.round(200 * (512 / side) ** 2)),
          outputs: ["all"],
          at: [AT_ONCE],
        },
        write: (folder, count) => writeCt(folder, count, side),
        model: (directory) => tissue(directory, side),
      },
      "all",
      [AT_ONCE],
    );
    const of = (peer: string, key: keyof Figures) =>
      median(turns.filter((each) => each.peer === peer).map((each) => each[key]));
    const cells = (key: keyof Figures) => ["radserve", "script"].map((peer) => round(of(peer, key)));
    rows.push([
      `${side} x ${side}`,
      ...cells("images_per_second"),
      ...cells("cpu_ms"),
      round((1e6 * of("radserve", "cpu_ms")) / (side * side)),
      ...cells("peak_mib"),
    ]);
  }
  return {
    title: `Growth with pixels: CT, native, ct-tissue, all objects, ${AT_ONCE} at once`,
    head: [
      "pixels",
      ...["Radserve, images/s", "script, images/s", "Radserve, CPU ms", "script, CPU ms"],
      ...["Radserve, CPU us a thousand pixels", "Radserve, peak MiB", "script, peak MiB"],
    ],
    rows,
  };
}

/** Servers that hold so many networks; each request names one of them. */
async function models({ load, scratch, seconds, quick }: Course): Promise<Table> {
  const counts = quick ? [1, 4] : [1, 4, 16];
  const folder = join(scratch, "loaded");
  const servers: {
    count: number;
    server: BenchServer;
    inputs: string[];
    rest: number;
    figures: Figures[];
  }[] = [];
  try {
    for (const count of counts) {
      const directory = join(folder, String(count));
      copies(directory, count);
      const server = await startServer({ RADSERVE_MODELS_DIR: directory });
      const inputs = writeCt(join(server.input, "ct"), 50);
      servers.push({ count, server, inputs, rest: pss(server.process.pid!), figures: [] });
    }
    for (let i = 0; i < (quick ? 1 : ROUNDS); i++)
      for (const { count, server, inputs, figures } of servers) {
        const service = {
          port: Number(new URL(server.url).port),
          token: server.token,
          pid: server.process.pid!,
          more: { outputs: ["json"], models: ["densenet121-1"] },
          stop: () => server.stop(),
        };
        const output = turnFolder(server.output, `${count}-${i}`);
        figures.push(await turn(load, service, { inputs, output, concurrency: AT_ONCE, seconds }));
      }
    const rows = servers.map(({ count, server, rest, figures }) => [
      String(count),
      round(server.readyMs),
      round(rest),
      round(median(figures.map((each) => each.images_per_second))),
      round(median(figures.map((each) => each.cpu_ms))),
      round(median(figures.map((each) => each.peak_mib))),
    ]);
    return {
      title: `Growth with models loaded: DenseNet-121 (28 MB of weights each), CT 512 x 512, one model a request, json, ${AT_ONCE} at once`,
      head: ["models", "ready after, ms", "MiB when ready", "images/s", "CPU ms an image", "peak MiB"],
      rows,
    };
  } finally {
    for (const { server } of servers) await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

const SIDE = 64;
/** Hard links of one content: ext4 allows 65,000. */
const LINKS = 50_000;
const LOOK_MS = 500;

async function job(server: BenchServer, input: string, output: string): Promise<Job> {
  const client = new Client(server.url, server.token);
  const { job_id } = await client.call(acceptedSchema, "POST", "/bulk_inference", {
    ...{ input_folder_path: input, output_folder_path: output, outputs: ["json"] },
  });
  for (;;) {
    const found = await client.call(jobSchema, "GET", `/bulk_inference/${job_id}`);
    if (hasEnded(found)) return found;
    await delay(LOOK_MS);
  }
}

/** Small slices under many names, with receipts alone. */
async function items({ scratch, quick, say }: Course): Promise<Table> {
  const counts = quick ? [100, 1_000] : [100, 1_000, 10_000, 100_000];
  const directory = join(scratch, "items-models");
  tissue(directory);
  const server = await startServer({ RADSERVE_MODELS_DIR: directory });
  const rows: string[][] = [];
  try {
    const [source] = writeCt(join(server.input, "source"), 1, SIDE) as [string];
    // The database starts, and threads get warm
    await job(server, join(server.input, "source"), join(server.output, "warm"));
    for (const count of counts) {
      const input = join(server.input, String(count));
      mkdirSync(input);
      let content = source;
      for (let i = 0; i < count; i++) {
        const path = join(input, `${i}.dcm`);
        if (i % LINKS === 0) copyFileSync(source, (content = path));
        else linkSync(content, path);
      }
      const [own, database] = [server.process.pid!, server.postmaster()!].map((pid) => watchPss(pid, 1_000));
      const ended = await job(server, input, join(server.output, String(count)));
      if (ended.counts.succeeded !== count)
        throw new Error(`Expected ${count} items that succeed, found ${JSON.stringify(ended.counts)}.`);
      const seconds = (Date.parse(ended.finished_at!) - Date.parse(ended.created_at)) / 1000;
      rows.push([String(count), round(seconds), round(count / seconds), round(own!()), round(database!())]);
      say(`${count} items: ${round(count / seconds)} a second`);
      for (const done of [input, join(server.output, String(count))]) rmSync(done, { recursive: true });
    }
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
  return {
    title: `Growth with items of a bulk job: CT ${SIDE} x ${SIDE}, ct-tissue, receipts alone`,
    head: ["items", "seconds", "items/s", "peak MiB of the server", "peak MiB of PostgreSQL"],
    rows,
  };
}

export const GROWTH: Record<string, (course: Course) => Promise<Table>> = { pixels, models, items };
