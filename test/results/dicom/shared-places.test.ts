/** Frames that share a place: which belong together, and what SEG and RTSTRUCT make of them. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import type { Attributes as Read } from "../../../src/images/image.js";
import { infer } from "../../../src/inference/infer-image.js";
import { phasesOf } from "../../../src/images/dicom/shared-places.js";
import { readImage } from "../../../src/images/read-image.js";
import { dicomFile, imageAttributes, type Attributes } from "../../support/dicom.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { loadTestModel } from "../../support/test-models.js";
import { objectErrors } from "../../support/validators.js";

const SPACING = 1;

interface Frame {
  z: number;
  x?: number;
  group?: Attributes;
  turned?: boolean;
}

/** An enhanced MR image of frames of 8 x 8 pixels. */
function fileOf(
  frames: readonly Frame[],
  more: Attributes = {},
  values: (frame: number, pixel: number) => number = () => 0,
): Uint8Array {
  const groups = frames.map(({ z, x = 0, group = {}, turned = false }) => ({
    PlanePositionSequence: [{ ImagePositionPatient: `${x}\\0\\${z}` }],
    PlaneOrientationSequence: [
      { ImageOrientationPatient: turned ? "0\\1\\0\\1\\0\\0" : "1\\0\\0\\0\\1\\0" },
    ],
    PixelMeasuresSequence: [{ PixelSpacing: `${SPACING}\\${SPACING}` }],
    ...group,
  }));
  return dicomFile({
    attributes: imageAttributes({
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.4.1",
      Modality: "MR",
      Rows: 8,
      Columns: 8,
      NumberOfFrames: frames.length,
      PerFrameFunctionalGroupsSequence: groups,
      ...more,
    }),
    pixels: new Uint8Array(
      Uint16Array.from({ length: frames.length * 64 }, (_, i) => values(i >> 6, i & 63)).buffer,
    ),
  });
}

async function parted(frames: readonly Frame[]): Promise<unknown> {
  const image = await readImage(fileOf(frames));
  const found = phasesOf(image, image.attributes!);
  return typeof found === "string" ? "unknown" : found.map(({ name, frames }) => [name, ...frames]);
}

const time = (index: number): Attributes => ({
  FrameContentSequence: [{ TemporalPositionIndex: index }],
});
const echo = (value: number): Attributes => ({ MREchoSequence: [{ EffectiveEchoTime: value }] });
const both = (index: number, value: number) => ({ ...time(index), ...echo(value) });

