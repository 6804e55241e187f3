/**
 * What objects say where a value is empty, absent, long or nothing: Type 1, time zones, codes, and
 * labels not found.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t from "tap";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import { readImage } from "../../../src/images/read-image.js";
import type { Attributes } from "../../../src/images/image.js";
import { infer } from "../../../src/inference/infer-image.js";
import { replay } from "../../../src/inference/replay.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { sha256 } from "../../../src/files/durable-files.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { checkFiles } from "../../../src/results/commit/verify.js";
import { attributesOf, dicomFile, Typed, type Attributes as Given } from "../../support/dicom.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { radiograph } from "../../support/radiograph.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { slice } from "../../support/series.js";
import { loadTestModel } from "../../support/test-models.js";
import { objectErrors } from "../../support/validators.js";

const CASES = "../shared/cases/dicom";
const OUTPUTS = ["json", "png", "sr", "seg", "sc", "rtstruct"] as const;

const hasValidator = commandsAre("dciodvfy") === false;
/** What the validator says of objects, where it is there. */
const errorsOf = (paths: readonly string[]) => (hasValidator ? paths.flatMap(objectErrors) : []);

/** The item and everything below it. */
const everything = (item: Attributes): Attributes[] => [
  item,
  ...(item.sequence("ContentSequence") ?? []).flatMap(everything),
];

