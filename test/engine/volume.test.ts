import t from "tap";
import { int, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/engine/engine.js";
import { type LoadOptions } from "../../src/engine/types.js";
import type { VolumeGeometry } from "../../src/images/image.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import { endlessGraph } from "../support/endless.js";
import { failure } from "../support/expect.js";
import { shipped } from "../support/manifests.js";
import {
  identity,
  input,
  loadOptions,
  plane,
  untilRunning,
  writeModel,
} from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 2 });
t.teardown(() => engine.close());

/** Two channels: 50, and the voxel. */
const over50: ModelDescription = {
  name: "over50",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "d", "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 2, "d", "h", "w"] }],
  initializers: [
    { name: "zero", dtype: "float32", shape: [1], data: [0] },
    { name: "fifty", dtype: "float32", shape: [1], data: [50] },
  ],
  nodes: [
    { op: "Mul", inputs: ["x", "zero"], outputs: ["none"] },
    { op: "Add", inputs: ["none", "fifty"], outputs: ["fifties"] },
    { op: "Concat", inputs: ["fifties", "x"], outputs: ["y"], attributes: { axis: int(1) } },
  ],
};

const volumeInput: ImageInput = { ...input, layout: "NCDHW", orientation: "RAS" };
const bright: ModelOutput = {
  kind: "segmentation",
  tensor: "y",
  activation: "argmax",
  labels: [{ label: "bright" }],
  postprocess: [],
  measurements: [],
};
const file = writeModel(folder, over50);
const options = (more: Partial<LoadOptions> = {}) =>
  loadOptions(file, { inputs: [volumeInput], outputs: [bright], ...more });

/** 2 slices of 3 x 4: a bar in the first, a corner in the second. */
const voxels = Uint16Array.of(
  90,
  80,
  70,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  60,
  0,
  0,
  0,
  51,
);
const expected = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
const slices = slicesOf(voxels, [2, 3, 4]);

t.test("a mask comes back to the slices as given, however they lie", async (t) => {
  const { id } = await engine.load(options());
  for (const letters of ["SPL", "RAS", "IAR", "AIL", "PSR"]) {
    const result = await engine.infer(id, slices, { geometry: geometryOf(letters), dump: true });
    const [found] = result.outputs;
    t.match(found, { kind: "segmentation", slices: 2, rows: 3, columns: 4, counts: [5] }, letters);
    t.strictSame(found?.kind === "segmentation" && [...found.mask], expected, letters);
  }
  const turned = await engine.infer(id, slices, { geometry: geometryOf("SPL"), dump: true });
  // Slices grow to the head, rows to the back, columns to the left: turned, they are the last,
  // second and first axis.
  const tensor = turned.tensors!.inputs[0]!;
  t.strictSame(tensor.shape, [1, 1, 4, 3, 2]);
  const values = new Float32Array(tensor.data.slice().buffer);
  t.equal(values[(3 * 3 + 2) * 2], 90, "first voxel: left, front, feet of the scan");
  t.equal(values[1], 51, "last voxel");
});

/**
 * Turned volumes, as the quaternion that turns columns, rows and slices out of the patient's L, P
 * and S, and the codes that nibabel 5.4.2 gives them (aff2axcodes, by io_orientation). In the first
 * thirteen the assignment with the largest sum of cosines is another one.
 */
const OBLIQUE: [quaternion: [number, number, number, number], codes: string][] = [
  [[78, 44, 7, 43], "PSL"],
  [[-6, -3, -1, -4], "PSL"],
  [[7, 0, -3, 2], "LPS"],
  [[-4, -1, -8, 5], "ILA"],
  [[-3, 1, -6, 4], "AIL"],
  [[3, 6, 1, -4], "ILA"],
  [[1, 6, -3, -4], "ASR"],
  [[-2, -7, -3, 0], "LAI"],
  [[-3, 0, -2, -7], "RAS"],
  [[-3, 8, -2, -2], "LIP"],
  [[1, 2, 5, -1], "PLI"],
  [[-2, -8, -3, -2], "PLI"],
  [[4, 5, 12, 1], "RPI"],
  [[8, 1, -2, 10], "PRS"],
  [[-8, 3, -10, -3], "IPL"],
  [[-6, 7, 9, -2], "PIR"],
  [[-2, -4, -6, -5], "PSL"],
  [[2, 4, -1, -9], "IAR"],
  [[3, 4, 2, -5], "ILA"],
  [[-1, -3, -1, 6], "IAR"],
  [[-4, 2, 2, -7], "PRS"],
  [[2, -3, 7, 1], "ARI"],
  [[5, 3, -6, 1], "SPR"],
  [[0, -2, -3, 9], "RAS"],
  [[-4, 2, -3, -6], "IRP"],
];