t.test("which frames belong together", async (t) => {
  const cases: Record<string, [Frame[], unknown]> = {
    "a stack": [[{ z: 0 }, { z: 1 }, { z: 2 }], [["", 0, 1, 2]]],
    "a thin stack": [[{ z: 0 }, { z: 0.2 }, { z: 0.4 }], [["", 0, 1, 2]]],
    "two times": [
      [
        { z: 0, group: time(2) },
        { z: 0, group: time(1) },
        { z: 3, group: time(2) },
        { z: 3, group: time(1) },
      ],
      [
        ["TemporalPositionIndex 1", 1, 3],
        ["TemporalPositionIndex 2", 0, 2],
      ],
    ],
    "times by number, not by text": [
      [10, 9, 1].map((index) => ({ z: 0, group: time(index) })),
      [
        ["TemporalPositionIndex 1", 2],
        ["TemporalPositionIndex 9", 1],
        ["TemporalPositionIndex 10", 0],
      ],
    ],
    "two times, two echoes": [
      [both(1, 5), both(1, 9), both(2, 5), both(2, 9)].flatMap((group) =>
        [0, 3].map((z) => ({ z, group })),
      ),
      [
        ["TemporalPositionIndex 1, EffectiveEchoTime 5", 0, 1],
        ["TemporalPositionIndex 1, EffectiveEchoTime 9", 2, 3],
        ["TemporalPositionIndex 2, EffectiveEchoTime 5", 4, 5],
        ["TemporalPositionIndex 2, EffectiveEchoTime 9", 6, 7],
      ],
    ],
    "two phases of a contrast agent": [
      ["PRE_CONTRAST", "POST_CONTRAST"].flatMap((phase) =>
        [0, 3].map((z) => ({
          z,
          group: { ContrastBolusUsageSequence: [{ ContrastBolusAgentPhase: phase }] },
        })),
      ),
      [
        ["ContrastBolusAgentPhase POST_CONTRAST", 2, 3],
        ["ContrastBolusAgentPhase PRE_CONTRAST", 0, 1],
      ],
    ],
    "two acquisitions": [
      [1, 2].flatMap((number) =>
        [0, 3].map((z) => ({
          z,
          group: { FrameContentSequence: [{ FrameAcquisitionNumber: number }] },
        })),
      ),
      [
        ["FrameAcquisitionNumber 1", 0, 1],
        ["FrameAcquisitionNumber 2", 2, 3],
      ],
    ],
    "one place": [
      [{ z: 0 }, { z: 0 }],
      [
        ["frame 1", 0],
        ["frame 2", 1],
      ],
    ],
    "one place, to rounding": [
      [{ z: 0 }, { z: 0.09 }],
      [
        ["frame 1", 0],
        ["frame 2", 1],
      ],
    ],
    "one place, from its other side": [
      [{ z: 0 }, { z: 0, turned: true }],
      [
        ["frame 1", 0],
        ["frame 2", 1],
      ],
    ],
    "beside each other": [[{ z: 0 }, { z: 0, x: 8 }], [["", 0, 1]]],
    "beside each other, with an overlap": [
      [{ z: 0 }, { z: 0, x: 6 }],
      [
        ["frame 1", 0],
        ["frame 2", 1],
      ],
    ],
    "several places, and nothing says": [[{ z: 0 }, { z: 0 }, { z: 3 }, { z: 3 }], "unknown"],
    "an attribute that does not part": [
      [
        { z: 0, group: echo(5) },
        { z: 0, group: echo(5) },
        { z: 3, group: echo(9) },
        { z: 3, group: echo(9) },
      ],
      "unknown",
    ],
    "more than there are phases": [Array.from({ length: 101 }, () => ({ z: 0 })), "unknown"],
  };
  for (const [name, [frames, expected]] of Object.entries(cases))
    t.strictSame(await parted(frames), expected, name);
});

