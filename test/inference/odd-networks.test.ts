/**
 * Networks that fit their manifests by shape, and whose numbers mean something else: each is
 * refused by name, or its result has a warning.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { int, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { sha256 } from "../../src/files/durable-files.js";
import { inferOnce } from "../../src/inference/infer-once.js";
import type { AttributeInput, ImageInput, Manifest } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { attributeNumbers, attributeReasons } from "../../src/models/attribute-numbers.js";
import { readModelFolder } from "../../src/models/read.js";
import { interpret } from "../../src/results/findings/findings.js";
import { failure } from "../support/expect.js";
import { imageOf } from "../support/images.js";
import { constant, ints64, meanOf, scalar } from "../support/model-parts.js";
import { ADDON, needs } from "../support/needs.js";
import { engine } from "../support/real-engine.js";
import { manifestOf } from "../support/test-models.js";
import { loadOptions, writeModel } from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

const SIDE = 16;
const options = () => ({ engine: engine(), providers: ["cpu"] as const });

const pixels = (side: number, value: (i: number) => number): Uint8Array =>
  new Uint8Array(Int16Array.from({ length: side * side }, (_, i) => value(i)).buffer);
const DARK = imageOf();

const plainInput: ImageInput = {
  tensor: "x",
  dtype: "float32",
  layout: "NCHW",
  size: { kind: "fixed", height: SIDE, width: SIDE },
  fit: "stretch",
  interpolation: "linear",
  values: { kind: "stored" },
  monochrome1: "as_stored",
  channels: "grayscale",
  colour_source: "refuse",
  normalisation: { kind: "none" },
  background: 0,
};

/** The folder of a draft with this graph. */
function network(
  t: Test,
  graph: ModelDescription,
  outputs: ModelOutput[],
  inputs: Partial<ImageInput>[] = [{}],
): string {
  const folder = join(t.testdir(), "network");
  mkdirSync(folder);
  const bytes = onnxModel(graph);
  writeFileSync(join(folder, "model.onnx"), bytes);
  const manifest: Manifest = {
    ...manifestOf("classifier"),
    name: "network",
    stage: "draft",
    files: [{ path: "model.onnx", sha256: sha256(bytes) }],
    accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "2d" },
    inputs: inputs.map((input) => ({ ...plainInput, ...input })),
    outputs,
    results: { outputs: ["json"] },
  };
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
  return folder;
}

/** What a model says of an image. */
async function inferred(folder: string, image = DARK) {
  const { model, problems } = await readModelFolder(folder);
  if (model === undefined) throw new Error(problems.map(({ message }) => message).join(" "));
  const { result } = await inferOnce(folder, model, image, options());
  const said = interpret(model.manifest.outputs, model.thresholds, {
    outputs: result.outputs,
    spacing: undefined,
  });
  return {
    ...said,
    outputs: result.outputs,
    codes: [...result.warnings, ...said.warnings].map(({ code }) => code),
  };
}

const unit = { value: "1", scheme: "UCUM", meaning: "no units" };
const mean: ModelOutput = {
  kind: "regression",
  tensor: "y",
  values: [{ name: "mean", unit, multiply: 1, add: 0 }],
};

