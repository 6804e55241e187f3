/**
 * Result objects, read back with our own reader: the eleven points that IHE AI Results and the
 * rules under it ask, and the guards. The conformance folder holds the same objects against outside
 * tools.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { samples } from "../../../scripts/demo/samples.js";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import { RadserveError } from "../../../src/base/errors.js";
import type { Attributes } from "../../../src/images/image.js";
import { infer } from "../../../src/inference/infer-image.js";
import { type InferTask } from "../../../src/inference/task.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { readImage } from "../../../src/images/read-image.js";
import type { Segmentation } from "../../../src/manifest/outputs/segmentation.js";
import { checkObjects } from "../../../src/results/dicom/check.js";
import type { DicomObject } from "../../../src/results/dicom/elements.js";
import { sourceGrid, type Masks } from "../../../src/results/dicom/grid.js";
import { isOwnObject } from "../../../src/results/dicom/modules.js";
import { structureSet } from "../../../src/results/dicom/objects/rtstruct.js";
import { segmentation } from "../../../src/results/dicom/objects/seg.js";
import { segmentPlanes } from "../../../src/results/dicom/segments.js";
import { dateAndTime, sourceIds } from "../../../src/results/dicom/source.js";
import { dicomObjects } from "../../../src/results/dicom/objects.js";
import type { Making } from "../../../src/results/dicom/objects/kind.js";
import { structuredReport } from "../../../src/results/dicom/objects/sr.js";
import type { Subject } from "../../../src/results/dicom/subject.js";
import { derivedUid } from "../../../src/results/dicom/uid.js";
import { cieLab } from "../../../src/results/colour.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { loadTestModel, type TestModel } from "../../support/test-models.js";
import { radiograph } from "../../support/radiograph.js";
import { dicomFile, imageAttributes, Typed } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";
import { folderOf } from "../../support/series.js";

/** What objects are made of, of which a check looks at `more` alone. */
const makingOf = (subject: Subject, more: Partial<Making>): Making => ({
  subject,
  image: subject.image,
  manifest: subject.model.manifest,
  isAdrift: false,
  segBytes: 0,
  outputs: undefined,
  masks: undefined,
  segmentationType: "binary",
  seg: undefined,
  said: { findings: [], measurements: [], warnings: [] },
  picture: () => Promise.reject(new Error("No picture was made")),
  ...more,
});

const STARTED = "2026-11-21T22:30:00.123Z";

const codeOf = (item: Attributes, sequence: string) =>
  item.sequence(sequence)?.[0]?.string("CodeValue");
const nameOf = (item: Attributes) => codeOf(item, "ConceptNameCodeSequence");
const children = (item: Attributes, name?: string) =>
  (item.sequence("ContentSequence") ?? []).filter(
    (child) => name === undefined || nameOf(child) === name,
  );
/** The item and everything below it. */
const everything = (item: Attributes): Attributes[] => [
  item,
  ...children(item).flatMap(everything),
];
const templateOf = (item: Attributes) =>
  item.sequence("ContentTemplateSequence")?.[0]?.string("TemplateIdentifier");

