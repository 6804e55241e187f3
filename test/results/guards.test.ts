/** What must never be written: each fault is planted, and the product has to catch it. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { readDicom } from "../../src/images/dicom/dicom-image.js";
import type { EngineOutput } from "../../src/engine/types.js";
import { RadserveError } from "../../src/base/errors.js";
import type { Attributes } from "../../src/images/image.js";
import { infer } from "../../src/inference/infer-image.js";
import { type InferTask } from "../../src/inference/task.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import type { Label } from "../../src/manifest/outputs/fields.js";
import type { Code } from "../../src/manifest/texts.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { readImage } from "../../src/images/read-image.js";
import { checkSides } from "../../src/results/findings/laterality.js";
import type { OverlayInput } from "../../src/results/picture/arrangement.js";
import { renderOverlay } from "../../src/results/picture/overlay.js";
import { checkPicture } from "../../src/results/picture/picture-check.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { failure } from "../support/expect.js";
import { engineWithFolder, modelsOf } from "../support/real-engine.js";
import { copyModel } from "../support/manifests.js";
import { loadTestModel, SMALL } from "../support/test-models.js";
import { radiograph } from "../support/radiograph.js";
import { ADDON, needs } from "../support/needs.js";
import { folderOf, readFolder } from "../support/series.js";

const LEFT: Code = { value: "7771000", scheme: "SCT", meaning: "Left" };
const RIGHT: Code = { value: "24028007", scheme: "SCT", meaning: "Right" };
const STARTED = "2026-11-21T22:30:00.123Z";

const everything = (item: Attributes): Attributes[] => [
  item,
  ...(item.sequence("ContentSequence") ?? []).flatMap(everything),
];
const codeOf = (item: Attributes, sequence: string) => {
  const code = item.sequence(sequence)?.[0];
  return code?.string("CodeValue") ?? code?.string("LongCodeValue");
};

t.test("through the use-case", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "guards");
  const detector = await loadTestModel(engine, folder, "detector");
  const classifier = await loadTestModel(engine, folder, "classifier");
  let count = 0;
  const run = async (bytes: Uint8Array, models: ModelEntry[], task: Partial<InferTask> = {}) => {
    const inputPath = join(folder, `source-${++count}`);
    const outputFolder = join(folder, `out-${count}`);
    writeFileSync(inputPath, bytes);
    const roots = { input: undefined, output: undefined };
    const whole = {
      requestId: "test",
      inputPath,
      outputFolder,
      name: "scan",
      startedAt: STARTED,
      roots,
    };
    const answer = await infer(
      { ...whole, priority: "routine", cancelId: 1, outputs: ["sr", "seg"], ...task },
      { engine, models },
    );
    const object = (kind: string) => {
      const file = answer.models
        .flatMap((m) => m.outputs)
        .find(({ path }) => path.endsWith(`.${kind}.dcm`));
      return file === undefined ? undefined : readFileSync(file.path);
    };
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    return { answer, receipt, object, folder: task.outputFolder ?? outputFolder };
  };
  const sided = (entry: ModelEntry, laterality: Code): ModelEntry => {
    const manifest = structuredClone(entry.manifest);
    for (const output of manifest.outputs)
      if ("labels" in output) output.labels.forEach((label) => (label.laterality = laterality));
    return { ...entry, manifest };
  };
  const caveats = ({ receipt }: Awaited<ReturnType<typeof run>>) =>
    receipt.models[0]!.warnings.map(({ code }) => code).filter((code) =>
      code.startsWith("laterality"),
    );

  await t.test("a finding of the other side is refused", async (t) => {
    for (const entry of [detector, classifier]) {
      const error = await failure(run(radiograph({ ImageLaterality: "R" }), [sided(entry, LEFT)]));
      t.equal(error.code, "output_invalid", entry.name);
      t.match(error.details, { finding: "left", image: "right" });
      t.match(error.message, /Expected findings of the right side/);
    }
    t.notOk(
      readdirSync(folder).some(
        (name) => name === `out-${count}` && readdirSync(join(folder, name)).length,
      ),
    );
    t.strictSame(
      caveats(await run(radiograph({ ImageLaterality: "R" }), [sided(detector, RIGHT)])),
      [],
    );
  });

  await t.test("it takes its model with it, and no other", async (t) => {
    const { answer, folder } = await run(radiograph({ Laterality: "R" }), [
      classifier,
      sided(detector, LEFT),
    ]);
    t.equal(answer.status, "partial");
    t.match(answer.models, [
      { name: "test-classifier", status: "succeeded" },
      {
        name: "test-detector",
        status: "failed",
        error: { error: "output_invalid" },
        findings: { length: 0 },
        outputs: { length: 0 },
      },
    ]);
    t.strictSame(readdirSync(folder).sort(), ["scan.json", "scan.test-classifier.sr.dcm"]);
  });

  await t.test("an image that does not say its side: a caveat, also in the report", async (t) => {
    const silent = await run(radiograph(), [sided(detector, LEFT)]);
    t.strictSame(caveats(silent), ["laterality_unconfirmed"]);
    const items = everything(openFile(silent.object("sr")!).attributes);
    t.ok(items.some((item) => codeOf(item, "ConceptCodeSequence") === "laterality_unconfirmed"));
    // The box is at columns 4 to 12 of 32
    const shown = (orientation: string, side: Code) =>
      run(radiograph({ PatientOrientation: orientation }), [sided(detector, side)]).then(caveats);
    t.strictSame(await shown("L\\F", RIGHT), [], "the patient's right is at the left of the image");
    t.strictSame(await shown("L\\F", LEFT), ["laterality_doubtful"]);
    t.strictSame(await shown("R\\F", LEFT), []);
    t.strictSame(
      await shown("F\\L", LEFT),
      ["laterality_doubtful"],
      "the box is in the upper half",
    );
    t.strictSame(await shown("F\\R", LEFT), []);
    t.strictSame(await shown("A\\F", LEFT), ["laterality_unconfirmed"], "sagittal");
  });

  await t.test("each image of a group lies as its own file says", async (t) => {
    const isDoubtful = async (...orientations: string[]) => {
      const files = orientations.map((PatientOrientation, i) =>
        radiograph({ PatientOrientation, SOPInstanceUID: `1.2.3.1.${i}`, InstanceNumber: `${i}` }),
      );
      const task = { inputPath: folderOf(t, files), group: "series" } as const;
      const found = caveats(await run(radiograph(), [sided(detector, LEFT)], task));
      return found.includes("laterality_doubtful");
    };
    t.notOk(await isDoubtful("R\\F", "R\\F"));
    t.ok(await isDoubtful("R\\F", "L\\F"), "the second alone");
    t.ok(await isDoubtful("A\\F", "L\\F"), "beside one of which nobody knows");
    t.ok(await isDoubtful("L\\F", "R\\F"), "the first alone");
  });

  await t.test("an image that contradicts itself is no witness", async (t) => {
    const swapped = radiograph({ Laterality: "L", ImageLaterality: "R" });
    for (const side of [LEFT, RIGHT])
      t.equal((await failure(run(swapped, [sided(detector, side)]))).code, "output_invalid");
    const plain = await run(swapped, [detector]);
    t.strictSame(caveats(plain), ["laterality_contradictory"]);
    const items = everything(openFile(plain.object("sr")!).attributes);
    t.notOk(
      items.some((item) => codeOf(item, "ConceptNameCodeSequence") === "272741003"),
      "no side is told",
    );
  });

  await t.test("a final model without a code is not loaded", async (t) => {
    const directory = join(folder, "models");
    copyModel(directory, "ct-tissue", "uncoded", ({ outputs: [output] }) => {
      if (output?.kind === "segmentation") delete output.labels[0]!.code;
    });
    const set = await modelsOf(directory, engine);
    t.match(set.problems, [
      { name: "uncoded", error: { message: /labels\[0\]\.code: Required in stage final/ } },
    ]);
    const error = await failure(
      run(radiograph(), [...set.entries, classifier], { models: ["uncoded"] }),
    );
    t.match(error.code, /model_not_found|model_unavailable/);
    await set.close();
  });

  await t.test("nothing is written without its code", async (t) => {
    const uncoded = (change: (manifest: Manifest) => void): ModelEntry => {
      const manifest = structuredClone(classifier.manifest);
      change(manifest);
      return { ...classifier, name: "test-uncoded", manifest };
    };
    const cases: [RegExp, (manifest: Manifest) => void][] = [
      [
        /coded concept for "Effusion"/,
        ({ outputs: [o] }) => o?.kind === "classification" && delete o.labels[0]!.code,
      ],
      [
        /coded concept for "Length"/,
        ({ outputs: [, o] }) => o?.kind === "regression" && delete o.values[0]!.code,
      ],
    ];
    for (const [message, change] of cases) {
      const error = await failure(run(radiograph(), [uncoded(change)]));
      t.equal(error.code, "output_invalid");
      t.match(error.message, message);
      const { answer, folder } = await run(radiograph(), [detector, uncoded(change)]);
      t.match(answer, {
        status: "partial",
        models: [{ status: "succeeded" }, { status: "failed" }],
      });
      t.notOk(readdirSync(folder).some((name) => name.includes("uncoded")));
    }
    const segmenter = await loadTestModel(engine, folder, "segmenter");
    const manifest = structuredClone(segmenter.manifest);
    const [output] = manifest.outputs;
    if (output?.kind === "segmentation") delete output.labels[0]!.category;
    const error = await failure(run(radiograph(), [{ ...segmenter, manifest }]));
    t.match(error, { code: "output_invalid", message: /coded concept for "grey"/ });
  });

  await t.test("a SEG holds the raw output as it lies in the source's pixels", async (t) => {
    const bytes = radiograph();
    const [rows, columns] = [24, 32];
    const image = await readImage(bytes);
    const plane = {
      format: image.format,
      data: await image.frame(0),
      interpretation: image.interpretation(0),
      pixelAspect: 1,
    };
    const rawOf = async (entry: ModelEntry) => {
      const options = { thresholds: entry.thresholds, dump: true };
      const { tensors } = await engine.infer(entry.nativeId!, [plane], options);
      return tensors!.outputs[0]!;
    };
    const frames = async (seg: Buffer) => {
      const read = readDicom(seg);
      return Promise.all(Array.from({ length: read.frameCount }, (_, i) => read.frame(i)));
    };
    const small = await loadTestModel(engine, folder, "small");
    const [first, second] = await frames((await run(bytes, [small])).object("seg")!);
    const labels = (await rawOf(small)).data;
    // The nearest sample of the map: where a pixel's centre falls
    const wrong = Array.from({ length: rows * columns }, (_, i) => i).filter((i) => {
      const y = Math.floor(((Math.floor(i / columns) + 0.5) * SMALL.rows) / rows);
      const x = Math.floor((((i % columns) + 0.5) * SMALL.columns) / columns);
      const label = labels[y * SMALL.columns + x];
      return first![i] !== Number(label === 1) || second![i] !== Number(label === 2);
    });
    t.strictSame(wrong, []);
    t.equal(new Set(labels).size, 3, "with all labels in it");

    const fractional = await loadTestModel(engine, folder, "fractional");
    const made = await run(bytes, [fractional]);
    const seg = openFile(made.object("seg")!).attributes;
    t.equal(seg.string("SegmentationType"), "FRACTIONAL");
    t.equal(seg.string("SegmentationFractionalType"), "PROBABILITY");
    t.equal(seg.number("MaximumFractionalValue"), 255);
    const raw = await rawOf(fractional);
    const values = new Float32Array(raw.data.buffer, raw.data.byteOffset, raw.data.byteLength / 4);
    const found = await frames(made.object("seg")!);
    t.equal(found.length, 2);
    let farthest = 0;
    for (const [segment, pixels] of found.entries())
      for (let i = 0; i < rows * columns; i++) {
        const expected = bilinear(
          values,
          segment,
          Math.floor(i / columns),
          i % columns,
          rows,
          columns,
        );
        farthest = Math.max(farthest, Math.abs(pixels[i]! - expected * 255));
      }
    t.ok(farthest <= 0.501, `steps of 1/255 to the nearest, at most ${farthest} off`);
    const area = made.receipt.models[0]!.findings[0]!.area!.pixels;
    t.match(made.receipt.models[0]!.findings, [{ threshold: 0.6 }, { threshold: 0.55 }]);
    const above = (step: number) => found[0]!.filter((value) => value >= step).length;
    t.ok(area >= above(154) && area <= above(153), "the finding is by its threshold, 0.6");
  });

  await t.test("probabilities of a volume", async (t) => {
    const entry = await loadTestModel(engine, folder, "volume-fractional");
    const slices = 3;
    const format = {
      rows: 4,
      columns: 5,
      samplesPerPixel: 1,
      bitsAllocated: 16,
      bitsStored: 16,
    } as const;
    const planes = Array.from({ length: slices }, (_, z) => ({
      format: {
        ...format,
        highBit: 15,
        signed: true,
        float: false,
        packed422: false,
        photometricInterpretation: "MONOCHROME2" as const,
      },
      data: new Uint8Array(Int16Array.from({ length: 20 }, (_, i) => z * 100 + i * 5 - 160).buffer),
      interpretation: {
        modality: { kind: "identity" } as const,
        units: "HU",
        voi: [],
        padding: { from: -160, to: -160 },
        palette: undefined,
      },
      pixelAspect: 1,
    }));
    const geometry = {
      origin: [0, 0, 0],
      columnDirection: [1, 0, 0],
      rowDirection: [0, 1, 0],
      sliceDirection: [0, 0, 1],
      columnSpacing: 1,
      rowSpacing: 1,
      sliceSpacing: 1,
    } as const;
    const { outputs, tensors } = await engine.infer(entry.nativeId!, planes, {
      geometry: structuredClone(geometry) as never,
      thresholds: entry.thresholds,
      dump: true,
    });
    const [output] = outputs;
    if (output?.kind !== "segmentation") throw new Error("It segments");
    const raw = tensors!.outputs[0]!.data;
    const values = new Float32Array(raw.buffer, raw.byteOffset, raw.byteLength / 4);
    const expected = Array.from(values, (value) =>
      Math.round(Math.min(1, Math.max(0, value)) * 255),
    );
    // The padded voxel is of no probability, in both labels
    expected[0] = expected[60] = 0;
    t.strictSame(Array.from(output.fractions!), expected);
    t.ok(new Set(expected).size > 20);
  });
});

/**
 * The value of a map at a source pixel's centre, linear between samples, the outermost repeated.
 */