t.test("odd networks", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());

  await t.test("values that the tensor's type cuts off are told", async (t) => {
    const codes = async (
      input: Partial<ImageInput>,
      value: (i: number) => number,
      sides = SIDE,
    ): Promise<string[]> => {
      const dtype = input.dtype ?? "uint8";
      const graph: ModelDescription = {
        name: "mean",
        inputs: [{ name: "x", dtype, shape: ["n", 1, "h", "w"] }],
        outputs: [{ name: "y", dtype: "float32", shape: ["n", 1] }],
        nodes: [
          { op: "Cast", inputs: ["x"], outputs: ["f"], attributes: { to: int(1) } },
          // Of an infinite value too a number comes out
          { op: "Tanh", inputs: ["f"], outputs: ["t"] },
          ...meanOf("t", "y"),
        ],
      };
      const size = { kind: "fixed", height: sides, width: sides } as const;
      const folder = network(t, graph, [mean], [{ dtype, size, ...input }]);
      return (await inferred(folder, imageOf({ pixels: pixels(SIDE, value) }))).codes;
    };
    const wide = (i: number) => (i * 37) % 4000;
    const bytes = (i: number) => (i % 2) * 255;
    t.strictSame(await codes({}, wide), ["values_cut"]);
    t.strictSame(await codes({}, () => -1), ["values_cut"]);
    t.strictSame(await codes({}, bytes), []);
    t.strictSame(await codes({ clip: [0, 255] }, wide), []);
    const scale = { kind: "scale", multiply: 255 / 4000, add: 0 } as const;
    t.strictSame(await codes({ normalisation: scale }, wide), []);
    t.strictSame(await codes({ dtype: "int16" }, wide), []);
    t.strictSame(await codes({ interpolation: "cubic" }, bytes, 40), [], "overshoot is meant");
    t.strictSame(await codes({ interpolation: "cubic" }, wide, 40), ["values_cut"]);
    const tenfold = { kind: "scale", multiply: 20, add: 0 } as const;
    t.strictSame(await codes({ dtype: "float16", normalisation: tenfold }, wide), ["values_cut"]);
    t.strictSame(await codes({ dtype: "float16" }, wide), []);
    const graph: ModelDescription = {
      name: "bytes",
      inputs: [{ name: "x", dtype: "uint8", shape: ["n", 1, SIDE, SIDE] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["n", 1] }],
      nodes: [
        { op: "Cast", inputs: ["x"], outputs: ["f"], attributes: { to: int(1) } },
        ...meanOf("f", "y"),
      ],
    };
    const checked = async (input: Partial<ImageInput>) =>
      modelsCheck(network(t, graph, [mean], [{ dtype: "uint8", ...input }]), options());
    t.match(await checked({}), {
      exitCode: 0,
      text: /x: uint8 holds whole numbers from 0 to 255, .*a clip or a normalisation/,
    });
    t.notMatch((await checked({ clip: [0, 255] })).text, /holds whole numbers/);
  });

  await t.test("values of a volume that are cut off are told too", async (t) => {
    const graph: ModelDescription = {
      name: "voxels",
      inputs: [{ name: "x", dtype: "uint8", shape: ["n", 1, "d", "h", "w"] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, "d", "h", "w"] }],
      nodes: [{ op: "Cast", inputs: ["x"], outputs: ["y"], attributes: { to: int(1) } }],
    };
    const output: ModelOutput = {
      kind: "segmentation",
      tensor: "y",
      activation: "label_map",
      postprocess: [],
      measurements: [],
      labels: Array.from({ length: 255 }, (_, i) => ({ label: `${i}` })),
    };
    const path = writeModel(t.testdir(), graph);
    const volume: ImageInput = { ...plainInput, dtype: "uint8", layout: "NCDHW" };
    const source = { size: { kind: "source" }, orientation: "RAS" } as const;
    const { id } = await engine().load(
      loadOptions(path, { inputs: [{ ...volume, ...source }], outputs: [output] }),
    );
    const cut = async (value: number) => {
      const slices = slicesOf(new Uint16Array(2 * 3 * 4).fill(value), [2, 3, 4]);
      return (await engine().infer(id, slices, { geometry: geometryOf("SPL") })).preparation.cut;
    };
    t.equal(await cut(255), undefined);
    t.equal(await cut(256), true);
  });

  await t.test("a map of a part is found with several images too", async (t) => {
    const sides = ["n", 1, SIDE, SIDE];
    const graph: ModelDescription = {
      name: "two",
      inputs: ["x", "z"].map((name) => ({ name, dtype: "float32" as const, shape: sides })),
      outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, SIDE / 2, SIDE / 2] }],
      initializers: [ints64("starts", [4, 4]), ints64("ends", [12, 12]), ints64("axes", [2, 3])],
      nodes: [
        { op: "Add", inputs: ["x", "z"], outputs: ["both"] },
        { op: "Slice", inputs: ["both", "starts", "ends", "axes"], outputs: ["y"] },
      ],
    };
    const output: ModelOutput = {
      kind: "heatmap",
      tensor: "y",
      input: "z",
      activation: "none",
      label: { label: "a" },
    };
    const checked = (change: object) =>
      modelsCheck(network(t, graph, [{ ...output, ...change }], [{}, { tensor: "z" }]), options());
    t.match(await checked({}), {
      exitCode: 1,
      text: /outputs\[0\]\.covers: The map is 8 wide and the tensor 16, but moves as many values/,
    });
    t.match(await checked({ covers: "centre" }), { exitCode: 0 });
  });

  await t.test("the highest of scores of several groups is refused", async (t) => {
    const labels = Array.from({ length: 12 }, (_, i) => ({ label: `${i}` }));
    const output: ModelOutput = {
      kind: "classification",
      tensor: "y",
      activation: "softmax",
      calibration: { kind: "none" },
      decision: "highest",
      labels,
    };
    const data = labels.map((_, i) => i);
    const groups = constant("groups", "y", [SIDE, SIDE], [4, 3], data);
    t.match(await modelsCheck(network(t, groups, [output]), options()), {
      exitCode: 1,
      text: /outputs\[0\]\.decision: Expected one group of 12 scores/,
    });
    const open: ModelDescription = {
      name: "open",
      inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "h", "w"] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["n", "h", "w"] }],
      initializers: [ints64("axes", [1])],
      nodes: [{ op: "Squeeze", inputs: ["x", "axes"], outputs: ["y"] }],
    };
    const size = { kind: "fixed", height: 4, width: 3 } as const;
    const error = await failure(inferred(network(t, open, [output], [{ size }])));
    t.equal(error.code, "output_invalid");
    t.match(error.message, /Expected one group of 12 scores, .*found shape \[1,4,3\]/);
    const one = constant("one", "y", [SIDE, SIDE], [12, 1], data);
    t.match(await modelsCheck(network(t, one, [output]), options()), { exitCode: 0 });
    const { findings } = await inferred(network(t, one, [output]));
    t.strictSame(
      findings.filter(({ present }) => present).map(({ label }) => label),
      ["11"],
    );
  });

  await t.test("a mask and a box of values that are the threshold are there", async (t) => {
    const map = (value: number) =>
      constant(
        "map",
        "y",
        [SIDE, SIDE],
        [1, SIDE, SIDE],
        new Array<number>(SIDE * SIDE).fill(value),
      );
    const label = { label: "a", threshold: 0.7 };
    const segments: ModelOutput = {
      kind: "segmentation",
      tensor: "y",
      activation: "none",
      postprocess: [],
      measurements: [],
      labels: [label],
    };
    const boxes: ModelOutput = {
      kind: "probability_map",
      tensor: "y",
      activation: "none",
      threshold: 0.7,
      minimum_area: 0,
      unclip: 0,
      max_boxes: 5,
      label,
    };
    const below = Math.fround(0.7) - 2 ** -24;
    for (const [value, there] of [
      [0.7, 1],
      [below, 0],
    ] as const) {
      // As large as the map, and larger: then what is known of a pixel is not computed
      for (const side of [SIDE, 4 * SIDE]) {
        const image = imageOf({
          format: { rows: side, columns: side },
          pixels: pixels(side, () => 0),
        });
        for (const type of ["binary", "fractional"] as const) {
          const output = { ...segments, segment_type: type };
          const { outputs } = await inferred(network(t, map(value), [output]), image);
          t.match(outputs, [{ counts: [there * side * side] }], `${value} ${side} ${type}`);
        }
        const { findings } = await inferred(network(t, map(value), [boxes]), image);
        t.match(findings, [{ present: there === 1 }], `${value} ${side}`);
      }
    }
  });

  await t.test("boxes in another format are told", async (t) => {
    const rows = [12, 12, 3, 4, 0.95, 0, 10, 8, 4, 4, 0.9, 0];
    const table: ModelOutput = {
      kind: "detection_table",
      tensor: "y",
      axes: "boxes_columns",
      columns: ["cx", "cy", "w", "h", "score", "class"],
      normalised: false,
      scores: { activation: "none" },
      nms: { kind: "none" },
      max_boxes: 10,
      classes: { first: 0 },
      labels: [{ label: "a", threshold: 0.5 }],
    };
    const graph = constant("rows", "y", [SIDE, SIDE], [2, 6], rows);
    const right = await inferred(network(t, graph, [table]));
    t.strictSame(right.codes, []);
    const edges = { ...table, columns: ["x1", "y1", "x2", "y2", "score", "class"] } as ModelOutput;
    const wrong = await inferred(network(t, graph, [edges]));
    t.strictSame(wrong.codes, ["boxes_implausible"]);
    t.match(wrong.warnings[0]?.message, /end before they begin.*format/);
    t.match(wrong.findings, [{ label: "a", present: false }]);
  });

  await t.test("points that all lie in one pixel are told", async (t) => {
    const points = (normalised: boolean, columns = ["x", "y", "score"]): ModelOutput =>
      ({
        kind: "keypoints",
        tensor: "y",
        table: { columns, normalised, counted_from: "edges" },
        activation: "none",
        labels: [
          { label: "p", threshold: 0.5 },
          { label: "q", threshold: 0.5 },
        ],
      }) as ModelOutput;
    const of = (data: number[]) => constant("points", "y", [SIDE, SIDE], [2, 3], data);
    const relative = of([0.2, 0.3, 0.9, 0.8, 0.7, 0.9]);
    t.strictSame((await inferred(network(t, relative, [points(false)]))).codes, [
      "points_implausible",
    ]);
    t.strictSame((await inferred(network(t, relative, [points(true)]))).codes, []);
    const unsure = of([0.2, 0.3, 0.1, 0.8, 0.7, 0.1]);
    t.strictSame((await inferred(network(t, unsure, [points(false)]))).codes, []);
  });

  await t.test("the softmax of a single score is refused", async (t) => {
    const label = { label: "a", threshold: 0.5 };
    const score: ModelOutput = {
      kind: "classification",
      tensor: "y",
      activation: "softmax",
      calibration: { kind: "none" },
      labels: [label],
    };
    const graph = constant("score", "y", [SIDE, SIDE], [1], [3]);
    t.match(await modelsCheck(network(t, graph, [score]), options()), {
      exitCode: 1,
      text: /outputs\[0\]\.activation: The softmax of a single score is always 1/,
    });
    const two = constant("two", "y", [SIDE, SIDE], [2], [3, 1]);
    const ignoring = { ...score, ignored: [1] };
    t.match(await modelsCheck(network(t, two, [ignoring]), options()), { exitCode: 0 });
    const boxes: ModelOutput = {
      kind: "detection",
      boxes: { tensor: "y", format: "xyxy", normalised: false },
      scores: { tensor: "y", activation: "softmax" },
      max_boxes: 1,
      labels: [label],
    };
    const table: ModelOutput = {
      kind: "detection_table",
      tensor: "y",
      axes: "boxes_columns",
      columns: ["x1", "y1", "x2", "y2", "class_scores"],
      normalised: false,
      scores: { activation: "softmax", labels_per_box: "one" },
      nms: { kind: "none" },
      max_boxes: 1,
      labels: [label],
    };
    for (const output of [boxes, table])
      t.match(await modelsCheck(network(t, graph, [output]), options()), {
        exitCode: 1,
        text: /outputs\[0\]\.scores\.activation: The softmax of a single score is always 1/,
      });
  });

  await t.test("a graph that is another each time is named", async (t) => {
    const graph: ModelDescription = {
      name: "random",
      inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, SIDE, SIDE] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["n", 1] }],
      initializers: [scalar("nothing", 0)],
      nodes: [{ op: "RandomUniformLike", inputs: ["x"], outputs: ["r"] }, ...meanOf("r", "y")],
    };
    t.match(await modelsCheck(network(t, graph, [mean]), options()), {
      exitCode: 1,
      text: /"y" differs each time that the graph is given the same image/,
    });
  });
});

