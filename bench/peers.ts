/**
 * `npm run bench:peers -- [--quick] [--only ct,dx] [--outputs json,all] [--peers radserve,script,same] [--at 1,4,16,64]
 * [--against CHECKOUT] [--rounds N] [--seconds N] [--json] [--write]`: Radserve and what somebody would run instead, by
 * turns. `--against` names another checkout that has been built: it takes turns too, under the name "before". `--write`
 * puts table and chart into docs/benchmarks.md.
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
import {
  built,
  CONTENDERS,
  turnFolder,
  type Contender,
  type Outputs,
  type Place,
  type Service,
} from "./peers/contenders.js";
import { writeReport, type Turn } from "./peers/report.js";
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
    against: { type: "string" },
    rounds: { type: "string" },
    seconds: { type: "string" },
    json: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
  },
});

const listOf = (text: string): string[] => text.split(",");
const contenders: Record<string, Contender> = {
  ...CONTENDERS,
  ...(values.against === undefined ? {} : { before: built(values.against) }),
};
const peers = [...listOf(values.peers), ...(values.against === undefined ? [] : ["before"])];
const rounds = Number(values.rounds ?? (values.quick ? 2 : 7));
const seconds = Number(values.seconds ?? (values.quick ? 2 : 5));
const concurrencies = listOf(values.at ?? (values.quick ? "1,4,16" : "1,4,16,64")).map(Number);
const say = (text: string) => process.stderr.write(`${text}\n`);

type Figures = Omit<Turn, "work" | "outputs" | "peer" | "concurrency" | "round">;
type Load = MeasuredProcess<LoadSetting, LoadResult>;

async function turn(
  load: Load,
  service: Service,
  setting: Omit<LoadSetting, "port" | "token" | "more">,
): Promise<Figures> {
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

/** A turn of one that takes no requests. */
async function batchTurn(
  batch: NonNullable<Service["batch"]>,
  output: string,
  forSeconds: number,
): Promise<Figures> {
  const { images, seconds: took, cpu, p50, p99, peakMib } = await batch(output, forSeconds);
  rmSync(output, { recursive: true, force: true });
  const figures = { images_per_second: images / took, cpu_ms: (cpu * 1000) / images };
  return { ...figures, peak_mib: peakMib, p50_ms: p50, p99_ms: p99 };
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
  const place: Place = {
    ...{ input, output, models, rival, outputs },
    get python() {
      return venv();
    },
  };
  const services = new Map<string, Service>();
  const turns: Turn[] = [];
  try {
    for (const peer of peers) services.set(peer, await contenders[peer]!.start(place));
    for (const [peer, service] of services) {
      if (service.batch !== undefined) continue;
      const warm = { inputs, output: turnFolder(output, `${peer}-warm`), concurrency: 4, seconds };
      await turn(load, service, warm);
    }
    for (let round = 0; round < rounds; round++) {
      for (const concurrency of concurrencies) {
        // Each round begins with another one
        for (let i = 0; i < peers.length; i++) {
          const peer = peers[(i + round) % peers.length]!;
          const service = services.get(peer)!;
          const folder = turnFolder(output, `${peer}-${round}-${concurrency}`);
          // It always has as many processes as there are cores: one turn a round
          if (service.batch !== undefined && concurrency !== concurrencies[0]) continue;
          const figures =
            service.batch === undefined
              ? await turn(load, service, { inputs, output: folder, concurrency, seconds })
              : await batchTurn(service.batch, folder, seconds);
          const at = service.batch === undefined ? concurrency : os.availableParallelism();
          turns.push({ work, outputs, peer, concurrency: at, round, ...figures });
        }
      }
    }
    for (const [peer, { pid, batch }] of services)
      if (batch === undefined) say(`${peer}: ${pss(pid).toFixed(0)} MiB after it`);
  } finally {
    for (const service of services.values()) await service.stop();
    rmSync(join(scratch, work), { recursive: true, force: true });
  }
  return turns;
}

/**
 * One row: medians over the rounds, and the ratio of Radserve to it within each round; Radserve under the most requests
 * where the other takes none.
 */
function rowOf(turns: readonly Turn[], peer: string, concurrency: number) {
  const of = (name: string) => turns.filter((t) => t.peer === name && t.concurrency === concurrency);
  const same = of("radserve");
  const most = Math.max(...concurrencies);
  const own = same.length > 0 ? same : turns.filter((t) => t.peer === "radserve" && t.concurrency === most);
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

const titles = {
  works: Object.fromEntries(Object.entries(WORKS).map(([name, { title }]) => [name, title])),
  peers: Object.fromEntries(Object.entries(contenders).map(([name, { title }]) => [name, title])),
};
const loadBefore = os.loadavg()[0] ?? 0;

function whatRan(): string {
  const { commit, node, cpu } = machine();
  const loads = [loadBefore, os.loadavg()[0] ?? 0].map((value) => value.toFixed(0));
  return (
    `\`npm run bench:peers -- ${process.argv.slice(2).join(" ")}\` at commit ${commit} on ${new Date().toISOString().slice(0, 10)}: ` +
    `${rounds} rounds, ${seconds} s a turn, by turns; ${cpu}, Node.js ${node}. The load average of the machine was ` +
    `${loads[0]} at the beginning and ${loads[1]} at the end, the bench itself among it.`
  );
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
          [...new Set(turns.map(({ concurrency }) => concurrency))].flatMap((at) =>
            peers
              .filter((peer) => turns.some((t) => t.peer === peer && t.concurrency === at))
              .map((peer) => rowOf(turns, peer, at)),
          ),
        );
    }
  if (values.write) writeReport(all, titles, whatRan());
  if (values.json) console.log(JSON.stringify({ machine: machine(), turns: all }));
} finally {
  load.stop();
  rmSync(scratch, { recursive: true, force: true });
}
