/**
 * A result that takes the place of another version's names the report that it replaces, and repeats
 * byte for byte.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import { infer } from "../../../src/inference/infer-image.js";
import { type InferTask } from "../../../src/inference/task.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { loadTestModel } from "../../support/test-models.js";
import { radiograph } from "../../support/radiograph.js";
import { ADDON, needs } from "../../support/needs.js";

t.test("predecessors", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "predecessor");
  const model = await loadTestModel(engine, folder, "overlapping");
  const newer: ModelEntry = { ...model, sha256: "b".repeat(64), version: "3.0.0" };
  const strict: ModelEntry = {
    ...model,
    site: { thresholds: { bright: 0.7 } },
    thresholds: [[0.7, 0.55]],
  };
  const source = join(folder, "source.dcm");
  writeFileSync(source, radiograph());
  let hour = 0;
  const run = async (out: string, entry: ModelEntry, task: Partial<InferTask> = {}) => {
    const startedAt = `2026-11-21T${String(hour++).padStart(2, "0")}:00:00.000Z`;
    const roots = { input: undefined, output: undefined };
    const whole = {
      requestId: "test",
      inputPath: source,
      outputFolder: join(folder, out),
      startedAt,
      roots,
    };
    const answer = await infer(
      { ...whole, priority: "routine", cancelId: 1, outputs: ["sr", "seg"], ...task },
      { engine, models: [entry] },
    );
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const [told] = receipt.models;
    const file = (kind: string) => told!.outputs.find(({ path }) => path.endsWith(`.${kind}.dcm`));
    const path = answer.models[0]!.outputs.find((each) => each.path.endsWith(".sr.dcm"))?.path;
    const sr = path === undefined ? undefined : openFile(readFileSync(path)).attributes;
    const [study] = sr?.sequence("PredecessorDocumentsSequence") ?? [];
    const [series] = study?.sequence("ReferencedSeriesSequence") ?? [];
    const named =
      series === undefined
        ? undefined
        : {
            study_instance_uid: study!.string("StudyInstanceUID"),
            series_instance_uid: series.string("SeriesInstanceUID"),
            sop_class_uid: series
              .sequence("ReferencedSOPSequence")![0]!
              .string("ReferencedSOPClassUID"),
            sop_instance_uid: series
              .sequence("ReferencedSOPSequence")![0]!
              .string("ReferencedSOPInstanceUID"),
          };
    return { answer, startedAt, path, named, told: told!, sr: file("sr"), seg: file("seg") };
  };
  const asNamed = ({ sr }: Awaited<ReturnType<typeof run>>) => ({
    study_instance_uid: "1.2.3.2",
    series_instance_uid: sr!.series_instance_uid,
    sop_class_uid: sr!.sop_class_uid,
    sop_instance_uid: sr!.sop_instance_uid,
  });

  await t.test("another version, other thresholds", async (t) => {
    for (const [out, entry] of [
      ["version", newer],
      ["site", strict],
      ["provider", { ...model, provider: "openvino" }],
    ] as const) {
      const first = await run(out, model);
      t.equal(first.named, undefined);
      t.equal(first.told.predecessor, undefined);
      const second = await run(out, entry);
      t.strictSame(second.named, asNamed(first), out);
      t.strictSame(second.told.predecessor, asNamed(first));
      const third = await run(out, model);
      t.strictSame(third.named, asNamed(second), "and back again");
    }
  });

  await t.test(
    "the same analysis again repeats its bytes, and follows what it followed",
    async (t) => {
      await run("again", model);
      const second = await run("again", newer);
      const { startedAt } = second;
      writeFileSync(second.path!, "harmed");
      const repeated = await run("again", newer, { startedAt });
      t.equal(repeated.answer.reused, false);
      t.strictSame(repeated.told, second.told);
      const later = await run("again", newer, { outputs: ["sr"] });
      t.not(later.sr!.sop_instance_uid, second.sr!.sop_instance_uid, "another start");
      t.strictSame(later.named, asNamed(second), "is another report");
      const silent = await run("again", newer, { outputs: ["json"] });
      t.equal(silent.sr, undefined);
      const last = await run("again", strict);
      t.strictSame(last.named, asNamed(later), "without a report in between");
    },
  );

  await t.test("only the report depends on it", async (t) => {
    const startedAt = "2026-11-21T23:00:00.000Z";
    await run("with", newer);
    const after = await run("with", model, { startedAt });
    const alone = await run("without", model, { startedAt });
    t.equal(after.seg!.sha256, alone.seg!.sha256);
    t.equal(after.sr!.series_instance_uid, alone.sr!.series_instance_uid);
    t.not(after.sr!.sop_instance_uid, alone.sr!.sop_instance_uid, "other bytes, another UID");
    const other = await run("with", { ...model, name: "test-other" });
    t.equal(other.named, undefined, "another model is no predecessor");
  });
});
