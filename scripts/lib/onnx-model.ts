/**
 * Builds ONNX models from plain descriptions and writes them as bytes, the same bytes for the same
 * description. The messages below are the part of the ONNX protobuf schema (github.com/onnx/onnx,
 * onnx.proto) that graphs with tensors and attributes need; field numbers are the format's own.
 */
import protobuf from "protobufjs";

/** Element types by their number in TensorProto.DataType. */
export const ELEMENT_TYPES = {
  float32: 1,
  uint8: 2,
  int8: 3,
  uint16: 4,
  int16: 5,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
  float64: 11,
  uint32: 12,
  uint64: 13,
} as const;

export type ElementType = keyof typeof ELEMENT_TYPES;

/** Types of inputs and outputs of which no constants are written here. */
const OTHER_TYPES = {
  string: 8,
  complex64: 14,
  bfloat16: 16,
  float8e4m3fn: 17,
  float8e4m3fnuz: 18,
  float8e5m2: 19,
  float8e5m2fnuz: 20,
  uint4: 21,
  int4: 22,
  float4e2m1: 23,
  float8e8m0: 24,
  uint2: 25,
  int2: 26,
} as const;

export type ValueType = ElementType | keyof typeof OTHER_TYPES;

/** A graph input or output; a string names a dynamic dimension ("batch"), a number fixes it. */
export interface ValueInfo {
  name: string;
  dtype: ValueType;
  shape: readonly (number | string)[];
}

/** A constant: a graph initializer (then `name` is required) or the value of a tensor attribute. */
export interface TensorValue {
  name?: string;
  dtype: ElementType;
  shape: readonly number[];
  /**
   * Numbers, row by row (bigint for 64-bit integers beyond 2^53), or the little-endian bytes
   * themselves.
   */
  data: readonly number[] | readonly bigint[] | Uint8Array;
  /**
   * The file beside the graph that holds the bytes of `data`, from its start; they are not in the
   * graph then.
   */
  location?: string;
}

/**
 * A node attribute. The kind is said outright, because ONNX tells 1 (int) from 1.0 (float). Write
 * them with the helpers `int(3)`, `ints([1, 1])`, `float(0.5)`, `string("linear")`,
 * `tensor({...})`.
 */
export type Attribute =
  | { kind: "int"; value: number }
  | { kind: "ints"; value: readonly number[] }
  | { kind: "float"; value: number }
  | { kind: "floats"; value: readonly number[] }
  | { kind: "string"; value: string }
  | { kind: "strings"; value: readonly string[] }
  | { kind: "tensor"; value: TensorValue }
  | { kind: "graph"; value: GraphDescription };

export const int = (value: number): Attribute => ({ kind: "int", value });
export const ints = (value: readonly number[]): Attribute => ({ kind: "ints", value });
export const float = (value: number): Attribute => ({ kind: "float", value });
export const floats = (value: readonly number[]): Attribute => ({ kind: "floats", value });
export const string = (value: string): Attribute => ({ kind: "string", value });
export const strings = (value: readonly string[]): Attribute => ({ kind: "strings", value });
export const tensor = (value: TensorValue): Attribute => ({ kind: "tensor", value });
/** The body of a loop or of a branch. */
export const graph = (value: GraphDescription): Attribute => ({ kind: "graph", value });

export interface Node {
  op: string;
  /** By default the operator and its place in the graph. */
  name?: string;
  /** "" leaves an optional input out. */
  inputs: readonly string[];
  outputs: readonly string[];
  attributes?: Readonly<Record<string, Attribute>>;
  /** Operator domain; "" is ONNX's own. */
  domain?: string;
}

export interface GraphDescription {
  name: string;
  inputs: readonly ValueInfo[];
  outputs: readonly ValueInfo[];
  /** In topological order: a node comes after those that make its inputs. */
  nodes: readonly Node[];
  initializers?: readonly TensorValue[];
}

/** Nodes with a name of their own, which nodes of its domain call as an operator. */
export interface FunctionDescription {
  name: string;
  domain: string;
  inputs: readonly string[];
  outputs: readonly string[];
  nodes: readonly Node[];
}

export interface ModelDescription extends GraphDescription {
  functions?: readonly FunctionDescription[];
  /** Version of ONNX's own operators; 17 where absent. */
  opset?: number;
  /** Version of the file format, 8 to 10; 8 where absent. */
  irVersion?: 8 | 9 | 10;
  producer?: string;
  doc?: string;
  metadata?: Readonly<Record<string, string>>;
}

