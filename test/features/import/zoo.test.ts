/**
 * The 32 inference configurations of the MONAI Model Zoo: each is imported, or refused by the name
 * of what is missing, with the line on which it stands. Graphs of the stated shapes stand for the
 * weights, which are not there.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { onnxModel } from "../../../scripts/lib/onnx-model.js";
import { RadserveError } from "../../../src/base/errors.js";
import { modelsImport, type ImportOptions } from "../../../src/features/import/import.js";
import { ADDON, needs } from "../../support/needs.js";
import { engine } from "../../support/real-engine.js";

const ZOO = "../shared/zoo";

interface Expected extends ImportOptions {
  /** What ends the import, in the order in which it is said; nothing where there is none. */
  fields: string[];
  /** What is said of an import, and what it leaves open. */
  notes?: string[];
  open?: string[];
}

const OUTCOMES: Record<string, Expected> = {
  brats_mri_axial_slices_generative_diffusion: {
    fields: [
      "inference.json: preprocessing",
      "inference.json line 97: inferer.scripts.ldm_sampler.LDMSampler",
      "inference.json: postprocessing",
      "metadata.json: modality",
      "metadata.json: channel_def.0",
    ],
  },
  brats_mri_generative_diffusion: {
    fields: [
      "inference.json: preprocessing",
      "inference.json line 90: inferer.scripts.ldm_sampler.LDMSampler",
      "inference.json: postprocessing",
      "metadata.json: inputs",
      "metadata.json: modality",
      "metadata.json: inputs.channel_def",
      "metadata.json: channel_def",
    ],
  },
  brats_mri_segmentation: {
    orientation: "RAS",
    fields: [],
    notes: ["inference.json: postprocessing.3.Lambdad"],
    open: [0, 1, 2, 3].map((role) => `roles[${role}].rules`),
  },
  breast_density_classification: {
    modality: "MG",
    fields: [],
    open: [0, 1, 2, 3].map((label) => `outputs[0].labels[${label}].threshold`),
  },
  classification_template: {
    modality: "OT",
    fields: [],
    open: [0, 1, 2, 3].map((label) => `outputs[0].labels[${label}].threshold`),
  },
  endoscopic_inbody_classification: {
    modality: "ES",
    fields: [],
    notes: ["inference.json: postprocessing"],
  },
  endoscopic_tool_segmentation: { modality: "ES", fields: [] },
  lung_nodule_ct_detection: {
    fields: [],
    notes: [
      "inference.json line 116: preprocessing.4.Spacingd",
      "inference.json line 79: detector_ops",
      "metadata.json: monai_version",
    ],
    open: ["outputs[0].labels[0].label", "outputs[0].labels[0].threshold"],
  },
  maisi_ct_generative: {
    fields: [
      "metadata.json is not as expected. network_data_format: Invalid input: expected object, received undefined.",
    ],
  },
  mednist_gan: {
    fields: [
      "inference.json: preprocessing",
      "inference.json line 58: postprocessing.1.ToTensord.track_meta",
      "inference.json line 34: dataset.Dataset.transform",
      "inference.json line 88: evaluator.SupervisedEvaluator.prepare_batch",
      "metadata.json: inputs",
      "metadata.json: modality",
      "inference.json: postprocessing",
    ],
  },
  mednist_reg: {
    fields: [
      "inference.yaml line 43: preprocessing.Compose.transforms",
      "inference.yaml: postprocessing",
      "inference.yaml line 109: evaluator.SupervisedEvaluator.postprocessing",
      "metadata.json: inputs",
      "metadata.json: modality",
      "metadata.json: channel_def.0",
    ],
  },
  multi_organ_segmentation: { fields: [] },
  pancreas_ct_dints_segmentation: { fields: [] },
  pathology_nuclei_classification: {
    fields: [
      "inference.json line 32: preprocessing.0.LoadImaged.dtype",
      "inference.json line 51: preprocessing.3.AddLabelAsGuidanced",
      "metadata.json: inputs",
      "metadata.json: modality",
    ],
  },
  pathology_nuclei_segmentation_classification: {
    fields: [
      "inference.json line 30: preprocessing.0.LoadImaged.reader",
      "inference.json line 31: preprocessing.0.LoadImaged.converter",
      "inference.json line 68: inferer.SlidingWindowHoVerNetInferer",
      "inference.json line 86: postprocessing.0.FlattenSubKeysd",
      "inference.json line 92: postprocessing.1.HoVerNetInstanceMapPostProcessingd",
      "inference.json line 98: postprocessing.2.HoVerNetNuclearTypePostProcessingd",
      "inference.json line 101: postprocessing.3.FromMetaTensord",
      "metadata.json: outputs",
      "metadata.json: modality",
      "metadata.json: channel_def",
    ],
  },
  pathology_nuclick_annotation: {
    fields: [
      "inference.json line 43: preprocessing.0.LoadImaged.dtype",
      "inference.json line 59: preprocessing.3.AddClickSignalsd",
      "inference.json line 65: preprocessing.4.SqueezeDimd",
      "metadata.json: inputs",
      "metadata.json: modality",
    ],
  },
  pathology_tumor_detection: {
    fields: [
      "inference.json line 93: postprocessing.2.ToNumpyd",
      "inference.json line 63: dataset.MaskedPatchWSIDataset",
      "metadata.json: modality",
    ],
  },
  pediatric_abdominal_ct_segmentation: { fields: [] },
  prostate_mri_anatomy: {
    fields: [
      "inference.json line 110: postprocessing.1.KeepLargestConnectedComponentd",
      "inference.json line 123: postprocessing.2.Invertd.nearest_interp",
    ],
  },
  renalStructures_CECT_segmentation: {
    fields: [],
    notes: ["inference.json: postprocessing.3.scripts.my_transforms.MergeClassesd"],
    open: [0, 1, 2].map((role) => `roles[${role}].rules`),
  },
  renalStructures_UNEST_segmentation: { fields: [] },
  segmentation_template: {
    modality: "OT",
    orientation: "RAS",
    fields: [],
    notes: ["inference.yaml: postprocessing"],
  },
  spleen_ct_segmentation: { fields: [] },
  spleen_deepedit_annotation: {
    fields: [
      "inference.json line 133: preprocessing.Compose.transforms",
      "metadata.json: inputs.channel_def",
    ],
  },
  swin_unetr_btcv_segmentation: { fields: [] },
  valve_landmarks: {
    fields: [
      "inference.json line 45: preprocessing.0.LoadImage",
      "inference.json line 49: preprocessing.1.EnsureType",
      "inference.json line 53: preprocessing.2.Transpose",
      "inference.json line 62: preprocessing.3.ScaleIntensity",
      "inference.json line 79: inferer.scripts.valve_landmarks.LandmarkInferer",
      "inference.json line 87: postprocessing.0.SqueezeDimd",
      "inference.json line 92: postprocessing.1.scripts.valve_landmarks.NpySaverd",
      "inference.json line 118: evaluator.SupervisedEvaluator.prepare_batch",
      "metadata.json: channel_def.0",
    ],
  },
  ventricular_short_axis_3label: { orientation: "RAS", fields: [] },
  vista2d: {
    fields: [
      "inference.json line 29: preprocessing.0.scripts.components.LoadTiffd",
      "inference.json line 73: inferer.SlidingWindowInfererAdapt",
      "inference.json line 90: postprocessing.1.scripts.components.LogitsToLabelsd",
      "inference.json line 94: postprocessing.2.scripts.components.SaveTiffExd",
      "metadata.json: modality",
      "metadata.json: channel_def",
    ],
  },
  vista3d: {
    fields: [
      "inference.json line 79: preprocessing.4.CropForegroundd.margin",
      "inference.json line 83: preprocessing.5.VistaPreTransformd",
      "inference.json line 98: preprocessing.7.Orientationd",
      "inference.json line 125: inferer.scripts.inferer.Vista3dInferer",
      "inference.json line 141: postprocessing.1.VistaPostTransformd",
      "inference.json line 147: postprocessing.2.Invertd.transform",
      "inference.json line 154: postprocessing.3.Lambdad.func",
      "inference.json line 184: evaluator.scripts.evaluator.Vista3dEvaluator",
      "metadata.json: channel_def",
    ],
  },
  wb2: { orientation: "RAS", fields: [] },
  wholeBody_ct_segmentation: { fields: [] },
  wholeBrainSeg_Large_UNEST_segmentation: { orientation: "RAS", fields: [] },
};

