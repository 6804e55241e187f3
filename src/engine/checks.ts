/**
 * What the engine checks before it calls the addon: arguments, and a manifest against the graph it describes. What a
 * manifest must be by itself, src/manifest/rules.ts has checked before.
 */
import type { RenderOptions, InferOptions, LoadOptions, Plane } from "./types.js";
import { type Tensor, type TensorInfo, ELEMENT_BYTES } from "./tensor.js";
import { nativeOutput } from "./addon-specs.js";
import { RadserveError } from "../base/errors.js";
import type { VolumeGeometry } from "../images/image.js";
import { isVolume, mayOverlap, type ImageInput, type ModelOutput } from "../manifest/manifest.js";

/** The message is made only if it is needed, because every request passes these checks. */
function expect(good: boolean, message: () => string): void {
  if (!good) throw new RadserveError("bad_request", message());
}

/** Another thread could change shared memory while the engine reads it. */
function expectUnshared({ buffer }: Uint8Array, what: "plane" | "tensor"): void {
  expect(
    !(buffer instanceof SharedArrayBuffer),
    () => `Expected a ${what}'s data in memory that is not shared.`,
  );
}

const isSide = (value: number): boolean => Number.isInteger(value) && value >= 1 && value <= 65535;

/** Rows and Columns are 16-bit (PS3.3 C.7.6.3.1). The addon checks how bits, samples and bytes go together. */
export function checkPlane(plane: Plane): void {
  const { rows, columns } = plane.format;
  expect(
    isSide(rows) && isSide(columns),
    () => `Expected 1 to 65535 rows and columns, found ${rows} x ${columns}.`,
  );
  expect(plane.data instanceof Uint8Array, () => "Expected a plane's data as Uint8Array.");
  expectUnshared(plane.data, "plane");
  expect(
    Number.isFinite(plane.pixelAspect) && plane.pixelAspect > 0,
    () => `Expected a pixel aspect greater than 0, found ${plane.pixelAspect}.`,
  );
}

/** The addon judges how far directions may be from unit length and right angles (series_invalid). */
export function checkGeometry(geometry: VolumeGeometry): void {
  const { origin, columnDirection, rowDirection, sliceDirection } = geometry;
  for (const vector of [origin, columnDirection, rowDirection, sliceDirection])
    expect(
      vector.every(Number.isFinite),
      () => "Expected finite numbers in the origin and the directions of a volume.",
    );
  for (const key of ["columnSpacing", "rowSpacing", "sliceSpacing"] as const)
    expect(
      Number.isFinite(geometry[key]) && geometry[key] > 0,
      () => `Expected a ${key} greater than 0 in the geometry of a volume, found ${geometry[key]}.`,
    );
}

export function checkRender(options: RenderOptions): void {
  const { width, height, voiIndex } = options;
  expect(
    isSide(width) && isSide(height),
    () => `Expected a picture of 1 to 65535 pixels a side, found ${width} x ${height}.`,
  );
  expect(
    Number.isInteger(voiIndex) && voiIndex >= 0,
    () => `Expected a VOI index from 0, found ${voiIndex}.`,
  );
}

export function checkInferOptions(options: InferOptions): void {
  const { timeoutMs, cancelId } = options;
  if (timeoutMs !== undefined) {
    expect(
      !Number.isNaN(timeoutMs) && timeoutMs <= 2 ** 40,
      () => `Expected a time-out in milliseconds, found ${timeoutMs}.`,
    );
    if (timeoutMs <= 0) throw new RadserveError("deadline_exceeded", "The work came after its deadline.");
  }
  if (cancelId !== undefined)
    expect(
      Number.isSafeInteger(cancelId) && cancelId > 0,
      () => `Expected a cancel id that is a whole number from 1, found ${cancelId}.`,
    );
}

export function checkFeeds(feeds: readonly Tensor[]): void {
  for (const { name, dtype, shape, data } of feeds) {
    expectUnshared(data, "tensor");
    const sides = shape.every((side) => Number.isSafeInteger(side) && side >= 0);
    const expected = shape.reduce((a, b) => a * b, 1) * ELEMENT_BYTES[dtype];
    expect(
      sides && data.byteLength === expected,
      () =>
        `Expected ${expected} bytes for the tensor "${name}" of ${dtype} [${shape.join(",")}], found ${data.byteLength}.`,
    );
  }
}

type Graph = { inputs: TensorInfo[]; outputs: TensorInfo[] };

const describe = (t: TensorInfo): string => `${t.dtype} [${t.shape.map((d) => (d < 0 ? "?" : d)).join(",")}]`;

const fits = (found: number | undefined, wanted: number): boolean => found === -1 || found === wanted;

const isChannelsLast = (input: ImageInput | undefined): boolean => input?.layout.endsWith("C") ?? false;

