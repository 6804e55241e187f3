/** A series as one item for models of single images, with the real engine. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { InferTask } from "../../src/inference/task.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { replay } from "../../src/inference/replay.js";
import { withInput } from "../../src/files/guarded-paths.js";
import { readImage } from "../../src/images/read-image.js";
import { ANY_STACK, type Attributes } from "../../src/images/image.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import type { Engine } from "../../src/engine/engine.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { receiptSchema, type ReceiptModel } from "../../src/results/receipt/receipt.js";
import { failure } from "../support/expect.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { engineWithFolder, modelsOf } from "../support/real-engine.js";
import { folderOf, slice, type SliceOptions } from "../support/series.js";
import { loadTestModel } from "../support/test-models.js";
import { objectErrors } from "../support/validators.js";

const single = ({ accepts }: Manifest) => Object.assign(accepts, { dimensions: "2d" });

interface Loaded {
  engine: Engine;
  entries: readonly ModelEntry[];
}

async function loaded(t: Test): Promise<Loaded> {
  const directory = t.testdir({});
  copyModel(directory, "ct-tissue", "tissue", (manifest) => {
    single(manifest);
    Object.assign(manifest.outputs[0]!, { measurements: ["area", "volume"] });
  });
  const { engine: own, folder } = engineWithFolder(t, "graphs");
  const models = await modelsOf(directory, own);
  t.teardown(() => models.close());
  const whole = await loadTestModel(own, folder, "volume");
  const boxes = await loadTestModel(own, folder, "detector", single);
  const scores = await loadTestModel(own, folder, "classifier", (manifest) => {
    single(manifest);
    Object.assign(manifest.outputs[0]!, { over_frames: "maximum" });
  });
  return { engine: own, entries: [scores, boxes, whole, ...models.entries] };
}

const run = (
  models: Loaded,
  inputPath: string,
  outputFolder: string,
  more: Partial<InferTask> = {},
) =>
  infer(
    {
      requestId: "r",
      inputPath,
      outputFolder,
      priority: "routine",
      cancelId: 1,
      roots: { input: undefined, output: undefined },
      startedAt: "2026-11-27T00:00:00.000Z",
      ...more,
    },
    { engine: models.engine, models: models.entries },
  );

const group = { group: "series" } as const;
const receiptAt = (file: string) => receiptSchema.parse(JSON.parse(readFileSync(file, "utf8")));
const named = ({ models }: { models: readonly ReceiptModel[] }, name: string) =>
  models.find((model) => model.name === name)!;

const words = (valueOf: (i: number) => number) =>
  new Uint8Array(Int16Array.from({ length: 24 }, (_, i) => valueOf(i)).buffer);

const HOUNSFIELD = [-100, 40, 40, 300];
/** From the feet to the head, under names in another order, and numbered from the head. */
const slices = (change: (i: number) => Partial<SliceOptions> = () => ({})) =>
  Object.fromEntries(
    HOUNSFIELD.map((fill, i) => {
      const { attributes, ...more } = change(i);
      const numbered = { InstanceNumber: String(HOUNSFIELD.length - i), ...attributes };
      return ["bdac"[i]!, slice({ z: 2.5 * i, fill, attributes: numbered, ...more })];
    }),
  );