function bilinear(
  map: Float32Array,
  plane: number,
  row: number,
  column: number,
  rows: number,
  columns: number,
) {
  const along = (i: number, length: number, samples: number) => {
    const at = ((i + 0.5) * samples) / length - 0.5;
    const low = Math.floor(at);
    const clamp = (n: number) => Math.min(Math.max(n, 0), samples - 1);
    return { low: clamp(low), high: clamp(low + 1), part: at - low };
  };
  const y = along(row, rows, SMALL.rows);
  const x = along(column, columns, SMALL.columns);
  const at = (r: number, c: number) => map[(plane * SMALL.rows + r) * SMALL.columns + c]!;
  const upper = at(y.low, x.low) * (1 - x.part) + at(y.low, x.high) * x.part;
  const lower = at(y.high, x.low) * (1 - x.part) + at(y.high, x.high) * x.part;
  return upper * (1 - y.part) + lower * y.part;
}

t.test("every place where an image names its side", async (t) => {
  const label: Label = { label: "nodule", laterality: LEFT };
  const code = (value: string, scheme: string) => [
    { CodeValue: value, CodingSchemeDesignator: scheme },
  ];
  const region = (value: string, scheme: string) => [
    { AnatomicRegionModifierSequence: code(value, scheme) },
  ];
  const of = async (more: Parameters<typeof radiograph>[0], laterality: Code = LEFT) =>
    checkSides({
      image: await readImage(radiograph(more)),
      outputs: [
        {
          kind: "classification",
          tensor: "y",
          activation: "none",
          calibration: { kind: "none" },
          labels: [{ ...label, laterality }],
        },
      ],
      findings: [{ label: "nodule", present: true, score: 1, threshold: 0.5 }],
      results: [{ kind: "classification", tensor: "y", scores: Float32Array.of(1) }],
    }).map(({ code: found }) => found);
  const rights = [
    { Laterality: "R" },
    { ImageLaterality: "R" },
    { AnatomicRegionSequence: region("24028007", "SCT") },
    { AnatomicRegionSequence: region("G-A100", "SRT") },
    { SharedFunctionalGroupsSequence: [{ FrameAnatomySequence: [{ FrameLaterality: "R" }] }] },
    { PerFrameFunctionalGroupsSequence: [{ FrameAnatomySequence: [{ FrameLaterality: "R" }] }] },
  ];
  for (const right of rights) {
    await t.rejects(of(right), { code: "output_invalid" }, JSON.stringify(right));
    t.strictSame(await of(right, RIGHT), []);
  }
  for (const silent of [
    {},
    { ImageLaterality: "B" },
    { ImageLaterality: "U" },
    { ViewPosition: "RL" },
  ])
    t.strictSame(await of(silent), ["laterality_unconfirmed"], JSON.stringify(silent));
  const both: Code = { value: "51440002", scheme: "SCT", meaning: "Right and left" };
  t.strictSame(await of({ Laterality: "R" }, both), [], "a label of both sides claims none");
});

