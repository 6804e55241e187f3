/** Tensors of a graph beside those that a manifest names, in words. */
import { closest } from "fastest-levenshtein";
import type { TensorInfo } from "../../base/tensor.js";
import { coverFaults, type MapCover } from "./map-cover.js";

/** The least that is known of any output. */
export interface AnyOutput {
  kind: string;
}

/** The graph's tensors, and the layout of the input on whose grid the output is. */
export interface GraphSide {
  tensors: readonly TensorInfo[];
  /** Dimensions of what the graph is given of that input, N and C among them. */
  rank: number;
  channelsLast: boolean;
  /** Of that, the sides in the order of its axes; -1 where one is open. */
  sides: readonly number[];
  /** Whether those are the sides of a window. */
  tiled: boolean;
  outputs: readonly AnyOutput[];
}

/** A fault that keeps a graph from doing what a manifest says. */
export interface Fault {
  /** The field, below what was asked about. */
  path: (string | number)[];
  message: string;
}

/** "float32 [batch, 3, ?, ?]". */
export function tensorText(info: TensorInfo): string {
  const sides = info.shape.map((side, i) => (side >= 0 ? String(side) : info.names[i] || "?"));
  return `${info.dtype} [${sides.join(", ")}]`;
}

/** The same with its name, "y" float32 [n, 3]. */
export const namedText = (info: TensorInfo): string => `"${info.name}" ${tensorText(info)}`;

/** The tensor of a name, or that there is none. */
export function namedTensor(
  name: string,
  tensors: readonly TensorInfo[],
  path: (string | number)[],
): TensorInfo | Fault {
  const found = tensors.find((t) => t.name === name);
  if (found !== undefined) return found;
  const names = tensors.map((t) => t.name);
  return {
    path,
    message: `The graph has no numeric tensor "${name}"; did you mean "${closest(name, names)}"? It has ${names.map((n) => `"${n}"`).join(", ")}`,
  };
}

export const isFault = (value: TensorInfo | Fault): value is Fault => "message" in value;

/** The tensor of a name, which holds fractions, or where that is all the same, integers. */
export function outputTensor(
  name: string,
  tensors: readonly TensorInfo[],
  path: (string | number)[],
  integersToo = false,
): TensorInfo | Fault {
  const info = namedTensor(name, tensors, path);
  if (isFault(info) || integersToo || info.dtype.startsWith("float")) return info;
  return {
    path,
    message: `Expected float32, float16 or float64, found the graph's "${info.name}" as ${tensorText(info)}`,
  };
}

/** The expectation of a field, beside the tensor that was found. */
export const unfit = (field: string, expected: string, info: TensorInfo): Fault => ({
  path: [field],
  message: `Expected ${expected}, found the graph's "${info.name}" as ${tensorText(info)}`,
});

/** The fault that keeps a tensor from holding one value for each label. */
export function scoreFaults(
  tensor: string,
  wanted: number,
  field: string,
  { tensors }: GraphSide,
): Fault[] {
  const info = outputTensor(tensor, tensors, ["tensor"]);
  if (isFault(info)) return [info];
  const known = info.shape.filter((side) => side >= 0).reduce((a, b) => a * b, 1);
  const dynamic = info.shape.slice(1).some((side) => side < 0);
  if (dynamic ? wanted % known === 0 : wanted === known) return [];
  return [unfit(field, `${wanted} values`, info)];
}

/**
 * The fault that keeps a tensor from holding a map as native/postprocess/maps.h reads it: a side of
 * length one may be left out.
 * @param field says how many channels there are
 */
export function mapFaults(
  map: MapCover & { tensor: string },
  channels: number,
  field: string,
  graph: GraphSide,
  integersToo = false,
): Fault[] {
  const { tensors, rank, channelsLast, sides, tiled } = graph;
  const info = outputTensor(map.tensor, tensors, ["tensor"], integersToo);
  if (isFault(info)) return [info];
  const { shape } = info;
  const least = channels === 1 ? rank - 2 : rank - 1;
  if (shape.length < least || shape.length > rank)
    return [unfit("tensor", `a map with ${least} to ${rank} dimensions`, info)];
  if (shape.length === rank && (shape[0] ?? -1) >= 0 && shape[0] !== 1)
    return [unfit("tensor", "one image or any number of them", info)];
  const covered = (own: readonly number[]) => coverFaults(map, own, sides, tiled);
  if (shape.length === rank - 2) return covered(shape);
  const behind = shape.slice(1 - rank);
  const [first, last] = [behind[0], behind.at(-1)];
  const isLast = last === channels && (channelsLast || first !== channels);
  const open = (channelsLast ? last : first) === -1;
  if (first === channels || last === channels || open)
    return covered(isLast || (open && channelsLast) ? behind.slice(0, -1) : behind.slice(1));
  if (shape.length < rank && channels === 1) return [];
  return [unfit(field, `${channels} channel${channels === 1 ? "" : "s"}`, info)];
}
