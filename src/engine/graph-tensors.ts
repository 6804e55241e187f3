/** Tensors of manifests and canaries, which are named bytes, as the engine of graphs has them. */
import { ELEMENT_TYPES, type Tensor, type TensorType } from "../base/tensor.js";
import { DATA_TYPES } from "../graph/data-types.js";
import type { Feeds, Outputs } from "../graph/types.js";

export function feedsOf(tensors: readonly Tensor[]): Feeds {
  return Object.fromEntries(
    tensors.map(({ name, dtype, shape, data }) => {
      const { bytes } = ELEMENT_TYPES[dtype];
      // Bytes that do not lie where their type must are copied
      const { buffer, byteOffset } = data.byteOffset % bytes === 0 ? data : data.slice();
      const numbers = DATA_TYPES[dtype].make(
        buffer as ArrayBuffer,
        byteOffset,
        data.byteLength / bytes,
      );
      return [name, { dtype, shape, data: numbers }];
    }),
  );
}

/** Models of images give numbers alone. */
export function tensorsOf(outputs: Outputs): Tensor[] {
  return Object.entries(outputs).map(([name, { dtype, shape, data }]) => {
    const { buffer, byteOffset, byteLength } = data as Uint8Array;
    return {
      name,
      dtype: dtype as TensorType,
      shape,
      data: new Uint8Array(buffer, byteOffset, byteLength),
    };
  });
}
