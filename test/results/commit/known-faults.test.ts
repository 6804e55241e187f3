/** Receipts of earlier versions that show what is known to be wrong in them. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t from "tap";
import { auditPaths } from "../../../src/audit/folders.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  KNOWN_FAULTS,
  knownFaults,
  type Evidence,
} from "../../../src/results/commit/known-faults.js";
import type { Image } from "../../../src/images/image.js";
import { imageInputs, type ImageInput, type Manifest } from "../../../src/manifest/manifest.js";
import type { Label } from "../../../src/manifest/outputs/fields.js";
import { labelsOf } from "../../../src/manifest/outputs/outputs.js";
import type { Receipt } from "../../../src/results/receipt/receipt.js";
import { attributesOf, dicomFile, EXPLICIT, picture, Typed } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";
import { shipped } from "../../support/manifests.js";
import { keysFolder } from "../../support/result-keys.js";
import { receiptOf, writeReceipt } from "../../support/receipts.js";

const MAIN = resolve("dist/src/main.js");

/** A receipt of 0.5 with one model that has written a SEG. */
function earlier(change: (receipt: Receipt) => void = () => undefined): Receipt {
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  receipt.radserve_version = "0.5.0";
  const seg = {
    path: "x.dcm.cxr.seg.dcm",
    media_type: "application/dicom",
    sha256: "0".repeat(64),
  };
  receipt.models[0]?.outputs.push(seg);
  change(receipt);
  return receipt;
}

const raw = picture({ rows: 8, columns: 8, samples: 1, bitsAllocated: 8, bitsStored: 8 });
const NAMES = {
  StudyInstanceUID: "1.2.1",
  SeriesInstanceUID: "1.2.2",
  SOPInstanceUID: "1.2.3",
  Modality: "CT",
  TimezoneOffsetFromUTC: "+0000",
};
const fileWith = (attributes: object) =>
  dicomFile({
    transferSyntax: EXPLICIT,
    attributes: attributesOf(raw, { ...NAMES, ...attributes }),
    pixels: raw.data,
  });
const imageWith = (attributes: object) => readImage(fileWith(attributes));

const NO_TRANSFORM = {
  code: "photometric_mismatch",
  message:
    "PhotometricInterpretation is YBR_ICT but the codestream has no such transform; the frames were taken as RGB.",
};

const TAKEN_AS_YBR = {
  code: "photometric_mismatch",
  message:
    "PhotometricInterpretation is YBR_ICT but the frames have no such transform; their components were taken as YBR_FULL.",
};

/** A receipt of 0.5 with an area in cm2. */
const measured = () =>
  earlier(({ models }) => {
    const [finding] = models[0]?.findings ?? [];
    if (finding !== undefined) finding.area = { pixels: 10, cm2: 0.1 };
  });

/** A receipt of 0.5 with SUV by two hours of decay of 350 MBq in 70 kg, from 9 to 11 o'clock. */
const withSuv = () =>
  earlier(({ models }) => {
    const multiply = 70_000 / (350e6 * 2 ** (-7200 / 6600));
    models[0]?.transforms.push({ step: "suv_bw", multiply, units: "g/ml" });
  });

const petWith = (given: string, zone: string | undefined, more: object = {}) =>
  imageWith({
    Modality: "PT",
    Units: "BQML",
    RescaleSlope: "1",
    CorrectedImage: "ATTN\\DECY",
    DecayCorrection: "START",
    SeriesDate: "20260102",
    SeriesTime: "110000",
    AcquisitionDate: "20260102",
    AcquisitionTime: "110000",
    PatientWeight: "70",
    TimezoneOffsetFromUTC: zone,
    RadiopharmaceuticalInformationSequence: [
      {
        RadionuclideTotalDose: "350000000",
        RadionuclideHalfLife: "6600",
        RadiopharmaceuticalStartDateTime: given,
      },
    ],
    ...more,
  });

