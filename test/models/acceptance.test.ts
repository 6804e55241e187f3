import t from "tap";
import { accepts, caveats } from "../../src/models/acceptance.js";
import type { Image } from "../../src/images/image.js";
import { readImage } from "../../src/images/read-image.js";
import { imageInputs, type ImageInput, type Manifest } from "../../src/manifest/manifest.js";
import { valueCaveats } from "../../src/models/input-values.js";
import { imageOf, type Values } from "../support/images.js";
import { shipped } from "../support/manifests.js";
import { folderOf, multiFrame, readFolder, slice } from "../support/series.js";

const ct = shipped("ct-tissue");
const text = shipped("burned-in-text");

const codes = (manifest: Manifest, image: Image) => accepts({ manifest }, image).map((r) => r.code);
const messages = (manifest: Manifest, image: Image) =>
  accepts({ manifest }, image)
    .map((r) => r.message)
    .join("\n");
const withAccepts = (change: Partial<Manifest["accepts"]>): Manifest => ({
  ...ct,
  accepts: { ...ct.accepts, ...change },
});
const withRule = (rule: Partial<NonNullable<Manifest["accepts"]["rules"]>[number]>): Manifest =>
  withAccepts({ rules: [{ tag: "KVP", if_absent: "refuse", reason: "Because.", ...rule }] });
const tagged = (attributes: Values) => imageOf({ attributes });

t.test("ct-tissue takes CT in HU, frame by frame", (t) => {
  t.strictSame(codes(ct, imageOf()), []);
  t.strictSame(
    codes(ct, imageOf({ frameCount: 40, source: { sopClassUid: "1.2.840.10008.5.1.4.1.1.2.1" } })),
    [],
  );
  t.strictSame(
    codes(ct, imageOf({ attributes: { ImageType: ["ORIGINAL", "PRIMARY", "AXIAL"] } })),
    [],
  );
  t.strictSame(codes(ct, imageOf({ format: { photometricInterpretation: "MONOCHROME1" } })), []);
  t.end();
});

t.test("ct-tissue refuses, each reason with its own code", (t) => {
  const localizer = imageOf({ attributes: { ImageType: ["ORIGINAL", "PRIMARY", "LOCALIZER"] } });
  t.strictSame(codes(ct, localizer), ["rule_image_type"]);
  t.match(messages(ct, localizer), /other than LOCALIZER, found ORIGINAL\\PRIMARY\\LOCALIZER/);
  t.strictSame(
    codes(ct, imageOf({ attributes: { ImageType: ["DERIVED", "SECONDARY", "SCREEN SAVE"] } })),
    ["rule_image_type"],
  );
  t.strictSame(codes(ct, imageOf({ attributes: { VolumeBasedCalculationTechnique: "MAX_IP" } })), [
    "rule_volume_based_calculation_technique",
  ]);
  t.strictSame(codes(ct, imageOf({ interpretation: { units: undefined } })), [
    "units_not_accepted",
  ]);
  t.match(
    messages(ct, imageOf({ interpretation: { units: "US" } })),
    /The unit of pixel values is US; the model takes HU\./,
  );
  const photo = imageOf({
    source: { modality: "XC", sopClassUid: "1.2.840.10008.5.1.4.1.1.77.1.4" },
    format: { photometricInterpretation: "RGB", samplesPerPixel: 3 },
    interpretation: { units: undefined },
  });
  t.strictSame(codes(ct, photo), [
    "modality_not_accepted",
    "sop_class_not_accepted",
    "photometric_not_accepted",
    "units_not_accepted",
    "colour_not_accepted",
  ]);
  t.match(messages(ct, photo), /Modality is XC; the model takes CT\./);
  t.end();
});

t.test("units of every frame count", (t) => {
  const image = imageOf({ frameCount: 3 });
  const first = image.interpretation(0);
  image.interpretation = (frame) => (frame === 2 ? { ...first, units: undefined } : first);
  t.strictSame(codes(ct, image), ["units_not_accepted"]);
  t.end();
});

