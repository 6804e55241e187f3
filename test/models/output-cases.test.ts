/**
 * Outputs as networks mean them: maps of a part of their input, boxes in pixels of the source,
 * columns that are no label, and logits that are interpolated. The numbers are those of the shared
 * cases, and of what is computed here by hand.
 */
import { cpSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t, { type Test } from "tap";
import {
  int,
  ints,
  onnxModel,
  type ElementType,
  type ModelDescription,
} from "../../scripts/lib/onnx-model.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsInit } from "../../src/commands/models/init.js";
import { modelsTry } from "../../src/commands/models/try.js";
import { encodeNpy } from "../../src/engine/npy.js";
import { sha256 } from "../../src/files/durable-files.js";
import { readImage } from "../../src/images/read-image.js";
import { inferOnce } from "../../src/inference/infer-once.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import { caveats } from "../../src/models/acceptance.js";
import { attributeNumbers } from "../../src/models/attribute-numbers.js";
import { readModelFolder } from "../../src/models/read.js";
import { decodingSteps } from "../../src/models/transform-steps.js";
import { interpret } from "../../src/results/findings/findings.js";
import { failure } from "../support/expect.js";
import { ints64 } from "../support/model-parts.js";
import { ADDON, needs } from "../support/needs.js";
import { imageOf } from "../support/images.js";
import { engine } from "../support/real-engine.js";
import { writeTestModel } from "../support/test-models.js";

const CASES = resolve("../shared/cases/2026-11-28/models");
const options = () => ({ engine: engine(), providers: ["cpu"] as const });

/** A copy of a case's model, with its outputs changed as said. */
function caseOf(t: Test, name: string, model: string, changes: readonly object[] = []): string {
  const folder = join(t.testdir(), model);
  cpSync(join(CASES, name, model), folder, { recursive: true });
  const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;
  manifest.outputs.forEach((output, o) => Object.assign(output, changes[o]));
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
  return folder;
}

const pictureOf = (name: string, file: string) => readImage(readFileSync(join(CASES, name, file)));

/** What a model says of an image, and the findings that are made of it. */
async function inferred(folder: string, image: Awaited<ReturnType<typeof readImage>>) {
  const { model, problems } = await readModelFolder(folder);
  if (model === undefined) throw new Error(problems.map(({ message }) => message).join(" "));
  const { result } = await inferOnce(folder, model, image, options());
  const { manifest, thresholds } = model;
  const said = interpret(manifest.outputs, thresholds, {
    outputs: result.outputs,
    spacing: image.spacing(0),
  });
  return { ...said, outputs: result.outputs, model };
}

t.test("outputs as networks mean them", { skip: needs(ADDON, CASES) }, async (t) => {
  t.teardown(() => engine().close());

  await t.test("a map of a part is named, and lies where it is", async (t) => {
    const name = "valid-convolution";
    t.match(await modelsCheck(caseOf(t, name, "unet"), options()), {
      exitCode: 1,
      text: /outputs\[0\]\.covers: The map is 196 x 196, no whole part of the tensor's 284 x 284: say which part it covers\. "centre"/,
    });
    const folder = caseOf(t, name, "unet", [{ covers: "centre" }]);
    t.match(await modelsCheck(folder, options()), { exitCode: 0 });
    const image = await pictureOf(name, "disc.dcm");
    t.match((await modelsTry(folder, image, options())).text, /y: pixels of each label 2809$/m);
    const { model } = await inferred(folder, image);
    t.match(caveats(model.manifest, image), [
      { code: "part_covered", message: /"y" covers the middle only; outside it nothing is found/ },
    ]);
    t.match(decodingSteps(model.manifest, model.thresholds), [
      { step: "map", tensor: "y", covers: "centre" },
    ]);
    const beyond = caseOf(t, name, "unet", [{ covers: "start", stride: 2 }]);
    t.match(await modelsCheck(beyond, options()), {
      exitCode: 1,
      text: /outputs\[0\]\.stride: Expected a map that lies within the tensor's 284 x 284; 196 x 196 with a stride of 2/,
    });
  });

  await t.test("a map that moves as the image does is no coarser one", async (t) => {
    // 64 of 128 pixels: half of the sides, but pixel for pixel; and a mean of each 2 x 2
    const folder = caseOf(t, "valid-convolution", "unet");
    const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;
    const checked = async (
      nodes: ModelDescription["nodes"],
      more: object = {},
      { dtype = "float32", rowsOnly = false }: { dtype?: ElementType; rowsOnly?: boolean } = {},
    ) => {
      const graph = onnxModel({
        name: "half",
        inputs: [{ name: "x", dtype, shape: ["n", 1, 128, 128] }],
        outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, 64, rowsOnly ? 128 : 64] }],
        initializers: [
          ints64("starts", rowsOnly ? [32] : [32, 32]),
          ints64("ends", rowsOnly ? [96] : [96, 96]),
          ints64("axes", rowsOnly ? [2] : [2, 3]),
        ],
        nodes,
      });
      writeFileSync(join(folder, "model.onnx"), graph);
      const changed = structuredClone(manifest);
      changed.files = [{ path: "model.onnx", sha256: sha256(graph) }];
      const scale = { kind: "scale", multiply: 255, add: 0 };
      Object.assign(changed.inputs[0]!, {
        size: { kind: "fixed", height: 128, width: 128 },
        ...(dtype === "float32" ? {} : { dtype, clip: [0, 1], normalisation: scale }),
      });
      Object.assign(changed.outputs[0]!, more);
      writeFileSync(join(folder, "model.json"), JSON.stringify(changed));
      return modelsCheck(folder, options());
    };
    const cut = { op: "Slice", inputs: ["x", "starts", "ends", "axes"] };
    const middle = [
      { ...cut, outputs: ["part"] },
      { op: "Identity", inputs: ["part"], outputs: ["y"] },
    ];
    t.match(await checked(middle), {
      exitCode: 1,
      text: /outputs\[0\]\.covers: The map is 64 wide and the tensor 128, but moves as many values/,
    });
    t.match(await checked(middle, { covers: "centre" }), { exitCode: 0 });
    t.match(await checked(middle, {}, { rowsOnly: true }), {
      exitCode: 1,
      text: /outputs\[0\]\.covers: The map is 64 high and the tensor 128/,
    });
    const cast = { op: "Cast", inputs: ["part"], outputs: ["y"], attributes: { to: int(1) } };
    for (const dtype of ["uint8", "float16"] as const)
      t.match(
        await checked([{ ...cut, outputs: ["part"] }, cast], {}, { dtype }),
        { exitCode: 1, text: /outputs\[0\]\.covers: The map is 64 wide and the tensor 128/ },
        dtype,
      );
    const sides = { kernel_shape: ints([2, 2]), strides: ints([2, 2]) };
    const coarse = [
      { op: "AveragePool", inputs: ["x"], outputs: ["part"], attributes: sides },
      { op: "Identity", inputs: ["part"], outputs: ["y"] },
    ];
    t.match(await checked(coarse), { exitCode: 0 });
  });

  await t.test("a softmax or sigmoid after that of the graph is named", async (t) => {
    const folder = caseOf(t, "valid-convolution", "unet");
    const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;
    const checked = async (last: string, output: object) => {
      const graph = onnxModel({
        name: "classes",
        inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 16, 16] }],
        outputs: [{ name: "y", dtype: "float32", shape: ["n", 16, 16, 1] }],
        nodes: [
          {
            op: "Transpose",
            inputs: ["x"],
            outputs: ["t"],
            attributes: { perm: ints([0, 2, 3, 1]) },
          },
          last === "Softmax"
            ? { op: last, inputs: ["t"], outputs: ["y"], attributes: { axis: int(1) } }
            : { op: last, inputs: ["t"], outputs: ["y"] },
        ],
      });
      writeFileSync(join(folder, "model.onnx"), graph);
      const changed = structuredClone(manifest);
      changed.files = [{ path: "model.onnx", sha256: sha256(graph) }];
      Object.assign(changed.inputs[0]!, { size: { kind: "fixed", height: 16, width: 16 } });
      const labels = Array.from({ length: 15 }, (_, i) => ({ label: `label ${i}` }));
      changed.outputs = [{ ...changed.outputs[0]!, labels, ...output } as ModelOutput];
      writeFileSync(join(folder, "model.json"), JSON.stringify(changed));
      return modelsCheck(folder, options());
    };
    const twice = await checked("Softmax", { activation: "softmax", covers: "all" });
    t.match(twice, {
      exitCode: 1,
      text: /outputs\[0\]\.activation: "y" adds up to 1 over 16 classes before the softmax: .*Expected "argmax"/,
    });
    t.match(await checked("Softmax", { activation: "argmax", covers: "all" }), { exitCode: 0 });
    t.match(await checked("Identity", { activation: "softmax", covers: "all" }), { exitCode: 0 });
    const labels = Array.from({ length: 16 }, (_, i) => ({ label: `label ${i}`, threshold: 0.5 }));
    const each = { labels, covers: "all" };
    t.match(await checked("Sigmoid", { ...each, activation: "sigmoid" }), {
      exitCode: 1,
      text: /outputs\[0\]\.activation: "y" is a sigmoid in the graph already: .*Expected "none"/,
    });
    t.match(await checked("Softmax", { ...each, activation: "sigmoid" }), {
      exitCode: 1,
      text: /"y" is a softmax in the graph already: a sigmoid after it makes .*Expected "none"/,
    });
    t.match(await checked("Sigmoid", { activation: "softmax", covers: "all" }), {
      exitCode: 1,
      text: /"y" is a sigmoid in the graph already: a softmax after it .*Expected "argmax"/,
    });
    t.match(await checked("Sigmoid", { ...each, activation: "none" }), { exitCode: 0 });
    t.match(await checked("Identity", { ...each, activation: "sigmoid" }), { exitCode: 0 });
  });

  await t.test("a draft asks which part a map covers", async (t) => {
    const folder = join(t.testdir({ drafted: {} }), "drafted");
    cpSync(join(CASES, "valid-convolution/unet/model.onnx"), join(folder, "model.onnx"));
    const { text, data } = await modelsInit(join(folder, "model.onnx"), engine());
    t.match(text, /y: The map is 196 x 196, no whole part of the tensor's 284 x 284/);
    t.match((data as { manifest: object }).manifest, { outputs: [{ tensor: "y", covers: null }] });
  });

  await t.test("windows of such maps are refused by name", async (t) => {
    const tiled = (more: object) => {
      const manifest = JSON.parse(
        readFileSync(join(CASES, "valid-convolution/unet/model.json"), "utf8"),
      ) as Manifest;
      Object.assign(manifest.inputs[0]!, { size: { kind: "source" } });
      Object.assign(manifest.outputs[0]!, more);
      manifest.tiling = {
        window: [284, 284],
        overlap: 0.5,
        steps: "even",
        weights: { kind: "constant" },
        padding: 0,
      };
      return manifest;
    };
    t.match(manifestSchema.safeParse(tiled({ covers: "centre" })).error?.issues, [
      { path: ["outputs", 0, "covers"], message: /Windows of maps that cover a part/ },
    ]);
    const folder = caseOf(t, "valid-convolution", "unet");
    writeFileSync(join(folder, "model.json"), JSON.stringify(tiled({})));
    t.match(await modelsCheck(folder, options()), {
      exitCode: 1,
      text: /outputs\[0\]\.tensor: Windows of maps that cover a part, or are coarser, are not offered: expected 284 x 284, the sides of the window, found 196 x 196/,
    });
  });

  await t.test("boxes in pixels of the source", async (t) => {
    const name = "boxes-in-source-pixels";
    const image = await pictureOf(name, "z.dcm");
    const wrong = await inferred(caseOf(t, name, "dfine"), image);
    t.match(wrong.warnings, [{ code: "boxes_implausible", message: /unit of boxes/ }]);
    const boxes = { tensor: "boxes", format: "xyxy", normalised: false, pixels_of: "source" };
    const right = await inferred(caseOf(t, name, "dfine", [{ boxes }]), image);
    t.strictSame(
      right.findings.map(({ label, present, box }) => [
        label,
        present,
        // The graph multiplies in float32
        ...[box?.x0, box?.y0, box?.x1, box?.y1].map(
          (edge) => Math.round((edge ?? NaN) * 1e3) / 1e3,
        ),
      ]),
      [
        ["a", true, 105, 90, 210, 150],
        ["b", true, 252, 180, 378, 240],
      ],
    );
    t.strictSame(right.warnings, []);
    const photograph = { source: { format: "png" as const }, format: { rows: 480, columns: 640 } };
    t.strictSame(attributeNumbers(right.model.manifest, imageOf(photograph)), [[640, 480]]);
    const relative = { ...boxes, normalised: true };
    t.match(await modelsCheck(caseOf(t, name, "dfine", [{ boxes: relative }]), options()), {
      text: /outputs\[0\]\.boxes\.pixels_of: Only with normalised false/,
    });
  });

  await t.test("logits that are interpolated before they are activated", async (t) => {
    const name = "activation-before-upsampling";
    const image = await pictureOf(name, "c256.dcm");
    const counts = async (change: object) => {
      const { outputs } = await inferred(caseOf(t, name, "lowres", [change]), image);
      return outputs[0]?.kind === "segmentation" ? outputs[0].counts : [];
    };
    t.strictSame(await counts({}), [39786, 10171, 9791], "probabilities are interpolated");
    t.strictSame(await counts({ activated: "after" }), [40683, 11016, 10369]);
    t.strictSame(
      await counts({ activated: "after", segment_type: "fractional" }),
      [40683, 11016, 10369],
      "and so with each pixel's probability",
    );
  });

  await t.test("graphs that take no image are named, and nothing is drafted", async (t) => {
    const folder = t.testdir();
    const drafted = async (...inputs: [name: string, ...shape: (string | number)[]][]) => {
      const first = inputs[0]?.[0] ?? "";
      const path = join(folder, "model.onnx");
      const infos = inputs.map(([name, ...shape]) => ({ name, dtype: "float32" as const, shape }));
      const graph = onnxModel({
        name: "inputs",
        inputs: infos,
        outputs: [{ ...infos[0]!, name: "y" }],
        nodes: [{ op: "Identity", inputs: [first], outputs: ["y"] }],
      });
      writeFileSync(path, graph);
      const failed = await failure(modelsInit(path, engine()));
      t.notOk(existsSync(join(folder, "model.json")));
      return failed.message;
    };
    t.match(
      await drafted(
        ["image_embeddings", 1, 256, 64, 64],
        ["point_coords", 1, "n", 2],
        ["point_labels", 1, "n"],
      ),
      /takes prompts \("point_coords" float32 \[1, n, 2\], "point_labels" .*Export a network that takes the image alone\. Nothing was written/,
    );
    t.match(await drafted(["image", "n", 3, 64, 64], ["boxes", "n", 4]), /takes prompts \("boxes"/);
    t.match(await drafted(["input_ids", "n", "seq"]), /takes text \("input_ids"/);
    t.match(await drafted(["ecg", "n", 12, 5000]), /takes a signal or a sequence \("ecg"/);
    t.match(await drafted(["ecg", "n", 1, 5000]), /takes a signal or a sequence \("ecg"/);
    t.match(await drafted(["X", "n", 5]), /takes a table of numbers \("X".*stand beside an image/);
    for (const [file, named] of [
      ["model.pt", /PyTorch: export it with torch\.onnx\.export/],
      ["model.h5", /Keras: export it with tf2onnx/],
      ["model.tflite", /TensorFlow Lite/],
      ["model.safetensors", /safetensors, which holds weights without a network/],
    ] as const) {
      writeFileSync(join(folder, file), "PK\u0003\u0004 this is another format");
      t.match((await failure(modelsInit(join(folder, file), engine()))).message, named);
    }
    const image = join(t.testdir({ image: {} }), "image", "model.onnx");
    const colours = { name: "x", dtype: "float32" as const, shape: [3, 256, 256] };
    writeFileSync(
      image,
      onnxModel({
        name: "colours",
        inputs: [colours],
        outputs: [{ ...colours, name: "y" }],
        nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
      }),
    );
    const { text, data } = await modelsInit(image, engine());
    t.match(text, /it has no axis of images/);
    t.match(data, { manifest: { batching: { max: 1 } } });
  });

  await t.test("what another program saved as float64 is compared", async (t) => {
    const folder = writeTestModel(t.testdir(), "segmenter");
    const own = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;
    const draft = { ...own, stage: "draft", results: { outputs: ["json"] } };
    writeFileSync(join(folder, "model.json"), JSON.stringify(draft));
    const shades = Int16Array.from({ length: 256 }, (_, i) => i);
    const image = imageOf({ pixels: new Uint8Array(shades.buffer) });
    const { outputs } = await inferred(folder, image);
    const mask = outputs[0]?.kind === "segmentation" ? outputs[0].mask : [];
    const expect = join(folder, "expected.npy");
    const compared = async (shape: number[], values: ArrayLike<number>) => {
      const data = new Uint8Array(Float64Array.from(values).buffer);
      writeFileSync(expect, encodeNpy({ dtype: "float64", shape, data }));
      return modelsTry(folder, image, { ...options(), expect });
    };
    const labels = await compared([1, 16, 16], mask);
    t.match(labels, { exitCode: 0, text: /labels against the expected: 0 of 256/ });
    t.ok(new Set(mask).size === 3, "all labels are somewhere");
    const disc = caseOf(t, "valid-convolution", "unet", [{ covers: "centre" }]);
    const other = join(disc, "expected.npy");
    const data = new Uint8Array(new Float64Array(196 * 196).buffer);
    writeFileSync(other, encodeNpy({ dtype: "float64", shape: [1, 1, 196, 196], data }));
    t.match(
      await modelsTry(disc, await pictureOf("valid-convolution", "disc.dcm"), {
        ...options(),
        expect: other,
      }),
      { exitCode: 1, text: /y against the expected: largest difference/ },
    );
  });
});
