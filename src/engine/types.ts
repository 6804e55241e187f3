/** The contract of src/engine/engine.ts: what the engine takes and gives. */
import type { PixelFormat, Interpretation, VolumeGeometry } from "../images/image.js";
import type { Ensemble, ModelInput, Manifest } from "../manifest/manifest.js";
import type { ModelOutput } from "../manifest/outputs/outputs.js";
import type { Provider } from "../graph/types.js";
import type { Tensor, TensorInfo } from "../base/tensor.js";

/**
 * One frame and everything needed to prepare it. `data` is read, not copied, until the promise is
 * settled: do not change or transfer it before.
 */
export interface Plane {
  format: PixelFormat;
  data: Uint8Array;
  interpretation: Interpretation;
  /** Height of a pixel divided by its width. */
  pixelAspect: number;
}

/** The inputs and outputs fit the graph: src/models/graph.ts says so. */
export interface LoadOptions {
  modelPath: string;
  name: string;
  version: string;
  inputs: ModelInput[];
  outputs: ModelOutput[];
  /** Names of the model's roles, in the manifest's order. */
  roles?: readonly string[];
  provider: Provider;
  /**
   * CUDA and OpenVINO compute in this, float32 where absent; ONNX Runtime on a CPU computes in the
   * types of the graph.
   */
  precision?: Manifest["execution"]["precision"];
  batching: Manifest["batching"];
  tiling?: Manifest["tiling"];
  /**
   * Every file that the graphs are made of, by absolute path: what a model that was idle comes back
   * from.
   */
  files?: readonly { path: string; sha256: string }[];
  /** It may leave the memory where others need it, also without EngineOptions.modelsLeave. */
  mayLeave?: boolean;
  /** The graphs beside that of modelPath, and of what the mean is taken. */
  ensemble?: { others: string[]; average: Ensemble["average"] };
  /** As of InferOptions; ONNX Runtime notices between two steps of making a session. */
  timeoutMs?: number;
  cancelId?: number;
}

export interface LoadedModel {
  /** Process-wide: any worker thread may use it. */
  id: number;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  provider: Provider;
  /** Number of the GPU that it went to. */
  gpu?: number;
  /**
   * On the CPU one session spreads a run over all cores, the other stays on one. Bytes that each
   * holds after loading; those of weights that both share are the first one's.
   */
  sessions: SessionMemory[];
}

/**
 * Tensors of all inputs of a graph, and what must come out: |found - expected| <= absolute +
 * relative * |expected|. Its run may take so long.
 */
export interface CanaryTensors {
  feeds: Tensor[];
  expected: Tensor[];
  absolute: number;
  relative: number;
  timeoutMs: number;
}

export interface SessionMemory {
  spread: boolean;
  bytes: number;
}

export interface GraphInfo {
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  /** Most of its weights are float16. */
  float16: boolean;
  /** What ends in an activation already: "sigmoid" or "softmax", by the names of outputs. */
  activations: Record<string, string>;
  /** Texts that the exporter wrote beside the graph (metadata_props), by key. */
  metadata: Record<string, string>;
}

export type SegmentationOutput = Extract<EngineOutput, { kind: "segmentation" }>;

/**
 * A segmentation of a volume on the grid of the tensor that it comes from, decided there: the part
 * of that grid whose voxels have their centres within the source, turned as the source's slices,
 * rows and columns are. Its planes and counts are as those of the mask on the source's grid.
 */
export interface ModelGridMask {
  slices: number;
  rows: number;
  columns: number;
  geometry: VolumeGeometry;
  overlapping: boolean;
  mask: Uint8Array;
  counts: number[];
  fractions?: Uint8Array;
}

/** Edges of a box; `z` runs along the slices of a volume, and is absent for an image. */
interface Edges {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
  z0?: number;
  z1?: number;
}

/** Masks are in source pixels; `values` are raw scores after activation. */
export type EngineOutput =
  | { kind: "classification"; tensor: string; scores: Float32Array }
  | { kind: "regression"; tensor: string; values: Float32Array }
  | {
      kind: "segmentation";
      tensor: string;
      /**
       * Only for a volume: the mask holds this many planes of rows x columns, in the order of the
       * slices given.
       */
      slices?: number;
      rows: number;
      columns: number;
      /**
       * One plane of label indices (0 is background) where labels exclude each other; else one
       * plane of 0 and 1 for each label in the manifest's order.
       */
      overlapping: boolean;
      mask: Uint8Array;
      /** Pixels of each label, in the manifest's order, after post-processing. */
      counts: number[];
      /**
       * Only for outputs that the manifest calls fractional: as many planes as `overlapping` masks
       * have, one for each label, with each pixel's probability in steps of 1/255; 0 where the
       * model did not look, and on Pixel Padding.
       */
      fractions?: Uint8Array;
      /** Only for outputs whose segments the manifest wants in the model's grid. */
      model?: ModelGridMask;
    }
  | {
      /** detection, and probability_map after boxes were drawn round its regions */
      kind: "boxes";
      tensor: string;
      /**
       * Source pixel coordinates; x to the right, y down; edges, so that a box of one pixel has
       * width 1.
       */
      boxes: (Edges & {
        score: number;
        label: number;
        /**
         * Of a turned box, whose edges are then those round its part within the source; as in the
         * receipt.
         */
        corners?: { x: number; y: number }[];
      })[];
      /**
       * How many boxes at or above their threshold lie outside of what the model was given, are
       * smaller than a pixel of it, or end before they begin; absent for none.
       */
      implausible?: number;
    }
  | {
      kind: "points";
      tensor: string;
      /**
       * Source pixel coordinates as those of boxes: the middle of the first pixel is at 0.5. NaN
       * for no score.
       */
      points: { x: number; y: number; score: number; label: number }[];
      /** How many points of a table there are, where all lie within one pixel; absent elsewhere. */
      implausible?: number;
    }
  | { kind: "heatmap"; tensor: string; rows: number; columns: number; values: Float32Array };

