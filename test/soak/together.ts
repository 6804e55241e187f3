/**
 * What the soak has beside requests for single images: series, both ways of the gateway, a share
 * that goes away, clients that never read.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import path from "node:path";
import { Client } from "../../src/commands/client.js";
import { GATEWAY_SUBJECT } from "../../src/features/gateway/subject.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { writeImages, writeSlice, type TestImage } from "../crash/lib/images.js";
import { CrashJob } from "../crash/lib/job.js";
import { notAllSucceeded } from "../crash/lib/scenario.js";
import { verify } from "../crash/lib/verify.js";
import { leave } from "../crash/scenarios/deliveries.js";
import { notDelivered } from "../crash/scenarios/gateway-nodes.js";
import { jobsOfAll, sendUntilKept, slicesOf } from "../crash/scenarios/gateway.js";
import { filesBelow } from "../support/gateway.js";
import { issueToken, type Place } from "../support/server.js";
import type { WebPacs } from "../support/web-pacs.js";
import type { ServingNode } from "../crash/lib/node.js";
import type { Ledger } from "./ledger.js";

/** One node as loads see it, and the time that is left. */
export interface Soak {
  node: ServingNode;
  /** Whose folders all nodes have. */
  home: ServingNode;
  ledger: Ledger;
  next: () => number;
  running: () => boolean;
  /** Processes are killed in this part of the run. */
  killing: () => boolean;
  /** Ends early where the run does. */
  pause: (ms: number) => Promise<void>;
}

const LONGEST_JOB_MS = 15 * 60_000;
const SLICES = 12;
const SERIES = 3;
/** Numbers of slices in one series (test/crash/lib/images.ts). */
const NUMBERS = 500;
/** Slices are 1 mm apart: a cm2 of each is a tenth of a ml. */
const ML_PER_CM2 = 0.1;
const VOLUME_MODEL = "bright";

/** Writes a series of its own into a folder. */
const writeSeries = (folder: string, series: number): TestImage[] =>
  Array.from({ length: SLICES }, (_, z) => writeSlice(folder, `${z}.dcm`, series * NUMBERS + z));

const volumeOf = (images: readonly TestImage[]): number =>
  images.reduce((sum, { boneCm2 }) => sum + boneCm2 * ML_PER_CM2, 0);

/** Faults of the receipt of a series: its slices, what was painted, and the files that it lists. */
function faultsOfSeries(
  file: string,
  images: readonly TestImage[],
  models: readonly string[],
): string[] {
  const { source, models: results } = receiptSchema.parse(JSON.parse(readFileSync(file, "utf8")));
  const faults: string[] = [];
  if (source.slices?.length !== images.length)
    faults.push(`${file}: ${source.slices?.length} slices`);
  const done = results.filter(({ status }) => status === "succeeded").map(({ name }) => name);
  for (const name of models)
    if (!done.includes(name)) faults.push(`${file}: ${name} did not succeed`);
  const found = results
    .find(({ name }) => name === VOLUME_MODEL)
    ?.measurements.find(({ label }) => label === VOLUME_MODEL)?.value;
  const painted = volumeOf(images);
  if (found === undefined || Math.abs(found - painted) > 1e-6)
    faults.push(`${file}: ${found ?? "no"} ml where ${painted} were painted`);
  for (const output of results.flatMap(({ outputs }) => outputs))
    if (!filesBelow(path.dirname(file)).includes(path.basename(output.path)))
      faults.push(`${output.path}: listed and not there`);
  return faults;
}

/** One series after the other, as a request of its own. */
export async function volumes({ home, ledger, running, pause }: Soak): Promise<void> {
  for (let number = 0; running(); number++) {
    const [input, output] = [`${home.input}/volume`, `${home.output}/volume`];
    const images = writeSeries(input, 20_000 + number);
    const body = { input_image_path: input, output_folder_path: output, models: [VOLUME_MODEL] };
    const answer = await ledger.ask(
      "volume",
      "POST",
      "/single_inference",
      { statuses: [200] },
      { ...body, outputs: ["json", "seg", "sr"] },
    );
    if (answer?.status === 200) {
      const { receipt_path: receipt } = answer.body as { receipt_path: string };
      for (const fault of faultsOfSeries(receipt, images, [VOLUME_MODEL]))
        ledger.fault(`volume: ${fault}`);
    }
    for (const folder of [input, output]) rmSync(folder, { recursive: true, force: true });
    await pause(500);
  }
}

