/**
 * Whether a manifest and a graph fit each other, before anything runs: names, types, layouts,
 * sizes, and how many labels the last layer has. The canary shows what a dynamic dimension leaves
 * open.
 */
import type { GraphInfo } from "../engine/types.js";
import type { TensorInfo } from "../base/tensor.js";
import {
  channelsOf,
  IMAGE_TYPES,
  inputOf,
  isImageInput,
  NUMBER_TYPES,
  numbersOf,
  type AttributeInput,
  type ImageInput,
  type Manifest,
  type ModelInput,
} from "../manifest/manifest.js";
import {
  isFault,
  namedTensor,
  namedText,
  tensorText,
  type Fault,
} from "../manifest/outputs/graph-fit.js";
import { kindOf, type ModelOutput } from "../manifest/outputs/outputs.js";
import type { Tiling } from "../manifest/tiling.js";
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
    ...manifest.outputs.flatMap((output, o) => {
      const input = inputFor(manifest, output);
      const layout = graphLayout(input?.layout ?? "NCHW", manifest.tiling);
      const side = {
        tensors: graph.outputs,
        rank: layout.length,
        channelsLast: layout.endsWith("C"),
        sides: sidesOf(layout, input, manifest.tiling),
        tiled: manifest.tiling !== undefined,
      };
      const faults = kindOf(output).graphFaults(output, { ...side, outputs: manifest.outputs });
      return faults.map((fault) => problemAt(["outputs", o], fault));
    }),
    ...checkCanaryNames(manifest, graph),
    ...checkPrecision(manifest, graph),
  ];
}

/**
 * The layout of what the graph is given: windows of two sides take each slice of a volume by
 * itself.
 */
function graphLayout(
  layout: ImageInput["layout"],
  tiling: Tiling | undefined,
): ImageInput["layout"] {
  if (tiling?.window.length !== 2) return layout;
  return layout.endsWith("C") ? "NHWC" : "NCHW";
}

/** Who looks at a graph: an engine, or a process of its own (ModelTrials.within). */
export interface GraphLook {
  inspectGraph(path: string): Promise<GraphInfo>;
}

/**
 * Faults of the graphs of a model: each beside the manifest, and those of an ensemble beside each
 * other.
 */
export async function checkGraphs(
  manifest: Manifest,
  paths: readonly string[],
  look: GraphLook,
): Promise<Problem[]> {
  const problems: Problem[] = [];
  const graphs: GraphInfo[] = [];
  for (const path of paths) graphs.push(await look.inspectGraph(path));
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
        problems.push({
          path,
          message: `Whole numbers have no mean; the graph gives ${namedText(tensor)}`,
        });
  });
  return problems;
}

const problemAt = (at: (string | number)[], { path, message }: Fault): Problem => ({
  path: pathText([...at, ...path]),
  message,
});

function unfedInputs(manifest: Manifest, graph: GraphInfo): Problem[] {
  const fed = new Set(manifest.inputs.map((i) => i.tensor));
  return graph.inputs
    .filter((t) => !fed.has(t.name) && manifest.inputs.length < graph.inputs.length)
    .map((t) => ({
      path: "inputs",
      message: `The graph also wants the input "${t.name}" (${tensorText(t)}), which the manifest does not feed`,
    }));
}

/** The image input on whose grid an output is. */
function inputFor(manifest: Manifest, output: ModelOutput): ImageInput | undefined {
  const input = manifest.inputs[inputOf(manifest, output)];
  return input !== undefined && isImageInput(input) ? input : undefined;
}

/** Sides of what the graph is given, in the order of its axes; -1 for those of the source. */
function sidesOf(
  layout: ImageInput["layout"],
  input: ImageInput | undefined,
  tiling: Tiling | undefined,
): number[] {
  if (tiling !== undefined) return tiling.window;
  const {
    depth = -1,
    height,
    width,
  } = input?.size.kind === "fixed" ? input.size : { height: -1, width: -1 };
  const bySide: Record<string, number> = { D: depth, H: height, W: width };
  return Array.from(layout).flatMap((letter) => bySide[letter] ?? []);
}

/**
 * The fault of a graph's input that no manifest can feed, so that the graph has to be exported
 * again.
 */
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

/**
 * Checks what every input asks of its tensor: that it is there, of its type and of its rank; then
 * `more`.
 */
function checkFed(
  { tensor, dtype, layout }: Pick<ModelInput, "tensor" | "dtype" | "layout">,
  tensors: readonly TensorInfo[],
  path: (string | number)[],
  more: (fed: FedTensor) => void,
): Problem[] {
  const info = namedTensor(tensor, tensors, ["tensor"]);
  if (isFault(info)) return [problemAt(path, info)];
  const problems: Problem[] = [];
  const expect = (field: string, ok: boolean, message: string) => {
    if (!ok) problems.push({ path: pathText([...path, field]), message });
  };
  const graph = `the graph's "${info.name}" is ${tensorText(info)}`;
  const rank = layout.length;
  const fault = inputFault(info);
  expect(
    "dtype",
    dtype === info.dtype,
    fault.dtype ?? `Expected ${info.dtype}, found ${dtype}: ${graph}`,
  );
  expect(
    "layout",
    rank === info.shape.length,
    fault.layout ?? `${layout} has ${rank} dimensions; ${graph}`,
  );
  if (rank === info.shape.length) more({ info, graph, expect, problems });
  return problems;
}

function checkNumbers(
  input: AttributeInput,
  tensors: readonly TensorInfo[],
  path: (string | number)[],
): Problem[] {
  return checkFed(input, tensors, path, ({ info, graph, expect }) => {
    const count = input.values.reduce((sum, value) => sum + numbersOf(value), 0);
    const fits = (axis: number, size: number) =>
      (info.shape[axis] ?? -1) < 0 || info.shape[axis] === size;
    expect("tensor", fits(0, 1), `Expected one image or any number of them; ${graph}`);
    expect(
      "values",
      info.shape.length === 1 || fits(1, count),
      `They give ${count} numbers; ${graph}`,
    );
  });
}

function checkInput(
  input: ImageInput,
  tiling: Tiling | undefined,
  tensors: readonly TensorInfo[],
  path: (string | number)[],
): Problem[] {
  return checkFed(input, tensors, path, ({ info, graph, expect, problems }) => {
    const rank = info.shape.length;
    // Axis of each dimension by the layout's letters; D is absent in two dimensions
    const axis = Object.fromEntries(Array.from(input.layout).map((letter, i) => [letter, i]));
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

function checkCanaryNames(manifest: Manifest, graph: GraphInfo): Problem[] {
  return (manifest.canary?.expected ?? []).flatMap((expected, i) => {
    const info = namedTensor(expected.tensor, graph.outputs, ["canary", "expected", i, "tensor"]);
    return isFault(info) ? [problemAt([], info)] : [];
  });
}

/**
 * Nothing is converted: the graph is what it was validated as, and the manifest says which that is.
 */
function checkPrecision(manifest: Manifest, graph: GraphInfo): Problem[] {
  const { precision } = manifest.execution;
  if ((precision === "float16") === graph.float16) return [];
  const message = graph.float16
    ? `Expected float16, because most of the graph's weights are; found ${precision}`
    : "float16 means that the graph itself is float16, and this one is not: convert and validate it first, or enter float32 or tf32";
  return [{ path: "execution.precision", message }];
}