/** A role of a case: how many of the planes are its, and where they lie as a volume. */
export interface PlaneSource {
  planes: number;
  geometry?: VolumeGeometry | undefined;
  /** Its voxels are not those of the first role, and are taken to that one's grid. */
  regrid: boolean;
}

export interface InferOptions {
  /** Milliseconds from now; the call fails with deadline_exceeded. */
  timeoutMs?: number | undefined;
  priority?: "stat" | "routine" | "bulk";
  /** Process-wide number that `cancel` takes from any thread. */
  cancelId?: number;
  /**
   * Process-wide number of whoever asks: subjects share the engine's threads, and none has all of
   * them. Absent for work of the server's own.
   */
  subject?: number | undefined;
  /**
   * The planes are the slices of one volume that lies so, in order. Models of volumes (layouts
   * NCDHW and NDHWC) need it, others refuse it: bad_request. Slices of different sizes are
   * series_invalid.
   */
  geometry?: VolumeGeometry | undefined;
  /**
   * For a model that is given neighbours: which of the planes is looked at, from 0. The others are
   * those before and after it, in their order; fewer than the model takes are the edge of the
   * series.
   */
  centre?: number | undefined;
  /**
   * For a model with roles, in the manifest's order: the planes are theirs, one role after the
   * other. `geometry` is that of the first.
   */
  sources?: readonly PlaneSource[] | undefined;
  /** For each input of attributes, in the manifest's order, its numbers. */
  numbers?: readonly (readonly number[])[];
  /** For a model with `cascade` the label map of the other model: slices, rows, columns. */
  labels?: Uint8Array | undefined;
  /** Also give the tensors that went in and came out. */
  dump?: boolean;
  /** Label thresholds in the manifest's order for each output (site thresholds applied). */
  thresholds?: number[][];
}

/** Facts that only the preparation of a tensor knows. */
export interface Preparation {
  /**
   * Only for one frame: the part of the tensor that the image fills, and of the source that it
   * shows, in pixels.
   */
  placement?: {
    rows: number;
    columns: number;
    top: number;
    left: number;
    height: number;
    width: number;
    sourceTop: number;
    sourceLeft: number;
    sourceHeight: number;
    sourceWidth: number;
  };
  /** Measured by min_max, z_score and percentile: over the frame or the volume, without padding. */
  found?: { min: number; max: number; mean: number; std: number; low: number; high: number };
  /** Least and greatest value, where a window that the file lacks was taken from them. */
  observed?: { low: number; high: number };
  /** Set where values of the image lie beyond what the tensor's type holds, and were cut off. */
  cut?: true;
  /** The same of the second image input, or part of one, and of those after it. */
  others?: Omit<Preparation, "others">[];
  /** Of a model of parts: of each part that ran, in their order, and nothing else. */
  parts?: Preparation[];
}

export interface InferResult {
  outputs: EngineOutput[];
  preparation: Preparation;
  /** SHA-256 over all raw output tensors in the manifest's order, hex. */
  rawSha256: string;
  tensors?: {
    inputs: Tensor[];
    outputs: Tensor[];
    /**
     * For each segmentation of a volume: [channels, slices, rows, columns] on the source's grid.
     */
    probabilities: Tensor[];
  };
  timings: { queueMs: number; prepareMs: number; runMs: number; postprocessMs: number };
}

/** Progress of work that goes window by window. */
export interface Progress {
  /** Windows that have run. */
  done: number;
  windows: number;
}

export interface RenderOptions {
  /**
   * Which entry of interpretation.voi; `min_max` over the non-padding pixels if there is no such
   * entry.
   */
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

export interface EngineOptions {
  /** The provider that models are expected to run on; "cuda" is checked at once. */
  provider: "cpu" | "cuda";
  /** Models are expected to run on OpenVINO, too; it is checked at once. */
  openvino?: boolean;
  /**
   * Numbers of the GPUs that models may go to; the first where absent. All of them are checked at
   * once.
   */
  gpus?: readonly number[];
  /** Most bytes of each GPU that all models there may take together; no limit where absent. */
  gpuMemory?: number;
  /**
   * Models that are loaded with `files` may leave: see Engine.leaveIdle. Where the memory of a GPU
   * does not suffice to load another, those leave that nobody uses.
   */
  modelsLeave?: boolean;
  /**
   * Threads of the process's engine; all cores where absent. The first engine of a process decides.
   */
  threads?: number;
}