/** Jobs whose items are series, for a model of volumes and one of single images. */
export async function bulkBySeries({ home, node, ledger, running }: Soak): Promise<void> {
  for (let number = 0; running(); number++) {
    const name = `series-${number}`;
    const [input, output] = [path.join(home.input, name), path.join(home.output, name)];
    const series = Array.from({ length: SERIES }, (_, i) =>
      writeSeries(path.join(input, String(i)), 40_000 + number * SERIES + i),
    );
    const models = ["ct-tissue", VOLUME_MODEL];
    const job = await CrashJob.submit(node, name, {
      input_folder_path: input,
      output_folder_path: output,
      group: "series",
      models,
      outputs: ["json", "png", "sr", "seg"],
    });
    const ended = await job.untilEnded(LONGEST_JOB_MS);
    for (const fault of notAllSucceeded(ended, SERIES)) ledger.fault(`${name}: ${fault}`);
    for (const { input_image_path: folder, receipt_path: receipt } of await job.items("succeeded"))
      for (const fault of faultsOfSeries(
        receipt ?? "",
        series[Number(path.basename(folder))] ?? [],
        models,
      ))
        ledger.fault(`${name}: ${fault}`);
    ledger.count("series of jobs", ended.counts.succeeded);
    for (const folder of [input, output]) rmSync(folder, { recursive: true, force: true });
  }
}

const OF_SERIES = 6;
const OF_STUDY = 2 * OF_SERIES;

/** The gateway of a place: images in, by its own port, and reports of them out. */
export function writeGateway(
  place: Place,
  shared: Place,
  port: number,
  pacs: string,
): Record<string, string> {
  const [file, spool] = [
    path.join(place.directory, "gateway.json"),
    path.join(shared.input, "spool"),
  ];
  mkdirSync(spool, { recursive: true });
  const rule = {
    name: "all",
    group: "study",
    quiet: "2s",
    models: ["ct-tissue"],
    outputs: ["sr"],
    deliver: ["pacs"],
    output_folder: path.join(shared.output, "received"),
  };
  const gateway = {
    spool,
    dicom: { port },
    peers: { ct1: { ae_title: "CT ONE" } },
    rules: [rule],
    destinations: { pacs: { type: "stow", url: pacs, timeout: "20s" } },
  };
  writeFileSync(file, JSON.stringify(gateway));
  return { RADSERVE_GATEWAY: file };
}

/** Studies that come to two nodes, half of each to either and some objects to both at once. */
export class Received {
  #studies = 0;

  constructor(
    private readonly nodes: readonly ServingNode[],
    private readonly ports: readonly number[],
    private readonly pacs: WebPacs,
  ) {}

  async send({ running, killing, pause, next }: Soak): Promise<void> {
    while (running()) {
      const study = `1.2.826.${1_000 + this.#studies}`;
      this.#studies += 1;
      for (const series of [`${study}.1`, `${study}.2`])
        await Promise.all(
          this.ports.map((port, node) => {
            const isFor = (z: number) => z % 3 === 0 || z % 3 === node + 1;
            return sendUntilKept(port, study, series, [...Array(OF_SERIES).keys()].filter(isFor));
          }),
        );
      if (killing() && next() < 0.2) leave(this.pacs);
      await pause(3_000 + next() * 3_000);
    }
  }

