/**
 * Segmentations in the grid of a network over an oblique series: against dciodvfy, and as volumes
 * of highdicom, whose affine says where each voxel lies.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t from "tap";
import { openInput } from "../../src/files/guarded-paths.js";
import { volumeOf } from "../../src/images/dicom/volume.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { RESULT_FORMS } from "../../src/results/forms.js";
import { planeOf } from "../../src/results/picture/draw-result.js";
import { ADDON, commandsAre, needs, PYTHON, pythonHas } from "../support/needs.js";
import { GRID_INPUT, MIDDLE, NETWORK, obliqueSeries } from "../support/oblique.js";
import { engineWithFolder } from "../support/real-engine.js";
import { loadTestModel } from "../support/test-models.js";
import { LABEL_MAPS_UNKNOWN, objectErrors } from "../support/validators.js";

const CASES = [
  ["volume", "binary", "binary"],
  ["volume", "binary", "labelmap"],
  ["volume-fractional", "binary", "binary"],
  ["volume-fractional", "fractional", "binary"],
] as const;

t.test("segmentations in the grid of a network", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "segment-grid-outside");
  const input = join(folder, "series");
  mkdirSync(input);
  obliqueSeries().forEach((file, i) => {
    writeFileSync(join(input, `${i}.dcm`), file);
  });
  const opened = await openInput(input, undefined);
  t.teardown(() => opened.close());
  const image = await readInput(opened);
  const { frames, geometry } = volumeOf(image);
  const made: { title: string; paths: string[]; [fact: string]: unknown }[] = [];
  for (const [place, [name, type, form]] of CASES.entries()) {
    const outputFolder = join(folder, String(place));
    mkdirSync(outputFolder);
    const entry = await loadTestModel(engine, outputFolder, name, (manifest) => {
      Object.assign(manifest.inputs[0]!, GRID_INPUT);
      for (const output of manifest.outputs)
        if (output.kind === "segmentation")
          Object.assign(output, { segment_grid: "model", segment_type: type });
    });
    const task = {
      requestId: "r",
      name: "s",
      priority: "routine" as const,
      cancelId: 1,
      inputPath: input,
    };
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      { ...task, roots, outputFolder, outputs: ["sr", "seg"] },
      { engine, models: [entry], forms: { ...RESULT_FORMS, segmentationType: form } },
    );
    const planes = [];
    for (const frame of frames) planes.push(planeOf(image, frame, await image.frame(frame)));
    const { tensors } = await engine.infer(entry.nativeId!, planes, { geometry, dump: true });
    const { data, dtype, shape } = tensors!.outputs[0]!;
    const raw = join(outputFolder, "raw");
    writeFileSync(raw, data);
    const paths = answer.models[0]!.outputs.map(({ path }) => path);
    const seg = paths.find((path) => path.endsWith(".seg.dcm"))!;
    const thresholds = entry.thresholds[0]!;
    const title = `${name}, ${type}, ${form}`;
    made.push({ title, paths, seg, raw, dtype, shape, thresholds, middle: MIDDLE, axes: NETWORK });
  }

  await t.test("dciodvfy", { skip: commandsAre("dciodvfy") }, (t) => {
    for (const { title, paths } of made)
      for (const path of paths) {
        const unknown = (error: string) =>
          title.endsWith("labelmap") && LABEL_MAPS_UNKNOWN.some((known) => known.test(error));
        const errors = objectErrors(path).filter((error) => !unknown(error));
        t.strictSame(errors, [], `${title}: ${basename(path)}`);
      }
    t.end();
  });

  await t.test("pydicom and highdicom", { skip: pythonHas("pydicom", "highdicom") }, (t) => {
    const file = join(folder, "list.json");
    writeFileSync(file, JSON.stringify(made));
    const script = "test/conformance/segment_grid.py";
    const output = execFileSync(PYTHON, [script, file], { encoding: "utf8" });
    const lines = output.trim().split("\n");
    t.equal(lines.pop(), String(CASES.length));
    t.strictSame(lines, []);
    t.end();
  });
});
