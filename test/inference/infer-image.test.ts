/**
 * The use-case with the real engine, the models that ship, and the demo's images, whose truth is
 * known.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import t from "tap";
import { BURNED_IN, samples } from "../../scripts/demo/samples.js";
import { monotonic } from "../../src/base/monotonic.js";
import { createEngine } from "../../src/engine/engine.js";
import { infer } from "../../src/inference/infer-image.js";
import { type InferTask } from "../../src/inference/task.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { RESULT_FORMS, type ResultForms } from "../../src/results/forms.js";
import { receiptSchema, type ReceiptModel } from "../../src/results/receipt/receipt.js";
import { textWidth } from "../../src/results/picture/text.js";
import { failure } from "../support/expect.js";
import { modelsOf } from "../support/real-engine.js";
import { summaryOf } from "../../src/results/commit/compose.js";
import { writeReceipt } from "../support/receipts.js";
import { loadTestModel } from "../support/test-models.js";
import { ADDON, needs } from "../support/needs.js";

t.test("infer", { skip: needs(ADDON) }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "radserve-infer-"));
  const engine = createEngine({ provider: "cpu" });
  const models = await modelsOf(resolve("models"), engine);
  t.teardown(async () => {
    await models.close();
    await engine.close();
    rmSync(folder, { recursive: true });
  });
  const sample = await samples();
  const ct = join(folder, "ct.dcm");
  const ultrasound = join(folder, "us.dcm");
  writeFileSync(ct, sample.ct);
  writeFileSync(ultrasound, sample.ultrasound);

  let outputs = 0;
  const freshFolder = () => join(folder, `out-${++outputs}`);
  const run = (
    task: Partial<InferTask>,
    entries: readonly ModelEntry[] = models.entries,
    forms: ResultForms = RESULT_FORMS,
  ) =>
    infer(
      {
        requestId: "test",
        inputPath: ct,
        outputFolder: freshFolder(),
        priority: "routine",
        cancelId: 1,
        roots: { input: undefined, output: undefined },
        ...task,
      },
      { engine, models: entries, forms },
    );
  const receiptAt = (path: string) => receiptSchema.parse(JSON.parse(readFileSync(path, "utf8")));

  await t.test("tissue areas are those that were painted", async (t) => {
    const answer = await run({});
    const tissue = answer.models.find(({ name }) => name === "ct-tissue");
    t.equal(answer.status, "completed");
    t.strictSame(
      tissue?.measurements.map(({ value }) => value.toFixed(6)),
      Object.values(sample.truth).map((area) => area.toFixed(6)),
    );
    t.ok(tissue?.measurements.every(({ unit }) => unit.scheme === "UCUM" && unit.value === "cm2"));
    const receipt = receiptAt(answer.receipt_path);
    t.equal(receipt.source.modality, "CT");
    t.match(
      receipt.models.find(({ name }) => name === "ct-tissue")?.transforms.map(({ step }) => step),
      ["rescale", "resample", "tensor"],
    );
    t.strictSame(
      receipt.models.map(({ name, status }) => [name, status]),
      [
        ["burned-in-text", "not_accepted"],
        ["ct-tissue", "succeeded"],
      ],
      "models that do not take the image are in the receipt, with their reasons",
    );
  });

  await t.test("every burned-in line has a box over it", async (t) => {
    const answer = await run({ inputPath: ultrasound });
    const boxes = answer.models.find(({ name }) => name === "burned-in-text")?.findings ?? [];
    for (const { text, x, y, size } of BURNED_IN) {
      const right = x + textWidth(text, { size, face: "regular" });
      // The middle of the letters; words may have boxes of their own.
      const row = y - size * 0.35;
      const over = boxes.filter(({ box }) => box !== undefined && box.y0 < row && box.y1 > row);
      let covered = 0;
      for (let column = Math.ceil(x); column < right; column++)
        if (over.some(({ box }) => box!.x0 <= column && box!.x1 >= column)) covered++;
      t.ok(covered / (right - x) > 0.9, `${text}: ${((100 * covered) / (right - x)).toFixed(0)} %`);
    }
  });

  await t.test("equal input gives equal bytes", async (t) => {
    const startedAt = "2026-01-01T12:00:00.000Z";
    const [first, second] = [await run({ startedAt }), await run({ startedAt })];
    const bare = (path: string) => ({
      ...receiptAt(path),
      timings: undefined,
      mac: undefined,
    });
    t.strictSame(bare(first.receipt_path), bare(second.receipt_path));
    const picture = (answer: typeof first) => readFileSync(answer.models[1]!.outputs[0]!.path);
    t.ok(picture(first).equals(picture(second)));
    t.strictSame(
      first.models[1]!.outputs.map(({ path }) => basename(path)),
      ["png", "seg.dcm", "sc.dcm", "sr.dcm"].map((kind) => `ct.dcm.ct-tissue.${kind}`),
    );
  });

  await t.test("a finished result is used again, a harmed one is not", async (t) => {
    const outputFolder = freshFolder();
    const first = await run({ outputFolder });
    const again = await run({ outputFolder });
    t.equal(again.reused, true);
    t.strictSame(again.models, first.models);
    const picture = first.models[1]!.outputs[0]!;
    writeFileSync(picture.path, "harmed");
    t.equal((await run({ outputFolder })).reused, false);
    t.not(readFileSync(picture.path, "utf8"), "harmed");
    const fewer = await run({ outputFolder, outputs: ["json"] });
    t.equal(fewer.reused, false, "other outputs are another request");
    const onlyJson = { outputFolder, outputs: ["json" as const] };
    const note = join(folder, ".radserve-reception.json");
    const { series_instance_uid: uid = "" } = receiptAt(fewer.receipt_path).source;
    writeFileSync(note, JSON.stringify({ series: { [uid]: { objects: 1, associations: 0 } } }));
    const marked = await run(onlyJson);
    t.match(marked, { reused: false, warnings: [{ code: "reception_interrupted" }] });
    t.equal((await run(onlyJson)).reused, true, "it came the same way");
    rmSync(note);
    t.match(
      await run(onlyJson),
      { reused: false, warnings: { length: 0 } },
      "it has come whole since",
    );
    t.strictSame(readdirSync(outputFolder), ["ct.dcm.json"]);
  });

  await t.test("a result is used again if it would have the same form", async (t) => {
    const labelMaps = { ...RESULT_FORMS, segmentationType: "labelmap" as const };
    const segments = { outputFolder: freshFolder(), outputs: ["seg" as const] };
    const overlapping = [await loadTestModel(engine, folder, "overlapping")];
    const planes = await run(segments, overlapping);
    t.equal(planes.reused, false);
    t.equal(
      (await run(segments, overlapping, labelMaps)).reused,
      true,
      "labels that overlap have no label map",
    );
    const pictures = { outputFolder: freshFolder() };
    const { receipt_path: file } = await run(pictures);
    const receipt = receiptAt(file);
    const drawn = ({ models: all }: { models: ReceiptModel[] }) =>
      all.map(({ overlay_opacity }) => overlay_opacity);
    t.strictSame(drawn(receipt), [undefined, RESULT_FORMS.overlayOpacity]);
    for (const model of receipt.models) delete model.overlay_opacity;
    await writeReceipt(pictures.outputFolder, "ct.dcm", receipt);
    const opaque = { ...RESULT_FORMS, overlayOpacity: 0.8 };
    t.equal(
      (await run(pictures, undefined, opaque)).reused,
      true,
      "receipts of before do not tell the opacity",
    );
  });

  await t.test("two requests for one result share it", async (t) => {
    const outputFolder = freshFolder();
    const answers = await Promise.all([1, 2, 3].map(() => run({ outputFolder })));
    t.strictSame(answers.map(({ reused }) => reused).sort(), [false, true, true]);
  });

  await t.test("another image's result is never overwritten", async (t) => {
    const outputFolder = freshFolder();
    const { receipt_path } = await run({ outputFolder, name: "scan" });
    const before = readFileSync(receipt_path);
    const error = await failure(run({ outputFolder, name: "scan", inputPath: ultrasound }));
    t.equal(error.code, "output_name_taken");
    t.ok(readFileSync(receipt_path).equals(before));
    // The same SOP Instance UID over other pixels is another image too.
    const changed = Buffer.from(sample.ct);
    changed[changed.length - 100]! ^= 1;
    writeFileSync(join(folder, "changed.dcm"), changed);
    const other = await failure(
      run({ outputFolder, name: "scan", inputPath: join(folder, "changed.dcm") }),
    );
    t.equal(other.code, "output_name_taken");
    t.ok(readFileSync(receipt_path).equals(before));
  });

  await t.test("refusals leave nothing behind", async (t) => {
    writeFileSync(join(folder, "cut.dcm"), sample.ct.subarray(0, sample.ct.length / 2));
    const outputFolder = freshFolder();
    mkdirSync(outputFolder);
    const refused: [string, Partial<InferTask>][] = [
      ["truncated_image", { inputPath: join(folder, "cut.dcm") }],
      ["input_not_found", { inputPath: join(folder, "nothing.dcm") }],
      ["no_model_accepts", { models: ["burned-in-text"] }],
      ["model_not_found", { models: ["ct-tisue"] }],
      ["deadline_exceeded", { deadline: monotonic() - 1 }],
    ];
    for (const [code, task] of refused) {
      const error = await failure(run({ outputFolder, ...task }));
      t.equal(error.code, code, error.message);
    }
    t.strictSame(readdirSync(outputFolder), []);
    const none = await failure(run({ models: ["burned-in-text"] }));
    t.match(none.details, {
      models: [{ name: "burned-in-text", reasons: [{ code: "sop_class_not_accepted" }] }],
    });
  });

  await t.test("one model of several fails", async (t) => {
    const working = models.entries.find(({ name }) => name === "ct-tissue")!;
    const broken: ModelEntry = {
      ...working,
      name: "ct-broken",
      state: "failed",
      error: { error: "model_unavailable", message: "Its file is gone." },
    };
    delete broken.nativeId;
    const outputFolder = freshFolder();
    const answer = await run({ outputFolder }, [broken, working]);
    t.equal(answer.status, "partial");
    t.match(answer.models, [
      { name: "ct-broken", status: "failed", error: { error: "model_unavailable" } },
      { name: "ct-tissue", status: "succeeded" },
    ]);
    t.equal(
      (await run({ outputFolder }, [broken, working])).reused,
      false,
      "a partial result is computed again",
    );
    t.equal(
      (await failure(run({}, [broken]))).code,
      "model_unavailable",
      "all failed: the error of the first",
    );
  });

  await t.test("a model that fails takes no earlier result away", async (t) => {
    const working = models.entries.find(({ name }) => name === "ct-tissue")!;
    const second: ModelEntry = { ...working, name: "ct-second" };
    const broken: ModelEntry = {
      ...working,
      sha256: "0".repeat(64),
      state: "failed",
      error: { error: "model_unavailable", message: "Its file is gone." },
    };
    delete broken.nativeId;
    const outputFolder = freshFolder();
    await run({ outputFolder }, [second, working]);
    const unloaded = { ...broken, sha256: working.sha256 };
    t.equal(
      (await run({ outputFolder }, [second, unloaded])).reused,
      true,
      "what it said is still there",
    );
    const before = readdirSync(outputFolder).map((name) => [
      name,
      readFileSync(join(outputFolder, name)),
    ]);
    const error = await failure(run({ outputFolder }, [second, broken]));
    t.equal(error.code, "model_unavailable");
    t.match(error.message, /earlier result of this image is kept/);
    t.strictSame(
      readdirSync(outputFolder).map((name) => [name, readFileSync(join(outputFolder, name))]),
      before,
    );
  });

  await t.test(
    "what was held for an image is freed with its answer, and not by some later collection",
    async (t) => {
      const entry = models.entries.find(({ name }) => name === "ct-tissue")!;
      await run({ outputs: ["json"] }, [entry]);
      const before = process.memoryUsage().external;
      await run({ outputs: ["json"] }, [entry]);
      const kept = process.memoryUsage().external - before;
      // The raw output, a byte a pixel, is left: not the file, nor the mask besides
      t.ok(
        kept < 0.75 * sample.ct.length,
        `${kept} bytes are kept, of a file of ${sample.ct.length}`,
      );
    },
  );

  await t.test("a shadow model is recorded and not shown", async (t) => {
    const entry = models.entries.find(({ name }) => name === "ct-tissue")!;
    const shadow: ModelEntry = { ...entry, manifest: { ...entry.manifest, release: "shadow" } };
    const answer = await run({}, [shadow]);
    t.match(answer.models, [{ status: "succeeded", shadow: true, outputs: { length: 0 } }]);
    t.ok(answer.models[0]!.measurements.length > 0);
    t.match(summaryOf(answer).models, [{ shadow: true }], "in what a bulk job keeps, too");
  });
});
