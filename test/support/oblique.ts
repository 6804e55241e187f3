/**
 * An oblique series, and a network whose spacings, order of axes and directions are none of the
 * series': where its voxels lie follows from the manifest's spacing and the volume's middle, and is
 * computed here by itself.
 */
import type { ImageInput } from "../../src/manifest/manifest.js";
import { attributesOf, CT, dicomFile, type Attributes } from "./dicom.js";

export type Vector = [number, number, number];
export const dot = (a: Vector, b: Vector) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = ([a, b, c]: Vector, [d, e, f]: Vector): Vector => [
  b * f - c * e,
  c * d - a * f,
  a * e - b * d,
];
export const times = (v: Vector, by: number): Vector => [v[0] * by, v[1] * by, v[2] * by];
export const plus = (...all: Vector[]): Vector =>
  all.reduce<Vector>((sum, v) => [sum[0] + v[0], sum[1] + v[1], sum[2] + v[2]], [0, 0, 0]);
const unit = (v: Vector) => times(v, 1 / Math.sqrt(dot(v, v)));

/**
 * The series: turned out of the patient's axes, its pixels higher than wide, its slices further
 * apart.
 */
export const SOURCE = { slices: 9, rows: 10, columns: 14, apart: 3.1, row: 1.3, column: 0.9 };
const ACROSS = unit([0.93, 0.3, -0.2]);
export const NORMAL = unit(cross(ACROSS, [-0.25, 0.94, 0.2]));
const DOWN = cross(NORMAL, ACROSS);
const ORIGIN: Vector = [-31.5, 12.25, 140.5];
export const MIDDLE = plus(
  ORIGIN,
  times(ACROSS, (SOURCE.column * (SOURCE.columns - 1)) / 2),
  times(DOWN, (SOURCE.row * (SOURCE.rows - 1)) / 2),
  times(NORMAL, (SOURCE.apart * (SOURCE.slices - 1)) / 2),
);

/** The network's axes depth, height, width: to the right, to the feet, to the front. */
const LETTERS = "RIA";
export const NETWORK = [
  { along: times(ACROSS, -1), spacing: 1.2, side: 20, extent: SOURCE.column * SOURCE.columns },
  { along: times(NORMAL, -1), spacing: 1.7, side: 23, extent: SOURCE.apart * SOURCE.slices },
  { along: times(DOWN, -1), spacing: 1.1, side: 15, extent: SOURCE.row * SOURCE.rows },
].map((axis) => {
  const content = Math.ceil(axis.extent / axis.spacing);
  return { ...axis, content, begin: Math.floor((axis.side - content) / 2) };
});

export const GRID_INPUT: Partial<ImageInput> = {
  orientation: LETTERS,
  spacing_mm: [NETWORK[0]!.spacing, NETWORK[1]!.spacing, NETWORK[2]!.spacing],
  size: {
    kind: "fixed",
    depth: NETWORK[0]!.side,
    height: NETWORK[1]!.side,
    width: NETWORK[2]!.side,
  },
  fit: "letterbox",
  interpolation: "linear",
};

/**
 * The voxel of the network's tensor at a place in the patient, and how far its centre is from
 * there, in voxels.
 */
export function voxelAt(place: Vector): { index: number; off: number } {
  const away = plus(place, times(MIDDLE, -1));
  return NETWORK.reduce(
    ({ index, off }, { along, spacing, side, content, begin }) => {
      const at = dot(away, along) / spacing + begin + content / 2 - 0.5;
      const nearest = Math.round(at);
      return { index: index * side + nearest, off: Math.max(off, Math.abs(at - nearest)) };
    },
    { index: 0, off: 0 },
  );
}

/** Noise with clumps, from -160 to 240, which is the window of the test models. */
function stored(slice: number, row: number, column: number): number {
  const noise = Math.sin(slice * 12.9898 + row * 78.233 + column * 37.719) * 43758.5453;
  const clump = Math.sin(slice * 0.9) + Math.sin(row * 0.7 + 1) + Math.sin(column * 0.5 + 2);
  return Math.round(40 + 40 * clump + 80 * (noise - Math.floor(noise) - 0.5));
}

const decimal = (values: readonly number[]) => values.map((value) => value.toFixed(11)).join("\\");

export function obliqueSeries(more: Attributes = {}): Buffer[] {
  const { slices, rows, columns } = SOURCE;
  const raw = { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 16, signed: true };
  return Array.from({ length: slices }, (_, z) => {
    const values = Int16Array.from({ length: rows * columns }, (_, i) =>
      stored(z, Math.floor(i / columns), i % columns),
    );
    const pixels = new Uint8Array(values.buffer);
    return dicomFile({
      attributes: attributesOf(
        { ...raw, data: pixels },
        {
          SOPClassUID: CT,
          SOPInstanceUID: `1.2.3.9.${z + 1}`,
          StudyInstanceUID: "1.2.3",
          SeriesInstanceUID: "1.2.3.9",
          FrameOfReferenceUID: "1.2.5",
          PatientID: "Nobody",
          Modality: "CT",
          ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
          ImagePositionPatient: decimal(plus(ORIGIN, times(NORMAL, z * SOURCE.apart))),
          ImageOrientationPatient: decimal([...ACROSS, ...DOWN]),
          PixelSpacing: `${SOURCE.row}\\${SOURCE.column}`,
          SliceThickness: "2",
          RescaleSlope: "1",
          RescaleIntercept: "0",
          PatientName: "Nobody",
          ...more,
        },
      ),
      pixels,
    });
  });
}