t.test("DICOM rules do not apply to a PNG, pixel rules do", (t) => {
  const png = imageOf({ source: { format: "png" } });
  t.strictSame(codes(text, png), [], "sop_class speaks of DICOM");
  t.strictSame(codes(ct, png), ["format_not_accepted", "units_not_accepted"]);
  const demanding = {
    ...text,
    accepts: {
      ...text.accepts,
      modality: ["US"],
      body_part: ["CHEST"],
      rules: withRule({ min: 1 }).accepts.rules,
    },
  };
  t.strictSame(codes(demanding, png), []);
  t.end();
});

t.test("burned-in-text takes screen captures of any modality, and no CT", (t) => {
  const capture = imageOf({ source: { modality: "CT", sopClassUid: "1.2.840.10008.5.1.4.1.1.7" } });
  t.strictSame(codes(text, capture), []);
  const unnamed = imageOf({
    source: { modality: undefined, sopClassUid: "1.2.840.10008.5.1.4.1.1.7" },
  });
  t.strictSame(codes(text, unnamed), []);
  t.strictSame(accepts({ manifest: text }, imageOf()), [
    {
      code: "sop_class_not_accepted",
      message: "SOPClassUID is CT Image Storage; the model takes 18 others (accepts.sop_class).",
    },
  ]);
  t.end();
});

t.test("an absent value is in no list", (t) => {
  t.match(
    messages(ct, imageOf({ source: { modality: undefined } })),
    /Modality is absent; the model takes CT\./,
  );
  t.strictSame(codes(withAccepts({ body_part: ["CHEST"] }), imageOf()), ["body_part_not_accepted"]);
  t.strictSame(
    codes(withAccepts({ body_part: ["CHEST"] }), tagged({ BodyPartExamined: "CHEST" })),
    [],
  );
  t.end();
});

t.test("sizes and frames", (t) => {
  t.strictSame(codes(withAccepts({ dimensions: "2d" }), imageOf({ frameCount: 2 })), [
    "single_frame_required",
  ]);
  t.strictSame(codes(withAccepts({ dimensions: "2d" }), imageOf()), []);
  t.strictSame(codes(withAccepts({ dimensions: "series" }), imageOf()), ["series_required"]);
  t.strictSame(codes(withAccepts({ max_frames: 2 }), imageOf({ frameCount: 2 })), []);
  t.strictSame(codes(withAccepts({ max_frames: 2 }), imageOf({ frameCount: 3 })), [
    "too_many_frames",
  ]);
  t.strictSame(codes(withAccepts({ min_rows: 17, min_columns: 16 }), imageOf()), ["too_few_rows"]);
  t.strictSame(codes(withAccepts({ min_rows: 16, min_columns: 17 }), imageOf()), [
    "too_few_columns",
  ]);
  t.end();
});

t.test("what the manifest forbids the pixel pipeline to guess", (t) => {
  const input = imageInputs(ct)[0]!;
  const withInput = (change: Partial<typeof input>): Manifest => ({
    ...ct,
    inputs: [{ ...input, ...change }],
  });
  const inverted = imageOf({ format: { photometricInterpretation: "MONOCHROME1" } });
  t.strictSame(codes(withInput({ monochrome1: "refuse" }), inverted), ["monochrome1_not_accepted"]);
  const own = { kind: "multiple_of", multiple: 8, max_side: 15 } as const;
  t.strictSame(codes(withInput({ size: own }), imageOf()), ["too_large"]);
  t.strictSame(codes(withInput({ size: own, fit: "letterbox" }), imageOf()), [], "it shrinks");
  const voi = withInput({ values: { kind: "voi", index: 1, if_absent: "refuse" } });
  const windows = (count: number) =>
    imageOf({
      interpretation: {
        voi: Array.from({ length: count }, () => ({
          kind: "window",
          center: 40,
          width: 400,
          function: "LINEAR",
        })),
      },
    });
  t.strictSame(codes(voi, windows(1)), ["voi_missing"]);
  t.strictSame(codes(voi, windows(2)), []);
  t.end();
});

