/**
 * Results of sources that say of themselves what DICOM does not allow, or what only some of their
 * frames share.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t from "tap";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import type { Attributes as Read } from "../../../src/images/image.js";
import { infer } from "../../../src/inference/infer-image.js";
import { objectErrors } from "../../support/validators.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { loadTestModel } from "../../support/test-models.js";
import { radiograph } from "../../support/radiograph.js";
import { doseGrid, multiFrame, slice } from "../../support/series.js";
import { compress, picture, Typed, type Attributes } from "../../support/dicom.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";

const ENHANCED_CT = "1.2.840.10008.5.1.4.1.1.2.1";

t.test("odd sources", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "odd");
  const segmenter = await loadTestModel(engine, folder, "overlapping");

  let count = 0;
  const run = async (source: Uint8Array | readonly Uint8Array[]) => {
    const inputPath = join(folder, `source-${++count}`);
    if (source instanceof Uint8Array) writeFileSync(inputPath, source);
    else {
      mkdirSync(inputPath);
      source.forEach((file, i) => writeFileSync(join(inputPath, `${i}.dcm`), file));
    }
    const task = {
      requestId: "test",
      inputPath,
      outputFolder: join(folder, `out-${count}`),
      cancelId: 1,
    };
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      { ...task, priority: "routine", roots },
      { engine, models: [segmenter] },
    );
    const [model] = answer.models;
    const paths = model!.outputs.map(({ path }) => path).filter((path) => path.endsWith(".dcm"));
    const object = (kind: string) =>
      openFile(readFileSync(paths.find((path) => path.endsWith(`.${kind}.dcm`))!)).attributes;
    const { findings, measurements } = model!;
    return {
      warnings: model!.warnings,
      findings,
      measurements,
      paths,
      sr: object("sr"),
      seg: object("seg"),
      sc: object("sc"),
    };
  };
  const text = (vr: string, value: string) => new Typed(vr, Buffer.from(value, "latin1"));

  /**
   * Attributes of the source; those that its objects have, undefined where they are left out; what
   * is said to lack.
   */
  const cases: readonly [string, Attributes, Record<string, string | undefined>, string[]][] = [
    ["a name of 100 letters", { PatientName: `${"N".repeat(100)}^A` }, {}, ["PatientName"]],
    [
      "a name of six parts",
      { PatientName: "A^B^C^D^E^F" },
      { PatientName: undefined },
      ["PatientName"],
    ],
    [
      "a name of four groups",
      { PatientName: "A=B=C=D" },
      { PatientName: undefined },
      ["PatientName"],
    ],
    ["a name of five parts in three groups", { PatientName: "A^B^C^D^E=F=G^H" }, {}, []],
    [
      "names divided by a backslash",
      { PatientName: "A^B\\C", PatientID: "P\\1" },
      { PatientName: undefined, PatientID: undefined },
      ["PatientName", "PatientID"],
    ],
    [
      "control characters",
      {
        PatientName: text("PN", "A\nB"),
        PatientID: text("LO", "ID\x0177"),
        StudyDescription: text("LO", "two\r\nlines"),
        PatientComments: text("LT", "two\r\nlines"),
      },
      {
        PatientName: undefined,
        PatientID: undefined,
        StudyDescription: undefined,
        PatientComments: "two\r\nlines",
      },
      ["PatientName", "PatientID"],
    ],
    [
      "bytes that the character set does not have",
      { SpecificCharacterSet: "ISO_IR 192", PatientName: text("PN", "M\xfcller^J") },
      { PatientName: undefined, PatientID: "4711" },
      ["PatientName"],
    ],
    [
      "numbers longer than DICOM's",
      { PatientID: "9".repeat(65), AccessionNumber: "A".repeat(17) },
      { PatientID: undefined, AccessionNumber: undefined },
      ["PatientID", "AccessionNumber"],
    ],
    [
      "a sex and a birth date in words",
      { PatientSex: "male", PatientBirthDate: "1960-1-19" },
      { PatientSex: undefined, PatientBirthDate: undefined },
      ["PatientBirthDate", "PatientSex"],
    ],
    [
      "a sex that is none of the three",
      { PatientSex: "U" },
      { PatientSex: undefined },
      ["PatientSex"],
    ],
    ["a history of 12,000 letters", { AdditionalPatientHistory: "h".repeat(12_000) }, {}, []],
    [
      "a part of a clinical trial",
      { ClinicalTrialProtocolID: "P1" },
      { ClinicalTrialProtocolID: undefined, ClinicalTrialSponsorName: undefined },
      [],
    ],
    [
      "a clinical trial",
      { ClinicalTrialSponsorName: "S", ClinicalTrialProtocolID: "P1", ClinicalTrialSubjectID: "7" },
      { ClinicalTrialSponsorName: "S", ClinicalTrialProtocolID: "P1", ClinicalTrialSubjectID: "7" },
      [],
    ],
    [
      "an animal",
      { PatientSpeciesDescription: "Canine" },
      { PatientSpeciesDescription: "Canine" },
      [],
    ],
    [
      "somebody responsible, nobody knows as what",
      { ResponsiblePerson: "Doe^J" },
      { ResponsiblePerson: undefined },
      [],
    ],
    ["nothing odd", {}, { PatientID: "4711", AccessionNumber: "A-1" }, []],
  ];
  for (const [title, attributes, expected, lacking] of cases)
    await t.test(title, async (t) => {
      const { warnings, paths, sr, seg, sc } = await run(
        radiograph({ PatientName: "A^B", ...attributes }),
      );
      for (const object of [sr, seg, sc])
        for (const [keyword, value] of Object.entries(expected))
          t.equal(object.string(keyword), value, keyword);
      const said = warnings.filter(({ code }) => code === "identity_left_out");
      t.equal(said.length, lacking.length === 0 ? 0 : 1);
      for (const keyword of lacking) t.match(said[0]!.message, keyword);
      if (lacking.length > 0) t.match(said[0]!.message, `lack the source's ${lacking.join(", ")}:`);
      if (commandsAre("dciodvfy") === false)
        for (const path of paths) t.strictSame(objectErrors(path), [], basename(path));
    });

  await t.test("an offset from UTC that is none is left out, and told", async (t) => {
    for (const [offset, expected] of [
      ["+0530", undefined],
      ["0530", /lack the source's TimezoneOffsetFromUTC:/],
      ["-0000", /lack the source's TimezoneOffsetFromUTC:/],
      ["+1430", /lack the source's TimezoneOffsetFromUTC:/],
    ] as const) {
      const { warnings, sr } = await run(radiograph({ TimezoneOffsetFromUTC: offset }));
      const told = warnings.find(({ code }) => code === "value_left_out")?.message;
      t.equal(sr.string("TimezoneOffsetFromUTC"), expected === undefined ? offset : undefined);
      if (expected === undefined) t.equal(told, undefined);
      else t.match(told, expected);
    }
  });

  await t.test(
    "the side of a picture is the source's, and empty where it has to be and is not known",
    async (t) => {
      const cases: [string, Attributes, string[] | undefined][] = [
        ["a side", { BodyPartExamined: "KNEE", Laterality: "R" }, ["R"]],
        ["a paired part", { BodyPartExamined: "KNEE", Laterality: undefined }, []],
        ["a paired part with an empty side", { BodyPartExamined: "KNEE", Laterality: "" }, []],
        ["a part that is not named", { BodyPartExamined: undefined }, []],
        ["an unpaired part", { BodyPartExamined: "HEAD", Laterality: "" }, undefined],
      ];
      for (const [title, attributes, expected] of cases) {
        const { sc, seg, sr, paths } = await run(radiograph(attributes));
        t.strictSame(sc.strings("Laterality"), expected, title);
        for (const object of [seg, sr])
          t.notOk(object.has("Laterality"), `${title}: segmentations and reports have none`);
        if (commandsAre("dciodvfy") === false)
          for (const path of paths)
            t.strictSame(objectErrors(path), [], `${title}: ${basename(path)}`);
      }
    },
  );

  await t.test("a side that the image alone names is that of the picture", async (t) => {
    const region = (side: string) => [
      {
        CodeValue: "76752008",
        CodingSchemeDesignator: "SCT",
        CodeMeaning: "Breast",
        AnatomicRegionModifierSequence: [
          { CodeValue: side, CodingSchemeDesignator: "SCT", CodeMeaning: "Side" },
        ],
      },
    ];
    const cases: [string, Attributes, string | undefined, string[] | undefined][] = [
      ["the image", { ImageLaterality: "R" }, "R", undefined],
      ["an image of both", { ImageLaterality: "B" }, "B", undefined],
      ["the region", { AnatomicRegionSequence: region("7771000") }, "L", undefined],
      [
        "two that differ",
        {
          ImageLaterality: "",
          AnatomicRegionSequence: [...region("7771000"), ...region("24028007")],
        },
        undefined,
        [],
      ],
      ["the series, too", { Laterality: "L", ImageLaterality: "L" }, undefined, ["L"]],
    ];
    for (const [title, attributes, image, series] of cases) {
      const { sc, paths } = await run(radiograph({ BodyPartExamined: "BREAST", ...attributes }));
      t.equal(sc.string("ImageLaterality"), image, title);
      t.strictSame(sc.strings("Laterality"), series, title);
      if (commandsAre("dciodvfy") === false)
        for (const path of paths)
          t.strictSame(objectErrors(path), [], `${title}: ${basename(path)}`);
    }
  });

  await t.test("nothing is made up about lossy compression", async (t) => {
    const raw = picture({ rows: 24, columns: 32, samples: 1, bitsAllocated: 8, bitsStored: 8 });
    const coded = async (coder: "jpeg" | "jpeg2000" | "jpeg-ls", near = 0) => ({
      fragments: [await compress(coder, raw, near)],
    });
    const lossy = "LossyImageCompression";
    const SYNTAX = "1.2.840.10008.1.2.4.";
    const told = (object: Read) =>
      ["", "Ratio", "Method"].map((end) => object.string(`${lossy}${end}`));
    const cases: [string, Buffer, unknown[], unknown[]][] = [
      [
        "nothing is said",
        radiograph(),
        [undefined, undefined, undefined],
        ["00", undefined, undefined],
      ],
      [
        "none",
        radiograph({ [lossy]: "00" }),
        ["00", undefined, undefined],
        ["00", undefined, undefined],
      ],
      [
        "ratio and method of the source",
        radiograph({ [lossy]: "01", [`${lossy}Ratio`]: "12", [`${lossy}Method`]: "ISO_15444_1" }),
        ["01", "12", "ISO_15444_1"],
        ["01", "12", "ISO_15444_1"],
      ],
    ];
    for (const [title, source, ofPicture, ofSegments] of cases) {
      const { sc, seg } = await run(source);
      t.strictSame(told(sc), ofPicture, title);
      t.strictSame(told(seg), ofSegments, title);
    }
    const { sc: unknown } = await run(radiograph({ [lossy]: "01" }));
    t.strictSame(told(unknown), ["01", undefined, undefined], "no ratio and no method");
    const compressed = async (syntax: string, pixels: { fragments: Uint8Array[] }) =>
      told((await run(radiograph({}, { transferSyntax: `${SYNTAX}${syntax}`, pixels }))).sc);
    t.match(await compressed("50", await coded("jpeg")), ["01", /^\d/, "ISO_10918_1"]);
    t.match(await compressed("81", await coded("jpeg-ls", 3)), ["01", /^\d/, "ISO_14495_1"]);
    const none = [undefined, undefined, undefined];
    t.strictSame(await compressed("91", await coded("jpeg2000")), none, "a reversible wavelet");
    t.strictSame(await compressed("81", await coded("jpeg-ls")), none, "NEAR 0");
  });

  const measures = (seg: ReturnType<typeof openFile>["attributes"]) => {
    const [shared] = seg.sequence("SharedFunctionalGroupsSequence")!;
    const frames = seg.sequence("PerFrameFunctionalGroupsSequence")!;
    return frames.map((frame) => {
      const [item] = (frame.sequence("PixelMeasuresSequence") ??
        shared!.sequence("PixelMeasuresSequence"))!;
      return [item!.number("SliceThickness"), item!.number("SpacingBetweenSlices")];
    });
  };

  await t.test(
    "slices are as thick as the source says, and as far apart as they lie",
    async (t) => {
      const { seg } = await run(
        [6, 0, 3].map((z) => slice({ z, attributes: { SliceThickness: "5" } })),
      );
      t.strictSame(
        measures(seg),
        Array.from({ length: 6 }, () => [5, 3]),
      );
      const { seg: none } = await run(
        [6, 0, 3].map((z) => slice({ z, attributes: { SliceThickness: "" } })),
      );
      t.strictSame(
        measures(none),
        Array.from({ length: 6 }, () => [3, 3]),
        "their distance where it says nothing",
      );
    },
  );

  await t.test(
    "slices of several multi-frame files are as thick as their own file says",
    async (t) => {
      const file = (places: number[], uid: string, thickness: string) =>
        multiFrame(places, {
          SOPInstanceUID: uid,
          SharedFunctionalGroupsSequence: [
            {
              PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
              PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.8", SliceThickness: thickness }],
            },
          ],
        });
      const { seg } = await run([file([0, 2], "1.7.1", "3"), file([4, 6], "1.7.2", "4")]);
      t.strictSame(
        measures(seg).map(([thickness]) => thickness),
        [3, 3, 4, 4, 3, 3, 4, 4],
      );
    },
  );

  await t.test("planes that are not parallel have no distance", async (t) => {
    const planes = [
      ["0\\0\\10", "1\\0\\0\\0\\1\\0", "2"],
      ["60\\0\\0", "0\\1\\0\\0\\0\\-1", "3"],
    ];
    const source = slice({
      z: 0,
      frames: [new Uint8Array(48), new Uint8Array(48)],
      attributes: {
        SOPClassUID: ENHANCED_CT,
        NumberOfFrames: "2",
        PerFrameFunctionalGroupsSequence: planes.map(([position, orientation, thickness]) => ({
          PlanePositionSequence: [{ ImagePositionPatient: position! }],
          PlaneOrientationSequence: [{ ImageOrientationPatient: orientation! }],
          PixelMeasuresSequence: [{ PixelSpacing: "1\\1", SliceThickness: thickness! }],
        })),
      },
    });
    const { seg } = await run(source);
    t.strictSame(measures(seg), [
      [2, undefined],
      [3, undefined],
      [2, undefined],
      [3, undefined],
    ]);
  });

  await t.test("segments of a dose grid lie where its frames do", async (t) => {
    const { seg, paths } = await run(doseGrid("30\\28\\26", 3));
    const frames = seg.sequence("PerFrameFunctionalGroupsSequence")!;
    t.strictSame(
      frames.map((frame) =>
        frame.sequence("PlanePositionSequence")?.[0]?.numbers("ImagePositionPatient"),
      ),
      [30, 28, 26, 30, 28, 26].map((z) => [-10, -20, z]),
    );
    t.strictSame(
      measures(seg),
      Array.from({ length: 6 }, () => [2, 2]),
    );
    if (commandsAre("dciodvfy") === false)
      for (const path of paths) t.strictSame(objectErrors(path), [], basename(path));
  });

  await t.test("areas in a tomosynthesis are in the patient", async (t) => {
    const source = { SOPClassUID: "1.2.840.10008.5.1.4.1.1.13.1.3", Modality: "MG" };
    const { warnings } = await run(
      multiFrame([0, 1], { ...source, ImagerPixelSpacing: "0.5\\0.8" }),
    );
    t.notOk(warnings.some(({ code }) => code === "no_patient_spacing"));
  });

  await t.test("an orientation that is none places nothing", async (t) => {
    const parallel = slice({ z: 0, attributes: { ImageOrientationPatient: "1\\0\\0\\1\\0\\0" } });
    const { seg, paths } = await run(parallel);
    const [shared] = seg.sequence("SharedFunctionalGroupsSequence") ?? [];
    const [own] = seg.sequence("PerFrameFunctionalGroupsSequence") ?? [];
    t.notOk(shared?.has("PlaneOrientationSequence"));
    t.notOk(own?.has("PlanePositionSequence"));
    if (commandsAre("dciodvfy") === false)
      for (const path of paths) t.strictSame(objectErrors(path), [], basename(path));
  });

  await t.test("labels of an ultrasound image are measured by their own region", async (t) => {
    const halves = [
      [0, 2, 0.1],
      [3, 5, 0.2],
    ] as const;
    const regions = halves.map(([x0, x1, delta]) => ({
      RegionSpatialFormat: 1,
      RegionFlags: 0,
      PhysicalUnitsXDirection: 3,
      PhysicalUnitsYDirection: 3,
      PhysicalDeltaX: new Typed("FD", delta),
      PhysicalDeltaY: new Typed("FD", delta),
      RegionLocationMinX0: x0,
      RegionLocationMinY0: 0,
      RegionLocationMaxX1: x1,
      RegionLocationMaxY1: 3,
    }));
    // The six columns of each row: 1000 is bright, -1000 is dark
    const ultrasound = (row: readonly number[]) => {
      const source = {
        SOPClassUID: "1.2.840.10008.5.1.4.1.1.6.1",
        Modality: "US",
        PixelSpacing: undefined,
        PixelRepresentation: 0,
        RescaleIntercept: "-1000",
        RescaleSlope: "1",
      };
      const pixels = Uint16Array.from({ length: 24 }, (_, i) => row[i % 6]! + 1000);
      return slice({
        z: 0,
        attributes: { ...source, SequenceOfUltrasoundRegions: regions },
        frames: [new Uint8Array(pixels.buffer)],
      });
    };
    const apart = await run(ultrasound([-1000, -1000, -1000, 1000, 1000, 1000]));
    const areas = ({ findings }: typeof apart) =>
      findings.map(({ label, area }) => [label, area?.pixels, area?.cm2]);
    t.strictSame(areas(apart), [
      ["bright", 12, 0.48],
      ["dark", 12, 0.12],
    ]);
    t.strictSame(
      apart.warnings.filter(({ code }) => code.includes("spacing") || code.includes("measured")),
      [],
    );
    const across = await run(ultrasound([1000, 1000, 1000, 1000, -1000, -1000]));
    t.strictSame(areas(across), [
      ["bright", 16, undefined],
      ["dark", 8, 0.32],
    ]);
    t.match(
      across.warnings.filter(({ code }) => code === "partly_unmeasured"),
      [{ message: /"bright" lies in regions .* different scales/ }],
    );
  });

  await t.test("a frame of reference that is no UID places nothing, and is told", async (t) => {
    for (const [uid, expected, told] of [
      ["1.2.5", "1.2.5", []],
      ["1.2.A", undefined, [/the source's FrameOfReferenceUID is not a UID/]],
      [undefined, undefined, []],
    ] as const) {
      const source = slice({ z: 0, attributes: { FrameOfReferenceUID: uid } });
      const { seg, warnings } = await run(source);
      t.equal(seg.string("FrameOfReferenceUID"), expected);
      const said = warnings.filter(({ code }) => code === "place_left_out");
      t.equal(said.length, told.length);
      for (const [i, message] of told.entries()) t.match(said[i]!.message, message);
    }
  });

  await t.test("results name their source by its own UIDs, with leading zeros too", async (t) => {
    const uids = {
      StudyInstanceUID: "1.2.3.078",
      SeriesInstanceUID: "1.2.3.04",
      SOPInstanceUID: "1.2.3.23.001",
      FrameOfReferenceUID: "1.2.03",
    };
    const { seg, sr, sc, paths, warnings } = await run(slice({ z: 0, attributes: uids }));
    t.notOk(warnings.some(({ code }) => /left_out|not_written/.test(code)));
    t.equal(paths.length, 3);
    for (const object of [seg, sr, sc])
      t.equal(object.string("StudyInstanceUID"), uids.StudyInstanceUID);
    t.equal(seg.string("FrameOfReferenceUID"), uids.FrameOfReferenceUID);
    const [frame] = seg.sequence("PerFrameFunctionalGroupsSequence")!;
    const [place] = frame!.sequence("PlanePositionSequence")!;
    t.strictSame(place!.numbers("ImagePositionPatient"), [-10, -20, 0]);
    const [series] = seg.sequence("ReferencedSeriesSequence")!;
    t.equal(series!.string("SeriesInstanceUID"), uids.SeriesInstanceUID);
    const [referenced] = series!.sequence("ReferencedInstanceSequence")!;
    t.equal(referenced!.string("ReferencedSOPInstanceUID"), uids.SOPInstanceUID);
    if (commandsAre("dciodvfy") === false)
      for (const path of paths) {
        const others = objectErrors(path).filter((error) => !error.includes("Leading zeroes"));
        t.strictSame(others, [], `${basename(path)} has no other fault than its source`);
      }
  });
});
