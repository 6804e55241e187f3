/** Segmentations of tiles of a whole slide lie on the slide where the tiles lie. */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import type { Attributes as Read } from "../../../src/images/image.js";
import { infer } from "../../../src/inference/infer-image.js";
import { attributesOf, dicomFile, picture, type Attributes } from "../../support/dicom.js";
import { ADDON, commandsAre, needs, PYTHON, pythonHas } from "../../support/needs.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { radiograph } from "../../support/radiograph.js";
import { loadTestModel } from "../../support/test-models.js";
import { objectErrors } from "../../support/validators.js";

const TILE = { rows: 4, columns: 5, samples: 3, bitsAllocated: 8, bitsStored: 8 };
const TILES = 6;

/**
 * A slide of 7 x 12 pixels in tiles of 4 x 5, three across and two down, turned as scanners turn
 * it.
 */
function slide(more: Attributes = {}, frames = TILES): Buffer {
  const tiles = Array.from({ length: frames }, (_, i) => picture(TILE, i + 1));
  return dicomFile({
    attributes: attributesOf(tiles[0]!, {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.77.1.6",
      SOPInstanceUID: "1.2.3.4.5",
      StudyInstanceUID: "1.2.3",
      SeriesInstanceUID: "1.2.3.4",
      FrameOfReferenceUID: "1.2.5",
      Modality: "SM",
      ImageType: "DERIVED\\PRIMARY\\VOLUME\\RESAMPLED",
      NumberOfFrames: String(frames),
      DimensionOrganizationType: "TILED_FULL",
      TotalPixelMatrixRows: 7,
      TotalPixelMatrixColumns: 12,
      TotalPixelMatrixFocalPlanes: 1,
      TotalPixelMatrixOriginSequence: [
        { XOffsetInSlideCoordinateSystem: "20", YOffsetInSlideCoordinateSystem: "40" },
      ],
      ImageOrientationSlide: "0\\-1\\0\\-1\\0\\0",
      SharedFunctionalGroupsSequence: [
        { PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.25", SliceThickness: "0.001" }] },
      ],
      ...more,
    }),
    pixels: Buffer.concat(tiles.map(({ data }) => data)),
  });
}

/**
 * Row and column in the matrix, and x and y on the slide: rows go towards -y and columns towards
 * -x.
 */
const PLACES = [
  [1, 1, 20, 40],
  [1, 6, 20, 38.75],
  [1, 11, 20, 37.5],
  [5, 1, 18, 40],
  [5, 6, 18, 38.75],
  [5, 11, 18, 37.5],
];

const positionsOf = (seg: Read) =>
  seg.sequence("PerFrameFunctionalGroupsSequence")!.map((groups) => {
    const [position] = groups.sequence("PlanePositionSlideSequence") ?? [];
    return [
      position?.number("RowPositionInTotalImagePixelMatrix"),
      position?.number("ColumnPositionInTotalImagePixelMatrix"),
      position?.number("XOffsetInSlideCoordinateSystem"),
      position?.number("YOffsetInSlideCoordinateSystem"),
    ];
  });
const dimensionsOf = (seg: Read) =>
  seg
    .sequence("PerFrameFunctionalGroupsSequence")!
    .map((groups) => groups.sequence("FrameContentSequence")![0]!.numbers("DimensionIndexValues"));
const pointersOf = (seg: Read) =>
  seg.sequence("DimensionIndexSequence")!.map((item) => item.string("DimensionDescriptionLabel"));

t.test("a segmentation of slide tiles", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "slide");
  const model = await loadTestModel(engine, folder, "overlapping");
  const detector = await loadTestModel(engine, folder, "detector");
  let count = 0;
  const run = async (source: Uint8Array, entry = model, kind = "seg") => {
    const inputPath = join(folder, `source-${++count}`);
    writeFileSync(inputPath, source);
    const task = {
      requestId: "test",
      inputPath,
      outputFolder: join(folder, `out-${count}`),
      cancelId: 1,
    };
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      { ...task, priority: "routine", roots },
      { engine, models: [entry] },
    );
    const paths = answer.models[0]!.outputs.map(({ path }) => path);
    const path = paths.find((each) => each.endsWith(`.${kind}.dcm`))!;
    const { warnings } = answer.models[0]!;
    return { path, inputPath, warnings, seg: openFile(readFileSync(path)).attributes };
  };
  const isValid = (path: string) =>
    commandsAre("dciodvfy") !== false || objectErrors(path).length === 0;

  await t.test("boxes in tiles say that they count within their tile", async (t) => {
    const within = (item: Read): Read[] => [
      item,
      ...(item.sequence("ContentSequence") ?? []).flatMap(within),
    ];
    const origins = async (source: Uint8Array) => {
      const { seg: report, path } = await run(source, detector, "sr");
      if (commandsAre("dciodvfy") === false) t.strictSame(objectErrors(path), []);
      const regions = within(report).filter((item) => item.string("ValueType") === "SCOORD");
      return regions.map((item) => item.string("PixelOriginInterpretation"));
    };
    t.strictSame(await origins(slide()), Array(TILES).fill("FRAME"));
    t.strictSame(await origins(radiograph()), [undefined], "an image that is no tile");
  });

  await t.test("places that TILED_FULL implies are written for each frame", async (t) => {
    const { seg, path, inputPath } = await run(slide());
    t.strictSame(positionsOf(seg), [...PLACES, ...PLACES]);
    t.strictSame(pointersOf(seg), ["Segment", "Row", "Column"]);
    const ranks = [1, 2].flatMap((row) => [1, 2, 3].map((column) => [row, column]));
    t.strictSame(
      dimensionsOf(seg),
      [1, 2].flatMap((segment) => ranks.map((rank) => [segment, ...rank])),
    );
    t.equal(seg.string("DimensionOrganizationType"), "TILED_SPARSE");
    t.equal(seg.string("FrameOfReferenceUID"), "1.2.5");
    t.strictSame(
      [seg.number("TotalPixelMatrixRows"), seg.number("TotalPixelMatrixColumns")],
      [7, 12],
    );
    t.strictSame(seg.numbers("ImageOrientationSlide"), [0, -1, 0, -1, 0, 0]);
    const [origin] = seg.sequence("TotalPixelMatrixOriginSequence")!;
    t.equal(origin!.number("XOffsetInSlideCoordinateSystem"), 20);
    const [shared] = seg.sequence("SharedFunctionalGroupsSequence")!;
    t.strictSame(
      shared!.sequence("PixelMeasuresSequence")![0]!.numbers("PixelSpacing"),
      [0.5, 0.25],
    );
    if (commandsAre("dciodvfy") === false) t.strictSame(objectErrors(path), []);
    t.test("as highdicom reads it", { skip: pythonHas("pydicom", "highdicom") }, (t) => {
      const parameters = ["test/conformance/slide.py", path, inputPath];
      t.equal(execFileSync(PYTHON, parameters, { encoding: "utf8" }), "");
      t.end();
    });
  });

  await t.test("places that the source gives are taken over", async (t) => {
    const given = [PLACES[4]!, PLACES[0]!];
    const { seg, path } = await run(
      slide(
        {
          DimensionOrganizationType: "TILED_SPARSE",
          PerFrameFunctionalGroupsSequence: given.map(([row, column, x, y]) => ({
            PlanePositionSlideSequence: [
              {
                RowPositionInTotalImagePixelMatrix: row,
                ColumnPositionInTotalImagePixelMatrix: column,
                XOffsetInSlideCoordinateSystem: String(x),
                YOffsetInSlideCoordinateSystem: String(y),
                ZOffsetInSlideCoordinateSystem: "3",
              },
            ],
          })),
        },
        2,
      ),
    );
    t.strictSame(positionsOf(seg), [...given, ...given]);
    t.strictSame(dimensionsOf(seg), [
      [1, 2, 2],
      [1, 1, 1],
      [2, 2, 2],
      [2, 1, 1],
    ]);
    t.ok(isValid(path));
  });

  const placed = ([row, column, x, y]: (typeof PLACES)[number]): Attributes => ({
    PlanePositionSlideSequence: [
      {
        RowPositionInTotalImagePixelMatrix: row,
        ColumnPositionInTotalImagePixelMatrix: column,
        XOffsetInSlideCoordinateSystem: String(x),
        YOffsetInSlideCoordinateSystem: String(y),
      },
    ],
  });
  const labelsOf = (seg: Read) =>
    seg.sequence("SegmentSequence")!.map((item) => item.string("SegmentLabel"));
  const segmentOfFrames = (seg: Read) =>
    seg
      .sequence("PerFrameFunctionalGroupsSequence")!
      .map((groups) => groups.sequence("SegmentIdentificationSequence")![0]!)
      .map((item) => item.number("ReferencedSegmentNumber"));

  await t.test("tiles of several optical paths are of segments of their own", async (t) => {
    const named = [{ OpticalPathIdentifier: "DAPI" }, { OpticalPathIdentifier: "CY5" }];
    const identified = (path: number): Attributes => ({
      OpticalPathIdentificationSequence: [named[path]!],
    });
    const sparse = [0, 1].flatMap((path) =>
      PLACES.map((tile) => ({ ...placed(tile), ...identified(path) })),
    );
    const cases: [string, Attributes, string[]][] = [
      ["by their number", { NumberOfOpticalPaths: 2 }, ["1", "2"]],
      ["by their names", { OpticalPathSequence: named }, ["DAPI", "CY5"]],
      [
        "by what each frame says",
        {
          DimensionOrganizationType: "TILED_SPARSE",
          OpticalPathSequence: named,
          PerFrameFunctionalGroupsSequence: sparse,
        },
        ["DAPI", "CY5"],
      ],
    ];
    for (const [what, more, paths] of cases) {
      const { seg, path, warnings } = await run(slide(more, 2 * TILES));
      t.strictSame(
        labelsOf(seg),
        ["bright", "dark"].flatMap((label) =>
          paths.map((name) => `${label} (OpticalPathIdentifier ${name})`),
        ),
        what,
      );
      t.strictSame(positionsOf(seg), Array(4).fill(PLACES).flat(), what);
      t.strictSame(
        segmentOfFrames(seg),
        [1, 2, 3, 4].flatMap((n) => Array<number>(TILES).fill(n)),
        what,
      );
      t.strictSame(pointersOf(seg), ["Segment", "Row", "Column"], what);
      t.strictSame(warnings, [], what);
      t.ok(isValid(path), what);
    }
  });

  await t.test("tiles of one place that nothing tells apart have none", async (t) => {
    const twice = [PLACES[0]!, PLACES[0]!].map(placed);
    const more = {
      DimensionOrganizationType: "TILED_SPARSE",
      PerFrameFunctionalGroupsSequence: twice,
    };
    const { seg, path, warnings } = await run(slide(more, 2));
    t.strictSame(positionsOf(seg).flat(), Array(16).fill(undefined));
    t.match(warnings, [{ code: "place_left_out", message: /OpticalPathIdentifier/ }]);
    t.ok(isValid(path));
  });

  await t.test("a frame of reference that is no UID leaves places out, and is told", async (t) => {
    const { seg, warnings } = await run(slide({ FrameOfReferenceUID: "1.2.A" }));
    t.notOk(seg.has("TotalPixelMatrixRows"));
    t.match(warnings, [{ code: "place_left_out", message: /FrameOfReferenceUID is not a UID/ }]);
  });

  await t.test("a part of a concatenation goes on where the part before it ends", async (t) => {
    const part = {
      ConcatenationUID: "1.7",
      InConcatenationNumber: 2,
      InConcatenationTotalNumber: 2,
      ConcatenationFrameOffsetNumber: 4,
    };
    const { seg } = await run(slide(part, 2));
    t.strictSame(positionsOf(seg), [...PLACES.slice(4), ...PLACES.slice(4)]);
  });

  await t.test("what does not follow from the source is not made up", async (t) => {
    const cases: [string, Attributes, number?][] = [
      ["no origin", { TotalPixelMatrixOriginSequence: undefined }],
      ["tiles that are missing", {}, 5],
      ["several focal planes", { TotalPixelMatrixFocalPlanes: 2 }, 12],
      ["no frame of reference", { FrameOfReferenceUID: undefined }],
      ["neither places nor TILED_FULL", { DimensionOrganizationType: undefined }],
    ];
    for (const [name, more, frames] of cases) {
      const { seg, path } = await run(slide(more, frames));
      t.notOk(
        seg
          .sequence("PerFrameFunctionalGroupsSequence")!
          .some((groups) => groups.has("PlanePositionSlideSequence")),
        name,
      );
      t.notOk(seg.has("TotalPixelMatrixRows"), name);
      t.ok(isValid(path), name);
    }
  });
});
