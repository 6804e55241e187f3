/**
 * What `bench nnunet` and `bench body` share: a CT as a series, a model of what was imported,
 * turns, and how maps differ.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import dcmjs from "dcmjs";
import { descendants } from "../../test/crash/lib/processes.js";
import { attributesOf, CT_SLICE, dicomFile } from "../../test/support/dicom.js";
import { cpuSeconds, samplePss } from "./process-tree.js";
import type { Rivals } from "./rivals.js";
import { root, type BenchServer } from "./server.js";
import { sum } from "./statistics.js";

/** The volume that Python drew: slices, rows, columns, and their distances in mm. */
export interface Drawn {
  sides: [number, number, number];
  spacing: [number, number, number];
}

/** Seconds, and the most MiB of the process; `back` of ours holds `blend` too. */
interface Took {
  wall: number;
  cpu: number;
  stages: Record<string, number>;
  peak: number;
}

export interface Turn extends Took {
  /** The most MiB of the process and all below it, in each tenth of the time. */
  memory: number[];
}

export const readJson = (path: string): Record<string, unknown> =>
  JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;

/** The output of one of Radserve's commands. */
export const radserve = (...args: string[]): string =>
  execFileSync(process.execPath, [join(root, "dist/src/main.js"), ...args], { encoding: "utf8" });

/**
 * Has a model that was imported serve, and write a SEG; the canary is of a series. A start waits
 * for it however long its trial takes.
 */
export function makeFinal(folder: string, series: string, changes: object = {}): void {
  const path = join(folder, "model.json");
  writeFileSync(
    path,
    JSON.stringify({ ...readJson(path), ...changes, release: "active", required: true }),
  );
  radserve("models", "canary", folder, series);
  writeFileSync(path, JSON.stringify({ ...readJson(path), stage: "final" }));
}

export function writeSeries(folder: string, voxels: Buffer, { sides, spacing }: Drawn): void {
  mkdirSync(folder);
  const [slices, rows, columns] = sides;
  const bytes = rows * columns * 2;
  for (let i = 0; i < slices; i++) {
    const data = voxels.subarray(i * bytes, (i + 1) * bytes);
    const raw = { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 16, data };
    const attributes = attributesOf(raw, {
      ...CT_SLICE,
      PixelRepresentation: 1,
      RescaleSlope: "1",
      RescaleIntercept: "0",
      SOPInstanceUID: `1.2.826.0.1.4.${i + 1}`,
      StudyInstanceUID: "1.2.826.0.1.1",
      SeriesInstanceUID: "1.2.826.0.1.2",
      FrameOfReferenceUID: "1.2.826.0.1.3",
      PixelSpacing: `${spacing[1]}\\${spacing[2]}`,
      ImagePositionPatient: `0\\0\\${i * spacing[0]}`,
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
    });
    writeFileSync(join(folder, `${i}.dcm`), dicomFile({ attributes, pixels: data }));
  }
}

/**
 * The labels of a label map's SEG, read by dcmjs.
 * @param numbers what each label is called by the others; as it is where they are absent
 */
export function labelsOfSeg(seg: string, numbers?: readonly number[]): Uint8Array {
  const file = dcmjs.data.DicomMessage.readFile(Uint8Array.from(readFileSync(seg)).buffer);
  const [frames = 0, rows = 0, columns = 0] = ["00280008", "00280010", "00280011"].map((tag) =>
    Number(file.dict[tag]?.Value[0]),
  );
  // An odd number of bytes is padded (PS3.5 8.1.1)
  const own = new Uint8Array(file.dict["7FE00010"]?.Value[0] as ArrayBuffer);
  return own.subarray(0, frames * rows * columns).map((label) => numbers?.[label] ?? label);
}

/** The labels of a file of NIfTI-1 with one byte a voxel. */
export function labelsOfNifti(path: string): Uint8Array {
  const whole = gunzipSync(readFileSync(path));
  return whole.subarray(whole.readFloatLE(108)); // vox_offset
}

/** How many voxels have another label. */
export function differing(one: Uint8Array, other: Uint8Array): number {
  if (one.length !== other.length) throw new Error(`${one.length} voxels beside ${other.length}`);
  return one.reduce((count, label, i) => count + Number(label !== other[i]), 0);
}

