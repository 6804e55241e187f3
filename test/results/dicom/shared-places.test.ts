/** Frames that share a place: which belong together, and what SEG and RTSTRUCT make of them. */
import t from "tap";
import { phasesOf } from "../../../src/images/dicom/shared-places.js";
import { readImage } from "../../../src/images/read-image.js";
import { dicomFile, imageAttributes, type Attributes } from "../../support/dicom.js";

const SPACING = 1;

interface Frame {
  z: number;
  x?: number;
  group?: Attributes;
  turned?: boolean;
}

/** An enhanced MR image of frames of 8 x 8 pixels. */
function fileOf(frames: readonly Frame[]): Uint8Array {
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
    }),
    pixels: new Uint8Array(frames.length * 128),
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
