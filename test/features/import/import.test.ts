/**
 * Networks of nnU-Net and MONAI are imported, and come to the probabilities and labels of nnU-Net
 * and MONAI themselves: test/reference/volumes/reference.py has made those once.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import t, { type Test } from "tap";
import { decodeNpy, encodeNpy } from "../../../src/engine/npy.js";
import type { Image } from "../../../src/images/image.js";
import { imageInputs, type ImageInput, type Manifest } from "../../../src/manifest/manifest.js";
import { modelsTry } from "../../../src/commands/models/try.js";
import { toNumbers } from "../../../src/models/compare.js";
import { modelsImport, type ImportOptions } from "../../../src/features/import/import.js";
import { ADDON, needs } from "../../support/needs.js";
import { engine } from "../../support/real-engine.js";
import { seriesFiles, VOLUMES } from "../../support/reference-volumes.js";
import { folderOf, readFolder } from "../../support/series.js";

const REFERENCE = VOLUMES;

const seriesOf = (t: Test, reference: string, modality: string): Promise<Image> =>
  readFolder(t, folderOf(t, seriesFiles(reference, { modality })));

/** Imports a reference into a folder of its own, beside the test's series. */
async function imported(t: Test, reference: string, options: ImportOptions) {
  const to = join(t.testdirName, reference);
  mkdirSync(t.testdirName, { recursive: true });
  await modelsImport(join(REFERENCE, reference), engine(), { ...options, to });
  return { to };
}

/** Under other work each window waits for its turn. */
t.setTimeout(900_000);

const SPL = { orientation: "SPL", mirror: "none" };
const MR = { ...SPL, modality: "MR" };
/** Rounding over a network and its resampling, of numbers from 0 to 1. */
const ROUNDING = 2e-5;

type Change = (input: ImageInput, manifest: Manifest) => void;

interface Case {
  choices: ImportOptions;
  /** What has to show if it is left out: a comparison that passes without it shows nothing. */
  without: Record<string, Change>;
}

const CASES: Record<string, Case> = {
  "nnunet-3d": {
    choices: { ...SPL, mirror: "0,2" },
    without: {
      "splines of order 3": ({ resampling }) => (resampling!.order = 1),
      "logits resampled before softmax": ({ resampling }) => (resampling!.activation = "before"),
      mirroring: (_, manifest) => delete manifest.tiling!.mirror,
    },
  },
  "nnunet-anisotropic": {
    choices: SPL,
    without: { "slices by themselves": ({ resampling }) => delete resampling!.separate_above },
  },
  "nnunet-torch": {
    choices: SPL,
    without: { "data in order 1": ({ resampling }) => (resampling!.order = 3) },
  },
  "nnunet-torch-apart": {
    choices: SPL,
    without: { "slices by themselves": ({ resampling }) => delete resampling!.separate_above },
  },
  "nnunet-lowres": {
    choices: MR,
    without: { cropping: ({ resampling }) => (resampling!.crop = "none") },
  },
  "cascade-lowres": { choices: MR, without: {} },
  "cascade-fullres": {
    choices: { ...MR, previous: "cascade-lowres" },
    without: { cropping: ({ resampling }) => (resampling!.crop = "none") },
  },
  "nnunet-2d": {
    choices: MR,
    without: { "the order of the axes": (input) => (input.orientation = "SPL") },
  },
  "monai-ct": {
    choices: {},
    without: {
      "the first voxel's place": ({ resampling }) => (resampling!.grid = "edges"),
      "the patient's sides": (input) => (input.orientation = "LPS"),
    },
  },
};