interface Format {
  num_channels: number;
  spatial_shape?: unknown[];
}
const first = (record: Record<string, Format> = {}): Format | undefined => Object.values(record)[0];

/** The maps of scores and of boxes of three anchors on three levels, as RetinaNet gives them. */
function mapsOfBoxes(): Uint8Array {
  const maps = [0, 1, 2].flatMap((level) => [
    { name: `scores_${level}`, channels: 3 },
    { name: `boxes_${level}`, channels: 18 },
  ]);
  return onnxModel({
    name: "stand-in",
    inputs: [{ name: "image", dtype: "float32", shape: ["n", 1, "x", "y", "z"] }],
    outputs: maps.map(({ name, channels }) => ({
      name,
      dtype: "float32" as const,
      shape: ["n", channels, "x", "y", "z"],
    })),
    initializers: maps.map(({ name, channels }) => ({
      name: `${name}_w`,
      dtype: "float32" as const,
      shape: [channels, 1, 1, 1, 1],
      data: new Uint8Array(4 * channels),
    })),
    nodes: maps.map(({ name }) => ({
      op: "Conv",
      inputs: ["image", `${name}_w`],
      outputs: [name],
    })),
  });
}

/**
 * One convolution of zeros, from as many channels to as many as metadata.json says; for scores,
 * their mean over the sides.
 */
