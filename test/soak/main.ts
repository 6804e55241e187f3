/**
 * `npm run trial -- soak [--minutes N] [--seed N] [--only LOAD,LOAD]`: two nodes with one
 * PostgreSQL under mixed load and under faults. For the first half their processes, the PostgreSQL
 * and a PACS are killed or go away again and again; in the second half nothing is, so that memory
 * and descriptors can be told. Prints how every kind of request ended, what each process took in
 * each minute, the trends, and what was wrong. With one kind of load alone, it shows which of them
 * takes memory.
 */
import { execFileSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import net from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { ServingNode } from "../crash/lib/node.js";
import { writeImages, writeSlice, type TestImage } from "../crash/lib/images.js";
import { CrashJob } from "../crash/lib/job.js";
import { slay } from "../crash/lib/processes.js";
import { notAllSucceeded } from "../crash/lib/scenario.js";
import { processesOf } from "../crash/lib/killing.js";
import { SharedPostgres } from "../crash/lib/postgres.js";
import { verify } from "../crash/lib/verify.js";
import { secondNode } from "../crash/scenarios/kills.js";
import { attributesOf, CT_SLICE, dicomFile, picture, random } from "../support/dicom.js";
import { freePort, issueToken, root, type Place } from "../support/server.js";
import { NO_NODE_CAN_RUN } from "../../src/jobs/pins.js";
import { jobListSchema } from "../../src/jobs/schema.js";
import { writeVolumeModel } from "../support/volume-model.js";
import { webPacs } from "../support/web-pacs.js";
import { writeHostile } from "./hostile.js";
import { Ledger } from "./ledger.js";
import {
  bulkBySeries,
  clocks,
  neverReading,
  Received,
  Share,
  shareAway,
  viewer,
  volumes,
  writeBodyModel,
  writeGateway,
  type Soak,
} from "./together.js";
import { median, PARTS, sampleTrees, trendOf, type Sample, type Trend } from "./usage.js";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "30" },
    seed: { type: "string", default: "1" },
    only: { type: "string" },
  },
});

const MINUTE = 60_000;
const DURATION_MS = Number(values.minutes) * MINUTE;
const SAMPLE_MS = 2_000;
const RELOAD_MS = 15_000;
/**
 * Share of the time in which processes are killed; then the server has time to settle before it is
 * measured.
 */
const KILLING = 0.5;
const MEASURED_FROM = 0.6;
/**
 * Growth from the first to the last quarter of the measured time that is still flat. A short run
 * only prints it.
 */
const FLAT = { memory: { share: 0.15, least: 100 }, descriptors: { share: 0.1, least: 20 } };
const JUDGED_FROM_MINUTES = 10;
const BULK_ITEMS = 40;
const LONGEST_JOB_MS = 15 * MINUTE;
const RESERVE = 4 << 20;
const DISK = 48 << 20;
const ALL_OUTPUTS = ["json", "png", "sr", "seg", "sc"];
const isRoot = process.getuid?.() === 0;

/** When the nodes were ready. */
let began = performance.now();
const elapsed = () => performance.now() - began;
const running = () => elapsed() < DURATION_MS;
const killing = () => values.only === undefined && elapsed() < DURATION_MS * KILLING;

/** Ends early where the run does. */
async function pause(ms: number): Promise<void> {
  await delay(Math.max(0, Math.min(ms, DURATION_MS - elapsed())));
}

/**
 * One image after another, each a new one, each with its receipt checked against its file and what
 * was painted.
 */
async function singles(
  { home, ledger }: Soak,
  name: string,
  first: number,
  more: object,
  files: number,
) {
  const [input, output] = [path.join(home.input, name), path.join(home.output, name)];
  for (let number = first; running(); number++) {
    const image = writeSlice(input, `${number}.dcm`, number);
    const answer = await ledger.ask(
      name,
      "POST",
      "/single_inference",
      { statuses: [200] },
      {
        input_image_path: path.join(input, image.relative),
        output_folder_path: output,
        models: ["ct-tissue"],
        ...more,
      },
    );
    if (answer?.status === 200)
      checkAndForget(ledger, name, [image], input, output, { files, by: "singles" });
    rmSync(path.join(input, image.relative));
  }
}

function checkAndForget(
  ledger: Ledger,
  name: string,
  images: readonly TestImage[],
  input: string,
  output: string,
  expected: { files: number; by: "job" | "singles" },
): void {
  const { faults, receipts } = verify(images, input, output, expected);
  for (const fault of faults) ledger.fault(`${name}: ${fault}`);
  ledger.counts.set("verified receipts", (ledger.counts.get("verified receipts") ?? 0) + receipts);
  rmSync(output, { recursive: true, force: true });
}