const field = (type: string, id: number) => ({ type, id });
const repeated = (type: string, id: number) => ({
  rule: "repeated",
  type,
  id,
  options: { packed: false },
});

const root = protobuf.Root.fromJSON({
  nested: {
    Model: {
      fields: {
        irVersion: field("int64", 1),
        producer: field("string", 2),
        doc: field("string", 6),
        graph: field("Graph", 7),
        opsets: repeated("OperatorSet", 8),
        metadata: repeated("Entry", 14),
        functions: repeated("Function", 25),
      },
    },
    Function: {
      fields: {
        name: field("string", 1),
        inputs: repeated("string", 4),
        outputs: repeated("string", 5),
        nodes: repeated("Node", 7),
        opsets: repeated("OperatorSet", 9),
        domain: field("string", 10),
      },
    },
    OperatorSet: { fields: { domain: field("string", 1), version: field("int64", 2) } },
    Entry: { fields: { key: field("string", 1), value: field("string", 2) } },
    Graph: {
      fields: {
        nodes: repeated("Node", 1),
        name: field("string", 2),
        initializers: repeated("Tensor", 5),
        inputs: repeated("Value", 11),
        outputs: repeated("Value", 12),
      },
    },
    Node: {
      fields: {
        inputs: repeated("string", 1),
        outputs: repeated("string", 2),
        name: field("string", 3),
        op: field("string", 4),
        attributes: repeated("Attribute", 5),
        domain: field("string", 7),
      },
    },
    Attribute: {
      fields: {
        name: field("string", 1),
        f: field("float", 2),
        i: field("int64", 3),
        s: field("bytes", 4),
        t: field("Tensor", 5),
        g: field("Graph", 6),
        floats: repeated("float", 7),
        ints: repeated("int64", 8),
        strings: repeated("bytes", 9),
        type: field("int32", 20),
      },
    },
    Tensor: {
      fields: {
        dims: repeated("int64", 1),
        type: field("int32", 2),
        name: field("string", 8),
        raw: field("bytes", 9),
        external: repeated("Entry", 13),
        place: field("int32", 14),
      },
    },
    Value: { fields: { name: field("string", 1), type: field("Type", 2) } },
    Type: { fields: { tensor: field("TensorType", 1) } },
    TensorType: { fields: { element: field("int32", 1), shape: field("Shape", 2) } },
    Shape: { fields: { dims: repeated("Dimension", 1) } },
    Dimension: { fields: { value: field("int64", 1), symbol: field("string", 2) } },
  },
});
const modelMessage = root.lookupType("Model");

/** IEEE 754 binary16 of a number, rounded to nearest, ties to even. */
export function toFloat16(value: number): number {
  const bits = new DataView(new ArrayBuffer(4));
  bits.setFloat32(0, value);
  const word = bits.getUint32(0);
  const sign = (word >>> 16) & 0x8000;
  const magnitude = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  const exponent = magnitude < 2 ** -14 ? -14 : Math.floor(Math.log2(magnitude));
  const steps = roundHalfEven(magnitude * 2 ** (10 - exponent));
  return sign | (magnitude < 2 ** -14 ? steps : ((exponent + 14) << 10) + steps);
}

function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

const writers: Record<
  ElementType,
  [bytes: number, write: (view: DataView, at: number, v: number) => void]
> = {
  float32: [4, (view, at, v) => view.setFloat32(at, v, true)],
  float64: [8, (view, at, v) => view.setFloat64(at, v, true)],
  float16: [2, (view, at, v) => view.setUint16(at, toFloat16(v), true)],
  uint8: [1, (view, at, v) => view.setUint8(at, v)],
  int8: [1, (view, at, v) => view.setInt8(at, v)],
  bool: [1, (view, at, v) => view.setUint8(at, v === 0 ? 0 : 1)],
  uint16: [2, (view, at, v) => view.setUint16(at, v, true)],
  int16: [2, (view, at, v) => view.setInt16(at, v, true)],
  uint32: [4, (view, at, v) => view.setUint32(at, v, true)],
  int32: [4, (view, at, v) => view.setInt32(at, v, true)],
  uint64: [8, (view, at, v) => view.setBigUint64(at, BigInt(v), true)],
  int64: [8, (view, at, v) => view.setBigInt64(at, BigInt(v), true)],
};

