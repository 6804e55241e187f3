/**
 * Frames that are not one picture of one place: grids of slices, and frames whose places an
 * attribute other than their position says.
 */
import { existsSync, readFileSync } from "node:fs";
import t from "tap";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  dicomFile,
  IMPLICIT,
  imageAttributes,
  Typed,
  type Attributes,
} from "../../support/dicom.js";
import { failure, warned } from "../../support/expect.js";
import { folderOf, readFolder } from "../../support/series.js";

const CASES = "../shared/cases/2026-11-28/inputs";
const caseFile = (name: string) => readImage(readFileSync(`${CASES}/${name}`));
const skip = existsSync(CASES) ? false : `${CASES} is not there`;

const PLANE: Attributes = {
  ImagePositionPatient: "0\\0\\0",
  ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
};
const MR: Attributes = {
  ...PLANE,
  Modality: "MR",
  SOPClassUID: "1.2.840.10008.5.1.4.1.1.4",
  ImageType: "ORIGINAL\\PRIMARY\\M\\ND",
  PixelSpacing: "3\\3",
  StudyInstanceUID: "1.2.3",
  SeriesInstanceUID: "1.2.3.4",
};
const file = (attributes: Attributes, transferSyntax?: string) => {
  const frames = Number(attributes["NumberOfFrames"] ?? 1);
  return dicomFile({
    attributes: imageAttributes({ ...MR, ...attributes }),
    pixels: Buffer.alloc(16 * frames, 7),
    ...(transferSyntax === undefined ? {} : { transferSyntax }),
  });
};
const read = (attributes: Attributes, transferSyntax?: string) =>
  readImage(file(attributes, transferSyntax));

/** A block of private elements. */
const block = (creator: string, group: string, elements: Attributes, at = "10"): Attributes => ({
  [`${group}00${at}`]: new Typed("LO", creator),
  ...Object.fromEntries(
    Object.entries(elements).map(([element, value]) => [`${group}${at}${element}`, value]),
  ),
});

/** One tag of a CSA header with a text. */
function csa(name: string, text: string): Uint8Array {
  const tag = Buffer.alloc(100 + 12);
  tag.write(name, 0, "latin1");
  tag.writeUInt32LE(6, 76);
  tag.writeUInt32LE(text.length, 84 + 4);
  tag.write(text, 100, "latin1");
  return Buffer.concat([Buffer.from("SV10\x04\x03\x02\x01"), Buffer.alloc(8), tag]);
}

const SIEMENS_TYPES = new Typed("CS", "ORIGINAL\\PRIMARY\\M\\ND\\MOSAIC");

const isMosaic = (image: Image) =>
  warned(image).includes("mosaic") &&
  image.plane(0) === undefined &&
  image.spacing(0)?.patient === false;

t.test("a grid of slices has no place, whoever says that it is one", async (t) => {
  const siemens = "SIEMENS MR HEADER";
  const cases: [string, Attributes][] = [
    ["ImageType MOSAIC", { ImageType: "ORIGINAL\\PRIMARY\\M\\ND\\MOSAIC" }],
    ["in one value with others", { ImageType: "DERIVED\\PRIMARY\\FMRI_MOSAIC" }],
    ["ImageType VFRAME", { ImageType: "ORIGINAL\\PRIMARY\\M\\VFRAME" }],
    ["FrameType at the top", { FrameType: "ORIGINAL\\PRIMARY\\FMRI\\MOSAIC" }],
    ["a number of images", block(siemens, "0019", { "0a": new Typed("US", 36) })],
    [
      "a number of images, in another block",
      { ...block("OTHER", "0019", {}), ...block(siemens, "0019", { "0a": [36] }, "11") },
    ],
    ["times of slices", block(siemens, "0019", { "29": new Typed("FD", [0, 20, 40]) })],
    [
      "a number of slices of United Imaging",
      block("Image Private Header", "0065", { "50": new Typed("DS", "16") }),
    ],
    ["a private type", block("SIEMENS MR SDI 02", "0021", { "75": SIEMENS_TYPES })],
    [
      "CSA",
      block("SIEMENS CSA HEADER", "0029", {
        "10": new Typed("OB", csa("NumberOfImagesInMosaic", "36      ")),
      }),
    ],
    [
      "a number of slices in the second block of its creator",
      {
        "00190010": new Typed("LO", siemens),
        ...block(siemens, "0019", { "0a": new Typed("US", [36]) }, "11"),
      },
    ],
    ["a frame wider than a bore", { PixelSpacing: "3\\3", Rows: 256, Columns: 256 }],
  ];
  for (const [name, attributes] of cases) {
    const side = Number(attributes["Rows"] ?? 4);
    const make = (more: Attributes, transferSyntax?: string) =>
      readImage(
        dicomFile({
          attributes: imageAttributes({ ...MR, ...more }),
          pixels: Buffer.alloc(side * side, 7),
          ...(transferSyntax && { transferSyntax }),
        }),
      );
    const explicit = { ...attributes };
    if (Array.isArray(explicit["0019110a"])) explicit["0019110a"] = new Typed("US", [36]);
    t.ok(isMosaic(await make(explicit)), name);
    t.ok(isMosaic(await make(explicit, IMPLICIT)), `${name}, without VRs`);
  }
  const others: [string, Attributes][] = [
    ["another type", {}],
    ["one image", block(siemens, "0019", { "0a": new Typed("US", 1) })],
    ["one time", block(siemens, "0019", { "29": new Typed("FD", [20]) })],
    [
      "of another creator",
      block("SOMEBODY", "0065", { "50": new Typed("DS", "16"), "75": SIEMENS_TYPES }),
    ],
    [
      "CSA without a mosaic",
      block("SIEMENS CSA HEADER", "0029", {
        "10": new Typed("OB", csa("NumberOfImagesInMosaic", "")),
      }),
    ],
    [
      "CSA that is cut",
      block("SIEMENS CSA HEADER", "0029", {
        "10": new Typed("OB", csa("NumberOfImagesInMosaic", "36").subarray(0, 90)),
      }),
    ],
  ];
  for (const [name, attributes] of others)
    t.strictSame(warned(await read(attributes)), [], `none: ${name}`);
});

