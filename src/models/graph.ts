/**
 * Whether a manifest and a graph fit each other, before anything runs: names, types, layouts, sizes, and how many
 * labels the last layer has. The canary shows what a dynamic dimension leaves open.
 */
import { closest } from "fastest-levenshtein";
import type { GraphInfo } from "../engine/types.js";
import type { TensorInfo } from "../engine/tensor.js";
import {
  channelsOf,
  IMAGE_TYPES,
  inputOf,
  isImageInput,
  mayOverlap,
  NUMBER_TYPES,
  numbersOf,
  tableOf,
  type AttributeInput,
  type ImageInput,
  type Manifest,
  type ModelInput,
  type ModelOutput,
} from "../manifest/manifest.js";
import type { Tiling } from "../manifest/tiling.js";
import { columnMistakes, tableLayout, type DetectionTable } from "../manifest/detection-table.js";
import { pathText, type Problem } from "./explain.js";

/** Every disagreement between a manifest and the graph that its first file holds. */
export function checkGraph(manifest: Manifest, graph: GraphInfo): Problem[] {
  return [
    ...manifest.inputs.flatMap((input, i) =>
      isImageInput(input)
        ? checkInput(
            { ...input, layout: graphLayout(input.layout, manifest.tiling) },
            manifest.tiling,
            graph.inputs,
            ["inputs", i],
          )
        : checkNumbers(input, graph.inputs, ["inputs", i]),
    ),
    ...unfedInputs(manifest, graph),
    ...manifest.outputs.flatMap((output, o) =>
      checkOutput(
        output,
        { manifest, layout: graphLayout(layoutFor(manifest, output), manifest.tiling) },
        graph.outputs,
        ["outputs", o],
      ),
    ),
    ...checkCanaryNames(manifest, graph),
    ...checkPrecision(manifest, graph),
  ];
}

/** The layout of what the graph is given: windows of two sides take each slice of a volume by itself. */
function graphLayout(layout: ImageInput["layout"], tiling: Tiling | undefined): ImageInput["layout"] {
  if (tiling?.window.length !== 2) return layout;
  return layout.endsWith("C") ? "NHWC" : "NCHW";
}

/** What is wrong with the graphs of a model: each beside the manifest, and those of an ensemble beside each other. */
export async function checkGraphs(
  manifest: Manifest,
  paths: readonly string[],
  engine: { inspectGraph(path: string): Promise<GraphInfo> },
): Promise<Problem[]> {
  const problems: Problem[] = [];
  const graphs: GraphInfo[] = [];
  for (const path of paths) graphs.push(await engine.inspectGraph(path));
  const [first] = graphs;
  graphs.forEach((graph, i) => {
    const path = pathText(["ensemble", "graphs", i]);
    for (const problem of checkGraph(manifest, graph))
      if (i === 0 || !problems.some((known) => known.path === problem.path))
        problems.push(i === 0 ? problem : { ...problem, message: `${problem.message} (${path})` });
    for (const side of ["inputs", "outputs"] as const) {
      const [expected, found] = [first, graph].map((one) => one?.[side].map(namedText).join(", "));
      if (expected !== found)
        problems.push({
          path,
          message: `Expected the ${side} of the first graph, ${expected}; found ${found}`,
        });
    }
    if (manifest.ensemble === undefined) return;
    for (const tensor of graph.outputs)
      if (!tensor.dtype.startsWith("float"))
        problems.push({ path, message: `Whole numbers have no mean; the graph gives ${namedText(tensor)}` });
  });
  return problems;
}

const namedText = (info: TensorInfo): string => `"${info.name}" ${tensorText(info)}`;

/** "float32 [batch, 3, ?, ?]". */
export function tensorText(info: TensorInfo): string {
  const sides = info.shape.map((side, i) => (side >= 0 ? String(side) : info.names[i] || "?"));
  return `${info.dtype} [${sides.join(", ")}]`;
}

function named(name: string, tensors: readonly TensorInfo[], path: PropertyKey[]): TensorInfo | Problem {
  const found = tensors.find((t) => t.name === name);
  if (found !== undefined) return found;
  const names = tensors.map((t) => t.name);
  return {
    path: pathText(path),
    message: `The graph has no tensor "${name}"; did you mean "${closest(name, names)}"? It has ${names.map((n) => `"${n}"`).join(", ")}`,
  };
}

const isProblem = (value: TensorInfo | Problem): value is Problem => "message" in value;

