import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
import type { Image } from "../../src/images/image.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsInit } from "../../src/commands/models/init.js";
import { modelsList } from "../../src/commands/models/list.js";
import { modelsTry } from "../../src/commands/models/try.js";
import { int, onnxModel } from "../../scripts/lib/onnx-model.js";
import { decodeNpy, encodeNpy } from "../../src/engine/npy.js";
import { toNumbers } from "../../src/models/compare.js";
import { tissueOf } from "../../scripts/build-ct-tissue.js";
import { ADDON, needs } from "../support/needs.js";
import { engine } from "../support/real-engine.js";
import { imageOf } from "../support/images.js";
import { same } from "../support/model-parts.js";
import { graphOf, manifestOf, writeTestModel } from "../support/test-models.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { modelsCodes } from "../../src/models/codes.js";
import { copyModel, shipped, shippedModels } from "../support/manifests.js";

const ctTissue = join(shippedModels, "ct-tissue");

t.test("list", async (t) => {
  const { text, exitCode } = await modelsList(shippedModels);
  t.match(
    text,
    /^MODEL .*\nburned-in-text +1\.0\.0 +active +final +[0-9a-f]{12} +in order\nct-tissue /,
  );
  t.equal(exitCode, 0);
  const broken = await modelsList(t.testdir({ x: { "model.json": "{}" } }));
  t.match(broken.text, /x .*mistakes: radserve models check/);
  t.equal(broken.exitCode, 1);
});

