import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { modelSchemaText, schemaPath } from "../../scripts/build-model-schema.js";
import type { TensorInfo } from "../../src/base/tensor.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import { labelsOf, type ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { manifestCrossChecks, manifestSchema } from "../../src/manifest/rules.js";
import { checkGraph } from "../../src/models/graph.js";
import { readModelFolder } from "../../src/models/read.js";
import { copyModel, shipped, shippedModels } from "../support/manifests.js";
import { firstVoxel } from "../support/model-parts.js";
import { manifestOf } from "../support/test-models.js";

/** Problems of a copy of ct-tissue after a change, by path. */
async function problemsAfter(
  directory: string,
  change: (manifest: ReturnType<typeof shipped>) => unknown,
  name = "ct-copy",
) {
  const { problems } = await readModelFolder(copyModel(directory, "ct-tissue", name, change));
  return new Map(problems.map(({ path, message }) => [path, message]));
}

t.test("the published schema is the one in force", async (t) => {
  t.equal(
    readFileSync(schemaPath, "utf8"),
    await modelSchemaText(),
    "run dist/scripts/build-model-schema.js",
  );
});

t.test("every example manifest obeys the schema", (t) => {
  const examples = join(shippedModels, "examples");
  const folders = readdirSync(examples, { withFileTypes: true }).filter((e) => e.isDirectory());
  t.ok(folders.length >= 2);
  for (const { name } of folders) {
    const parsed = manifestSchema.safeParse(
      JSON.parse(readFileSync(join(examples, name, "model.json"), "utf8")),
    );
    t.ok(parsed.success, name, { issues: parsed.error?.issues });
    t.equal(parsed.data?.name, name);
  }
  t.end();
});

t.test("the shipped folders hold no mistake", async (t) => {
  for (const name of ["ct-tissue", "burned-in-text"]) {
    const report = await readModelFolder(join(shippedModels, name));
    t.strictSame(report.problems, [], name);
    t.match(report.model?.sha256, /^[0-9a-f]{64}$/);
  }
});

t.test("an unknown key is named with the nearest known one", async (t) => {
  const problems = await problemsAfter(t.testdir(), (m) => {
    Object.assign(m.inputs[0]!, { normalization: 1 });
    Object.assign(m.inputs[0]!.values, { indx: 0 });
    Object.assign(m.outputs[0]!, { postproces: [] });
  });
  t.match(problems.get("inputs[0].normalization"), /did you mean "normalisation"/);
  t.match(problems.get("outputs[0].postproces"), /did you mean "postprocess"/);
  t.match(
    problems.get("inputs[0].values.indx"),
    /did you mean "kind"\? Known here: kind$/,
    "of the chosen kind only",
  );
});

t.test("every mistake is reported at once, with what was expected and found", async (t) => {
  const problems = await problemsAfter(t.testdir(), (m) => {
    Object.assign(m, { release: "on", version: undefined, intended_use: null });
    Object.assign(m.inputs[0]!, { dtype: "float31", background: "black" });
    Object.assign(imageInputs(m)[0]!.size, { kind: "fixd" });
    Object.assign(m.batching, { max: 0 });
    delete m.canary;
  });
  t.match(problems.get("release"), /one of "off", "shadow", "active"; found "on"/);
  t.match(problems.get("version"), /found nothing: the field is missing/);
  t.match(problems.get("intended_use"), /found null, which is to be filled in/);
  t.match(problems.get("inputs[0].dtype"), /"float32".*found "float31"/);
  t.match(problems.get("inputs[0].background"), /a number; found "black"/);
  t.match(
    problems.get("inputs[0].size.kind"),
    /"fixed", "multiple_of", "edges", "source"; found "fixd"/,
  );
  t.match(problems.get("batching.max"), /at least 1; found 0/);
  t.match(problems.get("canary"), /Required in stage final/, "rules over several fields too");
  t.equal(problems.size, 8);
});

t.test("an empty or wrong field says what goes in, and what it means", async (t) => {
  const problems = await problemsAfter(t.testdir(), (m) => {
    Object.assign(m, { version: "one two" });
    Object.assign(m.accepts, { formats: null, modality: "CT" });
    Object.assign(m.inputs[0]!, {
      background: null,
      size: null,
      values: { kind: null },
      normalisation: { kind: "mean_std", mean: 0.5, std: [1] },
    });
    Object.assign(m.outputs[0]!, {
      labels: [{ name: "x" }, { name: "y" }],
      postprocess: undefined,
    });
  });
  t.match(problems.get("version"), /^Expected text of the form .*; found "one two"$/);
  t.match(
    problems.get("accepts.formats"),
    /an array of "dicom", "png", "jpeg", "tiff"; found null/,
  );
  t.match(problems.get("accepts.modality"), /an array of strings; found "CT"/);
  t.match(problems.get("inputs[0].background"), /filled in\. Fills letterbox, padding/);
  t.match(
    problems.get("inputs[0].size"),
    /an object with kind "fixed", "multiple_of", "edges", "source"; found null/,
  );
  t.match(
    problems.get("inputs[0].values.kind"),
    /"suv_bw" \(.*"window" needs center, width, function; .*\); found null/,
    "what each word needs beside it",
  );
  t.match(
    problems.get("outputs[0].postprocess"),
    /an array of objects with step "drop_border_connected", "large/,
  );
  t.match(
    problems.get("outputs[0].labels[1].label"),
    /^Expected a string; found nothing: the field is missing$/,
  );
  t.match(
    problems.get("inputs[0].normalisation.mean"),
    /^Expected an array of numbers; found 0\.5$/,
  );
  t.notMatch([...problems.values()].join("\n"), /undefined/);
});