t.test(
  "models of single images look at each slice of a group",
  { skip: needs(ADDON) },
  async (t) => {
    const models = await loaded(t);
    const folder = folderOf(t, slices());
    const output = join(folder, "..", "out");
    const alone = await failure(run(models, folder, output, { models: ["tissue"] }));
    t.match(
      alone.details,
      { models: [{ reasons: [{ code: "single_frame_required" }] }] },
      "not unless asked",
    );

    const { receipt_path, models: answered } = await run(models, folder, output, group);
    const receipt = receiptAt(receipt_path);
    t.strictSame(
      answered.map(({ name, status }) => [name, status]),
      ["test-classifier", "test-detector", "test-volume", "tissue"].map((name) => [
        name,
        "succeeded",
      ]),
      "the model of series sees the same item",
    );
    t.match(receipt.source, { frames: 4, group: "series", slices: { length: 4 } });
    t.strictSame(
      receipt.source.slices?.map(({ instance_number: number }) => number),
      [4, 3, 2, 1],
    );
    const files = answered.flatMap(({ outputs }) => outputs.map(({ path }) => path));
    t.strictSame(
      files
        .filter((path) => path.includes(".tissue."))
        .map((path) => path.slice(output.length + 1)),
      ["png", "seg.dcm", "sc.dcm", "sr.dcm"].map((kind) => `series.tissue.${kind}`),
      "one of each",
    );

    await t.test("what is said of a slice is what is said of its file alone", async (t) => {
      const seg = await readImage(readFileSync(join(output, "series.tissue.seg.dcm")));
      const frames = openFile(
        readFileSync(join(output, "series.tissue.seg.dcm")),
      ).attributes.sequence("PerFrameFunctionalGroupsSequence")!;
      for (const [i, name] of ["b", "d", "a", "c"].entries()) {
        const own = join(output, `single-${name}`);
        const single = receiptAt((await run(models, join(folder, name), own)).receipt_path);
        for (const model of ["test-classifier", "test-detector", "tissue"]) {
          const at = <T extends { frame?: number | undefined }>(all: readonly T[]) =>
            all.flatMap(({ frame, ...rest }) => (frame === i + 1 ? [rest] : []));
          const [whole, one] = [named(receipt, model), named(single, model)];
          t.strictSame(at(whole.findings), one.findings, `${model}, ${name}`);
          t.strictSame(at(whole.measurements), one.measurements, `${model}, ${name}`);
        }
        const mask = await readImage(readFileSync(join(own, `${name}.tissue.seg.dcm`)));
        const { sop_instance_uid: uid } = receipt.source.slices![i]!;
        const mine = frames.flatMap((item, n) => {
          const source = item
            .sequence("DerivationImageSequence")![0]!
            .sequence("SourceImageSequence")![0]!;
          return source.string("ReferencedSOPInstanceUID") === uid ? [n] : [];
        });
        t.equal(mine.length, mask.frameCount);
        for (const [n, frame] of mine.entries())
          t.strictSame(await seg.frame(frame), await mask.frame(n));
      }
    });

    await t.test("labels have totals: areas become a volume, scores one score", (t) => {
      const total = named(receipt, "tissue").findings.filter((one) => one.over_frames === "total");
      const ml = 0.024;
      t.match(total, [
        { label: "gas and lung", present: false, volume: { voxels: 0 } },
        { label: "fat", present: true, volume: { voxels: 24, ml } },
        { label: "muscle and soft tissue", present: true, volume: { voxels: 48, ml: 0.048 } },
        { label: "bone", present: true, volume: { voxels: 24, ml } },
      ]);
      t.notOk(total.some(({ frame }) => frame !== undefined));
      const { measurements, warnings } = named(receipt, "tissue");
      const whole = measurements.filter(({ frame }) => frame === undefined);
      t.match(
        whole.filter(({ label }) => label === "muscle and soft tissue"),
        [
          { name: "Volume", value: 0.048, unit: { value: "mL" } },
          { name: "Slices", value: 2, unit: { value: "1" } },
        ],
      );
      t.notOk(warnings.some(({ code }) => code === "volume_not_measured"));
      t.match(named(receipt, "test-detector").findings.slice(0, 2), [
        { label: "nodule", present: true, over_frames: "total" },
        { label: "mass", present: false, over_frames: "total" },
      ]);
      t.match(named(receipt, "test-classifier").findings.slice(0, 2), [
        { label: "Effusion", over_frames: "maximum" },
        { label: "Pneumothorax", over_frames: "maximum" },
      ]);
      t.end();
    });

    await t.test("the report has a group for each label, with its volume and its images", (t) => {
      const { attributes } = openFile(readFileSync(join(output, "series.tissue.sr.dcm")));
      const nameOf = (item: Attributes) =>
        item.sequence("ConceptNameCodeSequence")?.[0]?.string("CodeValue");
      const within = (item: Attributes, name: string) =>
        (item.sequence("ContentSequence") ?? []).filter((child) => nameOf(child) === name);
      const groups = within(attributes, "126010").flatMap((item) => within(item, "125007"));
      t.strictSame(
        groups.map((item) =>
          item.sequence("ContentTemplateSequence")?.[0]?.string("TemplateIdentifier"),
        ),
        ["1411", "1411", "1411"],
      );
      const numbers = (item: Attributes, name: string) =>
        within(item, name).map((number) =>
          number.sequence("MeasuredValueSequence")?.[0]?.number("NumericValue"),
        );
      t.strictSame(
        groups.map((item) => numbers(item, "118565006")),
        [[0.024], [0.048], [0.024]],
        "mL",
      );
      const { measurements, findings } = named(receipt, "tissue");
      const areas = measurements.filter(
        ({ name, label, frame, value }) =>
          name === "Area" && label === "muscle and soft tissue" && frame !== undefined && value > 0,
      );
      const [, muscle] = groups;
      t.strictSame(
        numbers(muscle!, "42798000"),
        areas.map(({ value }) => value),
      );
      const sources = within(muscle!, "42798000").map((item) =>
        within(item, "121112")[0]
          ?.sequence("ReferencedSOPSequence")?.[0]
          ?.string("ReferencedSOPInstanceUID"),
      );
      t.strictSame(
        sources,
        areas.map(({ frame = 0 }) => receipt.source.slices?.[frame - 1]?.sop_instance_uid),
        "each area names its slice",
      );
      const absent = within(attributes, "C0034375").flatMap((item) => within(item, "74947009"));
      t.equal(absent.length, 1);
      t.strictSame(numbers(absent[0]!, "118565006"), [0], "and what is absent has none");
      t.ok(findings.some(({ present, frame }) => !present && frame !== undefined));
      t.end();
    });

    await t.test("validators find no fault", { skip: commandsAre("dciodvfy") }, (t) => {
      for (const file of files.filter((path) => path.endsWith(".dcm")))
        t.strictSame(objectErrors(file), [], file);
      t.end();
    });

    await t.test(
      "it is used again, computed again, and told from the same folder as no group",
      async (t) => {
        t.equal((await run(models, folder, output, group)).reused, true);
        const choice = { grouped: true, tolerance: ANY_STACK };
        const checks = await withInput(folder, undefined, async (opened) => {
          const image = await readInput(opened, undefined, choice);
          return replay({ receipt, image, engine: models.engine, models: models.entries });
        });
        t.strictSame([...new Set(checks.map(({ verdict }) => verdict))], ["ok"]);
        const plain = await run(models, folder, join(output, "plain"));
        const [mine, other] = [receipt, receiptAt(plain.receipt_path)].map((one) =>
          named(one, "test-volume"),
        );
        t.strictSame(mine!.outputs, other!.outputs, "a model of series says the same of both");
        t.equal((await run(models, folder, join(output, "plain"), group)).reused, false);
        writeFileSync(
          join(folder, "e"),
          slice({ z: 10, fill: 40, attributes: { InstanceNumber: "0" } }),
        );
        const grown = receiptAt((await run(models, folder, output, group)).receipt_path);
        t.equal(grown.source.frames, 5, "slices that came late");
        t.match(named(grown, "tissue"), { predecessor: { sop_class_uid: String } });
        writeFileSync(
          join(folder, "e"),
          slice({ z: 10, fill: 41, attributes: { InstanceNumber: "0" } }),
        );
        t.match(await failure(run(models, folder, output, group)), { code: "output_name_taken" });
      },
    );
  },
);