const REGION = {
  RegionSpatialFormat: 1,
  PhysicalUnitsXDirection: 3,
  PhysicalUnitsYDirection: 3,
  PhysicalDeltaX: new Typed("FD", 0.05),
  PhysicalDeltaY: new Typed("FD", 0.05),
  RegionLocationMinX0: 0,
  RegionLocationMinY0: 0,
  RegionLocationMaxX1: 3,
  RegionLocationMaxY1: 3,
};

const PLACED = {
  FrameOfReferenceUID: "1.2.9",
  ImagePositionPatient: "0\\0\\0",
  ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
  PixelSpacing: "1\\1",
  SliceThickness: "1",
};

/** Two frames of four rows, at one place. */
const TWO_TIMES = {
  Rows: 4,
  NumberOfFrames: "2",
  PerFrameFunctionalGroupsSequence: [0, 1].map((frame) => ({
    PlanePositionSequence: [{ ImagePositionPatient: "0\\0\\0" }],
    FrameContentSequence: [{ TemporalPositionIndex: new Typed("UL", frame + 1) }],
  })),
};
const TWO_SCALES = {
  Rows: 4,
  NumberOfFrames: "2",
  PerFrameFunctionalGroupsSequence: ["1", "2.5"].map((RescaleSlope) => ({
    PixelValueTransformationSequence: [{ RescaleSlope, RescaleIntercept: "0", RescaleType: "US" }],
  })),
};

const TWO_WINDOWS = {
  Rows: 4,
  NumberOfFrames: "2",
  PerFrameFunctionalGroupsSequence: ["300", "400"].map((WindowWidth) => ({
    FrameVOILUTSequence: [{ WindowCenter: "40", WindowWidth }],
  })),
};

/** As of slices of other bits. */
function mixed(image: Image): Image {
  image.warnings.push({ code: "mixed_storage", message: "The slices are stored differently." });
  return image;
}

/** A model of single images. */
function valuesOf(values: ImageInput["values"], more: Partial<ImageInput> = {}): Manifest {
  const tissue = shipped("ct-tissue");
  return {
    ...tissue,
    inputs: imageInputs(tissue).map((input) => ({ ...input, ...more, values })),
  };
}

const asSeries = (manifest: Manifest): Manifest => ({
  ...manifest,
  accepts: { ...manifest.accepts, dimensions: "series" },
});
const storedSeries = () => asSeries(valuesOf({ kind: "stored" }));

/** Of a folder with files that 0.6 left out, and that this version refuses. */
const shortened = () =>
  earlier(({ source, warnings }) => {
    source.slices = ["a", "b"].map((one, z) => ({
      sop_instance_uid: `1.2.3.${z}`,
      file_sha256: one.repeat(64),
    }));
    warnings.push({ code: "left_out_no_image", message: "Left out of the series: (2)." });
  });

/** A grey picture of three samples that are neither subsampled nor YBR. */
function contradicting(): Buffer {
  const grey = Uint8Array.from({ length: 3 * 64 }, (_, at) => 3 * Math.floor(at / 3));
  const colours = { rows: 8, columns: 8, samples: 3, bitsAllocated: 8, bitsStored: 8, data: grey };
  return dicomFile({
    transferSyntax: EXPLICIT,
    attributes: attributesOf(colours, { ...NAMES, PhotometricInterpretation: "YBR_FULL_422" }),
    pixels: grey,
  });
}

/** A model with a label of the left side, and more of that label. */
function withSide(more: Partial<Label>): Manifest {
  const manifest = shipped("ct-tissue");
  const [label] = manifest.outputs.flatMap(labelsOf);
  const laterality = { value: "7771000", scheme: "SCT", meaning: "Left" };
  Object.assign(label!, { laterality, ...more });
  return manifest;
}

