/**
 * Boxes in volumes: over series of every orientation equal to MONAI's own RetinaNet inference
 * (whole, in windows, and from a graph that lists its boxes) and to nnDetection's clustering, by
 * the patient's millimetres; then what receipt, report and picture say of them.
 * test/reference/boxes/boxes.py made the graphs and what is expected.
 */
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import t, { type Test } from "tap";
import type { Engine } from "../../../src/engine/engine.js";
import { decodeNpy } from "../../../src/engine/npy.js";
import { openInput } from "../../../src/files/guarded-paths.js";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import { infer } from "../../../src/inference/infer-image.js";
import { readInput } from "../../../src/inference/read-input.js";
import { replay } from "../../../src/inference/replay.js";
import type { Manifest } from "../../../src/manifest/manifest.js";
import { labelsOf } from "../../../src/manifest/outputs/outputs.js";
import {
  volumeDetection,
  type VolumeDetection,
} from "../../../src/manifest/outputs/volume-detection.js";
import { manifestSchema } from "../../../src/manifest/rules.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { planeOf } from "../../../src/results/picture/draw-result.js";
import { interpret } from "../../../src/results/findings/findings.js";
import { inPatient } from "../../../src/results/kinds/boxes.js";
import { kindOfGiven } from "../../../src/results/kinds/kinds.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { attributesOf, CT, dicomFile, type Attributes } from "../../support/dicom.js";
import { constant, firstVoxel, sct } from "../../support/model-parts.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { manifestOf } from "../../support/test-models.js";
import { loadOptions, writeModel } from "../../support/tiny-models.js";
import { objectErrors } from "../../support/validators.js";
import { geometryOf, slicesOf } from "../../support/volumes.js";

const REFERENCE = resolve("test/reference/boxes");

interface Expected {
  label: number;
  score: number;
  centre: number[];
  size: number[];
}
interface Series {
  position: number[];
  /** Along columns, rows and slices. */
  directions: number[][];
  spacing: number[];
}
type Way = "whole" | "nms" | "weighted" | "listed";
const { series, ...expected } = JSON.parse(
  readFileSync(join(REFERENCE, "expected.json"), "utf8"),
) as {
  series: Record<string, Series>;
} & Record<Way, Record<string, Expected[]>>;

const label = (name: string) => ({ label: name, code: sct("27925004", "Nodule"), threshold: 0.55 });
const level = (number: number) => ({
  scores: `scores_${number}`,
  boxes: `boxes_${number}`,
  anchors: [
    [6, 8, 4],
    [8, 6, 5],
    [10, 10, 6],
  ].map((sides) => sides.map((side) => side * (number + 1))),
});
const maps: VolumeDetection = {
  kind: "volume_detection",
  boxes: {
    kind: "anchors",
    levels: [level(0), level(1)],
    places: "middle",
    coder: [1, 1, 1, 1, 1, 1],
  },
  scores: { activation: "sigmoid" },
  counted_from: "centres",
  candidates: { least_score: 0.55, least_size: 1, most: 60 },
  nms: { kind: "greedy", iou: 0.22, per_class: true },
  max_boxes: 40,
  labels: [label("solid"), label("subsolid")],
};
const listed: VolumeDetection = {
  ...maps,
  boxes: {
    kind: "listed",
    tensor: "boxes",
    columns: ["depth_min", "height_min", "depth_max", "height_max", "width_min", "width_max"],
    normalised: false,
  },
  scores: { tensor: "scores", activation: "none" },
  classes: { tensor: "labels", first: 0 },
};
const input: Manifest["inputs"][number] = {
  tensor: "image",
  dtype: "float32",
  layout: "NCDHW",
  size: { kind: "source" },
  fit: "stretch",
  interpolation: "spline",
  orientation: "RAS",
  values: { kind: "modality" },
  monochrome1: "refuse",
  channels: "grayscale",
  colour_source: "refuse",
  clip: [-1024, 300],
  background: -1024,
  normalisation: { kind: "scale", multiply: 1 / 1324, add: 1024 / 1324 },
  resampling: { ...firstVoxel, spacing_mm: [1.2, 1.2, 2] },
};
const tiling: NonNullable<Manifest["tiling"]> = {
  window: [16, 16, 12],
  overlap: 0.25,
  steps: "stride",
  padding: 0,
  weights: { kind: "constant" },
};
const modelOf = (output: VolumeDetection, more: Partial<Manifest> = {}): Manifest => ({
  ...manifestOf("volume"),
  name: "lesions",
  accepts: { ...manifestOf("volume").accepts, modality: ["CT"] },
  inputs: [input],
  outputs: [output],
  batching: { max: 1 },
  results: { outputs: ["json", "png", "sr"] },
  ...more,
});
const multiple = {
  ...input,
  resampling: { ...input.resampling, multiple_of: [4, 4, 2] },
} as typeof input;
const WAYS: Record<Way, [graph: string, Manifest]> = {
  whole: ["maps.onnx", modelOf(maps, { inputs: [multiple] })],
  nms: [
    "maps.onnx",
    modelOf({ ...maps, windows: { kind: "nms", iou: 0.22, per_class: true } }, { tiling }),
  ],
  weighted: [
    "maps.onnx",
    modelOf({ ...maps, windows: { kind: "weighted", iou: 0.22 } }, { tiling }),
  ],
  listed: [
    "listed.onnx",
    modelOf({ ...listed, windows: { kind: "nms", iou: 0.22, per_class: true } }, { tiling }),
  ],
};

