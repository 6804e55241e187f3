/**
 * Bundles of the MONAI Model Zoo as they stand give the network what MONAI gives it, and make of
 * its output what MONAI makes: test/reference/bundles/bundles.py has stored both once, with small
 * networks in place of theirs.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t, { type Test } from "tap";
import { parse } from "yaml";
import { withImageFile } from "../../../src/commands/files.js";
import { folderReading } from "../../../src/commands/models/canary.js";
import { decodeNpy } from "../../../src/engine/npy.js";
import { inferOnce } from "../../../src/inference/infer-once.js";
import { imageInputs, type Manifest } from "../../../src/manifest/manifest.js";
import { modelsImport, type ImportOptions } from "../../../src/features/import/import.js";
import { toNumbers } from "../../../src/models/compare.js";
import { readModelFolder } from "../../../src/models/read.js";
import { ADDON, needs } from "../../support/needs.js";
import { engine } from "../../support/real-engine.js";
import { seriesFiles, writeFolder } from "../../support/reference-volumes.js";

const ZOO = "../shared/zoo";
const BUNDLES = resolve("test/reference/bundles");

interface Fields {
  [name: string]: unknown;
}
interface Case extends ImportOptions {
  /** Sizes that are made small, as in bundles.py. */
  small?: { roi_size?: number[]; spatial_size?: number[] };
  /** Steps behind its own: THEN of bundles.py. */
  then?: Fields[];
  /** What has to show if it is left out: a comparison that passes without it shows nothing. */
  without: Record<string, (manifest: Manifest) => void>;
}

const input = (manifest: Manifest) => imageInputs(manifest)[0]!;
/** Arrays of MONAI are x to the left, y to the back, z to the head: as the series lies. */
const LIES = { orientation: "LPS" };
const across = (manifest: Manifest) => (input(manifest).layout = "NCHW");

const CASES: Record<string, Case> = {
  brats_mri_segmentation: {
    ...LIES,
    small: { roi_size: [16, 16, 8] },
    without: { "what is not 0": (manifest) => (input(manifest).intensity![0]!.of = "all") },
  },
  breast_density_classification: {
    modality: "MG",
    small: { spatial_size: [23, 17] },
    without: {
      "whole pixels": (manifest) => (input(manifest).interpolation = "area"),
      "columns first": (manifest) => {
        across(manifest);
        input(manifest).size = { kind: "fixed", height: 23, width: 17 };
      },
    },
  },
  classification_template: { modality: "OT", without: { "columns first": across } },
  endoscopic_inbody_classification: {
    modality: "ES",
    small: { spatial_size: [24, 16] },
    without: {
      "each channel": (manifest) => (input(manifest).intensity![0]!.channels = "together"),
      "after resampling": (manifest) => (input(manifest).intensity![0]!.at = "source"),
      "few pixels": (manifest) => delete input(manifest).antialias,
    },
  },
  endoscopic_tool_segmentation: {
    modality: "ES",
    small: { spatial_size: [48, 32] },
    without: { "few pixels": (manifest) => delete input(manifest).antialias },
  },
  picture_windows: {
    modality: "ES",
    without: {
      "columns first": (manifest) => {
        across(manifest);
        manifest.tiling!.window.reverse();
      },
      "windows as they lie": (manifest) => manifest.tiling!.window.reverse(),
    },
  },
  renalStructures_CECT_segmentation: {
    small: { roi_size: [12, 12, 8] },
    without: { "the axes": (manifest) => (input(manifest).orientation = "RAS") },
  },
  volume_resized: {
    without: {
      "few voxels": (manifest) => delete input(manifest).antialias,
      "logits that go back": (manifest) =>
        Object.assign(manifest.outputs[0]!, { activated: undefined }),
    },
  },
  pediatric_abdominal_ct_segmentation: {
    small: { roi_size: [8, 8, 6] },
    without: { foreground: (manifest) => (input(manifest).resampling!.crop = "none") },
  },
  segmentation_template: {
    ...LIES,
    modality: "MR",
    without: { "the range": (manifest) => (input(manifest).normalisation = { kind: "none" }) },
  },
  swin_unetr_btcv_segmentation: {
    small: { roi_size: [8, 8, 6] },
    then: [{ _target_: "KeepLargestConnectedComponentd", keys: "pred" }],
    without: {
      "regions by corners": ({ outputs: [output] }) => {
        for (const step of output?.kind === "segmentation" ? output.postprocess : [])
          if (step.step === "largest_component") delete step.connected_by;
      },
    },
  },
  ventricular_short_axis_3label: {
    ...LIES,
    small: { roi_size: [16, 16] },
    without: { "slices across z": (manifest) => (input(manifest).orientation = "PLS") },
  },
  wholeBody_ct_segmentation: {
    small: { roi_size: [16, 12, 12] },
    without: {
      "the edge": (manifest) => (manifest.tiling!.padding = 0),
      "the nearest voxel": (manifest) => (input(manifest).resampling!.order_back = 1),
      "the second change": (manifest) => input(manifest).intensity!.splice(1),
    },
  },
  wholeBrainSeg_Large_UNEST_segmentation: {
    ...LIES,
    small: { roi_size: [12, 12, 8] },
    without: { "what is not 0": (manifest) => (input(manifest).intensity![0]!.of = "all") },
  },
};

