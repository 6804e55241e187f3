/**
 * What bundles and plans say is taken with its meaning, or ends the import by its name and line:
 * nothing is dropped. The shared cases are held against MONAI's own output.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t, { type Test } from "tap";
import { onnxModel } from "../../../scripts/lib/onnx-model.js";
import { BundleConfig } from "../../../src/features/import/bundle-config.js";
import { modelsCheck } from "../../../src/commands/models/check.js";
import { modelsTry } from "../../../src/commands/models/try.js";
import { modelsImport, type ImportOptions } from "../../../src/features/import/import.js";
import type { Manifest } from "../../../src/manifest/manifest.js";
import { ADDON, needs } from "../../support/needs.js";
import { engine } from "../../support/real-engine.js";
import { seriesFiles, VOLUMES } from "../../support/reference-volumes.js";
import { folderOf, readFolder } from "../../support/series.js";

const CASES = resolve("../shared/cases/models");

t.teardown(() => engine().close());

type Fields = Record<string, unknown>;
interface Inference {
  preprocessing: { transforms: Fields[] };
  inferer: Fields;
  postprocessing: { transforms: Fields[] };
  [name: string]: unknown;
}

/** The bundle monai-ct with another inference.json; its steps are named by their classes. */
async function bundle(
  t: Test,
  change: (step: (name: string) => Fields, inference: Inference, folder: string) => void,
  options: ImportOptions = {},
  file = "inference.json",
): Promise<{ refused: string; manifest?: Manifest; noted?: string[] }> {
  const folder = join(t.testdir(), "bundle");
  cpSync(join(VOLUMES, "monai-ct"), folder, { recursive: true });
  const inference = JSON.parse(readFileSync(join(folder, "inference.json"), "utf8")) as Inference;
  const steps = () => [
    ...inference.preprocessing.transforms,
    ...inference.postprocessing.transforms,
  ];
  change(
    (name) => steps().find((step) => step["_target_"] === name) ?? inference.inferer,
    inference,
    folder,
  );
  // JSON is YAML too
  rmSync(join(folder, "inference.json"));
  writeFileSync(join(folder, file), JSON.stringify(inference, null, 1));
  try {
    const { data } = await modelsImport(folder, engine(), options);
    const { manifest, gaps } = data as { manifest: Manifest; gaps: { message: string }[] };
    return { refused: "", manifest, noted: gaps.map(({ message }) => message) };
  } catch (error) {
    t.notOk(existsSync(join(folder, "model.json")), "nothing is written");
    return { refused: error instanceof Error ? error.message : String(error) };
  }
}

const FOREGROUND = { _target_: "CropForegroundd", keys: "image", source_key: "image" };
const LARGEST = { _target_: "KeepLargestConnectedComponentd", keys: "pred" };

/** Volumes become this size in place of a spacing, and the network is given each whole. */
const resized =
  (more: Fields = {}): Parameters<typeof bundle>[1] =>
  (_, inference) => {
    inference.preprocessing.transforms[3] = {
      _target_: "Resized",
      keys: "image",
      spatial_size: [12, 12, 8],
      mode: "trilinear",
      ...more,
    };
    inference.inferer = { _target_: "SimpleInferer" };
  };

/**
 * Changes that MONAI gives another meaning than no change, or that it does not know, and what names
 * them.
 */