t.test("an attribute whose fraction the tensor has no room for is absent", (t) => {
  const thickness = (
    dtype: AttributeInput["dtype"],
    multiply = 1,
    if_absent: AttributeInput["values"][number]["if_absent"] = { kind: "refuse" },
  ) => {
    const values = { tag: "SliceThickness", encoding: "number", multiply, add: 0, if_absent };
    const input = { kind: "attributes", tensor: "a", dtype, layout: "NC", values: [values] };
    return { inputs: [input] } as unknown as Pick<Manifest, "inputs">;
  };
  const image = (SliceThickness: string) => imageOf({ attributes: { SliceThickness } });
  t.strictSame(attributeNumbers(thickness("float32"), image("2.5")), [[2.5]]);
  t.strictSame(attributeNumbers(thickness("int64", 10), image("2.3")), [[23]]);
  t.match(attributeReasons(thickness("int64"), image("2.5")), [
    { code: "attribute_slice_thickness", message: /of which a whole number is made \(int64\)/ },
  ]);
  const given = thickness("int32", 1, { kind: "default", numbers: [3] });
  t.strictSame(attributeNumbers(given, image("2.5")), [[3]]);
  t.equal(attributeReasons(thickness("int32"), image("3e9")).length, 1);
  t.equal(attributeReasons(thickness("float16"), image("70000")).length, 1);
  t.end();
});