/** Large images, which fill the memory budget and keep threads busy; some with too little time. */
async function large({ home, ledger, next }: Soak) {
  const size = { rows: 2048, columns: 2048, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const raw = picture(size, 3);
  const file = path.join(home.input, "large.dcm");
  writeFileSync(file, dicomFile({ attributes: attributesOf(raw, CT_SLICE), pixels: raw.data }));
  const output = path.join(home.output, "large");
  while (running()) {
    const timeout_ms = next() < 0.3 ? 20 : 120_000;
    await ledger.ask(
      "large",
      "POST",
      "/single_inference",
      { statuses: [200], ...(timeout_ms === 20 ? { codes: ["deadline_exceeded"] } : {}) },
      { input_image_path: file, output_folder_path: output, outputs: ALL_OUTPUTS, timeout_ms },
    );
    rmSync(output, { recursive: true, force: true });
    await pause(2_000);
  }
}

async function bulk({ home, node, ledger }: Soak) {
  for (let number = 0; running(); number++) {
    const name = `bulk-${number}`;
    const [input, output] = [path.join(home.input, name), path.join(home.output, name)];
    const images = writeImages(input, BULK_ITEMS, { first: 1_000_000 + number * BULK_ITEMS });
    const job = await CrashJob.submit(node, name, {
      input_folder_path: input,
      output_folder_path: output,
      outputs: ALL_OUTPUTS,
    });
    const ended = await job.untilEnded(LONGEST_JOB_MS);
    for (const fault of notAllSucceeded(ended, BULK_ITEMS)) ledger.fault(`${name}: ${fault}`);
    ledger.counts.set(
      "bulk items",
      (ledger.counts.get("bulk items") ?? 0) + ended.counts.succeeded,
    );
    checkAndForget(ledger, name, images, input, output, {
      files: ALL_OUTPUTS.length - 1,
      by: "job",
    });
    rmSync(input, { recursive: true });
  }
}

async function looks({ ledger, next }: Soak) {
  const unavailable = { passing: ["bulk_unavailable", "model_unavailable"] };
  while (running()) {
    await ledger.ask("GET models", "GET", "/models", { statuses: [200] });
    await ledger.ask("GET jobs", "GET", "/bulk_inference?limit=5", {
      statuses: [200],
      ...unavailable,
    });
    await ledger.ask("GET contract", "GET", "/openapi.json", { statuses: [200] });
    await ledger.ask("GET metrics", "GET", "/metrics", { statuses: [200] });
    // While the models load after a kill, and while its share is away, a node is not ready
    await ledger.ask("GET ready", "GET", "/health/ready", {
      statuses: [200],
      codes: ["share_unavailable"],
      ...unavailable,
    });
    await pause(200 + next() * 800);
  }
}

/**
 * How long another client waits for a page that needs nothing; told and not judged, because a busy
 * machine has its part.
 */
async function health({ ledger }: Soak, waits: { at: number; ms: number }[]) {
  while (running()) {
    const asked = elapsed();
    const answer = await ledger.ask("GET live", "GET", "/health/live", { statuses: [200] });
    if (answer !== undefined) waits.push({ at: asked, ms: elapsed() - asked });
    await pause(100);
  }
}

function tellHealth(waits: readonly { at: number; ms: number }[]): void {
  const later = waits.filter(({ at }) => at >= DURATION_MS * MEASURED_FROM).map(({ ms }) => ms);
  const sorted = later.sort((a, b) => a - b);
  const at = (share: number) =>
    `${(sorted[Math.floor(share * (sorted.length - 1))] ?? NaN).toFixed(0)} ms`;
  console.log(
    `/health/live, after the kills: ${sorted.length} times, median ${at(0.5)}, 99 % ${at(0.99)}, at most ${at(1)}`,
  );
}

async function refusedTokens({ node, ledger }: Soak) {
  const short = await issueToken(node.place, "--expires", "1s");
  const good = await issueToken(node.place);
  const bad = [short, `${good.slice(0, -4)}AAAA`, "", "Bearer x", "a.b.c"];
  await pause(1_500);
  for (let i = 0; running(); i++) {
    // Failed tokens of one address may be slowed
    const expected = { statuses: [401], passing: ["rate_limited"] };
    await ledger.ask("bad token", "GET", "/models", expected, undefined, bad[i % bad.length]);
    await pause(1_000);
  }
}

async function hostile({ home, ledger }: Soak) {
  const folder = path.join(home.input, "hostile");
  mkdirSync(folder);
  const files = writeHostile(folder);
  while (running())
    for (const { name, statuses } of files) {
      const output_folder_path = path.join(home.output, "hostile");
      const body = { input_image_path: path.join(folder, name), output_folder_path };
      await ledger.ask(name, "POST", "/single_inference", { statuses }, body);
      rmSync(output_folder_path, { recursive: true, force: true });
      await pause(1_000);
    }
}

/** Clients that send a part of a request and nothing more, and go away after a while. */
async function slowClients({ node, ledger }: Soak) {
  const { hostname, port } = new URL(node.url);
  const half = `POST /single_inference HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n`;
  const open = new Set<net.Socket>();
  for (let i = 0; running(); i++) {
    const socket = net.connect({ host: hostname, port: Number(port) });
    open.add(socket);
    socket.once("close", () => open.delete(socket)).on("error", () => undefined);
    socket.on("data", () => undefined);
    socket.write(i % 2 === 0 ? half : `${half}\r\n{"input_image`);
    ledger.count("slow client");
    if (open.size > 30) open.values().next().value?.destroy();
    await pause(500);
  }
  for (const socket of open) socket.destroy();
}

/** A small file system fills up: 507. When there is room again, the same request succeeds. */
async function fullDisk({ home, ledger }: Soak, disk: string) {
  const image = writeSlice(path.join(home.input, "disk"), "one.dcm", 7_000_000);
  const output = path.join(disk, "results");
  const ask = (expected: Parameters<Ledger["ask"]>[3]) =>
    ledger.ask("disk", "POST", "/single_inference", expected, {
      input_image_path: path.join(home.input, "disk", image.relative),
      output_folder_path: output,
      models: ["ct-tissue"],
      outputs: ALL_OUTPUTS,
    });
  while (running()) {
    const ballast = path.join(disk, "ballast");
    writeFileSync(ballast, Buffer.alloc(DISK - RESERVE));
    await ask({ statuses: [507] });
    rmSync(ballast);
    const answer = await ask({ statuses: [200] });
    if (answer !== undefined)
      checkAndForget(ledger, "disk", [image], path.join(home.input, "disk"), output, {
        files: ALL_OUTPUTS.length - 1,
        by: "singles",
      });
    await pause(5_000);
  }
}

/**
 * Now and then another version of a model, once nothing is killed any more: a model is not loaded
 * again whose loading a kill cut off.
 */
async function reloads(nodes: readonly ServingNode[], ledger: Ledger, models: string) {
  for (let version = 1; running(); version++) {
    await pause(RELOAD_MS);
    if (!killing()) {
      const manifest = path.join(models, "ct-tissue", "model.json");
      const fields = JSON.parse(readFileSync(manifest, "utf8")) as object;
      writeFileSync(`${manifest}.new`, JSON.stringify({ ...fields, version: `1.0.${version}` }));
      renameSync(`${manifest}.new`, manifest);
    }
    for (const node of nodes) {
      // As `models reload` does, which finds its pid where a supervisor that listens has written it
      const pid = node.serving() === undefined ? undefined : node.supervisor();
      if (pid !== undefined && slay(pid, "SIGHUP"))
        ledger.count(killing() ? "model reload" : "model reload with a new version");
    }
  }
}

/**
 * Jobs of which something is done wait where no node has the version of their model any more: an
 * administrator who has replaced it lets them go on with the new one. The others do so by
 * themselves. A node that is killed just now is asked again.
 */
async function letJobsGoOn({ url }: ServingNode, admin: string): Promise<void> {
  const ask = (method: string, page: string) =>
    fetch(`${url}/bulk_inference${page}`, { method, headers: { Authorization: admin } });
  const answer = await ask("GET", "?limit=100");
  if (!answer.ok) return;
  const { jobs } = jobListSchema.parse(await answer.json());
  for (const { job_id, paused_reason, counts } of jobs) {
    const done = counts.succeeded + counts.partial + counts.failed;
    if (paused_reason?.code === NO_NODE_CAN_RUN && done > 0) await ask("POST", `/${job_id}/resume`);
  }
}

async function kills(nodes: readonly Soak[], postgres: SharedPostgres, { next, ledger }: Soak) {
  const victims = nodes.flatMap(({ node, ledger }, i) =>
    Object.entries(processesOf(node, ` of node ${i + 1}`)).map(([name, slay]) => ({
      name,
      slay,
      node,
      ledger,
    })),
  );
  for (let turn = 0; running() && killing(); turn++) {
    // On a busy machine a start takes long: a server that is killed at each start would show
    // nothing
    for (const { node } of nodes) await node.untilReady();
    await pause(5_000 + next() * 8_000);
    if (!killing()) return;
    const victim = victims[turn % (victims.length + 1)];
    if (victim === undefined) {
      if (postgres.kill()) ledger.count("kill -9 of PostgreSQL");
      continue;
    }
    // Told before it is done: a connection may break at once
    const before = victim.node.serving();
    const ready = victim.ledger.killed();
    if (victim.slay()) ledger.count(`kill -9 of the ${victim.name}`);
    // The one before may answer for a moment
    while ([undefined, before].includes(victim.node.serving())) await delay(100);
    await victim.node.untilReady();
    ready();
  }
}

async function measure(nodes: readonly ServingNode[], postgres: SharedPostgres, samples: Sample[]) {
  while (running()) {
    const pids = [...nodes.map((node) => node.supervisor()), postgres.pid];
    if (pids.every((pid) => pid !== undefined)) samples.push(sampleTrees(pids, elapsed()));
    await pause(SAMPLE_MS);
  }
}

function describe(name: string, unit: string, trend: Trend): string {
  const figure = (value: number) => value.toFixed(0);
  return `${name}: ${figure(trend.first)} ${unit} at the beginning of the measured time, ${figure(trend.last)} at its end, at most ${figure(trend.most)}; slope ${trend.slope.toFixed(1)} ${unit} an hour`;
}

/** What the processes took in each minute, in MiB. */
function tellMinutes(samples: readonly Sample[]): void {
  console.log(["minute", ...PARTS, "all"].map((word) => word.padStart(10)).join(" "));
  for (let minute = 0; minute * MINUTE < DURATION_MS; minute++) {
    const some = samples.filter(({ at }) => Math.floor(at / MINUTE) === minute);
    if (some.length === 0) continue;
    const figures = [
      ...PARTS.map((part) => some.map((s) => s.parts[part])),
      some.map((s) => s.memory),
    ];
    const row = [minute + 1, ...figures.map((values) => median(values))];
    console.log(row.map((value) => value.toFixed(0).padStart(10)).join(" "));
  }
}

function judge(ledger: Ledger, samples: readonly Sample[]): void {
  const measured = samples.filter(({ at }) => at >= DURATION_MS * MEASURED_FROM);
  for (const part of PARTS)
    console.log(
      describe(
        `memory, ${part}`,
        "MiB",
        trendOf(measured, (sample) => sample.parts[part]),
      ),
    );
  for (const [of, unit] of [
    ["memory", "MiB"],
    ["descriptors", "descriptors"],
  ] as const) {
    const trend = trendOf(measured, (sample) => sample[of]);
    console.log(describe(of, unit, trend));
    const { share, least } = FLAT[of];
    const growth = trend.last - trend.first;
    if (
      Number(values.minutes) >= JUDGED_FROM_MINUTES &&
      growth > Math.max(least, trend.first * share)
    )
      ledger.fault(`${of} grew by ${growth.toFixed(0)} ${unit}`);
  }
}

/** What is removed when the soak ends, the last first. */
const ends: (() => unknown)[] = [];

async function startNodes(): Promise<{
  nodes: [ServingNode, ServingNode];
  models: string;
  postgres: SharedPostgres;
  received: Received;
  share: Share | undefined;
  /** What is added to the second node's clock, in milliseconds. */
  clock: string;
}> {
  const models = mkdtempSync(path.join(os.tmpdir(), "radserve-soak-models-"));
  ends.push(() => rmSync(models, { recursive: true }));
  cpSync(path.join(root, "models"), models, { recursive: true });
  writeVolumeModel(models, "bright");
  writeBodyModel(models);
  const pacs = await webPacs({ teardown: (end) => ends.push(end) });
  const postgres = await SharedPostgres.start();
  ends.push(() => postgres.stop());
  const ports = [await freePort(), await freePort()] as const;
  const removed: ServingNode[] = [];
  ends.push(async () => {
    for (const node of removed.reverse()) await node.remove();
  });
  let shared: Place | undefined;
  let share: Share | undefined;
  const clock = `${models}-clock`;
  writeFileSync(clock, "0");
  ends.push(() => rmSync(clock));
  const shifted = path.join(root, "dist/test/support/shifted-clock.js");
  const wrong = { TEST_CLOCK: clock, NODE_OPTIONS: `--import=${shifted}` };
  const prepare = (place: Place) => {
    const isFirst = shared === undefined;
    const port = isFirst ? ports[0] : ports[1];
    if (isFirst && isRoot) {
      share = new Share(place);
      ends.push(() => share?.end());
    }
    shared ??= place;
    const gateway = writeGateway(place, shared, port, pacs.url);
    const roots = [shared.output, ...(share === undefined ? [] : [share.root])].join(":");
    return { ...gateway, ...(isFirst ? {} : wrong), RADSERVE_OUTPUT_ROOTS: roots };
  };
  const settings = {
    RADSERVE_MINIMUM_FREE_DISK: String(RESERVE),
    RADSERVE_MODELS_DIR: models,
    RADSERVE_FILES_BY_HTTP: "view",
    DATABASE_URL: postgres.url,
  };
  const kept = (node: ServingNode) => {
    removed.push(node);
    ends.push(() => node.stop());
    return node;
  };
  const first = kept(await ServingNode.start({ prepare, settings }));
  const second = kept(await secondNode(first, postgres.url, { role: "both", prepare, settings }));
  const nodes: [ServingNode, ServingNode] = [first, second];
  return { nodes, models, postgres, received: new Received(nodes, ports, pacs), share, clock };
}

async function soak(): Promise<readonly string[]> {
  try {
    const { nodes, models, postgres, received, share, clock } = await startNodes();
    began = performance.now();
    const [node, other] = nodes;
    const disk = path.join(node.output, "small-disk");
    mkdirSync(disk);
    if (isRoot) {
      execFileSync("mount", ["-t", "tmpfs", "-o", `size=${DISK}`, "radserve-test", disk]);
      ends.push(() => execFileSync("umount", ["-l", disk]));
    }
    const token = await issueToken(node.place);
    const ledger = new Ledger(node.url, token);
    const rest = { home: node, next: random(Number(values.seed)), running, killing, pause };
    const all: Soak = { node, ledger, ...rest };
    const second: Soak = { node: other, ledger: new Ledger(other.url, token, ledger), ...rest };
    const admin = await issueToken(node.place, "--admin");
    const going = setInterval(() => void letJobsGoOn(node, admin).catch(() => undefined), 1_000);
    ends.push(() => clearInterval(going));
    const samples: Sample[] = [];
    const waits: { at: number; ms: number }[] = [];
    const loads: Record<string, () => Promise<void>> = {
      single: () => singles(all, "single", 2_000_000, { outputs: ["json"] }, 0),
      objects: () =>
        singles(
          second,
          "single with objects",
          3_000_000,
          { outputs: ALL_OUTPUTS },
          ALL_OUTPUTS.length - 1,
        ),
      stat: () => singles(all, "stat", 4_000_000, { outputs: ["json"], priority: "stat" }, 0),
      large: () => large(all),
      volumes: () => volumes(second),
      bulk: () => bulk(all),
      series: () => bulkBySeries(second),
      received: () => received.send(all),
      viewer: () => viewer(all),
      clocks: () => clocks(all, clock),
      looks: () => looks(all),
      health: () => health(all, waits),
      tokens: () => refusedTokens(all),
      hostile: () => hostile(all),
      slow: () => slowClients(all),
      readers: () => neverReading(all),
      reloads: () => reloads(nodes, ledger, models),
      kills: () => kills([all, second], postgres, all),
      ...(isRoot ? { disk: () => fullDisk(all, disk) } : {}),
      ...(share === undefined ? {} : { share: () => shareAway(all, share) }),
    };
    const chosen = values.only?.split(",") ?? Object.keys(loads);
    await Promise.all([
      ...chosen.map((name) => {
        const load = loads[name];
        if (load === undefined)
          throw new Error(`--only: expected ${Object.keys(loads).join(", ")}; found ${name}.`);
        return load();
      }),
      measure(nodes, postgres, samples),
    ]);
    if (chosen.includes("received")) await received.check(ledger);
    for (const [what, times] of [...ledger.counts].sort())
      console.log(`${String(times).padStart(8)}  ${what}`);
    tellMinutes(samples);
    tellHealth(waits);
    judge(ledger, samples);
    return ledger.faults;
  } finally {
    for (const end of ends.reverse()) await end();
  }
}

const faults = await soak();
for (const fault of faults) console.log(`FAULT  ${fault}`);
console.log(
  `${faults.length === 0 ? "ok    " : "FAILED"} ${values.minutes} minutes, seed ${values.seed}`,
);
process.exitCode = faults.length === 0 ? 0 : 1;
