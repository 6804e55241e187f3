/** Labels that exclude each other, values of bins, and scores of all frames together. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { float, onnxModel } from "../../../scripts/lib/onnx-model.js";
import { sha256 } from "../../../src/files/durable-files.js";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import { readImage } from "../../../src/images/read-image.js";
import { infer } from "../../../src/inference/infer-image.js";
import { replay } from "../../../src/inference/replay.js";
import type { Manifest } from "../../../src/manifest/manifest.js";
import type { Classification } from "../../../src/manifest/outputs/classification.js";
import { labelsOf } from "../../../src/manifest/outputs/outputs.js";
import type { Regression } from "../../../src/manifest/outputs/regression.js";
import { manifestSchema } from "../../../src/manifest/rules.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { interpret, interpretOver } from "../../../src/results/findings/findings.js";
import { legendOf } from "../../../src/results/picture/legend.js";
import { observedIn } from "../../../src/results/receipt/observed.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { meanOf, sct, sourceSize } from "../../support/model-parts.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { multiFrame } from "../../support/series.js";
import { manifestOf } from "../../support/test-models.js";
import { objectErrors } from "../../support/validators.js";

const label = (name: string, threshold?: number) => ({
  label: name,
  code: sct("27925004", "Nodule"),
  ...(threshold === undefined ? {} : { threshold }),
});
const grades: Classification = {
  kind: "classification",
  tensor: "grades",
  activation: "softmax",
  calibration: { kind: "none" },
  labels: ["normal", "mild", "severe"].map((name) => label(name)),
  decision: "highest",
};
const nodule: Classification = {
  kind: "classification",
  tensor: "nodule",
  activation: "sigmoid",
  calibration: { kind: "none" },
  labels: [label("nodule", 0.6)],
  over_frames: "noisy_or",
};
const YEAR = { value: "a", scheme: "UCUM", meaning: "year" };
const age: Regression = {
  kind: "regression",
  tensor: "age",
  activation: "softmax",
  values: [
    {
      name: "Age",
      code: { value: "63900-5", scheme: "LN", meaning: "Current age or age at death" },
      unit: YEAR,
      multiply: 1,
      add: 0,
      bins: [10, 20, 40],
    },
  ],
};

const told = (output: Classification, scores: number[], frame?: number) =>
  interpret([output], [output.labels.map(({ threshold }) => threshold ?? NaN)], {
    outputs: [{ kind: "classification", tensor: output.tensor, scores: Float32Array.from(scores) }],
    spacing: undefined,
    frame,
  });

t.test("of labels that exclude each other the highest is there, with its margin", (t) => {
  const { findings, warnings } = told(grades, [0.25, 0.625, 0.125]);
  const code = label("").code;
  t.strictSame(findings, [
    { label: "normal", code, score: 0.25, present: false },
    { label: "mild", code, score: 0.625, present: true, margin: 0.375 },
    { label: "severe", code, score: 0.125, present: false },
  ]);
  t.strictSame(warnings, []);
  const tied = told(grades, [0.2, 0.4, 0.4], 3);
  t.match(
    tied.findings.map(({ present, margin }) => [present, margin]),
    [
      [false, undefined],
      [true, 0],
      [false, undefined],
    ],
  );
  t.match(tied.warnings, [{ code: "classes_tied", message: /"mild" and "severe" on frame 3/ }]);
  t.match(
    told(grades, [-3, -1, -2]).findings[1],
    { present: true, margin: 1 },
    "logits may be below 0",
  );
  t.throws(() => told(grades, [0, NaN, 1]), { code: "output_invalid" });
  t.end();
});

t.test("scores of all frames together", (t) => {
  const frames = [0.5, 0.25, 0.75].map((score) => ({ label: "nodule", score, present: false }));
  const over = (over_frames: NonNullable<Classification["over_frames"]>) =>
    interpretOver([{ ...nodule, over_frames }], [[0.6]], frames).findings;
  t.match(over("maximum"), [
    { score: 0.75, present: true, threshold: 0.6, over_frames: "maximum" },
  ]);
  t.match(over("mean"), [{ score: 0.5, present: false, over_frames: "mean" }]);
  t.match(over("noisy_or"), [
    { score: 1 - 0.5 * 0.75 * 0.25, present: true, over_frames: "noisy_or" },
  ]);
  t.notOk("frame" in over("mean")[0]!);
  const alone = { ...nodule };
  delete alone.over_frames;
  t.strictSame(interpretOver([alone, age], [[0.6], []], frames).findings, []);
  const three = [
    ["normal", 0.5, 0.1],
    ["mild", 0.25, 0.25],
    ["severe", 0.25, 0.65],
  ].flatMap(([name, ...scores]) =>
    scores.map((score) => ({ label: name as string, score: score as number, present: false })),
  );
  const [normal, mild, severe] = interpretOver(
    [{ ...grades, over_frames: "mean" }],
    [[]],
    three,
  ).findings;
  t.match([normal!.present, mild!.present, severe!.present], [false, false, true]);
  t.ok(Math.abs(severe!.margin! - 0.15) < 1e-12);
  const findings = [...over("mean"), ...frames.map((one) => ({ ...one, present: true }))];
  t.strictSame(observedIn({ findings }), [{ label: "nodule", present: false, score: 0.5 }]);
  t.end();
});

t.test("the mean of bins and its standard deviation", (t) => {
  const value = (output: Regression, scores: number[]) =>
    interpret([output], [[]], {
      outputs: [{ kind: "regression", tensor: "age", values: Float32Array.from(scores) }],
      spacing: undefined,
    }).measurements;
  t.match(value(age, [0.5, 0.25, 0.25]), [
    { name: "Age", value: 20, unit: YEAR },
    { name: "Age, SD", value: Math.sqrt(150), unit: YEAR, derivation: { value: "386136009" } },
  ]);
  const months = { ...age, values: [{ ...age.values[0]!, multiply: -12, add: 5 }] };
  t.match(value(months, [0.5, 0.25, 0.25]), [{ value: -235 }, { value: 12 * Math.sqrt(150) }]);
  t.match(value(age, [0, 1, 0]), [{ value: 20 }, { value: 0 }]);
  t.throws(() => value(age, [0.5, 0.5, 0.5]), { code: "output_invalid", message: /add up to 1/ });
  t.throws(() => value(age, [1.5, -0.5, 0]), { code: "output_invalid" });
  t.throws(() => value(age, [0.5, 0.5]), { code: "output_invalid", message: /3 values/ });
  t.end();
});

t.test("what a manifest may say of them", (t) => {
  const messages = (...outputs: Manifest["outputs"]) => {
    const manifest = {
      ...manifestOf("classifier"),
      stage: "draft",
      results: { outputs: ["json"] },
      outputs,
    };
    manifest.accepts.modality = ["CT"];
    return manifestSchema.safeParse(manifest).error?.issues.map(({ message }) => message) ?? [];
  };
  t.strictSame(messages(grades, nodule, age), []);
  t.match(messages({ ...grades, labels: [label("one")] }), [/two or more/]);
  t.match(messages({ ...grades, labels: [label("a", 0.5), label("b")] }), [
    /the highest score decides/,
  ]);
  t.match(messages({ ...nodule, activation: "none" }), [/noisy_or is of probabilities/]);
  t.match(messages({ ...age, values: [...age.values, { ...age.values[0]!, name: "B" }] }), [
    /Bins are of one value/,
  ]);
  const plain = { ...age.values[0]! };
  delete plain.bins;
  t.match(messages({ ...age, values: [plain] }), [/Only with bins/]);
  t.match(messages({ ...grades, tensor: "other" }, grades), [
    /also one of outputs\[0\]/,
    /also/,
    /also/,
  ]);
  const volume = { ...manifestOf("volume"), outputs: [nodule] };
  const issues = manifestSchema.safeParse(volume).error!.issues.map(({ message }) => message);
  t.ok(issues.includes("A volume has one score already"));
  t.end();
});

/**
 * Of the mean of a frame: three grades, a nodule, an age that is the same for all, and the frame
 * itself as a map.
 */
