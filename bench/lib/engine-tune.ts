/**
 * What the engine chooses by itself against what a person could set: engine threads (the lanes of many requests, and
 * the threads of one alone) and how many images a call runs together. Each number of threads in a process of its own,
 * because a process has one engine; all by turns.
 */
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { createEngine } from "../../src/engine/engine.js";
import { type Tensor } from "../../src/base/tensor.js";
import { CPU_NETWORKS, idOf, load, NETWORKS, type CpuNetwork } from "./engine-models.js";
import { answer, MeasuredProcess } from "./measured-process.js";
import { closedLoop, plainInput } from "./node-rival.js";
import { median } from "./statistics.js";

interface Asked {
  network: CpuNetwork;
  /** Images in each call. */
  rows: number;
  concurrency: number;
  seconds: number;
}

interface Setting {
  threads: number;
  rows: number;
}

type Engines = Map<number, MeasuredProcess<Asked, number>>;

const cores = availableParallelism();
const CHOSEN: Setting = { threads: cores, rows: 1 };

/** @returns images a second */
async function measure(engine: ReturnType<typeof createEngine>, id: number, asked: Asked): Promise<number> {
  const { side } = NETWORKS[asked.network];
  const one = plainInput(side, side);
  const data = new Float32Array(asked.rows * one.length);
  for (let row = 0; row < asked.rows; row++) data.set(one, row * one.length);
  const x: Tensor = {
    ...{ name: "x", dtype: "float32", shape: [asked.rows, 1, side, side] },
    data: new Uint8Array(data.buffer),
  };
  const work = () => engine.runTensors(id, [x]);
  const { rate } = await closedLoop(asked.concurrency, asked.seconds, work, false);
  return rate * asked.rows;
}

/** The least of what the chosen setting reaches of each other one, with the rates of all. */
async function sweep(
  engines: Engines,
  settings: readonly Setting[],
  rounds: number,
  asked: Omit<Asked, "rows">,
) {
  const rates = settings.map((): number[] => []);
  for (let round = 0; round < rounds; round++)
    for (const [i, { threads, rows }] of settings.entries())
      rates[i]!.push(await engines.get(threads)!.run({ ...asked, rows }));
  const chosen = rates[settings.indexOf(CHOSEN)]!;
  const reached = rates.map((other) => median(chosen.map((rate, round) => rate / other[round]!)));
  return {
    chosen_over_best: Math.min(...reached),
    sweep: settings.map((setting, i) => ({ ...setting, images_per_second: median(rates[i]!) })),
  };
}

/** @param models the folder with both networks */
export async function tuning(models: string, turn: { seconds: number; rounds: number }) {
  const threads = [...new Set([1, cores, 2 * cores])];
  const script = fileURLToPath(import.meta.url);
  const engines: Engines = new Map(
    threads.map((count) => [count, new MeasuredProcess<Asked, number>(script, [models, `${count}`])]),
  );
  const settings = threads.flatMap((count) =>
    [1, 4].map((rows) =>
      count === CHOSEN.threads && rows === CHOSEN.rows ? CHOSEN : { threads: count, rows },
    ),
  );
  const singles = settings.filter(({ rows }) => rows === 1);
  try {
    const rows: Record<string, object> = {};
    for (const network of CPU_NETWORKS) {
      const { seconds, rounds } = turn;
      rows[network] = {
        saturated: await sweep(engines, settings, rounds, { network, concurrency: 4 * cores, seconds }),
        alone: await sweep(engines, singles, rounds, { network, concurrency: 1, seconds }),
      };
    }
    return rows;
  } finally {
    for (const engine of engines.values()) engine.stop();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [models = "", threads = ""] = process.argv.slice(2);
  const engine = createEngine({ provider: "cpu", threads: Number(threads) });
  const set = load(models, engine);
  answer(async (asked: Asked) => measure(engine, idOf(await set, asked.network), asked));
  process.once("disconnect", () => void set.then((loaded) => loaded.close()).then(() => engine.close()));
}
