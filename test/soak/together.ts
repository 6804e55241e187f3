/**
 * What the soak has beside requests for single images: series, both ways of the gateway, a share
 * that goes away, clients that never read.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { Client } from "../../src/commands/client.js";
import { GATEWAY_SUBJECT } from "../../src/features/gateway/subject.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { writeImages, writeSlice, type TestImage } from "../crash/lib/images.js";
import { CrashJob } from "../crash/lib/job.js";
import { notAllSucceeded } from "../crash/lib/scenario.js";
import { verify } from "../crash/lib/verify.js";
import { leave } from "../crash/scenarios/deliveries.js";
import { notDelivered } from "../crash/scenarios/gateway-nodes.js";
import { jobsOfAll, receiptsBelow, sendUntilKept, slicesOf } from "../crash/scenarios/gateway.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { associate, filesBelow, object } from "../support/gateway.js";
import { writePartsModel } from "../support/parts-model.js";
import { issueToken, root, type Place } from "../support/server.js";
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
/** Of parts, window by window; what was painted is the label of its last part. */
export const BODY_MODEL = "body";
/** The label of what was painted, by the model. */
const PAINTED: Record<string, string> = { [VOLUME_MODEL]: "bright", [BODY_MODEL]: "dense" };

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
  const painted = volumeOf(images);
  for (const { name, measurements } of results) {
    if (PAINTED[name] === undefined) continue;
    const found = measurements.find(({ label }) => label === PAINTED[name])?.value;
    if (found === undefined || Math.abs(found - painted) > 1e-6)
      faults.push(`${file}: ${name} has ${found ?? "no"} ml where ${painted} were painted`);
  }
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
    const models = [VOLUME_MODEL, BODY_MODEL];
    const body = { input_image_path: input, output_folder_path: output, models };
    const answer = await ledger.ask(
      "volume",
      "POST",
      "/single_inference",
      { statuses: [200] },
      { ...body, outputs: ["json", "seg", "sr"] },
    );
    if (answer?.status === 200) {
      const { receipt_path: receipt } = answer.body as { receipt_path: string };
      for (const fault of faultsOfSeries(receipt, images, models)) ledger.fault(`volume: ${fault}`);
    }
    for (const folder of [input, output]) rmSync(folder, { recursive: true, force: true });
    await pause(500);
  }
}

/** A network of parts, with its canary, so that it gives objects. */
export function writeBodyModel(models: string): void {
  const folder = writePartsModel(models, BODY_MODEL, (manifest) => {
    const [input] = imageInputs(manifest);
    // The grid of the slices: what was painted is found voxel by voxel
    if (input?.resampling !== undefined) input.resampling.spacing_mm = [1, 1, 1];
  });
  const series = mkdtempSync(path.join(tmpdir(), "radserve-soak-canary-"));
  writeSeries(series, 80_000);
  const command = [path.join(root, "dist/src/main.js"), "models", "canary", folder, series];
  execFileSync(process.execPath, command, { stdio: ["ignore", "ignore", "inherit"] });
  rmSync(series, { recursive: true });
  const file = path.join(folder, "model.json");
  const manifest = JSON.parse(readFileSync(file, "utf8")) as Manifest;
  writeFileSync(file, JSON.stringify({ ...manifest, stage: "final" } satisfies Manifest));
}

