/**
 * `npm run bench -- nnunet [--only small-25,...] [--rounds 3] [--side 1]`: nnU-Net's own predictor
 * (nnunetv2, PyTorch on the CPU) from an image file to the file of a label map, beside Radserve
 * from a DICOM series to a SEG over HTTP: one network of random weights, which comes to Radserve as
 * a trained one does, the same cores, by turns. RADSERVE_PYTHON names a Python with nnunetv2;
 * without one nothing is measured. `--side 0.5` halves rows and columns.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import {
  byTurns,
  differing,
  labelsOfNifti,
  labelsOfSeg,
  makeFinal,
  ourTurn,
  radserve,
  ratiosOf,
  readJson,
  writeSeries,
  type Drawn,
} from "./lib/network-turns.js";
import { Rivals } from "./lib/rivals.js";
import { machine, root, startServer } from "./lib/server.js";

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

/** By nnU-Net's names, in the order in which they run. */
interface Stages extends Drawn {
  configurations: string[];
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
  const { outputs } = readJson(join(to, "model.json")) as { outputs: { labels: object[] }[] };
  const code = { scheme: "SCT", value: "85756007", meaning: "Tissue" };
  for (const output of outputs)
    output.labels = output.labels.map((label) => ({ ...label, code, category: code }));
  makeFinal(to, join(scratch, "canary"), { outputs });
}

async function measure(name: string): Promise<object> {
  const scratch = mkdtempSync(join(tmpdir(), "radserve-nnunet-"));
  execFileSync(PYTHON, [join(root, SCRIPT), "make", name, values.side, scratch], {
    stdio: "ignore",
  });
  const drawn = readJson(join(scratch, "drawn.json")) as unknown as Stages;
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
    const { them, us } = await byTurns(Number(values.rounds), rival, (round) =>
      ourTurn(server, MODEL, series, join(server.output, String(round))),
    );
    const seg = join(server.output, `0/series.${MODEL}.seg.dcm`);
    const theirs = join(scratch, `stage${drawn.configurations.length - 1}/case.nii.gz`);
    const differ = differing(labelsOfSeg(seg), labelsOfNifti(theirs));
    return { name, ...drawn, nnunet: them, radserve: us, ratios: ratiosOf(them, us, 2), differ };
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
