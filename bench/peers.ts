/**
 * `npm run bench -- peers [--quick] [--only ct,dx,dxj2k,us,volume] [--outputs json,all] [--peers
 * radserve,script,...] [--at 1,4,16,64] [--against CHECKOUT] [--rounds N] [--seconds N] [--write]`:
 * Radserve and what somebody would run instead, by turns. `--against` names another checkout that
 * has been built: it takes turns too, under the name "before". `--write` puts tables and chart into
 * docs/benchmarks.md. A full run takes about an hour and a half; `--quick` shows in some minutes
 * that everything works, and its figures mean nothing.
 */
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { MeasuredProcess } from "./lib/measured-process.js";
import { machine } from "./lib/server.js";
import { median } from "./lib/statistics.js";
import { built, CONTENDERS, type Contender, type Outputs } from "./peers/contenders.js";
import { fsyncCost } from "./peers/disk.js";
import { goalsOf, goalTable } from "./peers/goals.js";
import { writeReport } from "./peers/report.js";
import { measure, type Course, type Load, type Turn } from "./peers/turns.js";
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
    write: { type: "boolean", default: false },
  },
});

const listOf = (text: string): string[] => text.split(",");

/** What the names stand for. Throws where one is none of them. */
function chosen<T>(
  option: string,
  names: readonly string[],
  among: Readonly<Record<string, T>>,
): [string, T][] {
  return names.map((name) => {
    const found = among[name];
    if (found !== undefined) return [name, found];
    throw new Error(`${option}: expected some of ${Object.keys(among).join(", ")}; found ${name}.`);
  });
}

const everybody: Record<string, Contender> = {
  ...CONTENDERS,
  ...(values.against === undefined ? {} : { before: built(values.against) }),
};
const peers = [...listOf(values.peers), ...(values.against === undefined ? [] : ["before"])];
const contenders = new Map(chosen("--peers", peers, everybody));
const works = chosen("--only", listOf(values.only), WORKS);
const rounds = Number(values.rounds ?? (values.quick ? 1 : 5));
const seconds = Number(values.seconds ?? (values.quick ? 1 : 5));
const say = (text: string) => process.stderr.write(`${text}\n`);

/** Requests at once with a work. */
function concurrenciesOf(at: readonly number[]): number[] {
  if (values.at !== undefined) return listOf(values.at).map(Number);
  return values.quick ? [4] : [...at];
}

/**
 * One row: medians over the rounds, and the ratio of Radserve to it within each round; Radserve
 * under the most requests where the other takes none.
 */
function rowOf(turns: readonly Turn[], peer: string, concurrency: number) {
  const of = (name: string) =>
    turns.filter((t) => t.peer === name && t.concurrency === concurrency);
  const same = of("radserve");
  const most = Math.max(...turns.filter((t) => t.peer === "radserve").map((t) => t.concurrency));
  const own =
    same.length > 0 ? same : turns.filter((t) => t.peer === "radserve" && t.concurrency === most);
  const theirs = of(peer);
  const ratios = theirs.flatMap(({ round, images_per_second }) => {
    const mine = own.find((t) => t.round === round);
    return mine === undefined ? [] : [mine.images_per_second / images_per_second];
  });
  const mid = (key: "images_per_second" | "cpu_ms" | "peak_mib" | "p50_ms" | "p99_ms") =>
    Math.round(median(theirs.map((t) => t[key])) * 100) / 100;
  return {
    peer,
    at: concurrency,
    per_s: mid("images_per_second"),
    cpu_ms: mid("cpu_ms"),
    mib: mid("peak_mib"),
    p50: mid("p50_ms"),
    p99: mid("p99_ms"),
    ratio: median(ratios).toFixed(2),
    from: Math.min(...ratios).toFixed(2),
    to: Math.max(...ratios).toFixed(2),
  };
}

const titles = {
  works: Object.fromEntries(Object.entries(WORKS).map(([name, { title }]) => [name, title])),
  peers: Object.fromEntries(Object.entries(everybody).map(([name, { title }]) => [name, title])),
};
const loadBefore = os.loadavg()[0] ?? 0;