/** By the first word of the fault that it shows, which is the only one. */
const CASES: Record<string, () => Evidence | Promise<Evidence>> = {
  PhotometricInterpretation: () => ({
    receipt: earlier(({ warnings }) => warnings.push(NO_TRANSFORM)),
  }),
  "PhotometricInterpretation YBR_ICT": () => ({
    receipt: earlier(({ warnings }) => warnings.push(TAKEN_AS_YBR)),
  }),
  FrameOfReferenceUID: async () => ({
    receipt: earlier(),
    image: await imageWith({ FrameOfReferenceUID: "" }),
  }),
  RadiopharmaceuticalStartDateTime: async () => ({
    receipt: withSuv(),
    image: await petWith("20260102090000+0000", "+0100"),
  }),
  PixelSpacing: async () => ({
    receipt: measured(),
    image: await imageWith({ PixelSpacing: "0.2\\0.2", ImagerPixelSpacing: "0.2000001\\0.2" }),
  }),
  SOPInstanceUID: () => ({
    receipt: earlier(({ source }) => {
      source.slices = ["a", "b"].map((one) => ({
        sop_instance_uid: "1.2.3",
        file_sha256: one.repeat(64),
      }));
    }),
  }),
  SequenceOfUltrasoundRegions: async () => ({
    receipt: measured(),
    image: await imageWith({ PixelSpacing: "1\\1", SequenceOfUltrasoundRegions: [REGION] }),
  }),
  ImageType: async () => ({
    receipt: measured(),
    image: await imageWith({ ImageType: "ORIGINAL\\PRIMARY\\MOSAIC", PixelSpacing: "1\\1" }),
  }),
  SliceVector: async () => ({
    receipt: earlier(),
    image: await imageWith({
      Modality: "NM",
      ImageType: "DERIVED\\SECONDARY",
      Rows: 4,
      NumberOfFrames: "2",
      SliceVector: new Typed("US", [1, 2]),
    }),
  }),
  VolumeBasedCalculationTechnique: async () => ({
    receipt: earlier(),
    image: await imageWith({
      ImageType: "DERIVED\\SECONDARY\\AXIAL\\MIP",
      RescaleSlope: "1",
      RescaleIntercept: "0",
      RescaleType: "HU",
    }),
  }),
  ImagePositionPatient: async () => ({
    receipt: earlier(),
    image: await imageWith({ ...PLACED, ...TWO_TIMES }),
  }),
  SliceThickness: async () => ({
    receipt: earlier(),
    image: await imageWith({ ...PLACED, SliceThickness: "" }),
  }),
  AnatomicalOrientationType: async () => ({
    receipt: earlier(),
    image: await imageWith({ AnatomicalOrientationType: "QUADRUPED" }),
  }),
  "inputs.values": async () => ({
    receipt: earlier(),
    image: await imageWith(TWO_SCALES),
    manifestOf: storedSeries,
  }),
  PixelData: () => ({ receipt: shortened() }),
  RescaleSlope: async () => ({
    receipt: withSuv(),
    image: await petWith("20260102090000+0100", "+0100", { RescaleSlope: undefined }),
  }),
  "inputs.values is voi": async () => ({
    receipt: earlier(),
    image: await imageWith(TWO_WINDOWS),
    manifestOf: () => asSeries(valuesOf({ kind: "voi", index: 0, if_absent: "refuse" })),
  }),
  BitsStored: async () => ({
    receipt: earlier(),
    image: mixed(await imageWith({})),
    manifestOf: () => valuesOf({ kind: "full_range" }),
  }),
  Colours: async () => ({ receipt: earlier(), image: await readImage(contradicting()) }),
  TimezoneOffsetFromUTC: async () => ({
    receipt: earlier(),
    image: await imageWith({ TimezoneOffsetFromUTC: undefined }),
  }),
  "A code": () => ({
    receipt: earlier(({ models: [model] }) => {
      model!.findings[0]!.code = { value: "urn:oid:1.2", scheme: "99X", meaning: "Mass" };
    }),
  }),
  SpecificCharacterSet: async () => ({
    receipt: earlier(),
    image: await imageWith({ SpecificCharacterSet: "ISO IR 192", PatientName: "Mu^Zo" }),
  }),
  "A label": () => ({
    receipt: earlier(({ models: [model] }) => {
      model!.findings.push({ ...model!.findings[0]! });
    }),
  }),
  region: () => ({
    receipt: earlier(({ source, models }) => {
      source.case = [{ bytes: 1, file_sha256: "0".repeat(64), rows: 1, columns: 1, frames: 1 }];
      const [first] = models;
      const region = { model: "organ", version: "1", sha256: "0".repeat(64), site_thresholds: {} };
      Object.assign(first!, {
        region: { ...region, label: "liver", margin_mm: 2, when_empty: "negative" },
      });
      models.push({ ...first!, name: "organ", findings: [{ label: "liver", present: true }] });
      delete models[1]!.region;
    }),
  }),
  Labels: () => ({
    receipt: earlier(({ models: [model] }) => {
      model!.outputs.push({ ...model!.outputs[0]!, path: "x.dcm.cxr.sr.dcm" });
      model!.findings.push({ label: "cyst", present: false });
      const unit = { value: "cm2", scheme: "UCUM", meaning: "square centimeter" };
      model!.measurements.push({ name: "Area", label: "cyst", value: 0, unit });
    }),
  }),
  laterality: () => ({ receipt: earlier(), manifestOf: () => withSide({}) }),
  "FrameOfReferenceUID has": async () => ({
    receipt: earlier(),
    image: await imageWith({ ...PLACED, FrameOfReferenceUID: "1.2.03" }),
  }),
};

