/**
 * What says that a frame is not one picture, where it stands: in one slice of many, in one frame of
 * many, and in its private twin. Each cell is told by name, or the attribute has no such place.
 */
import t, { type Test } from "tap";
import { RadserveError } from "../../../src/base/errors.js";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import { Typed, type Attributes } from "../../support/dicom.js";
import { folderOf, multiFrame, readFolder, slice } from "../../support/series.js";

interface Row {
  /** The code of the warning, or the reason of the refusal. */
  told: readonly string[];
  /** In the data set of one slice. */
  slice?: Attributes;
  /** In the functional groups of one frame. */
  frame?: Attributes;
  /** As makers say it, in the data set of one slice. */
  twin?: Attributes;
}

const MIXED = ["mixed_acquisition"];
const FD = (value: number) => new Typed("FD", [value]);
const block = (creator: string, group: string, element: string, value: Typed): Attributes => ({
  [`${group}0010`]: new Typed("LO", creator),
  [`${group}10${element}`]: value,
});
const types = (more: Attributes): Attributes => ({ CTImageFrameTypeSequence: [more] });
const GRID = "ORIGINAL\\PRIMARY\\M\\MOSAIC";

const ROWS: Readonly<Record<string, Row>> = {
  "ImageType MOSAIC": {
    told: ["mosaic"],
    slice: { ImageType: GRID },
    frame: types({ FrameType: GRID }),
    twin: block("SIEMENS MR SDI 02", "0021", "75", new Typed("CS", GRID)),
  },
  NumberOfImagesInMosaic: {
    told: ["mosaic"],
    twin: block("SIEMENS MR HEADER", "0019", "0a", new Typed("US", [36])),
  },
  "ImageType VFRAME": {
    told: ["mosaic"],
    slice: { ImageType: "ORIGINAL\\PRIMARY\\M\\VFRAME" },
    frame: types({ FrameType: "ORIGINAL\\PRIMARY\\M\\VFRAME" }),
    twin: block("Image Private Header", "0065", "50", new Typed("DS", "16")),
  },
  "ImageType of a projection": {
    told: ["derived_values"],
    slice: { ImageType: "DERIVED\\SECONDARY\\AXIAL\\MIP" },
    frame: types({ FrameType: "DERIVED\\SECONDARY\\AXIAL\\MIP" }),
  },
  "ImageType of a mean": {
    told: ["derived_values"],
    slice: { ImageType: "DERIVED\\SECONDARY\\REFORMATTED\\AVERAGE" },
    frame: types({ FrameType: "DERIVED\\SECONDARY\\REFORMATTED\\AVERAGE" }),
  },
  "ImageType of an evaluation": {
    told: ["derived_values", "mixed_units"],
    slice: { ImageType: "DERIVED\\SECONDARY\\AXIAL\\CASC" },
    frame: types({ FrameType: "DERIVED\\SECONDARY\\AXIAL\\CASC" }),
  },
  ImagesInAcquisition: {
    told: ["fewer_images"],
    slice: { ImagesInAcquisition: "9" },
    twin: block("GEMS_SERS_01", "0025", "07", new Typed("SL", [9])),
  },
  NumberOfSlices: {
    told: ["fewer_images"],
    slice: { NumberOfSlices: 9 },
    twin: block("Philips Imaging DD 001", "2001", "18", new Typed("SL", [9])),
  },
  "ImageType of a map": {
    told: ["derived_values", "mixed_units"],
    slice: { ImageType: "DERIVED\\SECONDARY\\AXIAL\\CBF" },
    frame: types({ FrameType: "DERIVED\\SECONDARY\\AXIAL\\CBF" }),
  },
  VolumeBasedCalculationTechnique: {
    told: ["derived_values"],
    slice: { VolumeBasedCalculationTechnique: "MAX_IP" },
    frame: types({ VolumeBasedCalculationTechnique: "MAX_IP" }),
  },
  DerivationDescription: {
    told: ["derived_values"],
    slice: { DerivationDescription: "MIP of 20 mm" },
    frame: { DerivationImageSequence: [{ DerivationDescription: "MIP of 20 mm" }] },
  },
  SliceThickness: {
    told: MIXED,
    slice: { SliceThickness: "20" },
    frame: { PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.8", SliceThickness: "20" }] },
  },
  TriggerTime: { told: MIXED, slice: { TriggerTime: "500" } },
  NominalPercentageOfCardiacPhase: {
    told: MIXED,
    slice: { NominalPercentageOfCardiacPhase: FD(75) },
    frame: { CardiacSynchronizationSequence: [{ NominalPercentageOfCardiacPhase: FD(75) }] },
  },
  DiffusionBValue: {
    told: MIXED,
    slice: { DiffusionBValue: FD(1000) },
    frame: { MRDiffusionSequence: [{ DiffusionBValue: FD(1000) }] },
    twin: block("SIEMENS MR HEADER", "0019", "0c", new Typed("IS", "1000")),
  },
  "DiffusionBValue of GE": {
    told: MIXED,
    twin: block("GEMS_PARM_01", "0043", "39", new Typed("IS", "1000")),
  },
  "DiffusionBValue of Philips": {
    told: MIXED,
    twin: block("Philips Imaging DD 001", "2001", "03", new Typed("FL", [1000])),
  },
  "slice times of a mosaic": {
    told: ["mosaic"],
    twin: block("SIEMENS MR HEADER", "0019", "29", new Typed("FD", [0, 50, 100])),
  },
};

/** What the others have, so that one of them differs. */
const USUAL: Attributes = {
  TriggerTime: "100",
  NominalPercentageOfCardiacPhase: FD(35),
  DiffusionBValue: FD(0),
};

async function endings(read: () => Promise<Image>): Promise<readonly unknown[]> {
  try {
    const image = await read();
    for (let frame = 0; frame < image.frameCount; frame++) image.interpretation(frame);
    volumeOf(image);
    return image.warnings.map(({ code }) => code);
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return [error.details?.["reason"]];
  }
}

/** One of four slices has more than the others. */
const ofSlices = (t: Test, more: Attributes) => () =>
  readFolder(
    t,
    folderOf(
      t,
      [0, 2, 4, 6].map((z) => slice({ z, attributes: { ...USUAL, ...(z === 4 ? more : {}) } })),
    ),
  );

const ofFrames = (more: Attributes) => () =>
  readImage(
    multiFrame([0, 2, 4, 6], {
      ...USUAL,
      PerFrameFunctionalGroupsSequence: [0, 2, 4, 6].map((z) => ({
        PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${z}` }],
        ...(z === 4 ? more : {}),
      })),
    }),
  );

t.test("one slice, one frame, the private twin", async (t) => {
  const told = async (name: string, expected: readonly string[], read: () => Promise<Image>) => {
    const found = await endings(read);
    t.ok(
      expected.some((code) => found.includes(code)),
      `${name}: ${found.join(", ")}`,
    );
  };
  for (const [name, row] of Object.entries(ROWS)) {
    if (row.slice) await told(`${name} in one slice`, row.told, ofSlices(t, row.slice));
    if (row.frame) await told(`${name} in one frame`, row.told, ofFrames(row.frame));
    if (row.twin) await told(`${name}, private`, row.told, ofSlices(t, row.twin));
  }
  t.strictSame(await endings(ofSlices(t, {})), [], "slices that are alike");
  t.strictSame(await endings(ofFrames({})), [], "frames that are alike");
});