t.test("commands that run a model", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };

  await t.test("check", async (t) => {
    for (const name of ["ct-tissue", "burned-in-text"]) {
      const { text, exitCode } = await modelsCheck(join(shippedModels, name), options);
      t.equal(text, `${name} 1.0.0: in order\n  It loads and its canary passes.`);
      t.equal(exitCode, 0);
    }
    const folder = copyModel(t.testdir(), "ct-tissue", "wrong", (m) => {
      m.inputs[0]!.tensor = "image";
      imageInputs(m)[0]!.channels = "rgb";
      Object.assign(m.outputs[0]!, { tensor: "tissues" });
      m.files.push({ path: "gone.data", sha256: "ab".repeat(32) });
    });
    const { text, exitCode } = await modelsCheck(folder, options);
    t.equal(exitCode, 1);
    t.match(text, /^wrong: 3 mistakes\n/);
    t.match(text, /gone\.data: The file cannot be read/);
    t.match(
      text,
      /inputs\[0\]\.tensor: The graph has no numeric tensor "image"; did you mean "hu"/,
    );
    t.match(
      text,
      /outputs\[0\]\.tensor: The graph has no numeric tensor "tissues"; did you mean "tissue"/,
    );
  });

  await t.test("the graph's sides and types are compared", async (t) => {
    const folder = copyModel(t.testdir(), "ct-tissue", "wrong", (m) => {
      Object.assign(m.inputs[0]!, { channels: "rgb", dtype: "uint8", layout: "NHWC" });
    });
    const { text } = await modelsCheck(folder, options);
    t.match(text, /inputs\[0\]\.dtype: Expected float32, found uint8/);
    t.match(text, /the graph's "hu" is float32 \[batch, 1, rows, columns\]/);
    const half = copyModel(t.testdir({ half: {} }), "ct-tissue", "half", (m) => {
      m.execution.precision = "float16";
    });
    t.match(
      (await modelsCheck(half, options)).text,
      /execution\.precision: float16 means that the graph itself is/,
    );
  });

  await t.test(
    "init writes what the graph says, check explains the rest, and filling it in is enough",
    async (t) => {
      const folder = join(t.testdir({ "new-model": {} }), "new-model");
      cpSync(join(ctTissue, "model.onnx"), join(folder, "model.onnx"));
      const { text, exitCode, data } = await modelsInit(join(folder, "model.onnx"), engine());
      const { $schema } = (data as { manifest: { $schema: string } }).manifest;
      t.ok(existsSync(join(folder, $schema)), "an editor finds the schema");
      t.equal(exitCode, 0);
      t.match(text, /input {3}hu: float32 \[batch, 1, rows, columns\]/);
      const missing = (data as { missing: { path: string }[] }).missing.map((p) => p.path);
      t.strictSame(missing.slice(0, 2), ["version", "manufacturer"]);
      for (const path of [
        "inputs[0].values.kind",
        "inputs[0].normalisation.kind",
        "outputs[0].kind",
        "accepts.formats",
      ])
        t.ok(missing.includes(path), path);
      t.notOk(missing.includes("inputs[0].layout"), "the shape says it");
      const checked = await modelsCheck(folder, options);
      t.equal(checked.exitCode, 1);
      for (const path of missing) t.match(checked.text, path);

      const draft = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as {
        inputs: object[];
      };
      const full = shipped("ct-tissue");
      const { version, manufacturer, description, intended_use, accepts, outputs } = full;
      const filled = {
        ...draft,
        version,
        manufacturer,
        description,
        intended_use,
        accepts,
        outputs,
      };
      filled.inputs = [{ ...full.inputs[0], ...onlyFilled(draft.inputs[0]!) }];
      writeFileSync(join(folder, "model.json"), JSON.stringify(filled));
      t.match(await modelsCheck(folder, options), { exitCode: 0, text: /in order\n.*no canary/ });
      await t.rejects(modelsInit(join(folder, "model.onnx"), engine()), {
        code: "bad_request",
        message: /overwritten/,
      });
    },
  );

  await t.test(
    "init takes what Ultralytics' exporter wrote beside the graph, and leaves the rest open",
    async (t) => {
      const names = `{0: 'Nodule', 1: "Baker's cyst", 2: 'it\\'s'}`;
      const exported = { author: "Ultralytics", version: "8.3.0", imgsz: "[64, 96]", names };
      const zeros = (name: string, shape: readonly number[]) => ({
        name: `${name}_value`,
        dtype: "float32" as const,
        shape,
        data: new Array<number>(shape.reduce((a, b) => a * b, 1)).fill(0),
      });
      // A graph whose output has sides that nobody knows before it runs
      const dynamic = {
        inputs: [{ name: "images", dtype: "float32" as const, shape: ["n", 3, "h", "w"] }],
        outputs: [{ name: "output0", dtype: "float32" as const, shape: ["n", "h", "w"] }],
        initializers: [{ name: "first", dtype: "int64" as const, shape: [], data: [0] }],
        nodes: [
          {
            op: "Gather",
            inputs: ["images", "first"],
            outputs: ["output0"],
            attributes: { axis: int(1) },
          },
        ],
      };
      const drafted = async (
        name: string,
        metadata: Record<string, string>,
        shapes: number[][],
      ) => {
        const outputs = shapes.map((shape, i) => ({
          name: `output${i}`,
          dtype: "float32" as const,
          shape,
        }));
        const path = join(t.testdir({ [name]: {} }), name, "model.onnx");
        const fixed = {
          inputs: [{ name: "images", dtype: "float32" as const, shape: [1, 3, 64, 96] }],
          outputs,
          initializers: outputs.map(({ name, shape }) => zeros(name, shape)),
          nodes: outputs.map((output) => ({
            op: "Identity",
            inputs: [`${output.name}_value`],
            outputs: [output.name],
          })),
        };
        const graph = onnxModel({ name, metadata, ...(shapes.length === 0 ? dynamic : fixed) });
        writeFileSync(path, graph);
        return (await modelsInit(path, engine())) as {
          text: string;
          data: {
            manifest: Pick<Manifest, "inputs" | "outputs">;
            source: string[];
            missing: { path: string }[];
          };
        };
      };
      const detect = await drafted("detect", { ...exported, task: "detect" }, [[1, 7, 10]]);
      t.match(detect.data.manifest.inputs, [
        {
          size: { kind: "fixed", height: 64, width: 96 },
          fit: "letterbox",
          interpolation: "linear",
          antialias: false,
          channels: "rgb",
          background: null,
        },
      ]);
      t.match(detect.data.manifest.outputs, [
        {
          kind: "detection_table",
          axes: "columns_boxes",
          columns: ["cx", "cy", "w", "h", "class_scores"],
          nms: { kind: "greedy" },
          labels: [
            { label: "Nodule", code: { value: "27925004" }, threshold: null },
            { label: "Baker's cyst", code: null, threshold: null },
            { label: "it's", code: null, threshold: null },
          ],
        },
      ]);
      t.match(
        detect.text,
        /Taken from what lies beside the graph, or in it:\n.*Ultralytics 8\.3\.0 .*task detect/,
      );
      t.match(detect.text, /outputs\[0\]\.labels\[0\]\.threshold: .* \(and 2 more like it\)\n/);
      const ended = await drafted("ended", { ...exported, task: "detect" }, [[1, 300, 6]]);
      t.match(ended.data.manifest.outputs, [
        {
          axes: "boxes_columns",
          columns: ["x1", "y1", "x2", "y2", "score", "class"],
          classes: { first: 0 },
          nms: { kind: "none" },
        },
      ]);
      const segment = await drafted("segment", { ...exported, task: "segment" }, [
        [1, 15, 10],
        [1, 8, 16, 24],
      ]);
      t.match(segment.data.manifest.outputs, [
        {
          mask_coefficients: 8,
          columns: ["cx", "cy", "w", "h", "class_scores", "mask_coefficients"],
        },
        { kind: "segmentation", tensor: "output1", activation: "prototypes", boxes: "output0" },
      ]);
      const turned = await drafted("obb", { ...exported, task: "obb" }, [[1, 8, 10]]);
      t.match(turned.data.manifest.outputs, [
        {
          columns: ["cx", "cy", "w", "h", "class_scores", "angle"],
          angle: "radians_clockwise",
          nms: { kind: "fast", overlap: "probabilistic" },
        },
      ]);
      const chosen = await drafted("obb-ended", { ...exported, task: "obb" }, [[1, 300, 7]]);
      t.match(chosen.data.manifest.outputs, [
        { columns: ["cx", "cy", "w", "h", "score", "class", "angle"], nms: { kind: "none" } },
      ]);
      const classify = await drafted("classify", { ...exported, task: "classify" }, [[1, 3]]);
      t.match(classify.data.manifest, {
        inputs: [{ fit: "stretch", interpolation: "linear", antialias: undefined }],
        outputs: [
          { kind: "classification", activation: "none", labels: [{ label: "Nodule" }, {}, {}] },
        ],
      });
      // With dynamic shapes the exporter says which table it is
      for (const [name, more, expected] of [
        ["dynamic", { end2end: "False" }, { axes: "columns_boxes" }],
        ["dynamic-ended", { end2end: "True" }, { axes: "boxes_columns" }],
        ["dynamic-nms", { end2end: "False", args: "{'nms': True}" }, { axes: "boxes_columns" }],
        ["dynamic-old", {}, { kind: null, labels: [{ label: "Nodule" }, {}, {}] }],
      ] as const) {
        const one = await drafted(name, { ...exported, ...more, task: "detect" }, []);
        t.match(one.data.manifest.outputs, [expected], name);
      }
      // RT-DETR says detect, too, and gives other boxes of pictures that lose their proportions
      const [ofOne, ofAll] = [
        ["cx", "cy", "w", "h", "score", "class"],
        ["cx", "cy", "w", "h", "class_scores"],
      ];
      for (const [name, more, shape, expected] of [
        ["rt-detr", { head: "RTDETRDecoder" }, [1, 300, 6], { columns: ofOne }],
        [
          "rt-detr-old",
          { description: "Ultralytics rtdetr-l model " },
          [1, 300, 7],
          { columns: ofAll },
        ],
        [
          "rt-detr-two",
          { head: "RTDETRDecoder", names: "{0: 'Nodule', 1: 'Mass'}" },
          [1, 300, 6],
          { kind: null },
        ],
      ] as const) {
        const one = await drafted(name, { ...exported, ...more, task: "detect" }, [[...shape]]);
        const whole = "columns" in expected ? { normalised: true, nms: { kind: "none" } } : {};
        t.match(one.data.manifest.outputs, [{ ...expected, ...whole }], name);
        t.match(one.data.manifest.inputs, [{ fit: "stretch", antialias: false }], name);
      }
      // What is open is what no exporter knows: codes, thresholds, and nothing of how tensors are
      // read
      for (const { data } of [detect, ended, segment, turned, chosen, classify]) {
        const asked = data.missing.map(({ path }) => path);
        t.strictSame(
          asked.filter((path) => path.startsWith("outputs") && !/\.labels\[\d\]\./.test(path)),
          [],
        );
      }
      const told: Record<string, RegExp> = {
        "other-shape": /with 3 labels the task detect does not give "output0" float32 \[1, 9, 10\]/,
        "no-names": /its names do not count from 0/,
        "other-task": /the task "pose" is not one of classify, detect, segment, obb/,
      };
      for (const [name, metadata, shapes] of [
        ["other-author", { ...exported, author: "Somebody", task: "detect" }, [[1, 7, 10]]],
        ["other-shape", { ...exported, task: "detect" }, [[1, 9, 10]]],
        ["no-names", { ...exported, names: "{1: 'Nodule'}", task: "detect" }, [[1, 5, 10]]],
        ["other-task", { ...exported, task: "pose" }, [[1, 7, 10]]],
      ] as const) {
        const open = await drafted(
          name,
          metadata,
          shapes.map((shape) => [...shape]),
        );
        t.match(open.data.manifest, { outputs: [{ kind: null }] }, name);
        t.match(open.data.source.join("\n"), told[name] ?? /^$/, name);
        if (name === "other-shape")
          t.match(open.data.manifest, {
            inputs: [{ fit: "letterbox", size: { height: 64 } }],
            outputs: [{ labels: [{ label: "Nodule" }, {}, {}] }],
          });
      }
    },
  );

  await t.test("init reads what Transformers and timm write beside a graph", async (t) => {
    const transformers = {
      architectures: ["ViTForImageClassification"],
      _name_or_path: "our/vit",
      id2label: { 0: "Nodule", 1: "Spot", 2: "none of them" },
    };
    const vit = {
      image_processor_type: "ViTImageProcessorFast",
      do_resize: true,
      size: { height: 224, width: 224 },
      resample: 2,
      do_rescale: true,
      rescale_factor: 0.00392156862745098,
      do_normalize: true,
      image_mean: [0.5, 0.4, 0.3],
      image_std: [0.5, 0.5, 0.5],
    };
    const timm = {
      architecture: "convnext_tiny",
      label_names: ["a", "b", "c"],
      pretrained_cfg: {
        tag: "in12k",
        input_size: [3, 224, 224],
        interpolation: "bicubic",
        crop_pct: 0.95,
        crop_mode: "center",
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
      },
    };
    const ends = { score: 3, sides: ["h", "w"] as (string | number)[] };
    const drafted = async (
      name: string,
      files: Record<string, object>,
      { score, sides } = ends,
    ) => {
      const texts = Object.entries(files).map(([file, content]) => [file, JSON.stringify(content)]);
      const place = t.testdir({ [name]: Object.fromEntries(texts) as Record<string, string> });
      const path = join(place, name, "model.onnx");
      const scores = { name: "logits", dtype: "float32" as const, shape: [1, score] };
      const graph = onnxModel({
        name,
        inputs: [{ name: "pixel_values", dtype: "float32", shape: ["n", "c", ...sides] }],
        outputs: [scores],
        initializers: [{ ...scores, name: "zeros", data: new Array<number>(score).fill(0) }],
        nodes: [{ op: "Identity", inputs: ["zeros"], outputs: ["logits"] }],
      });
      writeFileSync(path, graph);
      return modelsInit(path, engine()) as Promise<{
        text: string;
        data: { manifest: Manifest; source: string[]; missing: { path: string }[] };
      }>;
    };
    const { data } = await drafted("vit", {
      "preprocessor_config.json": vit,
      "config.json": transformers,
    });
    t.strictSame(
      data.missing.map(({ path }) => path),
      ["version", "manufacturer", "intended_use", "accepts.formats", "accepts.modality"],
    );
    t.match(data.manifest, {
      description: "ViTForImageClassification our/vit",
      inputs: [
        {
          layout: "NCHW",
          size: { kind: "fixed", height: 224, width: 224 },
          fit: "stretch",
          interpolation: "linear",
          values: { kind: "voi", if_absent: "full_range" },
          channels: "rgb",
          normalisation: { kind: "mean_std", mean: [0.5, 0.4, 0.3], std: [0.5, 0.5, 0.5] },
        },
      ],
      outputs: [
        {
          kind: "classification",
          activation: "softmax",
          decision: "highest",
          labels: [{ label: "Nodule", code: { value: "27925004" } }, { label: "Spot" }, {}],
        },
      ],
    });
    const cut = await drafted("timm", { "config.json": timm });
    t.match(cut.data.manifest, {
      description: "convnext_tiny in12k",
      inputs: [
        {
          fit: "crop",
          placement: {
            kind: "resize_then_crop",
            shortest_edge: 235,
            rounding: "down",
            offset: "half_even",
          },
          interpolation: "cubic",
        },
      ],
      outputs: [{ labels: [{ label: "a" }, { label: "b" }, { label: "c" }] }],
    });
    const of = (image_processor_type: string, more: object) => ({
      "preprocessor_config.json": { ...vit, image_processor_type, ...more },
    });
    const placed: [name: string, files: Record<string, object>, expected: object][] = [
      [
        "clip",
        of("CLIPImageProcessor", { size: 256, crop_size: 224, resample: 3 }),
        { fit: "crop", placement: { shortest_edge: 256, offset: "half" }, interpolation: "cubic" },
      ],
      [
        "deit",
        of("DeiTFeatureExtractor", { size: 256, crop_size: { height: 224, width: 224 } }),
        { fit: "crop", placement: { height: 256, width: 256 } },
      ],
      [
        "convnext",
        of("ConvNextImageProcessor", { size: { shortest_edge: 224 }, crop_pct: 0.875 }),
        { fit: "crop", placement: { shortest_edge: 256 } },
      ],
      [
        "large",
        of("ConvNextImageProcessor", { size: { shortest_edge: 384 } }),
        { fit: "stretch", size: { height: 384 } },
      ],
      [
        "values",
        of("ViTImageProcessor", { do_rescale: false, image_mean: [127.5], image_std: [51] }),
        { normalisation: { kind: "mean_std", mean: [0.5], std: [0.2] } },
      ],
      [
        "plain",
        of("ViTImageProcessor", { do_normalize: false }),
        { normalisation: { kind: "none" } },
      ],
      [
        "nulls",
        of("ViTImageProcessorFast", {
          crop_size: null,
          do_center_crop: null,
          do_pad: null,
          pad_size: null,
          crop_pct: null,
          do_normalize: null,
          image_mean: null,
          image_std: null,
          feature_extractor_type: null,
        }),
        { fit: "stretch", normalisation: { kind: "none" } },
      ],
      [
        "not-cut",
        of("CLIPImageProcessorFast", { do_center_crop: null, crop_size: null }),
        { fit: "stretch", size: { height: 224 } },
      ],
      [
        "unsized",
        of("ViTImageProcessorFast", { do_resize: null, size: null, resample: null }),
        { fit: null, normalisation: { kind: "mean_std" } },
      ],
      [
        "timm-nulls",
        {
          "config.json": {
            ...timm,
            id2label: null,
            pretrained_cfg: {
              ...timm.pretrained_cfg,
              crop_mode: null,
              tag: null,
              num_classes: null,
              label_names: null,
            },
          },
        },
        { fit: "crop", interpolation: "cubic" },
      ],
      ["box", of("ViTImageProcessor", { resample: 4 }), { fit: "stretch", interpolation: null }],
      [
        "ratio",
        of("ViTImageProcessor", { size: { shortest_edge: 800, longest_edge: 1333 } }),
        { fit: null, normalisation: { kind: "mean_std" } },
      ],
      ["other", of("DonutImageProcessor", {}), { fit: null, values: { kind: null } }],
      [
        "rt-detr",
        of("RTDetrImageProcessor", { size: { height: 224, width: 224 }, do_normalize: false }),
        { fit: "stretch", normalisation: { kind: "none" } },
      ],
    ];
    for (const [name, files, expected] of placed) {
      const one = await drafted(name, files);
      t.match(one.data.manifest, { inputs: [expected] }, name);
    }
    const detr = of("DetrImageProcessor", {
      size: { shortest_edge: 800, longest_edge: 1333 },
      do_pad: true,
    });
    const edges = { kind: "edges", shortest: 800, longest: 1333, rounding: "transformers" };
    const bounded = await drafted("bounded", detr);
    t.match(bounded.data.manifest, { inputs: [{ fit: "letterbox", size: edges }] });
    const still = await drafted("still", detr, { score: 3, sides: [224, 224] });
    t.match(still.data.manifest, { inputs: [{ fit: null, size: { kind: null } }] });
    t.match(still.data.source, [/each has sides of its own.*224 x 224.*dynamic/]);
    const several = await drafted("several", {
      "config.json": { ...transformers, problem_type: "multi_label_classification" },
    });
    t.match(several.data.manifest.outputs, [
      { activation: "sigmoid", labels: [{ threshold: null }] },
    ]);
    const measured = await drafted("measured", {
      "config.json": { ...transformers, problem_type: "regression" },
    });
    t.match(measured.data.manifest.outputs, [{ kind: "regression", values: null }]);
    t.match(measured.data.source, [/config\.json calls it a regression/]);
    const unfit = await drafted(
      "unfit",
      { "preprocessor_config.json": vit, "config.json": transformers },
      { score: 4, sides: [256, 256] },
    );
    t.match(unfit.data.source, [
      /Nothing was taken of how pictures are prepared: they become 224 x 224/,
      /3 labels, and the graph's "logits" has 4 scores/,
    ]);
    t.match(unfit.data.manifest, { inputs: [{ fit: null }], outputs: [{ kind: null }] });
    await t.rejects(drafted("broken", { "config.json": { id2label: [1] } }), {
      code: "bad_request",
      message: /Transformers or timm write in .*config\.json/,
    });
  });

  await t.test("init --labels alone gives the only output its labels", async (t) => {
    const place = t.testdir({ mine: {}, "labels.txt": "Nodule\nSpot, 0.4\n" });
    const labels = join(place, "labels.txt");
    const graph = (shape: number[], count = 1) => {
      rmSync(join(place, "mine", "model.json"), { force: true });
      const outputs = Array.from({ length: count }, (_, i) => ({
        name: `y${i}`,
        dtype: "float32" as const,
        shape,
      }));
      writeFileSync(
        join(place, "mine", "net.onnx"),
        onnxModel({
          name: "net",
          inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 64, 64] }],
          outputs,
          initializers: outputs.map((output) => ({
            ...output,
            name: `${output.name}_value`,
            data: new Array<number>(shape.reduce((a, b) => a * b, 1)).fill(0),
          })),
          nodes: outputs.map(({ name }) => ({
            op: "Identity",
            inputs: [`${name}_value`],
            outputs: [name],
          })),
        }),
      );
      return modelsInit(join(place, "mine", "net.onnx"), engine(), { labels });
    };
    t.match((await graph([1, 2])).data, {
      manifest: {
        outputs: [
          {
            kind: "classification",
            activation: null,
            labels: [{ label: "Nodule", code: { value: "27925004" } }, { threshold: 0.4 }],
          },
        ],
      },
      source: [/A score for each label in "y0"/],
    });
    t.match((await graph([1, 2, 64, 64])).data, {
      manifest: { outputs: [{ kind: null, labels: [{ label: "Nodule" }, { label: "Spot" }] }] },
    });
    await t.rejects(graph([1, 3]), {
      message: /a label for each of the 3 scores of "y0", found 2/,
    });
    await t.rejects(graph([1, 2], 2), {
      message: /Expected one output for --labels alone, found 2/,
    });
  });

  await t.test("init --like keeps which side of pictures comes first", async (t) => {
    const place = t.testdir({ models: {}, mine: {} });
    const models = join(place, "models");
    const graph = join(place, "mine", "net.onnx");
    const shape = ["n", 3, 40, 24];
    const picture = {
      ...same("net"),
      inputs: [{ name: "x", dtype: "float32", shape }],
      outputs: [{ name: "y", dtype: "float32", shape }],
    } as const;
    writeFileSync(graph, onnxModel(picture));
    const size = { kind: "fixed", height: 24, width: 40 };
    writeTestModel(models, "segmenter");
    const like = join(models, "test-segmenter", "model.json");
    const manifest = JSON.parse(readFileSync(like, "utf8")) as Manifest;
    Object.assign(manifest.inputs[0]!, { layout: "NCWH", size, channels: "rgb" });
    writeFileSync(like, JSON.stringify(manifest));
    await modelsInit(graph, engine(), { like: "test-segmenter", models });
    const draft = JSON.parse(readFileSync(join(place, "mine", "model.json"), "utf8")) as Manifest;
    t.match(draft.inputs, [{ layout: "NCWH", size }]);
  });

  await t.test("init --like takes over how a model works, and no more", async (t) => {
    const place = t.testdir({
      models: {},
      mine: {},
      "labels.txt": "# as trained\nNodule, 0.4\nbone , 0.25\nSpot\n",
    });
    const models = join(place, "models");
    writeTestModel(models, "columns");
    const graph = join(place, "mine", "net.onnx");
    writeFileSync(graph, graphOf("columns"));
    const labels = join(place, "labels.txt");
    const { text } = await modelsInit(graph, engine(), { like: "test-columns", labels, models });
    const draft = JSON.parse(readFileSync(join(place, "mine", "model.json"), "utf8")) as Manifest;
    const like = manifestOf("columns");
    t.match(draft, {
      name: "mine",
      version: null,
      description: null,
      stage: "draft",
      release: "off",
    });
    t.notOk("canary" in draft);
    t.strictSame(draft.execution.providers, ["cpu"], "it was tested nowhere yet");
    t.strictSame(draft.inputs, like.inputs);
    const { labels: made, ...output } = draft.outputs[0] as Extract<
      ModelOutput,
      { kind: "detection_table" }
    >;
    t.match(like.outputs[0], output);
    t.strictSame(made, [
      {
        label: "Nodule",
        code: { value: "27925004", scheme: "SCT", meaning: "Nodule" },
        threshold: 0.4,
      },
      { label: "bone", code: null, threshold: 0.25 },
      { label: "Spot", code: null, threshold: null },
    ]);
    t.match(text, /bone: 2 concepts are called so: 272673000 SCT "Bone", 3138006 SCT "Bone"/);
    t.match(text, /Spot: no concept of the list is called so/);
    t.match(text, /outputs\[0\]\.labels\[2\]\.threshold: Expected a number; found null/);

    const again = { engine: engine(), like: "test-columns", models };
    const fails = (options: object, expected: { code: string; message?: RegExp }) => {
      rmSync(join(place, "mine", "model.json"), { force: true });
      return t.rejects(modelsInit(graph, engine(), { ...again, ...options }), expected);
    };
    await fails(
      { like: "../models/test-columns" },
      { code: "model_not_found", message: /models list/ },
    );
    await fails({ like: "other" }, { code: "model_not_found" });
    await fails(
      { labels: join(place, "gone") },
      { code: "bad_request", message: /the file does not exist/ },
    );
    for (const lines of ["\n# nothing\n", "a, 1e9999", ", 0.5"]) {
      writeFileSync(labels, lines);
      await fails(
        { labels },
        { code: "bad_request", message: /Expected (one label|"label, threshold")/ },
      );
    }
    t.notOk(existsSync(join(place, "mine", "model.json")), "nothing is written for a mistake");
  });

  await t.test(
    "labels of segments have categories; steps for other labels are asked for",
    async (t) => {
      const place = t.testdir({ mine: {}, "labels.txt": "Liver\nadipose tissue\nSpleen" });
      const graph = join(place, "mine", "net.onnx");
      cpSync(join(ctTissue, "model.onnx"), graph);
      await modelsInit(graph, engine(), {
        like: "ct-tissue",
        labels: join(place, "labels.txt"),
        models: place,
      });
      const { outputs } = JSON.parse(
        readFileSync(join(place, "mine", "model.json"), "utf8"),
      ) as Manifest;
      const anatomy = { value: "91723000", scheme: "SCT", meaning: "Anatomical Structure" };
      t.match(outputs[0], {
        kind: "segmentation",
        tensor: "tissue",
        postprocess: null,
        labels: [
          { label: "Liver", code: { value: "10200004" }, category: anatomy },
          { label: "adipose tissue", code: null, category: null },
          { label: "Spleen", code: { value: "78961009" }, category: anatomy },
        ],
      });
      t.notMatch(JSON.stringify(outputs), /threshold/, "argmax asks for none");
    },
  );

  await t.test("codes", async (t) => {
    t.match(await modelsCodes("pleural_effusion"), {
      exitCode: 0,
      text: /60046008 +SCT +Pleural effusion +-/,
    });
    t.match(
      (await modelsCodes("liver")).text.split("\n")[1],
      /^10200004 +SCT +Liver +91723000 Anatomical Structure/,
    );
    t.match(await modelsCodes("no such thing"), { exitCode: 1, text: /The list is short/ });
    t.match((await modelsCodes("vein")).text, /\d+ more: name more words\.$/);
  });

  await t.test("init drafts every input, and asks how a volume lies", async (t) => {
    const folder = join(t.testdir({ two: {} }), "two");
    const shape = ["n", 1, 8, 16, 16] as const;
    const model = {
      name: "two",
      inputs: [
        { name: "ct", dtype: "float32", shape },
        { name: "pet", dtype: "float32", shape },
      ],
      outputs: [{ name: "y", dtype: "float32", shape }],
      nodes: [{ op: "Add", inputs: ["ct", "pet"], outputs: ["y"] }],
    } as const;
    writeFileSync(join(folder, "two.onnx"), onnxModel(model));
    const { text } = await modelsInit(join(folder, "two.onnx"), engine());
    const size = { kind: "fixed", depth: 8, height: 16, width: 16 };
    const asked = { size, orientation: null, spacing_mm: null };
    const draft = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as object;
    t.match(draft, {
      accepts: { modality: null, dimensions: "series" },
      inputs: [
        { tensor: "ct", ...asked },
        { tensor: "pet", ...asked },
      ],
    });
    t.match(text, /inputs\[1\]\.orientation: /);

    const person = join(t.testdir({ person: {} }), "person", "person.onnx");
    writeFileSync(
      person,
      onnxModel({
        ...model,
        inputs: [
          { name: "sex", dtype: "int64", shape: ["n"] },
          { name: "person", dtype: "float32", shape: ["n", 3] },
          { name: "ct", dtype: "float32", shape: ["n", 1, 16, 16] },
        ],
        nodes: [{ op: "Relu", inputs: ["ct"], outputs: ["y"] }],
      }),
    );
    t.match((await modelsInit(person, engine())).text, /inputs\[1\]\.values: /);
    t.match(JSON.parse(readFileSync(join(dirname(person), "model.json"), "utf8")), {
      accepts: { dimensions: null },
      inputs: [
        { kind: "attributes", tensor: "sex", dtype: "int64", layout: "N", values: null },
        { kind: "attributes", tensor: "person", dtype: "float32", layout: "NC", values: null },
        { tensor: "ct", layout: "NCHW" },
      ],
      batching: { max: 8 },
    });

    const one = join(t.testdir({ one: {} }), "one", "one.onnx");
    writeFileSync(
      one,
      onnxModel({
        ...model,
        inputs: [model.inputs[0]],
        nodes: [{ op: "Relu", inputs: ["ct"], outputs: ["y"] }],
      }),
    );
    const said = (await modelsInit(one, engine())).text;
    for (const path of ["accepts.modality", "inputs[0].spacing_mm", "inputs[0].orientation"])
      t.ok(said.includes(`  ${path}: `), said);
  });

  await t.test("init refuses what is no graph", async (t) => {
    for (const [content, message] of [
      ["no graph", /found something else/],
      ["version https://git-lfs.github.com/spec/v1\noid sha256:0\n", /Git LFS.*git lfs pull/],
      ["PK\u0003\u0004archive", /found a file of PyTorch.*torch\.onnx\.export/],
      ["\0\0\0\0ORTM", /ONNX Runtime's own format/],
      ["\0\0\0\0TFL3", /TensorFlow Lite/],
    ] as const) {
      const folder = t.testdir({ "x.onnx": content });
      const init = modelsInit(join(folder, "x.onnx"), engine());
      await t.rejects(init, { code: "bad_request", message });
    }
  });

  await t.test(
    "try shows the tensor that goes in and compares the one that comes out",
    async (t) => {
      const folder = t.testdir();
      const stored = Int16Array.from({ length: 256 }, (_, i) => i * 8 - 500);
      const image: Image = imageOf({
        pixels: new Uint8Array(stored.buffer),
        interpretation: { modality: { kind: "rescale", slope: 0.5, intercept: -100 } },
      });
      const dump = join(folder, "in.npy");
      const expect = join(folder, "expected.npy");
      const hu = Array.from(stored, (v) => v * 0.5 - 100);
      const labels = Uint8Array.from(hu, tissueOf);
      writeFileSync(expect, encodeNpy({ dtype: "uint8", shape: [1, 1, 16, 16], data: labels }));
      const good = await modelsTry(ctTissue, image, { ...options, dump, expect });
      t.equal(good.exitCode, 0);
      t.match(good.text, /tissue against the expected: largest difference 0\.00 over 256 elements/);
      const tensor = decodeNpy(readFileSync(dump));
      t.strictSame(tensor.shape, [1, 1, 16, 16]);
      t.strictSame([...toNumbers(tensor)], hu, "Hounsfield units, as the file says");

      labels[7] = 0;
      writeFileSync(expect, encodeNpy({ dtype: "uint8", shape: [1, 1, 16, 16], data: labels }));
      const bad = await modelsTry(ctTissue, image, { ...options, expect });
      t.equal(bad.exitCode, 1);
      t.match(bad.text, /1 outside the tolerance 0 absolute, 0 relative/);
      await t.rejects(modelsTry(ctTissue, image, { ...options, frame: 2 }), {
        code: "bad_request",
      });
    },
  );

  await t.test("try says that a model would refuse the image", async (t) => {
    const localizer = imageOf({ attributes: { ImageType: ["ORIGINAL", "PRIMARY", "LOCALIZER"] } });
    const { text, exitCode } = await modelsTry(ctTissue, localizer, options);
    t.match(text, /does not accept the image: A localizer is a projection/);
    t.equal(exitCode, 0);
  });
});

/** Fields that the draft filled in. */
function onlyFilled(input: object): object {
  return Object.fromEntries(
    Object.entries(input).filter(
      ([, value]) => value !== null && (value as { kind?: unknown }).kind !== null,
    ),
  );
}