/** Jobs whose items are series, for a model of volumes and one of single images. */
export async function bulkBySeries({ home, node, ledger, running }: Soak): Promise<void> {
  for (let number = 0; running(); number++) {
    const name = `series-${number}`;
    const [input, output] = [path.join(home.input, name), path.join(home.output, name)];
    const series = Array.from({ length: SERIES }, (_, i) =>
      writeSeries(path.join(input, String(i)), 40_000 + number * SERIES + i),
    );
    const models = ["ct-tissue", VOLUME_MODEL, BODY_MODEL];
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
    resend: "20s",
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

/** Furthest that the clock of the second node is off, in milliseconds. */
const MOST_OFF = 300_000;

/** Parts of studies that come under the UID of the one before, and of whose sending breaks off. */
const SECOND_PATIENTS = 0.2;
const BREAKS = 0.3;

/** The number of a study in the UIDs of its series and objects, and its patient. */
const NUMBERED = /^1\.2\.826\.(\d+)\./;
const patientOf = (number: number | string | undefined) => `SOAK${number}`;

/** An association that ends within its second object. */
async function breakOff(port: number, uids: Record<string, string>): Promise<void> {
  const caller = await associate(port);
  const of = (z: number) =>
    object(z, { ...uids, SOPInstanceUID: `${uids["SeriesInstanceUID"]}.${z}` });
  await caller.store(of(0));
  const { dataSet, ...second } = of(1);
  async function* cut() {
    const [bytes = Buffer.alloc(0)] = dataSet;
    yield bytes.subarray(0, bytes.length >> 1);
    yield await Promise.resolve(bytes.subarray(bytes.length >> 1, -1));
    throw new Error("broken off");
  }
  await caller.store({ ...second, dataSet: cut() }).catch(() => caller.abort());
}

/** Results whose DICOM objects are of another patient than their images. */
function ofOtherPatients(results: string): string[] {
  return receiptsBelow(results).flatMap((name) => {
    const file = path.join(results, name);
    const { source, models } = receiptSchema.parse(JSON.parse(readFileSync(file, "utf8")));
    const uids = source.slices?.map(({ sop_instance_uid: uid }) => uid) ?? [];
    const patients = new Set(uids.map((uid) => patientOf(NUMBERED.exec(uid ?? "")?.[1])));
    const reports = models
      .flatMap(({ outputs }) => outputs)
      .filter(({ sop_class_uid: isObject }) => isObject !== undefined)
      .map((output) => path.join(path.dirname(file), path.basename(output.path)));
    for (const report of reports)
      patients.add(openFile(readFileSync(report)).attributes.string("PatientID") ?? "none");
    return patients.size === 1 ? [] : [`${name}: of ${[...patients].join(" and ")}`];
  });
}

/**
 * Studies that come to two nodes, half of each to either and some objects to both at once. Some are
 * of another patient under the UID of the study before, and of some an association breaks off.
 */
export class Received {
  #studies = 0;

  constructor(
    private readonly nodes: readonly ServingNode[],
    private readonly ports: readonly number[],
    private readonly pacs: WebPacs,
  ) {}

  async send({ ledger, running, killing, pause, next }: Soak): Promise<void> {
    for (let study = ""; running();) {
      const number = 1_000 + this.#studies;
      const own = `1.2.826.${number}`;
      if (study === "" || next() >= SECOND_PATIENTS) study = own;
      else ledger.count("study of a second patient under one UID");
      this.#studies += 1;
      const patient = { PatientID: patientOf(number) };
      for (const series of [`${own}.1`, `${own}.2`]) {
        const uids = { StudyInstanceUID: study, SeriesInstanceUID: series, ...patient };
        const [broken = 0] = this.ports;
        // A node that was killed takes none
        if (next() < BREAKS)
          await breakOff(broken, uids).then(
            () => ledger.count("association broken off"),
            () => undefined,
          );
        await Promise.all(
          this.ports.map((port, node) => {
            const isFor = (z: number) => z % 3 === 0 || z % 3 === node + 1;
            const slices = [...Array(OF_SERIES).keys()].filter(isFor);
            return sendUntilKept(port, study, series, slices, patient);
          }),
        );
      }
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
    for (const fault of ofOtherPatients(results)) ledger.fault(fault);
    const pacs = { ...this.pacs, instances: () => Promise.resolve(new Set(this.pacs.kept.keys())) };
    for (const fault of await notDelivered(
      results,
      path.join(first.input, "spool/deliveries"),
      pacs,
      MOST_OFF,
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

/**
 * What people look at: the list, and of one result its picture, frame, marks and masks, which stay
 * the same bytes.
 */
export async function viewer({ home, ledger, running, pause }: Soak): Promise<void> {
  const [input, output] = [`${home.input}/viewed`, `${home.output}/viewed`];
  writeSeries(input, 60_000);
  const ask = (page: string, method = "GET", body?: object) =>
    ledger.ask(`viewer ${page.split("?")[0]}`, method, page, { statuses: [200] }, body);
  const made = await ask("/single_inference", "POST", {
    input_image_path: input,
    output_folder_path: output,
    models: [BODY_MODEL],
    outputs: ["json", "seg"],
  });
  const { receipt_path } = (made?.body ?? {}) as { receipt_path?: string };
  const found = await ask("/results/find", "POST", { receipt_path, input_path: input });
  const { id, input_id } = (found?.body ?? {}) as { id?: string; input_id?: string };
  const of = new URLSearchParams({ id: id ?? "", input_id: input_id ?? "" }).toString();
  const pages = [
    `/results/picture?${of}&frame=3`,
    `/results/picture?${of}&frame=30&across=row`,
    `/results/frame?${of}&frame=3`,
    `/results/marks?${of}&frame=3&model=${BODY_MODEL}`,
    `/results/nifti?${of}&model=${BODY_MODEL}`,
  ];
  const first = new Map<string, string>();
  while (running()) {
    await ask("/results/list?limit=20");
    await ask(`/results?id=${id}`);
    for (const page of pages) {
      const answer = await ask(page);
      if (answer === undefined) continue;
      const bytes = JSON.stringify(answer.body);
      if (first.has(page) && first.get(page) !== bytes)
        ledger.fault(`viewer ${page}: other bytes than before`);
      first.set(page, bytes);
      await pause(200);
    }
  }
}

/**
 * Sets the second node's clock wrong, again and again.
 * @param clock the file that `shifted-clock` reads
 */
export async function clocks({ ledger, running, pause, next }: Soak, clock: string): Promise<void> {
  while (running()) {
    await pause(15_000 + next() * 15_000);
    writeFileSync(clock, String(Math.round((next() * 2 - 1) * MOST_OFF)));
    ledger.count("clock of the second node set");
  }
}