const REFUSED: Record<string, [change: Parameters<typeof bundle>[1], named: RegExp]> = {
  "a text for a truth": [
    (step) => (step("ScaleIntensityRanged")["clip"] = "False"),
    /line \d+: preprocessing\.4\.ScaleIntensityRanged\.clip: Expected true or false; MONAI takes any text for true, found "False"/,
  ],
  align_corners: [
    (step) => (step("Spacingd")["align_corners"] = [true]),
    /Spacingd\.align_corners: Expected false, found true/,
  ],
  scale_extent: [
    (step) => (step("Spacingd")["scale_extent"] = 1),
    /Spacingd\.scale_extent: Expected false, found 1/,
  ],
  "one number for three axes": [
    (step) => (step("Spacingd")["pixdim"] = 1.5),
    /Spacingd\.pixdim: Expected three numbers, found 1\.5/,
  ],
  "another mode": [
    (step) => (step("Spacingd")["mode"] = ["nearest"]),
    /Spacingd\.mode: Expected "bilinear", found "nearest"/,
  ],
  as_closest_canonical: [
    (step) => (step("Orientationd")["as_closest_canonical"] = "$True"),
    /Orientationd\.as_closest_canonical: Expected false, found true/,
  ],
  "axes that are turned after Spacingd": [
    (_, { preprocessing: { transforms } }) => transforms.push(...transforms.splice(2, 1)),
    /Orientationd: Expected it once, and before Spacingd/,
  ],
  affine_lps_to_ras: [
    (step) => (step("LoadImaged")["affine_lps_to_ras"] = false),
    /LoadImaged\.affine_lps_to_ras: Expected true, found false/,
  ],
  "a type of whole numbers": [
    (step) => (step("LoadImaged")["dtype"] = "$np.int16"),
    /LoadImaged\.dtype: Expected float32 or float64, found "int16"/,
  ],
  "an argument that nobody knows": [
    (step) => (step("EnsureTyped")["device_type"] = "x"),
    /EnsureTyped\.device_type: This argument is not known: "x"/,
  ],
  "an expression": [
    (step) => (step("Orientationd")["axcodes"] = "$'R' + 'AS'"),
    /Orientationd\.axcodes: Expected three letters, found "\$'R' \+ 'AS'"/,
  ],
  "a reference to nothing, by a name that every object has": [
    (step) => (step("Spacingd")["pixdim"] = "@constructor"),
    /Spacingd\.pixdim: Expected three numbers, found "@constructor"/,
  ],
  "a class of one's own that is called like MONAI's": [
    (step) => (step("Spacingd")["_target_"] = "scripts.Spacingd"),
    /preprocessing\.3\.scripts\.Spacingd: It is not known/,
  ],
  "a step on another image": [
    (step) => (step("Spacingd")["keys"] = ["label"]),
    /Spacingd\.keys: Expected "image", found \["label"\]/,
  ],
  "a disabling that is worked out": [
    (step) => (step("Spacingd")["_disabled_"] = "$not True"),
    /Spacingd\._disabled_|preprocessing\.3\._disabled_: Expected true or false, found "\$not True"/,
  ],
  "a threshold after softmax": [
    (step) => Object.assign(step("AsDiscreted"), { argmax: false, threshold: 0.5 }),
    /AsDiscreted\.threshold: Expected it after Activationsd with sigmoid true alone/,
  ],
  "a threshold of label numbers": [
    (step) => (step("AsDiscreted")["threshold"] = 0.5),
    /AsDiscreted\.threshold: Expected it without argmax/,
  ],
  "the highest of sigmoids": [
    (step) => Object.assign(step("Activationsd"), { softmax: false, sigmoid: true }),
    /AsDiscreted\.argmax: Expected a threshold/,
  ],
  "softmax over another axis": [
    (step) => (step("Activationsd")["dim"] = 1),
    /Activationsd\.dim: Expected 0, found 1/,
  ],
  "labels that would be mixed on their way back": [
    (_, { postprocessing: { transforms } }) => transforms.push(...transforms.splice(1, 1)),
    /Invertd\.nearest_interp: Expected true, or AsDiscreted after it/,
  ],
  "values that are changed behind the foreground": [
    (_, { preprocessing: { transforms } }) => transforms.splice(4, 0, FOREGROUND),
    /ScaleIntensityRanged: Expected CropForegroundd behind it/,
  ],
  "volumes that are resampled behind the foreground": [
    (_, { preprocessing: { transforms } }) =>
      transforms.splice(2, 0, ...transforms.splice(4, 1), FOREGROUND),
    /preprocessing\.5\.Spacingd: Expected CropForegroundd behind it/,
  ],
  "volumes of a size behind the foreground": [
    (step, inference, folder) => {
      resized()(step, inference, folder);
      inference.preprocessing.transforms.splice(2, 0, FOREGROUND);
    },
    /Resized: Expected no CropForegroundd beside it/,
  ],
  "windows over volumes of a size": [
    (step, inference, folder) => {
      const { inferer } = inference;
      resized()(step, inference, folder);
      inference.inferer = inferer;
    },
    /preprocessing\.3\.Resized: Expected no SlidingWindowInferer or SliceInferer beside it/,
  ],
  "slices of volumes of a size": [
    (step, inference, folder) => {
      resized()(step, inference, folder);
      inference.inferer = { _target_: "SliceInferer", roi_size: [12, 12], spatial_dim: 2 };
    },
    /preprocessing\.3\.Resized: Expected no SlidingWindowInferer or SliceInferer beside it/,
  ],
  "values that are cut off after volumes are resized": [
    resized(),
    /preprocessing\.4\.ScaleIntensityRanged\.clip: Expected Resized behind it/,
  ],
  "a margin of the foreground": [
    (_, { preprocessing: { transforms } }) =>
      transforms.push({
        _target_: "CropForegroundd",
        keys: "image",
        source_key: "image",
        margin: 10,
      }),
    /CropForegroundd\.margin: Expected 0, found 10/,
  ],
  "statistics before volumes are resampled, behind numbers": [
    (_, { preprocessing: { transforms } }) =>
      transforms.splice(3, 0, transforms.splice(4, 1)[0]!, {
        _target_: "NormalizeIntensityd",
        keys: "image",
        nonzero: true,
      }),
    /NormalizeIntensityd: Expected it behind Spacingd or Resized, or before all other changes/,
  ],
  "a function": [
    (_, { postprocessing: { transforms } }) =>
      transforms.push({ _target_: "Lambdad", keys: "pred", func: "$lambda x: x[1:]" }),
    /Lambdad\.func: Functions are not run, and this one is not known here/,
  ],
  "volumes of a size, by a mode of pictures": [
    (_, { preprocessing: { transforms } }) =>
      (transforms[3] = {
        _target_: "Resized",
        keys: "image",
        spatial_size: [8, 8, 8],
        mode: "bicubic",
      }),
    /Resized: Expected three numbers and a mode of volumes/,
  ],
  "windows of another number of sides": [
    (_, { inferer }) => (inferer["roi_size"] = [8, 8]),
    /inferer\.SlidingWindowInferer\.roi_size: Expected three numbers for a graph of volumes/,
  ],
  "what is done to masks before they go back": [
    (_, { postprocessing: { transforms } }) => {
      transforms.push(...transforms.splice(1, 1));
      transforms.splice(2, 0, { _target_: "KeepLargestConnectedComponentd", keys: "pred" });
    },
    /KeepLargestConnectedComponentd: Expected it behind AsDiscreted and Invertd/,
  ],
  "regions of a map that channels were joined to": [
    (_, { postprocessing: { transforms } }) => {
      transforms[0] = { _target_: "Activationsd", keys: "pred", sigmoid: true };
      transforms[2] = { _target_: "AsDiscreted", keys: "pred", threshold: 0.5 };
      transforms.splice(3, 0, { _target_: "scripts.my_transforms.MergeClassesd", keys: "pred" });
      transforms.splice(4, 0, LARGEST);
    },
    /KeepLargestConnectedComponentd: Expected it before channels are joined to one map/,
  ],
  "a label before the first": [
    (_, { postprocessing: { transforms } }) => transforms.push({ ...LARGEST, applied_labels: -1 }),
    /KeepLargestConnectedComponentd\.applied_labels: Expected label numbers, found -1/,
  ],
  "what is done to masks afterwards": [
    (_, { postprocessing }) =>
      postprocessing.transforms.push({ _target_: "FillHolesd", keys: "pred" }),
    /FillHolesd: It is not known/,
  ],
  "numbers for nonzero values alone": [
    (_, { preprocessing: { transforms } }) =>
      (transforms[4] = {
        _target_: "NormalizeIntensityd",
        keys: "image",
        subtrahend: 1,
        divisor: 2,
        nonzero: 1,
      }),
    /NormalizeIntensityd\.nonzero: Expected false beside numbers for subtrahend and divisor/,
  ],
  "windows that are padded otherwise": [
    (_, { inferer }) => (inferer["padding_mode"] = "reflect"),
    /inferer\.SlidingWindowInferer\.padding_mode: Expected constant or replicate, found "reflect"/,
  ],
  "an evaluator that prepares images itself": [
    (_, inference) =>
      (inference["evaluator"] = {
        _target_: "SupervisedEvaluator",
        inferer: "@inferer",
        postprocessing: "@postprocessing",
        prepare_batch: "$mine",
      }),
    /evaluator\.SupervisedEvaluator\.prepare_batch: Expected none|prepare_batch: Expected none, found "\$mine"/,
  ],
};