t.test("result objects", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "objects");
  const models = {} as Record<TestModel, ModelEntry>;
  for (const name of ["segmenter", "overlapping", "classifier", "detector"] as const)
    models[name] = await loadTestModel(engine, folder, name);

  let count = 0;
  const run = async (bytes: Uint8Array, entries: ModelEntry[], task: Partial<InferTask> = {}) => {
    const inputPath = join(folder, `source-${++count}`);
    writeFileSync(inputPath, bytes);
    const answer = await infer(
      {
        requestId: "test",
        inputPath,
        outputFolder: join(folder, `out-${count}`),
        name: "scan",
        priority: "routine",
        cancelId: 1,
        startedAt: STARTED,
        roots: { input: undefined, output: undefined },
        ...task,
      },
      { engine, models: entries },
    );
    const files = answer.models.flatMap(({ outputs }) => outputs);
    const object = (kind: string) => {
      const file = files.find(({ path }) => path.endsWith(`.${kind}.dcm`));
      return file === undefined ? undefined : openFile(readFileSync(file.path)).attributes;
    };
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    return { answer, files, receipt, sr: object("sr")!, seg: object("seg")!, sc: object("sc")! };
  };
  const segmented = await run(radiograph({ ImageLaterality: "L" }), [models.segmenter]);
  const classified = await run(radiograph(), [models.classifier]);
  const detected = await run(radiograph({ ImageLaterality: "R" }), [models.detector]);
  const objects = [segmented, classified, detected].flatMap(({ sr, seg, sc }) =>
    [sr, seg, sc].filter((object) => (object as Attributes | undefined) !== undefined),
  );
  t.equal(objects.length, 7);

  t.test("1: each object names the algorithm as processing equipment, nothing empty", (t) => {
    for (const object of objects) {
      const items = object.sequence("ContributingEquipmentSequence")!;
      t.equal(items.length, 1);
      t.equal(codeOf(items[0]!, "PurposeOfReferenceCodeSequence"), "109102");
      for (const keyword of [
        "Manufacturer",
        "ManufacturerModelName",
        "SoftwareVersions",
        "DeviceUID",
      ])
        t.ok(items[0]!.string(keyword), keyword);
      t.ok(isOwnObject(object));
    }
    t.end();
  });

  await t.test("2: other weights are another device and another series", async (t) => {
    const other: ModelEntry = { ...models.segmenter, sha256: "f".repeat(64) };
    const again = await run(radiograph({ ImageLaterality: "L" }), [other]);
    const device = (object: Attributes) =>
      object.sequence("ContributingEquipmentSequence")![0]!.string("DeviceUID");
    t.not(device(again.sr), device(segmented.sr));
    t.not(again.sr.string("SeriesInstanceUID"), segmented.sr.string("SeriesInstanceUID"));
    const site: ModelEntry = { ...models.segmenter, site: { thresholds: { grey: 0.4 } } };
    const changed = await run(radiograph({ ImageLaterality: "L" }), [site]);
    t.not(
      changed.sr.string("SeriesInstanceUID"),
      segmented.sr.string("SeriesInstanceUID"),
      "site thresholds",
    );
    t.equal(device(changed.sr), device(segmented.sr));
  });

  t.test("3: equipment, observer and algorithm say the same", (t) => {
    const { sr, seg } = segmented;
    const item = sr.sequence("ContributingEquipmentSequence")![0]!;
    const all = everything(sr);
    const told = (name: string) => all.find((each) => nameOf(each) === name);
    const algorithm = seg
      .sequence("SegmentSequence")![0]!
      .sequence("SegmentationAlgorithmIdentificationSequence")![0]!;
    const same: [string, ...(string | undefined)[]][] = [
      ["Manufacturer", told("121014")?.string("TextValue"), algorithm.string("AlgorithmSource")],
      [
        "ManufacturerModelName",
        told("121015")?.string("TextValue"),
        told("111001")?.string("TextValue"),
        algorithm.string("AlgorithmName"),
      ],
      [
        "SoftwareVersions",
        told("111003")?.string("TextValue"),
        algorithm.string("AlgorithmVersion"),
      ],
      ["DeviceUID", told("121012")?.string("UID")],
    ];
    for (const [keyword, ...values] of same)
      for (const value of values) t.equal(value, item.string(keyword), keyword);
    t.end();
  });

  t.test("4: the report is TID 1500 by a device, of an imaging procedure, unverified", (t) => {
    const { sr } = segmented;
    t.equal(sr.string("SOPClassUID"), "1.2.840.10008.5.1.4.1.1.88.34");
    t.equal(nameOf(sr), "126000");
    t.equal(templateOf(sr), "1500");
    t.equal(codeOf(children(sr, "121005")[0]!, "ConceptCodeSequence"), "121007");
    t.equal(codeOf(children(sr, "121058")[0]!, "ConceptCodeSequence"), "363679005");
    t.equal(sr.string("CompletionFlag"), "COMPLETE");
    t.equal(sr.string("VerificationFlag"), "UNVERIFIED");
    t.end();
  });

  await t.test(
    "5: regions are TID 1410, the image as a whole TID 1501, tracking is stable",
    async (t) => {
      const groups = ({ sr }: { sr: Attributes }) =>
        everything(sr).filter((item) => nameOf(item) === "125007");
      t.strictSame(groups(segmented).map(templateOf), ["1410", "1410"]);
      t.strictSame(groups(detected).map(templateOf), ["1410"]);
      t.strictSame(
        groups(classified).map((group) => [
          templateOf(group),
          children(group, "112039")[0]?.string("TextValue"),
        ]),
        [
          ["1501", "test-classifier: Effusion"],
          ["1501", "test-classifier: Length"],
        ],
        "what is found, and what is measured",
      );
      const tracking = (of: { sr: Attributes }) =>
        groups(of).map((group) => [
          children(group, "112039")[0]?.string("TextValue"),
          children(group, "112040")[0]?.string("UID"),
        ]);
      const later = { startedAt: "2026-11-22T01:00:00.000Z" };
      const rerun = await run(radiograph({ ImageLaterality: "L" }), [models.segmenter], later);
      t.strictSame(tracking(rerun), tracking(segmented));
      t.not(rerun.sr.string("SOPInstanceUID"), segmented.sr.string("SOPInstanceUID"));
      t.equal(rerun.sr.string("SeriesInstanceUID"), segmented.sr.string("SeriesInstanceUID"));
      const [box] = children(groups(detected)[0]!, "111030");
      t.equal(box?.string("GraphicType"), "POLYLINE");
      // 4..12 of 32 columns and 8..20 of 32 rows, stretched to 32 x 24
      t.strictSame(box?.numbers("GraphicData"), [4, 6, 12, 6, 12, 15, 4, 15, 4, 6]);
    },
  );

  t.test(
    "6: a region names its segment frame and source; site with side under it; UCUM units",
    (t) => {
      const group = everything(segmented.sr).filter((item) => nameOf(item) === "125007")[1]!;
      const reference = children(group, "121214")[0]!.sequence("ReferencedSOPSequence")![0]!;
      t.equal(reference.string("ReferencedSOPInstanceUID"), segmented.seg.string("SOPInstanceUID"));
      t.equal(reference.number("ReferencedFrameNumber"), 2);
      t.equal(children(group, "121233").length, 1);
      const site = children(group, "363698007")[0]!;
      t.equal(site.string("RelationshipType"), "HAS CONCEPT MOD");
      t.equal(
        codeOf(children(site, "272741003")[0]!, "ConceptCodeSequence"),
        "7771000",
        "the manifest's side",
      );
      const box = everything(detected.sr).find((item) => nameOf(item) === "363698007")!;
      t.equal(
        codeOf(children(box, "272741003")[0]!, "ConceptCodeSequence"),
        "24028007",
        "the source's side",
      );
      for (const item of [
        ...everything(segmented.sr),
        ...everything(classified.sr),
        ...everything(detected.sr),
      ])
        if (item.string("ValueType") === "NUM")
          t.equal(
            item
              .sequence("MeasuredValueSequence")![0]!
              .sequence("MeasurementUnitsCodeSequence")![0]!
              .string("CodingSchemeDesignator"),
            "UCUM",
          );
      t.end();
    },
  );

  t.test("7: each segment has tracking and its algorithm", (t) => {
    for (const segment of segmented.seg.sequence("SegmentSequence")!) {
      t.ok(segment.string("TrackingID"));
      t.match(segment.string("TrackingUID"), /^2\.25\./);
      const [algorithm] = segment.sequence("SegmentationAlgorithmIdentificationSequence")!;
      for (const keyword of ["AlgorithmName", "AlgorithmVersion"])
        t.ok(algorithm!.string(keyword), keyword);
      t.equal(codeOf(algorithm!, "AlgorithmFamilyCodeSequence"), "123110");
    }
    t.end();
  });

  t.test("8: enhanced general equipment is filled", (t) => {
    for (const object of objects)
      for (const keyword of [
        "Manufacturer",
        "ManufacturerModelName",
        "DeviceSerialNumber",
        "SoftwareVersions",
      ])
        t.ok(object.string(keyword), keyword);
    t.end();
  });

  t.test(
    "9: every reference is in the evidence, frame numbers only for multi-frame objects",
    (t) => {
      const { sr, seg } = segmented;
      const evidence = sr
        .sequence("CurrentRequestedProcedureEvidenceSequence")![0]!
        .sequence("ReferencedSeriesSequence")!
        .flatMap((series) => series.sequence("ReferencedSOPSequence")!)
        .map((item) => item.string("ReferencedSOPInstanceUID"));
      t.strictSame(evidence, ["1.2.3.1", seg.string("SOPInstanceUID")]);
      for (const reference of everything(sr).flatMap(
        (item) => item.sequence("ReferencedSOPSequence") ?? [],
      )) {
        t.ok(evidence.includes(reference.string("ReferencedSOPInstanceUID")));
        if (reference.string("ReferencedSOPInstanceUID") === "1.2.3.1")
          t.notOk(reference.has("ReferencedFrameNumber"));
      }
      t.end();
    },
  );

  await t.test(
    "10: identity, character set, time of analysis and its zone are right",
    async (t) => {
      for (const object of objects) {
        t.equal(object.string("StudyInstanceUID"), "1.2.3.2");
        t.equal(object.string("PatientID"), "4711");
        t.equal(object.string("AccessionNumber"), "A-1");
        t.equal(object.string("TimezoneOffsetFromUTC"), "+0200");
        t.equal(object.string("ContentDate"), "20261122");
        t.equal(object.string("ContentTime"), "003000.123");
      }
      const cyrillic = Uint8Array.from([0xbb, 0xee, 0xda, 0x5e, 0xcf]);
      const latin = Uint8Array.from([0x42, 0x75, 0x63, 0x5e, 0x4a, 0xe9, 0x72, 0xf4, 0x6d, 0x65]);
      const kanji = Buffer.concat([
        Buffer.from("Yamada^Tarou="),
        Buffer.from([0x1b, 0x24, 0x42, 0x3b, 0x33, 0x45, 0x44, 0x1b, 0x28, 0x42]),
        Buffer.from("^"),
        Buffer.from([0x1b, 0x24, 0x42, 0x42, 0x40, 0x4f, 0x3a, 0x1b, 0x28, 0x42]),
      ]);
      for (const [charset, bytes, expected] of [
        ["ISO_IR 144", cyrillic, "Люк^Я"],
        ["ISO_IR 100", latin, "Buc^Jérôme"],
        ["\\ISO 2022 IR 87", kanji, "Yamada^Tarou=山田^太郎"],
        ["ISO_IR 192", Buffer.from("Müller^Ægir"), "Müller^Ægir"],
      ] as const) {
        const { sr, sc, seg } = await run(
          radiograph({ SpecificCharacterSet: charset, PatientName: new Typed("PN", bytes) }),
          [models.segmenter],
        );
        for (const object of [sr, sc, seg]) {
          t.equal(object.string("PatientName"), expected, charset);
          t.equal(object.string("SpecificCharacterSet"), "ISO_IR 192");
        }
      }
    },
  );

  await t.test(
    "11: a negative result has a report, and a segmentation with empty frames",
    async (t) => {
      const black = radiograph({ WindowCenter: "10000", WindowWidth: "2" });
      const { sr, seg, answer } = await run(black, [models.segmenter]);
      t.ok(answer.models[0]!.findings.every(({ present }) => !present));
      const absent = everything(sr).filter(
        (item) => codeOf(item, "ConceptCodeSequence") === "272519000",
      );
      t.strictSame(absent.map(nameOf), ["87784001", "3138006"]);
      t.notOk(
        everything(sr).some((item) => nameOf(item) === "121071"),
        "what is absent is no finding",
      );
      t.equal(seg.number("NumberOfFrames"), 2);
    },
  );

  await t.test("equal start gives equal bytes, and equal UIDs only those", async (t) => {
    const again = await run(radiograph({ ImageLaterality: "L" }), [models.segmenter]);
    for (const [i, file] of again.files.entries()) {
      t.equal(file.sha256, segmented.files[i]?.sha256, file.path);
      t.equal(file.sop_instance_uid, segmented.files[i]?.sop_instance_uid);
    }
    const bare = (receipt: object) => ({
      ...receipt,
      timings: undefined,
      source: undefined,
      mac: undefined,
    });
    t.strictSame(bare(again.receipt), bare(segmented.receipt));
    const renamed = await run(radiograph({ ImageLaterality: "L", PatientName: "Other^Name" }), [
      models.segmenter,
    ]);
    t.not(
      renamed.files[1]?.sop_instance_uid,
      again.files[1]?.sop_instance_uid,
      "a corrected name, another object",
    );
    t.equal(segmented.receipt.timings.started_at, STARTED);
  });

  t.test("scores are called scores, and probabilities where they are calibrated", async (t) => {
    const meanings = (sr: Attributes) =>
      everything(sr)
        .filter((item) => item.string("ValueType") === "NUM")
        .map((item) => item.sequence("ConceptNameCodeSequence")![0]!.string("CodeMeaning"));
    t.ok(meanings(classified.sr).includes("Score"));
    t.notOk(meanings(classified.sr).some((meaning) => /probab/i.test(meaning!)));
    const calibrated = structuredClone(models.classifier);
    const [output] = calibrated.manifest.outputs;
    if (output?.kind === "classification")
      output.calibration = { kind: "temperature", temperature: 1 };
    const { sr } = await run(radiograph(), [calibrated]);
    t.ok(meanings(sr).includes("Calibrated probability"));
  });

  await t.test("a caveat is a coded statement of the report", async (t) => {
    const narrow: ModelEntry = {
      ...models.classifier,
      manifest: {
        ...models.classifier.manifest,
        envelope: [{ tag: "InstanceNumber", max: 3, caveat: "Tested on early images." }],
      },
    };
    const { sr, receipt } = await run(radiograph(), [narrow]);
    t.match(receipt.models[0]!.warnings, [{ code: "outside_envelope" }]);
    const item = everything(sr).find((each) => nameOf(each) === "caveat")!;
    t.equal(codeOf(item, "ConceptCodeSequence"), "outside_envelope");
    t.ok(
      everything(sr).some((each) =>
        each.string("TextValue")?.startsWith("Tested on early images."),
      ),
    );
    t.ok(
      everything(sr).some((each) => each.string("TextValue")?.includes("Not for diagnostic use")),
    );
  });

  await t.test("what cannot be an object is said where it was asked for", async (t) => {
    const draft: ModelEntry = {
      ...models.segmenter,
      manifest: { ...models.segmenter.manifest, stage: "draft" },
    };
    const asked = await run(radiograph(), [draft], { outputs: ["sr", "seg"] });
    t.strictSame(asked.files, []);
    t.strictSame(
      asked.receipt.models[0]!.warnings.filter(({ code }) => code === "output_not_written").length,
      2,
    );
    const { default: sharp } = await import("sharp");
    const raw = { width: 8, height: 8, channels: 3 } as const;
    const png = await sharp(
      Uint8Array.from({ length: 8 * 8 * 3 }, (_, i) => i),
      { raw },
    )
      .png()
      .toBuffer();
    const plain = await run(png, [models.classifier], { outputs: ["sr"] });
    t.match(plain.receipt.models[0]!.warnings, [
      { code: "output_not_written", message: /the source is PNG and no DICOM object/ },
    ]);
    const silent = await run(png, [models.classifier]);
    t.strictSame(silent.receipt.models[0]!.warnings, [], "by default only what can be written is");
    t.strictSame(
      silent.files.map(({ media_type }) => media_type),
      ["image/png"],
    );
    const nameless = await run(radiograph({ StudyInstanceUID: undefined }), [models.classifier]);
    t.match(nameless.receipt.models[0]!.warnings, [{ message: /no valid StudyInstanceUID/ }, {}]);

    const [side, tensor] = [8400, "labels"];
    const uids = { StudyInstanceUID: "1.2.3.2", SeriesInstanceUID: "1.2.3.3" };
    const pixels = new Uint8Array(side * side);
    const image = await readImage(
      dicomFile({ attributes: imageAttributes({ ...uids, Rows: side, Columns: side }), pixels }),
    );
    const { manifest } = models.segmenter;
    const [output] = manifest.outputs as [Segmentation];
    const labels = Array.from({ length: 255 }, (_, i) => ({
      ...output.labels[0]!,
      label: `grey ${i}`,
    }));
    const many = {
      ...models.segmenter,
      manifest: { ...manifest, outputs: [{ ...output, labels }] },
    };
    const size = { rows: side, columns: side, counts: labels.map(() => 0) };
    const long = await dicomObjects({
      image,
      model: many,
      startedAt: STARTED,
      utcOffset: "+0000",
      name: "scan",
      asked: false,
      kinds: ["seg", "sr"],
      segmentationType: "binary",
      outputs: [[{ kind: "segmentation", tensor, ...size, overlapping: false, mask: pixels }]],
      said: { findings: [], measurements: [], warnings: [] },
      picture: () => Promise.reject(new Error("No picture was made")),
    });
    t.strictSame(
      long.files.map(({ name }) => name.endsWith(".sr.dcm")),
      [true],
      "one of 2.1 GiB is left out",
    );
    t.match(long.warnings, [{ code: "output_not_written", message: /would take 2146 MiB/ }]);
  });

  await t.test("a wrong object is caught before it is written", async (t) => {
    const { ct } = await samples();
    const image = await readImage(ct);
    const ids = sourceIds(image);
    if ("missing" in ids || image.attributes === undefined)
      throw new Error("The sample has an identity");
    const { attributes } = image;
    const when = { startedAt: new Date(STARTED), utcOffset: "+0000", others: [] };
    const subject: Subject = { image, attributes, ids, model: models.segmenter, ...when };
    const { rows, columns } = image.format;
    const mask = new Uint8Array(rows * columns);
    for (let i = 0; i < mask.length; i++)
      mask[i] = i % columns < 40 ? (i < mask.length / 3 ? 1 : 2) : 0;
    const output = {
      kind: "segmentation",
      tensor: "y",
      rows,
      columns,
      overlapping: false,
    } as const;
    const outputs = [[{ ...output, mask, counts: [0, 0] }]];
    const inSource = (masks: typeof outputs): Masks => ({
      grid: sourceGrid(subject),
      outputs: masks,
    });
    const seg = segmentation(subject, inSource(outputs), "binary");
    const check = (
      kind: "seg" | "sr" | "rtstruct",
      object: DicomObject,
      more: Partial<Subject> = {},
    ) => {
      const seen: Subject = { ...subject, ...more };
      const masks = { grid: sourceGrid(seen), outputs };
      return checkObjects(makingOf(seen, { outputs, masks }), [{ kind, object }]).then(
        () => "accepted",
        (error: unknown) =>
          error instanceof RadserveError ? `${error.code}: ${error.message}` : String(error),
      );
    };
    t.equal(await check("seg", seg), "accepted");

    const flipped = Uint8Array.from({ length: mask.length }, (_, i) => {
      const row = Math.floor(i / columns);
      return mask[row * columns + columns - 1 - (i % columns)]!;
    });
    const mirrored = inSource([[{ ...output, mask: flipped, counts: [0, 0] }]]);
    const wrong = segmentation(subject, mirrored, "binary");
    t.match(await check("seg", wrong), /^output_invalid: .*is not the mask/, "a flipped mask");
    const oneBit = { ...seg, bytes: Uint8Array.from(seg.bytes) };
    oneBit.bytes[oneBit.bytes.length - 1000]! ^= 4;
    t.match(await check("seg", oneBit), /^output_invalid: .*is not the mask/, "one bit");

    const elsewhere: Partial<Subject> = {
      image: new Proxy(image, {
        get: (target, key: keyof typeof image) =>
          key === "plane"
            ? () => ({ position: [0, 0, 99], orientation: [1, 0, 0, 0, 1, 0] })
            : key === "spacing"
              ? target.spacing.bind(target)
              : Reflect.get(target, key),
      }),
    };
    t.match(await check("seg", seg, elsewhere), /lies elsewhere/, "another slice's place");

    const said = { findings: [], measurements: [], warnings: [] };
    const report = structuredReport({ subject, said, seg, predecessor: undefined });
    t.match(
      await check("sr", report),
      /neither the source nor written beside it/,
      "a reference to nothing",
    );
    const cut = { ...seg, bytes: seg.bytes.subarray(0, 500) };
    t.match(await check("seg", cut), /^output_invalid/, "a cut file");
    const map = segmentation(subject, inSource(outputs), "labelmap");
    t.equal(await check("seg", map), "accepted");
    t.match(map.sopClassUid, /66\.7$/);
    t.not(map.seriesInstanceUid, seg.seriesInstanceUid);
    const otherMap = segmentation(subject, mirrored, "labelmap");
    t.match(
      await check("seg", otherMap),
      /^output_invalid: .*is not the mask/,
      "a flipped label map",
    );

    const plan = structureSet(subject, outputs);
    t.equal(await check("rtstruct", plan), "accepted");
    const otherPlan = structureSet(subject, [[{ ...output, mask: flipped, counts: [0, 0] }]]);
    t.match(
      await check("rtstruct", otherPlan),
      /do not enclose the mask of frame 1/,
      "flipped contours",
    );
    t.match(
      await check("rtstruct", plan, elsewhere),
      /off the corners of pixels/,
      "another slice's place",
    );
    t.equal(segmentPlanes([], outputs, rows * columns)({ output: 0, index: 0 }, 0)[0], 1);
  });

  await t.test("of a group nothing is said that one of its images does not say", async (t) => {
    const grouped = (...changes: Parameters<typeof radiograph>[0][]) => {
      const files = changes.map((change, i) =>
        radiograph({ SOPInstanceUID: `1.2.3.1.${i}`, InstanceNumber: `${i}`, ...change }),
      );
      const task = { inputPath: folderOf(t, files), group: "series" } as const;
      return run(radiograph(), [models.segmenter], task);
    };
    const clean = { PatientOrientation: "L\\F", BurnedInAnnotation: "NO" };
    const alike = await grouped(clean, clean);
    t.strictSame(alike.seg.strings("PatientOrientation"), ["L", "F"]);
    t.equal(alike.sc.string("BurnedInAnnotation"), "NO");
    const other = await grouped(clean, { PatientOrientation: "A\\F", BurnedInAnnotation: "YES" });
    t.strictSame(other.seg.strings("PatientOrientation"), []);
    t.equal(other.sc.string("BurnedInAnnotation"), "YES");
    const silent = await grouped(clean, {});
    t.strictSame(silent.seg.strings("PatientOrientation"), []);
    t.equal(silent.sc.string("BurnedInAnnotation"), "YES");
  });

  t.test("a swapped side is caught", async (t) => {
    const image = await readImage(radiograph({ Laterality: "L", BodyPartExamined: "HAND" }));
    const other = await readImage(radiograph({ Laterality: "R", BodyPartExamined: "HAND" }));
    const ids = sourceIds(image);
    if ("missing" in ids) throw new Error("It has an identity");
    const base = {
      ids,
      others: [],
      model: models.classifier,
      startedAt: new Date(STARTED),
      utcOffset: "+0000",
    };
    const { secondaryCapture } = await import("../../../src/results/dicom/objects/sc.js");
    const left: Subject = { ...base, image, attributes: image.attributes! };
    const right: Subject = { ...base, image: other, attributes: other.attributes! };
    const pixels = { width: 8, height: 8, rgb: new Uint8Array(192).fill(128) };
    const object = secondaryCapture(right, pixels, [0], 0.3);
    const picture = (shown: typeof pixels) => ({
      picture: () => Promise.resolve({ pixels: shown, frames: [0], opacity: 0.3 }),
    });
    await checkObjects(makingOf(right, picture(pixels)), [{ kind: "sc", object }]);
    const rgb = Uint8Array.from(pixels.rgb, (value, i) => (i === 7 ? value + 1 : value));
    const repainted = makingOf(right, picture({ ...pixels, rgb }));
    const changed = checkObjects(repainted, [{ kind: "sc", object }]);
    await t.rejects(changed, { code: "output_invalid", message: /pixels are not the overlay's/ });
    await t.rejects(checkObjects(makingOf(left, picture(pixels)), [{ kind: "sc", object }]), {
      code: "output_invalid",
      message: /Laterality is not the source's/,
    });
  });
});

