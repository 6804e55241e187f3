/**
 * Contenders take turns with one work: each is started once, warmed, and measured again and again.
 */
import { mkdirSync, readdirSync, truncateSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import type { MeasuredProcess } from "../lib/measured-process.js";
import { cpuSeconds, pss, watchPss } from "../lib/process-tree.js";
import {
  turnFolder,
  type Contender,
  type Outputs,
  type Place,
  type Service,
} from "./contenders.js";
import type { LoadResult, LoadSetting } from "./load.js";
import type { Work } from "./works.js";

/** One contender's figures in one turn. */
export interface Turn {
  work: string;
  outputs: string;
  peer: string;
  /** Requests at once; processes, for one that has no HTTP. */
  concurrency: number;
  round: number;
  images_per_second: number;
  cpu_ms: number;
  peak_mib: number;
  p50_ms: number;
  p99_ms: number;
}

export type Figures = Omit<Turn, "work" | "outputs" | "peer" | "concurrency" | "round">;
export type Load = MeasuredProcess<LoadSetting, LoadResult>;

/**
 * Gives the room of a folder's files back. The files stay until the whole run has ended: ext4
 * without a journal looks past each inode that was freed in the last minutes whenever it makes one,
 * so that whoever is measured would pay for what the bench removed.
 */
function empty(folder: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true }))
    if (entry.isFile()) truncateSync(join(entry.parentPath, entry.name));
}

/** A turn of a server; every answer was looked at. */
export async function turn(
  load: Load,
  service: Service,
  setting: Omit<LoadSetting, "port" | "token" | "more">,
): Promise<Figures> {
  const { port, token, more, pid } = service;
  const stopWatching = watchPss(pid);
  const before = cpuSeconds(pid);
  const result = await load.run({ ...setting, port, token, more });
  const used = cpuSeconds(pid) - before;
  if (result.wrong > 0)
    throw new Error(`${result.wrong} wrong answers, the first: ${result.firstWrong}`);
  empty(setting.output);
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
  empty(output);
  const figures = { images_per_second: images / took, cpu_ms: (cpu * 1000) / images };
  return { ...figures, peak_mib: peakMib, p50_ms: p50, p99_ms: p99 };
}

export interface Course {
  load: Load;
  scratch: string;
  /** By their names, in the order of the first round. */
  contenders: ReadonlyMap<string, Contender>;
  rounds: number;
  seconds: number;
  /** Few images. */
  quick: boolean;
  say: (text: string) => void;
  /** Those that failed, and with which work. */
  missing: string[];
}

const FEW = 50;

export async function measure(
  { load, scratch, contenders, rounds, seconds, quick, say, missing }: Course,
  name: string,
  work: Work,
  outputs: Outputs,
  concurrencies: readonly number[],
): Promise<Turn[]> {
  const folder = join(scratch, `${name}-${outputs}`);
  const [input, output, models] = ["input", "output", "models"].map((part) =>
    join(folder, part),
  ) as [string, string, string];
  for (const part of [input, output, models]) mkdirSync(part, { recursive: true });
  const rival = await work.model(models);
  const inputs = await work.write(input, quick ? Math.min(work.images, FEW) : work.images);
  const place: Place = { input, output, models, rival, outputs };
  const wanted = [...contenders].filter(
    ([, { outputs: makes }]) => makes?.includes(outputs) ?? true,
  );
  const services = new Map<string, Service>();
  const turns: Turn[] = [];
  /**
   * A long run goes on without a rival that fails, and says so; without Radserve there is nothing
   * to compare.
   */
  const without = async (peer: string, error: unknown) => {
    if (peer === "radserve") throw error;
    missing.push(`${contenders.get(peer)!.title} (${name}, ${outputs})`);
    say(`${peer} is left out: ${(error as Error).message}`);
    await services.get(peer)?.stop();
    services.delete(peer);
    turns.splice(0, Infinity, ...turns.filter((each) => each.peer !== peer));
  };
  try {
    for (const [peer, contender] of wanted)
      try {
        services.set(peer, await contender.start(place));
        const service = services.get(peer)!;
        const warm = {
          inputs,
          output: turnFolder(output, `${peer}-warm`),
          concurrency: 4,
          seconds,
        };
        if (service.batch === undefined) await turn(load, service, warm);
      } catch (error) {
        await without(peer, error);
      }
    for (let round = 0; round < rounds; round++)
      for (const [nth, concurrency] of concurrencies.entries()) {
        // Each round begins with another one
        const peers = [...services.keys()];
        for (let i = 0; i < peers.length; i++) {
          const peer = peers[(i + round) % peers.length]!;
          const service = services.get(peer)!;
          const own = turnFolder(output, `${peer}-${round}-${concurrency}`);
          // It always has as many processes as there are cores: one turn a round
          if (service.batch !== undefined && nth > 0) continue;
          try {
            const figures =
              service.batch === undefined
                ? await turn(load, service, { inputs, output: own, concurrency, seconds })
                : await batchTurn(service.batch, own, seconds);
            const at = service.batch === undefined ? concurrency : os.availableParallelism();
            turns.push({ work: name, outputs, peer, concurrency: at, round, ...figures });
          } catch (error) {
            await without(peer, error);
          }
        }
      }
    for (const [peer, { pid, batch }] of services)
      if (batch === undefined) say(`${peer}: ${pss(pid).toFixed(0)} MiB after it`);
  } finally {
    for (const service of services.values()) await service.stop();
    empty(output);
  }
  return turns;
}