const graph = {
  name: "classes",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  outputs: [
    { name: "grades", dtype: "float32", shape: ["n", 3] },
    { name: "nodule", dtype: "float32", shape: ["n", 1] },
    { name: "age", dtype: "float32", shape: ["n", 3] },
    { name: "map", dtype: "float32", shape: ["n", 1, "h", "w"] },
  ],
  initializers: [
    { name: "gw", dtype: "float32", shape: [1, 3], data: [-1, 0, 1.5] },
    { name: "gb", dtype: "float32", shape: [3], data: [1, 0, -1] },
    { name: "nw", dtype: "float32", shape: [1, 1], data: [1] },
    { name: "nb", dtype: "float32", shape: [1], data: [-2] },
    { name: "aw", dtype: "float32", shape: [1, 3], data: [0, 0, 0] },
    { name: "ab", dtype: "float32", shape: [3], data: [Math.log(2), 0, 0] },
  ],
  nodes: [
    ...meanOf("x", "row"),
    ...[
      ["g", "grades"],
      ["n", "nodule"],
      ["a", "age"],
    ].map(([of, output]) => ({
      op: "Gemm",
      inputs: ["row", `${of}w`, `${of}b`],
      outputs: [output!],
      attributes: { alpha: float(1) },
    })),
    { op: "Identity", inputs: ["x"], outputs: ["map"] },
  ],
} satisfies Parameters<typeof onnxModel>[0];