t.test("segments and regions of phases", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "phases");
  const model = await loadTestModel(engine, folder, "segmenter", (manifest) => {
    manifest.accepts = { formats: ["dicom"], dimensions: "2d_frames" };
  });
  let count = 0;
  const run = async (file: Uint8Array) => {
    const inputPath = join(folder, `in-${++count}.dcm`);
    writeFileSync(inputPath, file);
    const task = { requestId: "test", inputPath, outputFolder: join(folder, `out-${count}`) };
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      {
        ...task,
        cancelId: 1,
        priority: "routine",
        roots,
        outputs: ["json", "seg", "rtstruct", "sr"],
      },
      { engine, models: [model] },
    );
    const [said] = answer.models;
    const paths = said!.outputs.map(({ path }) => path).filter((path) => path.endsWith(".dcm"));
    if (commandsAre("dciodvfy") === false)
      for (const path of paths) t.strictSame(objectErrors(path), [], path);
    const object = (kind: string) => {
      const path = paths.find((one) => one.endsWith(`.${kind}.dcm`));
      return path === undefined ? undefined : openFile(readFileSync(path)).attributes;
    };
    return {
      codes: said!.warnings.map(({ code }) => code),
      seg: object("seg"),
      rtstruct: object("rtstruct"),
    };
  };
  const named = (items: Read[] | undefined, keyword: string) =>
    (items ?? []).map((item) => item.string(keyword));
  const places = (seg: Read | undefined) =>
    (seg?.sequence("PerFrameFunctionalGroupsSequence") ?? []).map((groups) => [
      groups.sequence("SegmentIdentificationSequence")?.[0]?.number("ReferencedSegmentNumber"),
      groups.sequence("PlanePositionSequence")?.[0]?.numbers("ImagePositionPatient")?.[2],
    ]);
  const patient = {
    StudyInstanceUID: "1.2.3",
    SeriesInstanceUID: "1.2.3.5",
    SOPInstanceUID: "1.2.3.5.6",
    FrameOfReferenceUID: "1.2.3.4",
    PatientID: "4711",
  };
  const bright = (frame: number, pixel: number) => (pixel >> 3 < 3 + frame ? 4000 : 0);

  const two = [0, 3].flatMap((z) => [1, 2].map((i) => ({ z, group: time(i) })));
  const parted = await run(fileOf(two, patient, bright));
  const label = parted.seg?.sequence("SegmentSequence")?.[0]?.string("SegmentLabel") ?? "";
  t.match(label, / \(TemporalPositionIndex 1\)$/);
  t.strictSame(
    named(parted.rtstruct?.sequence("StructureSetROISequence"), "ROIName"),
    named(parted.seg?.sequence("SegmentSequence"), "SegmentLabel"),
  );
  t.strictSame(places(parted.seg).slice(0, 4), [
    [1, 0],
    [1, 3],
    [2, 0],
    [2, 3],
  ]);
  const tracked = named(parted.seg?.sequence("SegmentSequence"), "TrackingUID");
  t.equal(tracked[0], tracked[1], "one label over two phases");
  for (const [r, region] of (parted.rtstruct?.sequence("ROIContourSequence") ?? []).entries()) {
    const images = (region.sequence("ContourSequence") ?? []).map((contour) =>
      contour.sequence("ContourImageSequence")?.[0]?.number("ReferencedFrameNumber"),
    );
    t.ok(
      images.every((frame) => frame! % 2 === 1 - (r % 2)),
      "contours of one phase alone",
    );
  }

  const unknown = await run(
    fileOf(
      [0, 0, 3, 3].map((z) => ({ z })),
      patient,
      bright,
    ),
  );
  t.equal(unknown.rtstruct, undefined);
  t.ok(unknown.codes.includes("output_not_written"));
  t.ok(unknown.codes.includes("place_left_out"));

  const without = { z: 3, group: { PlanePositionSequence: undefined } };
  const partly = await run(fileOf([{ z: 0 }, without, { z: 6 }], patient, bright));
  t.ok(partly.codes.includes("place_left_out"), "one frame of three has no position");
  t.strictSame(
    places(partly.seg).map(([, z]) => z),
    Array(6).fill(undefined),
  );
  t.equal(unknown.seg?.string("FrameOfReferenceUID"), undefined);
  t.strictSame(named(unknown.seg?.sequence("SegmentSequence"), "SegmentLabel").length > 0, true);

  const uneven = await run(
    fileOf(
      [0, 1, 5].map((z) => ({ z })),
      patient,
      bright,
    ),
  );
  t.ok(uneven.codes.includes("thickness_assumed"));
  const single = await run(fileOf([{ z: 0 }], patient, bright));
  t.ok(single.codes.includes("thickness_assumed"), "of one frame, too");
  t.equal(single.seg?.string("FrameOfReferenceUID"), "1.2.3.4");
  t.equal(uneven.seg?.string("FrameOfReferenceUID"), "1.2.3.4");
  const measures = uneven.seg
    ?.sequence("SharedFunctionalGroupsSequence")?.[0]
    ?.sequence("PixelMeasuresSequence")?.[0];
  t.equal(measures?.number("SliceThickness"), SPACING);
  t.equal(measures?.number("SpacingBetweenSlices"), undefined);

  const even = await run(
    fileOf(
      [0, 1, 2].map((z) => ({ z: 2 * z })),
      patient,
      bright,
    ),
  );
  t.notOk(even.codes.includes("thickness_assumed"), "the distance is the thickness");
});