t.test("networks of nnU-Net and MONAI", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };
  for (const [name, { choices, without }] of Object.entries(CASES))
    await t.test(`${name} comes to what was stored`, async (t) => {
      const image = await seriesOf(t, name, choices.modality ?? "CT");
      if (choices.previous !== undefined) await imported(t, choices.previous, MR);
      const { to } = await imported(t, name, choices);
      const against = async (folder: string, what: string) => {
        const expect = join(REFERENCE, name, `${what}.npy`);
        const { text, data, exitCode } = await modelsTry(folder, image, { ...options, expect });
        const { comparison } = data as { comparison: { what: string; maxAbsolute: number } };
        t.equal(comparison.what, what);
        return { text, exitCode, ...comparison };
      };
      const probabilities = await against(to, "probabilities");
      t.ok(probabilities.maxAbsolute < ROUNDING, probabilities.text);
      t.comment(probabilities.text);
      // Labels of regions overlap here; nnU-Net lays them over each other.
      if (name !== "nnunet-lowres") {
        const labels = await against(to, "labels");
        t.equal(labels.exitCode, 0, labels.text);
        t.comment(labels.text);
      }
      for (const [step, change] of Object.entries(without)) {
        const other = join(t.testdirName, `without-${Object.keys(without).indexOf(step)}`);
        cpSync(to, other, { recursive: true });
        const manifest = JSON.parse(readFileSync(join(other, "model.json"), "utf8")) as Manifest;
        manifest.name = basename(other);
        change(imageInputs(manifest)[0]!, manifest);
        writeFileSync(join(other, "model.json"), JSON.stringify(manifest));
        const { maxAbsolute, text } = await against(other, "probabilities");
        t.ok(maxAbsolute > 50 * ROUNDING, `without ${step} it shows: ${text}`);
      }
      const labels = toNumbers(decodeNpy(readFileSync(join(REFERENCE, name, "labels.npy"))));
      t.ok(new Set(labels).size > 2, "every label is somewhere");
    });

  await t.test("a difference is counted and shown", async (t) => {
    const image = await seriesOf(t, "nnunet-anisotropic", "CT");
    const { to } = await imported(t, "nnunet-anisotropic", SPL);
    const stored = decodeNpy(readFileSync(join(REFERENCE, "nnunet-anisotropic", "labels.npy")));
    const changed = Uint8Array.from(stored.data);
    for (let i = 0; i < 7; i++) changed[i * 100] = ((changed[i * 100] ?? 0) + 1) % 3;
    const expect = join(to, "labels.npy");
    writeFileSync(expect, encodeNpy({ ...stored, data: changed }));
    const { text, exitCode } = await modelsTry(to, image, { ...options, expect });
    t.equal(exitCode, 1);
    t.match(
      text,
      /labels against the expected: 7 of 3240 voxels have another label, 0 of them ties/,
    );
    t.match(text, /label 1: \d+ of \d+, Dice 0\.9/);
  });

  await t.test("without what the plans do not say nothing is written", async (t) => {
    const to = join(t.testdir(), "x");
    const refused = modelsImport(join(REFERENCE, "nnunet-2d"), engine(), { to });
    await t.rejects(refused, { code: "bad_request", message: /results would be wrong/ });
    const message = await refused.catch((error: unknown) => String(error));
    for (const field of ["image_reader_writer", "the trainer", "channel_names"])
      t.match(message, field);
  });

  await t.test("what a manifest cannot express is named, one by one", async (t) => {
    const folder = join(t.testdir(), "nnUNetTrainer__nnUNetPlans__3d_cascade_fullres");
    cpSync(join(REFERENCE, "nnunet-3d"), folder, { recursive: true });
    const plans = JSON.parse(readFileSync(join(folder, "plans.json"), "utf8")) as {
      configurations: Record<string, Record<string, unknown>>;
    };
    plans.configurations["3d_cascade_fullres"] = {
      inherits_from: "3d_fullres",
      previous_stage: "3d_lowres",
      preprocessor_name: "MyPreprocessor",
      resampling_fn_data: "my_resampling",
      normalization_schemes: ["MyNormalization"],
    };
    writeFileSync(join(folder, "plans.json"), JSON.stringify(plans));
    writeFileSync(
      join(folder, "dataset.json"),
      JSON.stringify({
        channel_names: { 0: "T1", 1: "T2" },
        labels: { background: 0, a: 1, b: 3 },
      }),
    );
    const refused = modelsImport(folder, engine(), { orientation: "SPL", modality: "MR" });
    const message = await refused.catch((error: unknown) => String(error));
    for (const field of [
      "previous_stage",
      "preprocessor_name",
      "normalization_schemes",
      "resampling_fn_data",
      "dataset.json: labels",
    ])
      t.match(message, field);
    t.notMatch(message, "the trainer", "its mirroring is known by the folder's name");
  });

  await t.test(
    "the folds of a network become an ensemble, whose mean comes to what was stored",
    async (t) => {
      const image = await seriesOf(t, "nnunet-3d", "CT");
      const folder = join(t.testdirName, "nnUNetTrainer__nnUNetPlans__3d_fullres");
      mkdirSync(folder);
      for (const name of ["plans.json", "dataset.json"])
        cpSync(join(REFERENCE, "nnunet-3d", name), join(folder, name));
      const graph = readFileSync(join(REFERENCE, "nnunet-3d", "model.onnx"));
      for (const [fold, mark] of [
        ["fold_0", "a"],
        ["fold_1", "b"],
      ] as const) {
        mkdirSync(join(folder, fold));
        // Another doc_string (field 6 of ModelProto): other bytes, and the same network, so that
        // the mean is known
        writeFileSync(
          join(folder, fold, "model.onnx"),
          Buffer.concat([graph, Buffer.from([0x32, 1]), Buffer.from(mark)]),
        );
      }
      const to = join(folder, "model");
      const choices = { ...SPL, mirror: "0,2" };
      const { data } = await modelsImport(folder, engine(), { ...choices, to });
      t.match(data, {
        gaps: { length: 0 },
        manifest: {
          files: [{ path: "fold_0/model.onnx" }, { path: "fold_1/model.onnx" }],
          ensemble: {
            graphs: ["fold_0/model.onnx", "fold_1/model.onnx"],
            average: "before_activation",
          },
        },
      });
      const expect = join(REFERENCE, "nnunet-3d", "probabilities.npy");
      const tried = await modelsTry(to, image, { ...options, expect });
      const { comparison } = tried.data as { comparison: { maxAbsolute: number } };
      t.ok(comparison.maxAbsolute < ROUNDING, tried.text);
      await t.rejects(modelsImport(folder, engine(), { orientation: "SPL", to }), {
        message: /never overwritten/,
      });
      const onnx = join(folder, "fold_1", "model.onnx");
      const alone = await modelsImport(folder, engine(), { ...choices, onnx });
      t.match(alone.data, { path: join(folder, "fold_1", "model.json") });
      t.notHas((alone.data as { manifest: object }).manifest, { ensemble: Object });
      // What export_nnunet.py says beside the plans takes the place of options, and they of it
      const said = (more: object) =>
        writeFileSync(join(folder, "export.json"), JSON.stringify(more));
      said({ configuration: "3d_fullres", mirror: "0,2", orientation: "SPL" });
      const exported = await modelsImport(folder, engine(), {
        to: join(folder, "exported", "model"),
      });
      const manifestOf = (result: typeof exported) =>
        (result.data as { manifest: object }).manifest;
      t.strictSame(manifestOf(exported), manifestOf({ text: "", exitCode: 0, data }));
      const other = await modelsImport(folder, engine(), {
        mirror: "none",
        to: join(folder, "other"),
      });
      t.match(manifestOf(other), { inputs: [{ orientation: "SPL" }] });
      t.notMatch(manifestOf(other), { tiling: { mirror: Array } });
      said({ configuration: "3d_fullres", mirrors: "0" });
      await t.rejects(modelsImport(folder, engine(), { to: join(folder, "none") }), {
        message: /export\.json is not as expected\. mirror: /,
      });
      rmSync(join(folder, "export.json"));
      // It was trained on all cases, and nnU-Net leaves it out where there are others
      const all = join(folder, "fold_all", "model.onnx");
      cpSync(join(REFERENCE, "nnunet-3d", "model.onnx"), all);
      const beside = { ...choices, to: join(folder, "beside") };
      await t.rejects(modelsImport(folder, engine(), beside), {
        code: "bad_request",
        message: /Expected fold_all alone, or numbered folds, .* found fold_0.*fold_all/,
      });
      const { data: whole } = await modelsImport(folder, engine(), { ...beside, onnx: all });
      t.match(whole, { manifest: { files: { length: 1 } } });
      rmSync(join(folder, "fold_all"), { recursive: true });
      writeFileSync(join(folder, "fold_1", "other.onnx"), graph);
      await t.rejects(modelsImport(folder, engine(), choices), {
        message: /found model\.onnx, other\.onnx/,
      });
    },
  );

  await t.test(
    "a bundle's transforms that are not known, and expressions, are named",
    async (t) => {
      const folder = join(t.testdir(), "bundle");
      cpSync(join(REFERENCE, "monai-ct"), folder, { recursive: true });
      const path = join(folder, "inference.json");
      const config = JSON.parse(readFileSync(path, "utf8")) as {
        preprocessing: { transforms: Record<string, unknown>[] };
      };
      config.preprocessing.transforms.push({ _target_: "RandFlipd", keys: "image" });
      config.preprocessing.transforms[3]!.pixdim = "$[1.0, 1.0, 1.0]";
      writeFileSync(path, JSON.stringify(config));
      const message = await modelsImport(folder, engine()).catch((error: unknown) => String(error));
      t.match(message, /inference\.json line \d+: preprocessing\.6\.RandFlipd: It is not known/);
      t.match(
        message,
        /preprocessing\.3\.Spacingd\.pixdim: Expected three numbers, found "\$\[1\.0/,
      );
    },
  );
});
