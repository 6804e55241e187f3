/** Tensors as they go into a graph and come out of it. */
export type TensorType =
  | "float32"
  | "float16"
  | "float64"
  | "uint8"
  | "int8"
  | "uint16"
  | "int16"
  | "int32"
  | "int64"
  | "uint32"
  | "bool";

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

/** Bytes of one element. */
export const ELEMENT_BYTES: Record<TensorType, number> = {
  float32: 4,
  float16: 2,
  float64: 8,
  uint8: 1,
  int8: 1,
  uint16: 2,
  int16: 2,
  int32: 4,
  int64: 8,
  uint32: 4,
  bool: 1,
};
