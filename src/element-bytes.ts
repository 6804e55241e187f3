import type { TensorType } from "./engine.js";

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