t.test("slices that are no volume", { skip: needs(ADDON) }, async (t) => {
  const models = await loaded(t);
  // Two phases in one series: each place twice
  const folder = folderOf(
    t,
    slices((i) => ({
      attributes: { ImagePositionPatient: `-10\\-20\\${i % 2}`, SOPInstanceUID: `1.5.${i}` },
    })),
  );
  const output = join(folder, "..", "out");
  const { receipt_path, warnings, models: answered } = await run(models, folder, output, group);
  const receipt = receiptAt(receipt_path);
  t.strictSame(
    receipt.source.slices?.map(({ sop_instance_uid: uid }) => uid),
    ["1.5.3", "1.5.2", "1.5.1", "1.5.0"],
    "by their numbers",
  );
  t.match(warnings, [
    { code: "no_volume", message: /one by one.*Expected every slice at a place of its own/ },
  ]);
  t.match(named(receipt, "test-volume"), {
    status: "not_accepted",
    reasons: [{ code: "series_duplicate_position" }],
  });
  const tissue = named(receipt, "tissue");
  const soft = tissue.findings.find(
    (one) => one.over_frames === "total" && one.label.startsWith("muscle"),
  );
  t.match(soft, { present: true, volume: undefined });
  t.match(
    tissue.warnings.filter(({ code }) => code === "volume_not_measured"),
    [{ message: /do not add up.*Expected every slice at a place of its own/ }],
  );
  t.notOk(tissue.measurements.some(({ name }) => name === "Volume"));
  const seg = openFile(readFileSync(join(output, "series.tissue.seg.dcm"))).attributes;
  t.equal(seg.number("NumberOfFrames"), 16);
  const files = answered.flatMap(({ outputs }) => outputs.map(({ path }) => path));
  if (commandsAre("dciodvfy") === false)
    for (const file of files.filter((path) => path.endsWith(".dcm")))
      t.strictSame(objectErrors(file), [], file);

  await t.test("without places, and in several frames of reference", async (t) => {
    const nowhere = { ImagePositionPatient: undefined, ImageOrientationPatient: undefined };
    const changes = [
      () => ({ attributes: nowhere }),
      (i: number) => ({ attributes: { FrameOfReferenceUID: `1.7.${i % 2}` } }),
    ];
    for (const [n, change] of changes.entries()) {
      const other = folderOf(t, slices(change));
      const out = join(other, "..", `out-${n}`);
      await run(models, other, out, { ...group, models: ["tissue"] });
      const { attributes } = openFile(readFileSync(join(out, "series.tissue.seg.dcm")));
      t.equal(attributes.string("FrameOfReferenceUID"), undefined, "the masks claim no place");
    }
  });

  await t.test("what is no series stays none", async (t) => {
    const other = folderOf(
      t,
      slices((i) => ({ attributes: i === 1 ? { Rows: 3 } : {} })),
    );
    const error = await failure(run(models, other, join(other, "..", "out"), group));
    t.match(error, { code: "series_invalid", details: { reason: "mixed_size" } });
    const cut = folderOf(t, { ...slices(), b: slices()["b"]!.subarray(0, -8) });
    const lost = await failure(run(models, cut, join(cut, "..", "out"), group));
    t.match(lost, { code: "truncated_image", message: /a series is taken whole or not at all/ });
  });
});

