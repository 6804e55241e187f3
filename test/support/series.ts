/** Folders of slices for tests: a small even CT stack, of which each test spoils one thing. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import { openInput } from "../../src/files/guarded-paths.js";
import { readInput, type FolderChoice } from "../../src/inference/read-input.js";
import type { Image } from "../../src/images/image.js";
import { attributesOf, CT, dicomFile, Typed, type Attributes, type FileOptions } from "./dicom.js";

export const SERIES = "1.2.3.4";
const [ROWS, COLUMNS] = [4, 6];

export interface SliceOptions extends Omit<FileOptions, "attributes"> {
  /** The position along the normal in millimetres, and the number that fills the pixels. */
  z: number;
  fill?: number;
  attributes?: Attributes;
  /** Frames to write instead of one that holds `fill`. */
  frames?: Uint8Array[];
}

/** A CT slice of 4 x 6 pixels in 16 bits, 0.8 mm a column and 0.5 mm a row, all of one value. */
export function slice({ z, fill = z, attributes, frames, ...file }: SliceOptions): Buffer {
  const data = new Uint8Array(Int16Array.from({ length: ROWS * COLUMNS }, () => fill).buffer);
  const raw = {
    rows: ROWS,
    columns: COLUMNS,
    samples: 1,
    bitsAllocated: 16,
    bitsStored: 16,
    signed: true,
  };
  return dicomFile({
    attributes: attributesOf(
      { ...raw, data },
      {
        SOPClassUID: CT,
        SOPInstanceUID: `1.2.3.4.${Math.round(z * 1000) + 100_000}`,
        StudyInstanceUID: "1.2.3",
        SeriesInstanceUID: SERIES,
        FrameOfReferenceUID: "1.2.5",
        PatientID: "Nobody",
        Modality: "CT",
        ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
        ImagePositionPatient: `-10\\-20\\${z}`,
        ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
        PixelSpacing: "0.5\\0.8",
        SliceThickness: "9",
        RescaleSlope: "1",
        RescaleIntercept: "0",
        ...attributes,
      },
    ),
    pixels: frames === undefined ? data : Buffer.concat(frames),
    ...file,
  });
}

/**
 * An Enhanced CT with a frame at each place, shared orientation and spacing, and its own position
 * per frame.
 */
export function multiFrame(places: readonly (number | undefined)[], more: Attributes = {}): Buffer {
  const fillOf = (frame: number) => Int16Array.from({ length: 24 }, () => frame);
  return slice({
    z: 0,
    attributes: {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.2.1",
      NumberOfFrames: String(places.length),
      ImagePositionPatient: undefined,
      ImageOrientationPatient: undefined,
      PixelSpacing: undefined,
      SharedFunctionalGroupsSequence: [
        {
          PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
          PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.8", SliceThickness: "9" }],
        },
      ],
      PerFrameFunctionalGroupsSequence: places.map((z, i) => ({
        FrameContentSequence: [{ TemporalPositionIndex: i }],
        ...(z === undefined
          ? {}
          : { PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${z}` }] }),
      })),
      ...more,
    },
    frames: places.map((_, frame) => new Uint8Array(fillOf(frame).buffer)),
  });
}

/**
 * An RT Dose whose frames lie at `offsets`, the first of them at -10, -20, 30 unless `more` says
 * otherwise.
 */
export function doseGrid(offsets: string, frames: number, more: Attributes = {}): Buffer {
  const planes = Array.from({ length: frames }, (_, frame) =>
    Int16Array.from({ length: ROWS * COLUMNS }, () => frame),
  );
  return slice({
    z: 30,
    attributes: {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.481.2",
      Modality: "RTDOSE",
      NumberOfFrames: String(frames),
      FrameIncrementPointer: new Typed("AT", new Uint8Array([0x04, 0x30, 0x0c, 0x00])),
      GridFrameOffsetVector: offsets,
      SliceThickness: "",
      ...more,
    },
    frames: planes.map(({ buffer }) => new Uint8Array(buffer)),
  });
}

/** Writes files under names that say nothing of their order, and gives the folder. */
export function folderOf(
  t: Test,
  files: Record<string, Uint8Array> | readonly Uint8Array[],
): string {
  const folder = join(t.testdir({}), "series");
  mkdirSync(folder);
  const named = Array.isArray(files)
    ? Object.fromEntries(files.map((file, i) => [`${i}.dcm`, file]))
    : files;
  for (const [name, bytes] of Object.entries(named))
    writeFileSync(join(folder, name), bytes as Uint8Array);
  return folder;
}

/** Reads a folder and holds it open until the test ends. */
export async function readFolder(
  t: Test,
  folder: string,
  choice: FolderChoice = {},
): Promise<Image> {
  const opened = await openInput(folder, undefined);
  t.teardown(() => opened.close());
  return readInput(opened, undefined, choice);
}