t.test(
  "several heads over the frames of an image, beside a map, to the files",
  { skip: needs(ADDON) },
  async (t) => {
    const { engine, folder } = engineWithFolder(t, "classes");
    const bytes = onnxModel(graph);
    const modelPath = join(folder, "model.onnx");
    writeFileSync(modelPath, bytes);
    const manifest: Manifest = {
      ...manifestOf("classifier"),
      name: "classes",
      inputs: [
        {
          ...sourceSize,
          values: { kind: "modality" },
          colour_source: "refuse",
          monochrome1: "refuse",
        },
      ],
      outputs: [
        { ...grades, over_frames: "mean" },
        nodule,
        age,
        { kind: "heatmap", tensor: "map", activation: "none", label: { label: "attention" } },
      ],
    };
    const { version, inputs, outputs, batching } = manifest;
    const loaded = await engine.load({
      modelPath,
      name: "classes",
      version,
      inputs,
      outputs,
      batching,
      provider: "cpu",
    });
    const model: ModelEntry = {
      name: "classes",
      version,
      sha256: sha256(bytes),
      manifest,
      site: { thresholds: {} },
      thresholds: outputs.map((output) =>
        labelsOf(output).map(({ threshold }) => threshold ?? NaN),
      ),
      state: "ready",
      nativeId: loaded.id,
      provider: "cpu",
    };
    const inputPath = join(folder, "image.dcm");
    // Frames of 0, 1 and 2
    writeFileSync(inputPath, multiFrame([0, 9, 18]));
    const roots = { input: undefined, output: undefined };
    const task = {
      requestId: "test",
      inputPath,
      outputFolder: join(folder, "out"),
      cancelId: 1,
      roots,
    };
    const answer = await infer({ ...task, priority: "routine" }, { engine, models: [model] });
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const [result] = receipt.models;
    const softmax = (logits: number[]) => {
      const powers = logits.map(Math.exp);
      return powers.map((power) => power / powers.reduce((a, b) => a + b));
    };
    const frames = [0, 1, 2].map((m) => softmax([1 - m, 0, 1.5 * m - 1]));
    const mean = [0, 1, 2].map((i) => frames.reduce((sum, scores) => sum + scores[i]! / 3, 0));
    const near = (found: number | undefined, wanted: number) =>
      t.ok(Math.abs(found! - wanted) < 1e-6, `${found} is ${wanted}`);
    const whole = result!.findings.slice(0, 4);
    t.match(whole, [
      { label: "normal", present: false, over_frames: "mean", frame: undefined },
      { label: "mild", present: false, over_frames: "mean" },
      { label: "severe", present: true, over_frames: "mean" },
      { label: "nodule", present: true, threshold: 0.6, over_frames: "noisy_or" },
    ]);
    for (const [i, score] of mean.entries()) near(whole[i]!.score, score);
    near(whole[2]!.margin, mean[2]! - mean[0]!);
    near(
      whole[3]!.score,
      1 - [2, 1, 0].reduce((left, logit) => left * (1 - 1 / (1 + Math.exp(logit))), 1),
    );
    t.strictSame(
      result!.findings
        .slice(4)
        .flatMap(({ present, frame, label: name }) => (present ? [[name, frame]] : [])),
      [
        ["normal", 1],
        ["severe", 2],
        ["severe", 3],
      ],
    );
    t.match(
      result!.measurements.map(({ name, frame }) => [name, frame]),
      [1, 2, 3].flatMap((frame) => [
        ["Age", frame],
        ["Age, SD", frame],
      ]),
    );
    for (const { name, value } of result!.measurements)
      near(value, name === "Age" ? 20 : Math.sqrt(150));
    const paths = answer.models[0]!.outputs.map(({ path }) => path);
    const { attributes } = openFile(readFileSync(paths.find((path) => path.endsWith(".sr.dcm"))!));
    const numbers = (item: typeof attributes): (typeof attributes)[] => [
      ...(item.string("ValueType") === "NUM" ? [item] : []),
      ...(item.sequence("ContentSequence") ?? []).flatMap(numbers),
    ];
    const meaningOf = (item: typeof attributes | undefined, of: string) =>
      item?.sequence(of)?.[0]?.string("CodeMeaning");
    const said = numbers(attributes).map((item) => [
      meaningOf(item, "ConceptNameCodeSequence"),
      meaningOf(item.sequence("ContentSequence")?.[0], "ConceptCodeSequence"),
    ]);
    const has = (...wanted: unknown[]) =>
      said.some((one) => JSON.stringify(one) === JSON.stringify(wanted));
    t.ok(has("Score", "Mean") && has("Score", "Noisy-or") && has("Score", undefined));
    t.ok(has("Margin of the score to the second", undefined));
    t.ok(has("Current age or age at death", "Standard Deviation"));
    if (commandsAre("dciodvfy") === false)
      for (const path of paths.filter((each) => each.endsWith(".dcm")))
        t.strictSame(objectErrors(path), []);
    const scope = { frames: 3, called: "frame", heat: { low: 0, high: 1 } };
    const { rows, headline } = legendOf(outputs, result!.findings, result!.measurements, scope);
    t.equal(headline, "2 of 4 labels found");
    t.match(rows, [
      { label: "severe", value: /^mean score 0\.46, 0\.13 above the second {2}· {2}in 2 of 3$/ },
      { label: "nodule", value: /^noisy-or score 0\.68, threshold 0\.60 {2}· {2}in 0 of 3$/ },
    ]);
    const image = await readImage(readFileSync(inputPath));
    t.match(await replay({ receipt, image, models: [model], engine }), [
      { verdict: "ok" },
      { verdict: "ok" },
    ]);
    receipt.models[0]!.findings[2]!.margin! += 1e-9;
    t.match(await replay({ receipt, image, models: [model], engine }), [
      { verdict: "ok" },
      { verdict: "differs" },
    ]);
  },
);