t.test("what is written", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "written");
  const overlapping = await loadTestModel(engine, folder, "overlapping");
  let count = 0;
  const run = async (bytes: Uint8Array, model: ModelEntry = overlapping) => {
    const inputPath = join(folder, `source-${++count}.dcm`);
    writeFileSync(inputPath, bytes);
    const outputFolder = join(folder, `out-${count}`);
    const roots = { input: undefined, output: undefined };
    const task = { requestId: "test", inputPath, outputFolder, roots, cancelId: 1 };
    const answer = await infer(
      { ...task, priority: "routine", outputs: [...OUTPUTS] },
      { engine, models: [model] },
    );
    const paths = answer.models[0]!.outputs.map(({ path }) => path).filter((path) =>
      path.endsWith(".dcm"),
    );
    const object = (kind: string) => {
      const path = paths.find((one) => one.endsWith(`.${kind}.dcm`));
      return path === undefined ? undefined : openFile(readFileSync(path)).attributes;
    };
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    return { paths, object, receipt, outputFolder, answer: answer.models[0]! };
  };

  await t.test("an empty UID is an absent one", async (t) => {
    const blank = (bytes: string) => new Typed("UI", Buffer.from(bytes, "latin1"));
    const without = await run(slice({ z: 0, attributes: { FrameOfReferenceUID: undefined } }));
    const kinds = ({ paths }: typeof without) =>
      paths.map((path) => basename(path).split(".").at(-2));
    t.strictSame(kinds(without), ["seg", "sc", "sr"], "no RTSTRUCT, which needs one");
    for (const value of ["", "\0\0", "  "]) {
      const found = await run(slice({ z: 0, attributes: { FrameOfReferenceUID: blank(value) } }));
      t.strictSame(kinds(found), kinds(without));
      t.notOk(found.object("seg")!.has("FrameOfReferenceUID"));
      t.match(found.answer.warnings, [
        { code: "blank_frame" },
        { code: "output_not_written", message: /FrameOfReferenceUID/ },
      ]);
      t.strictSame(errorsOf(found.paths), []);
    }
    const other = await run(
      radiograph({
        ReferencedStudySequence: [{ ReferencedSOPClassUID: "1.2.3", ReferencedSOPInstanceUID: "" }],
        ProcedureCodeSequence: [
          {
            LongCodeValue: "a code of more than 16",
            CodingSchemeDesignator: "99X",
            CodeMeaning: "Thing",
          },
          {
            CodeValue: "1",
            CodingSchemeDesignator: "99X",
            CodingSchemeVersion: "",
            CodeMeaning: "Other",
          },
        ],
      }),
    );
    const sr = other.object("sr")!;
    t.notOk(sr.has("ReferencedStudySequence"));
    const [long, plain] = sr.sequence("ProcedureCodeSequence")!;
    t.equal(long!.string("LongCodeValue"), "a code of more than 16");
    t.equal(plain!.string("CodeValue"), "1");
    t.notOk(plain!.has("CodingSchemeVersion"), "Type 1C");
    t.strictSame(errorsOf(other.paths), []);
  });

  await t.test(
    "the field's case of it",
    { skip: needs(`${CASES}/empty-frame-of-reference.dcm`) },
    async (t) => {
      const { object, paths } = await run(readFileSync(`${CASES}/empty-frame-of-reference.dcm`));
      t.notOk(object("seg")!.has("FrameOfReferenceUID"));
      t.equal(object("rtstruct"), undefined);
      t.strictSame(errorsOf(paths), []);
    },
  );

  await t.test("verify refuses what must have a value and is empty", async (t) => {
    const { receipt, outputFolder } = await run(slice({ z: 0 }));
    t.strictSame(
      (await checkFiles(outputFolder, receipt)).filter(({ verdict }) => verdict !== "ok"),
      [],
    );
    const emptied: [string, Buffer, string][] = [
      ["seg", Buffer.from([0x20, 0, 0x52, 0]), "FrameOfReferenceUID (0020,0052)"],
      ["seg", Buffer.from([0x62, 0, 5, 0]), "SegmentLabel (0062,0005)"],
      ["sr", Buffer.from([0x40, 0, 0x24, 0xa1]), "UID (0040,a124)"],
      ["sc", Buffer.from([8, 0, 0x23, 0]), "ContentDate (0008,0023)"],
    ];
    for (const [kind, tag, name] of emptied) {
      const output = receipt.models[0]!.outputs.find(({ path }) => path.endsWith(`.${kind}.dcm`))!;
      const path = join(outputFolder, output.path);
      const whole = readFileSync(path);
      const at = whole.indexOf(tag, 200);
      const length = whole.readUInt16LE(at + 6);
      const bytes = Buffer.concat([whole.subarray(0, at + 8), whole.subarray(at + 8 + length)]);
      bytes.writeUInt16LE(0, at + 6);
      writeFileSync(path, bytes);
      const lie = structuredClone(receipt);
      Object.assign(
        lie.models[0]!.outputs.find((one) => one.path === output.path)!,
        {
          bytes: bytes.length,
          sha256: sha256(bytes),
        },
      );
      const found = (await checkFiles(outputFolder, lie)).find(({ what }) => what === output.path);
      t.equal(found?.verdict, "differs", name);
      t.ok(found?.detail.includes(`its ${name} is empty`), found?.detail ?? name);
      writeFileSync(path, whole);
    }
  });

  await t.test("no time zone is invented for the source's times", async (t) => {
    const without = await run(
      radiograph({ TimezoneOffsetFromUTC: undefined, StudyTime: "120000" }),
    );
    const { utc_offset: zone = "" } = without.receipt.timings;
    for (const kind of ["sr", "seg", "sc"]) {
      const object = without.object(kind)!;
      t.notOk(object.has("TimezoneOffsetFromUTC"), kind);
      t.equal(object.string("StudyTime"), "120000");
      const [ours] = object.sequence("ContributingEquipmentSequence")!;
      const moment = `${object.string("ContentDate")!}${object.string("ContentTime")!}${zone}`;
      t.equal(ours!.string("ContributionDateTime"), moment, "ours have theirs beside them");
      t.match(
        ours!.string("ContributionDescription"),
        /^Run by Radserve .*The source gives no time zone/,
      );
    }
    t.strictSame(errorsOf(without.paths), []);
    const given = await run(radiograph({ TimezoneOffsetFromUTC: "-0330" }));
    const object = given.object("sr")!;
    t.equal(object.string("TimezoneOffsetFromUTC"), "-0330");
    const [ours] = object.sequence("ContributingEquipmentSequence")!;
    t.match(ours!.string("ContributionDateTime"), /^\d{14}\.\d{3}-0330$/);
    t.notMatch(ours!.string("ContributionDescription"), /time zone/);
  });

  await t.test(
    "the field's case of it",
    { skip: needs(`${CASES}/timezone-none-summer.dcm`) },
    async (t) => {
      const { object } = await run(readFileSync(`${CASES}/timezone-none-summer.dcm`));
      t.notOk(object("sr")!.has("TimezoneOffsetFromUTC"));
      t.match(object("sr")!.string("StudyDate"), /^\d{4}07/);
    },
  );

  /** The model with other codes of its first label. */
  const coded = (value: string): ModelEntry => {
    const entry = structuredClone({ ...overlapping, manifest: overlapping.manifest });
    const [output] = entry.manifest.outputs;
    if (output?.kind !== "segmentation") throw new Error("It segments");
    output.labels[0]!.code = { value, scheme: "99TEST", meaning: "A code" };
    return entry;
  };

  await t.test("a code has the attribute that it fits", async (t) => {
    const [urn, url] = ["urn:oid:1.2.840.10008.2.16.4", "https://example.org/codes/1"];
    for (const [value, keyword] of [
      [urn, "URNCodeValue"],
      [url, "URNCodeValue"],
      ["urn:lex:x", "URNCodeValue"],
      ["c".repeat(17), "LongCodeValue"],
      ["c".repeat(16), "CodeValue"],
    ] as const) {
      const { object, paths } = await run(radiograph(), coded(value));
      const concepts = everything(object("sr")!).flatMap(
        (item) => item.sequence("ConceptCodeSequence") ?? [],
      );
      t.ok(
        concepts.some((code) => code.string(keyword) === value),
        `${value} in the SR`,
      );
      const [segment] = object("seg")!.sequence("SegmentSequence")!;
      const [type] = segment!.sequence("SegmentedPropertyTypeCodeSequence")!;
      const has = ["CodeValue", "LongCodeValue", "URNCodeValue"].filter((one) => type!.has(one));
      t.strictSame(has, [keyword], value);
      t.equal(type!.string(keyword), value);
      t.strictSame(errorsOf(paths), []);
    }
  });

  await t.test("a label that was not found has its measurement of nothing", async (t) => {
    const side = 16;
    const raw = { rows: side, columns: side, samples: 1, bitsAllocated: 8, bitsStored: 8 } as const;
    const data = Buffer.alloc(side * side, 255);
    const given: Given = {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.2",
      SOPInstanceUID: "1.2.3.1",
      StudyInstanceUID: "1.2.3.2",
      SeriesInstanceUID: "1.2.3.3",
      Modality: "CT",
      PatientID: "4711",
      PixelSpacing: "1\\1",
      WindowCenter: "128",
      WindowWidth: "256",
    };
    const source = dicomFile({
      attributes: attributesOf({ ...raw, data }, given),
      pixels: data,
      pixelVr: "OB",
    });
    const { object, receipt, paths } = await run(source);
    const { findings, measurements } = receipt.models[0]!;
    const absent = findings.find(({ present }) => !present)!;
    t.equal(findings.length, 2);
    t.ok(findings.some(({ present }) => present));
    t.equal(measurements.find(({ label }) => label === absent.label)?.value, 0);
    const items = everything(object("sr")!);
    const isAbsent = (item: Attributes) =>
      item.sequence("ConceptCodeSequence")?.[0]?.string("CodeValue") === "272519000";
    const [nothing, ...others] = items.filter(isAbsent);
    t.strictSame(others, []);
    t.equal(
      nothing!.sequence("ConceptNameCodeSequence")?.[0]?.string("CodeValue"),
      absent.code!.value,
    );
    const numbers = everything(nothing!).flatMap((item) => {
      const [value] = item.sequence("MeasuredValueSequence") ?? [];
      return value === undefined
        ? []
        : [[item.string("RelationshipType"), value.number("NumericValue")]];
    });
    t.strictSame(numbers, [["HAS PROPERTIES", 0]]);
    t.strictSame(errorsOf(paths), []);
    const again = await replay({
      receipt,
      image: await readImage(source),
      engine,
      models: [overlapping],
    });
    t.ok(again.every(({ verdict }) => verdict === "ok"));
  });
});