t.test("a total of images of both sides is of both", async (t) => {
  const grouped = (...sides: string[]) => {
    const files = sides.map((ImageLaterality, i) =>
      radiograph({ ImageLaterality, SOPInstanceUID: `1.2.3.1.${i}`, InstanceNumber: `${i}` }),
    );
    return readFolder(t, folderOf(t, files), { grouped: true });
  };
  const [both, rights] = [await grouped("L", "R"), await grouped("R", "R")];
  const names = { L: "left mass", R: "right mass" };
  const finding = { present: true, score: 1, threshold: 0.5 };
  const total = { over_frames: "maximum" } as const;
  const of = (image: typeof both, present: boolean, ...sides: ("L" | "R")[]) =>
    checkSides({
      image,
      outputs: [
        {
          kind: "classification",
          tensor: "y",
          activation: "none",
          calibration: { kind: "none" },
          labels: [
            { label: names.L, laterality: LEFT },
            { label: names.R, laterality: RIGHT },
          ],
        },
      ],
      findings: sides.flatMap((side, i) => [
        { ...finding, label: names[side], frame: i + 1, present },
        { ...finding, label: names[side], ...total },
      ]),
      results: [{ kind: "classification", tensor: "y", scores: Float32Array.of(1, 1) }],
    });
  t.strictSame(of(both, true, "L", "R"), []);
  const refused = { code: "output_invalid" };
  t.throws(() => of(both, true, "R", "L"), refused, "each is of its own image's side");
  t.strictSame(of(rights, false, "R", "R"), []);
  t.throws(() => of(rights, false, "L", "L"), refused, "present in the total alone");
});

