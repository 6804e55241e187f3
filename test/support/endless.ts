/**
 * Graphs that never end by themselves: what runs or is loaded there is at work until somebody ends
 * it, however fast the machine is. And graphs that ask for more memory than they may have.
 */
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { graph, int, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { copyModel } from "./manifests.js";

const shape = ["batch", 1, 64, 64];
const image = (name: string) => ({ name, dtype: "float32", shape }) as const;

/** A model, not needed by its server, that takes `hu` and gives `y`. */
function optional(
  directory: string,
  name: string,
  description: Omit<ModelDescription, "name">,
): void {
  const file = onnxModel({ name, ...description });
  const folder = copyModel(directory, "ct-tissue", name, (m) => {
    m.stage = "draft";
    m.required = false;
    delete m.canary;
    m.results.outputs = ["json"];
    m.files = [{ path: "model.onnx", sha256: createHash("sha256").update(file).digest("hex") }];
    Object.assign(m.inputs[0]!, { size: { kind: "fixed", height: 64, width: 64 }, fit: "stretch" });
    m.outputs = [{ kind: "heatmap", tensor: "y", activation: "none", label: { label: "value" } }];
  });
  writeFileSync(join(folder, "model.onnx"), file);
}

type Graph = Omit<ModelDescription, "name">;
type Value = ModelDescription["inputs"][number];

/** The initializer that `isOver` compares with. */
const limitOf = (over: number) =>
  ({ name: "limit", dtype: "float32", shape: [], data: [over] }) as const;

/** "is_over": whether the input has a value above the limit. */
const isOver = (x: Value): Graph["nodes"] => [
  { op: "ReduceMax", inputs: [x.name], outputs: ["most"], attributes: { keepdims: int(0) } },
  { op: "Greater", inputs: ["most", "limit"], outputs: ["is_over"] },
];

/** The initializer of `givesBack`. */
const ZERO = { name: "zero", dtype: "float32", shape: [], data: [0] } as const;

/** Its output is the input as it was, and needs a tensor all the same: nothing of it is added. */
const givesBack = (x: Value, y: Value, needed: string): Graph["nodes"] => [
  { op: "ReduceSum", inputs: [needed], outputs: ["sum"], attributes: { keepdims: int(0) } },
  { op: "Mul", inputs: ["sum", "zero"], outputs: ["nothing"] },
  { op: "Add", inputs: [x.name, "nothing"], outputs: [y.name] },
];

/**
 * It gives its input back after a loop that has no end.
 * @param over there is a loop only for an input with a value above this
 */
export function endlessGraph(x: Value, y: Value, over?: number): Graph {
  const goOn = (name: string) => ({ name, dtype: "bool", shape: [] }) as const;
  const body = {
    name: "body",
    inputs: [{ name: "i", dtype: "int64", shape: [] }, goOn("c"), { ...x, name: "v" }] as const,
    outputs: [goOn("c2"), { ...x, name: "v2" }],
    nodes: [
      { op: "Identity", inputs: ["c"], outputs: ["c2"] },
      { op: "Identity", inputs: ["v"], outputs: ["v2"] },
    ],
  };
  const loop = (condition: string) => ({
    op: "Loop",
    inputs: ["", condition, x.name],
    outputs: [y.name],
    attributes: { body: graph(body) },
  });
  if (over === undefined) return { inputs: [x], outputs: [y], nodes: [loop("")] };
  return {
    inputs: [x],
    outputs: [y],
    initializers: [limitOf(over)],
    nodes: [...isOver(x), loop("is_over")],
  };
}

/**
 * A constant that takes hours of products to compute, which ONNX Runtime does while it makes a
 * session. It folds no loops, so that an amount of work has to stand for one; between two products
 * it looks whether it is to stop.
 */
export function foldingGraph(x: Value, y: Value): Graph {
  const side = 1024;
  const products = Array.from({ length: 20_000 }, (_, i) => ({
    op: "MatMul",
    inputs: [i === 0 ? "a" : `a${i - 1}`, "a"],
    outputs: [`a${i}`],
  }));
  return {
    inputs: [x],
    outputs: [y],
    initializers: [
      { name: "a", dtype: "float32", shape: [side, side], data: new Uint8Array(4 * side * side) },
    ],
    nodes: [
      ...products,
      { op: "ReduceSum", inputs: [`a${products.length - 1}`], outputs: ["sum"] },
      { op: "Add", inputs: [x.name, "sum"], outputs: [y.name] },
    ],
  };
}

/** It gives its input back after a loop that has no end. */
export function endless(directory: string): void {
  optional(directory, "endless", endlessGraph(image("hu"), image("y")));
}

/** Its run does not end for images with a value above `limit`; others it gives back. */
export function endlessOver(directory: string, limit: number): void {
  optional(directory, "endless-over", endlessGraph(image("hu"), image("y"), limit));
}

/**
 * It gives its input back after it had so many numbers in memory; for an input without a value
 * above `over` it has none.
 */
function hungryGraph(x: Value, y: Value, numbers: number, over: number): Graph {
  return {
    inputs: [x],
    outputs: [y],
    initializers: [
      limitOf(over),
      { name: "numbers", dtype: "int64", shape: [], data: [numbers] },
      { name: "axis", dtype: "int64", shape: [1], data: [0] },
      ZERO,
    ],
    nodes: [
      ...isOver(x),
      { op: "Cast", inputs: ["is_over"], outputs: ["times"], attributes: { to: int(7) } },
      { op: "Mul", inputs: ["times", "numbers"], outputs: ["count"] },
      { op: "Unsqueeze", inputs: ["count", "axis"], outputs: ["shape"] },
      { op: "ConstantOfShape", inputs: ["shape"], outputs: ["many"] },
      ...givesBack(x, y, "many"),
    ],
  };
}

/** Constants of so many numbers, which ONNX Runtime computes while it makes a session. */
function foldsMuchGraph(x: Value, y: Value, numbers: number): Graph {
  return {
    inputs: [x],
    outputs: [y],
    initializers: [{ name: "shape", dtype: "int64", shape: [1], data: [numbers] }],
    nodes: [
      { op: "ConstantOfShape", inputs: ["shape"], outputs: ["many"] },
      { op: "Sin", inputs: ["many"], outputs: ["sines"] },
      { op: "ReduceMax", inputs: ["sines"], outputs: ["most"], attributes: { keepdims: int(0) } },
      { op: "Add", inputs: [x.name, "most"], outputs: [y.name] },
    ],
  };
}

/**
 * One node of its run compares a million boxes with one another, which takes many minutes, for
 * images with a value above `over`. ONNX Runtime does not look whether a run is to stop before a
 * node ends; no kernel has no end, so that an amount of work has to stand for one.
 */
export function stuckOver(directory: string, over: number): void {
  const [x, y] = [image("hu"), image("y")];
  const int64 = (name: string, shape: number[], data: number[]) =>
    ({ name, dtype: "int64", shape, data }) as const;
  const float32 = (name: string, shape: number[], data: number[]) =>
    ({ name, dtype: "float32", shape, data }) as const;
  optional(directory, "stuck-over", {
    inputs: [x],
    outputs: [y],
    initializers: [
      limitOf(over),
      int64("none", [], [0]),
      int64("one", [], [1]),
      int64("more", [], [1_000_000]),
      int64("around", [2], [0, 2]),
      int64("before", [2], [0, 1]),
      int64("all", [1], [1_000_000]),
      float32("side", [1], [0.5]),
      float32("overlap", [1], [0.5]),
      ZERO,
    ],
    nodes: [
      ...isOver(x),
      { op: "Cast", inputs: ["is_over"], outputs: ["times"], attributes: { to: int(7) } },
      { op: "Mul", inputs: ["times", "more"], outputs: ["others"] },
      { op: "Add", inputs: ["others", "one"], outputs: ["count"] },
      { op: "Range", inputs: ["none", "count", "one"], outputs: ["numbers"] },
      { op: "Cast", inputs: ["numbers"], outputs: ["places"], attributes: { to: int(1) } },
      { op: "Unsqueeze", inputs: ["places", "around"], outputs: ["from"] },
      { op: "Add", inputs: ["from", "side"], outputs: ["to"] },
      {
        op: "Concat",
        inputs: ["from", "from", "to", "to"],
        outputs: ["boxes"],
        attributes: { axis: int(2) },
      },
      { op: "Unsqueeze", inputs: ["places", "before"], outputs: ["scores"] },
      {
        op: "NonMaxSuppression",
        inputs: ["boxes", "scores", "all", "overlap"],
        outputs: ["chosen"],
      },
      { op: "Cast", inputs: ["chosen"], outputs: ["chosen_floats"], attributes: { to: int(1) } },
      ...givesBack(x, y, "chosen_floats"),
    ],
  });
}

/** Its run asks for so many numbers for images with a value above `over`. */
export function hungryOver(directory: string, numbers: number, over: number): void {
  optional(directory, "hungry-over", hungryGraph(image("hu"), image("y"), numbers, over));
}

/**
 * Its run takes 2 MiB more in each round of a loop without an end, for images with a value above
 * `over`. The rounds copy what there is, so that some hundred MiB take seconds.
 */
export function growsOver(directory: string, over: number): void {
  const [x, y] = [image("hu"), image("y")];
  const goOn = (name: string) => ({ name, dtype: "bool", shape: [] }) as const;
  const body = {
    name: "body",
    inputs: [
      { name: "i", dtype: "int64", shape: [] },
      goOn("c"),
      { name: "v", dtype: "float32", shape: ["n"] },
    ] as const,
    outputs: [goOn("c2"), { name: "v2", dtype: "float32", shape: ["m"] } as const],
    nodes: [
      { op: "Identity", inputs: ["c"], outputs: ["c2"] },
      { op: "Concat", inputs: ["v", "more"], outputs: ["v2"], attributes: { axis: int(0) } },
    ],
  };
  optional(directory, "grows-over", {
    inputs: [x],
    outputs: [y],
    initializers: [
      limitOf(over),
      { name: "length", dtype: "int64", shape: [1], data: [2 ** 19] },
      ZERO,
    ],
    nodes: [
      ...isOver(x),
      { op: "ConstantOfShape", inputs: ["length"], outputs: ["more"] },
      {
        op: "Loop",
        inputs: ["", "is_over", "more"],
        outputs: ["all"],
        attributes: { body: graph(body) },
      },
      ...givesBack(x, y, "all"),
    ],
  });
}

/** Making a session of it asks for so many numbers. */
export function foldsMuch(directory: string, numbers: number): void {
  optional(directory, "folds-much", foldsMuchGraph(image("hu"), image("y"), numbers));
}

/** ONNX Runtime does not end making a session of it. */
export function foldsForLong(directory: string): void {
  optional(directory, "folds-for-long", foldingGraph(image("hu"), image("y")));
}
