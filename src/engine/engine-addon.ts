/** The addon as it is: what goes in and comes out of build/Release/addon.node, and results as the engine gives them. */
import { createHash } from "node:crypto";
import type {
  EngineInfo,
  EngineOutput,
  GraphInfo,
  InferResult,
  LoadedModel,
  Plane,
  Preparation,
  RenderOptions,
} from "./types.js";
import type { Tensor } from "./tensor.js";
import type { NativeInput, NativeOutput } from "./addon-specs.js";
import type { VolumeGeometry } from "../images/image.js";
import type { Manifest } from "../manifest/manifest.js";

interface NativeOptions {
  priority: "stat" | "routine" | "bulk";
  timeoutMs: number | undefined;
  cancelId: number | undefined;
}

/** Numbers come as lists, because an object costs the thread that serves requests a microsecond for each property. */
interface NativeInference {
  outputs: EngineOutput[];
  /** Bytes of the raw output tensors, or, where `dump` was asked for, all tensors. */
  raw?: Uint8Array[];
  tensors?: { inputs: Tensor[]; outputs: Tensor[] };
  /** In the order of Preparation. */
  placement?: [number, number, number, number, number, number, number, number, number, number];
  found?: [number, number, number, number, number, number];
  observed?: [number, number];
  timings: [queueMs: number, prepareMs: number, runMs: number, postprocessMs: number];
}

export interface EngineAddon {
  start(options: { threads: number }): EngineInfo;
  cudaProblem(device: number): string;
  inspect(path: string): Promise<GraphInfo>;
  load(options: {
    path: string;
    name: string;
    version: string;
    maxBatch: number;
    provider: "cpu" | "cuda";
    precision: Manifest["execution"]["precision"];
    device: number;
    deviceMemory: number;
    inputs: NativeInput[];
    outputs: NativeOutput[];
  }): Promise<Omit<LoadedModel, "provider">>;
  unload(id: number): Promise<void>;
  infer(
    id: number,
    planes: readonly Plane[],
    options: NativeOptions & {
      dump: boolean;
      thresholds: number[][] | undefined;
      geometry: VolumeGeometry | undefined;
    },
  ): Promise<NativeInference>;
  runTensors(id: number, options: NativeOptions & { feeds: Tensor[] }): Promise<Tensor[]>;
  render(plane: Plane, options: RenderOptions): Promise<Uint8Array>;
  cancel(cancelId: number): void;
  stats(): unknown;
}

function preparationOf({ placement, found, observed }: NativeInference): Preparation {
  const preparation: Preparation = {};
  if (placement !== undefined) {
    const [rows, columns, top, left, height, width, sourceTop, sourceLeft, sourceHeight, sourceWidth] =
      placement;
    preparation.placement = {
      ...{ rows, columns, top, left, height, width },
      ...{ sourceTop, sourceLeft, sourceHeight, sourceWidth },
    };
  }
  if (found !== undefined) {
    const [min, max, mean, std, low, high] = found;
    preparation.found = { min, max, mean, std, low, high };
  }
  if (observed !== undefined) preparation.observed = { low: observed[0], high: observed[1] };
  return preparation;
}

export function inferenceOf(native: NativeInference): InferResult {
  const { outputs, raw, tensors } = native;
  const hash = createHash("sha256");
  for (const data of raw ?? tensors?.outputs.map((tensor) => tensor.data) ?? []) hash.update(data);
  const rawSha256 = hash.digest("hex");
  const [queueMs, prepareMs, runMs, postprocessMs] = native.timings;
  const timings = { queueMs, prepareMs, runMs, postprocessMs };
  const result = { outputs, rawSha256, preparation: preparationOf(native), timings };
  return tensors === undefined ? result : { ...result, tensors };
}