t.test("a model of whole series names what keeps the frames from being one", (t) => {
  const volume = withAccepts({ dimensions: "series" });
  const stackOf = (places: (number | undefined)[]) => {
    const image = imageOf({ frameCount: places.length });
    image.plane = (frame) => {
      const place = places[frame];
      return place === undefined
        ? undefined
        : { position: [0, 0, place], orientation: [1, 0, 0, 0, 1, 0] };
    };
    image.spacing = () => ({ row: 1, column: 1, source: "PixelSpacing", patient: true });
    return image;
  };
  t.strictSame(codes(volume, stackOf([0, 1, 2])), []);
  t.strictSame(codes(volume, stackOf([0, 1, 1])), ["series_duplicate_position"]);
  t.strictSame(codes(volume, stackOf([0, 1, 2, 4])), ["series_gap"]);
  t.strictSame(codes(volume, stackOf([0, undefined])), ["series_missing_geometry"]);
  const large = stackOf([0, 1]);
  large.format.rows = large.format.columns = 23_171;
  t.strictSame(codes(volume, large), ["volume_too_large"]);
  t.end();
});

t.test("every slice of a series counts", (t) => {
  const image = imageOf({
    frameCount: 2,
    attributes: { ImageType: ["ORIGINAL", "PRIMARY"], KVP: 120 },
  });
  const other = imageOf({
    attributes: { ImageType: ["DERIVED", "SECONDARY", "SCREEN SAVE"], KVP: 80 },
  });
  image.series = {
    others: 0,
    grouped: false,
    volume: {
      frames: [0, 1],
      geometry: {
        origin: [0, 0, 0],
        columnDirection: [1, 0, 0],
        rowDirection: [0, 1, 0],
        sliceDirection: [0, 0, 1],
        columnSpacing: 1,
        rowSpacing: 1,
        sliceSpacing: 1,
      },
    },
    slices: [],
    attributes: [image.attributes!, image.attributes!, other.attributes!, other.attributes!],
  };
  t.strictSame(codes(ct, image), ["rule_image_type"], "once");
  t.strictSame(
    caveats(ct, image).map(({ code, message }) => [code, /[A-Z]\w+ is/.exec(message)?.[0]]),
    [
      ["envelope_unknown", "SliceThickness is"],
      ["outside_envelope", "KVP is"],
    ],
  );
  t.strictSame(codes(withAccepts({ dimensions: "series" }), image), ["rule_image_type"]);
  t.end();
});

const SNAKE: Record<string, string> = { ImageType: "image_type", PatientAge: "patient_age" };
function shared(item: Values): Values {
  return { SharedFunctionalGroupsSequence: [item] };
}

const perFrame = (...kvps: number[][]): Values => ({
  PerFrameFunctionalGroupsSequence: kvps.map((all) => ({
    CTXRayDetailsSequence: all.map((KVP) => ({ KVP })),
  })),
});