t.test("a grid among others, and in functional groups", async (t) => {
  const places = [0, 3].map((z) => `0\\0\\${z}`);
  const groups = (own: Attributes[], shared: Attributes = {}): Attributes => ({
    NumberOfFrames: "2",
    ImagePositionPatient: undefined,
    ImageOrientationPatient: undefined,
    PixelSpacing: undefined,
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.4.1",
    SharedFunctionalGroupsSequence: [
      {
        PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
        PixelMeasuresSequence: [{ PixelSpacing: "3\\3" }],
        ...shared,
      },
    ],
    PerFrameFunctionalGroupsSequence: own.map((item, i) => ({
      PlanePositionSequence: [{ ImagePositionPatient: places[i] ?? "" }],
      ...item,
    })),
  });
  const typed = (type: string) => ({ MRImageFrameTypeSequence: [{ FrameType: type }] });
  const one = await read(
    groups([typed("ORIGINAL\\PRIMARY\\M"), typed("ORIGINAL\\PRIMARY\\MOSAIC")]),
  );
  t.strictSame(
    [0, 1].map((frame) => [one.plane(frame) !== undefined, one.spacing(frame)?.patient]),
    [
      [true, true],
      [false, false],
    ],
    "one frame of two",
  );
  t.strictSame(warned(one), ["mosaic"]);
  t.ok(isMosaic(await read(groups([{}, {}], typed("ORIGINAL\\PRIMARY\\FMRI\\MOSAIC")))), "shared");
  const own = block("SIEMENS MR SDI 02", "0021", {
    fe: new Typed("SQ", [block("SIEMENS MR SDI 02", "0021", { "75": SIEMENS_TYPES })]),
  });
  t.ok(isMosaic(await read(groups([own, own]))), "Siemens' own group of a frame");
  t.ok(isMosaic(await read(groups([own, own]), IMPLICIT)), "Siemens' own group, without VRs");
  const uih = "Image Private Header";
  const counts: [string, Attributes][] = [
    ["a number of images", block("SIEMENS MR HEADER", "0019", { "0a": new Typed("US", [36]) })],
    ["times of slices", block("SIEMENS MR HEADER", "0019", { "29": new Typed("FD", [0, 20]) })],
    ["a number of slices of United Imaging", block(uih, "0065", { "50": new Typed("DS", "16") })],
    [
      "items of slices of United Imaging",
      block(uih, "0065", { "51": new Typed("SQ", [{ Rows: 4 }, { Rows: 4 }]) }),
    ],
    [
      "CSA",
      block("SIEMENS CSA HEADER", "0029", {
        "10": new Typed("OB", csa("NumberOfImagesInMosaic", "36      ")),
      }),
    ],
    ...["SIEMENS MR SDI 03", "SIEMENS MR SDR 01", "SIEMENS MR SDS 02"].map(
      (creator): [string, Attributes] => [
        creator,
        block(creator, "0021", {
          fe: new Typed("SQ", [block(creator, "0021", { "75": SIEMENS_TYPES })]),
        }),
      ],
    ),
  ];
  for (const [name, attributes] of counts) {
    t.ok(isMosaic(await read(groups([{}, {}], attributes))), `${name}, shared`);
    t.ok(isMosaic(await read(attributes)), `${name}, at the top`);
    const last = await read(groups([{}, attributes]));
    t.strictSame(
      [0, 1].map((frame) => last.plane(frame) !== undefined),
      [true, false],
      `${name}, of one frame of two`,
    );
  }
  const slices = [0, 1].map((i) =>
    file({
      ImagePositionPatient: places[i]!,
      SOPInstanceUID: `1.2.3.${i}`,
      ...(i === 1 ? { ImageType: "ORIGINAL\\PRIMARY\\VFRAME" } : {}),
    }),
  );
  t.match(await failure(readFolder(t, folderOf(t, slices))), {
    code: "series_invalid",
    details: { reason: "mosaic" },
  });
});

