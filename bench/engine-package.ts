/**
 * `npm run bench -- engine-package [--quick]`: the engine of graphs, as the package radserve-engine
 * has it, beside onnxruntime-node of the same version, by turns: rates, latencies and the delay of
 * the event loop with 1, 4 and 16 runs in flight, against the better of its one thread and all
 * cores; and memory over 1,000 loads and unloads. At the end stand the goals.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { MeasuredProcess } from "./lib/measured-process.js";
import { denseNet121, smallCnn, transformer, TRANSFORMER } from "./lib/models.js";
import { installOrt, type LoadResult } from "./lib/node-rival.js";
import type { MemorySetting, SideSetting } from "./lib/package-sides.js";
import { median } from "./lib/statistics.js";

const { values } = parseArgs({ options: { quick: { type: "boolean" } } });
const quick = values.quick === true;

const NETWORKS = [
  { name: "DenseNet-121", make: denseNet121, shape: [1, 1, 224, 224] },
  { name: "small CNN", make: smallCnn, shape: [1, 1, 256, 256] },
  { name: "transformer", make: transformer, shape: [1, TRANSFORMER.words, TRANSFORMER.width] },
] as const;
const IN_FLIGHT = [1, 4, 16] as const;
const GOALS = { 1: 0.97, 4: 1, 16: 1 } as const;
const MOST_DELAY_MS = 5;
const MOST_GROWTH = 1.02;
const [ROUNDS, SECONDS, LOADS] = quick ? [1, 0.3, 50] : [5, 0.5, 1_000];

type Process = MeasuredProcess<SideSetting | MemorySetting, LoadResult | { ratio: number }>;
const script = fileURLToPath(new URL("lib/package-sides.js", import.meta.url));

interface Row {
  network: string;
  in_flight: number;
  ours_per_s: number;
  theirs_per_s: number;
  ratio: number;
  goal: number;
  delay_p99_ms: number;
  their_delay_p99_ms: number;
  p50_ms: number;
  their_p50_ms: number;
}

async function compare(
  [ours, theirs]: readonly [Process, Process],
  network: (typeof NETWORKS)[number],
  model: string,
  concurrency: (typeof IN_FLIGHT)[number],
): Promise<Row> {
  const cores = availableParallelism();
  const side = (one: Process, threads: number) =>
    one.run({
      model,
      shape: network.shape,
      threads,
      concurrency,
      seconds: SECONDS,
    }) as Promise<LoadResult>;
  const rounds: { ours: LoadResult; one: LoadResult; all: LoadResult }[] = [];
  for (let round = 0; round < ROUNDS; round++)
    rounds.push({
      one: await side(theirs, 1),
      ours: await side(ours, cores),
      all: await side(theirs, cores),
    });
  const rate = (kind: "one" | "all") => median(rounds.map((round) => round[kind].rate));
  const better = rate("one") > rate("all") ? "one" : "all";
  const of = (pick: (result: LoadResult) => number) => ({
    ours: median(rounds.map((round) => pick(round.ours))),
    theirs: median(rounds.map((round) => pick(round[better]))),
  });
  const [rates, delays, halves] = [of((r) => r.rate), of((r) => r.delayP99), of((r) => r.p50)];
  return {
    network: network.name,
    in_flight: concurrency,
    ours_per_s: rates.ours,
    theirs_per_s: rates.theirs,
    ratio: median(rounds.map((round) => round.ours.rate / round[better].rate)),
    goal: GOALS[concurrency],
    delay_p99_ms: delays.ours,
    their_delay_p99_ms: delays.theirs,
    p50_ms: halves.ours,
    their_p50_ms: halves.theirs,
  };
}

/** Each in a fresh process: what was loaded before is memory, too. */
async function growth(argument: string, model: string): Promise<{ ratio: number }> {
  const one: Process = new MeasuredProcess(script, [argument]);
  try {
    return (await one.run({ model, shape: NETWORKS[1].shape, loads: LOADS })) as { ratio: number };
  } finally {
    one.stop();
  }
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "radserve-bench-package-"));
  const ortFolder = installOrt(join(folder, "ort"));
  const ours: Process = new MeasuredProcess(script, ["ours"]);
  const theirs: Process = new MeasuredProcess(script, [ortFolder]);
  try {
    const rows: Row[] = [];
    const files = NETWORKS.map((network, i) => {
      const file = join(folder, `${i}.onnx`);
      writeFileSync(file, network.make());
      return file;
    });
    for (const [i, network] of NETWORKS.entries())
      for (const concurrency of IN_FLIGHT) {
        const row = await compare([ours, theirs], network, files[i] ?? "", concurrency);
        console.log(JSON.stringify(row));
        rows.push(row);
      }
    const memory = {
      ours: await growth("ours", files[1] ?? ""),
      theirs: await growth(ortFolder, files[1] ?? ""),
    };
    const machine = {
      cpu: cpus()[0]?.model,
      cores: availableParallelism(),
      node: process.versions.node,
      quick,
    };
    console.log(JSON.stringify({ machine, rows, memory }, null, 2));
    const shown = (value: number | string) =>
      typeof value === "number" ? Number(value.toPrecision(4)) : value;
    console.table(
      rows.map((row) =>
        Object.fromEntries(
          Object.entries(row).map(([key, value]) => [key, shown(value as number | string)]),
        ),
      ),
    );
    console.table([
      ...rows.map(({ network, in_flight, ratio, goal }) => ({
        goal: `${network}, ${in_flight} in flight: at least ${goal}`,
        found: shown(ratio),
        met: ratio >= goal,
      })),
      ...rows.map(({ network, in_flight, delay_p99_ms }) => ({
        goal: `${network}, ${in_flight} in flight: delay of the loop, p99, at most ${MOST_DELAY_MS} ms`,
        found: shown(delay_p99_ms),
        met: delay_p99_ms <= MOST_DELAY_MS,
      })),
      {
        goal: `memory after ${LOADS} loads and unloads: at most ${MOST_GROWTH}`,
        found: shown(memory.ours.ratio),
        met: memory.ours.ratio <= MOST_GROWTH,
      },
    ]);
  } finally {
    ours.stop();
    theirs.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