async function entryOf(
  engine: Engine,
  folder: string,
  way: string,
  [graph, manifest]: [graph: string, Manifest],
): Promise<ModelEntry> {
  mkdirSync(join(folder, way));
  const modelPath = join(folder, way, graph);
  copyFileSync(join(REFERENCE, graph), modelPath);
  const { name, version, inputs, outputs, batching, tiling: windows } = manifest;
  const { id } = await engine.load({
    modelPath,
    name,
    version,
    inputs,
    outputs,
    batching,
    tiling: windows,
    provider: "cpu",
  });
  return {
    name,
    version,
    sha256: "0".repeat(64),
    manifest,
    site: { thresholds: {} },
    thresholds: outputs.map((output) => labelsOf(output).map(({ threshold }) => threshold ?? NaN)),
    state: "ready",
    nativeId: id,
    provider: "cpu",
  };
}

/** The series of a name in a folder, its files in no order. */
function writeSeries(folder: string, name: string, more: Attributes = {}): string {
  const { position, directions, spacing } = series[name]!;
  const { data } = decodeNpy(readFileSync(join(REFERENCE, "voxels.npy")));
  const raw = { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 16, signed: true };
  const input_ = join(folder, name);
  mkdirSync(input_, { recursive: true });
  for (let z = 0; z < slices; z++) {
    const pixels = data.slice(z * rows * columns * 2, (z + 1) * rows * columns * 2);
    const place = position.map((mm, axis) => mm + z * spacing[2]! * directions[2]![axis]!);
    const decimal = (values: readonly number[]) =>
      values.map((value) => value.toFixed(11)).join("\\");
    const attributes = attributesOf(
      { ...raw, data: pixels },
      {
        SOPClassUID: CT,
        SOPInstanceUID: `1.2.3.9.${z + 1}`,
        StudyInstanceUID: "1.2.3",
        SeriesInstanceUID: "1.2.3.9",
        FrameOfReferenceUID: "1.2.5",
        PatientID: "Nobody",
        Modality: "CT",
        ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
        PatientName: "Nobody",
        ImagePositionPatient: decimal(place),
        ImageOrientationPatient: decimal([...directions[0]!, ...directions[1]!]),
        PixelSpacing: `${spacing[1]}\\${spacing[0]}`,
        RescaleSlope: "1",
        RescaleIntercept: "0",
        ...more,
      },
    );
    writeFileSync(join(input_, `${(z * 5) % slices}.dcm`), dicomFile({ attributes, pixels }));
  }
  return input_;
}

