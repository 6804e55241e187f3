/**
 * The face of the native engine. Nothing else knows the addon's shape; every call is checked here, and every
 * native failure becomes a RadserveError.
 */
import type { Interpretation, PixelFormat } from "./image.js";
import type { ImageInput, Manifest, ModelOutput } from "./manifest.js";

export type TensorType =
  | "float32"
  | "float16"
  | "float64"
  | "uint8"
  | "int8"
  | "uint16"
  | "int16"
  | "int32"
  | "int64"
  | "uint32"
  | "bool";

export interface TensorInfo {
  name: string;
  dtype: TensorType;
  /** -1 for a dynamic dimension; its symbolic name, if any, is in `names`. */
  shape: number[];
  names: string[];
}

export interface Tensor {
  name: string;
  dtype: TensorType;
  shape: number[];
  data: Uint8Array;
}

/** One frame and everything needed to prepare it; `data` is read during the call and not kept. */
export interface Plane {
  format: PixelFormat;
  data: Uint8Array;
  interpretation: Interpretation;
  /** Height of a pixel divided by its width. */
  pixelAspect: number;
}

export interface LoadOptions {
  modelPath: string;
  name: string;
  version: string;
  inputs: ImageInput[];
  outputs: ModelOutput[];
  provider: "cpu" | "cuda";
  batching: Manifest["batching"];
}

export interface LoadedModel {
  /** Process-wide: any worker thread may use it. */
  id: number;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  provider: "cpu" | "cuda";
}

/** Masks are in source pixels; `values` are raw scores after activation. */
export type EngineOutput =
  | { kind: "classification"; tensor: string; scores: Float32Array }
  | { kind: "regression"; tensor: string; values: Float32Array }
  | {
      kind: "segmentation";
      tensor: string;
      rows: number;
      columns: number;
      /**
       * One plane of label indices (0 is background) where labels exclude each other; else one plane of 0 and 1 for
       * each label in the manifest's order.
       */
      overlapping: boolean;
      mask: Uint8Array;
      /** Pixels of each label, in the manifest's order, after post-processing. */
      counts: number[];
    }
  | {
      /** detection, and probability_map after boxes were drawn round its regions */
      kind: "boxes";
      tensor: string;
      /** Source pixel coordinates; x to the right, y down; edges, so that a box of one pixel has width 1. */
      boxes: { x0: number; y0: number; x1: number; y1: number; score: number; label: number }[];
    }
  | { kind: "heatmap"; tensor: string; rows: number; columns: number; values: Float32Array };

export interface InferOptions {
  /** Milliseconds from now; the call fails with deadline_exceeded. */
  timeoutMs?: number;
  priority?: "stat" | "routine" | "bulk";
  /** Process-wide number that `cancel` takes from any thread. */
  cancelId?: number;
  /** Also give the tensors that went in and came out. */
  dump?: boolean;
  /** Label thresholds in the manifest's order for each output (site thresholds applied). */
  thresholds?: number[][];
}

export interface InferResult {
  outputs: EngineOutput[];
  /** SHA-256 over all raw output tensors in the manifest's order, hex. */
  rawSha256: string;
  tensors?: { inputs: Tensor[]; outputs: Tensor[] };
  timings: { queueMs: number; prepareMs: number; runMs: number; postprocessMs: number };
}

export interface RenderOptions {
  /** Which entry of interpretation.voi; where there is none, `min_max` over the non-padding pixels. */
  voiIndex: number;
  /** Output size in pixels; area-averaged down, linear up. */
  width: number;
  height: number;
}

export interface EngineInfo {
  onnxRuntimeVersion: string;
  providers: string[];
  threads: number;
}

export interface Engine {
  info(): EngineInfo;
  /** Inputs and outputs of a graph without a manifest. Throws bad_request where it is no ONNX model. */
  inspectGraph(modelPath: string): Promise<{ inputs: TensorInfo[]; outputs: TensorInfo[] }>;
  load(options: LoadOptions): Promise<LoadedModel>;
  /** New work is refused; what runs is finished; memory goes back when the last is done. */
  unload(id: number): Promise<void>;
  infer(id: number, planes: Plane[], options: InferOptions): Promise<InferResult>;
  /** Raw tensors through a loaded model: canaries and `models try`. */
  runTensors(id: number, feeds: Tensor[], options?: InferOptions): Promise<Tensor[]>;
  /** Display picture of one frame, RGB, 8 bits, by the same pixel code that feeds the models. */
  render(plane: Plane, options: RenderOptions): Promise<Uint8Array>;
  cancel(cancelId: number): void;
  stats(): unknown;
  /** Waits for what runs, releases sessions that this environment loaded. Idempotent. */
  close(): Promise<void>;
}