t.test("a mask that is drawn elsewhere", (t) => {
  const labels: Label[] = [{ label: "a", colour: [240, 80, 60] }, { label: "b" }];
  const outputs = [
    {
      kind: "segmentation",
      tensor: "m",
      activation: "label_map",
      labels,
      postprocess: [],
      measurements: [],
    },
  ] satisfies OverlayInput["model"]["outputs"];
  for (const [rows, columns, frames] of [
    [40, 30, 1],
    [700, 500, 1],
    [1500, 2100, 1],
    [300, 400, 3],
  ] as const) {
    const mask = Uint8Array.from({ length: rows * columns }, (_, i) => {
      const [y, x] = [Math.floor(i / columns) / rows, (i % columns) / columns];
      return (y - 0.3) ** 2 + (x - 0.35) ** 2 < 0.02 ? 1 : y > 0.8 && x < 0.2 ? 2 : 0;
    });
    const moved = (by: (y: number, x: number) => [number, number]) =>
      Uint8Array.from({ length: mask.length }, (_, i) => {
        const [y, x] = by(Math.floor(i / columns), i % columns);
        return y < 0 || x < 0 || y >= rows || x >= columns ? 0 : mask[y * columns + x]!;
      });
    const result = (values: Uint8Array): EngineOutput => ({
      kind: "segmentation",
      tensor: "m",
      rows,
      columns,
      overlapping: false,
      counts: [1, 2].map((label) => values.filter((value) => value === label).length),
      mask: values,
    });
    const grey = Uint8Array.from({ length: 60 * 80 * 3 }, (_, i) => 40 + ((i * 7) % 90));
    const drawn = (values: Uint8Array): string => {
      const input: OverlayInput = {
        // Of several, the last one alone is drawn from these values
        shots: Array.from({ length: frames }, (_, i) => ({
          picture: { width: 80, height: 60, rgb: grey },
          frame: i + 1,
          results: [result(i === frames - 1 ? values : mask)],
          findings: [],
        })),
        source: { rows, columns, pixelAspect: 1, frames, called: "frame" },
        model: { name: "m", version: "1", manufacturer: "m", regulatory: "None.", outputs },
        findings: [],
        measurements: [],
        warnings: [],
        opacity: 0.3,
      };
      const { picture, masked } = renderOverlay(input);
      const panels = masked.map((panel) => ({
        ...panel,
        marks: panel.marks.map((marks) => ({
          ...marks,
          masks: marks.masks.map((layer) => ({ ...layer, mask })),
        })),
      }));
      try {
        checkPicture(picture, panels);
        return "accepted";
      } catch (error) {
        return error instanceof RadserveError ? `${error.code}: ${error.message}` : String(error);
      }
    };
    const size = `${rows} x ${columns}, ${frames} frame(s)`;
    t.equal(drawn(mask), "accepted", size);
    const far = Math.ceil(Math.max(rows, columns) / 60);
    const faults: [string, Uint8Array][] = [
      ["flipped left to right", moved((y, x) => [y, columns - 1 - x])],
      ["upside down", moved((y, x) => [rows - 1 - y, x])],
      ["turned", moved((y, x) => [rows - 1 - y, columns - 1 - x])],
      ["moved to the right", moved((y, x) => [y, x - far])],
      ["moved down", moved((y, x) => [y - far, x])],
    ];
    for (const [what, values] of faults)
      t.match(drawn(values), /^output_invalid: .*beside the mask/, `${size}, ${what}`);
    t.match(
      drawn(new Uint8Array(mask.length)),
      /leaves parts of the mask out/,
      `${size}, left out`,
    );
    t.match(
      drawn(mask.map((value) => (value === 1 ? 0 : value))),
      /leaves parts/,
      `${size}, a label`,
    );
  }
  t.end();
});
