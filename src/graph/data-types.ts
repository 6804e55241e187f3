/** The types of elements that ONNX Runtime has tensors of, and the arrays that hold them. */

/** Arrays of numbers in JavaScript. */
export type NumberData =
  | Float32Array
  | Float64Array
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | BigUint64Array
  | BigInt64Array;

/** The elements of a tensor, row-major. */
export type TensorData = NumberData | readonly string[];

type ArrayOf = (buffer: ArrayBuffer, byteOffset?: number, length?: number) => NumberData;

interface Element {
  /** Names of the arrays that hold it; the first is what comes out. */
  arrays: readonly string[];
  bytes: number;
  make: ArrayOf;
}

const made =
  <T>(type: new (buffer: ArrayBuffer, byteOffset?: number, length?: number) => T) =>
  (buffer: ArrayBuffer, byteOffset?: number, length?: number): T =>
    new type(buffer, byteOffset, length);

const bits8 = { arrays: ["Uint8Array"], bytes: 1, make: made(Uint8Array) };
const bits16 = { arrays: ["Uint16Array"], bytes: 2, make: made(Uint16Array) };

/**
 * Types that JavaScript has no array of come as their bits: float16 (IEEE 754 binary16) and
 * bfloat16 as Uint16Array, those of 8 bits as Uint8Array, of 4 bits two in a byte, and of 2 bits
 * four, the first in its lowest bits. Of bool each byte is 0 or 1.
 */
export const DATA_TYPES = {
  float32: { arrays: ["Float32Array"], bytes: 4, make: made(Float32Array) },
  float16: { ...bits16, arrays: ["Uint16Array", "Float16Array"] },
  float64: { arrays: ["Float64Array"], bytes: 8, make: made(Float64Array) },
  uint8: { ...bits8, arrays: ["Uint8Array", "Uint8ClampedArray"] },
  int8: { arrays: ["Int8Array"], bytes: 1, make: made(Int8Array) },
  uint16: bits16,
  int16: { arrays: ["Int16Array"], bytes: 2, make: made(Int16Array) },
  int32: { arrays: ["Int32Array"], bytes: 4, make: made(Int32Array) },
  int64: { arrays: ["BigInt64Array"], bytes: 8, make: made(BigInt64Array) },
  uint32: { arrays: ["Uint32Array"], bytes: 4, make: made(Uint32Array) },
  bool: bits8,
  uint64: { arrays: ["BigUint64Array"], bytes: 8, make: made(BigUint64Array) },
  bfloat16: bits16,
  string: { arrays: ["string[]"], bytes: 1, make: made(Uint8Array) },
  float8e4m3fn: bits8,
  float8e4m3fnuz: bits8,
  float8e5m2: bits8,
  float8e5m2fnuz: bits8,
  float8e8m0: bits8,
  float4e2m1: bits8,
  uint4: bits8,
  int4: bits8,
  uint2: bits8,
  int2: bits8,
} as const satisfies Record<string, Element>;

/**
 * The type of a tensor's elements. Of those that JavaScript has no array of the bits come: float16
 * and bfloat16 in 16, those of 8 in a byte, of 4 bits two in a byte, and of 2 bits four, the first
 * in the lowest bits. Of bool each byte is 0 or 1.
 */
export type DataType = keyof typeof DATA_TYPES;

/** How many elements share a byte, of types that are shorter than one. */
const IN_BYTE: Partial<Record<DataType, number>> = {
  float4e2m1: 2,
  uint4: 2,
  int4: 2,
  uint2: 4,
  int2: 4,
};

/** How many elements of an array a tensor of so many elements has. */
export const lengthOf = (dtype: DataType, elements: number): number =>
  Math.ceil(elements / (IN_BYTE[dtype] ?? 1));