function unfedInputs(manifest: Manifest, graph: GraphInfo): Problem[] {
  const fed = new Set(manifest.inputs.map((i) => i.tensor));
  return graph.inputs
    .filter((t) => !fed.has(t.name) && manifest.inputs.length < graph.inputs.length)
    .map((t) => ({
      path: "inputs",
      message: `The graph also wants the input "${t.name}" (${tensorText(t)}), which the manifest does not feed`,
    }));
}

/** The layout of the image input on whose grid an output is. */
function layoutFor(manifest: Manifest, output: ModelOutput): ImageInput["layout"] {
  const input = manifest.inputs[inputOf(manifest, output)];
  return input !== undefined && isImageInput(input) ? input.layout : "NCHW";
}

/** What no manifest can feed to a graph's input, so that the graph has to be exported again. */
export function inputFault(info: TensorInfo): { dtype?: string; layout?: string } {
  const { dtype, shape } = info;
  const typed = ([...IMAGE_TYPES, ...NUMBER_TYPES] as string[]).includes(dtype);
  const found = `the graph's "${info.name}" is ${tensorText(info)}`;
  return {
    ...(typed
      ? {}
      : {
          dtype: `No input can be ${dtype}, and ${found}: export the graph with an input of float32 (a Cast to ${dtype} inside it gives the same)`,
        }),
    ...(shape.length !== 3 && shape.length <= 5
      ? {}
      : {
          layout: `No input can have ${shape.length} dimensions, and ${found}${shape.length === 3 ? ": it has no axis of images. Export it with one in front, [1, channels, height, width]" : ": export it with 4 dimensions, or 5 for volumes"}`,
        }),
  };
}

interface FedTensor {
  info: TensorInfo;
  /** The graph's tensor in words, for messages. */
  graph: string;
  /** Notes a problem of a field of the input unless it is `ok`. */
  expect: (field: string, ok: boolean, message: string) => void;
  /** All that are noted, for those of other fields. */
  problems: Problem[];
}

/** What every input asks of its tensor: that it is there, of its type and of its rank. `more` is asked of such a one. */
function checkFed(
  { tensor, dtype, layout }: Pick<ModelInput, "tensor" | "dtype" | "layout">,
  tensors: readonly TensorInfo[],
  path: PropertyKey[],
  more: (fed: FedTensor) => void,
): Problem[] {
  const info = named(tensor, tensors, [...path, "tensor"]);
  if (isProblem(info)) return [info];
  const problems: Problem[] = [];
  const expect = (field: string, ok: boolean, message: string) => {
    if (!ok) problems.push({ path: pathText([...path, field]), message });
  };
  const graph = `the graph's "${info.name}" is ${tensorText(info)}`;
  const rank = layout.length;
  const fault = inputFault(info);
  expect("dtype", dtype === info.dtype, fault.dtype ?? `Expected ${info.dtype}, found ${dtype}: ${graph}`);
  expect("layout", rank === info.shape.length, fault.layout ?? `${layout} has ${rank} dimensions; ${graph}`);
  if (rank === info.shape.length) more({ info, graph, expect, problems });
  return problems;
}

function checkNumbers(input: AttributeInput, tensors: readonly TensorInfo[], path: PropertyKey[]): Problem[] {
  return checkFed(input, tensors, path, ({ info, graph, expect }) => {
    const count = input.values.reduce((sum, value) => sum + numbersOf(value), 0);
    const fits = (axis: number, size: number) => (info.shape[axis] ?? -1) < 0 || info.shape[axis] === size;
    expect("tensor", fits(0, 1), `Expected one image or any number of them; ${graph}`);
    expect("values", info.shape.length === 1 || fits(1, count), `They give ${count} numbers; ${graph}`);
  });
}

/** Axis of each dimension by the layout's letters; D is absent in two dimensions. */
function sides(input: ImageInput): Record<string, number> {
  return Object.fromEntries(Array.from(input.layout).map((letter, axis) => [letter, axis]));
}

