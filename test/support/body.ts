/** A body in the patient's coordinates, and scans of it in any orientation. */
import { attributesOf, dicomFile, random, type Attributes } from "./dicom.js";

export type Point = [number, number, number];

/**
 * Where slices lie: mm between voxels along rows, columns and slices, and the patient's directions
 * of the first two.
 */
export interface Scan {
  counts: Point;
  spacing: Point;
  across: Point;
  down: Point;
  /** Millimetres that each slice goes aside along `down`. */
  shear?: number;
  more?: Attributes;
}

/** The patient's coordinates of a voxel; the middle of the scan is 0, 0, 0. */
export function pointOf(
  { counts, spacing, across, down, shear = 0 }: Scan,
  index: Readonly<Point>,
): Point {
  const [a, b, c] = across;
  const [d, e, f] = down;
  const normal: Point = [b * f - c * e, c * d - a * f, a * e - b * d];
  const [i = 0, j = 0, k = 0] = index.map((at, n) => (at - (counts[n]! - 1) / 2) * spacing[n]!);
  const at = (n: 0 | 1 | 2) =>
    i * across[n] + (j + (k * shear) / spacing[2]) * down[n] + k * normal[n];
  return [at(0), at(1), at(2)];
}

export const inBall = (
  [x, y, z]: Point,
  [cx, cy, cz]: Point,
  rx: number,
  ry = rx,
  rz = rx,
): boolean => ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 + ((z - cz) / rz) ** 2 < 1;

/**
 * A body that no turning brings onto itself: spine behind, liver at the right, stomach with gas at
 * the left, a head.
 */
export function bodyAt(point: Point): number {
  const [x, y, z] = point;
  if (inBall(point, [0, 0, 130], 45, 55, 55))
    return inBall(point, [0, -8, 130], 36, 44, 44) ? 130 : 260;
  if (!inBall(point, [0, 0, -40], 150, 95, 150)) return 0;
  if (Math.hypot(x, y - 60) < 16) return 260;
  if (inBall(point, [-65, 0, -30], 60, 60, 45)) return 160;
  if (inBall(point, [55, -30, -20], 35)) return z > -15 && y < -30 ? 10 : 120;
  return Math.abs(x) < 60 && y > -60 && z > 20 ? 30 : 90;
}

/** Slices of the body; files come in an order of their own. */
export function scanned(
  scan: Scan,
  valueAt: (point: Point, slice: number) => number = noisy(bodyAt),
  moreOf: (slice: number) => Attributes = () => ({}),
): Uint8Array[] {
  const [columns, rows, slices] = scan.counts;
  const files = Array.from({ length: slices }, (_, k) => {
    const stored = new Uint16Array(rows * columns);
    for (let j = 0, at = 0; j < rows; j++)
      for (let i = 0; i < columns; i++, at++)
        stored[at] = Math.round(valueAt(pointOf(scan, [i, j, k]), k));
    const data = new Uint8Array(stored.buffer);
    const raw = { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 16, data };
    const attributes = attributesOf(raw, {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.4",
      Modality: "MR",
      StudyDate: "20261121",
      StudyInstanceUID: "1.2.3",
      SeriesInstanceUID: "1.2.3.4",
      SeriesNumber: "4",
      SOPInstanceUID: `1.2.3.4.${2000 + k}`,
      InstanceNumber: String(k + 1),
      FrameOfReferenceUID: "1.2.5",
      PixelSpacing: `${scan.spacing[1]}\\${scan.spacing[0]}`,
      ImageOrientationPatient: [...scan.across, ...scan.down].join("\\"),
      ImagePositionPatient: pointOf(scan, [0, 0, k])
        .map((mm) => mm.toFixed(4))
        .join("\\"),
      WindowCenter: "130",
      WindowWidth: "260",
      ...scan.more,
      ...moreOf(k),
    });
    return dicomFile({ attributes, pixels: data, pixelVr: "OW" });
  });
  return files.reverse();
}

function noisy(valueAt: (point: Point) => number): (point: Point) => number {
  const next = random(21);
  return (point) => valueAt(point) * (0.94 + 0.12 * next());
}

export const AXIAL = { across: [1, 0, 0], down: [0, 1, 0] } satisfies Pick<Scan, "across" | "down">;
export const SAGITTAL = { across: [0, 1, 0], down: [0, 0, -1] } satisfies Pick<
  Scan,
  "across" | "down"
>;
export const CORONAL = { across: [1, 0, 0], down: [0, 0, -1] } satisfies Pick<
  Scan,
  "across" | "down"
>;
