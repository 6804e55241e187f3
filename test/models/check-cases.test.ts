/** `models check` and `init` name what cannot run, or whose results could not be told apart. */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import t, { type Test } from "tap";
import { int, ints, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import { conceptsLike, conceptsNamed, readConcepts } from "../../src/models/codes.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsInit } from "../../src/commands/models/init.js";
import { judgeManifest } from "../../src/models/read.js";
import { graphFiles } from "../../src/models/graph-files.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { ADDON, needs } from "../support/needs.js";
import { engine } from "../support/real-engine.js";
import { manifestOf, writeTestModel } from "../support/test-models.js";

const CASES = resolve("../shared/cases/models");
const options = () => ({ engine: engine(), providers: ["cpu"] as const });

/** A copy of a shared case, in a folder of its model's name. */
function caseOf(t: Test, name: string): string {
  const { name: model } = JSON.parse(
    readFileSync(join(CASES, name, "model.json"), "utf8"),
  ) as Manifest;
  const folder = join(t.testdir(), model);
  cpSync(join(CASES, name), folder, { recursive: true });
  return folder;
}

t.test("what is of the wrong type is one mistake", async (t) => {
  const directory = writeTestModel(t.testdir(), "classifier");
  const base = manifestOf("classifier");
  for (const [field, given] of [
    ["files", ""],
    ["inputs", "x".repeat(40)],
    ["outputs", "x".repeat(40)],
    ["accepts", "series"],
    ["accepts", 5],
  ] as const) {
    const { problems } = await judgeManifest(directory, { ...base, [field]: given });
    const own = problems.filter(({ path }) => path === field);
    t.equal(own.length, 1, `${field} once`);
    t.match(own, [{ message: /^Expected an? (array|object)/ }]);
    t.notMatch(problems.map(({ message }) => message).join(), /"undefined"/);
  }
});

/** The paths of the mistakes that a manifest has, changed as said. */
function mistakes(manifest: object): string[] {
  const parsed = manifestSchema.safeParse(manifest);
  return parsed.success
    ? []
    : parsed.error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`);
}

t.test("models that cannot run, or be told apart", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());

  await t.test("two outputs have no label in common", { skip: needs(CASES) }, async (t) => {
    const { text, exitCode } = await modelsCheck(caseOf(t, "two-heads"), options());
    t.equal(exitCode, 1);
    for (const label of ["low", "mid", "high"])
      t.match(
        text,
        `The label "${label}" is also one of outputs[0], and findings are told apart by their names`,
      );
    t.match(text, /twohead: 3 mistakes/);
  });

  await t.test("values of two outputs, and labels beside a heat map", (t) => {
    const value = { name: "Length", unit: { value: "mm", scheme: "UCUM", meaning: "millimeter" } };
    const regression = (tensor: string) => ({
      kind: "regression",
      tensor,
      values: [{ ...value, multiply: 1, add: 0 }],
    });
    const base = manifestOf("classifier");
    const known = mistakes(base);
    const more = (outputs: unknown[]) =>
      mistakes({ ...base, outputs }).filter(
        (one) => !known.includes(one) && one.includes("is also"),
      );
    t.match(more([regression("a"), regression("b")]), [
      /outputs\.1\.values\.0\.name: The value "Length"/,
    ]);
    const [first] = base.outputs;
    const [label] = (first as { labels: unknown[] }).labels;
    t.strictSame(more([first, { kind: "heatmap", tensor: "b", activation: "none", label }]), []);
    t.end();
  });

  await t.test(
    "softmax goes over the classes of each of 25 levels",
    { skip: needs(CASES) },
    async (t) => {
      const folder = caseOf(t, "softmax-rank3");
      const { manifest } = JSON.parse(
        `{"manifest":${readFileSync(join(folder, "model.json"), "utf8")}}`,
      ) as {
        manifest: Manifest;
      };
      const { id } = await engine().load({
        modelPath: join(folder, "model.onnx"),
        name: "levels",
        version: "1",
        provider: "cpu",
        inputs: manifest.inputs,
        outputs: manifest.outputs,
        batching: { max: 1 },
      });
      const pixels = new Uint8Array(2 * 224 * 224);
      const { outputs } = await engine().infer(
        id,
        [
          {
            format: {
              rows: 224,
              columns: 224,
              samplesPerPixel: 1,
              bitsAllocated: 16,
              bitsStored: 16,
              highBit: 15,
              signed: false,
              float: false,
              photometricInterpretation: "MONOCHROME2",
              packed422: false,
            },
            data: pixels,
            interpretation: {
              modality: { kind: "identity" },
              units: undefined,
              voi: [],
              padding: undefined,
              palette: undefined,
            },
            pixelAspect: 1,
          },
        ],
        {},
      );
      const [output] = outputs;
      const scores = output?.kind === "classification" ? Array.from(output.scores) : [];
      t.equal(scores.length, 75);
      for (let level = 0; level < 25; level++) {
        const sum = scores.slice(level * 3, level * 3 + 3).reduce((a, b) => a + b, 0);
        t.ok(Math.abs(sum - 1) < 1e-5, `the scores of level ${level} are together 1`);
      }
    },
  );

  await t.test(
    "graphs that no input can feed are named by check and by init",
    { skip: needs(CASES) },
    async (t) => {
      for (const [name, said] of [
        ["chw", /float32 \[1, 224, 224\]: it has no axis of images. Export it/],
        ["f64", /No input can be float64, .* export the graph with an input of float32/],
      ] as const) {
        const folder = caseOf(t, name);
        t.match(await modelsCheck(folder, options()), { exitCode: 1, text: said }, name);
        const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;
        manifest.inputs[0]!.dtype = "float32";
        writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
        t.match(
          await modelsCheck(folder, options()),
          { exitCode: 1, text: said },
          `${name}, as check asked for it`,
        );
        const alone = t.testdir({ alone: {} });
        cpSync(join(CASES, name, "model.onnx"), join(alone, "alone", "model.onnx"));
        t.match(
          await modelsInit(join(alone, "alone", "model.onnx"), engine()),
          { text: said },
          `init of ${name}`,
        );
      }
    },
  );

  await t.test(
    "what comes out in another number than there are labels is found before an image",
    async (t) => {
      // The width that is left open is that of the image, so that there is a score for each column
      const graph: ModelDescription = {
        name: "columns",
        inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "h", "w"] }],
        outputs: [{ name: "y", dtype: "float32", shape: ["n", "scores"] }],
        nodes: [
          {
            op: "ReduceMean",
            inputs: ["x"],
            outputs: ["y"],
            attributes: { axes: ints([1, 2]), keepdims: int(0) },
          },
        ],
      };
      const folder = writeTestModel(t.testdir(), "classifier");
      const model = join(folder, "model.onnx");
      writeFileSync(model, onnxModel(graph));
      const draft = manifestOf("classifier");
      const [input] = draft.inputs;
      const manifest = {
        ...draft,
        name: basename(folder),
        stage: "draft",
        results: { outputs: ["json"] },
        files: await graphFiles(model),
        accepts: { ...draft.accepts, modality: ["CR"] },
        inputs: [{ ...input, tensor: "x", size: { kind: "fixed", height: 8, width: 8 } }],
        outputs: [{ ...draft.outputs[0], tensor: "y" }],
        canary: undefined,
      };
      writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
      const { text, exitCode } = await modelsCheck(folder, options());
      t.equal(exitCode, 1);
      t.match(
        text,
        /\(running it on a made-up image\): Expected \d+ scores, one for each label, from the output "y", found shape \[1,8\]/,
      );
    },
  );
});

t.test("a model of volumes does not take clips", (t) => {
  const base = manifestOf("volume");
  const clips = (accepts: object) =>
    mistakes({ ...base, accepts: { ...base.accepts, ...accepts } }).filter((one) =>
      one.includes("no volume"),
    );
  t.match(clips({ modality: ["US"] }), [/accepts\.sop_class: Frames of US are times or views/]);
  t.match(clips({ modality: ["US"], sop_class: ["1.2.840.10008.5.1.4.1.1.3.1"] }), [
    /accepts\.dimensions/,
  ]);
  t.strictSame(clips({ modality: ["US"], sop_class: ["1.2.840.10008.5.1.4.1.1.6.2"] }), []);
  t.strictSame(clips({ modality: ["CT", "US"] }), []);
  t.end();
});

t.test("a number is no name of a concept", async (t) => {
  const concepts = await readConcepts();
  for (const name of ["1", "12", "0", "-"]) {
    t.strictSame(conceptsLike(name, concepts), [], name);
    t.strictSame(conceptsNamed(name, concepts), [], name);
  }
  t.ok(conceptsLike("lung", concepts).length > 0);
});
