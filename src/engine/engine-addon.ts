/**
 * The part of the addon that knows images, beside that of graphs: what goes in and comes out, and
 * results as the engine gives them.
 */
import { createHash } from "node:crypto";
import type {
  EngineOutput,
  GraphInfo,
  InferOptions,
  InferResult,
  LoadedModel,
  Plane,
  Preparation,
  Progress,
  RenderOptions,
} from "./types.js";
import { release } from "../addon/bytes.js";
import type { GraphAddon } from "../graph/graph-addon.js";
import type { Provider } from "../graph/types.js";
import type { Tensor } from "../base/tensor.js";
import type { VolumeGeometry } from "../images/image.js";
import type { Manifest, ModelInput } from "../manifest/manifest.js";
import type { ModelOutput } from "../manifest/outputs/outputs.js";
import type { Tiling } from "../manifest/tiling.js";

/** Options of which the addon needs some that callers of the engine may leave out. */
type OptionsWith<Key extends keyof InferOptions> = InferOptions & Required<Pick<InferOptions, Key>>;

/**
 * Numbers come as lists, because an object costs the thread that serves requests a microsecond for
 * each property.
 */
interface NativeFacts {
  /** In the order of Preparation. */
  placement?: [number, number, number, number, number, number, number, number, number, number];
  found?: [number, number, number, number, number, number];
  observed?: [number, number];
  cut?: true;
}

interface NativeInference extends NativeFacts {
  outputs: EngineOutput[];
  /** Bytes of the raw output tensors, or, where `dump` was asked for, all tensors. */
  raw?: Uint8Array[];
  tensors?: { inputs: Tensor[]; outputs: Tensor[]; probabilities: Tensor[] };
  /** Facts of the second image input and those after it. */
  others?: NativeFacts[];
  timings: [queueMs: number, prepareMs: number, runMs: number, postprocessMs: number];
}

export interface EngineAddon extends GraphAddon {
  inspect(path: string): Promise<GraphInfo>;
  /** The files beside a graph that it keeps constants in; null if it is no ONNX model. */
  externalData(path: string): string[] | null;
  load(options: {
    /** The mean of several is taken. */
    paths: readonly string[];
    meanAfterActivation: boolean;
    name: string;
    version: string;
    maxBatch: number;
    tiling?: Tiling;
    provider: Provider;
    precision: Manifest["execution"]["precision"];
    gpus: readonly number[];
    gpuMemory: number;
    /** Set for a model that may leave memory. */
    hashes: readonly { path: string; sha256: string }[];
    timeoutMs: number | undefined;
    cancelId: number | undefined;
    /**
     * Both as the manifest has them: each step of native/prepare, and each kind of
     * native/postprocess, reads the fields that it uses.
     */
    inputs: readonly ModelInput[];
    outputs: readonly ModelOutput[];
    /** Names of the model's roles, in the manifest's order. */
    roles: readonly string[];
  }): Promise<Omit<LoadedModel, "provider">>;
  infer(
    id: number,
    planes: readonly Plane[],
    options: OptionsWith<"priority" | "dump">,
  ): Promise<NativeInference>;
  render(plane: Plane, options: RenderOptions): Promise<Uint8Array>;
  progress(cancelId: number): Progress | undefined;
  plan(
    id: number,
    volume: { slices: number; rows: number; columns: number; geometry: VolumeGeometry },
  ): number;
  runBytes(id: number, pixels: number): number;
}

function factsOf({ placement, found, observed, cut }: NativeFacts): Omit<Preparation, "others"> {
  const preparation: Preparation = {};
  if (placement !== undefined) {
    const [
      rows,
      columns,
      top,
      left,
      height,
      width,
      sourceTop,
      sourceLeft,
      sourceHeight,
      sourceWidth,
    ] = placement;
    preparation.placement = {
      rows,
      columns,
      top,
      left,
      height,
      width,
      sourceTop,
      sourceLeft,
      sourceHeight,
      sourceWidth,
    };
  }
  if (found !== undefined) {
    const [min, max, mean, std, low, high] = found;
    preparation.found = { min, max, mean, std, low, high };
  }
  if (observed !== undefined) preparation.observed = { low: observed[0], high: observed[1] };
  if (cut !== undefined) preparation.cut = cut;
  return preparation;
}

function preparationOf(native: NativeInference): Preparation {
  const { others } = native;
  return others === undefined
    ? factsOf(native)
    : { ...factsOf(native), others: others.map(factsOf) };
}

/** Node.js hashes less than 2 GiB at once. */
const HASHED_AT_ONCE = 2 ** 30;

export function inferenceOf(native: NativeInference): InferResult {
  const { outputs, raw, tensors } = native;
  const hash = createHash("sha256");
  for (const data of raw ?? tensors?.outputs.map((tensor) => tensor.data) ?? [])
    for (let at = 0; at < data.length; at += HASHED_AT_ONCE)
      hash.update(data.subarray(at, at + HASHED_AT_ONCE));
  // A volume's are as long as what V8 waits for before it collects the whole heap
  raw?.forEach(release);
  const rawSha256 = hash.digest("hex");
  const [queueMs, prepareMs, runMs, postprocessMs] = native.timings;
  const timings = { queueMs, prepareMs, runMs, postprocessMs };
  const result = { outputs, rawSha256, preparation: preparationOf(native), timings };
  return tensors === undefined ? result : { ...result, tensors };
}