function checkInput(
  input: ImageInput,
  tiling: Tiling | undefined,
  tensors: readonly TensorInfo[],
  path: PropertyKey[],
): Problem[] {
  return checkFed(input, tensors, path, ({ info, graph, expect, problems }) => {
    const rank = info.shape.length;
    const axis = sides(input);
    const side = (letter: string) => info.shape[axis[letter] ?? -1] ?? -1;
    const fits = (letter: string, size: number) => side(letter) < 0 || side(letter) === size;
    expect("tensor", fits("N", 1), `Expected one image or any number of them; ${graph}`);
    const channels = channelsOf(input);
    const { neighbours, roles } = input;
    const said = `${input.channels}${neighbours === undefined ? "" : " with neighbours"}${roles === undefined ? "" : ` of ${roles.length} roles`}`;
    expect("channels", fits("C", channels), `${said} gives ${channels} channels; ${graph}`);
    if (tiling !== undefined) {
      const [width = 1, height = 1, depth = 1] = tiling.window.toReversed();
      const ok = fits("H", height) && fits("W", width) && (rank < 5 || fits("D", depth));
      if (!ok)
        problems.push({
          path: "tiling.window",
          message: `${tiling.window.join(" x ")} does not fit: ${graph}`,
        });
    } else if (input.size.kind === "fixed") {
      const { height, width, depth } = input.size;
      const ok = fits("H", height) && fits("W", width) && (depth === undefined || fits("D", depth));
      expect(
        "size",
        ok,
        `${[depth, height, width].filter((s) => s !== undefined).join(" x ")} does not fit: ${graph}`,
      );
    } else {
      const open = side("H") < 0 && side("W") < 0 && side("D") < 0;
      const wanted = rank === 5 ? "depth, height and width" : "height and width";
      expect("size", open, `"${input.size.kind}" needs dynamic ${wanted}; ${graph}`);
    }
  });
}

function checkOutput(
  output: ModelOutput,
  { manifest, layout }: { manifest: Manifest; layout: ImageInput["layout"] },
  tensors: readonly TensorInfo[],
  path: PropertyKey[],
): Problem[] {
  if (output.kind === "detection_table") return checkTable(output, tensors, path);
  if (output.kind === "detection") return checkDetection(output, tensors, path);
  const integersToo = output.kind === "segmentation" && output.activation === "label_map";
  const info = namedOutput(output.tensor, tensors, [...path, "tensor"], integersToo);
  if (isProblem(info)) return [info];
  const fault =
    output.kind === "classification" || output.kind === "regression"
      ? scoresFault(output, info)
      : mapFault(output, mapChannels(output, manifest), layout, info);
  if (fault === undefined) return [];
  const message = `Expected ${fault.expected}, found the graph's "${info.name}" as ${tensorText(info)}`;
  return [{ path: pathText([...path, fault.field]), message }];
}

/** A tensor of the graph that holds fractions, or where that is all the same, integers. */
function namedOutput(
  name: string,
  tensors: readonly TensorInfo[],
  path: PropertyKey[],
  integersToo: boolean,
): TensorInfo | Problem {
  const info = named(name, tensors, path);
  if (isProblem(info) || integersToo || info.dtype.startsWith("float")) return info;
  const found = `found the graph's "${info.name}" as ${tensorText(info)}`;
  return { path: pathText(path), message: `Expected float32, float16 or float64, ${found}` };
}

interface Fault {
  field: string;
  expected: string;
}

/** What keeps a tensor from holding one value for each label. */
function scoresFault(
  output: Extract<ModelOutput, { kind: "classification" | "regression" }>,
  { shape }: TensorInfo,
): Fault | undefined {
  const [field, wanted] =
    output.kind === "regression" ? ["values", output.values.length] : ["labels", output.labels.length];
  const known = shape.filter((side) => side >= 0).reduce((a, b) => a * b, 1);
  const dynamic = shape.slice(1).some((side) => side < 0);
  if (dynamic ? wanted % known === 0 : wanted === known) return undefined;
  return { field, expected: `${wanted} values` };
}

/** What keeps a tensor from holding a map as postprocess/maps.h reads it: a side of length one may be left out. */
function mapFault(
  output: Extract<ModelOutput, { kind: "segmentation" | "probability_map" | "heatmap" }>,
  channels: number,
  layout: ImageInput["layout"],
  { shape }: TensorInfo,
): Fault | undefined {
  const rank = layout.length;
  const least = channels === 1 ? rank - 2 : rank - 1;
  if (shape.length < least || shape.length > rank)
    return { field: "tensor", expected: `a map with ${least} to ${rank} dimensions` };
  if (shape.length === rank && (shape[0] ?? -1) >= 0 && shape[0] !== 1)
    return { field: "tensor", expected: "one image or any number of them" };
  if (shape.length < rank && channels === 1) return undefined;
  const [first, last] = [shape.at(1 - rank), shape.at(-1)];
  if (first === channels || last === channels || (layout.endsWith("C") ? last : first) === -1)
    return undefined;
  const field = output.kind === "segmentation" ? "labels" : "tensor";
  return { field, expected: `${channels} channel${channels === 1 ? "" : "s"}` };
}