t.test("slices that break off within a row", { skip: needs(ADDON) }, async (t) => {
  const models = await loaded(t);
  const [rows, columns] = [24, 32];
  const noise = (i: number) => 40 + ((i * 7919) % 101);
  const frame = (value: (i: number, row: number, column: number) => number) =>
    new Uint8Array(
      Int16Array.from({ length: rows * columns }, (_, i) =>
        value(i, Math.floor(i / columns), i % columns),
      ).buffer,
    );
  const whole = frame(noise);
  const ran = async (pixels: readonly Uint8Array[]) => {
    const folder = folderOf(
      t,
      pixels.map((one, i) =>
        slice({ z: 2.5 * i, frames: [one], attributes: { Rows: rows, Columns: columns } }),
      ),
    );
    const task = { models: ["tissue"], ...group };
    const { models: answered } = await run(models, folder, join(folder, "..", "out"), task);
    return answered[0]?.warnings.map(({ code }) => code).includes("cut_frame");
  };
  const cutAt = (pixel: number) => frame((i) => (i < pixel ? noise(i) : 0));
  const cut = cutAt(12 * columns + 17);
  const refused = (frames: number[]) => ({
    code: "decode_suspect",
    details: { reason: "cut_frame", frames },
  });
  t.match(await failure(ran([whole, whole, cut])), refused([3]), "the last");
  t.match(await failure(ran([whole, cut, whole])), refused([2]), "one between others");
  const clipped = frame((i) => (i < 12 * columns + 17 && i % 5 > 0 ? noise(i) : 0));
  t.match(await failure(ran([whole, whole, clipped])), refused([3]), "zeros among its values");
  t.ok(await ran([cut, cut, cut]), "all of them");
  t.ok(await ran([cut]), "a lone one");
  const turned = [cutAt(16 * columns), cutAt(16 * columns + 17), cutAt(17 * columns)];
  t.ok(await ran([...turned, whole, whole]), "a border that a turn of the image has left");
  const usual: [string, Uint8Array][] = [
    ["a border of zeros", cutAt(16 * columns)],
    ["a border of some rows", cutAt((rows - 1) * columns + 9)],
    [
      "a circle",
      frame((i, row, column) => ((row - 9) ** 2 + (column - 15) ** 2 < 60 ? noise(i) : 0)),
    ],
    [
      "a body that lies on the left",
      frame((i, row, column) => (row < 14 && column < 18 ? noise(i) : 0)),
    ],
    [
      "a body that grows",
      frame((i, row, column) => (row < 14 && column < 32 - row ? noise(i) : 0)),
    ],
    [
      "zeros among others",
      frame((i, row, column) => (row < 14 || (row === 14 && column < 16) ? (i % 2) * noise(i) : 0)),
    ],
  ];
  for (const [name, one] of usual) t.notOk(await ran([whole, one, whole]), name);
});