async function run(t: Test, engine: Engine, entry: ModelEntry, inputPath: string) {
  const outputFolder = mkdtempSync(join(tmpdir(), "radserve-boxes-"));
  t.teardown(() => {
    rmSync(outputFolder, { recursive: true });
  });
  const roots = { input: undefined, output: undefined };
  const task = {
    requestId: "r",
    name: "s",
    priority: "routine" as const,
    cancelId: 1,
    inputPath,
    roots,
  };
  const answer = await infer({ ...task, outputFolder }, { engine, models: [entry] });
  const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
  const [model] = receipt.models;
  t.equal(model!.status, "succeeded", JSON.stringify(model!.error));
  return { receipt, model: model!, paths: answer.models[0]!.outputs.map(({ path }) => path) };
}

const far = (a: readonly number[], b: readonly number[]) =>
  Math.max(...a.map((x, i) => Math.abs(x - b[i]!)));

/** The sides of the reference's voxels. */
const [slices = 0, rows = 0, columns = 0] = decodeNpy(
  readFileSync(join(REFERENCE, "voxels.npy")),
).shape;

/**
 * What is left of a box of the reference where the series ends: MONAI's end up to half a voxel
 * behind it. Its sides are along the tensor's axes, to the right, to the front and to the head, and
 * become those along columns, rows and slices.
 */
function cutOff({ centre, size }: Expected, { position, directions, spacing }: Series) {
  const axes = directions.map((direction, i) => {
    const sizes = direction.map(Math.abs);
    const half = size[sizes.indexOf(Math.max(...sizes))]! / 2;
    const middle = direction.reduce(
      (sum, x, axis) => sum + x * (centre[axis]! - position[axis]!),
      0,
    );
    const [from, to] = [-spacing[i]! / 2, ([columns, rows, slices][i]! - 0.5) * spacing[i]!];
    return { direction, low: Math.max(middle - half, from), high: Math.min(middle + half, to) };
  });
  return {
    centre: position.map((mm, axis) =>
      axes.reduce(
        (sum, { direction, low, high }) => sum + (direction[axis]! * (low + high)) / 2,
        mm,
      ),
    ),
    size: axes.map(({ low, high }) => high - low),
  };
}

t.test(
  "boxes of a volume and those of MONAI and nnDetection",
  { skip: needs(ADDON) },
  async (t) => {
    const { engine, folder } = engineWithFolder(t, "volume-detection");
    for (const way of Object.keys(WAYS) as Way[]) {
      const entry = await entryOf(engine, folder, way, WAYS[way]);
      let [most, boxes] = [0, 0];
      for (const name of Object.keys(series)) {
        const { model } = await run(t, engine, entry, writeSeries(folder, name));
        const found = model.findings.filter(({ present }) => present);
        const wanted = expected[way][name]!;
        t.equal(found.length, wanted.length, `${way}, ${name}: ${wanted.length} boxes`);
        for (const one of wanted) {
          const own = found.filter(({ label: of }) => of === maps.labels[one.label]!.label);
          const { centre, size } = cutOff(one, series[name]!);
          const off = own.map(({ score, patient_mm: mm }) =>
            Math.max(
              Math.abs(score! - one.score) * 1000,
              far(mm!.centre, centre),
              far(mm!.size, size),
            ),
          );
          most = Math.max(most, Math.min(...off));
          boxes++;
        }
      }
      t.ok(
        boxes > 30 && most < 5e-3,
        `${way}: ${boxes} boxes within ${most.toFixed(5)} mm (scores: 0.001)`,
      );
    }
  },
);

t.test("anchors that lie as with MONAI before 1.6", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "volume-detection-places");
  const [name = ""] = Object.keys(series);
  const source = writeSeries(folder, name);
  const found = async (places: "first_voxel" | "middle") => {
    const boxes = { ...maps.boxes, places } as VolumeDetection["boxes"];
    const output: VolumeDetection = { ...maps, boxes, nms: { kind: "none" }, max_boxes: 200 };
    const manifest = modelOf(output, { inputs: [multiple] });
    const entry = await entryOf(engine, folder, places, ["maps.onnx", manifest]);
    return (await run(t, engine, entry, source)).model.findings.filter(({ present }) => present);
  };
  const [early, late] = [await found("first_voxel"), await found("middle")];
  // Half a stride of each level, of 2 x 2 x 1 and 4 x 4 x 2 voxels of 1.2 x 1.2 x 2 mm, cut off
  const moves = [Math.hypot(1.2, 1.2), Math.hypot(2.4, 2.4, 2)];
  const pairs = early.flatMap((one) => {
    const other = late.find(
      ({ score, label, patient_mm: mm }) =>
        score === one.score && label === one.label && far(mm!.size, one.patient_mm!.size) < 1e-6,
    );
    return other === undefined ? [] : [[one, other]];
  });
  t.ok(pairs.length > 10, `${pairs.length} boxes that end nowhere`);
  const met = new Set<number>();
  for (const [one, other] of pairs) {
    const move = Math.hypot(
      ...one!.patient_mm!.centre.map((mm, i) => mm - other!.patient_mm!.centre[i]!),
    );
    const level = moves.findIndex((wanted) => Math.abs(move - wanted) < 1e-3);
    met.add(level);
    t.ok(level >= 0, `${move} mm`);
  }
  t.strictSame([...met].sort(), [0, 1]);
});