/** How many channels a map must have. */
function mapChannels(output: ModelOutput, { outputs }: Manifest): number {
  const coefficients = tableOf(outputs, output)?.mask_coefficients;
  if (coefficients !== undefined) return coefficients;
  if (output.kind !== "segmentation" || output.activation === "label_map") return 1;
  return output.labels.length + (mayOverlap(output.activation) ? 0 : 1);
}

/** Boxes and scores lie one after the other: in a tensor that runs the other way each score is another box's. */
function checkDetection(
  output: Extract<ModelOutput, { kind: "detection" }>,
  tensors: readonly TensorInfo[],
  path: PropertyKey[],
): Problem[] {
  const columns = output.classes === undefined ? output.labels.length : 1;
  const parts = [
    { part: "boxes", tensor: output.boxes.tensor, last: 4, what: "the 4 numbers of a box" },
    // A tensor of one score a box may or may not have a dimension for it.
    {
      part: "scores",
      tensor: output.scores.tensor,
      last: columns === 1 ? undefined : columns,
      what: `a score for each of the ${columns} labels`,
    },
    ...(output.classes === undefined
      ? []
      : [{ part: "classes", tensor: output.classes.tensor, last: undefined, what: "" }]),
  ];
  return parts.flatMap(({ part, tensor, last, what }) => {
    const info = namedOutput(tensor, tensors, [...path, part, "tensor"], part === "classes");
    if (isProblem(info)) return [info];
    const found = info.shape.at(-1) ?? -1;
    if (last === undefined || found < 0 || found === last) return [];
    const message = `Expected ${what} in the last dimension, found ${found}: the graph's "${info.name}" is ${tensorText(info)}. Have the export split or transpose it`;
    return [{ path: pathText([...path, part, "tensor"]), message }];
  });
}

/** Read the other way round, the numbers of a table would be another box's. */
function checkTable(output: DetectionTable, tensors: readonly TensorInfo[], path: PropertyKey[]): Problem[] {
  const info = namedOutput(output.tensor, tensors, [...path, "tensor"], false);
  if (isProblem(info)) return [info];
  if (columnMistakes(output).length > 0) return [];
  const { shape } = info;
  const found = `found the graph's "${info.name}" as ${tensorText(info)}`;
  const { columns } = tableLayout(output);
  const rows = output.axes === "boxes_columns";
  if ((shape.length !== 2 && shape.length !== 3) || (shape.length === 3 && (shape[0] ?? 0) > 1)) {
    const message = `Expected [1, ${rows ? `boxes, ${columns}` : `${columns}, boxes`}], ${found}`;
    return [{ path: pathText([...path, "tensor"]), message }];
  }
  const [side = -1, other = -1] = [shape.at(rows ? -1 : -2), shape.at(rows ? -2 : -1)];
  if (side < 0 || side === columns) return [];
  const turned =
    other === columns
      ? `. Its other axis has ${columns}: is axes "${rows ? "columns_boxes" : "boxes_columns"}"?`
      : "";
  const message = `Expected ${columns} columns, with one for each of the ${output.labels.length} labels in class_scores; ${found}${turned}`;
  return [{ path: pathText([...path, "columns"]), message }];
}

function checkCanaryNames(manifest: Manifest, graph: GraphInfo): Problem[] {
  return (manifest.canary?.expected ?? []).flatMap((expected, i) => {
    const info = named(expected.tensor, graph.outputs, ["canary", "expected", i, "tensor"]);
    return isProblem(info) ? [info] : [];
  });
}

/** Nothing is converted: the graph is what it was validated as, and the manifest says which that is. */
function checkPrecision(manifest: Manifest, graph: GraphInfo): Problem[] {
  const { precision } = manifest.execution;
  if ((precision === "float16") === graph.float16) return [];
  const message = graph.float16
    ? `Expected float16, because most of the graph's weights are; found ${precision}`
    : "float16 means that the graph itself is float16, and this one is not: convert and validate it first, or enter float32 or tf32";
  return [{ path: "execution.precision", message }];
}
