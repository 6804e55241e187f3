/** Tensors as they go into a graph and come out of it. */
interface ElementType {
  /** Bytes of one element. */
  bytes: number;
  /** Its name in NumPy's files. */
  numpy: string;
  read: (view: DataView, at: number) => number;
}

/** Size, NumPy's name and reader of each element type, little endian. */
export const ELEMENT_TYPES = {
  float32: { bytes: 4, numpy: "<f4", read: (v, at) => v.getFloat32(at, true) },
  float16: { bytes: 2, numpy: "<f2", read: (v, at) => float16(v.getUint16(at, true)) },
  float64: { bytes: 8, numpy: "<f8", read: (v, at) => v.getFloat64(at, true) },
  uint8: { bytes: 1, numpy: "|u1", read: (v, at) => v.getUint8(at) },
  int8: { bytes: 1, numpy: "|i1", read: (v, at) => v.getInt8(at) },
  uint16: { bytes: 2, numpy: "<u2", read: (v, at) => v.getUint16(at, true) },
  int16: { bytes: 2, numpy: "<i2", read: (v, at) => v.getInt16(at, true) },
  int32: { bytes: 4, numpy: "<i4", read: (v, at) => v.getInt32(at, true) },
  int64: { bytes: 8, numpy: "<i8", read: (v, at) => Number(v.getBigInt64(at, true)) },
  uint32: { bytes: 4, numpy: "<u4", read: (v, at) => v.getUint32(at, true) },
  bool: { bytes: 1, numpy: "|b1", read: (v, at) => v.getUint8(at) },
} satisfies Record<string, ElementType>;

export type TensorType = keyof typeof ELEMENT_TYPES;

export interface TensorInfo {
  name: string;
  dtype: TensorType;
  /** -1 for a dynamic dimension; its symbolic name, if any, is in `names`. */
  shape: number[];
  names: string[];
}

export interface Tensor {
  name: string;
  dtype: TensorType;
  shape: number[];
  data: Uint8Array;
}

/** IEEE 754 binary16. */
function float16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
