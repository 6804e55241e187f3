/**
 * The volumes of test/reference/volumes as DICOM series that lie as SimpleITK reads them: to the
 * left, to the back, to the head.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { decodeNpy } from "../../src/engine/npy.js";
import { toNumbers } from "../../src/models/compare.js";
import { attributesOf, CT, dicomFile, type Attributes } from "./dicom.js";

export const VOLUMES = resolve("test/reference/volumes");
const CLASSES: Readonly<Record<string, string>> = {
  CT,
  MR: "1.2.840.10008.5.1.4.1.1.4",
  PT: "1.2.840.10008.5.1.4.1.1.128",
};

export const numbersOf = (reference: string, name: string): number[] =>
  Array.from(toNumbers(decodeNpy(readFileSync(join(VOLUMES, reference, `${name}.npy`)))));

export interface SeriesOptions {
  modality: string;
  /**
   * The array, int16 [slices, rows, columns], or [channels, slices, rows, columns] of which
   * `channel` is taken.
   */
  array?: string;
  channel?: number;
  /** Arrays of what lies between voxels, and of the first one's place; slice, row, column. */
  spacing?: string;
  origin?: string;
  /** Only this part; slice, row, column. */
  part?: { first: readonly [number, number, number]; count: readonly [number, number, number] };
  /** Ends its UIDs. */
  number?: number;
  attributes?: Attributes;
}

/** The files of one series, slice by slice. */
export function seriesFiles(
  reference: string,
  {
    modality,
    array = "voxels",
    channel = 0,
    spacing = "spacing",
    origin,
    part,
    number = 9,
    attributes,
  }: SeriesOptions,
): Buffer[] {
  const { shape, data } = decodeNpy(readFileSync(join(VOLUMES, reference, `${array}.npy`)));
  const [apart = 1, row = 1, column = 1] = numbersOf(reference, spacing);
  const [z0 = 0, y0 = 0, x0 = 0] = origin === undefined ? [] : numbersOf(reference, origin);
  const [depth = 0, height = 0, width = 0] = shape.slice(-3);
  const { first, count } = part ?? { first: [0, 0, 0], count: [depth, height, width] };
  const [slices, rows, columns] = count;
  const [z1, y1, x1] = first;
  const raw = { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 16, signed: true };
  return Array.from({ length: slices }, (_, z) => {
    const pixels = new Uint8Array(rows * columns * 2);
    for (let y = 0; y < rows; y++) {
      const from = (((channel * depth + z1 + z) * height + y1 + y) * width + x1) * 2;
      pixels.set(data.subarray(from, from + columns * 2), y * columns * 2);
    }
    const place = [x0 + x1 * column, y0 + y1 * row, z0 + (z1 + z) * apart];
    return dicomFile({
      attributes: attributesOf(
        { ...raw, data: pixels },
        {
          SOPClassUID: CLASSES[modality] ?? CT,
          SOPInstanceUID: `1.2.3.${number}.${z + 1}`,
          StudyInstanceUID: "1.2.3",
          SeriesInstanceUID: `1.2.3.${number}`,
          FrameOfReferenceUID: "1.2.5",
          PatientID: "Nobody",
          Modality: modality,
          ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
          ImagePositionPatient: place.map((mm) => mm.toFixed(4)).join("\\"),
          ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
          PixelSpacing: `${row}\\${column}`,
          RescaleSlope: "1",
          RescaleIntercept: "0",
          ...attributes,
        },
      ),
      pixels,
    });
  });
}

/** Writes several series into one folder, slice by slice of all, under names that say nothing. */
export function writeFolder(folder: string, ...series: Buffer[][]): string {
  mkdirSync(folder, { recursive: true });
  let place = 0;
  const most = Math.max(...series.map(({ length }) => length));
  for (let z = 0; z < most; z++)
    for (const files of series) {
      const file = files[z];
      if (file !== undefined) writeFileSync(join(folder, `${place++}.dcm`), file);
    }
  return folder;
}