t.test("mirrored windows, and the forms of a box", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "volume-detection-forms");
  const sides: [number, number, number] = [8, 10, 12];
  const plain: Manifest["inputs"][number] = {
    tensor: "x",
    dtype: "float32",
    layout: "NCDHW",
    size: { kind: "source" },
    fit: "none",
    interpolation: "linear",
    values: { kind: "stored" },
    monochrome1: "refuse",
    channels: "grayscale",
    colour_source: "refuse",
    normalisation: { kind: "none" },
    background: 0,
  };
  let count = 0;
  /** The places of a constant box, along slices, rows and columns. */
  const places = async (
    numbers: number[],
    boxes: object,
    more: object,
    windows?: typeof tiling,
  ) => {
    const graph = constant(`box-${++count}`, "boxes", ["d", "h", "w"], [1, 6], numbers);
    const scored = {
      ...graph,
      outputs: [...graph.outputs, { name: "scores", dtype: "float32" as const, shape: ["n", 1] }],
      initializers: [
        ...(graph.initializers ?? []),
        { name: "score", dtype: "float32" as const, shape: [1, 1], data: [0.75] },
      ],
      nodes: [...graph.nodes, { op: "Add", inputs: ["zeros", "score"], outputs: ["scores"] }],
    };
    const output = {
      ...maps,
      scores: { tensor: "scores", activation: "none" },
      labels: [label("solid")],
      boxes: { kind: "listed", tensor: "boxes", normalised: false, ...boxes },
      ...more,
    } as VolumeDetection;
    const modelPath = writeModel(folder, scored);
    const { id } = await engine.load(
      loadOptions(modelPath, {
        inputs: [plain],
        outputs: [output],
        tiling: windows,
        batching: { max: 4 },
      }),
    );
    const planes = slicesOf(new Uint16Array(8 * 10 * 12), sides);
    const { outputs } = await engine.infer(id, planes, { geometry: geometryOf("SPL") });
    const [found] = outputs;
    if (found?.kind !== "boxes") throw new Error("They are boxes");
    return found.boxes
      .map(({ z0, z1, y0, y1, x0, x1 }) => [z0, z1, y0, y1, x0, x1].join(" "))
      .sort();
  };
  const ends = ["depth_min", "depth_max", "height_min", "height_max", "width_min", "width_max"];
  const edges = { counted_from: "edges" };
  const box = [1, 4, 2, 5, 3, 8];
  t.strictSame(await places(box, { columns: ends }, edges), ["1 4 2 5 3 8"]);
  t.strictSame(
    await places(box, { columns: ends }, {}),
    ["1.5 4.5 2.5 5.5 3.5 8.5"],
    "from the centres",
  );
  const middles = [
    "width_centre",
    "height_centre",
    "depth_centre",
    "depth_size",
    "height_size",
    "width_size",
  ];
  t.strictSame(await places([5.5, 3.5, 2.5, 3, 3, 5], { columns: middles }, edges), [
    "1 4 2 5 3 8",
  ]);
  const parts = [5.5 / 12, 0.35, 0.3125, 0.375, 0.3, 5 / 12];
  const [relative] = await places(parts, { columns: middles, normalised: true }, edges);
  t.ok(far(relative!.split(" ").map(Number), box) < 1e-5, "parts of the sides");
  const mirrored = {
    ...tiling,
    window: sides,
    mirror: ["depth", "height", "width"] as ("depth" | "height" | "width")[],
  };
  const merged = { windows: { kind: "nms", iou: 0.9, per_class: true } };
  const both = (a: string[], b: string[], c: string[]) =>
    a.flatMap((z) => b.flatMap((y) => c.map((x) => `${z} ${y} ${x}`))).sort();
  t.strictSame(
    await places(box, { columns: ends }, { ...edges, ...merged }, mirrored),
    both(["1 4", "4 7"], ["2 5", "5 8"], ["3 8", "4 9"]),
  );
  t.strictSame(
    await places(box, { columns: ends }, merged, mirrored),
    both(["1.5 4.5", "3.5 6.5"], ["2.5 5.5", "4.5 7.5"], ["3.5 8.5", "3.5 8.5"]).filter(
      (one, i, all) => all.indexOf(one) === i,
    ),
    "from the centres",
  );
  const halves = { ...tiling, window: [8, 10, 6], overlap: 0 };
  t.strictSame(
    await places([1, 4, 2, 5, 1, 4], { columns: ends }, { ...edges, ...merged }, halves),
    ["1 4 2 5 1 4", "1 4 2 5 7 10"],
    "windows that run together",
  );
  await t.rejects(places([1, NaN, 2, 5, 3, 8], { columns: ends }, edges), {
    code: "output_invalid",
  });
});