t.test("slices of nuclear medicine lie by SliceVector, whatever the type", async (t) => {
  const [SLICE, TIME, ANGLE] = [0x00540080, 0x00540100, 0x00540090];
  const nuclear = (more: Attributes = {}) =>
    read({
      Modality: "NM",
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.20",
      ImageType: "DERIVED\\SECONDARY",
      NumberOfFrames: "4",
      SpacingBetweenSlices: "2",
      SliceVector: new Typed("US", [1, 2, 3, 4]),
      FrameIncrementPointer: [SLICE],
      ...more,
    });
  const places = (image: Image) => [0, 1, 2, 3].map((frame) => image.plane(frame)?.position[2]);
  const placed: [string, Attributes, number[]][] = [
    ["as the case", {}, [0, 2, 4, 6]],
    ["without a pointer", { FrameIncrementPointer: undefined }, [0, 2, 4, 6]],
    ["downwards", { SpacingBetweenSlices: "-2" }, [0, -2, -4, -6]],
    ["no type", { ImageType: undefined }, [0, 2, 4, 6]],
    ["PET", { Modality: "PT", SOPClassUID: "1.2.840.10008.5.1.4.1.1.128" }, [0, 2, 4, 6]],
    [
      "by its detector",
      {
        ImagePositionPatient: undefined,
        ImageOrientationPatient: undefined,
        DetectorInformationSequence: [{ ...PLANE, ImagePositionPatient: "0\\0\\10" }],
      },
      [10, 12, 14, 16],
    ],
    [
      "two times",
      { FrameIncrementPointer: [SLICE, TIME], SliceVector: new Typed("US", [1, 2, 1, 2]) },
      [0, 2, 0, 2],
    ],
  ];
  for (const [name, more, expected] of placed) {
    const image = await nuclear(more);
    t.strictSame(places(image), expected, name);
    t.strictSame(warned(image), [], name);
  }
  t.match(volumeOf(await nuclear()).geometry, { sliceSpacing: 2 });
  const nowhere: [string, Attributes, string[]][] = [
    ["no distance", { SpacingBetweenSlices: undefined }, ["missing_geometry"]],
    [
      "the thickness is none",
      { SliceThickness: "2", SpacingBetweenSlices: "" },
      ["missing_geometry"],
    ],
    ["no numbers", { SliceVector: undefined }, ["missing_geometry"]],
    ["empty numbers", { SliceVector: new Typed("US", "") }, ["missing_geometry"]],
    ["too few", { SliceVector: new Typed("US", [1, 2]) }, ["missing_geometry"]],
    ["one slice four times", { SliceVector: new Typed("US", [1, 1, 1, 1]) }, ["missing_geometry"]],
    ["projections", { FrameIncrementPointer: [ANGLE, SLICE] }, []],
    ["a planar image", { ImageType: "ORIGINAL\\PRIMARY\\DYNAMIC\\EMISSION" }, []],
    ["projections of a tomography", { ImageType: "ORIGINAL\\PRIMARY\\TOMO\\EMISSION" }, []],
    ["angles alone", { SliceVector: undefined, FrameIncrementPointer: [ANGLE] }, []],
    ...["STATIC", "DYNAMIC", "GATED", "WHOLE BODY", "TOMO"].map(
      (kind): [string, Attributes, string[]] => [
        `${kind} without numbers`,
        {
          ImageType: `ORIGINAL\\PRIMARY\\${kind}\\EMISSION`,
          SliceVector: undefined,
          FrameIncrementPointer: undefined,
        },
        [],
      ],
    ),
  ];
  for (const [name, more, codes] of nowhere) {
    const image = await nuclear(more);
    t.strictSame(places(image), [undefined, undefined, undefined, undefined], name);
    t.strictSame(warned(image), codes, name);
  }
  const items = [{}, {}, {}, {}];
  const grouped = await nuclear({
    SliceVector: undefined,
    FrameIncrementPointer: undefined,
    PerFrameFunctionalGroupsSequence: items.map(() => ({ FrameContentSequence: [{}] })),
  });
  t.strictSame(places(grouped), [undefined, undefined, undefined, undefined], "items say nothing");
});

t.test("the cases", { skip }, async (t) => {
  for (const name of [
    "uih-vframe-grid/uih_vframe.dcm",
    "xa30-mosaic-in-private-imagetypetext/xa30_classic_imagetypetext.dcm",
  ]) {
    const image = await caseFile(name);
    t.strictSame(warned(image), ["mosaic"], name);
    t.strictSame([image.plane(0), image.spacing(0)?.patient], [undefined, false], name);
  }
  const nuclear = await caseFile("nm-slicevector-all-in-one-plane/nm_slicevector.dcm");
  t.strictSame(
    Array.from({ length: 6 }, (_, frame) => nuclear.plane(frame)?.position[2]),
    [0, 2, 4, 6, 8, 10],
  );
  t.match(await failure(caseFile("tiff-dng-thumbnail/dng-like.tif")), {
    code: "unsupported_format",
    message: /camera raw/,
  });
});
