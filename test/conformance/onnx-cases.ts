/** The node cases of onnx as test/conformance/onnx_nodes.py writes them. */
import { DATA_TYPES, type DataType, type TensorData } from "../../src/graph/data-types.js";

export interface CaseTensor {
  name: string;
  type: DataType;
  shape: number[];
  texts?: string[];
  at?: number;
  bytes?: number;
}

export interface NodeCase {
  name: string;
  model: string;
  rtol: number;
  atol: number;
  /** The kind of a value that is no tensor: sequence, optional. */
  other: string | null;
  inputs?: CaseTensor[];
  outputs?: CaseTensor[];
}

/** @param data the bytes of all cases */
export function arrayOf({ type, texts, at = 0, bytes = 0 }: CaseTensor, data: Buffer): TensorData {
  if (texts !== undefined) return texts;
  return DATA_TYPES[type].make(new Uint8Array(data.subarray(at, at + bytes)).buffer);
}