t.test(
  "what receipt, report and picture say of a box in a volume",
  { skip: needs(ADDON) },
  async (t) => {
    const { engine, folder } = engineWithFolder(t, "volume-detection-files");
    const entry = await entryOf(engine, folder, "weighted", WAYS["weighted"]);
    const inputPath = writeSeries(folder, "oblique");
    const { receipt, model, paths } = await run(t, engine, entry, inputPath);
    const opened = await openInput(inputPath, undefined);
    t.teardown(() => opened.close());
    const image = await readInput(opened);
    const { geometry } = volumeOf(image);
    const found = model.findings.filter(({ present }) => present);
    for (const { label: of } of maps.labels) {
      const numbers = found.filter(({ label: own }) => own === of).map(({ number }) => number);
      t.strictSame(
        numbers,
        numbers.map((_, i) => i + 1),
        `the boxes of ${of} are numbered`,
      );
    }
    for (const { box, frames, patient_mm: mm, number, label: of } of found) {
      const { x0, y0, x1, y1, z0 = NaN, z1 = NaN } = box!;
      t.ok(frames![0]! - 1 <= z0 + 1e-6 && z0 < frames![0]!, "its first slice");
      t.ok(frames!.at(-1)! - 1 < z1 && z1 <= frames!.at(-1)! + 1e-6, "its last slice");
      t.ok(
        far(mm!.centre, inPatient(geometry, (x0 + x1) / 2, (y0 + y1) / 2, (z0 + z1) / 2)) < 1e-9,
      );
      const own = model.measurements.filter((one) => one.number === number && one.label === of);
      t.match(own, [
        {
          name: "Volume of the box",
          value: mm!.size.reduce((a, b) => a * b) / 1000,
          unit: { value: "mL" },
        },
        { name: "Longest side of the box", value: Math.max(...mm!.size), unit: { value: "mm" } },
      ]);
    }
    t.match(
      model.decoding!.map(({ step }) => step),
      ["boxes", "scores", "candidates", "nms", "merge_windows", "thresholds", "to_source", "best"],
    );

    const { attributes } = openFile(readFileSync(paths.find((path) => path.endsWith(".sr.dcm"))!));
    type Item = typeof attributes;
    const items = (item: Item): Item[] => [
      item,
      ...(item.sequence("ContentSequence") ?? []).flatMap((child) => items(child)),
    ];
    const groups = items(attributes).filter((item) =>
      item.sequence("ContentSequence")?.some((child) => child.string("ValueType") === "SCOORD3D"),
    );
    t.equal(groups.length, found.length, "a group a box");
    groups.forEach((group, i) => {
      const { box, frames } = found[i]!;
      const children = group.sequence("ContentSequence")!;
      const faces = children.filter((child) => child.string("ValueType") === "SCOORD3D");
      t.equal(faces.length, 6);
      const corners = new Set<string>();
      for (const face of faces) {
        t.equal(face.string("GraphicType"), "POLYGON");
        t.equal(face.string("ReferencedFrameOfReferenceUID"), "1.2.5");
        const data = face.numbers("GraphicData")!;
        t.strictSame(data.slice(0, 3), data.slice(-3), "closed");
        for (let at = 0; at < 12; at += 3) corners.add(data.slice(at, at + 3).join(" "));
      }
      const all = [box!.x0, box!.x1].flatMap((x) =>
        [box!.y0, box!.y1].flatMap((y) =>
          [box!.z0!, box!.z1!].map((z) => inPatient(geometry, x, y, z).map(Math.fround).join(" ")),
        ),
      );
      t.strictSame([...corners].sort(), all.sort(), "its eight corners");
      const seen = children.flatMap((child) => child.sequence("ReferencedSOPSequence") ?? []);
      t.strictSame(
        seen.map((reference) => reference.string("ReferencedSOPInstanceUID")),
        frames!.map((frame) => receipt.source.slices![frame - 1]!.sop_instance_uid),
        "the slices that it lies in",
      );
      t.equal(
        children.filter((child) => child.string("ValueType") === "NUM").length,
        4,
        "score, threshold, volume and longest side",
      );
    });
    if (commandsAre("dciodvfy") === false)
      for (const path of paths.filter((each) => each.endsWith(".dcm")))
        t.strictSame(objectErrors(path), []);
    const again = await replay({ receipt, image, models: [entry], engine });
    t.ok(again.length > 0 && again.every(({ verdict }) => verdict === "ok"), JSON.stringify(again));
    model.findings[0]!.patient_mm!.centre[2]! += 0.1;
    const changed = await replay({ receipt, image, models: [entry], engine });
    t.ok(changed.some(({ verdict }) => verdict === "differs"));

    const planes = await Promise.all(
      volumeOf(image).frames.map(async (frame) => planeOf(image, frame, await image.frame(frame))),
    );
    const { tensors } = await engine.infer(entry.nativeId!, planes, { geometry, dump: true });
    t.strictSame(
      tensors!.inputs[0]!.shape,
      [1, 1, 16, 16, 12],
      "a canary is the window that found most",
    );
    const alone = await engine.runTensors(entry.nativeId!, tensors!.inputs);
    for (const { name, data } of tensors!.outputs) {
      const alike = alone.find((one) => one.name === name);
      t.equal(Buffer.compare(data, alike!.data), 0, `${name} comes of it`);
    }

    for (const FrameOfReferenceUID of ["", "1.2.A"]) {
      const adrift = await run(
        t,
        engine,
        entry,
        writeSeries(folder, "axial", { FrameOfReferenceUID }),
      );
      t.notOk(adrift.paths.some((path) => path.endsWith(".sr.dcm")));
      t.ok(adrift.model.warnings.some(({ message }) => message.includes("FrameOfReferenceUID")));
    }
  },
);