/** The shape that prepared images and volumes have; -1 for a side that follows the source. */
function preparedShape(input: ImageInput): number[] {
  const channels = input.channels === "grayscale" ? 1 : 3;
  const { size } = input;
  const [depth, height, width] =
    size.kind === "fixed" ? [size.depth ?? -1, size.height, size.width] : [-1, -1, -1];
  const sides = isVolume(input) ? [depth, height, width] : [height, width];
  return isChannelsLast(input) ? [1, ...sides, channels] : [1, channels, ...sides];
}

function checkInput(input: ImageInput, graph: Graph): string | undefined {
  const found = graph.inputs.find((t) => t.name === input.tensor);
  const names = graph.inputs.map((t) => `"${t.name}"`).join(", ");
  if (found === undefined) return `Expected an input "${input.tensor}"; the graph's inputs are ${names}.`;
  if (graph.inputs.length > 1)
    return `Expected a graph with the one input "${input.tensor}", found the inputs ${names}.`;
  const wanted = preparedShape(input);
  const same =
    found.dtype === input.dtype &&
    found.shape.length === wanted.length &&
    wanted.every((side, i) => fits(found.shape[i], side));
  return same
    ? undefined
    : `Expected the input "${input.tensor}" as ${input.dtype} [${wanted.map((d) => (d < 0 ? "?" : d)).join(",")}] (${input.layout}), found ${describe(found)}.`;
}

/** How many channels the tensor must have; undefined if its shape cannot show it. */
function channelsOf(output: ModelOutput): number | undefined {
  switch (output.kind) {
    case "segmentation":
      if (output.activation === "label_map") return 1;
      return output.labels.length + (mayOverlap(output.activation) ? 0 : 1);
    case "probability_map":
    case "heatmap":
      return 1;
    default:
      return undefined;
  }
}

function checkScores(output: ModelOutput, found: TensorInfo): string | undefined {
  if (output.kind !== "classification" && output.kind !== "regression") return undefined;
  const wanted = output.kind === "classification" ? output.labels.length : output.values.length;
  const known = found.shape.filter((d) => d >= 0).reduce((a, b) => a * b, 1);
  const dynamic = found.shape.slice(1).some((d) => d < 0);
  if (dynamic || known === wanted) return undefined;
  return `Expected ${wanted} values from the output "${found.name}", one for each of the manifest's, found ${describe(found)}.`;
}

function checkMap(output: ModelOutput, found: TensorInfo, input: ImageInput | undefined): string | undefined {
  const channels = channelsOf(output);
  if (channels === undefined) return undefined;
  const { name, shape } = found;
  const rank = input !== undefined && isVolume(input) ? 5 : 4;
  if (shape.length < rank - 2 || shape.length > rank)
    return `Expected the output "${name}" as a map with ${rank - 2} to ${rank} dimensions, found ${describe(found)}.`;
  if (shape.length < rank) return undefined;
  if (!fits(shape[0], 1))
    return `Expected the output "${name}" for one image or any number, found ${describe(found)}.`;
  const last = rank - 1;
  if (shape[1] === channels || shape[last] === channels || shape[isChannelsLast(input) ? last : 1] === -1)
    return undefined;
  return `Expected ${channels} channel(s) in the output "${name}", found ${describe(found)}.`;
}

function checkOutput(output: ModelOutput, graph: Graph, input: ImageInput | undefined): string | undefined {
  const native = nativeOutput(output);
  for (const tensor of [native.tensor, native.scores, native.classes]) {
    if (tensor === undefined) continue;
    const found = graph.outputs.find((t) => t.name === tensor);
    if (found === undefined)
      return `Expected an output "${tensor}"; the graph's outputs are ${graph.outputs.map((t) => `"${t.name}"`).join(", ")}.`;
    const integersToo = native.activation === "label_map" || tensor === native.classes;
    if (!integersToo && !found.dtype.startsWith("float"))
      return `Expected the output "${tensor}" as float32, float16 or float64, found ${describe(found)}.`;
    if (tensor !== native.tensor) continue;
    const map = checkMap(output, found, input);
    if (map !== undefined) return map;
    const scores = checkScores(output, found);
    if (scores !== undefined) return scores;
  }
  return undefined;
}

/** @throws RadserveError model_unavailable, naming everything in the manifest that the graph does not bear out */
export function checkManifest(options: LoadOptions, graph: Graph): void {
  const problems = [
    ...options.inputs.map((input) => checkInput(input, graph)),
    ...options.outputs.map((output) => checkOutput(output, graph, options.inputs[0])),
  ].filter((problem) => problem !== undefined);
  if (problems.length === 0) return;
  throw new RadserveError(
    "model_unavailable",
    `The manifest of ${options.name} does not fit its graph. ${problems.join(" ")}`,
    { problems },
  );
}