t.test("a threshold that no score can reach, or every one does", async (t) => {
  const softmax = async (threshold: number) =>
    (
      await problemsAfter(t.testdir(), (m) => {
        m.outputs = [
          {
            kind: "classification",
            tensor: "tissue",
            activation: "softmax",
            calibration: { kind: "none" },
            labels: [{ label: "x", code: { value: "1", scheme: "99X", meaning: "x" }, threshold }],
          },
        ];
      })
    ).get("outputs[0].labels[0].threshold");
  t.match(await softmax(50), /^Expected 0 to 1, .*found 50, with which it would never be present/);
  t.match(await softmax(-0.1), /would always be present/);
  t.equal(await softmax(1), undefined);
});

t.test("what no step after the graph could follow is refused by its field", async (t) => {
  const kinds = manifestSchema.safeParse({
    ...shipped("examples/brain-tissue-3d"),
    outputs: [{ kind: "heatmap", tensor: "y", activation: "none", label: { label: "a" } }],
  });
  t.match(
    kinds.error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`),
    [
      "outputs.0.kind: Expected classification, regression, segmentation, volume_detection for volumes, found heatmap",
    ],
  );
  const input = (change: object) =>
    problemsAfter(t.testdir(), (m) => void Object.assign(m.inputs[0]!, change)).then((p) => [
      ...p.keys(),
    ]);
  const normalisation = { kind: "percentile", over: "image", low: 9, high: 9, to: [0, 1] };
  t.strictSame(await input({ normalisation }), ["inputs[0].normalisation.low"]);
  t.strictSame(await input({ clip: [1, 1] }), ["inputs[0].clip"]);
  const three = { kind: "mean_std", mean: [0, 0, 0], std: [1, 1, 1] };
  t.strictSame(await input({ normalisation: three }), [
    "inputs[0].normalisation.mean",
    "inputs[0].normalisation.std",
  ]);
  const code = { value: "1", scheme: "99X", meaning: "x" };
  const labels = [{ label: "x", code, threshold: 0.5 }];
  const output = async (output: object) =>
    Object.fromEntries(
      await problemsAfter(t.testdir(), (m) => void Object.assign(m, { outputs: [output] })),
    ) as Record<string, string>;
  const calibrated = (calibration: object, activation = "none") =>
    output({ kind: "classification", tensor: "tissue", activation, calibration, labels });
  const field = "outputs[0].calibration";
  t.match(await calibrated({ kind: "temperature", temperature: 2 }), { [field]: /divides logits/ });
  t.match(await calibrated({ kind: "isotonic", x: [0, 0], y: [0, 1] }), {
    [field]: /needs rising x/,
  });
  t.match(await calibrated({ kind: "isotonic", x: [0, 1], y: [0, 1, 1] }), {
    [field]: /as many y/,
  });
  t.strictSame(await calibrated({ kind: "temperature", temperature: 2 }, "sigmoid"), {});
  t.strictSame(await calibrated({ kind: "isotonic", x: [0, 1], y: [0, 1] }), {});
  const boxes = {
    kind: "detection",
    boxes: { tensor: "b", format: "xyxy", normalised: false },
    scores: { tensor: "s", activation: "softmax" },
    classes: { tensor: "c", first: 0 },
    max_boxes: 1,
    labels,
  };
  t.match(await output(boxes), { "outputs[0].scores.activation": /one score a box/ });
});

/** A tensor of a graph; -1 for a dynamic side. */
const tensor = (
  name: string,
  shape: number[],
  dtype: TensorInfo["dtype"] = "float32",
): TensorInfo => ({
  name,
  dtype,
  shape,
  names: shape.map(() => ""),
});

/**
 * What is said of an output of this shape by a model that takes images, or volumes, in that layout.
 */
const outputProblems = (
  layout: "NCHW" | "NHWC" | "NCDHW",
  output: ModelOutput,
  ...found: [shape: number[], dtype?: TensorInfo["dtype"]]
) => {
  const manifest = shipped(layout === "NCDHW" ? "examples/brain-tissue-3d" : "ct-tissue");
  manifest.inputs[0]!.layout = layout;
  manifest.outputs = [{ ...output, tensor: "y" } as ModelOutput];
  const graph = {
    inputs: [],
    outputs: [tensor("y", ...found)],
    float16: false,
    activations: {},
    metadata: {},
  };
  return checkGraph(manifest, graph).filter(({ path }) => path.startsWith("outputs"));
};

const segmentation = (
  labels: number,
  activation: "softmax" | "sigmoid" | "label_map",
): ModelOutput => ({
  kind: "segmentation",
  tensor: "y",
  activation,
  labels: Array.from({ length: labels }, (_, i) => ({ label: `l${i}` })),
  postprocess: [],
  measurements: [],
});

t.test("maps have their channels first or last, and may leave out sides of length one", (t) => {
  const two = segmentation(2, "softmax");
  const problems = (shape: number[], layout: "NCHW" | "NHWC" | "NCDHW" = "NCHW", output = two) =>
    outputProblems(layout, output, shape);
  t.strictSame(problems([1, 256, 256, 3], "NHWC"), [], "fixed sides");
  t.strictSame(problems([1, 256, 256, 3]), [], "whatever the layout of the input is");
  t.strictSame(problems([-1, 3, 256, 256]), []);
  t.strictSame(problems([3, 256, 256]), []);
  t.strictSame(problems([1, -1, 256, 256]), [], "what is dynamic is left to the canary");
  t.strictSame(problems([1, 3, 8, 8, 8], "NCDHW"), []);
  const one = segmentation(1, "sigmoid");
  for (const shape of [
    [256, 256],
    [-1, 256, 256],
    [256, 256, 1],
    [1, 1, 256, 256],
  ])
    t.strictSame(problems(shape, "NHWC", one), [], shape.join());
  t.match(problems([1, 4, 256, 256]), [
    { path: "outputs[0].labels", message: /^Expected 3 channels, found .*\[1, 4, 256, 256\]/ },
  ]);
  t.match(problems([1, 2, 8, 8, 8], "NCDHW"), [{ path: "outputs[0].labels" }]);
  t.match(problems([1, 2, 256, 256], "NCHW", segmentation(2, "label_map")), [
    { message: /^Expected 1 channel, / },
  ]);
  t.match(problems([1, 3, 8, 256, 256]), [
    { path: "outputs[0].tensor", message: /^Expected a map with 3 to 4 / },
  ]);
  t.match(problems([8, 3, 256, 256]), [
    { path: "outputs[0].tensor", message: /^Expected one image or any number/ },
  ]);
  t.end();
});

t.test("scores are as many as the labels, and all but label maps are fractions", (t) => {
  const scores: ModelOutput = {
    kind: "classification",
    tensor: "y",
    activation: "softmax",
    calibration: { kind: "none" },
    labels: [{ label: "a" }, { label: "b" }],
  };
  const problems = (...found: [shape: number[], dtype?: TensorInfo["dtype"]]) =>
    outputProblems("NCHW", scores, ...found);
  t.strictSame(problems([-1, 2]), []);
  t.strictSame(problems([2]), []);
  t.strictSame(problems([1, 2, 1, 1]), []);
  t.strictSame(problems([1, -1]), []);
  t.match(problems([1, 3]), [
    { path: "outputs[0].labels", message: /^Expected 2 values, found .*\[1, 3\]/ },
  ]);
  t.match(problems([1, 3, -1]), [{ path: "outputs[0].labels" }]);
  t.match(problems([1, 2], "int64"), [
    {
      path: "outputs[0].tensor",
      message: /^Expected float32, float16 or float64, found .*int64 \[1, 2\]/,
    },
  ]);
  t.strictSame(outputProblems("NCHW", segmentation(2, "label_map"), [1, 1, 8, 8], "uint8"), []);
  t.end();
});

t.test("an input's type, dimensions, channels and sides are the graph's", (t) => {
  const problems = (change: object, inputs: TensorInfo[] = [tensor("x", [-1, 1, -1, -1])]) => {
    const manifest = shipped("ct-tissue");
    Object.assign(manifest.inputs[0]!, { tensor: "x", size: { kind: "source" }, ...change });
    return checkGraph(manifest, {
      inputs,
      outputs: [],
      float16: false,
      activations: {},
      metadata: {},
    }).filter(({ path }) => path.startsWith("inputs"));
  };
  t.strictSame(problems({}), []);
  t.match(problems({ tensor: "image" }), [
    { path: "inputs[0].tensor", message: /no numeric tensor "image"; did you mean "x"/ },
  ]);
  t.match(problems({ dtype: "uint8" }), [
    { path: "inputs[0].dtype", message: /^Expected float32, found uint8: .*\[\?, 1, \?, \?\]/ },
  ]);
  t.match(problems({ channels: "rgb" }), [
    { path: "inputs[0].channels", message: /gives 3 channels/ },
  ]);
  t.match(problems({ layout: "NCDHW" }), [
    { path: "inputs[0].layout", message: /has 5 dimensions/ },
  ]);
  t.match(problems({ layout: "NHWC" }, [tensor("x", [1, 8, 8, 3])]), [
    { path: "inputs[0].channels", message: /gives 1 channels/ },
    { path: "inputs[0].size", message: /needs dynamic height and width/ },
  ]);
  t.match(problems({}, [tensor("x", [4, 1, -1, -1])]), [
    { path: "inputs[0].tensor", message: /^Expected one image or any number/ },
  ]);
  t.match(problems({}, [tensor("x", [-1, 1, -1, -1]), tensor("age", [1])]), [
    { path: "inputs", message: /also wants the input "age"/ },
  ]);
  t.end();
});

t.test("boxes and scores run box by box", (t) => {
  const manifest = manifestOf("detector");
  const output = manifest.outputs[0]!;
  if (output.kind !== "detection") throw new Error("Expected a detection");
  const problems = (boxes: number[], scores: number[]) =>
    checkGraph(manifest, {
      inputs: [],
      outputs: [tensor(output.boxes.tensor, boxes), tensor(output.scores.tensor, scores)],
      float16: false,
      activations: {},
      metadata: {},
    }).filter(({ path }) => path.startsWith("outputs"));
  const labels = output.labels.length;
  t.ok(labels > 1);
  t.strictSame(problems([1, 100, 4], [1, 100, labels]), []);
  t.strictSame(problems([1, -1, 4], [1, -1, -1]), [], "what is dynamic is left to the canary");
  t.match(problems([1, 100, 6], [1, 100, labels]), [
    {
      path: "outputs[0].boxes.tensor",
      message: /^Expected the 4 numbers of a box in the last dimension, found 6/,
    },
  ]);
  t.match(problems([1, 100, 4], [1, labels, 100]), [
    {
      path: "outputs[0].scores.tensor",
      message: /score for each of the \d labels in the last dimension, found 100/,
    },
  ]);
  t.end();
});

/** A manifest whose only output is a table with these changes. */
function tableManifest(change: object): Manifest {
  const manifest = manifestOf("columns");
  manifest.outputs = [{ ...manifest.outputs[0]!, ...change }];
  return manifest;
}

t.test("the columns of a detection table", (t) => {
  const mistakes = (change: object) => {
    const found: string[] = [];
    manifestCrossChecks(tableManifest(change), (path, message) =>
      found.push(`${path.join(".")}: ${message}`),
    );
    return found.filter((line) => line.startsWith("outputs"));
  };
  const scored = { scores: { activation: "none" } };
  const six = {
    ...scored,
    columns: ["x1", "y1", "x2", "y2", "score", "class"],
    classes: { first: 0 },
  };
  const [label] = tableManifest({}).outputs.flatMap(labelsOf);
  const box = ["cx", "cy", "w", "h"];
  t.strictSame(mistakes({}), []);
  t.strictSame(mistakes(six), []);
  t.strictSame(
    mistakes({ ...six, columns: ["unused", "y1", "x1", "unused", "y2", "x2", "class", "score"] }),
    [],
  );
  t.strictSame(mistakes({ ...scored, columns: [...box, "score"], labels: [label] }), []);
  const wrong: [object, RegExp][] = [
    [
      { ...six, columns: ["x1", "y1", "x2", "h", "score", "class"] },
      /columns: Expected the four columns of one/,
    ],
    [
      { ...six, columns: ["x1", "y1", "x2", "y2", "w", "score", "class"] },
      /columns: Expected the four columns/,
    ],
    [
      { ...six, columns: ["x1", "y1", "x2", "y2", "score", "class", "y2"] },
      /The column y2 is there twice/,
    ],
    [{ columns: [...box, "unused"] }, /Expected either score .* or class_scores/],
    [{ columns: [...box, "score", "class_scores"] }, /Expected either score .* or class_scores/],
    [
      { columns: [...box, "class_scores", "class"], classes: { first: 0 } },
      /class names the label/,
    ],
    [{ ...scored, columns: [...box, "score"] }, /Expected a column class: .* 2 labels/],
    [{ ...six, classes: undefined }, /classes: Expected the number of the first/],
    [{ classes: { first: 0 } }, /classes: Only with a column class/],
    [{ columns: [...box, "objectness", "class_scores"] }, /objectness: Expected its activation/],
    [{ objectness: { activation: "none" } }, /objectness: Only with a column objectness/],
    [scored, /scores\.labels_per_box: Expected one/],
    [
      { ...six, scores: { activation: "none", labels_per_box: "one" } },
      /labels_per_box: Only with class_scores/,
    ],
    [
      { ...six, scores: { activation: "softmax" } },
      /activation: Softmax goes over one score a label/,
    ],
    [{ labels: [{ ...label, threshold: 1.5 }] }, /threshold: Expected 0 to 1/],
    [{ labels: [{ label: "x", code: label!.code }] }, /threshold: Expected a number/],
  ];
  for (const [change, message] of wrong) {
    const found = mistakes(change);
    t.ok(
      found.some((line) => message.test(line)),
      `${String(message)}: ${found.join("; ")}`,
    );
  }
  t.end();
});

t.test("a detection table and the graph's axes", (t) => {
  const problems = (shape: number[], change: object = {}) =>
    checkGraph(tableManifest(change), {
      inputs: [],
      outputs: [tensor("output0", shape)],
      float16: false,
      activations: {},
      metadata: {},
    }).filter(({ path }) => path.startsWith("outputs"));
  for (const shape of [
    [1, 6, 8400],
    [-1, 6, -1],
    [-1, -1, -1],
    [6, 100],
  ])
    t.strictSame(problems(shape), []);
  t.strictSame(problems([-1, 8400, 6], { axes: "boxes_columns" }), []);
  t.match(problems([1, 8400, 6]), [
    { path: "outputs[0].columns", message: /^Expected 6 columns, .*is axes "boxes_columns"\?$/ },
  ]);
  t.match(problems([1, 84, 8400]), [
    {
      path: "outputs[0].columns",
      message: /^Expected 6 columns, with one for each of the 2 labels/,
    },
  ]);
  for (const shape of [[6], [1, 1, 6, 100], [4, 6, 100]])
    t.match(problems(shape), [{ path: "outputs[0].tensor", message: /^Expected \[1, 6, boxes\]/ }]);
  t.match(problems([1, 6, 8400], { tensor: "output" }), [
    { path: "outputs[0].tensor", message: /output0/ },
  ]);
  t.end();
});

t.test("rules over several fields", async (t) => {
  const directory = t.testdir();
  const expectProblem = async (
    path: string,
    change: (m: ReturnType<typeof shipped>) => unknown,
  ) => {
    t.ok((await problemsAfter(directory, change)).has(path), path);
  };
  await expectProblem("outputs[0].labels[1].label", (m) => {
    const output = m.outputs[0]!;
    if (output.kind === "segmentation") output.labels[1]!.label = output.labels[0]!.label;
  });
  await expectProblem("outputs[0].labels[0].code", (m) => {
    const output = m.outputs[0]!;
    if (output.kind === "segmentation") delete output.labels[0]!.code;
  });
  await expectProblem("outputs[0].labels[0].category", (m) => {
    const output = m.outputs[0]!;
    if (output.kind === "segmentation") delete output.labels[0]!.category;
  });
  await expectProblem("outputs[0].segment_type", (m) =>
    Object.assign(m.outputs[0]!, { segment_type: "fractional", postprocess: [] }),
  );
  await expectProblem("outputs[0].segment_type", (m) =>
    Object.assign(m.outputs[0]!, { segment_type: "fractional", activation: "softmax" }),
  );
  await expectProblem("outputs", (m) => {
    const [first] = m.outputs;
    if (first?.kind === "segmentation")
      m.outputs.push({
        ...first,
        activation: "softmax",
        postprocess: [],
        segment_type: "fractional",
      });
  });
  await expectProblem("outputs[0].labels[0].threshold", (m) =>
    Object.assign(m.outputs[0]!, { activation: "sigmoid" }),
  );
  await expectProblem("outputs[0].postprocess[0].labels[0]", (m) =>
    Object.assign(m.outputs[0]!, { postprocess: [{ step: "fill_holes", labels: ["bones"] }] }),
  );
  await expectProblem("inputs[0].layout", (m) => (m.accepts.dimensions = "series"));
  await expectProblem("inputs[0].normalisation.mean", (m) =>
    Object.assign(m.inputs[0]!, { normalisation: { kind: "mean_std", mean: [1, 2, 3], std: [1] } }),
  );
  await expectProblem("inputs[0].clip", (m) => (imageInputs(m)[0]!.clip = [5, 5]));
  const cropped = (m: ReturnType<typeof shipped>) => {
    m.accepts.dimensions = "2d";
    m.accepts.photometric = ["MONOCHROME2"];
    Object.assign(m.inputs[0]!, { crop: "nonzero", values: { kind: "stored" } });
  };
  t.notOk((await problemsAfter(directory, cropped)).has("inputs[0].crop"));
  for (const change of [
    (m) => (m.accepts.dimensions = "2d_frames"),
    (m) => (m.accepts.photometric = ["MONOCHROME1"]),
    (m) => delete m.accepts.photometric,
    (m) => Object.assign(m.inputs[0]!, { values: { kind: "modality" } }),
    (m) => m.inputs.push({ ...imageInputs(m)[0]!, tensor: "other" }),
  ] as ((m: ReturnType<typeof shipped>) => unknown)[])
    await expectProblem("inputs[0].crop", (m) => {
      cropped(m);
      change(m);
    });
});

t.test(
  "changes by statistics, samples without antialiasing and columns first have their places",
  async (t) => {
    const directory = t.testdir();
    type Draft = ReturnType<typeof shipped>;
    const problemsOf = (change: object, more: (m: Draft) => unknown = () => undefined) =>
      problemsAfter(directory, (m) => {
        const input = imageInputs(m)[0]!;
        delete input.clip;
        Object.assign(input, { dtype: "float32", size: { kind: "source" }, ...change });
        more(m);
      });
    const step = { kind: "z_score", at: "tensor", of: "nonzero", channels: "each" };
    const source = { ...step, at: "source" };
    const none = { kind: "none" };
    const fixed = { kind: "fixed", height: 16, width: 12 };
    const edges = { kind: "edges", shortest: 16, longest: 20, rounding: "torchvision" };
    const smoothed = { interpolation: "gaussian", border: { kind: "mirror" } };
    const resampling = { ...firstVoxel, multiple_of: [8, 8, 8] };
    const cut = { kind: "resize_then_crop", shortest_edge: 16, rounding: "down", offset: "half" };
    const padded = { kind: "resize_then_pad", rounding: "half_up", offset: "top_left" };
    for (const good of [
      { placement: cut, fit: "crop", size: fixed },
      { placement: padded, fit: "letterbox", size: fixed },
      { ...smoothed, placement: cut, fit: "crop", size: fixed },
      { intensity: [step] },
      { intensity: [source, step], normalisation: none },
      { interpolation: "cubic", antialias: false },
      { ...smoothed, antialias: false },
      { interpolation: "nearest_floor", size: edges, fit: "letterbox" },
      { layout: "NCWH" },
    ])
      t.strictSame(
        [...(await problemsOf(good)).keys()].filter((path) =>
          /intensity|antialias|layout|kind|placement|fit|border/.test(path),
        ),
        [],
        JSON.stringify(good),
      );
    const refused: [string, object, ((m: Draft) => unknown)?][] = [
      ["inputs[0].intensity", { intensity: [step], dtype: "float16" }],
      [
        "inputs[0].intensity",
        { intensity: [step], size: { kind: "fixed", height: 8, width: 8 }, fit: "letterbox" },
      ],
      [
        "inputs[0].intensity[0].at",
        { intensity: [source], normalisation: { kind: "scale", multiply: 2, add: 0 } },
      ],
      ["inputs[0].intensity[0].at", { intensity: [source], normalisation: none, clip: [0, 1] }],
      ["inputs[0].intensity[1].at", { intensity: [step, source], normalisation: none }],
      [
        "inputs[0].intensity",
        { intensity: [step], layout: "NCDHW", interpolation: "spline", resampling },
      ],
      [
        "inputs[0].intensity[0].low",
        { intensity: [{ ...step, kind: "clip_percentiles", low: 99, high: 1 }] },
      ],
      ["inputs[0].antialias", { interpolation: "area", antialias: false }],
      ["inputs[0].fit", { size: edges }],
      ["inputs[0].size.kind", { size: edges, fit: "letterbox", layout: "NCDHW" }],
      ["inputs[0].size.longest", { size: { ...edges, longest: 15 }, fit: "letterbox" }],
      ["inputs[0].interpolation", { interpolation: "nearest_floor", layout: "NCDHW" }],
      ["inputs[0].interpolation", { interpolation: "gaussian", layout: "NCDHW" }],
      ["inputs[0].border", { interpolation: "gaussian" }],
      ["inputs[0].border", { interpolation: "linear", border: { kind: "mirror" } }],
      ["inputs[0].align_corners", { interpolation: "linear", align_corners: true }],
      ["inputs[0].values.kind", { values: { kind: "full_range" }, layout: "NCDHW" }],
      ["inputs[0].placement", { ...smoothed, size: fixed, fit: "crop" }],
      ["inputs[0].placement.kind", { placement: cut, fit: "crop" }],
      ["inputs[0].placement.kind", { placement: cut, fit: "crop", size: fixed, layout: "NCDHW" }],
      ["inputs[0].fit", { placement: cut, fit: "letterbox", size: fixed }],
      ["inputs[0].fit", { placement: padded, fit: "crop", size: fixed }],
      [
        "inputs[0].placement.shortest_edge",
        { placement: { ...cut, shortest_edge: 15 }, fit: "crop", size: fixed },
      ],
      [
        "inputs[0].placement.shortest_edge",
        { placement: { ...cut, height: 20, width: 20 }, fit: "crop", size: fixed },
      ],
      [
        "inputs[0].placement.rounding",
        { placement: { ...cut, rounding: undefined }, fit: "crop", size: fixed },
      ],
      [
        "inputs[0].placement.height",
        {
          placement: { kind: "resize_then_crop", height: 15, width: 16, offset: "half" },
          fit: "crop",
          size: fixed,
        },
      ],
      [
        "outputs[0].kind",
        { layout: "NCWH" },
        (m) => Object.assign(m.outputs[0]!, { activation: "prototypes" }),
      ],
      [
        "inputs[0].resampling.crop",
        {
          resampling: { ...firstVoxel, crop: "foreground", activation: "after" },
        },
      ],
    ];
    for (const [path, change, more] of refused)
      t.ok((await problemsOf(change, more)).has(path), `${path} of ${JSON.stringify(change)}`);
  },
);

t.test("whole numbers that would hold hardly anything of the image", async (t) => {
  const directory = t.testdir();
  const problemOf = async (change: object) => {
    const problems = await problemsAfter(directory, (m) => {
      delete imageInputs(m)[0]!.clip;
      Object.assign(m.inputs[0]!, { dtype: "uint8", ...change });
    });
    return [...problems].map(([path, message]) => `${path}: ${message}`).join("\n");
  };
  const voi = { kind: "voi", index: 0, if_absent: "min_max" };
  const window = { kind: "window", center: 40, width: 400, function: "LINEAR" };
  const none = { kind: "none" };
  const scale = (multiply: number, add = 0) => ({ kind: "scale", multiply, add });
  const meanStd = (mean: number, std: number) => ({ kind: "mean_std", mean: [mean], std: [std] });
  const to = (kind: string, ...range: number[]) => ({
    kind,
    over: "image",
    low: 1,
    high: 99,
    to: range,
  });
  const minMax = (...range: number[]) => ({ kind: "min_max", over: "image", to: range });
  const refused: [object, RegExp][] = [
    [
      { values: voi, normalisation: none },
      /^inputs\[0\]\.normalisation: uint8 holds whole numbers from 0 to 255, .*"none" gives 0 to 1 here.*"multiply": 255/,
    ],
    [
      { values: window, normalisation: none },
      /"kind": "scale", "multiply": 255, "add": 0 } for 0 to 255/,
    ],
    [{ values: window, normalisation: none, dtype: "int8" }, /"multiply": 127/],
    [{ values: voi, normalisation: scale(2, -1) }, /gives -1 to 1 here/],
    [
      { values: voi, normalisation: meanStd(0.5, 0.5), dtype: "int32" },
      /"mean_std" gives -1 to 1 here/,
    ],
    [{ values: { kind: "modality" }, normalisation: minMax(0, 1) }, /"min_max" gives 0 to 1/],
    [
      { values: { kind: "stored" }, normalisation: to("percentile", 0, 1), dtype: "uint16" },
      /0 to 1 here/,
    ],
    [
      {
        values: { kind: "stored" },
        normalisation: { kind: "z_score", over: "image" },
        dtype: "int16",
      },
      /-1 to 1/,
    ],
    [
      { values: voi, normalisation: scale(255, -128) },
      /uint8 holds whole numbers from 0 to 255, .*gives -128 to 127 here/,
    ],
    [
      { values: { kind: "modality" }, clip: [-1000, 400], normalisation: none },
      /gives -1000 to 400 here: the rest would be cut off\. Expected a normalisation that fills the range of uint8/,
    ],
    [
      { values: voi, clip: [1, 5], normalisation: scale(255) },
      /^inputs\[0\]\.clip: .*all the same number/,
    ],
    [{ values: window, clip: [-1000, 0], normalisation: none, dtype: "float32" }, /\.clip: /],
  ];
  for (const [change, message] of refused)
    t.match(await problemOf(change), message, JSON.stringify(change));
  const taken = [
    { values: voi, normalisation: scale(255) },
    { values: voi, normalisation: scale(256) },
    { values: window, normalisation: scale(-255, 255) },
    { values: window, normalisation: scale(255, -128), dtype: "int8" },
    { values: window, normalisation: meanStd(0, 1 / 255) },
    { values: voi, normalisation: none, dtype: "float16" },
    { values: { kind: "stored" }, normalisation: none },
    { values: { kind: "modality" }, normalisation: none, dtype: "int16" },
    { values: { kind: "modality" }, clip: [-1000, 400], normalisation: none, dtype: "int16" },
    { values: { kind: "modality" }, normalisation: minMax(0, 255) },
    { values: voi, clip: [0.1, 0.9], normalisation: scale(255) },
  ];
  for (const change of taken) t.equal(await problemOf(change), "", JSON.stringify(change));
});

t.test("a model of DICOM images names their modalities or SOP classes", async (t) => {
  const directory = t.testdir();
  const problems = (accepts: object, stage: "draft" | "final" = "final") =>
    problemsAfter(directory, (m) => {
      Object.assign(m, { accepts: { dimensions: "2d_frames", ...accepts }, stage });
      if (stage === "draft") m.results.outputs = ["json"];
    }).then((found) => Object.fromEntries(found));
  for (const stage of ["draft", "final"] as const)
    t.match(
      await problems({ formats: ["png", "dicom"], body_part: ["CHEST"] }, stage),
      { "accepts.modality": /^Expected the modalities or the SOP classes .*a dose/ },
      stage,
    );
  t.strictSame(await problems({ formats: ["dicom"], modality: ["RTDOSE"] }), {});
  t.strictSame(
    await problems({ formats: ["dicom"], sop_class: ["1.2.840.10008.5.1.4.1.1.2"] }),
    {},
  );
  t.strictSame(await problems({ formats: ["png"] }), {}, "rasters have none");
});

t.test("a file that is not the one described", async (t) => {
  const folder = copyModel(t.testdir(), "ct-tissue", "ct-copy", (m) =>
    m.files.push(
      { path: "gone.data", sha256: "ab".repeat(32) },
      { path: "npm:no-such-package/x.onnx", sha256: "ab".repeat(32) },
      { path: "npm:zod/../../package.json", sha256: "ab".repeat(32) },
      { path: "model.json", sha256: "0".repeat(64) },
    ),
  );
  const inside = await readModelFolder(folder);
  t.match(
    inside.problems.find((p) => p.path === "files[3].path")?.message,
    /inside the model's folder/,
    "a path may not climb",
  );
  copyModel(t.testdirName, "ct-tissue", "ct-copy", (m) =>
    m.files.push(
      { path: "gone.data", sha256: "ab".repeat(32) },
      { path: "npm:no-such-package/x.onnx", sha256: "ab".repeat(32) },
      { path: "model.json", sha256: "0".repeat(64) },
    ),
  );
  writeFileSync(join(folder, "model.onnx"), "other weights");
  const problems = new Map(
    (await readModelFolder(folder)).problems.map((p) => [p.path, p.message]),
  );
  t.match(problems.get("model.onnx"), /Expected sha256 [0-9a-f]{64}, found [0-9a-f]{64}/);
  t.match(problems.get("gone.data"), /file does not exist/i);
  t.match(problems.get("npm:no-such-package/x.onnx"), /not installed/);
  t.match(problems.get("model.json"), /placeholder of zeros/);
  t.equal(problems.size, 4);
});

t.test("the folder's name is the model's", async (t) => {
  const problems = await problemsAfter(t.testdir(), (m) => (m.name = "ct-tissue"));
  t.match(problems.get("name"), /Expected "ct-copy".*found "ct-tissue"/);
});

t.test("model.json that cannot be read", async (t) => {
  const directory = t.testdir({ broken: { "model.json": '{"name": ' }, none: {} });
  const broken = await readModelFolder(join(directory, "broken"));
  t.match(broken.problems, [{ path: "model.json", message: /Not JSON/ }]);
  t.equal(broken.required, true, "it might have been required");
  t.match((await readModelFolder(join(directory, "none"))).problems, [
    { message: /file does not exist/i },
  ]);
});

t.test("site.json overrides thresholds that exist", async (t) => {
  const folder = copyModel(t.testdir(), "burned-in-text", "text");
  const before = await readModelFolder(folder);
  t.strictSame(before.model?.thresholds, [[0.5]]);
  writeFileSync(join(folder, "site.json"), '{"thresholds": {"text": 0.7}}');
  const after = await readModelFolder(folder);
  t.strictSame(after.problems, []);
  t.strictSame(after.model?.thresholds, [[0.7]]);
  t.equal(after.model?.sha256, before.model?.sha256, "it stays outside the model's hash");
  writeFileSync(join(folder, "site.json"), '{"thresholds": {"txt": 0.7}}');
  t.match((await readModelFolder(folder)).problems, [
    { path: "site.json thresholds.txt", message: /no label "txt"/ },
  ]);
  writeFileSync(join(folder, "site.json"), '{"thresholds": {"text": 70}}');
  t.match((await readModelFolder(folder)).problems, [
    { path: "site.json thresholds.text", message: /^Expected 0 to 1, .*found 70/ },
  ]);
  writeFileSync(join(folder, "site.json"), '{"threshold": {}}');
  t.match((await readModelFolder(folder)).problems[1], { message: /did you mean "thresholds"/ });
  const ct = copyModel(t.testdirName, "ct-tissue", "ct");
  writeFileSync(join(ct, "site.json"), '{"thresholds": {"bone": 0.7}}');
  t.match((await readModelFolder(ct)).problems, [{ message: /has no threshold/ }]);
});

t.test("a model's hash follows its content, not its formatting", async (t) => {
  const directory = t.testdir();
  const folder = copyModel(directory, "ct-tissue", "ct");
  const first = (await readModelFolder(folder)).model?.sha256;
  const manifest = { ...shipped("ct-tissue"), name: "ct" };
  const reversed = Object.fromEntries(Object.entries(manifest).reverse());
  writeFileSync(join(folder, "model.json"), JSON.stringify(reversed, null, 7));
  t.equal((await readModelFolder(folder)).model?.sha256, first);
  writeFileSync(join(folder, "model.json"), JSON.stringify({ ...manifest, version: "1.0.1" }));
  t.not((await readModelFolder(folder)).model?.sha256, first);
});

t.test("several inputs, windows, neighbours and attributes", async (t) => {
  const directory = t.testdir();
  const problemsOf = async (change: (m: Manifest) => void) => problemsAfter(directory, change);
  const sex = {
    tag: "PatientSex",
    encoding: "one_hot" as const,
    values: ["F", "M"],
    if_absent: { kind: "default" as const, numbers: [0.5, 0.5] },
  };
  const person = {
    kind: "attributes" as const,
    tensor: "person",
    dtype: "float32" as const,
    layout: "NC" as const,
    values: [sex],
  };
  const windows = [
    { center: 40, width: 400, function: "LINEAR" },
    { center: -600, width: 1500, function: "LINEAR" },
  ];
  const both = await problemsOf((m) => {
    m.inputs.push({ ...imageInputs(m)[0]!, tensor: "second" }, person);
    delete m.canary;
    m.stage = "draft";
    m.results.outputs = ["json"];
  });
  t.match(
    both.get("outputs[0].input"),
    /^Expected the image input on whose grid it is: "hu" or "second"$/,
  );
  t.equal(both.size, 1);

  const wrong = await problemsOf((m) => {
    m.inputs.push(
      { ...person, tensor: imageInputs(m)[0]!.tensor, layout: "N" },
      { ...person, values: [{ ...sex, if_absent: { kind: "default" as const, numbers: [1] } }] },
    );
  });
  t.match(wrong.get("inputs[1].tensor"), /is there twice/);
  t.match(wrong.get("inputs[1].layout"), /N holds a single number, found 2/);
  t.match(wrong.get("inputs[2].values[0].if_absent.numbers"), /Expected 2/);
  t.match(wrong.get("canary.inputs"), /Required for several inputs/);

  const channels = await problemsOf((m) => {
    Object.assign(m.inputs[0]!, {
      values: { kind: "windows", windows },
      neighbours: { before: 1, after: 1, edges: "repeat" },
    });
    m.accepts.dimensions = "2d";
  });
  t.match(channels.get("inputs[0].channels"), /Expected windows: each window is a channel/);
  t.match(channels.get("inputs[0].neighbours"), /need accepts.dimensions "2d_frames", found "2d"/);
  const dimensions = await problemsOf((m) => {
    Object.assign(m.inputs[0]!, { channels: "windows" });
  });
  t.match(dimensions.get("inputs[0].channels"), /Expected values of the kind "windows"/);
  const physical = await problemsOf((m) => {
    const first = { ...imageInputs(m)[0]!, monochrome1: "refuse" as const };
    m.inputs = [first, { ...first, tensor: "suv", values: { kind: "suv_bw" } }];
  });
  t.match(
    physical.get("inputs"),
    /the same values in all image inputs, where one takes real_world or suv_bw/,
  );
  t.match((await problemsOf((m) => (m.inputs = [person]))).get("inputs"), /an input of pixels/);
});

t.test("segments in the model's grid need one grid that is there and has a place", (t) => {
  const problemsOf = (change: (m: Manifest) => void) =>
    problemsIn(shipped("examples/brain-tissue-3d"), (m) => {
      for (const output of m.outputs)
        if (output.kind === "segmentation") output.segment_grid = "model";
      change(m);
    });
  const grid = (found: Map<string, string>) => found.get("outputs[0].segment_grid");
  t.equal(grid(problemsOf(() => 0)), undefined);
  t.match(
    grid(problemsOf((m) => (m.accepts.slices = { max_tilt_degrees: 3, max_missing: 0 }))),
    /Expected no accepts\.slices/,
  );
  const region = { model: "other", label: "x", margin_mm: 1 };
  t.match(
    grid(problemsOf((m) => (m.region = { ...region, when_empty: "negative" }))),
    /Expected region\.when_empty refuse or whole/,
  );
  t.equal(grid(problemsOf((m) => (m.region = { ...region, when_empty: "whole" }))), undefined);
  t.match(
    grid(
      problemsOf((m) => {
        const [first] = m.outputs;
        if (first?.kind === "segmentation") m.outputs.push({ ...first, segment_grid: "source" });
      }),
    ),
    /Expected one segment_grid/,
  );
  t.match(
    grid(
      problemsOf((m) => {
        const [input] = imageInputs(m);
        const [first] = m.outputs;
        m.inputs.push({ ...input!, tensor: "second" });
        if (first?.kind !== "segmentation") return;
        m.outputs = [
          { ...first, input: input!.tensor },
          { ...first, input: "second" },
        ];
      }),
    ),
    /Expected one input/,
  );
  t.match(
    grid(
      problemsOf((m) => {
        m.accepts.dimensions = "2d";
        Object.assign(m.inputs[0]!, { layout: "NCHW" });
      }),
    ),
    /Volumes alone/,
  );
  t.end();
});

/** What the rules over several fields say of a manifest after a change, by field. */
function problemsIn(base: Manifest, change: (m: Manifest) => void): Map<string, string> {
  const manifest = structuredClone(base);
  change(manifest);
  const found = new Map<string, string>();
  manifestCrossChecks(manifest, (path, message) => {
    const field = path.reduce<string>(
      (text, part) =>
        typeof part === "number" ? `${text}[${part}]` : text === "" ? part : `${text}.${part}`,
      "",
    );
    found.set(field, message);
  });
  return found;
}