t.test("a box of a part of a volume, and what a manifest may say", (t) => {
  const box = { x0: 1, y0: 2, x1: 3, y1: 4, z0: 5, z1: 6, score: 0.5, label: 0 };
  const given = { kind: "boxes" as const, tensor: "boxes", boxes: [box] };
  const part = { slice: 10, slices: 9, top: 20, rows: 9, left: 30, columns: 9 };
  t.match(kindOfGiven(given).laidBack!(given, part, { slices: 99, rows: 99, columns: 99 }), {
    boxes: [{ x0: 31, x1: 33, y0: 22, y1: 24, z0: 15, z1: 16 }],
  });
  for (const [z0, z1, frames] of [
    [0, 1, [3]],
    [0.9999999, 2.0000001, [2]],
    [0.5, 2.5, [3, 2, 1]],
    [2.9999999, 3, [1]],
    [1, 1.0000001, [2]],
  ] as const) {
    const thin = { ...given, boxes: [{ ...box, z0, z1, score: 0.6 }] };
    const volume = {
      outputs: [thin],
      spacing: undefined,
      volume: geometryOf("SPL"),
      slices: [2, 1, 0],
    };
    const { findings } = interpret([maps], [[0.55, 0.55]], volume);
    t.strictSame(findings[0]!.frames, frames, `the frames of ${z0} to ${z1}`);
  }
  const messages = (manifest: Manifest) =>
    manifestSchema
      .safeParse({ ...manifest, stage: "draft", results: { outputs: ["json"] } })
      .error?.issues.map(({ message }) => message) ?? [];
  for (const [, manifest] of Object.values(WAYS)) t.strictSame(messages(manifest), []);
  const nms = { kind: "nms", iou: 0.2, per_class: true } as const;
  const page = readFileSync("docs/manifest.md", "utf8").split("## Boxes in volumes")[1]!;
  const [example, other] = Array.from(
    page.matchAll(/```json\n([^`]*)```/g),
    ([, json = ""]) => JSON.parse(json) as object,
  );
  t.strictSame(messages({ ...modelOf(maps), ...example }), [], "the example of the documents");
  t.strictSame(messages(modelOf({ ...maps, ...other })), [], "and the other one");
  t.match(messages(modelOf(maps, { tiling })), [/boxes of several windows are merged/]);
  t.match(messages(modelOf({ ...maps, windows: nms })), [/Only with tiling/]);
  const gaussian = { kind: "gaussian", sigma: 0.125, centre: "half", least: 0.001 } as const;
  t.match(
    messages(modelOf({ ...maps, windows: nms }, { tiling: { ...tiling, weights: gaussian } })),
    [/Expected constant/],
  );
  t.match(
    messages(modelOf({ ...maps, windows: nms }, { tiling: { ...tiling, window: [16, 16] } })),
    [/3 sides/],
  );
  t.match(messages({ ...WAYS.whole[1], outputs: manifestOf("volume").outputs }), [
    /all outputs are boxes/,
  ]);
  t.match(messages({ ...manifestOf("detector"), stage: "draft", outputs: [maps] }), [
    /Volumes alone have volume_detection/,
  ]);
  const { boxes } = listed;
  if (boxes.kind !== "listed") throw new Error("These are listed");
  const columns = (...names: (typeof boxes.columns)[number][]): VolumeDetection => ({
    ...listed,
    boxes: { ...boxes, columns: names },
  });
  const depth = ["depth_centre", "depth_size"] as const;
  t.strictSame(
    messages(modelOf(columns(...depth, "height_centre", "height_size", "width_min", "width_max"))),
    [],
  );
  t.match(
    messages(modelOf(columns(...depth, "height_centre", "height_max", "width_min", "width_min"))),
    [/Expected of height and width/],
  );
  const side = (shapes: Record<string, number[]>) => ({
    tensors: Object.entries(shapes).map(([name, shape]) => ({
      name,
      dtype: "float32" as const,
      shape,
      names: shape.map(() => ""),
    })),
    rank: 5,
    channelsLast: false,
    sides: [],
    tiled: false,
    outputs: [],
  });
  const lists = { boxes: [1, -1, 6], scores: [1, -1], labels: [1, -1] };
  t.strictSame(volumeDetection.graphFaults(listed, side(lists)), []);
  t.match(volumeDetection.graphFaults(listed, side({ ...lists, boxes: [1, 6, 80] })), [
    { message: /6 numbers/ },
  ]);
  const levels = {
    scores_0: [1, 6, -1, -1, -1],
    boxes_0: [1, 18, -1, -1, -1],
    scores_1: [1, 6, -1, -1, -1],
    boxes_1: [1, 18, -1, -1, -1],
  };
  t.strictSame(volumeDetection.graphFaults(maps, side(levels)), []);
  const sized = { ...levels, boxes_1: [1, 18, 8, 8, 8] };
  const odd = { ...side(sized), sides: [30, 32, 32] };
  t.match(volumeDetection.graphFaults(maps, odd), [
    { message: /Expected sides that are whole parts of what the graph is given, 30 x 32 x 32/ },
  ]);
  t.match(volumeDetection.graphFaults(maps, side({ ...levels, boxes_1: [1, 6, 8, 8, 8] })), [
    { path: ["boxes", "levels", 1, "boxes"], message: /18/ },
  ]);
  t.end();
});
