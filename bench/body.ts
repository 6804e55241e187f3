/**
 * `npm run bench -- body [--only fast,total,trained] [--rounds 3] [--side 1] [--slices 300]
 * [--exact] [--as-shipped]`: TotalSegmentator's own pipeline (totalsegmentator and nnunetv2,
 * PyTorch on the CPU) from an image file to the file of a label map, beside Radserve from a DICOM
 * series to a SEG over HTTP: networks of random weights, or trained on phantoms, which come to
 * Radserve as those that its users have, the same cores, by turns. RADSERVE_PYTHON names a Python
 * with totalsegmentator; without one nothing is measured. `--side 0.5` is a smaller CT, below that
 * with smaller networks. `--exact` has the networks compute in float64 as well, which takes minutes
 * and gigabytes a window, and counts how many labels of each side are others than those.
 * `--as-shipped` leaves out TotalSegmentator with windows summed in float32, which takes as long as
 * a round of its own.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import {
  byTurns,
  dices,
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
    only: { type: "string", default: "fast,total" },
    rounds: { type: "string", default: "3" },
    side: { type: "string", default: "1" },
    slices: { type: "string", default: "300" },
    exact: { type: "boolean", default: false },
    "as-shipped": { type: "boolean", default: false },
  },
});
if (values.exact && values["as-shipped"])
  throw new Error("Expected --exact or --as-shipped; found both.");
const PYTHON = process.env["RADSERVE_PYTHON"] ?? "python3";
const SCRIPT = "bench/body.py";
/** Radserve's time and memory in those of TotalSegmentator, at most. */
const GOALS = { beside: 0.1, whole: 0.85, memory: 0.25, equal: 0.9999, dice: 0.0005 };

/** `numbers`: TotalSegmentator's of the labels, in Radserve's order; `names`, by its numbers. */
type Task = Drawn & { numbers: number[]; names: Record<string, string> };

/** The weights become a model by the commands that docs/models.md names. */
function importTask(scratch: string, name: string): void {
  const script = join(scratch, "export_nnunet.py");
  writeFileSync(script, radserve("models", "export-nnunet"));
  const weights = join(scratch, "weights");
  const datasets = readdirSync(weights).map((name) => String(parseInt(name.slice(7))));
  const args = [script, weights, "--datasets", ...datasets, "--folds", "0"];
  execFileSync(PYTHON, args, { stdio: ["ignore", "ignore", "inherit"] });
  const to = join(scratch, "models", "body");
  const form = name === "fast" ? ["--fast"] : [];
  const print = "import totalsegmentator; print(totalsegmentator.__path__[0])";
  const own = execFileSync(PYTHON, ["-c", print], { encoding: "utf8" }).trim();
  const task = ["--totalsegmentator", "total", ...form, "--package", own];
  radserve("models", "import", weights, ...task, "--to", to);
  makeFinal(to, join(scratch, "canary"));
}

/** Dice of each label with what was drawn, of both pipelines, and of one with the other. */
function dicesBeside(
  scratch: string,
  names: Task["names"],
  { ours, half }: { ours: Uint8Array; half: Uint8Array },
): object[] {
  const truth = new Uint8Array(readFileSync(join(scratch, "truth.u8")));
  const [theirDices, ourDices] = [dices(half, truth), dices(ours, truth)];
  const between = dices(ours, half);
  const rounded = (value = NaN) => Number(value.toFixed(5));
  const sizes = new Uint32Array(256);
  for (const label of truth) sizes[label]! += 1;
  return [...sizes.entries()].flatMap(([label, voxels]) =>
    label === 0 || voxels === 0
      ? []
      : {
          label: names[label],
          voxels,
          theirs: rounded(theirDices[label]),
          ours: rounded(ourDices[label]),
          between: rounded(between[label]),
        },
  );
}

async function measure(name: string): Promise<object> {
  const scratch = mkdtempSync(join(tmpdir(), "radserve-body-"));
  const size = [values.side, values.slices];
  execFileSync(PYTHON, [join(root, SCRIPT), "make", name, ...size, scratch], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const drawn = readJson(join(scratch, "drawn.json")) as unknown as Task;
  const voxels = readFileSync(join(scratch, "ct.i16"));
  const middle = voxels.subarray((voxels.length >> 2) << 1);
  writeSeries(join(scratch, "canary"), middle, { ...drawn, sides: [16, 32, 32] });
  importTask(scratch, name);
  const server = await startServer({
    RADSERVE_MODELS_DIR: join(scratch, "models"),
    RADSERVE_SEGMENTATION_TYPE: "labelmap",
    RADSERVE_DEADLINE_SECONDS: "3600",
  });
  const rival = await Rivals.start(SCRIPT, ["serve", name, scratch]);
  try {
    if (rival === undefined)
      throw new Error("TotalSegmentator's process ended; it says why above.");
    const series = join(server.input, "series");
    writeSeries(series, voxels, drawn);
    const { them, us } = await byTurns(Number(values.rounds), rival, (round) =>
      ourTurn(server, "body", series, join(server.output, String(round))),
    );
    const ours = labelsOfSeg(join(server.output, "0/series.body.seg.dcm"), drawn.numbers);
    const half = labelsOfNifti(join(scratch, "theirs.nii.gz"));
    const summed = async (bits: 32 | 64) => {
      await rival.ask({ command: `predict_float${bits}` });
      return labelsOfNifti(join(scratch, `theirs-float${bits}.nii.gz`));
    };
    const float32 = async () => {
      const whole = await summed(32);
      const differFloat32 = differing(ours, whole);
      const equal = 1 - differFloat32 / ours.length;
      if (!values.exact) return { differFloat32, equal };
      const exact = await summed(64);
      const differFloat64 = { ours: differing(ours, exact), theirs: differing(whole, exact) };
      return { differFloat32, equal, differFloat64 };
    };
    const { sides, spacing } = drawn;
    return {
      name,
      sides,
      spacing,
      theirs: them,
      ours: us,
      ratios: ratiosOf(us, them, 3),
      differ: differing(ours, half),
      ...(!values["as-shipped"] && (await float32())),
      ...(name === "trained" && { labels: dicesBeside(scratch, drawn.names, { ours, half }) }),
    };
  } finally {
    rival?.stop();
    await server.stop();
    rmSync(scratch, { recursive: true });
  }
}

if (spawnSync(PYTHON, ["-c", "import totalsegmentator, nnunetv2, SimpleITK"]).status === 0) {
  console.log({ ...machine(), goals: GOALS });
  for (const name of values.only.split(","))
    console.log(JSON.stringify(await measure(name), undefined, 1));
} else
  console.log(
    `bench body is skipped: ${PYTHON} has no totalsegmentator. RADSERVE_PYTHON names one that has.`,
  );
