/**
 * A report of many frames and labels: one group for each label with its frames and numbers, absent
 * labels together, and no object that is too large takes the others with it (PS3.16 TID 1410, 1411,
 * 1501).
 */
import t from "tap";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import type { Attributes, Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import { labelsOf } from "../../../src/manifest/outputs/outputs.js";
import type { OutputKind } from "../../../src/manifest/manifest.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { dicomObjects } from "../../../src/results/dicom/objects.js";
import type { ReportContents } from "../../../src/results/dicom/groups.js";
import type { FrameOutputs } from "../../../src/results/dicom/segments.js";
import type { Finding, Measurement } from "../../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../../support/needs.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { stack } from "../../support/stack.js";
import { loadTestModel } from "../../support/test-models.js";

const codeOf = (item: Attributes, sequence: string) =>
  item.sequence(sequence)?.[0]?.string("CodeValue");
const nameOf = (item: Attributes) => codeOf(item, "ConceptNameCodeSequence");
const children = (item: Attributes, name?: string) =>
  (item.sequence("ContentSequence") ?? []).filter(
    (child) => name === undefined || nameOf(child) === name,
  );
const groupsIn = (report: Attributes) =>
  children(report, "126010").flatMap((item) => children(item, "125007"));
const absentIn = (report: Attributes) =>
  children(report, "C0034375").flatMap((item) =>
    children(item).filter((child) => codeOf(child, "ConceptCodeSequence") === "272519000"),
  );
const templateOf = (item: Attributes) =>
  item.sequence("ContentTemplateSequence")?.[0]?.string("TemplateIdentifier");
const valueOf = (item: Attributes) =>
  item.sequence("MeasuredValueSequence")?.[0]?.number("NumericValue");
/** Frames that an item names; undefined for the whole object. */
const framesOf = (item: Attributes | undefined) =>
  item?.sequence("ReferencedSOPSequence")?.[0]?.numbers("ReferencedFrameNumber");
const range = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

t.test("reports of many frames", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "report-groups");
  const models = {
    classifier: await loadTestModel(engine, folder, "classifier"),
    detector: await loadTestModel(engine, folder, "detector"),
    segmenter: await loadTestModel(engine, folder, "segmenter"),
    regression: await loadTestModel(engine, folder, "regression"),
  };
  const make = async (
    model: ModelEntry,
    image: Image,
    said: Partial<ReportContents>,
    kinds: OutputKind[] = ["sr"],
    outputs?: FrameOutputs,
  ) => {
    const made = await dicomObjects({
      image,
      model,
      startedAt: "2026-11-21T22:30:00.123Z",
      utcOffset: "+0000",
      name: "scan",
      asked: false,
      kinds,
      segmentationType: "binary",
      outputs,
      said: { findings: [], measurements: [], warnings: [], ...said },
      picture: () => Promise.reject(new Error("No picture was made")),
    });
    const object = (kind: string) => {
      const file = made.files.find(({ name }) => name.endsWith(`.${kind}.dcm`));
      return file && openFile(file.bytes).attributes;
    };
    return { ...made, sr: object("sr"), seg: object("seg") };
  };

  await t.test("14 labels over 1,200 frames", async (t) => {
    const [base, ...others] = models.classifier.manifest.outputs;
    if (base?.kind !== "classification") throw new Error("The classifier classifies");
    const labels = range(14).map((n) => ({
      label: `finding ${n}`,
      code: { value: `${36118000 + n}`, scheme: "SCT", meaning: `Finding ${n}` },
      threshold: 0.5,
    }));
    const outputs = [{ ...base, labels }, ...others];
    const model = { ...models.classifier, manifest: { ...models.classifier.manifest, outputs } };
    const score = (n: number, frame: number) =>
      n === 14 ? (frame === 700 ? 0.22 : 0.1) : frame % n === 0 ? 0.75 : 0.25;
    const findings = range(1200).flatMap((frame) =>
      labels.map(({ label, threshold }, i): Finding => {
        const value = score(i + 1, frame);
        return { label, frame, score: value, threshold, present: value >= threshold };
      }),
    );
    const { sr, warnings } = await make(model, await readImage(stack(1200)), { findings });
    t.strictSame(warnings, []);
    const groups = groupsIn(sr!);
    t.strictSame(
      groups.map((group) => codeOf(children(group, "121071")[0]!, "ConceptCodeSequence")),
      range(13).map((n) => `${36118000 + n}`),
      "one for each label that was found",
    );
    for (const [i, group] of groups.entries()) {
      const frames = range(1200).filter((frame) => frame % (i + 1) === 0);
      const scores = children(group, "score");
      t.equal(templateOf(group), "1501");
      t.strictSame(
        scores.map(valueOf),
        frames.map(() => 0.75),
      );
      t.strictSame(
        scores.flatMap((item) => framesOf(children(item, "121112")[0])),
        frames,
        "each score names its frame",
      );
      t.strictSame(framesOf(children(group, "121112")[0]), frames);
      t.equal(children(group, "threshold").length, 1);
    }
    const [absent, ...more] = absentIn(sr!);
    t.strictSame(more, []);
    t.equal(nameOf(absent!), "36118014");
    t.strictSame(children(absent!, "score").map(valueOf), [0.22], "the highest");
    t.equal(framesOf(children(absent!, "121112")[0]), undefined, "of all frames");
  });

  await t.test("a value of each frame is one group", async (t) => {
    const [value] = models.regression.manifest.outputs;
    if (value?.kind !== "regression") throw new Error("The model measures");
    const { name, code, unit } = value.values[0]!;
    const measurements = range(3000).map((frame): Measurement => {
      return { name, ...(code && { code }), value: frame / 8, unit, frame };
    });
    const { sr } = await make(models.regression, await readImage(stack(3000)), { measurements });
    const [group, ...more] = groupsIn(sr!);
    t.strictSame(more, []);
    const numbers = children(group!).filter((item) => item.string("ValueType") === "NUM");
    t.strictSame(
      numbers.map(valueOf),
      measurements.map(({ value }) => value),
    );
  });

  await t.test("a segment has one group, and each area names its frame", async (t) => {
    const image = await readImage(stack(5));
    const [label, other] = labelsOf(models.segmenter.manifest.outputs[0]!);
    const unit = { value: "cm2", scheme: "UCUM", meaning: "square centimeter" };
    const code = { value: "42798000", scheme: "SCT", meaning: "Area" };
    const on = [2, 4];
    const findings = range(5).flatMap((frame): Finding[] => [
      { label: label!.label, frame, present: on.includes(frame), area: { pixels: 1, cm2: 0.01 } },
      { label: other!.label, frame, present: false, area: { pixels: 0, cm2: 0 } },
    ]);
    const measurements = findings.map(({ label, frame, present }): Measurement => {
      return {
        name: "Area",
        code,
        label,
        unit,
        value: present ? 0.01 : 0,
        ...(frame && { frame }),
      };
    });
    const outputs = range(5).map((frame) => [
      {
        kind: "segmentation" as const,
        tensor: "y",
        rows: 1,
        columns: 1,
        overlapping: false,
        mask: new Uint8Array([on.includes(frame) ? 1 : 0]),
        counts: [on.includes(frame) ? 1 : 0, 0],
      },
    ]);
    const { sr, seg } = await make(
      models.segmenter,
      image,
      { findings, measurements },
      ["seg", "sr"],
      outputs,
    );
    const [group, ...more] = groupsIn(sr!);
    t.strictSame(more, []);
    t.equal(templateOf(group!), "1411");
    const reference = children(group!, "121191")[0]?.sequence("ReferencedSOPSequence")?.[0];
    t.equal(reference?.string("ReferencedSOPInstanceUID"), seg?.string("SOPInstanceUID"));
    t.equal(reference?.number("ReferencedSegmentNumber"), 1);
    t.strictSame(framesOf(children(group!, "121233")[0]), on);
    const areas = children(group!, "42798000");
    t.strictSame(areas.map(valueOf), [0.01, 0.01]);
    t.strictSame(
      areas.flatMap((item) => framesOf(children(item, "121112")[0])),
      on,
    );
    const [absent, ...rest] = absentIn(sr!);
    t.strictSame(rest, []);
    t.strictSame(children(absent!, "42798000").map(valueOf), [0], "said once");
  });

  const box = { x0: 0, y0: 0, x1: 1, y1: 1 };
  const boxes = (count: number) =>
    range(count).map((n): Finding => {
      const frame = (n % 10) + 1;
      return { label: "nodule", frame, score: 0.9, threshold: 0.5, present: true, box };
    });

  await t.test("boxes have groups of their own", async (t) => {
    const findings = boxes(200);
    const { sr, warnings } = await make(models.detector, await readImage(stack(10)), {
      findings,
    });
    t.strictSame(warnings, []);
    t.equal(groupsIn(sr!).length, findings.length);
  });

  await t.test("an object that is too large takes no other with it", async (t) => {
    const image = await readImage(stack(34_000));
    const mask = { rows: 1, columns: 1, overlapping: false, counts: [1, 0] };
    const outputs = range(34_000).map(() => [
      { kind: "segmentation" as const, tensor: "y", ...mask, mask: new Uint8Array([1]) },
    ]);
    const [label] = labelsOf(models.segmenter.manifest.outputs[0]!);
    const findings: Finding[] = [{ label: label!.label, frame: 1, present: true }];
    const large = await make(models.segmenter, image, { findings }, ["seg", "sr"], outputs);
    t.match(large.warnings, [
      {
        code: "output_not_written",
        message: /No SEG was written: it would have more than 1999000 /,
      },
    ]);
    t.equal(large.seg, undefined);
    t.strictSame(groupsIn(large.sr!).map(templateOf), ["1501"], "the report names no segment");
    const few = await readImage(stack(10));
    const [value] = models.regression.manifest.outputs;
    if (value?.kind !== "regression") throw new Error("The model measures");
    const { name, code, unit } = value.values[0]!;
    const measurements = range(60_000).map((n): Measurement => {
      return { name, ...(code && { code }), value: n, unit, frame: (n % 10) + 1 };
    });
    for (const report of [
      await make(models.detector, few, { findings: boxes(30_000) }),
      await make(models.regression, few, { measurements }),
    ]) {
      t.match(report.warnings, [{ code: "output_not_written", message: /No SR was written: / }]);
      t.strictSame(report.files, []);
    }
  });
});
