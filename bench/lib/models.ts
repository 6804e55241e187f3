/**
 * The networks of the engine's bench, with random weights of a fixed seed: their speed is that of
 * trained ones.
 */
import {
  ELEMENT_TYPES,
  float,
  int,
  ints,
  onnxModel,
  type Attribute,
  type ElementType,
  type Node,
  type TensorValue,
} from "../../scripts/lib/onnx-model.js";
import { random } from "../../test/support/dicom.js";

/** Standard normal numbers (Box and Muller 1958). */
function normal(uniform: () => number): () => number {
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/**
 * A graph as it grows: every layer takes the name of its input and gives the name of its output.
 */
class Network {
  readonly nodes: Node[] = [];
  readonly initializers: TensorValue[] = [];
  readonly #normal: () => number;

  /** @param dtype of weights and activations; input and output are float32 whatever it is */
  constructor(
    seed: number,
    readonly dtype: "float32" | "float16" = "float32",
  ) {
    this.#normal = normal(random(seed));
  }

  /** The input, as the layers take it. */
  input(): string {
    return this.dtype === "float32"
      ? "x"
      : this.layer("Cast", ["x"], { to: int(ELEMENT_TYPES.float16) });
  }

  constant(shape: readonly number[], value: () => number): string {
    const name = `w${this.initializers.length}`;
    const data = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, value);
    const bytes = this.dtype === "float32" ? new Uint8Array(data.buffer) : Array.from(data);
    this.initializers.push({ name, dtype: this.dtype, shape, data: bytes });
    return name;
  }

  layer(op: string, inputs: readonly string[], attributes: Record<string, Attribute> = {}): string {
    const output = `t${this.nodes.length}`;
    this.nodes.push({ op, inputs, outputs: [output], attributes });
    return output;
  }

  /**
   * Weights of He et al. 2015, section 2.2: activations keep their variance, so they stay finite
   * and normal numbers.
   */
  conv(x: string, from: number, to: number, side: number, stride = 1): string {
    const deviation = Math.sqrt(2 / (from * side * side));
    const w = this.constant([to, from, side, side], () => this.#normal() * deviation);
    const pad = side >> 1;
    return this.layer("Conv", [x, w], {
      kernel_shape: ints([side, side]),
      strides: ints([stride, stride]),
      pads: ints([pad, pad, pad, pad]),
    });
  }

  normRelu(x: string, channels: number): string {
    const about = (mean: number, deviation: number) =>
      this.constant([channels], () => mean + deviation * Math.max(-3, Math.min(3, this.#normal())));
    const [scale, shift, mean, variance] = [
      about(1, 0.1),
      about(0, 0.1),
      about(0, 0.1),
      about(1, 0.1),
    ];
    const normalised = this.layer("BatchNormalization", [x, scale, shift, mean, variance], {
      epsilon: float(1e-5),
    });
    return this.layer("Relu", [normalised]);
  }

  pool(x: string, op: "MaxPool" | "AveragePool", side: number, pad: number): string {
    return this.layer(op, [x], {
      kernel_shape: ints([side, side]),
      strides: ints([2, 2]),
      pads: ints([pad, pad, pad, pad]),
    });
  }

  /** Global average, then one logit for each label. */
  head(x: string, channels: number, labels: number): string {
    const average = this.layer("Flatten", [this.layer("GlobalAveragePool", [x])], { axis: int(1) });
    const deviation = Math.sqrt(1 / channels);
    const w = this.constant([labels, channels], () => this.#normal() * deviation);
    const bias = this.constant([labels], () => 0);
    return this.layer("Gemm", [average, w, bias], { transB: int(1) });
  }

  /** The bytes of the model: input `x`, [batch, 1, height, width], output `y`, [batch, labels]. */
  bytes(name: string, side: number | undefined, last: string, labels: number): Uint8Array {
    const y = { inputs: [last], outputs: ["y"] };
    if (this.dtype === "float32") this.nodes.push({ op: "Identity", ...y });
    else this.nodes.push({ op: "Cast", ...y, attributes: { to: int(ELEMENT_TYPES.float32) } });
    const sides = side === undefined ? ["height", "width"] : [side, side];
    return onnxModel({
      name,
      inputs: [{ name: "x", dtype: "float32", shape: ["batch", 1, ...sides] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["batch", labels] }],
      nodes: this.nodes,
      initializers: this.initializers,
    });
  }
}

export const LABELS = 18;

const GROWTH = 32;

/**
 * DenseNet-121 (Huang et al. 2017, table 1) for one channel of 224 x 224 and 18 labels, as chest
 * X-ray models have it.
 */
export function denseNet121(dtype: "float32" | "float16" = "float32"): Uint8Array {
  return denseNet("densenet121", [6, 12, 24, 16], 224, dtype);
}

/** Such a network of four layers, for 64 x 64 pixels. */
export const smallDenseNet = (): Uint8Array => denseNet("small-densenet", [2, 2], 64, "float32");

function denseNet(
  name: string,
  blocks: readonly number[],
  side: number,
  dtype: "float32" | "float16",
): Uint8Array {
  const net = new Network(121, dtype);
  let channels = 64;
  let x = net.pool(
    net.normRelu(net.conv(net.input(), 1, channels, 7, 2), channels),
    "MaxPool",
    3,
    1,
  );
  for (const [block, layers] of blocks.entries()) {
    for (let layer = 0; layer < layers; layer++) {
      const narrow = net.conv(net.normRelu(x, channels), channels, 4 * GROWTH, 1);
      const grown = net.conv(net.normRelu(narrow, 4 * GROWTH), 4 * GROWTH, GROWTH, 3);
      x = net.layer("Concat", [x, grown], { axis: int(1) });
      channels += GROWTH;
    }
    if (block === blocks.length - 1) break;
    x = net.pool(
      net.conv(net.normRelu(x, channels), channels, channels / 2, 1),
      "AveragePool",
      2,
      0,
    );
    channels /= 2;
  }
  return net.bytes(name, side, net.head(net.normRelu(x, channels), channels, LABELS), LABELS);
}

/** Four strided convolutions of an image of any size: a few milliseconds on one core. */
export function smallCnn(dtype: "float32" | "float16" = "float32"): Uint8Array {
  const net = new Network(4, dtype);
  let x = net.input();
  let channels = 1;
  for (const next of [16, 32, 64, 128]) {
    x = net.normRelu(net.conv(x, channels, next, 3, 2), next);
    channels = next;
  }
  return net.bytes("small-cnn", undefined, net.head(x, channels, LABELS), LABELS);
}

/** Words of a text, numbers of a word, heads and layers of the transformer. */
export const TRANSFORMER = { words: 128, width: 256, heads: 4, layers: 4 } as const;

/**
 * The encoder of Vaswani et al. 2017, section 3.1, with the normalisation before each part (Xiong
 * et al. 2020): [batch, words, width] in and out.
 */
export function transformer(): Uint8Array {
  const { words, width, heads, layers } = TRANSFORMER;
  const network = new Network(7);
  const uniform = normal(random(11));
  const weights = (from: number, to: number) =>
    network.constant([from, to], () => uniform() / Math.sqrt(from));
  const shapeOf = (...sides: number[]) => {
    const name = `s${network.initializers.length}`;
    network.initializers.push({ name, dtype: "int64", shape: [sides.length], data: sides });
    return name;
  };
  const normed = (x: string) => {
    const [scale, shift] = [network.constant([width], () => 1), network.constant([width], () => 0)];
    return network.layer("LayerNormalization", [x, scale, shift], { axis: int(-1) });
  };
  const inHeads = shapeOf(0, words, heads, width / heads);
  const together = shapeOf(0, words, width);
  const head = (x: string, perm: readonly number[]) => {
    const split = network.layer("Reshape", [
      network.layer("MatMul", [x, weights(width, width)]),
      inHeads,
    ]);
    return network.layer("Transpose", [split], { perm: ints(perm) });
  };
  const attention = (x: string) => {
    const [q, k, v] = [head(x, [0, 2, 1, 3]), head(x, [0, 2, 3, 1]), head(x, [0, 2, 1, 3])];
    const root = network.constant([1], () => Math.sqrt(width / heads));
    const scores = network.layer("Div", [network.layer("MatMul", [q, k]), root]);
    const mixed = network.layer("MatMul", [
      network.layer("Softmax", [scores], { axis: int(-1) }),
      v,
    ]);
    const back = network.layer("Transpose", [mixed], { perm: ints([0, 2, 1, 3]) });
    return network.layer("MatMul", [
      network.layer("Reshape", [back, together]),
      weights(width, width),
    ]);
  };
  const feedForward = (x: string) => {
    const inner = network.layer("Relu", [network.layer("MatMul", [x, weights(width, 4 * width)])]);
    return network.layer("MatMul", [inner, weights(4 * width, width)]);
  };
  let x = "x";
  for (let layer = 0; layer < layers; layer++) {
    x = network.layer("Add", [x, attention(normed(x))]);
    x = network.layer("Add", [x, feedForward(normed(x))]);
  }
  network.layer("Identity", [x]);
  const nodes = network.nodes.map((node, i) =>
    i === network.nodes.length - 1 ? { ...node, outputs: ["y"] } : node,
  );
  const value = (name: string) =>
    ({ name, dtype: "float32", shape: ["batch", words, width] }) as const;
  const { initializers } = network;
  return onnxModel({
    name: "transformer",
    inputs: [value("x")],
    outputs: [value("y")],
    nodes,
    initializers,
  });
}

/** Classes of the small network of volumes, its background among them. */
export const VOLUME_CLASSES = 4;

/**
 * Three convolutions of 3 x 3 x 3 over a volume of any size: some 2,900 multiplications a voxel.
 */
export function smallSegmenter3d(): Uint8Array {
  const next = normal(random(3));
  const channels = [1, 8, 8, VOLUME_CLASSES] as const;
  const nodes: Node[] = [];
  const initializers: TensorValue[] = [];
  for (let layer = 0; layer + 1 < channels.length; layer++) {
    const [from, to] = [channels[layer]!, channels[layer + 1]!];
    const deviation = Math.sqrt(2 / (27 * from));
    const data = Float32Array.from({ length: to * from * 27 }, () => next() * deviation);
    const shape = [to, from, 3, 3, 3];
    initializers.push({
      name: `w${layer}`,
      dtype: "float32",
      shape,
      data: new Uint8Array(data.buffer),
    });
    const isLast = layer + 2 === channels.length;
    const pads = ints([1, 1, 1, 1, 1, 1]);
    nodes.push({
      op: "Conv",
      inputs: [layer === 0 ? "x" : `r${layer - 1}`, `w${layer}`],
      outputs: [isLast ? "y" : `c${layer}`],
      attributes: { pads },
    });
    if (!isLast) nodes.push({ op: "Relu", inputs: [`c${layer}`], outputs: [`r${layer}`] });
  }
  const shape = (count: number) => ["batch", count, "slices", "rows", "columns"];
  return onnxModel({
    name: "small-3d",
    inputs: [{ name: "x", dtype: "float32", shape: shape(1) }],
    outputs: [{ name: "y", dtype: "float32", shape: shape(VOLUME_CLASSES) }],
    nodes,
    initializers,
  });
}

/**
 * A network as nnU-Net plans it for volumes at full resolution (Isensee et al. 2021, PlainConvUNet
 * of nnU-Net v2): six stages of two convolutions, instance norm and leaky ReLU, and a way back by
 * transposed convolutions. Its windows have sides that 32 divides.
 */
export function unet3d(classes: number): Uint8Array {
  const STAGES = [32, 64, 128, 256, 320, 320];
  const net = new Network(32);
  const sides = (value: number) => ints([value, value, value]);
  const weights = (to: number, from: number, side: number) => {
    // Uniform numbers of He et al.'s variance: a hundred megabytes of normal ones would take longer
    // than a window
    const most = Math.sqrt(6 / (from * side ** 3));
    return net.constant([to, from, side, side, side], () => (2 * uniform() - 1) * most);
  };
  const uniform = random(31);
  const block = (x: string, from: number, to: number, stride: number) => {
    const pads = ints([1, 1, 1, 1, 1, 1]);
    const conv = net.layer("Conv", [x, weights(to, from, 3)], {
      kernel_shape: sides(3),
      strides: sides(stride),
      pads,
    });
    const [scale, shift] = [1, 0].map((value) => net.constant([to], () => value)) as [
      string,
      string,
    ];
    const norm = net.layer("InstanceNormalization", [conv, scale, shift], { epsilon: float(1e-5) });
    return net.layer("LeakyRelu", [norm], { alpha: float(0.01) });
  };
  let x = net.input();
  let channels = 1;
  const skips: string[] = [];
  for (const [stage, next] of STAGES.entries()) {
    x = block(block(x, channels, next, stage === 0 ? 1 : 2), next, next, 1);
    skips.push(x);
    channels = next;
  }
  for (let stage = STAGES.length - 2; stage >= 0; stage--) {
    const next = STAGES[stage]!;
    const up = net.layer("ConvTranspose", [x, weights(channels, next, 2)], {
      kernel_shape: sides(2),
      strides: sides(2),
    });
    x = net.layer("Concat", [up, skips[stage]!], { axis: int(1) });
    x = block(block(x, 2 * next, next, 1), next, next, 1);
    channels = next;
  }
  net.nodes.push({ op: "Conv", inputs: [x, weights(classes, channels, 1)], outputs: ["y"] });
  const shape = (count: number) => ["batch", count, "slices", "rows", "columns"];
  return onnxModel({
    name: "unet-3d",
    inputs: [{ name: "x", dtype: "float32", shape: shape(1) }],
    outputs: [{ name: "y", dtype: "float32", shape: shape(classes) }],
    nodes: net.nodes,
    initializers: net.initializers,
  });
}

/**
 * Input `x`, [batch, height, width] of any type, made numbers, shifted and squashed: y = tanh(x /
 * 50 - 1).
 */
export function scaled(dtype: ElementType): Uint8Array {
  const constant = (name: string, value: number): TensorValue => ({
    name,
    dtype: "float32",
    shape: [],
    data: [value],
  });
  return onnxModel({
    name: "scaled",
    inputs: [{ name: "x", dtype, shape: ["batch", "height", "width"] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["batch", "height", "width"] }],
    nodes: [
      { op: "Cast", inputs: ["x"], outputs: ["a"], attributes: { to: int(ELEMENT_TYPES.float32) } },
      { op: "Div", inputs: ["a", "fifty"], outputs: ["b"] },
      { op: "Sub", inputs: ["b", "one"], outputs: ["c"] },
      { op: "Tanh", inputs: ["c"], outputs: ["y"] },
    ],
    initializers: [constant("fifty", 50), constant("one", 1)],
  });
}