t.test("tag rules", (t) => {
  const cases: [string, Parameters<typeof withRule>[0], Values, boolean][] = [
    [
      "in, any value",
      { tag: "ImageType", in: ["AXIAL"] },
      { ImageType: ["ORIGINAL", "AXIAL"] },
      true,
    ],
    ["in, no value", { tag: "ImageType", in: ["AXIAL"] }, { ImageType: ["ORIGINAL"] }, false],
    [
      "in at an index",
      { tag: "ImageType", index: 0, in: ["AXIAL"] },
      { ImageType: ["X", "AXIAL"] },
      false,
    ],
    [
      "not_in at an index",
      { tag: "ImageType", index: 0, not_in: ["AXIAL"] },
      { ImageType: ["X", "AXIAL"] },
      true,
    ],
    [
      "index past the end",
      { tag: "ImageType", index: 5, not_in: ["X"] },
      { ImageType: ["X"] },
      false,
    ],
    ["absent, refuse", { min: 1 }, {}, false],
    ["absent, accept", { min: 1, if_absent: "accept" }, {}, true],
    ["empty counts as absent", { in: ["120"], if_absent: "accept" }, { KVP: "" }, true],
    ["min, at it", { min: 80 }, { KVP: 80 }, true],
    ["min, below", { min: 80 }, { KVP: 79.9 }, false],
    ["max, above", { max: 140 }, { KVP: 141 }, false],
    ["every value", { min: 1, max: 3 }, { KVP: [1, 3, 4] }, false],
    ["no number", { min: 1 }, { KVP: "high" }, false],
    ["age in years", { tag: "PatientAge", min: 18 }, { PatientAge: "017Y" }, false],
    ["age in months", { tag: "PatientAge", min: 18 }, { PatientAge: "228M" }, true],
    [
      "shared functional group",
      { min: 100 },
      shared({ CTXRayDetailsSequence: [{ KVP: 120 }] }),
      true,
    ],
    ["shared, refused", { min: 130 }, shared({ CTXRayDetailsSequence: [{ KVP: 120 }] }), false],
    ["every frame", { max: 130 }, perFrame([120], [130]), true],
    ["one frame of several", { max: 130 }, perFrame([120], [140]), false],
    ["at an index, in each frame", { index: 0, max: 130 }, perFrame([120], [140]), false],
    ["in, one frame of several", { in: ["120"] }, perFrame([120], [140]), false],
    ["absent in a frame", { in: ["120"] }, perFrame([120], []), false],
    [
      "absent in a frame, but shared",
      { in: ["120"] },
      { ...shared({ CTXRayDetailsSequence: [{ KVP: 120 }] }), ...perFrame([120], []) },
      true,
    ],
  ];
  for (const [what, rule, attributes, accepted] of cases) {
    const expected = accepted
      ? []
      : [rule.tag === undefined ? "rule_kvp" : `rule_${SNAKE[rule.tag] ?? ""}`];
    t.strictSame(codes(withRule(rule), tagged(attributes)), expected, what);
  }
  t.end();
});

t.test("a refusal never tells who the patient is", (t) => {
  const named = (tag: string, value: string) =>
    messages(withRule({ tag, in: ["NOBODY"], reason: "Because" }), tagged({ [tag]: value }));
  t.equal(
    named("PatientName", "DOE^JANE"),
    "Because. Expected PatientName NOBODY, found another value.",
  );
  t.equal(
    named("StudyDescription", "JANE"),
    "Because. Expected StudyDescription NOBODY, found another value.",
  );
  t.match(
    named("ImageType", "Jane Doe, born 1980"),
    /found another value/,
    "a free text where a code belongs",
  );
  t.match(named("ImageType", "AXIAL"), /found AXIAL/);
  t.notMatch(messages(ct, imageOf({ source: { modality: "Jane Doe" } })), /Jane/);
  t.end();
});

t.test("caveats outside the envelope", (t) => {
  t.strictSame(caveats(ct, tagged({ KVP: 120, SliceThickness: 5 })), []);
  const outside = caveats(ct, tagged({ KVP: 80, SliceThickness: 5 }));
  t.match(outside, [
    { code: "outside_envelope", message: /KVP is 80; the model was tested with at least 100/ },
  ]);
  t.strictSame(
    caveats(ct, tagged({})).map((w) => w.code),
    ["envelope_unknown", "envelope_unknown"],
  );
  t.strictSame(
    caveats(
      ct,
      tagged({
        PerFrameFunctionalGroupsSequence: [
          { PixelMeasuresSequence: [{ SliceThickness: 1 }], CTXRayDetailsSequence: [{ KVP: 120 }] },
          {
            PixelMeasuresSequence: [{ SliceThickness: 12 }],
            CTXRayDetailsSequence: [{ KVP: 120 }],
          },
        ],
      }),
    ).map((w) => w.message.includes("SliceThickness is 1\\12")),
    [true],
  );
  t.strictSame(caveats(text, imageOf({ source: { format: "png" } })), []);
  t.end();
});