/** Other spellings of the same. */
const SAME: Record<string, Parameters<typeof bundle>[1]> = {
  "truths as Python and people write them": (step) => {
    step("ScaleIntensityRanged")["clip"] = "True";
    Object.assign(step("Activationsd"), { softmax: "$True", sigmoid: 0 });
    step("AsDiscreted")["argmax"] = [1];
  },
  "a reference to a part": (_, inference) => {
    inference["bounds"] = { low: -160 };
    const scale = inference.preprocessing.transforms[4]!;
    scale["a_min"] = "@bounds#low";
    scale["_disabled_"] = "@off";
    inference["off"] = "false";
  },
  "a step that is disabled": (_, { preprocessing }) =>
    preprocessing.transforms.push({
      _target_: "NormalizeIntensityd",
      keys: "image",
      _disabled_: " True",
    }),
  "a list by reference": (_, inference) => {
    inference["steps"] = inference.preprocessing.transforms;
    (inference.preprocessing as Fields)["transforms"] = "$@steps ";
  },
  "other names of a class": (step) => {
    step("Spacingd")["_target_"] = "monai.transforms.SpacingDict";
    step("Orientationd")["_target_"] = "OrientationD";
  },
};

t.test("bundles of MONAI", { skip: needs(ADDON) }, async (t) => {
  const usual = await bundle(t, () => undefined);
  t.ok(usual.manifest);
  for (const [name, [change, named]] of Object.entries(REFUSED))
    await t.test(`${name} ends the import by name`, async (t) => {
      t.match((await bundle(t, change)).refused, named);
    });
  for (const [name, change] of Object.entries(SAME))
    await t.test(`${name}: the same`, async (t) => {
      t.strictSame(await bundle(t, change), usual);
      t.strictSame(await bundle(t, change, {}, "inference.yaml"), usual);
    });

  await t.test("without Orientationd a person says how images lay", async (t) => {
    const unturned: Parameters<typeof bundle>[1] = (_, { preprocessing }) =>
      preprocessing.transforms.splice(2, 1);
    t.match(
      (await bundle(t, unturned)).refused,
      /inference\.json: preprocessing: There is no Orientationd.*--orientation/,
    );
    const said = await bundle(t, unturned, { orientation: "LAS" });
    t.match(said.manifest, { inputs: [{ orientation: "LAS" }] });
    const other = await bundle(t, () => undefined, { orientation: "LAS" });
    t.match(other.refused, /--orientation: Orientationd turns images to RAS/);
  });

  await t.test("axes may be turned on either side of the foreground", async (t) => {
    const cropped = (before: boolean) =>
      bundle(t, (_, { preprocessing: { transforms } }) => {
        const [orientation] = transforms.splice(2, 2);
        transforms.push(...(before ? [orientation!, FOREGROUND] : [FOREGROUND, orientation!]));
      });
    const turned = await cropped(true);
    t.match(turned.manifest, { inputs: [{ resampling: { crop: "foreground" } }] });
    t.strictSame(await cropped(false), turned);
  });

  await t.test("values are cut off before volumes are resized", async (t) => {
    const { manifest } = await bundle(t, (step, inference, folder) => {
      resized()(step, inference, folder);
      const { transforms } = inference.preprocessing;
      transforms.splice(3, 2, ...transforms.slice(3, 5).reverse());
    });
    const expected = {
      clip: [-160, 240],
      size: { kind: "fixed", depth: 12, height: 12, width: 8 },
    };
    t.match(manifest, { inputs: [{ ...expected, interpolation: "linear" }] });
    const nearest = await bundle(t, (step, inference, folder) => {
      resized({ mode: "nearest-exact" })(step, inference, folder);
      inference.postprocessing.transforms.splice(1, 1);
    });
    t.match(nearest.manifest, { inputs: [{ ...expected, interpolation: "nearest" }] });
  });

  await t.test("the largest regions are those of the labels that MONAI cleans", async (t) => {
    const OTHERS_STAY = /MONAI takes the first channel for background: of "(\w+)" all regions stay/;
    const NOTHING = /It changes nothing in MONAI: no label has the number (0)/;
    /** What is behind Invertd, for channels of these names. */
    const cleaned = (names: string[], ...steps: Fields[]) =>
      bundle(t, (step, { postprocessing: { transforms } }, folder) => {
        const shape = (channels: number) => ["n", channels, "x", "y", "z"];
        const weights = [names.length, 1, 1, 1, 1];
        writeFileSync(
          join(folder, "model.onnx"),
          onnxModel({
            name: "stand-in",
            inputs: [{ name: "x", dtype: "float32", shape: shape(1) }],
            outputs: [{ name: "y", dtype: "float32", shape: shape(names.length) }],
            initializers: [
              {
                name: "w",
                dtype: "float32",
                shape: weights,
                data: new Uint8Array(4 * names.length),
              },
            ],
            nodes: [{ op: "Conv", inputs: ["x", "w"], outputs: ["y"] }],
          }),
        );
        const path = join(folder, "metadata.json");
        const metadata = JSON.parse(readFileSync(path, "utf8")) as {
          network_data_format: { outputs: Fields };
        };
        metadata.network_data_format.outputs = {
          pred: { num_channels: names.length, channel_def: Object.fromEntries(names.entries()) },
        };
        writeFileSync(path, JSON.stringify(metadata));
        const exclusive = names[0] === "background";
        Object.assign(step("Activationsd"), { softmax: exclusive, sigmoid: !exclusive });
        transforms.splice(2, 1, ...steps);
      });
    const highest = { _target_: "AsDiscreted", keys: "pred", argmax: true, to_onehot: 3 };
    const likely = { _target_: "AsDiscreted", keys: "pred", threshold: 0.5 };
    const foreground = { _target_: "Lambdad", keys: "pred", func: "$lambda x : x[1:]" };
    const only = (applied_labels: unknown) => ({ ...LARGEST, applied_labels });
    const exclusive = ["background", "a", "b"];
    const cases: [names: string[], steps: Fields[], kept: string[], noted?: [RegExp, string]][] = [
      [
        ["a", "b", "c"],
        [likely, LARGEST],
        ["b", "c"],
        [OTHERS_STAY, "a"],
      ],
      [
        ["a", "b", "c"],
        [likely, only([0, 2])],
        ["a", "c"],
      ],
      [["a"], [likely, LARGEST], ["a"]],
      [["a"], [likely, only([1])], ["a"]],
      [["a"], [likely, only(0)], [], [NOTHING, "0"]],
      [exclusive, [highest, LARGEST], ["a", "b"]],
      [exclusive, [highest, only([0, 2])], ["b"]],
      [exclusive, [highest, only(0)], [], [NOTHING, "0"]],
      [exclusive, [highest, LARGEST, foreground], ["a", "b"]],
      [exclusive, [highest, foreground, LARGEST], ["b"], [OTHERS_STAY, "a"]],
      [exclusive, [highest, foreground, only(0)], ["a"]],
      [["background", "a"], [{ ...highest, to_onehot: 2 }, foreground, LARGEST], ["a"]],
    ];
    for (const [names, steps, kept, noted] of cases) {
      const { refused, manifest, noted: found = [] } = await cleaned(names, ...steps);
      t.equal(refused, "");
      const [output] = manifest?.outputs ?? [];
      t.strictSame(
        output?.kind === "segmentation" ? output.postprocess : undefined,
        kept.length === 0
          ? []
          : [{ step: "largest_component", labels: kept, connected_by: "corners" }],
        JSON.stringify([names, steps]),
      );
      t.strictSame(
        found.map((message) => noted?.[0].exec(message)?.[1] ?? message),
        noted === undefined ? [] : [noted[1]],
      );
    }
  });

  await t.test("what the voxels of positron emission were is left open", async (t) => {
    const { manifest } = await bundle(t, () => undefined, { modality: "PT" });
    t.match(manifest, { accepts: { modality: ["PT"] }, inputs: [{ values: null }] });
  });

  await t.test(
    "a folder whose name no model can have is told, and does not end the import",
    async (t) => {
      const to = join(t.testdir(), "Organs CT.v2");
      const { text, data } = await modelsImport(join(VOLUMES, "monai-ct"), engine(), { to });
      t.match(data, { manifest: { name: "organs_ct_v2" } });
      t.match(text, /Organs CT\.v2 cannot be a model's name, .* move the folder to .*organs_ct_v2/);
    },
  );

  // The graph of one is given Hounsfield units as they are, so that its softmax is steep
  for (const [name, rounding] of [
    ["monai-disabled-scale", 2e-3],
    ["monai-nonzero-string", 1e-5],
  ] as const)
    await t.test(`${name} comes to what MONAI gives`, { skip: needs(CASES) }, async (t) => {
      const to = join(t.testdir(), "imported");
      await modelsImport(join(CASES, name), engine(), { to });
      const image = await readFolder(t, join(CASES, "ct1"));
      const expect = join(CASES, name, "expected.npy");
      const { data, text } = await modelsTry(to, image, {
        engine: engine(),
        providers: ["cpu"],
        expect,
      });
      const { comparison } = data as { comparison: { maxAbsolute: number } };
      t.ok(comparison.maxAbsolute < rounding, text);
    });

  await t.test("the nearest voxel, which is MONAI's default, goes back", async (t) => {
    const { manifest } = await bundle(t, (step) => delete step("Invertd")["nearest_interp"]);
    t.match(manifest, { inputs: [{ resampling: { order_back: 0 } }] });
  });
});

const SELECT = "@detector.set_box_selector_parameters";
/** Other arguments of that call. */
const select = (given: string) => (config: Fields) => {
  const calls = config["detector_ops"] as string[];
  calls[calls.findIndex((call) => call.includes(SELECT))] = `$${SELECT}(${given})`;
};
const LUNG = "../shared/zoo/lung_nodule_ct_detection";

t.test("a network that finds boxes", { skip: needs(ADDON, LUNG) }, async (t) => {
  const drafted = async (
    change: (config: Fields) => void = () => undefined,
    trained: string | undefined = "1.4.0",
  ) => {
    const folder = join(t.testdir(), "lesions");
    cpSync(LUNG, join(folder, "configs"), { recursive: true });
    mkdirSync(join(folder, "models"));
    cpSync("test/reference/boxes/maps.onnx", join(folder, "models", "model.onnx"));
    const path = join(folder, "configs", "inference.json");
    const config = JSON.parse(readFileSync(path, "utf8")) as Fields;
    const anchors = config["anchor_generator"] as Fields;
    anchors["feature_map_scales"] = [1, 2];
    Object.assign(config, { num_classes: 2, size_divisible: [4, 4, 2] });
    config["detector_ops"] = (config["detector_ops"] as string[]).map((call) =>
      call
        .replace(
          "score_thresh=0.02,topk_candidates_per_level=1000",
          "score_thresh = 0.55, topk_candidates_per_level = 60",
        )
        .replace("detections_per_img=300", "detections_per_img=40"),
    );
    change(config);
    writeFileSync(path, JSON.stringify(config));
    const about = join(folder, "configs", "metadata.json");
    const metadata = JSON.parse(readFileSync(about, "utf8")) as Fields;
    t.equal(metadata["monai_version"], "1.4.0", "as the zoo has it");
    writeFileSync(about, JSON.stringify({ ...metadata, monai_version: trained }));
    try {
      const { data } = await modelsImport(folder, engine(), { to: join(folder, "to") });
      return { refused: "", manifest: (data as { manifest: Manifest }).manifest };
    } catch (error) {
      return { refused: String(error), manifest: undefined };
    }
  };
  // test/results/kinds/volume-detection.test.ts holds this manifest against MONAI
  const level = (number: number) => ({
    scores: `scores_${number}`,
    boxes: `boxes_${number}`,
    anchors: [
      [6, 8, 4],
      [8, 6, 5],
      [10, 10, 6],
    ].map((sides) => sides.map((side) => side * (number + 1))),
  });
  const { manifest, refused } = await drafted();
  t.equal(refused, "");
  t.match(manifest, {
    inputs: [
      {
        orientation: "RAS",
        size: { kind: "source" },
        clip: [-1024, 300],
        background: -1024,
        resampling: {
          grid: "first_voxel",
          spacing_mm: [0.703125, 0.703125, 1.25],
          order: 1,
          multiple_of: [4, 4, 2],
          clip: "after",
        },
      },
    ],
    outputs: [
      {
        kind: "volume_detection",
        boxes: {
          kind: "anchors",
          levels: [level(0), level(1)],
          places: "first_voxel",
          coder: [1, 1, 1, 1, 1, 1],
        },
        scores: { activation: "sigmoid" },
        counted_from: "centres",
        candidates: { least_score: 0.55, least_size: 1, most: 60 },
        nms: { kind: "greedy", iou: 0.22, per_class: true },
        max_boxes: 40,
        labels: [
          { label: null, threshold: null },
          { label: null, threshold: null },
        ],
      },
    ],
  });
  t.notOk(manifest?.tiling, "each volume is given whole");
  for (const version of ["1.6.0", "2.0"]) {
    const later = (await drafted(undefined, version)).manifest;
    t.match(later, { outputs: [{ boxes: { places: "middle" } }] }, version);
  }
  for (const version of ["", "nightly"])
    t.match((await drafted(undefined, version)).refused, /monai_version: Expected the version/);
  for (const [change, named] of [
    [
      (config) => ((config["detector_ops"] as string[])[1] = "$@detector.set_box_coder(3)"),
      /line 79: detector_ops: This call is not known: "\$@detector\.set_box_coder\(3\)"|detector_ops: This call/,
    ],
    [select("0.02, 1000, nms_thresh=0.22"), /detector_ops: This argument is not known: 0\.02/],
    [
      select("score_thresh=0.02, apply_sigmoid=False"),
      /detector_ops: This argument is not known: apply_sigmoid=False/,
    ],
    [
      (config) => (config["detector_ops"] as string[]).push(`$${SELECT}(nms_thresh=0.3)`),
      /detector_ops: Expected one call of set_box_selector_parameters/,
    ],
    [
      (config) => ((config["anchor_generator"] as Fields)["indexing"] = "xy"),
      /anchor_generator\.indexing: Expected MONAI's default, found "xy"/,
    ],
    [
      (config) => ((config["detector"] as Fields)["box_overlap_metric"] = "$box_giou"),
      /detector\.box_overlap_metric: Expected MONAI's default/,
    ],
    [
      (config) => ((config["inferer"] as Fields)["_target_"] = "scripts.other.Inferer"),
      /inferer: It is not known, found "scripts\.other\.Inferer"/,
    ],
    [
      (config) => (config["num_classes"] = 3),
      /the graph: Expected 2 maps of 9 scores and 2 of 18 numbers of boxes, .* found /,
    ],
    [
      (config) => ((config["detector"] as Fields)["size_divisible"] = "$[16, 16, 8]"),
      /detector\.size_divisible: Expected numbers of three axes/,
    ],
  ] as [(config: Fields) => void, RegExp][])
    t.match((await drafted(change)).refused, named);
});

t.test("a configuration that cannot be read as what it is called", (t) => {
  const reading = (file: string, text: string) => () => new BundleConfig(file, text);
  t.throws(reading("inference.json", '{"a": 1,\n"a": 2}'), { message: /line 2/ });
  t.throws(reading("inference.json", "[1]"), { message: /with named parts/ });
  t.throws(reading("inference.yaml", "a: &x 1\nb: *x\n"), { message: /no alias .*\*x/ });
  t.throws(reading("inference.yaml", "a: !!python/name:os.system\n"), {
    message: /cannot be read as that/,
  });
  const { root } = new BundleConfig("inference.yaml", "__proto__: 1\nb: yes\n");
  t.strictSame([root["__proto__"], root["b"]], [1, true]);
  // 30 references to each of the next: 30 to the ninth in all
  const lists = Array.from({ length: 9 }, (_, i) => [
    `l${i}`,
    Array.from({ length: 30 }, () => `@l${i + 1}`),
  ]);
  const multiplying = JSON.stringify({ ...Object.fromEntries(lists), l9: 1, few: ["@l8", "@l9"] });
  const config = new BundleConfig("inference.json", multiplying);
  t.throws(() => config.resolve("@l0"), { code: "bad_request", message: /stand for at most/ });
  t.strictSame(config.resolve("@few"), [Array.from({ length: 30 }, () => 1), 1]);
  t.end();
});

t.test("plans of nnU-Net", { skip: needs(ADDON) }, async (t) => {
  interface Plans {
    configurations: Record<string, Fields>;
    [name: string]: unknown;
  }
  const planned = async (
    t: Test,
    change: (configuration: Fields, plans: Plans) => void,
    more: { labels?: string; configuration?: string } = {},
  ) => {
    const folder = join(t.testdir(), "nnunet");
    cpSync(join(VOLUMES, "nnunet-anisotropic"), folder, { recursive: true });
    const plans = JSON.parse(readFileSync(join(folder, "plans.json"), "utf8")) as Plans;
    change(plans.configurations["3d_fullres"]!, plans);
    writeFileSync(join(folder, "plans.json"), JSON.stringify(plans));
    const { labels, ...choices } = more;
    if (labels !== undefined)
      writeFileSync(
        join(folder, "dataset.json"),
        `{"channel_names": {"0": "CT"}, "labels": ${labels}, "regions_class_order": [1]}`,
      );
    const done = modelsImport(folder, engine(), {
      orientation: "SPL",
      mirror: "none",
      ...choices,
    });
    return done.then(
      ({ data, text }) => ({
        refused: "",
        text,
        manifest: (data as { manifest: Manifest }).manifest,
      }),
      (error: unknown) => ({ refused: String(error), text: "", manifest: undefined }),
    );
  };
  const both = (more: Fields) => (configuration: Fields) => {
    for (const part of ["data", "probabilities"])
      Object.assign(configuration[`resampling_fn_${part}_kwargs`] as Fields, more);
  };
  const other = await planned(t, both({ separate_z_anisotropy_threshold: 5 }));
  t.match(other.manifest, { inputs: [{ resampling: { separate_above: 5 } }] });
  const never = await planned(t, (configuration) => {
    for (const part of ["data", "probabilities"])
      delete (configuration[`resampling_fn_${part}_kwargs`] as Fields)["force_separate_z"];
  });
  t.notOk(
    (never.manifest!.inputs[0] as { resampling: Fields }).resampling["separate_above"],
    "slices are never apart where the plans do not say it: the function's own default",
  );
  const part = await planned(t, (_, p: Plans) => {
    p["dataset_name"] = "Dataset291_TotalSegmentator_part1_organs_1559subj";
  });
  t.match(part.text, /dataset_name: This is nnU-Net alone\. TotalSegmentator resamples/);
  t.notMatch(other.text, /TotalSegmentator/);
  for (const [change, named] of [
    [both({ memefficient: true }), /resampling_fn_data_kwargs.*"memefficient"/],
    [(c: Fields) => (c["denoise"] = 1), /3d_fullres\.denoise: This field is not known/],
    [
      (_: Fields, p: Plans) => (p["image_reader_writer"] = "MyIO"),
      /image_reader_writer: MyIO is not known/,
    ],
    [(_: Fields, p: Plans) => (p["label_manager"] = "Mine"), /label_manager: Mine is not known/],
    [
      (_: Fields, p: Plans) => (p["transpose_backward"] = [2, 0, 1]),
      /transpose_backward: Expected the way back/,
    ],
    [
      (c: Fields) => (c["spacing"] = [1, 1, 4]),
      /plans\.json: spacing: The network's voxels are 1, 1, 4 mm, coarse within its slices/,
    ],
  ] as [(configuration: Fields, plans: Plans) => void, RegExp][])
    t.match((await planned(t, change)).refused, named);

  await t.test("where no configuration can be read, nothing else is said of it", async (t) => {
    const parent = (of: unknown) => (configuration: Fields, plans: Plans) => {
      plans.configurations["mine"] = { inherits_from: of };
      configuration["inherits_from"] = "mine";
    };
    for (const [change, configuration, named] of [
      [
        parent("3d_fullres"),
        "3d_fullres",
        'configurations.mine.inherits_from: "3d_fullres" inherits from "mine" itself',
      ],
      [
        parent("none"),
        "3d_fullres",
        'configurations.mine.inherits_from: Expected one of 3d_fullres, mine, found "none"',
      ],
      [parent("none"), "other", 'configurations: No "other": choose one of 3d_fullres, mine'],
    ] as const) {
      const { refused } = await planned(t, change, { configuration });
      t.equal(refused.split("plans.json: ").length, 2, "one mistake");
      t.match(refused, `plans.json: ${named}`);
    }
  });

  await t.test("labels by names that stand once, and an order for each region", async (t) => {
    const nothing = () => undefined;
    for (const [labels, named] of [
      ['{"background": 0, "a": 1, "a": 2}', /each name once in dataset\.json, found "a" again at/],
      ['{"background": 0, "__proto__": 1, "a": 2}', /no "__proto__" in dataset\.json, found it at/],
      [
        '{"background": 0, "a": [1, 2], "b": [2]}',
        /dataset\.json: regions_class_order: Expected 2 numbers, one for each region, found 1/,
      ],
    ] as const)
      t.match((await planned(t, nothing, { labels })).refused, named);
  });

  await t.test("a spread of 0 divides nothing", async (t) => {
    const { refused } = await planned(t, (_, plans) => {
      const [first] = Object.values(
        plans["foreground_intensity_properties_per_channel"] as Record<string, Fields>,
      );
      first!["std"] = 0;
    });
    t.match(refused, /per_channel\.0\.std: Expected more than 0, found 0/);
  });

  const NUMBERED = resolve("../shared/cases/2026-11-28/models/nnunet-regions-numeric-names/e");
  await t.test("labels are in the order of the text", { skip: needs(NUMBERED) }, async (t) => {
    let count = 0;
    const labelled = async (labels: string) => {
      const folder = join(t.testdirName, `e${++count}`);
      cpSync(NUMBERED, folder, { recursive: true });
      writeFileSync(
        join(folder, "dataset.json"),
        `{"channel_names": {"0": "CT"}, "labels": ${labels}, "regions_class_order": [1, 2]}`,
      );
      const { data } = await modelsImport(folder, engine(), {
        configuration: "3d_fullres",
        orientation: "SPL",
        mirror: "none",
      });
      const { manifest } = data as { manifest: Manifest };
      const [output] = manifest.outputs;
      if (output?.kind !== "segmentation") throw new Error("Expected a segmentation");
      return { folder, activation: output.activation, names: output.labels.map((l) => l.label) };
    };
    const image = await readFolder(t, folderOf(t, seriesFiles("nnunet-3d", { modality: "CT" })));
    const { folder, names } = await labelled('{"background": 0, "whole": [1, 2], "2": [2]}');
    t.strictSame(names, ["whole", "2"]);
    // The graph's first channel is everywhere, and its second one nowhere.
    const { text } = await modelsTry(folder, image, { engine: engine(), providers: ["cpu"] });
    t.match(text, /pixels of each label [1-9]\d+, 0$/m);
    for (const [labels, wanted] of [
      ['{"background": 0, "3": [1, 2], "2": [2]}', ["3", "2"]],
      ['{"b\\u00e4ckground": 0, "10": [1, 2], "007": [2], "ignore": 3}', ["10", "007"]],
      ['{"2": [2], "background": 0, "1": [1, 2]}', ["2", "1"]],
    ] as const)
      t.strictSame((await labelled(labels)).names, wanted);
  });

  await t.test("readers that turn images need no orientation, and take no other", async (t) => {
    const folder = join(t.testdir(), "nnunet");
    cpSync(join(VOLUMES, "nnunet-anisotropic"), folder, { recursive: true });
    const plans = JSON.parse(readFileSync(join(folder, "plans.json"), "utf8")) as Plans;
    const exported = { configuration: "3d_fullres", mirror: "none", orientation: "SPL" };
    writeFileSync(join(folder, "export.json"), JSON.stringify(exported));
    for (const reader of ["NibabelIOWithReorient", "SimpleITKIOWithReorient"]) {
      const changed = { ...plans, image_reader_writer: reader };
      writeFileSync(join(folder, "plans.json"), JSON.stringify(changed));
      const to = join(folder, reader.toLowerCase());
      const { data } = await modelsImport(folder, engine(), { to });
      const { transpose_forward: axes } = plans as unknown as { transpose_forward: number[] };
      const orientation = axes.map((axis) => "SAR"[axis]).join("");
      t.match(data, { gaps: { length: 0 }, manifest: { inputs: [{ orientation }] } }, reader);
      await t.rejects(modelsImport(folder, engine(), { to: `${to}-2`, orientation: "SPL" }), {
        message: /--orientation: \w+ turns images to SAR: expected no other, found SPL/,
      });
    }
  });

  await t.test("pictures are models of single images", { skip: needs(CASES) }, async (t) => {
    const to = join(t.testdir(), "pictures");
    mkdirSync(to);
    const { data } = await modelsImport(join(CASES, "nnunet-2d-png"), engine(), {
      to,
      mirror: "all",
    });
    t.match(data, {
      gaps: { length: 0 },
      manifest: {
        accepts: { formats: ["png"], photometric: ["MONOCHROME2"], dimensions: "2d" },
        inputs: [
          {
            layout: "NCHW",
            values: { kind: "stored" },
            crop: "nonzero",
            normalisation: { kind: "z_score", over: "image" },
          },
        ],
        tiling: { window: [512, 512], mirror: ["height", "width"] },
      },
    });
    const { text, exitCode } = await modelsCheck(to, { engine: engine(), providers: ["cpu"] });
    t.equal(exitCode, 0, text);
  });
});
