/**
 * What a model is told a frame's values are, and what is refused because it cannot be: through the
 * use-case.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { infer } from "../../src/inference/infer-image.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import type { Answer } from "../../src/results/receipt/receipt.js";
import {
  compress,
  CT,
  dicomFile,
  imageAttributes,
  SYNTAXES,
  type Attributes,
} from "../support/dicom.js";
import { failure } from "../support/expect.js";
import { shippedModels } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { engineWithFolder } from "../support/real-engine.js";
import { makePlace, radserve } from "../support/server.js";
import { loadTestModel, manifestOf } from "../support/test-models.js";

const SIDE = 16;
const PET = "1.2.840.10008.5.1.4.1.1.128";

const words = (values: readonly number[]): Uint8Array =>
  new Uint8Array(
    Int16Array.from({ length: SIDE * SIDE }, (_, i) => values[i % values.length] ?? 0).buffer,
  );

/** A frame of 16-bit values; HU unless the attributes say otherwise. */
function attributesOf(more: Attributes = {}): Attributes {
  return imageAttributes({
    SOPClassUID: CT,
    SOPInstanceUID: "1.2.3.4.5",
    StudyInstanceUID: "1.2.3",
    SeriesInstanceUID: "1.2.3.4",
    Modality: "CT",
    Rows: SIDE,
    Columns: SIDE,
    BitsAllocated: 16,
    BitsStored: 16,
    HighBit: 15,
    PixelRepresentation: 0,
    RescaleSlope: "1",
    RescaleIntercept: "0",
    ...more,
  });
}

/** Runs a model whose only measurement is the mean of what it is given, times 10, plus 1. */
function meter(t: Test) {
  const { engine, folder } = engineWithFolder(t, "values");
  let runs = 0;
  return async (
    file: Uint8Array,
    change: (manifest: Manifest) => void = () => undefined,
  ): Promise<Answer> => {
    runs++;
    const input = join(folder, `${runs}.dcm`);
    writeFileSync(input, file);
    const entry = await loadTestModel(engine, folder, "classifier", (manifest) => {
      const [image] = imageInputs(manifest);
      if (image !== undefined)
        Object.assign(image, { values: { kind: "modality" }, monochrome1: "as_stored" });
      if (image !== undefined) image.colour_source = "refuse";
      manifest.accepts = { formats: ["dicom"], modality: ["CT", "MR", "PT"], dimensions: "2d" };
      change(manifest);
    });
    return infer(
      {
        requestId: "test",
        inputPath: input,
        outputFolder: join(folder, `out-${runs}`),
        outputs: ["json"],
        priority: "routine",
        cancelId: runs,
        roots: { input: undefined, output: undefined },
      },
      { engine, models: [entry] },
    );
  };
}

const meanOf = ({ models }: Answer): number =>
  ((models[0]?.measurements[0]?.value ?? NaN) - 1) / 10;
const codesOf = (answer: Answer): string[] =>
  answer.models.flatMap(({ warnings }) => warnings.map((w) => w.code));