function graph({
  inputs,
  outputs,
}: Record<"inputs" | "outputs", Record<string, Format>>): Uint8Array {
  const channels = Math.max(1, first(inputs)?.num_channels ?? 1);
  const labels = Math.max(1, first(outputs)?.num_channels ?? 1);
  const sides = Array.from(
    { length: first(inputs)?.spatial_shape?.length || 3 },
    (_, i) => `side${i}`,
  );
  const scores = first(outputs)?.spatial_shape?.[0] === 1;
  const shape = [labels, channels, ...sides.map(() => 1)];
  return onnxModel({
    name: "stand-in",
    inputs: [{ name: "image", dtype: "float32", shape: ["n", channels, ...sides] }],
    outputs: [{ name: "pred", dtype: "float32", shape: ["n", labels, ...(scores ? [] : sides)] }],
    initializers: [
      { name: "w", dtype: "float32", shape, data: new Uint8Array(4 * labels * channels) },
    ],
    nodes: [
      { op: "Conv", inputs: ["image", "w"], outputs: [scores ? "maps" : "pred"] },
      ...(scores
        ? [
            { op: "GlobalAveragePool", inputs: ["maps"], outputs: ["means"] },
            { op: "Flatten", inputs: ["means"], outputs: ["pred"] },
          ]
        : []),
    ],
  });
}

/** Lays a configuration out as a bundle and imports it: the fields that end it, or none. */
async function outcome(
  t: Test,
  name: string,
  { notes = [], open = [], ...options }: Omit<Expected, "fields">,
): Promise<string[]> {
  const bundle = join(t.testdir(), name);
  cpSync(join(ZOO, name), join(bundle, "configs"), { recursive: true });
  const metadata = JSON.parse(readFileSync(join(ZOO, name, "metadata.json"), "utf8")) as {
    network_data_format?: Parameters<typeof graph>[0];
  };
  mkdirSync(join(bundle, "models"));
  writeFileSync(
    join(bundle, "models", "model.onnx"),
    name === "lung_nodule_ct_detection"
      ? mapsOfBoxes()
      : graph(metadata.network_data_format ?? { inputs: {}, outputs: {} }),
  );
  const to = join(bundle, "imported");
  try {
    const { data } = await modelsImport(bundle, engine(), { ...options, to });
    const told = data as { gaps: { field: string }[]; open: { path: string }[] };
    t.strictSame(
      [told.gaps.map(({ field }) => field), told.open.map(({ path }) => path)],
      [notes, open],
      "nothing else is left out",
    );
    return [];
  } catch (error) {
    if (!(error instanceof RadserveError) || error.code !== "bad_request") throw error;
    t.notOk(existsSync(to), "nothing is written");
    const gaps = error.details?.["gaps"] as { field: string; message: string }[] | undefined;
    return gaps?.map(({ field }) => field) ?? [error.message];
  }
}

t.test("the MONAI Model Zoo", { skip: needs(ADDON, ZOO) }, async (t) => {
  t.teardown(() => engine().close());
  const names = readdirSync(ZOO).filter((name) => name !== "README.md");
  t.strictSame(names.sort(), Object.keys(OUTCOMES).sort());
  for (const [name, { fields, ...options }] of Object.entries(OUTCOMES))
    await t.test(name, async (t) => {
      t.strictSame(await outcome(t, name, options), fields);
    });
});