t.test("stored values of slices with rescales of their own", async (t) => {
  const volumes = shipped("examples/brain-tissue-3d");
  const of = (values: ImageInput["values"], dimensions: Manifest["accepts"]["dimensions"]) => ({
    ...volumes,
    accepts: { formats: ["dicom" as const], dimensions },
    inputs: imageInputs(volumes).map((input) => ({ ...input, values })),
  });
  const stack = (slopes: readonly string[]) =>
    slopes.map((RescaleSlope, z) => slice({ z, attributes: { RescaleSlope } }));
  const transformed = (slopes: readonly string[]) =>
    multiFrame(
      slopes.map((_, z) => z),
      {
        RescaleSlope: undefined,
        RescaleIntercept: undefined,
        PerFrameFunctionalGroupsSequence: slopes.map((RescaleSlope, z) => ({
          PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${z}` }],
          PixelValueTransformationSequence: [
            { RescaleSlope, RescaleIntercept: "0", RescaleType: "US" },
          ],
        })),
      },
    );
  const [own, alike] = [
    ["1", "2.5", "2"],
    ["2", "2.0", "2"],
  ] as const;
  const images = async (slopes: readonly string[]) => [
    await readFolder(t, folderOf(t, stack(slopes))),
    await readImage(transformed(slopes)),
  ];
  const isTold = (manifest: Manifest, image: Image) =>
    codes(manifest, image).includes("stored_values_differ");
  for (const image of await images(own)) {
    t.ok(isTold(of({ kind: "stored" }, "series"), image));
    t.notOk(isTold(of({ kind: "modality" }, "series"), image));
    t.notOk(isTold(of({ kind: "stored" }, "2d_frames"), image), "frames by themselves");
    const told = valueCaveats({ kind: "stored" }, image, 1, await image.frame(1));
    t.match(told, [{ code: "stored_values_differ" }]);
    t.strictSame(valueCaveats({ kind: "stored" }, image, 0, await image.frame(0)), []);
  }
  for (const image of await images(alike)) {
    t.notOk(isTold(of({ kind: "stored" }, "series"), image));
    t.strictSame(valueCaveats({ kind: "stored" }, image, 1, await image.frame(1)), []);
  }
});

t.test("windows of their own in slices that a model takes together", async (t) => {
  const volumes = shipped("examples/brain-tissue-3d");
  const of = (
    dimensions: Manifest["accepts"]["dimensions"],
    more: Partial<ImageInput> = {},
  ): Manifest => ({
    ...volumes,
    accepts: { formats: ["dicom" as const], dimensions },
    inputs: imageInputs(volumes).map((input) => ({
      ...input,
      values: { kind: "voi", index: 0, if_absent: "refuse" },
      ...more,
    })),
  });
  const neighbours = { neighbours: { before: 1, after: 1, edges: "repeat" as const } };
  const isTold = (manifest: Manifest, image: Image) =>
    caveats(manifest, image).some(({ code }) => code === "windows_differ");
  const stack = (windows: readonly object[]) =>
    readFolder(
      t,
      folderOf(
        t,
        windows.map((window, z) => slice({ z, attributes: { WindowCenter: "40", ...window } })),
      ),
    );
  const wide = { WindowWidth: "400" };
  for (const others of [
    { WindowWidth: "350" },
    { ...wide, WindowCenter: "41" },
    { ...wide, VOILUTFunction: "LINEAR_EXACT" },
  ]) {
    const image = await stack([wide, wide, others]);
    t.ok(isTold(of("series"), image));
    t.ok(isTold(of("2d_frames", neighbours), image));
    t.notOk(isTold(of("2d_frames"), image), "frames by themselves");
    t.notOk(isTold(of("series", { values: { kind: "modality" } }), image));
  }
  const alike = await stack([
    wide,
    { WindowWidth: "400.0" },
    { WindowWidth: "400\\9", WindowCenter: "40\\5", WindowCenterWidthExplanation: "A\\B" },
  ]);
  t.notOk(isTold(of("series"), alike), "the one that is used is the same");
  const second = { values: { kind: "voi" as const, index: 1, if_absent: "refuse" as const } };
  t.ok(isTold(of("series", second), alike));
});