function whatRan(): string {
  const { commit, node, cpu } = machine();
  const loads = [loadBefore, os.loadavg()[0] ?? 0].map((value) => value.toFixed(0));
  return (
    `\`npm run bench -- peers ${process.argv.slice(2).join(" ")}\` at commit ${commit} on ${new Date().toISOString().slice(0, 10)}: ` +
    `${rounds} ${rounds === 1 ? "round" : "rounds"}, ${seconds} s a turn, by turns; ${cpu}, Node.js ${node}. The load average of the machine was ` +
    `${loads[0]} at the beginning and ${loads[1]} at the end, the bench itself among it.`
  );
}

/**
 * What the script takes more for an image when it waits for the disk and hashes, one request at a
 * time.
 */
function promisesCost(turns: readonly Turn[]): string[] {
  const alone = turns.filter(({ concurrency }) => concurrency === 1);
  return [...new Set(alone.map(({ work, outputs }) => JSON.stringify([work, outputs])))].flatMap(
    (group) => {
      const of = alone.filter(({ work, outputs }) => JSON.stringify([work, outputs]) === group);
      const more = of
        .filter(({ peer }) => peer === "same")
        .flatMap((same) => {
          const bare = of.find(({ peer, round }) => peer === "script" && round === same.round);
          return bare === undefined
            ? []
            : [1000 / same.images_per_second - 1000 / bare.images_per_second];
        });
      if (more.length === 0) return [];
      const { work, outputs } = of[0]!;
      return [`${median(more).toFixed(1)} ms (${work}, ${outputs})`];
    },
  );
}

function aboutDisk(turns: readonly Turn[]): string {
  const { file_ms, folder_ms, times } = disk;
  const costs = promisesCost(turns);
  return (
    `fsync of a new file of 4 KiB takes ${file_ms.toFixed(2)} ms on this machine and of its folder ${folder_ms.toFixed(2)} ms ` +
    `(medians of ${times}).` +
    (costs.length === 0
      ? ""
      : ` With hashes, fsync and rename the script takes so much longer for an image, one at a time: ${costs.join(", ")}.`)
  );
}

const load: Load = new MeasuredProcess(
  fileURLToPath(new URL("./peers/load.js", import.meta.url)),
  [],
);
const scratch = mkdtempSync(join(os.tmpdir(), "radserve-peers-"));
const disk = fsyncCost(scratch, values.quick ? 20 : 200);
const missing: string[] = [];
const course: Course = {
  load,
  scratch,
  contenders,
  rounds,
  seconds,
  quick: values.quick,
  say,
  missing,
};
const all: Turn[] = [];

/**
 * What was measured so far goes into the report, so that a run that is cut short leaves what it
 * has.
 */
function report(): void {
  if (!values.write) return;
  const goals = goalsOf(all);
  const measured = { said: said(), turns: all };
  writeReport({ ...measured, ...(goals.length === 0 ? {} : { goals: goalTable(goals) }) }, titles);
}

function said(): string[] {
  const failed =
    missing.length === 0 ? [] : [`These failed, and are missing: ${missing.join(", ")}.`];
  return [whatRan(), aboutDisk(all), ...failed];
}

try {
  for (const [name, work] of works)
    for (const outputs of listOf(values.outputs).filter((one) =>
      work.outputs.includes(one as Outputs),
    )) {
      const turns = await measure(course, name, work, outputs as Outputs, concurrenciesOf(work.at));
      all.push(...turns);
      report();
      say(`${work.title}; ${outputs}`);
      console.table(
        [...new Set(turns.map(({ concurrency }) => concurrency))].flatMap((at) =>
          peers
            .filter((peer) => turns.some((t) => t.peer === peer && t.concurrency === at))
            .map((peer) => rowOf(turns, peer, at)),
        ),
      );
    }
  const goals = goalsOf(all);
  if (goals.length > 0) console.table(goals);
  say(said().join("\n"));
} finally {
  load.stop();
  rmSync(scratch, { recursive: true, force: true });
}