/** The bundle of that name with small sizes, and the network of the reference. */
function bundleOf(t: Test, name: string, { small, then = [] }: Case): string {
  const bundle = join(t.testdir(), name);
  const own = existsSync(join(BUNDLES, name, "metadata.json"));
  cpSync(join(own ? BUNDLES : ZOO, name), join(bundle, "configs"), { recursive: true });
  cpSync(join(BUNDLES, name, "model.onnx"), join(bundle, "models", "model.onnx"));
  const file = ["inference.json", "inference.yaml"]
    .map((one) => join(bundle, "configs", one))
    .find((path) => existsSync(path))!;
  const config = parse(readFileSync(file, "utf8"), { version: "1.1" }) as Fields;
  if (small?.roi_size !== undefined) (config["inferer"] as Fields)["roi_size"] = small.roi_size;
  if (small?.spatial_size !== undefined)
    for (const step of (config["preprocessing"] as { transforms: Fields[] }).transforms)
      if (step["_target_"] === "Resized") step["spatial_size"] = small.spatial_size;
  (config["postprocessing"] as { transforms: Fields[] }).transforms.push(...then);
  // JSON is YAML too
  writeFileSync(file, JSON.stringify(config));
  return bundle;
}

/** Names of the channels, which are series. */
const CHANNELS: Record<string, string[]> = {
  brats_mri_segmentation: ["T1c", "T1", "T2", "FLAIR"],
  renalStructures_CECT_segmentation: ["artery", "vein", "excret"],
};

/** The image of a reference, as a person has it. */
function imageOf(t: Test, name: string, modality: string): string {
  const picture = join(BUNDLES, name, "image.png");
  if (existsSync(picture)) return picture;
  const several = CHANNELS[name] ?? ["only"];
  const series = several.map((text, channel) =>
    seriesFiles(join("..", "bundles", name), {
      modality,
      channel,
      number: 20 + channel,
      attributes: { SeriesDescription: text },
    }),
  );
  return writeFolder(join(t.testdirName, "study"), ...series);
}

const numbersOf = (name: string, array: string) =>
  Array.from(toNumbers(decodeNpy(readFileSync(join(BUNDLES, name, `${array}.npy`)))));
const farthest = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  a.length === b.length
    ? Array.from(a).reduce((most, one, i) => Math.max(most, Math.abs(one - b[i]!)), 0)
    : Infinity;

interface Found {
  /** How far the tensor is from that of MONAI. */
  given: number;
  /** How far scores are, or which part of the pixels has another label. */
  made: number;
}