t.test("oblique volumes are turned as nibabel turns them", async (t) => {
  const { id } = await engine.load(options());
  const tensorOf = async (geometry: VolumeGeometry) => {
    const { tensors } = await engine.infer(id, slices, { geometry, dump: true });
    const { shape, data } = tensors!.inputs[0]!;
    return { shape, values: [...new Float32Array(data.slice().buffer)] };
  };
  for (const [quaternion, codes] of OBLIQUE) {
    const size = Math.hypot(...quaternion);
    const [w, x, y, z] = quaternion.map((part) => part / size) as typeof quaternion;
    const turned = await tensorOf({
      ...geometryOf("SPL"),
      columnDirection: [1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)],
      rowDirection: [2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)],
      sliceDirection: [2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)],
    });
    const straight = geometryOf(Array.from(codes).reverse().join(""));
    t.strictSame(turned, await tensorOf(straight), quaternion.join(" "));
  }
  await engine.unload(id);
});

t.test("post-processing goes over the volume; thresholds and padding hold", async (t) => {
  const output: ModelOutput = {
    ...bright,
    postprocess: [
      { step: "largest_component", labels: ["bright"] },
      { step: "minimum_area", labels: ["bright"], pixels: 4 },
    ],
  };
  const { id } = await engine.load(options({ outputs: [output] }));
  const joined = voxels.slice();
  joined[14] = 99;
  const planes = slicesOf(joined, [2, 3, 4]);
  const one = await engine.infer(id, planes, { geometry: geometryOf("SPL") });
  t.match(one.outputs, [{ counts: [4] }]);
  planes[1]!.interpretation.padding = { from: 99, to: 99 };
  const none = await engine.infer(id, planes, { geometry: geometryOf("SPL") });
  t.match(none.outputs, [{ counts: [0] }], "the voxel that made four is padding");
});

t.test("what does not go together is refused, saying why", async (t) => {
  const volume = await engine.load(options());
  const single = await engine.load(loadOptions(writeModel(folder, identity)));
  const geometry = geometryOf("SPL");
  t.match(await failure(engine.infer(volume.id, slices, {})), {
    code: "bad_request",
    message: /takes whole volumes; found 2 plane\(s\) without geometry/,
  });
  t.match(await failure(engine.infer(volume.id, [], { geometry })), { code: "bad_request" });
  t.match(await failure(engine.infer(single.id, slices.slice(1), { geometry })), {
    code: "bad_request",
    message: /takes single images; found 1 plane\(s\) with geometry/,
  });
  t.match(await failure(engine.infer(single.id, slices, {})), { code: "bad_request" });
  t.match(await failure(engine.infer(volume.id, [...slices, plane(3, 5)], { geometry })), {
    code: "series_invalid",
    message: /3 x 4; found a slice of 3 x 5/,
  });
  t.match(
    await failure(engine.infer(volume.id, slices, { geometry: { ...geometry, rowSpacing: 0 } })),
    {
      code: "bad_request",
      message: /rowSpacing greater than 0/,
    },
  );
  t.match(
    await failure(
      engine.infer(volume.id, slices, { geometry: { ...geometry, rowDirection: [0, 0.6, 0.8] } }),
    ),
    { code: "series_invalid", message: /right angles/ },
  );
  const short = slicesOf(voxels, [2, 3, 4]);
  short[1]!.data = short[1]!.data.subarray(2);
  t.equal((await failure(engine.infer(volume.id, short, { geometry }))).code, "truncated_image");
});

t.test("manifests that volumes cannot follow are refused by their field", (t) => {
  const paths = (change: object) => {
    const m = shipped("examples/brain-tissue-3d");
    Object.assign(m.inputs[0]!, change);
    return manifestSchema.safeParse(m).error?.issues.map((i) => i.path.slice(2).join(".")) ?? [];
  };
  t.strictSame(paths({}), []);
  t.strictSame(paths({ interpolation: "cubic" }), ["interpolation"]);
  t.strictSame(paths({ fit: "stretch" }), ["fit"]);
  t.strictSame(paths({ orientation: "RLS" }), ["orientation"]);
  t.strictSame(paths({ values: { kind: "voi", index: 0, if_absent: "full_range" } }), [
    "values.if_absent",
  ]);
  t.strictSame(paths({ normalisation: { kind: "z_score", over: "image" } }), [
    "normalisation.over",
  ]);
  const flat = shipped("ct-tissue");
  Object.assign(flat.inputs[0]!, { orientation: "RAS", spacing_mm: [1, 1, 1] });
  const messages = manifestSchema
    .safeParse(flat)
    .error?.issues.map((i) => [i.path.at(-1), i.message]);
  t.strictSame(messages, [
    ["spacing_mm", "Only for volumes"],
    ["orientation", "Only for volumes"],
  ]);
  t.end();
});

const voxelsOf = (name: string) =>
  ({ name, dtype: "float32", shape: ["n", 1, "d", "h", "w"] }) as const;

