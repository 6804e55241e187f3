/**
 * `npm run bench -- nnunet [--only small-25,...] [--rounds 3] [--side 1]`: nnU-Net's own predictor
 * (nnunetv2, PyTorch on the CPU) from an image file to the file of a label map, beside Radserve
 * from a DICOM series to a SEG over HTTP: one network of random weights, which comes to Radserve as
 * a trained one does, the same cores, by turns. RADSERVE_PYTHON names a Python with nnunetv2;
 * without one nothing is measured. `--side 0.5` halves rows and columns.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { gunzipSync } from "node:zlib";
import dcmjs from "dcmjs";
import { descendants } from "../test/crash/lib/processes.js";
import { attributesOf, CT_SLICE, dicomFile } from "../test/support/dicom.js";
import { cpuSeconds } from "./lib/process-tree.js";
import { Rivals } from "./lib/rivals.js";
import { machine, root, startServer, type BenchServer } from "./lib/server.js";
import { sum } from "./lib/statistics.js";

const { values } = parseArgs({
  options: {
    only: { type: "string", default: "small-25,small-105,real,2d,cascade" },
    rounds: { type: "string", default: "3" },
    side: { type: "string", default: "1" },
  },
});
const PYTHON = process.env["RADSERVE_PYTHON"] ?? "python3";
const SCRIPT = "bench/nnunet.py";
/**
 * nnU-Net's time and memory in those of Radserve: what is not the network, the whole, and the peak.
 */
const GOALS = { beside: 20, whole: 1, memory: 5 };
const MODEL = "last-stage";

/** The volume that Python drew: slices, rows, columns, and their distances in mm. */
interface Drawn {
  sides: [number, number, number];
  spacing: [number, number, number];
  /** By nnU-Net's names, in the order in which they run. */
  configurations: string[];
}

/** Seconds, and the most MiB of the process; `back` of ours holds `blend` too. */
interface Turn {
  wall: number;
  cpu: number;
  stages: Record<string, number>;
  peak: number;
}

const read = (path: string) => JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
const radserve = (...args: string[]) =>
  execFileSync(process.execPath, [join(root, "dist/src/main.js"), ...args], { encoding: "utf8" });

function writeSeries(folder: string, voxels: Buffer, { sides, spacing }: Drawn): void {
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
 * How many voxels of a label map's SEG, read by dcmjs, have another label than those of nnU-Net's
 * file (bytes after 352).
 */
function differing(seg: string, nifti: string): number {
  const theirs = gunzipSync(readFileSync(nifti)).subarray(352);
  const file = dcmjs.data.DicomMessage.readFile(Uint8Array.from(readFileSync(seg)).buffer);
  const ours = new Uint8Array(file.dict["7FE00010"]?.Value[0] as ArrayBuffer);
  if (ours.length !== theirs.length)
    throw new Error(`${ours.length} voxels beside ${theirs.length}`);
  return theirs.reduce((count, label, i) => count + Number(label !== ours[i]), 0);
}

/**
 * A trained folder becomes a model by the commands that docs/models.md names, finished so that it
 * writes a SEG.
 */
function importStage(scratch: string, configuration: string): void {
  const script = join(scratch, "export_nnunet.py");
  writeFileSync(script, radserve("models", "export-nnunet"));
  const trained = join(
    scratch,
    `nnUNet_results/Dataset001_Bench/nnUNetTrainer__nnUNetPlans__${configuration}`,
  );
  const exported = join(scratch, "exports", configuration);
  const image = ["--image", join(scratch, "case_0000.nii.gz")];
  execFileSync(PYTHON, [script, trained, exported, ...image], { stdio: "ignore" });
  const to = join(scratch, "models", configuration === "3d_lowres" ? "first-stage" : MODEL);
  const previous = configuration.includes("cascade") ? ["--previous", "first-stage"] : [];
  radserve("models", "import", exported, ...previous, "--to", to);
  const path = join(to, "model.json");
  const manifest = read(path) as { outputs: { labels: object[] }[] };
  const code = { scheme: "SCT", value: "85756007", meaning: "Tissue" };
  for (const output of manifest.outputs)
    output.labels = output.labels.map((label) => ({ ...label, code, category: code }));
  writeFileSync(path, JSON.stringify({ ...manifest, release: "active" }));
  radserve("models", "canary", to, join(scratch, "canary"));
  writeFileSync(path, JSON.stringify({ ...read(path), stage: "final" }));
}

async function ourTurn(server: BenchServer, series: string, output: string): Promise<Turn> {
  const pid = server.process.pid!;
  const before = cpuSeconds(pid);
  const began = performance.now();
  const asked = {
    input_image_path: series,
    output_folder_path: output,
    models: [MODEL],
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

/** The turn whose time is the median. */
const middleOf = (turns: Turn[]) => turns.toSorted((a, b) => a.wall - b.wall)[turns.length >> 1]!;

async function measure(name: string): Promise<object> {
  const scratch = mkdtempSync(join(tmpdir(), "radserve-nnunet-"));
  execFileSync(PYTHON, [join(root, SCRIPT), "make", name, values.side, scratch], {
    stdio: "ignore",
  });
  const drawn = read(join(scratch, "drawn.json")) as unknown as Drawn;
  const voxels = readFileSync(join(scratch, "ct.i16"));
  const middle = voxels.subarray((voxels.length >> 2) << 1);
  writeSeries(join(scratch, "canary"), middle, { ...drawn, sides: [8, 32, 32] });
  for (const configuration of drawn.configurations) importStage(scratch, configuration);
  const server = await startServer({
    RADSERVE_MODELS_DIR: join(scratch, "models"),
    RADSERVE_SEGMENTATION_TYPE: "labelmap",
    RADSERVE_DEADLINE_SECONDS: "3600",
  });
  const rival = await Rivals.start(SCRIPT, ["serve", scratch]);
  try {
    if (rival === undefined) throw new Error("nnU-Net's process ended; it says why above.");
    const series = join(server.input, "series");
    writeSeries(series, voxels, drawn);
    const theirs: Turn[] = [];
    const ours: Turn[] = [];
    for (let i = 0; i < Number(values.rounds); i++) {
      theirs.push((await rival.ask({ command: "predict" })) as Turn);
      ours.push(await ourTurn(server, series, join(server.output, String(i))));
    }
    const [them, us] = [middleOf(theirs), middleOf(ours)];
    const ratio = (of: (turn: Turn) => number) => Number((of(them) / of(us)).toFixed(2));
    const ratios = {
      whole: ratio(({ wall }) => wall),
      processor: ratio(({ cpu }) => cpu),
      beside: ratio(({ wall, stages }) => wall - stages["network"]!),
      memory: ratio(({ peak }) => peak),
    };
    const seg = join(server.output, `0/series.${MODEL}.seg.dcm`);
    const differ = differing(
      seg,
      join(scratch, `stage${drawn.configurations.length - 1}/case.nii.gz`),
    );
    return { name, ...drawn, nnunet: them, radserve: us, ratios, differ };
  } finally {
    rival?.stop();
    await server.stop();
    rmSync(scratch, { recursive: true });
  }
}

if (spawnSync(PYTHON, ["-c", "import nnunetv2, torch, SimpleITK"]).status === 0) {
  console.log({ ...machine(), goals: GOALS });
  for (const name of values.only.split(","))
    console.log(JSON.stringify(await measure(name), undefined, 1));
} else
  console.log(
    `bench nnunet is skipped: ${PYTHON} has no nnunetv2. RADSERVE_PYTHON names one that has.`,
  );
