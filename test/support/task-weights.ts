/** Folders of weights as users of TotalSegmentator have them, with small graphs for networks. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { steps } from "./ends.js";

export interface Weights {
  labels: string[];
  /** mm. */
  spacing: number;
  channel: string;
  plans: string;
  trainer: string;
  /** Whether the network is exported, into which folder of its own. */
  graph: string | undefined;
  folds: string[];
}

const KWARGS = { is_seg: false, order_z: 0, force_separate_z: null };

/** A data set's folder with one result of training; returns that. */
export function writeWeights(
  folder: string,
  dataset: number,
  given: Partial<Weights> = {},
): string {
  const {
    labels = ["a", "b"].map((letter) => `label_${dataset}_${letter}`),
    spacing = 1.5,
    channel = "CT",
    plans = "nnUNetPlans",
    trainer = "nnUNetTrainerNoMirroring",
    graph = "exported/fold_0",
    folds = ["fold_0"],
  } = "graph" in given ? { ...given, graph: given.graph ?? "" } : given;
  const result = join(folder, `Dataset${dataset}_test`, `${trainer}__${plans}__3d_fullres`);
  for (const fold of folds) {
    mkdirSync(join(result, fold), { recursive: true });
    writeFileSync(join(result, fold, "checkpoint_final.pth"), "");
  }
  const configuration = {
    preprocessor_name: "DefaultPreprocessor",
    patch_size: [8, 8, 8],
    spacing: [spacing, spacing, spacing],
    normalization_schemes: [channel === "CT" ? "CTNormalization" : "ZScoreNormalization"],
    use_mask_for_norm: [false],
    resampling_fn_data: "resample_data_or_seg_to_shape",
    resampling_fn_data_kwargs: { ...KWARGS, order: 3 },
    resampling_fn_probabilities: "resample_data_or_seg_to_shape",
    resampling_fn_probabilities_kwargs: { ...KWARGS, order: 1 },
  };
  const intensity = { mean: dataset, std: 100, percentile_00_5: -1000, percentile_99_5: 1000 };
  mkdirSync(result, { recursive: true });
  writeFileSync(
    join(result, "plans.json"),
    JSON.stringify({
      dataset_name: `Dataset${dataset}_test`,
      image_reader_writer: "SimpleITKIO",
      transpose_forward: [0, 1, 2],
      transpose_backward: [0, 1, 2],
      label_manager: "LabelManager",
      configurations: { "3d_fullres": configuration },
      foreground_intensity_properties_per_channel: { 0: intensity },
    }),
  );
  const numbers = ["background", ...labels].map((label, i) => [label, i] as const);
  writeFileSync(
    join(result, "dataset.json"),
    JSON.stringify({ channel_names: { 0: channel }, labels: Object.fromEntries(numbers) }),
  );
  if (graph === "") return result;
  mkdirSync(join(result, graph), { recursive: true });
  // The last data set marks the brightest
  const weights = ["background", ...labels].map((_, i) => i);
  const biases = weights.map((_, i) => -i * (0.5 + (dataset % 10) / 10));
  writeFileSync(join(result, graph, "model.onnx"), steps(`of-${dataset}`, weights, biases));
  return result;
}

/** A totalsegmentator package with a table of codes, as far as an import reads it. */
export function writePackage(
  folder: string,
  labels: readonly string[],
  more: readonly string[] = [],
): string {
  const of = (prefix: string) =>
    ["CodingSchemeDesignator", "CodeValue", "CodeMeaning"].map((part) => `${prefix}.${part}`);
  const header = [
    "Structure",
    ...of("SegmentedPropertyCategoryCodeSequence"),
    ...of("SegmentedPropertyTypeCodeSequence"),
    ...of("SegmentedPropertyTypeModifierCodeSequence"),
    ...of("AnatomicRegionSequence"),
    ...of("AnatomicRegionModifierSequence"),
    "DicomRGBColor",
  ];
  const rows = labels.map(
    (label, i) =>
      `${label},SCT,123037004,Anatomical Structure,SCT,${1000 + i},"Organ, made up",SCT,7771000,Left,,,,,,,"${i},20,30"`,
  );
  const own = join(folder, "totalsegmentator");
  mkdirSync(join(own, "resources"), { recursive: true });
  mkdirSync(join(folder, "totalsegmentator-9.9.9.dist-info"));
  writeFileSync(
    join(folder, "totalsegmentator-9.9.9.dist-info", "METADATA"),
    "Metadata-Version: 2.4\nName: TotalSegmentator\nVersion: 9.9.9\nLicense: Apache 2.0\n",
  );
  writeFileSync(
    join(own, "resources", "totalsegmentator_snomed_mapping.csv"),
    [header.join(","), ...rows, ...more, ""].join("\n"),
  );
  return own;
}