t.test("cancelling and deadlines", async (t) => {
  const sigmoid: ModelOutput = {
    ...bright,
    activation: "sigmoid",
    labels: [{ label: "a", threshold: 0.5 }],
  };
  const endless = { name: "endless-volume", ...endlessGraph(voxelsOf("x"), voxelsOf("y")) };
  const modelPath = writeModel(folder, endless);
  const { id } = await engine.load(
    loadOptions(modelPath, { inputs: [volumeInput], outputs: [sigmoid] }),
  );
  const many = slicesOf(new Uint16Array(700), [7, 10, 10]);
  const start = (cancelId: number, timeoutMs?: number) =>
    failure(
      engine.infer(id, many, {
        geometry: geometryOf("SPL"),
        cancelId,
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
      }),
    );
  t.equal((await start(1, 40)).code, "deadline_exceeded");
  const running = [start(2), start(3)];
  await untilRunning(engine, 2);
  const waiting = start(4);
  for (const cancelId of [4, 2, 3]) engine.cancel(cancelId);
  t.strictSame(
    (await Promise.all([...running, waiting])).map((e) => e.code),
    ["cancelled", "cancelled", "cancelled"],
  );
});

t.test("several windows of a volume are channels of one tensor", async (t) => {
  const windows = [
    { center: 50, width: 100, function: "LINEAR_EXACT" as const },
    { center: 80, width: 20, function: "LINEAR_EXACT" as const },
  ];
  const model: ModelDescription = {
    ...over50,
    name: "windows",
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 2, "d", "h", "w"] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", 2, "d", "h", "w"] }],
    nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
    initializers: [],
  };
  const windowed: ImageInput = {
    ...volumeInput,
    orientation: "SPL",
    values: { kind: "windows", windows },
    channels: "windows",
    monochrome1: "refuse",
  };
  const { id } = await engine.load({
    ...options(),
    modelPath: writeModel(folder, model),
    inputs: [windowed],
  });
  const { tensors } = await engine.infer(id, slices, { geometry: geometryOf("SPL"), dump: true });
  const [tensor] = tensors!.inputs;
  t.strictSame(tensor!.shape, [1, 2, 2, 3, 4]);
  const expectedChannels = windows.flatMap(({ center, width }) =>
    Array.from(voxels, (v) => Math.fround(Math.min(1, Math.max(0, (v - center) / width + 0.5)))),
  );
  t.strictSame(Array.from(new Float32Array(tensor!.data.slice().buffer)), expectedChannels);
  await engine.unload(id);
});

t.test("logits of a coarser map are interpolated where the manifest says so", async (t) => {
  const twice: ModelDescription = {
    name: "twice",
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "d", "h", "w"] }],
    outputs: [
      { name: "y", dtype: "float32", shape: ["n", 1, "d", "h", "w"] },
      { name: "both", dtype: "float32", shape: ["n", 2, "d", "h", "w"] },
    ],
    initializers: [
      { name: "zero", dtype: "float32", shape: [1], data: [0] },
      { name: "fifty", dtype: "float32", shape: [1], data: [50.37] },
      { name: "eight", dtype: "float32", shape: [1], data: [8] },
    ],
    nodes: [
      { op: "Sub", inputs: ["x", "fifty"], outputs: ["above"] },
      { op: "Div", inputs: ["above", "eight"], outputs: ["y"] },
      { op: "Mul", inputs: ["y", "zero"], outputs: ["none"] },
      { op: "Concat", inputs: ["none", "y"], outputs: ["both"], attributes: { axis: int(1) } },
    ],
  };
  const coarse: ImageInput = {
    ...input,
    layout: "NCDHW",
    size: { kind: "fixed", depth: 4, height: 5, width: 6 },
    interpolation: "nearest",
  };
  const one = { ...bright, activation: "sigmoid", labels: [{ label: "a", threshold: 0.5 }] };
  const outputs = [
    // Where a logit is above 0, once it is interpolated
    { ...bright, tensor: "both" },
    { ...one, activated: "after" },
    one,
  ] as ModelOutput[];
  const { id } = await engine.load(
    loadOptions(writeModel(folder, twice), { inputs: [coarse], outputs }),
  );
  const sides: [number, number, number] = [12, 15, 18];
  const values = Uint16Array.from({ length: 12 * 15 * 18 }, (_, i) => (i * 7919) % 101);
  const found = await engine.infer(id, slicesOf(values, sides), { geometry: geometryOf("SPL") });
  const [decided, after, before] = found.outputs.map((output) =>
    output.kind === "segmentation" ? Buffer.from(output.mask) : undefined,
  );
  t.ok(decided !== undefined && after?.equals(decided), "interpolated, and then activated");
  t.notOk(before?.equals(decided ?? Buffer.alloc(0)), "the other way round is something else");
});
