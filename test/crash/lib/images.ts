/** Small CT slices whose bone area is known, each another image: other pixels, other UIDs. */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { attributesOf, CT, dicomFile, random } from "../../support/dicom.js";

/** Pixels are 1 mm squares, so that an area in cm2 is a hundredth of the count. */
const PIXELS_PER_CM2 = 100;
const PER_FOLDER = 500;
const BONE = 700 + 1024;
const MUSCLE = 50 + 1024;

export interface TestImage {
  /** Below the input folder. */
  relative: string;
  boneCm2: number;
}

function slice(number: number, side: number): { file: Buffer; boneCm2: number } {
  const next = random(number + 1);
  const words = new Uint16Array(side * side).fill(MUSCLE);
  const width = 4 + Math.floor(next() * (side - 8));
  const height = 4 + Math.floor(next() * (side - 8));
  for (let y = 2; y < 2 + height; y++) words.fill(BONE, y * side + 2, y * side + 2 + width);
  // What tells two slices with the same node apart: noise within the range of muscle
  for (let i = (side - 2) * side; i < side * side; i++) words[i] = MUSCLE + Math.floor(next() * 20);
  const data = new Uint8Array(words.buffer);
  const raw = { rows: side, columns: side, samples: 1, bitsAllocated: 16, bitsStored: 12, data };
  const attributes = attributesOf(raw, {
    SOPClassUID: CT,
    SOPInstanceUID: `1.2.826.0.1.3680043.2.1.${number + 1}`,
    SeriesInstanceUID: `1.2.826.0.1.3680043.2.2.${Math.floor(number / PER_FOLDER) + 1}`,
    StudyInstanceUID: "1.2.826.0.1.3680043.2.3.1",
    Modality: "CT",
    ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
    PixelSpacing: "1\\1",
    ImagePositionPatient: `0\\0\\${number % PER_FOLDER}`,
    ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
    FrameOfReferenceUID: "1.2.826.0.1.3680043.2.4.1",
    RescaleIntercept: "-1024",
    RescaleSlope: "1",
    RescaleType: "HU",
    KVP: "120",
    SliceThickness: "1",
    InstanceNumber: String(number + 1),
    PatientID: "TEST",
    StudyDate: "20260101",
    StudyTime: "120000",
  });
  return {
    file: dicomFile({ attributes, pixels: data }),
    boneCm2: (width * height) / PIXELS_PER_CM2,
  };
}

export function writeSlice(folder: string, relative: string, number: number, side = 64): TestImage {
  const { file, boneCm2 } = slice(number, side);
  const target = path.join(folder, relative);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, file);
  return { relative, boneCm2 };
}

/** Writes `count` slices, the first being number `first`, in folders of 500. */
export function writeImages(
  folder: string,
  count: number,
  { first = 0, side = 64 } = {},
): TestImage[] {
  return Array.from({ length: count }, (_, i) => {
    const number = first + i;
    const relative = `series-${Math.floor(i / PER_FOLDER)}/slice-${String(number).padStart(6, "0")}.dcm`;
    return writeSlice(folder, relative, number, side);
  });
}
