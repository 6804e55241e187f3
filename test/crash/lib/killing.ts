/** kill -9 of a random victim every few seconds, by a seed, while jobs run. */
import { setTimeout as delay } from "node:timers/promises";
import { countsText } from "../../../src/commands/job-text.js";
import { random } from "../../support/dicom.js";
import type { ServingNode } from "./node.js";
import { writeImages } from "./images.js";
import { CrashJob } from "./job.js";
import { slay } from "./processes.js";
import { notAllSucceeded, seconds, type Options, type Outcome } from "./scenario.js";
import { verify } from "./verify.js";

/**
 * The ways to kill, by name; each is used as often as the others. One gives false if there is
 * nobody to kill now.
 */
export type Victims = Record<string, () => boolean>;

/** kill -9; false where there is no such process. */
export const slayIf = (pid: number | undefined): boolean => pid !== undefined && slay(pid);

/** The processes of a node; `of` stands behind their names where there are several nodes. */
export const processesOf = (node: ServingNode, of = ""): Victims => ({
  [`supervisor${of}`]: () => slayIf(node.supervisor()),
  [`serving process${of}`]: () => slayIf(node.serving()),
});

const SHORTEST_MS = 1_500;
const LONGEST_MS = 4_000;
/** One image in this many gets all its result objects, not the receipt alone. */
const WITH_OBJECTS = 20;

export class Killer {
  readonly killed: Record<string, number> = {};
  readonly #next: () => number;
  readonly #stop = new AbortController();
  #done: Promise<void> | undefined;

  constructor(
    private readonly victims: Victims,
    private readonly options: Options,
  ) {
    this.#next = random(options.seed);
  }

  get kills(): number {
    return Object.values(this.killed).reduce((a, b) => a + b, 0);
  }

  start(): void {
    this.#done = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }

  async #run(): Promise<void> {
    let next: string[] = [];
    const { signal } = this.#stop;
    while (this.kills < this.options.kills) {
      const pause = SHORTEST_MS + this.#next() * (LONGEST_MS - SHORTEST_MS);
      await delay(pause, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      if (next.length === 0) next = Object.keys(this.victims);
      const turn = Math.floor(this.#next() * next.length);
      const name = next[turn]!;
      // Whoever is not there now, between two starts, keeps the turn
      if (!this.victims[name]!()) continue;
      next.splice(turn, 1);
      this.killed[name] = (this.killed[name] ?? 0) + 1;
      this.options.say(`kill -9 ${name} (${this.kills} of ${this.options.kills})`);
    }
  }
}

/**
 * Two jobs over all images: most with receipts alone, some with every object. Gives the faults of
 * both.
 */
async function round(
  node: ServingNode,
  number: number,
  options: Options,
): Promise<{ items: number; files: number; faults: string[] }> {
  const few = Math.max(1, Math.round(options.items / WITH_OBJECTS));
  const faults: string[] = [];
  let files = 0;
  const parts = [
    { name: `plain-${number}`, count: options.items - few, first: few, outputs: ["json"] },
    {
      name: `objects-${number}`,
      count: few,
      first: 0,
      outputs: ["json", "png", "sr", "seg", "sc"],
    },
  ].map((part) => {
    const [input, output] = [`${node.input}/${part.name}`, `${node.output}/${part.name}`];
    return {
      ...part,
      input,
      output,
      images: writeImages(input, part.count, { first: part.first }),
    };
  });
  const jobs = await Promise.all(
    parts.map(({ name, input, output, outputs }) =>
      CrashJob.submit(node, name, {
        input_folder_path: input,
        output_folder_path: output,
        outputs,
      }),
    ),
  );
  for (const [i, job] of jobs.entries()) {
    const part = parts[i]!;
    const ended = await job.untilEnded();
    options.say(`${part.name}: ${countsText(ended)}`);
    faults.push(...notAllSucceeded(ended, part.count));
    for (const item of ended.counts.failed > 0 ? await job.items("failed") : [])
      faults.push(`item ${item.index} failed: ${JSON.stringify(item.error)}`);
    const inputs = new Set((await job.items()).map((item) => item.input_image_path));
    if (inputs.size !== part.count)
      faults.push(`${inputs.size} different images among ${part.count} items`);
    const verified = verify(part.images, part.input, part.output, {
      files: part.outputs.length - 1,
    });
    faults.push(...verified.faults);
    files += verified.receipts + verified.files;
  }
  return { items: options.items, files, faults };
}

/** Runs jobs while victims die, at least as often as asked for. */
export async function killWhileRunning(
  node: ServingNode,
  victims: Victims,
  options: Options,
): Promise<Outcome> {
  const began = performance.now();
  const killer = new Killer(victims, options);
  const faults: string[] = [];
  let [items, files] = [0, 0];
  killer.start();
  try {
    for (let number = 0; number === 0 || killer.kills < options.kills; number++) {
      const done = await round(node, number, options);
      items += done.items;
      files += done.files;
      faults.push(...done.faults);
      if (done.faults.length > 0) break;
    }
  } finally {
    await killer.stop();
  }
  // A victim that cannot be found must not pass for one that survives
  if (options.kills >= Object.keys(victims).length)
    faults.push(
      ...Object.keys(victims).flatMap((name) =>
        name in killer.killed ? [] : `no kill of ${name}`,
      ),
    );
  const by = Object.entries(killer.killed).map(([name, times]) => `${times} ${name}`);
  const summary = `${items} items, ${killer.kills} kills (${by.join(", ")}), seed ${options.seed}, ${seconds(began)}; ${files} files, each once and with its hash`;
  return { summary, faults };
}
