/**
 * `npm run bench:peers -- [--quick] [--only ct,dx] [--outputs json,all] [--peers radserve,script,same] [--at 1,4,16,64]
 * [--rounds N] [--seconds N] [--json]`: Radserve and what somebody would run instead, by turns.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { MeasuredProcess } from "./lib/measured-process.js";
import { cpuSeconds, pss, watchPss } from "./lib/process-tree.js";
import { machine } from "./lib/server.js";
import { median } from "./lib/statistics.js";
import { CONTENDERS, turnFolder, type Outputs, type Place, type Service } from "./peers/contenders.js";
import type { LoadResult, LoadSetting } from "./peers/load.js";
import { venv } from "./peers/venv.js";
import { WORKS } from "./peers/works.js";

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string", default: Object.keys(WORKS).join(",") },
    outputs: { type: "string", default: "json,all" },
    peers: { type: "string", default: Object.keys(CONTENDERS).join(",") },
    at: { type: "string" },
    rounds: { type: "string" },
    seconds: { type: "string" },
    json: { type: "boolean", default: false },
  },
});

const listOf = (text: string): string[] => text.split(",");
const rounds = Number(values.rounds ?? (values.quick ? 2 : 7));
const seconds = Number(values.seconds ?? (values.quick ? 2 : 5));
const concurrencies = listOf(values.at ?? (values.quick ? "1,4,16" : "1,4,16,64")).map(Number);
const say = (text: string) => process.stderr.write(`${text}\n`);

export interface Turn {
  work: string;
  outputs: Outputs;
  peer: string;
  concurrency: number;
  round: number;
  images_per_second: number;
  cpu_ms: number;
  peak_mib: number;
  p50_ms: number;
  p99_ms: number;
}

type Load = MeasuredProcess<LoadSetting, LoadResult>;

async function turn(
  load: Load,
  service: Service,
  setting: Omit<LoadSetting, "port" | "token" | "more">,
): Promise<Omit<Turn, "work" | "outputs" | "peer" | "concurrency" | "round">> {
  const { port, token, more, pid } = service;
  const stopWatching = watchPss(pid);
  const before = cpuSeconds(pid);
  const result = await load.run({ ...setting, port, token, more });
  const used = cpuSeconds(pid) - before;
  if (result.wrong > 0) throw new Error(`${result.wrong} wrong answers, the first: ${result.firstWrong}`);
  rmSync(setting.output, { recursive: true, force: true });
  return {
    images_per_second: result.images / result.seconds,
    cpu_ms: (used * 1000) / result.images,
    peak_mib: stopWatching(),
    p50_ms: result.p50,
    p99_ms: result.p99,
  };
}

async function measure(load: Load, scratch: string, work: string, outputs: Outputs): Promise<Turn[]> {
  const { images, write, model } = WORKS[work]!;
  const [input, output, models] = ["input", "output", "models"].map((name) => join(scratch, work, name)) as [
    string,
    string,
    string,
  ];
  for (const folder of [input, output, models]) mkdirSync(folder, { recursive: true });
  const rival = model(models);
  const inputs = await write(input, values.quick ? Math.min(images, 50) : images);
  const place: Place = { input, output, models, rival, outputs, python: venv() };
  const peers = listOf(values.peers);
  const services = new Map<string, Service>();
  const turns: Turn[] = [];
  try {
    for (const peer of peers) services.set(peer, await CONTENDERS[peer]!.start(place));
    for (const [peer, service] of services) {
      const warm = { inputs, output: turnFolder(output, `${peer}-warm`), concurrency: 4, seconds };
      await turn(load, service, warm);
    }
    for (let round = 0; round < rounds; round++) {
      for (const concurrency of concurrencies) {
        // Each round begins with another one
        for (let i = 0; i < peers.length; i++) {
          const peer = peers[(i + round) % peers.length]!;
          const folder = turnFolder(output, `${peer}-${round}-${concurrency}`);
          const figures = await turn(load, services.get(peer)!, {
            inputs,
            output: folder,
            concurrency,
            seconds,
          });
          turns.push({ work, outputs, peer, concurrency, round, ...figures });
        }
      }
    }
    for (const [peer, { pid }] of services) say(`${peer}: ${pss(pid).toFixed(0)} MiB after it`);
  } finally {
    for (const service of services.values()) await service.stop();
    rmSync(join(scratch, work), { recursive: true, force: true });
  }
  return turns;
}

/** One row: medians over the rounds, and the ratio of Radserve to it within each round. */
function rowOf(turns: readonly Turn[], peer: string, concurrency: number) {
  const of = (name: string) => turns.filter((t) => t.peer === name && t.concurrency === concurrency);
  const own = of("radserve");
  const theirs = of(peer);
  const ratios = theirs.flatMap(({ round, images_per_second }) => {
    const mine = own.find((t) => t.round === round);
    return mine === undefined ? [] : [mine.images_per_second / images_per_second];
  });
  const mid = (key: "images_per_second" | "cpu_ms" | "peak_mib" | "p50_ms" | "p99_ms") =>
    Math.round(median(theirs.map((t) => t[key])) * 100) / 100;
  return {
    ...{ peer, at: concurrency, per_s: mid("images_per_second"), cpu_ms: mid("cpu_ms") },
    ...{ mib: mid("peak_mib"), p50: mid("p50_ms"), p99: mid("p99_ms") },
    ...{
      ratio: median(ratios).toFixed(2),
      from: Math.min(...ratios).toFixed(2),
      to: Math.max(...ratios).toFixed(2),
    },
  };
}

const load: Load = new MeasuredProcess(fileURLToPath(new URL("./peers/load.js", import.meta.url)), []);
const scratch = mkdtempSync(join(os.tmpdir(), "radserve-peers-"));
const all: Turn[] = [];
try {
  for (const work of listOf(values.only))
    for (const outputs of listOf(values.outputs) as Outputs[]) {
      const turns = await measure(load, scratch, work, outputs);
      all.push(...turns);
      say(`${WORKS[work]!.title}; ${outputs}`);
      if (!values.json)
        console.table(
          concurrencies.flatMap((at) => listOf(values.peers).map((peer) => rowOf(turns, peer, at))),
        );
    }
  if (values.json) console.log(JSON.stringify({ machine: machine(), turns: all }));
} finally {
  load.stop();
  rmSync(scratch, { recursive: true, force: true });
}