t.test("UIDs are valid, and follow from what they name", (t) => {
  const uids = Array.from({ length: 500 }, (_, i) => derivedUid("test", [i]));
  t.ok(uids.every((uid) => /^2\.25\.[1-9]\d*$/.test(uid) && uid.length <= 64));
  t.ok(uids.every((uid) => BigInt(uid.slice(5)) < 2n ** 128n));
  t.equal(new Set(uids).size, uids.length);
  t.equal(derivedUid("test", [1]), uids[1]);
  t.not(derivedUid("other", [1]), uids[1]);
  t.end();
});

t.test("moments in a zone", (t) => {
  const at = new Date("2026-03-01T00:10:20.300Z");
  t.strictSame(dateAndTime(at, "-0330"), { date: "20260228", time: "204020.300" });
  t.strictSame(dateAndTime(at, "+0000"), { date: "20260301", time: "001020.300" });
  t.end();
});

t.test("colours as CIELab", (t) => {
  t.strictSame(cieLab([0, 0, 0]), [0, 32896, 32896]);
  const [l, a, b] = cieLab([255, 255, 255]);
  t.ok(l >= 65534 && Math.abs(a - 32896) < 20 && Math.abs(b - 32896) < 20, `${l} ${a} ${b}`);
  t.end();
});
