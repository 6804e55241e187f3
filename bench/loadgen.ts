/**
 * `npm run bench -- loadgen [--quick] [--outputs json|all] [--rounds N] [--seconds N] [--threads N]
 * [--latency MS]`: Radserve asked by a load generator that others wrote, MLCommons' loadgen
 * (mlcommons-loadgen on PyPI), with CT slices of 512 x 512: SingleStream (one after the other),
 * Offline (all at once) over single requests and as a bulk job, and Server (at random times, a
 * Poisson process) at 0.7 of what Offline reached. Nothing here is an MLPerf result: the network is
 * none of theirs, nobody reviewed the run, and generator and server share the cores.
 */
import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";
import { writeCt } from "./lib/bulk-images.js";
import { machine, root, startServer, type BenchServer } from "./lib/server.js";
import { median } from "./lib/statistics.js";
import { figuresOf, type Figures, type Scenario, type Summary } from "./loadgen/summary.js";
import { venv } from "./peers/venv.js";

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    outputs: { type: "string", default: "json" },
    rounds: { type: "string" },
    seconds: { type: "string" },
    threads: { type: "string", default: "16" },
    latency: { type: "string", default: "250" },
  },
});
const rounds = Number(values.rounds ?? (values.quick ? 1 : 3));
const seconds = Number(values.seconds ?? (values.quick ? 3 : 30));
const IMAGES = values.quick ? 50 : 500;
const QUERIES = values.quick ? 20 : 100;
/** Of the rate of Offline: a server that is always full has a queue without an end. */
const SERVER_SHARE = 0.7;
/**
 * Offline gets as many samples as should fill its time, and is not valid where it was faster than
 * was expected.
 */
const OFFLINE_MARGIN = 1.4;
const OUTPUTS = values.outputs === "all" ? ["json", "png", "sr", "seg", "sc"] : ["json"];

interface Run {
  name: string;
  scenario: Scenario;
  way: "http" | "bulk";
  threads: number;
  /** What the generator expects; Server keeps to it. */
  qps: number;
}

const run = promisify(execFile);

async function ask(
  server: BenchServer,
  inputs: string[],
  { name, ...one }: Run,
  round: number,
): Promise<Figures> {
  const output = join(server.output, `${name}-${round}`);
  const settings = {
    ...one,
    port: Number(new URL(server.url).port),
    token: server.token,
    inputs,
    output,
    outputs: OUTPUTS,
    seconds,
    queries: QUERIES,
    latency_ms: Number(values.latency),
    logs: join(output, "..", "..", `logs-${name}-${round}`),
  };
  const words = [join(root, "bench/loadgen/sut.py"), JSON.stringify(settings)];
  const { stdout } = await run(venv("loadgen"), words, { maxBuffer: 2 ** 26 });
  const said = JSON.parse(stdout) as { summary: Summary; wrong: number; first_wrong: string };
  if (said.wrong > 0)
    throw new Error(`${name}: ${said.wrong} wrong answers, the first: ${said.first_wrong}`);
  rmSync(output, { recursive: true, force: true });
  return figuresOf(one.scenario, said.summary);
}

const server = await startServer();
try {
  const inputs = writeCt(join(server.input, "ct"), IMAGES);
  const threads = Number(values.threads);
  const found = new Map<string, Figures[]>();
  const note = async (one: Run, round: number) => {
    const figures = await ask(server, inputs, one, round);
    process.stderr.write(`${one.name}, round ${round + 1}: ${JSON.stringify(figures)}\n`);
    // The round that warms the server up is none
    if (round >= 0) found.set(one.name, [...(found.get(one.name) ?? []), figures]);
    return figures;
  };
  const offline: Run = { name: "Offline", scenario: "Offline", way: "http", threads, qps: 50 };
  let rate = (await note(offline, -1)).samples_per_second ?? offline.qps;
  for (let round = 0; round < rounds; round++) {
    // One after the other is slower than all at once: so the generator has no fewer queries than
    // its time takes
    await note(
      { name: "SingleStream", scenario: "SingleStream", way: "http", threads: 1, qps: rate },
      round,
    );
    rate =
      (await note({ ...offline, qps: rate * OFFLINE_MARGIN }, round)).samples_per_second ?? rate;
    await note(
      { name: "Server", scenario: "Server", way: "http", threads, qps: rate * SERVER_SHARE },
      round,
    );
    await note(
      { name: "Offline as a bulk job", scenario: "Offline", way: "bulk", threads: 1, qps: rate },
      round,
    );
  }
  const rows = [...found].map(([name, all]) => {
    const mid = (key: keyof Figures) => {
      const some = all.flatMap((figures) => figures[key] ?? []);
      return some.length === 0 ? undefined : Number(median(some).toFixed(1));
    };
    return {
      scenario: name,
      samples_per_second: mid("samples_per_second"),
      p50_ms: mid("p50_ms"),
      p90_ms: mid("p90_ms"),
      p99_ms: mid("p99_ms"),
      valid: `${all.filter(({ valid }) => valid === 1).length} of ${all.length}`,
    };
  });
  console.log(machine());
  console.log(
    `CT 512 x 512, ct-tissue, ${OUTPUTS.join("+")}; medians of ${rounds} rounds of ${seconds} s; Server: 99 % within ${values.latency} ms. This is no MLPerf result.`,
  );
  console.table(rows);
} finally {
  await server.stop();
}