  /** When all that was sent has become results, and they are in the PACS. */
  async check(ledger: Ledger): Promise<void> {
    const [first] = this.nodes;
    if (first === undefined) return;
    const sent = this.#studies * OF_STUDY;
    const client = new Client(
      first.url,
      await issueToken(first.place, "--subject", GATEWAY_SUBJECT),
    );
    const places = this.nodes.map(({ place }) => place);
    const jobs = await jobsOfAll(client, this.#studies, OF_STUDY, places);
    if (jobs.size !== this.#studies)
      ledger.fault(`${jobs.size} studies with a job of ${this.#studies}`);
    for (const [folder, [job, ...more]] of jobs)
      if (more.length > 0 || job?.counts.succeeded !== 2)
        ledger.fault(`${folder}: ${1 + more.length} jobs, ${JSON.stringify(job?.counts)}`);
    const kept = filesBelow(path.join(first.input, "spool/series")).length;
    if (kept !== sent)
      ledger.fault(`${kept} objects in the spool of ${sent} that were acknowledged`);
    const results = path.join(first.output, "received");
    const slices = slicesOf(results);
    if (slices !== sent) ledger.fault(`receipts of ${slices} slices of ${sent}`);
    const pacs = { ...this.pacs, instances: () => Promise.resolve(new Set(this.pacs.kept.keys())) };
    for (const fault of await notDelivered(
      results,
      path.join(first.input, "spool/deliveries"),
      pacs,
    ))
      ledger.fault(fault);
    ledger.count("objects received", sent);
    ledger.count("reports delivered and proven", this.pacs.kept.size);
    ledger.count(
      "reports sent again before they were proven",
      this.pacs.sent.length - this.pacs.sentAt.size,
    );
  }
}

/** A folder that is mounted where results go, and taken away. */
export class Share {
  /** The mount point, an output root. */
  readonly root: string;
  readonly #disk: string;
  readonly #away: { from: number; to: number }[] = [];

  constructor({ directory }: Place) {
    this.root = path.join(directory, "share");
    this.#disk = path.join(directory, "share-disk");
    for (const folder of [this.root, this.#disk]) mkdirSync(folder);
    // A file system of its own, as a share is
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=256m", "radserve-test", this.#disk]);
    this.mount();
  }

  mount(): void {
    execFileSync("mount", ["--bind", this.#disk, this.root]);
    const away = this.#away.at(-1);
    if (away !== undefined) away.to = performance.now();
  }

  unmount(): void {
    this.#away.push({ from: performance.now(), to: Infinity });
    execFileSync("umount", ["-l", this.root]);
  }

  /** Nothing of it stays mounted. */
  end(): void {
    this.unmount();
    execFileSync("umount", ["-l", this.#disk]);
  }

  wasAwayWithin(kill: { at: number; ready: number }): boolean {
    return this.#away.some(({ from, to }) => from <= kill.ready && to >= kill.at);
  }
}

const SHARE_ITEMS = 60;
const AWAY_MS = 8_000;

/** Jobs whose share goes away in the middle: they pause, and go on when it is back. */
export async function shareAway(
  { home, node, ledger, running, killing, pause }: Soak,
  share: Share,
): Promise<void> {
  for (let number = 0; running(); number++) {
    const name = `share-${number}`;
    const [input, output] = [path.join(home.input, name), path.join(share.root, name)];
    const images = writeImages(input, SHARE_ITEMS, { first: 12_000_000 + number * SHARE_ITEMS });
    const folders = { input_folder_path: input, output_folder_path: output };
    const job = await CrashJob.submit(node, name, { ...folders, outputs: ["json", "sr"] });
    await job.until("at work", ({ counts }) => counts.succeeded > 0, LONGEST_JOB_MS);
    share.unmount();
    const seen = await job.until(
      "paused or at its end",
      ({ state }) => state === "paused" || state === "completed",
      LONGEST_JOB_MS,
    );
    ledger.count(`share away: ${seen.paused_reason?.code ?? seen.state}`);
    // A node that started without its share does not know of it
    const kill = ledger.lastKill;
    if (!killing() && (kill === undefined || !share.wasAwayWithin(kill))) {
      const image = path.join(input, images[0]?.relative ?? "");
      const body = { input_image_path: image, output_folder_path: path.join(share.root, "single") };
      await ledger.ask("share away", "POST", "/single_inference", { statuses: [503] }, body);
    }
    await pause(AWAY_MS);
    const strays = filesBelow(share.root);
    if (strays.length > 0) ledger.fault(`${name}: ${strays.join(", ")} below the bare mount point`);
    share.mount();
    for (const fault of notAllSucceeded(await job.untilEnded(LONGEST_JOB_MS), SHARE_ITEMS))
      ledger.fault(`${name}: ${fault}`);
    const { faults } = verify(images, input, output, { files: 1 });
    for (const fault of faults) ledger.fault(`${name}: ${fault}`);
    for (const folder of [input, output]) rmSync(folder, { recursive: true });
    await pause(20_000);
  }
}

const READERS = 10;
const BURST = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(300);

/** Clients that send requests one behind the other and never read an answer. */
export async function neverReading({ node, ledger, running, pause }: Soak): Promise<void> {
  const { hostname, port } = new URL(node.url);
  const open = new Set<Socket>();
  while (running()) {
    if (open.size < READERS) {
      const socket = connect(Number(port), hostname);
      socket.pause();
      open.add(socket);
      socket.once("close", () => open.delete(socket)).on("error", () => undefined);
      socket.write(BURST);
      ledger.count("client that never reads");
    }
    await pause(500);
  }
  for (const socket of open) socket.destroy();
}
