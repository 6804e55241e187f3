/**
 * Result objects of whole series, of probabilities, of heat maps and of measured values, over
 * colour and multi-frame sources too, and of a report that follows another: against dciodvfy,
 * dcentvfy, dsrdump, pydicom and highdicom.
 */
import "../support/result-keys.js";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t from "tap";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import type { Attributes } from "../../src/images/image.js";
import { ADDON, commandsAre, DICOM_FILES, needs, PYTHON, pythonHas } from "../support/needs.js";
import { objectErrors, outputOf, refusedErrors } from "../support/validators.js";
import { CASES, objectsOf, specialShop, type Result } from "./special.js";

const attributesOf = (path: string | null) => openFile(readFileSync(path!)).attributes;
const everything = (item: Attributes): Attributes[] => [
  item,
  ...(item.sequence("ContentSequence") ?? []).flatMap(everything),
];
const nameOf = (item: Attributes) =>
  item.sequence("ConceptNameCodeSequence")?.[0]?.string("CodeValue");
const templateOf = (item: Attributes) =>
  item.sequence("ContentTemplateSequence")?.[0]?.string("TemplateIdentifier");
const groupsOf = (report: Attributes) =>
  everything(report).filter((item) => nameOf(item) === "125007");

t.test("objects of special models", { skip: needs(ADDON, DICOM_FILES) }, async (t) => {
  const shop = await specialShop();
  t.teardown(() => shop.close());
  const made: Result[] = [];
  for (const [model, source] of CASES) made.push(await shop.make(model, source));
  const following = await shop.make("volume", "ct-series-chest", true);
  made.push(following);
  const of = (title: string) => made.find((result) => result.title.startsWith(title))!;

  t.test("segments of a volume are TID 1411", (t) => {
    const { sr, seg } = of("test-volume on");
    const groups = groupsOf(attributesOf(sr));
    t.strictSame(groups.map(templateOf), ["1411", "1411"]);
    const segment = attributesOf(seg).string("SOPInstanceUID");
    for (const [i, group] of groups.entries()) {
      const child = (name: string) =>
        group.sequence("ContentSequence")!.find((item) => nameOf(item) === name);
      const reference = child("121191")?.sequence("ReferencedSOPSequence")?.[0];
      t.equal(reference?.string("ReferencedSOPInstanceUID"), segment);
      t.equal(reference?.number("ReferencedSegmentNumber"), i + 1);
      t.ok(child("121232")?.string("UID"), "the source series");
      t.equal(
        child("118565006")
          ?.sequence("MeasuredValueSequence")![0]!
          .sequence("MeasurementUnitsCodeSequence")![0]!
          .string("CodeValue"),
        "mL",
      );
    }
    t.end();
  });

  t.test("a regression is a measurement of TID 1501, with a number for each frame", (t) => {
    const one = groupsOf(attributesOf(of("test-regression on jpeg50").sr));
    t.strictSame(one.map(templateOf), ["1501"]);
    t.ok(
      everything(one[0]!).some(
        (item) => nameOf(item) === "410668003" && item.string("ValueType") === "NUM",
      ),
    );
    const many = groupsOf(attributesOf(of("test-regression on rle-mr").sr));
    t.equal(many.length, 1);
    const numbers = many[0]!
      .sequence("ContentSequence")!
      .filter((item) => item.string("ValueType") === "NUM");
    const frames = numbers.map((item) =>
      item
        .sequence("ContentSequence")?.[0]
        ?.sequence("ReferencedSOPSequence")?.[0]
        ?.number("ReferencedFrameNumber"),
    );
    t.strictSame(
      frames,
      Array.from({ length: 10 }, (_, frame) => frame + 1),
    );
    t.end();
  });

  t.test("a heat map is a picture; its report has no finding", (t) => {
    const { sr, sc, seg } = of("test-heatmap on ele");
    t.equal(groupsOf(attributesOf(sr)).length, 0);
    t.equal(attributesOf(sc).string("SOPClassUID"), "1.2.840.10008.5.1.4.1.1.7");
    t.equal(seg, null);
    t.end();
  });

  t.test("probabilities are fractional segments", (t) => {
    for (const title of ["test-fractional", "test-volume-fractional"]) {
      const seg = attributesOf(of(title).seg);
      t.equal(seg.string("SegmentationType"), "FRACTIONAL");
      t.equal(seg.number("BitsAllocated"), 8);
    }
    t.end();
  });

  t.test("a report that follows another names it", (t) => {
    const report = attributesOf(following.sr);
    const [before] = report
      .sequence("PredecessorDocumentsSequence")![0]!
      .sequence("ReferencedSeriesSequence")![0]!
      .sequence("ReferencedSOPSequence")!;
    t.equal(before?.string("ReferencedSOPClassUID"), report.string("SOPClassUID"));
    t.not(before?.string("ReferencedSOPInstanceUID"), report.string("SOPInstanceUID"));
    t.end();
  });

  await t.test("dciodvfy", { skip: commandsAre("dciodvfy") }, (t) => {
    for (const { title, ...result } of made)
      for (const path of objectsOf({ title, ...result }))
        t.strictSame(objectErrors(path), [], `${title}: ${basename(path)}`);
    t.end();
  });

  await t.test("dcentvfy", { skip: commandsAre("dcentvfy") }, (t) => {
    for (const result of made)
      t.strictSame(
        refusedErrors("dcentvfy", outputOf("dcentvfy", ...objectsOf(result))),
        [],
        result.title,
      );
    t.end();
  });

  await t.test("dsrdump", { skip: commandsAre("dsrdump") }, (t) => {
    for (const { sr, title } of made) {
      const { status, stderr } = spawnSync("dsrdump", [sr!], { encoding: "utf8" });
      t.equal(status, 0, title);
      t.notMatch(stderr, /^E: /m, title);
    }
    t.end();
  });

  await t.test("pydicom and highdicom", { skip: pythonHas("pydicom", "highdicom", "PIL") }, (t) => {
    // highdicom looks for measurement groups, which heat maps have none of
    const list = made.map((result) =>
      result.title.includes("heatmap") ? { ...result, sr: null } : result,
    );
    const file = join(shop.folder, "list.json");
    writeFileSync(file, JSON.stringify(list));
    const output = execFileSync(PYTHON, ["test/conformance/objects.py", file], {
      encoding: "utf8",
    });
    const lines = output.trim().split("\n");
    const count = Number(lines.pop());
    t.strictSame(lines, []);
    t.equal(count, list.flatMap(objectsOf).length);
    t.end();
  });
});