t.test("slices of one value among others", { skip: needs(ADDON) }, async (t) => {
  const models = await loaded(t);
  const body = words((i) => 40 + i);
  const drawn = words((i) => 40 + (i % 3));
  const zeros = words(() => 0);
  const stack = (pixels: readonly Uint8Array[], attributes: SliceOptions["attributes"] = {}) =>
    folderOf(
      t,
      pixels.map((frame, i) => slice({ z: 2.5 * i, frames: [frame], attributes })),
    );
  const tissue: Partial<InferTask> = { models: ["tissue"], ...group };
  const ran = async (folder: string, more = tissue) => {
    const { models: answered } = await run(models, folder, join(folder, "..", "out"), more);
    return answered[0]?.warnings.map(({ code }) => code);
  };
  const all = [body, body, body, body];
  t.notOk((await ran(stack(all)))?.includes("blank_frame"), "none");
  t.ok((await ran(stack([zeros, body, body, zeros])))?.includes("blank_frame"), "both ends");
  t.ok((await ran(stack([zeros, zeros, body, body])))?.includes("blank_frame"), "two at an end");
  t.ok((await ran(stack([zeros, zeros, zeros])))?.includes("blank_frame"), "all of them");
  t.ok((await ran(stack([zeros])))?.includes("blank_frame"), "a lone one");

  const hole = { code: "decode_suspect", details: { reason: "blank_slice", frames: [2] } };
  t.match(await failure(ran(stack([body, zeros, body, body]))), hole, "between others");
  const whole: Partial<InferTask> = { models: ["test-volume"] };
  t.match(await failure(ran(stack([body, zeros, body, body]), whole)), hole, "in a volume");
  t.match(
    await failure(ran(stack([body, zeros, zeros, body]))),
    { details: { reason: "blank_slice", frames: [2, 3] } },
    "two between others",
  );
  t.ok(
    (await ran(stack([drawn, zeros, drawn]), whole))?.includes("blank_frame"),
    "a drawn phantom has slices without anything",
  );
  const padded = { PixelPaddingValue: 0 };
  t.match(await failure(ran(stack([body, zeros, body, body], padded))), hole, "of padding");
  const reformatted = { ImageType: "DERIVED\\SECONDARY\\MPR" };
  t.match(await failure(ran(stack([body, zeros, body], reformatted))), hole, "a reformatted CT");
  const map = { ImageType: "DERIVED\\SECONDARY\\CBF" };
  t.ok(
    (await ran(stack([body, zeros, body], map), whole))?.includes("blank_frame"),
    "a map of what was found has empty slices",
  );
});