t.test("each fault is told of the receipts that show it, and of no others", async (t) => {
  const found: string[] = [];
  for (const [about, evidence] of Object.entries(CASES)) {
    const shown = await evidence();
    const texts = knownFaults(shown);
    t.match(texts, [new RegExp(`^${about} `)], about);
    t.equal(texts.length, 1, about);
    const { receipt } = shown;
    for (const version of ["0.7.0", "0.7.1", "0.10.0", "1.0.0"])
      t.strictSame(
        knownFaults({ ...shown, receipt: { ...receipt, radserve_version: version } }),
        [],
        version,
      );
    t.equal(
      knownFaults({ ...shown, receipt: { ...receipt, radserve_version: "0.4.0" } }).length,
      1,
    );
    found.push(...texts);
  }
  t.strictSame(knownFaults({ receipt: earlier() }), []);
  const lung = { value: "39607008", scheme: "SCT", meaning: "Lung" };
  const sided = { receipt: earlier(), manifestOf: () => withSide({ finding_site: lung }) };
  t.strictSame(knownFaults(sided), [], "the side of a site");
  const tissue = { receipt: earlier(), manifestOf: () => shipped("ct-tissue") };
  const hand = await imageWith({ Laterality: "R" });
  t.match(knownFaults({ ...tissue, image: hand }), [/^laterality /], "the image's side");
  t.strictSame(knownFaults({ ...tissue, image: await imageWith({}) }), []);
  t.strictSame(knownFaults({ receipt: earlier(), image: await imageWith({}) }), []);
  const right = await petWith("20260102090000+0100", "+0100");
  t.strictSame(knownFaults({ receipt: withSuv(), image: right }), [], "the same decay");
  const agreed = await imageWith({
    PixelSpacing: "0.5\\0.5",
    SequenceOfUltrasoundRegions: [REGION],
  });
  t.strictSame(knownFaults({ receipt: measured(), image: agreed }), [], "one scale");
  const placeless = await imageWith({
    SequenceOfUltrasoundRegions: [{ ...REGION, RegionLocationMinX0: undefined }],
  });
  t.match(knownFaults({ receipt: measured(), image: placeless }), [
    /without the places of its regions/,
  ]);
  const lacking = [
    { Units: "CNTS", CorrectedImage: "DECY\\RADL" },
    { Units: "GML", CorrectedImage: "ATTN" },
    { Units: "GML", DecayCorrection: "NONE" },
    { Units: "GML", RescaleSlope: undefined },
  ];
  for (const more of lacking) {
    const image = await petWith("20260102090000+0100", "+0100", more);
    t.match(knownFaults({ receipt: withSuv(), image }), [/^RescaleSlope is absent, or/]);
    t.strictSame(knownFaults({ receipt: earlier(), image }), [], "no SUV were computed");
  }
  const injectedLater = await petWith("", "+0100", {
    RadiopharmaceuticalInformationSequence: [
      {
        RadionuclideTotalDose: "350000000",
        RadionuclideHalfLife: "6600",
        RadiopharmaceuticalStartTime: "140000",
      },
    ],
  });
  t.match(knownFaults({ receipt: withSuv(), image: injectedLater }), [
    /RadiopharmaceuticalStartTime is too long before the scan, or later/,
  ]);
  const inverse = mixed(await imageWith({ PhotometricInterpretation: "MONOCHROME1" }));
  const invert = { monochrome1: "invert" as const };
  const window = { kind: "window" as const, center: 1, width: 2, function: "LINEAR" as const };
  const voi = { kind: "voi" as const, index: 0, if_absent: "full_range" as const };
  for (const [image, manifest, isTold] of [
    [inverse, valuesOf({ kind: "stored" }, invert), true],
    [inverse, valuesOf(voi, invert), true],
    [inverse, valuesOf({ kind: "stored" }, { monochrome1: "as_stored" }), false],
    [inverse, valuesOf(window, invert), false],
    [mixed(await imageWith({})), valuesOf({ kind: "stored" }, invert), false],
    [await imageWith({}), valuesOf({ kind: "full_range" }), false],
  ] as const) {
    const told = knownFaults({ receipt: earlier(), image, manifestOf: () => manifest });
    t.equal(told.length, isTold ? 1 : 0);
  }
  t.strictSame(found.sort(), KNOWN_FAULTS.map(({ text }) => text).sort(), "each has evidence here");
});