/** Little-endian bytes of numbers, as ONNX keeps raw tensors. */
export function tensorBytes(dtype: ElementType, data: TensorValue["data"]): Uint8Array {
  if (data instanceof Uint8Array) return data;
  const [size, write] = writers[dtype];
  const bytes = new Uint8Array(data.length * size);
  const view = new DataView(bytes.buffer);
  data.forEach((v: number | bigint, i: number) => {
    if (typeof v === "number") write(view, i * size, v);
    else view.setBigInt64(i * size, v, true);
  });
  return bytes;
}

function tensorMessage(value: TensorValue): object {
  const raw = tensorBytes(value.dtype, value.data);
  const expected = value.shape.reduce((a, b) => a * b, 1) * writers[value.dtype][0];
  if (raw.length !== expected)
    throw new RangeError(
      `Expected ${expected} bytes for tensor "${value.name ?? ""}" of shape [${value.shape.join(",")}], found ${raw.length}`,
    );
  const name = value.name === undefined ? {} : { name: value.name };
  const described = { ...name, dims: [...value.shape], type: ELEMENT_TYPES[value.dtype] };
  if (value.location === undefined) return { ...described, raw };
  // 1 is EXTERNAL of TensorProto.DataLocation.
  return { ...described, external: [{ key: "location", value: value.location }], place: 1 };
}

const utf8 = new TextEncoder();

function attributeMessage(name: string, attribute: Attribute): object {
  switch (attribute.kind) {
    case "float":
      return { name, f: attribute.value, type: 1 };
    case "int":
      return { name, i: attribute.value, type: 2 };
    case "string":
      return { name, s: utf8.encode(attribute.value), type: 3 };
    case "tensor":
      return { name, t: tensorMessage(attribute.value), type: 4 };
    case "graph":
      return { name, g: graphMessage(attribute.value), type: 5 };
    case "floats":
      return { name, floats: [...attribute.value], type: 6 };
    case "ints":
      return { name, ints: [...attribute.value], type: 7 };
    case "strings":
      return { name, strings: attribute.value.map((s) => utf8.encode(s)), type: 8 };
  }
}

function valueMessage(value: ValueInfo): object {
  const dims = value.shape.map((d) => (typeof d === "string" ? { symbol: d } : { value: d }));
  return {
    name: value.name,
    type: {
      tensor: { element: { ...ELEMENT_TYPES, ...OTHER_TYPES }[value.dtype], shape: { dims } },
    },
  };
}

function byName<T>(entries: Readonly<Record<string, T>> | undefined): [string, T][] {
  return Object.entries(entries ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
}

const nodeMessages = (nodes: readonly Node[]): object[] =>
  nodes.map((node, i) => ({
    inputs: [...node.inputs],
    outputs: [...node.outputs],
    name: node.name ?? `${node.op}_${i}`,
    op: node.op,
    ...(node.domain === undefined ? {} : { domain: node.domain }),
    attributes: byName(node.attributes).map(([key, a]) => attributeMessage(key, a)),
  }));

function graphMessage({ name, nodes, initializers, inputs, outputs }: GraphDescription): object {
  return {
    name,
    nodes: nodeMessages(nodes),
    initializers: (initializers ?? []).map(tensorMessage),
    inputs: inputs.map(valueMessage),
    outputs: outputs.map(valueMessage),
  };
}

/**
 * The model as the bytes of an .onnx file. Deterministic: attributes and metadata are written in
 * the order of their names, everything else in the order given. Throws RangeError where a tensor's
 * data does not fill its shape.
 */
export function onnxModel(model: ModelDescription): Uint8Array {
  const domains = new Set(model.nodes.map((n) => n.domain ?? "").filter((d) => d !== ""));
  const opsets = [
    { domain: "", version: model.opset ?? 17 },
    ...[...domains].sort().map((domain) => ({ domain, version: 1 })),
  ];
  const message = {
    irVersion: model.irVersion ?? 8,
    producer: model.producer ?? "radserve",
    ...(model.doc === undefined ? {} : { doc: model.doc }),
    graph: graphMessage(model),
    opsets,
    functions: (model.functions ?? []).map(({ name, domain, inputs, outputs, nodes }) => ({
      name,
      domain,
      inputs: [...inputs],
      outputs: [...outputs],
      nodes: nodeMessages(nodes),
      opsets,
    })),
    metadata: byName(model.metadata).map(([key, value]) => ({ key, value })),
  };
  return new Uint8Array(modelMessage.encode(modelMessage.create(message)).finish());
}