t.test(
  "slices of other bits, over the bits that each allows",
  { skip: needs(ADDON) },
  async (t) => {
    const { engine, folder: graphs } = engineWithFolder(t, "graphs");
    const meterOf = (values: object) =>
      loadTestModel(engine, graphs, "classifier", (manifest) => {
        single(manifest);
        const [input] = imageInputs(manifest);
        Object.assign(input ?? {}, { values, monochrome1: "invert" });
      });
    const stored = (
      bits: number,
      more: SliceOptions["attributes"],
      value: number,
    ): Partial<SliceOptions> => ({
      attributes: {
        BitsStored: bits,
        HighBit: bits - 1,
        PixelRepresentation: 0,
        Modality: "OT",
        SOPClassUID: "1.2.840.10008.5.1.4.1.1.7",
        RescaleSlope: undefined,
        RescaleIntercept: undefined,
        ...more,
      },
      frames: [words(() => value)],
    });
    const plain = { PhotometricInterpretation: "MONOCHROME2" };
    const inverse = { PhotometricInterpretation: "MONOCHROME1" };
    const full = { kind: "full_range" };
    const absent = { kind: "voi", index: 0, if_absent: "full_range" };
    const cases = [
      ["unsigned", full, [stored(10, plain, 1023), stored(14, plain, 0)], [1, 0]],
      ["without a window", absent, [stored(10, plain, 1023), stored(14, plain, 0)], [1, 0]],
      ["inverted", full, [stored(10, inverse, 1023), stored(14, inverse, 0)], [0, 1]],
      [
        "stored and inverted",
        { kind: "stored" },
        [stored(10, inverse, 0), stored(14, inverse, 0)],
        [1023, 16383],
      ],
      [
        "signed beside unsigned",
        full,
        [stored(12, { ...plain, PixelRepresentation: 1 }, 2047), stored(12, plain, 4095)],
        [1, 1],
      ],
    ] as const;
    for (const [name, values, [first, second], expected] of cases) {
      const models = { engine, entries: [await meterOf(values)] };
      const folder = folderOf(t, {
        a: slice({ z: 0, ...first }),
        b: slice({ z: 2, ...second }),
      });
      const answer = await run(models, folder, join(folder, "..", "out"), group);
      const of = (answered: typeof answer) =>
        answered.models[0]!.measurements.map(({ value }) => Math.round(value * 1e4) / 1e4);
      t.strictSame(
        of(answer),
        expected.map((value) => 10 * value + 1),
        name,
      );
      t.ok(answer.warnings.some(({ code }) => code === "mixed_storage"));
      const alone = [];
      for (const file of ["a", "b"])
        alone.push(...of(await run(models, join(folder, file), join(folder, "..", file))));
      t.strictSame(of(answer), alone, `${name}: as the files alone`);
    }
  },
);
