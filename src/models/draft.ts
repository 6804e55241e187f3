/**
 * A first manifest from a graph: what the graph says is filled in; what it cannot say is null, to
 * be filled in later.
 */
import { withoutEnds } from "../base/ends.js";
import { basename } from "node:path";
import type { GraphInfo } from "../engine/types.js";
import type { TensorInfo } from "../base/tensor.js";
import { isWholePart, unsaidCover } from "../manifest/outputs/map-cover.js";
import { IMAGE_TYPES, NUMBER_TYPES, type Manifest } from "../manifest/manifest.js";

/**
 * In small letters, and with `filler` for what a name in a manifest cannot hold; empty where
 * nothing is left.
 */
export const plainName = (text: string, filler: string, most: number): string =>
  withoutEnds(
    text
      .toLowerCase()
      .replaceAll(/[^a-z0-9_-]+/g, filler)
      .slice(0, most),
    "_-",
  );

/** A model's name after its folder's. */
export const modelNameOf = (folder: string): string =>
  plainName(basename(folder), "_", 63) || "model";

/**
 * Draft for a graph, not yet a manifest: every field that a person must decide is null. `name` is
 * the folder's; `files` are the graph and what it opens. Nothing is guessed: layout and sizes are
 * taken only if the shape leaves no doubt.
 */
export function draftManifest(
  name: string,
  files: Manifest["files"],
  graph: GraphInfo,
): Record<string, unknown> {
  const image = imageOf(graph);
  const anyBatch = graph.inputs.every(({ shape }) => (shape[0] ?? -1) === -1);
  return {
    $schema: "../model.schema.json",
    name,
    version: null,
    manufacturer: null,
    description: null,
    intended_use: null,
    regulatory: "Not for diagnostic use. For research.",
    stage: "draft",
    release: "off",
    required: false,
    files,
    accepts: {
      formats: null,
      modality: null,
      dimensions: image?.shape.length === 5 ? "series" : null,
    },
    inputs: graph.inputs.map((info) => (isNumbers(info) ? draftNumbers(info) : draftInput(info))),
    outputs: graph.outputs.map((info) => ({
      kind: null,
      tensor: info.name,
      ...(unsaidPart(info, image) === undefined ? {} : { covers: null }),
    })),
    batching: { max: anyBatch ? 8 : imagesOf(image) },
    execution: { providers: ["cpu"], precision: graph.float16 ? "float16" : "float32" },
    results: { outputs: ["json", "png"] },
  };
}

/**
 * What has to be said of an output that is most likely a map over the image: its sides are no whole
 * part of the image's, so that it may cover a part of it only. Undefined for all others.
 */
function unsaidPart(info: TensorInfo, image: TensorInfo | undefined): string | undefined {
  if (image === undefined || !holdsPixels(image) || info.shape.length !== image.shape.length)
    return undefined;
  const channelsLast = layoutOf(image)?.endsWith("C") === true;
  const sides = sidesOf(info.shape, channelsLast);
  const tensor = sidesOf(image.shape, channelsLast);
  return sides.some((side) => side === 1) || isWholePart(sides, tensor)
    ? undefined
    : unsaidCover(sides, tensor);
}

/** The same of all outputs of a graph that it has to be said of. */
export const unsaidParts = (graph: GraphInfo): string[] =>
  graph.outputs.flatMap((info) => {
    const unsaid = unsaidPart(info, imageOf(graph));
    return unsaid === undefined ? [] : `${info.name}: ${unsaid}`;
  });

const imageOf = ({ inputs }: GraphInfo): TensorInfo | undefined =>
  inputs.find(holdsPixels) ?? inputs[0];

const sidesOf = (shape: readonly number[], channelsLast: boolean): number[] =>
  channelsLast ? shape.slice(1, -1) : shape.slice(2);

/** How many images the graph takes at once; one where it has no axis of them. */
const imagesOf = (image: TensorInfo | undefined): number =>
  image === undefined || !holdsPixels(image) ? 1 : Math.max(1, image.shape[0] ?? 1);

const holds = (types: readonly string[], dtype: string): string | null =>
  types.includes(dtype) ? dtype : null;

const holdsPixels = ({ shape }: TensorInfo): boolean => shape.length === 4 || shape.length === 5;

/**
 * A tensor with one number or one row of them for each image holds no pixels: what else goes in are
 * attributes.
 */
const isNumbers = ({ shape }: TensorInfo): boolean => shape.length === 1 || shape.length === 2;

function draftNumbers(info: TensorInfo): Record<string, unknown> {
  return {
    kind: "attributes",
    tensor: info.name,
    dtype: holds(NUMBER_TYPES, info.dtype),
    layout: info.shape.length === 1 ? "N" : "NC",
    values: null,
  };
}

function draftInput(info: TensorInfo): Record<string, unknown> {
  const layout = layoutOf(info);
  const side = (letter: string) => info.shape[layout?.indexOf(letter) ?? -1] ?? -1;
  const channels = side("C");
  return {
    tensor: info.name,
    dtype: holds(IMAGE_TYPES, info.dtype),
    layout,
    size: sizeOf(side, info.shape.length === 5),
    fit: null,
    interpolation: null,
    values: { kind: null },
    monochrome1: null,
    channels: channels === 1 ? "grayscale" : null,
    colour_source: null,
    normalisation: { kind: null },
    background: null,
    // Without them a volume is taken as it lies, which a model of patients' volumes seldom wants.
    ...(info.shape.length === 5 ? { spacing_mm: null, orientation: null } : {}),
  };
}

/**
 * Channels first or last, by the one dimension that can be channels; null if neither can, or both.
 */
function layoutOf(info: TensorInfo): string | null {
  const rank = info.shape.length;
  if (rank !== 4 && rank !== 5) return null;
  const channels = (axis: number) => info.shape[axis] === 1 || info.shape[axis] === 3;
  const first = channels(1);
  const last = channels(rank - 1);
  if (first === last) return null;
  if (rank === 4) return first ? "NCHW" : "NHWC";
  return first ? "NCDHW" : "NDHWC";
}

function sizeOf(side: (letter: string) => number, volume: boolean): Record<string, unknown> {
  const [depth, height, width] = [side("D"), side("H"), side("W")];
  if (height < 1 || width < 1 || (volume && depth < 1)) return { kind: null };
  return { kind: "fixed", height, width, ...(volume ? { depth } : {}) };
}