t.test("verify and explain tell them", { skip: needs(ADDON) }, async (t) => {
  const folder = t.testdir();
  const output = join(folder, "out");
  const state = join(folder, "state");
  for (const one of [output, state, auditPaths(state).folder]) mkdirSync(one);
  writeFileSync(auditPaths(state).namesKey, Buffer.alloc(32).toString("base64url"));
  const source = join(folder, "ct.dcm");
  writeFileSync(source, fileWith({ FrameOfReferenceUID: "" }));
  const command = (...words: string[]) => {
    const env = {
      ...process.env,
      RADSERVE_STATE_DIR: state,
      RADSERVE_KEYS_DIR: keysFolder,
    };
    return spawnSync(process.execPath, [MAIN, ...words], { encoding: "utf8", env });
  };
  t.equal(command("infer", source, output, "--outputs", "sc").status, 0);
  const file = join(output, "ct.dcm.json");
  const now = command("verify", file, "--input", source);
  t.equal(now.status, 0, now.stdout);
  const receipt = JSON.parse(readFileSync(file, "utf8")) as Receipt;
  const before = { ...receipt, radserve_version: "0.5.0", warnings: [NO_TRANSFORM] };
  await writeReceipt(output, "ct.dcm", before);
  const { status, stdout } = command("verify", file, "--input", source);
  t.equal(status, 1);
  t.match(stdout, /^known fault +Radserve 0\.5\.0 +PhotometricInterpretation YBR_RCT/m);
  t.match(stdout, /^known fault +Radserve 0\.5\.0 +FrameOfReferenceUID is empty in the source/m);
  t.match(stdout, /^cannot be replayed .* read in another way here$/m, "the source is the same");
  const without = command("verify", file, "--json").stdout;
  t.match(JSON.parse(without), {
    equal: false,
    checks: [{}, {}, {}, {}, {}, {}, { verdict: "known_fault" }],
  });
  t.notMatch(without, /FrameOfReferenceUID/, "the receipt alone does not show it");
  t.match(command("explain", file).stdout, /^ {2}known fault: PhotometricInterpretation YBR_RCT/m);
  t.match(JSON.parse(command("explain", file, "--json").stdout), [
    { known_faults: [/^Photometric/] },
  ]);
});
