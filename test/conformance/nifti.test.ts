/**
 * Exported NIfTI against SimpleITK, which reads the same series, against highdicom, which reads the
 * same segmentations, and with nibabel: where each voxel lies, and its value.
 */
import { execFileSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t from "tap";
import { ADDON, needs, PYTHON, pythonHas } from "../support/needs.js";
import {
  resultOf,
  runExport,
  stackFiles,
  writeFiles,
  type ResultOptions,
  type StackOptions,
} from "../support/nifti-results.js";
import { cross, obliqueSeries, type Vector } from "../support/oblique.js";
import { engineWithFolder } from "../support/real-engine.js";

const skip = needs(ADDON) || pythonHas("SimpleITK", "nibabel", "highdicom");
const CHEST = resolve("../shared/dicom/ct-series-chest");

const turned = (angle: number): [Vector, Vector] => {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return [
    [c, s, 0],
    [-s, c, 0],
  ];
};
const oblique: Vector = [Math.cos(0.4), Math.sin(0.4) * Math.cos(1), Math.sin(0.4) * Math.sin(1)];
const half = turned(Math.PI);

/** How the stacks lie; every file is in the folder by a name that need not say its place. */
const STACKS: Record<string, StackOptions> = {
  axial: {},
  "from the head to the feet": { reversed: true },
  "feet first, prone": { across: [-1, 0, 0], down: [0, -1, 0] },
  "normal to the feet": { across: [1, 0, 0], down: [0, -1, 0] },
  "normal to the feet, reversed": { across: [1, 0, 0], down: [0, -1, 0], reversed: true },
  coronal: { across: [1, 0, 0], down: [0, 0, -1] },
  sagittal: { across: [0, 1, 0], down: [0, 0, -1] },
  "sagittal, reversed": { across: [0, 1, 0], down: [0, 0, -1], reversed: true },
  "turned by 180 degrees": { across: half[0], down: half[1] },
  "fractions in the rescale": { attributes: { RescaleSlope: "0.7", RescaleIntercept: "-716.8" } },
};

t.test("against SimpleITK, nibabel and highdicom", { skip }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "nifti");
  const list: Record<string, string | null>[] = [];
  const add = async (title: string, input: string, options: ResultOptions = {}) => {
    const at = join(folder, String(list.length));
    const { receipt, seg } = await resultOf(engine, input, join(at, "out"), options);
    const to = join(at, "nifti");
    const words = ["--nifti", "--input", input, "--to", to, "--json"];
    const { status, stdout, text } = runExport(folder, receipt, ...words);
    t.equal(status, 0, `${title}: ${text}`);
    const [{ files }] = (JSON.parse(stdout) as { results: [{ files: string[] }] }).results;
    const path = (end: string) =>
      join(
        to,
        files.find((file) => file.endsWith(end))!,
      );
    list.push({
      title,
      series: input.endsWith(".dcm") ? null : input,
      file: input.endsWith(".dcm") ? input : null,
      seg,
      image: join(to, files[0]!),
      masks: path(".seg.nii.gz"),
      labels: path(".seg.json"),
    });
  };
  const stack = (title: string, files: readonly Uint8Array[], options?: ResultOptions) =>
    add(title, writeFiles(join(folder, `in-${list.length}`), files), options);

  for (const [title, options] of Object.entries(STACKS)) await stack(title, stackFiles(options));
  await stack("oblique", obliqueSeries());
  const normal = cross(oblique, [0, 0, 1]);
  const size = Math.hypot(...normal);
  const down = normal.map((value) => value / size) as Vector;
  await stack("oblique, reversed", stackFiles({ across: oblique, down, reversed: true }));
  await stack("a label map", stackFiles({ reversed: true }), { form: "labelmap" });
  await stack("slices one by one", stackFiles({ reversed: true }), {
    model: "segmenter",
    group: "series",
  });
  const single = writeFiles(join(folder, "single"), stackFiles({ slices: 1 }));
  await add("one slice", join(single, "000.dcm"), { model: "segmenter" });
  if (existsSync(CHEST)) await add("the chest of the conformance files", CHEST);

  const file = join(folder, "list.json");
  writeFileSync(file, JSON.stringify(list));
  const output = execFileSync(PYTHON, ["test/conformance/nifti.py", file], { encoding: "utf8" });
  const lines = output.trim().split("\n");
  t.equal(lines.pop(), String(list.length));
  t.strictSame(lines, []);
});