/** Twice the voxels that two maps share of each label, divided by those that each has of it. */
export function dices(one: Uint8Array, other: Uint8Array): number[] {
  const [shared, sizes] = [new Uint32Array(256), new Uint32Array(256)];
  one.forEach((label, i) => {
    const its = other[i] ?? 0;
    sizes[label]! += 1;
    sizes[its]! += 1;
    if (label === its) shared[label]! += 1;
  });
  return [...sizes].map((size, label) => (2 * shared[label]!) / size);
}

/** A turn while the memory of a process is watched. */
async function watched(pid: number, turn: () => Promise<Took>): Promise<Turn> {
  const stop = samplePss(pid);
  let seen: number[] = [];
  const took = await turn().finally(() => (seen = stop()));
  const tenth = (i: number) => Math.floor((i * seen.length) / 10);
  const memory = Array.from({ length: 10 }, (_, i) =>
    Math.round(Math.max(...seen.slice(tenth(i), Math.max(tenth(i) + 1, tenth(i + 1))))),
  );
  return { ...took, memory };
}

export const ourTurn = (
  server: BenchServer,
  model: string,
  series: string,
  output: string,
): Promise<Turn> => watched(server.process.pid!, () => inferredBy(server, model, series, output));

async function inferredBy(
  server: BenchServer,
  model: string,
  series: string,
  output: string,
): Promise<Took> {
  const pid = server.process.pid!;
  const before = cpuSeconds(pid);
  const began = performance.now();
  const asked = {
    input_image_path: series,
    output_folder_path: output,
    models: [model],
    outputs: ["json", "seg"],
  };
  const { status, body } = await server.post(asked);
  const wall = (performance.now() - began) / 1000;
  const { timings_ms: laps } = body as { timings_ms: Record<string, number> };
  if (status !== 200 || JSON.stringify(body).includes('"failed"'))
    throw new Error(`${status} ${JSON.stringify(body)}`);
  const seconds = (...names: string[]) => sum(names.map((name) => laps[name] ?? 0)) / 1000;
  const stages = {
    read: seconds("read", "look", "decode"),
    prepare: seconds("prepare"),
    network: seconds("run"),
    back: seconds("postprocess"),
  };
  const peaks = descendants(pid).map((child) =>
    Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child}/status`, "utf8"))?.[1] ?? 0),
  );
  const write = wall - sum(Object.values(stages));
  return {
    wall,
    cpu: cpuSeconds(pid) - before,
    stages: { ...stages, write },
    peak: Math.max(...peaks) / 1024,
  };
}

/** Takes turns with another program, this many each; gives the turn in the middle of each. */
export async function byTurns(
  rounds: number,
  rival: Rivals,
  ours: (round: number) => Promise<Turn>,
): Promise<{ them: Turn; us: Turn }> {
  const theirTurns: Turn[] = [];
  const ourTurns: Turn[] = [];
  for (let round = 0; round < rounds; round++) {
    const theirs = () => rival.ask({ command: "predict" }) as Promise<Took>;
    // What took an hour is told at once
    theirTurns.push(told("theirs", await watched(rival.pid, theirs)));
    ourTurns.push(told("ours", await ours(round)));
  }
  return { them: middleOf(theirTurns), us: middleOf(ourTurns) };
}

/** Time and memory of one turn, divided by the other's; `beside`: what is not the network. */
export function ratiosOf(one: Turn, other: Turn, digits: number) {
  const ratio = (of: (turn: Turn) => number) => Number((of(one) / of(other)).toFixed(digits));
  return {
    whole: ratio(({ wall }) => wall),
    processor: ratio(({ cpu }) => cpu),
    beside: ratio(({ wall, stages }) => wall - stages["network"]!),
    memory: ratio(({ peak }) => peak),
  };
}

function told(whose: string, turn: Turn): Turn {
  console.error(whose, turn);
  return turn;
}

/** The turn whose time is the median. */
const middleOf = (turns: Turn[]) => turns.toSorted((a, b) => a.wall - b.wall)[turns.length >> 1]!;