t.test("values", { skip: needs(ADDON) }, async (t) => {
  await t.test("what cannot be HU is refused", async (t) => {
    const run = meter(t);
    const values = [-1000, -100, 40, 300];
    const refused = async (file: Uint8Array, reason: string) => {
      const error = await failure(run(file));
      t.equal(error.code, "decode_suspect");
      t.equal(error.details?.["reason"], reason);
      t.match(error.message, "Hounsfield");
    };
    const raw = {
      rows: SIDE,
      columns: SIDE,
      samples: 1,
      bitsAllocated: 16,
      bitsStored: 16,
      signed: true,
    };
    const fragments = [await compress("jpeg2000", { ...raw, data: words(values) })];
    const coded = { transferSyntax: SYNTAXES.jpeg2000, pixels: { fragments } };
    await refused(dicomFile({ ...coded, attributes: attributesOf() }), "sign_mismatch");
    t.equal(
      meanOf(
        await run(dicomFile({ ...coded, attributes: attributesOf({ PixelRepresentation: 1 }) })),
      ),
      -190,
    );
    await refused(
      dicomFile({
        attributes: attributesOf({ BitsStored: 12, HighBit: 11 }),
        pixels: words(values),
      }),
      "sign_mismatch",
    );
    await refused(
      dicomFile({ attributes: attributesOf(), pixels: words(values) }),
      "impossible_hounsfield",
    );
    const offset = { PixelRepresentation: 1, RescaleIntercept: "-32768" };
    await refused(
      dicomFile({ attributes: attributesOf(offset), pixels: words([-32700, -31000]) }),
      "impossible_hounsfield",
    );
  });

  await t.test(
    "what can be HU is not: metal, padding, the filling outside the scanned circle",
    async (t) => {
      const run = meter(t);
      const signed = { PixelRepresentation: 1 };
      const taken = async (attributes: Attributes, values: readonly number[], mean: number) =>
        t.equal(
          meanOf(
            await run(dicomFile({ attributes: attributesOf(attributes), pixels: words(values) })),
          ),
          mean,
        );
      await taken(signed, [-10_240, 30_710], 10_235);
      await taken({ ...signed, RescaleIntercept: "-1024" }, [-32_768, 1024], (-33_792 + 0) / 2);
      await taken({ PixelPaddingValue: 63_536, RescaleIntercept: "-1024" }, [-2000, 1024], 0);
    },
  );

  await t.test("a slice without air, fat or water has a caveat", async (t) => {
    const run = meter(t);
    const lost = await run(
      dicomFile({ attributes: attributesOf(), pixels: words([24, 24, 24, 150, 1064, 1324]) }),
    );
    t.match(codesOf(lost), ["unlikely_hounsfield"]);
    const whole = attributesOf({ RescaleIntercept: "-1024" });
    t.strictSame(
      codesOf(await run(dicomFile({ attributes: whole, pixels: words([24, 1064, 1100, 1324]) }))),
      [],
    );
  });

  await t.test("frames that are padding throughout are no image", async (t) => {
    const run = meter(t);
    const padding = { PixelRepresentation: 1, PixelPaddingValue: -2000 };
    const range = { ...padding, PixelPaddingRangeLimit: 32767 };
    const [blank, body] = [words([-2000]), words([-2000, -2000, -2000, 40])];
    const of = (more: Attributes, ...frames: Uint8Array[]) =>
      run(
        dicomFile({
          attributes: attributesOf({ ...more, NumberOfFrames: String(frames.length) }),
          pixels: Buffer.concat(frames),
        }),
        ({ accepts }) => (accepts.dimensions = "2d_frames"),
      );
    const refused: Parameters<typeof of>[] = [
      [range, body],
      [padding, blank],
      [padding, blank, blank],
    ];
    for (const each of refused)
      t.match(await failure(of(...each)), {
        code: "decode_suspect",
        details: { reason: "padding_only" },
      });
    const [fill, one] = [Int16Array.from({ length: SIDE * SIDE }, () => -2000), 40];
    const speck = new Uint8Array(fill.with(7, one).buffer);
    t.strictSame(codesOf(await of(padding, speck)), ["padding_only"], "all but a pixel");
    t.strictSame(codesOf(await of(padding, body, speck)), [], "one of several");
    t.strictSame(codesOf(await of(padding, body)), []);
    t.strictSame(codesOf(await of(padding, body, body)), []);
    const some = await of(padding, blank, body, blank);
    t.match(some.models[0]?.warnings, [
      { code: "padding_only", message: /^2 of 3 frames or slices are Pixel Padding throughout/ },
    ]);
    t.strictSame(codesOf(await of({ ...padding, PixelPaddingValue: -1999 }, blank)), [
      "blank_frame",
    ]);
  });

  await t.test("the answer holds the file's warnings", async (t) => {
    const run = meter(t);
    const file = dicomFile({ attributes: attributesOf(), pixels: words([1]), preamble: false });
    t.match((await run(file)).warnings, [{ code: "missing_preamble" }]);
  });

  await t.test("the command prints the warnings of file and model", async (t) => {
    const place = makePlace({ RADSERVE_MODELS_DIR: shippedModels });
    t.teardown(() => place.remove());
    const file = join(place.input, "ct.dcm");
    const signed = attributesOf({ PixelRepresentation: 1 });
    writeFileSync(file, dicomFile({ attributes: signed, pixels: words([1000]), preamble: false }));
    const { stdout } = await radserve(place, "infer", file, place.output, "--model", "ct-tissue");
    t.match(stdout, /^Warning: .*preamble/m);
    t.match(stdout, /^ {2}Warning: .*RescaleIntercept/m);
  });

  const adc: Attributes = {
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.4",
    Modality: "MR",
    RescaleSlope: undefined,
    RescaleIntercept: undefined,
  };
  const mapping = (more: Attributes = {}): Attributes => ({
    RealWorldValueMappingSequence: [
      {
        RealWorldValueFirstValueMapped: 0,
        RealWorldValueLastValueMapped: 4095,
        RealWorldValueIntercept: 0.5,
        RealWorldValueSlope: 0.25,
        LUTLabel: "ADC",
        MeasurementUnitsCodeSequence: [
          { CodeValue: "um2/s", CodingSchemeDesignator: "UCUM", CodeMeaning: "um2/s" },
        ],
        ...more,
      },
    ],
  });
  const asRealWorld =
    (more: object = {}) =>
    (manifest: Manifest) => {
      const [image] = manifest.inputs;
      if (image !== undefined) image.values = { kind: "real_world", units: "um2/s", ...more };
    };

  await t.test("a real world value is what the model is given", async (t) => {
    const run = meter(t);
    const file = (more: Attributes = {}) =>
      dicomFile({
        attributes: attributesOf({ ...adc, ...mapping(), ...more }),
        pixels: words([100, 300]),
      });
    const answer = await run(file(), asRealWorld());
    t.equal(meanOf(answer), 50.5);
    t.strictSame(codesOf(answer), []);
    t.match(
      codesOf(await run(file(mapping({ RealWorldValueLastValueMapped: 200 })), asRealWorld())),
      ["real_world_range"],
    );
    t.equal(meanOf(await run(file(), asRealWorld({ label: "ADC" }))), 50.5);
    const grouped = {
      RealWorldValueMappingSequence: undefined,
      SharedFunctionalGroupsSequence: [mapping()],
    };
    t.equal(meanOf(await run(file(grouped), asRealWorld())), 50.5);
    for (const lacking of [
      () => run(file({ RealWorldValueMappingSequence: undefined }), asRealWorld()),
      () => run(file(mapping({ RealWorldValueSlope: undefined })), asRealWorld()),
      () => run(file(), asRealWorld({ units: "mm2/s" })),
      () => run(file(), asRealWorld({ label: "other" })),
    ]) {
      const error = await failure(lacking());
      t.equal(error.code, "no_model_accepts");
      t.match(JSON.stringify(error.details), "real_world_missing");
    }
  });

  await t.test(
    "a model of modality values is warned of a real world value, unless both are equal",
    async (t) => {
      const run = meter(t);
      const file = (more: Attributes) =>
        dicomFile({ attributes: attributesOf({ ...adc, ...more }), pixels: words([100, 300]) });
      const warned = await run(file(mapping()));
      t.equal(meanOf(warned), 200);
      t.strictSame(codesOf(warned), ["real_world_value_ignored"]);
      const equal = mapping({ RealWorldValueSlope: 1, RealWorldValueIntercept: 0 });
      t.strictSame(codesOf(await run(file(equal))), []);
    },
  );

  /**
   * 70 kg, 400 MBq of F-18 one half-life before the scan: 1 Bq/ml is 70,000 g / 200 MBq = 0.00035
   * g/ml.
   */
  const pet = (more: Attributes = {}, dose: Attributes = {}): Attributes =>
    attributesOf({
      SOPClassUID: PET,
      Modality: "PT",
      RescaleSlope: "2",
      Units: "BQML",
      CorrectedImage: "DECY\\ATTN\\SCAT",
      DecayCorrection: "START",
      PatientWeight: "70",
      SeriesDate: "20260102",
      SeriesTime: "003000",
      AcquisitionDate: "20260102",
      AcquisitionTime: "003500.5",
      RadiopharmaceuticalInformationSequence: [
        {
          RadiopharmaceuticalStartTime: "224000.000000",
          RadionuclideTotalDose: "400000000",
          RadionuclideHalfLife: "6600",
          ...dose,
        },
      ],
      ...more,
    });
  const philips = {
    "70530010": "Philips PET Private Group",
    "70531000": "0.00035",
    Units: "CNTS",
  };
  const asSuv = (manifest: Manifest) => {
    const [image] = manifest.inputs;
    if (image !== undefined) image.values = { kind: "suv_bw" };
  };
  const SUV = 5000 * 2 * 0.00035;

  await t.test("SUV by body weight is computed as QIBA's profile says", async (t) => {
    const run = meter(t);
    const suv = async (attributes: Attributes) =>
      meanOf(await run(dicomFile({ attributes, pixels: words([4000, 6000]) }), asSuv));
    const near = (found: number, wanted: number, about: string) =>
      t.ok(Math.abs(found - wanted) < 1e-4, `${about}: ${found} is ${wanted}`);
    near(await suv(pet()), SUV, "given before midnight");
    const stated = {
      RadiopharmaceuticalStartTime: undefined,
      RadiopharmaceuticalStartDateTime: "20260101224000",
    };
    near(await suv(pet({}, stated)), SUV, "by date and time");
    near(await suv(pet({ DecayCorrection: "ADMIN" })), SUV / 2, "corrected to the administration");
    near(await suv(pet({ Units: "GML" })), 10_000, "SUV already");
    const ge = {
      "00090010": "GEMS_PETD_01",
      "0009100d": "20260102003000.00",
      SeriesTime: "120000",
    };
    near(await suv(pet(ge)), SUV, "a later series of a scanner that keeps the scan's start");
    near(await suv(pet(philips)), SUV, "counts with a factor");
    const computed = pet({ SeriesTime: "120000" });
    const answer = await run(
      dicomFile({ attributes: computed, pixels: words([4000, 6000]) }),
      asSuv,
    );
    near(meanOf(answer), (SUV / 2) * 2 ** (6900.5 / 6600), "by the earliest acquisition");
    t.strictSame(codesOf(answer), ["suv_scan_start"]);
  });

  await t.test("SUV is refused where a part of it is missing", async (t) => {
    const run = meter(t);
    const cases: [string, Attributes][] = [
      ["RescaleSlope", pet({ RescaleSlope: undefined })],
      ["PatientWeight", pet({ PatientWeight: "0" })],
      ["PatientWeight", pet({ PatientWeight: undefined })],
      ["RadionuclideTotalDose", pet({}, { RadionuclideTotalDose: "400" })],
      ["RadionuclideHalfLife", pet({}, { RadionuclideHalfLife: undefined })],
      ["SeriesTime", pet({ SeriesTime: undefined })],
      ["administration", pet({}, { RadiopharmaceuticalStartTime: undefined })],
      ["CorrectedImage", pet({ CorrectedImage: "DECY" })],
      ["DecayCorrection", pet({ DecayCorrection: "NONE" })],
      ["RescaleSlope", pet({ ...philips, RescaleSlope: undefined })],
      ["CorrectedImage does not hold ATTN", pet({ ...philips, CorrectedImage: "DECY\\RADL" })],
      ["CorrectedImage does not hold DECY", pet({ ...philips, CorrectedImage: "ATTN" })],
      ["DecayCorrection", pet({ ...philips, DecayCorrection: "NONE" })],
      ["RescaleSlope", pet({ Units: "GML", RescaleSlope: undefined })],
      ["CorrectedImage does not hold ATTN", pet({ Units: "GML", CorrectedImage: undefined })],
      ["DecayCorrection", pet({ Units: "GML", DecayCorrection: "NONE" })],
      ["Units", pet({ Units: "CONSTRUCTOR" })],
      ["Units", pet({ Units: "CNTS" })],
      ["SUVType", pet({ Units: "GML", SUVType: "LBM" })],
      ["positron", attributesOf()],
    ];
    for (const [named, attributes] of cases) {
      const error = await failure(run(dicomFile({ attributes, pixels: words([1, 2]) }), asSuv));
      t.equal(error.code, "no_model_accepts", named);
      t.match(JSON.stringify(error.details), new RegExp(`suv_missing.*${named}`), named);
    }
  });

  await t.test("physical values are not inverted and have no colour", (t) => {
    const accepts = { formats: ["dicom"], modality: ["PT"], dimensions: "2d" };
    const manifest = { ...manifestOf("classifier"), accepts, stage: "draft" };
    const [image] = manifest.inputs;
    const problems = (change: object) => {
      const inputs = [{ ...image, values: { kind: "suv_bw" }, ...change }];
      return manifestSchema
        .safeParse({ ...manifest, inputs, results: { outputs: ["json"] } })
        .error?.issues.map(({ path }) => path.at(-1));
    };
    t.strictSame(problems({ monochrome1: "invert", colour_source: "refuse" }), ["monochrome1"]);
    t.strictSame(problems({ monochrome1: "refuse", colour_source: "accept" }), ["colour_source"]);
    t.end();
  });
});
