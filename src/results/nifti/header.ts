/**
 * The header of a NIfTI-1 file (nifti1.h of 2007, R. W. Cox, NIMH,
 * https://nifti.nimh.nih.gov/pub/dist/src/niftilib/nifti1.h): 348 bytes, little endian, and four
 * that say that no extension follows. Packages of npm read such files; the only one that is kept
 * and writes them carries all of ITK.
 */
import { errors } from "../../base/errors.js";
import type { VolumeGrid } from "../../images/grids.js";
import type { VolumeGeometry } from "../../images/image.js";
import { cross, dot, type Vector } from "../../images/vectors.js";

/** Types of voxels, with the `datatype` of nifti1.h and the bytes of one. */
export const NIFTI_TYPES = {
  uint8: { code: 2, array: Uint8Array },
  int16: { code: 4, array: Int16Array },
  int32: { code: 8, array: Int32Array },
  float32: { code: 16, array: Float32Array },
  float64: { code: 64, array: Float64Array },
  uint16: { code: 512, array: Uint16Array },
} as const;
export type NiftiType = keyof typeof NIFTI_TYPES;

const HEADER_BYTES = 348;
/** Voxels begin at a multiple of 16 behind the header and the four bytes of no extension. */
const VOXEL_OFFSET = 352;
/** `dim` has 16 bits. */
const LONGEST_SIDE = 32_767;
const MILLIMETRES = 2;
/** NIFTI_XFORM_SCANNER_ANAT. */
const SCANNER = 1;

/** DICOM's x grows to the left and y to the back; NIfTI's to the right and to the front. */
const toRas = ([x, y, z]: Vector): Vector => [0 - x, 0 - y, z];

/** Index of column, row and slice, then 1, to mm: rows of the affine, to the right, front, head. */
export function affineOf(geometry: VolumeGeometry): [Row, Row, Row] {
  const { columnDirection, rowDirection, sliceDirection, origin } = geometry;
  const [i, j, k, o] = [columnDirection, rowDirection, sliceDirection, origin].map((one) =>
    toRas(one),
  ) as [Vector, Vector, Vector, Vector];
  const { columnSpacing, rowSpacing, sliceSpacing } = geometry;
  const row = (axis: 0 | 1 | 2): Row => [
    i[axis] * columnSpacing,
    j[axis] * rowSpacing,
    k[axis] * sliceSpacing,
    o[axis],
  ];
  return [row(0), row(1), row(2)];
}
type Row = [number, number, number, number];

/** @throws RadserveError bad_request for a side that the header cannot hold */
export function niftiHeader(grid: VolumeGrid, type: NiftiType): Uint8Array {
  const { columns, rows, slices, geometry } = grid;
  if (Math.max(columns, rows, slices) > LONGEST_SIDE)
    throw errors.bad_request(
      `Expected at most ${LONGEST_SIDE} voxels along each side, which is all that NIfTI-1 can hold; found ${columns} x ${rows} x ${slices}. Use the DICOM objects.`,
      { reason: "too_large" },
    );
  const bytes = new Uint8Array(VOXEL_OFFSET);
  const view = new DataView(bytes.buffer);
  const int16 = (at: number, ...values: number[]) =>
    values.forEach((value, i) => view.setInt16(at + 2 * i, value, true));
  const float32 = (at: number, ...values: number[]) =>
    values.forEach((value, i) => view.setFloat32(at + 4 * i, value, true));
  const { columnDirection, rowDirection, sliceDirection, origin } = geometry;
  const turn = quaternionOf(toRas(columnDirection), toRas(rowDirection), toRas(sliceDirection));
  const { code, array } = NIFTI_TYPES[type];
  view.setInt32(0, HEADER_BYTES, true);
  bytes[38] = "r".charCodeAt(0);
  int16(40, 3, columns, rows, slices, 1, 1, 1, 1);
  int16(70, code, 8 * array.BYTES_PER_ELEMENT);
  const { columnSpacing, rowSpacing, sliceSpacing } = geometry;
  float32(76, turn.side, columnSpacing, rowSpacing, sliceSpacing, 0, 0, 0, 0);
  // vox_offset, scl_slope, scl_inter
  float32(108, VOXEL_OFFSET, 1, 0);
  bytes[123] = MILLIMETRES;
  // qform_code and sform_code: both say the same
  int16(252, SCANNER, SCANNER);
  float32(256, ...turn.bcd, ...toRas(origin));
  float32(280, ...affineOf(geometry).flat());
  bytes.set(Buffer.from("n+1\0", "latin1"), 344);
  return bytes;
}

/**
 * The quaternion of a rotation with these columns, which are at right angles (method 2 of nifti1.h;
 * nifti_mat44_to_quatern of niftilib).
 * @returns b, c and d, and `pixdim[0]`: -1 where the third column is the other way round
 */
function quaternionOf(i: Vector, j: Vector, k: Vector): { bcd: Vector; side: 1 | -1 } {
  const side = dot(cross(i, j), k) < 0 ? -1 : 1;
  const [r11, r21, r31] = i;
  const [r12, r22, r32] = j;
  const [r13, r23, r33] = [k[0] * side, k[1] * side, k[2] * side];
  const a = r11 + r22 + r33 + 1;
  if (a > 0.5) {
    const a2 = Math.sqrt(a) * 2;
    return { bcd: [(r32 - r23) / a2, (r13 - r31) / a2, (r21 - r12) / a2], side };
  }
  // Of a turn by about 180 degrees the largest of b, c and d is exact, and a is near 0
  const [xd, yd, zd] = [1 + r11 - r22 - r33, 1 + r22 - r11 - r33, 1 + r33 - r11 - r22];
  const largest = Math.max(xd, yd, zd);
  const root = Math.sqrt(largest) * 2;
  const [bcd, first]: [Vector, number] =
    largest === xd
      ? [[root / 4, (r12 + r21) / root, (r13 + r31) / root], r32 - r23]
      : largest === yd
        ? [[(r12 + r21) / root, root / 4, (r23 + r32) / root], r13 - r31]
        : [[(r13 + r31) / root, (r23 + r32) / root, root / 4], r21 - r12];
  // Of the two quaternions of a turn the one whose a is not negative is meant
  return { bcd: first < 0 ? [0 - bcd[0], 0 - bcd[1], 0 - bcd[2]] : bcd, side };
}