async function compare(folder: string, name: string, source: string): Promise<Found> {
  const { model, problems } = await readModelFolder(folder);
  if (model === undefined) throw new Error(problems[0]?.message);
  const { caseOf } = await folderReading(folder);
  const { result } = await withImageFile(
    source,
    (image) => inferOnce(folder, model, image, { engine: engine(), providers: ["cpu"] }),
    caseOf === undefined ? {} : { caseOf },
  );
  const [tensor] = result.tensors.inputs;
  // MONAI slices volumes across the last axis, and gives all of them
  const order = name.startsWith("ventricular")
    ? turned(numbersOf(name, "input"), 12)
    : numbersOf(name, "input");
  const given = farthest(toNumbers(tensor!), order);
  const [output] = result.outputs;
  if (output?.kind === "classification")
    return { given, made: farthest(output.scores, numbersOf(name, "scores")) };
  if (output?.kind !== "segmentation") throw new Error(`found ${output?.kind}`);
  const labels = numbersOf(name, "labels");
  const mask =
    name in CHANNELS
      ? JOINED[name]!(parted(output.mask, labels.length), labels.length)
      : output.mask;
  const other = labels.filter((label, i) => mask[i] !== label).length;
  return { given, made: mask.length === labels.length ? other / labels.length : Infinity };
}

/** The last of three axes first. */
function turned(values: number[], last: number): number[] {
  const rest = values.length / last;
  return Array.from(
    { length: values.length },
    (_, i) => values[(i % rest) * last + Math.floor(i / rest)]!,
  );
}

/** The masks of labels that overlap, one after the other. */
const parted = (masks: Uint8Array, voxels: number): Uint8Array[] =>
  Array.from({ length: masks.length / voxels }, (_, c) =>
    masks.subarray(c * voxels, (c + 1) * voxels),
  );

/** The maps that the bundles' own functions make of their masks. */
const JOINED: Record<string, (masks: Uint8Array[], voxels: number) => number[]> = {
  // Tumour core, whole tumour, enhancing tumour
  brats_mri_segmentation: ([core, whole, enhancing], voxels) =>
    Array.from({ length: voxels }, (_, i) =>
      enhancing![i] ? 4 : core![i] ? 1 : whole![i] ? 2 : 0,
    ),
  // The first label counts
  renalStructures_CECT_segmentation: (masks, voxels) =>
    Array.from({ length: voxels }, (_, i) => masks.findIndex((mask) => mask[i]) + 1),
};

t.test("bundles of the Model Zoo", { skip: needs(ADDON, ZOO) }, async (t) => {
  t.teardown(() => engine().close());
  for (const [name, one] of Object.entries(CASES))
    await t.test(`${name} comes to what MONAI makes`, async (t) => {
      const bundle = bundleOf(t, name, one);
      const to = join(t.testdirName, "imported");
      const { without, modality, orientation } = one;
      const described = (text: string) => ({ rules: [{ tag: "SeriesDescription", in: [text] }] });
      const roles = join(t.testdirName, "roles.json");
      writeFileSync(
        roles,
        JSON.stringify(
          Object.fromEntries((CHANNELS[name] ?? []).map((text) => [text, described(text)])),
        ),
      );
      const { data } = await modelsImport(bundle, engine(), {
        ...(modality === undefined ? {} : { modality }),
        ...(orientation === undefined ? {} : { orientation }),
        ...(name in CHANNELS ? { roles } : {}),
        to,
      });
      const { manifest } = data as { manifest: Manifest };
      const source = imageOf(t, name, manifest.accepts.modality![0]!);
      for (const output of manifest.outputs)
        if (output.kind === "classification")
          output.labels.forEach((label) => (label.threshold ??= 0.5));
      writeFileSync(join(to, "model.json"), JSON.stringify(manifest));
      const found = await compare(to, name, source);
      t.comment(JSON.stringify(found));
      t.ok(found.given < 1e-4, `the tensor is MONAI's: ${found.given}`);
      t.ok(found.made < 2e-6, `what is made of the output, too: ${found.made}`);
      for (const [what, change] of Object.entries(without)) {
        const other = JSON.parse(JSON.stringify(manifest)) as Manifest;
        change(other);
        const folder = join(t.testdirName, `other-${Object.keys(without).indexOf(what)}`);
        mkdirSync(folder);
        cpSync(join(to, "model.onnx"), join(folder, "model.onnx"));
        writeFileSync(join(folder, "model.json"), JSON.stringify({ ...other, name: "other" }));
        const { given, made } = await compare(folder, name, source);
        t.ok(given > 1e-3 || made > 1e-3, `without ${what} it shows: ${given}, ${made}`);
      }
    });
});
