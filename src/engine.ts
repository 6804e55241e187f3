/**
 * The face of the native engine. Nothing else knows the addon's shape; every call is checked here, and every
 * native failure becomes a RadserveError.
 */
import os from "node:os";
import {
  checkFeeds,
  checkGeometry,
  checkInferOptions,
  checkManifest,
  checkPlane,
  checkRender,
} from "./engine-checks.js";
import { engineStatsSchema, type EngineStats } from "./engine-stats.js";
import { inferenceOf, loadAddon, type Addon } from "./engine-native.js";
import { nativeInput, nativeOutput } from "./engine-specs.js";
import { asRadserveError, ERRORS, RadserveError, type ErrorCode } from "./errors.js";
import type { Interpretation, PixelFormat, VolumeGeometry } from "./image.js";
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

/**
 * One frame and everything needed to prepare it. `data` is read, not copied, until the promise is settled: do not
 * change or transfer it before.
 */
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
  /** What CUDA computes in, float32 where absent; a CPU computes in what the graph is. */
  precision?: Manifest["execution"]["precision"];
  batching: Manifest["batching"];
}

export interface LoadedModel {
  /** Process-wide: any worker thread may use it. */
  id: number;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  provider: "cpu" | "cuda";
  /** On the CPU one session spreads a run over all cores, the other stays on one; bytes that each holds after loading. */
  sessions: SessionMemory[];
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
}

/** Masks are in source pixels; `values` are raw scores after activation. */
export type EngineOutput =
  | { kind: "classification"; tensor: string; scores: Float32Array }
  | { kind: "regression"; tensor: string; values: Float32Array }
  | {
      kind: "segmentation";
      tensor: string;
      /** Of a volume: the mask holds this many planes of rows x columns, in the order of the slices given. */
      slices?: number;
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
      /**
       * Of outputs that the manifest calls fractional: as many planes as `overlapping` masks have, one for each label,
       * with each pixel's probability in steps of 1/255; 0 where the model did not look, and on Pixel Padding.
       */
      fractions?: Uint8Array;
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
  /**
   * The planes are the slices of one volume that lies so, in order. Models of volumes (layouts NCDHW and NDHWC) need it,
   * others refuse it: bad_request. Slices of different sizes are series_invalid.
   */
  geometry?: VolumeGeometry;
  /** Also give the tensors that went in and came out. */
  dump?: boolean;
  /** Label thresholds in the manifest's order for each output (site thresholds applied). */
  thresholds?: number[][];
}

/** What only the preparation of a tensor knows. */
export interface Preparation {
  /** Of one frame: the part of the tensor that the image fills and the part of the source that it shows, in pixels. */
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
  /** What min_max, z_score and percentile measured: over the frame or the volume, without padding. */
  found?: { min: number; max: number; mean: number; std: number; low: number; high: number };
  /** Least and greatest value, where a window that the file lacks was taken from them. */
  observed?: { low: number; high: number };
}

export interface InferResult {
  outputs: EngineOutput[];
  preparation: Preparation;
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
  inspectGraph(modelPath: string): Promise<GraphInfo>;
  load(options: LoadOptions): Promise<LoadedModel>;
  /** New work is refused; what runs is finished; memory goes back when the last is done. */
  unload(id: number): Promise<void>;
  infer(id: number, planes: Plane[], options: InferOptions): Promise<InferResult>;
  /** Raw tensors through a loaded model: canaries and `models try`. Feeds are read as planes are. */
  runTensors(id: number, feeds: Tensor[], options?: InferOptions): Promise<Tensor[]>;
  /** Display picture of one frame, RGB, 8 bits, by the same pixel code that feeds the models. */
  render(plane: Plane, options: RenderOptions): Promise<Uint8Array>;
  cancel(cancelId: number): void;
  /** Of the whole process, whoever loaded the models. */
  stats(): EngineStats;
  /** Waits for what runs, releases sessions that this environment loaded. Idempotent. */
  close(): Promise<void>;
}

export interface EngineOptions {
  /** What models are expected to run on; "cuda" is checked at once. */
  provider: "cpu" | "cuda";
  /** Where CUDA cannot be used: run on the CPU instead of refusing. */
  fallback?: "cpu";
  /** Number of the GPU that models run on; the first where absent. */
  gpu?: number;
  /** Most bytes of GPU memory that the runs of each model may take, beside its weights; no limit where absent. */
  gpuMemory?: number;
  /** Threads of the process's engine; all cores where absent. The first engine of a process decides. */
  threads?: number;
  /** Requests, and bytes of their pixels, that may wait; beyond, calls fail with overloaded. The first decides. */
  queueLimit?: number;
  queueBytes?: number;
  /** Predicted wait beyond which calls fail with overloaded; five minutes where absent. The first decides. */
  queueSeconds?: number;
}

/** Native errors carry a code of errors.ts; anything else is a fault of ours. */
function fromNative(thrown: unknown): RadserveError {
  if (
    thrown instanceof Error &&
    "code" in thrown &&
    typeof thrown.code === "string" &&
    thrown.code in ERRORS
  ) {
    const wait = "retryAfter" in thrown ? { retry_after: thrown.retryAfter } : undefined;
    return new RadserveError(thrown.code as ErrorCode, thrown.message, wait);
  }
  return asRadserveError(thrown);
}

/** What keeps CUDA from being used, in one sentence with the fix; undefined where nothing does. */
function cudaRefusal(addon: Addon, providers: readonly string[], gpu: number): string | undefined {
  const fix = "or allow the CPU instead (RADSERVE_GPU_FALLBACK=cpu).";
  if (!providers.includes("CUDAExecutionProvider"))
    return `CUDA cannot be used: the CUDA execution provider is not in this ONNX Runtime build. Run npm run setup:gpu, ${fix}`;
  const problem = addon.cudaProblem(gpu);
  if (problem === "") return undefined;
  const library = /\b(lib[\w+-]+\.so[.\d]*): cannot open shared object file/.exec(problem)?.[1];
  return library === undefined
    ? `CUDA cannot be used: ${problem} Check the driver with nvidia-smi, ${fix}`
    : `CUDA cannot be used: the library ${library} is missing. Install the CUDA and cuDNN that ONNX Runtime needs, ${fix}`;
}

class NativeEngine implements Engine {
  readonly #addon: Addon;
  readonly #info: EngineInfo;
  readonly #fallback: boolean;
  readonly #gpu: number;
  readonly #gpuMemory: number;
  #underWay = 0;
  #idle: (() => void) | undefined;
  readonly #loaded = new Set<number>();
  readonly #held: Uint8Array;
  readonly #runHeld = (): void => this.#addon.runHeld();
  #closing: Promise<void> | undefined;

  constructor(options: EngineOptions) {
    this.#addon = loadAddon();
    this.#fallback = options.fallback === "cpu";
    this.#gpu = options.gpu ?? 0;
    this.#gpuMemory = options.gpuMemory ?? 0;
    const { held, ...info } = this.#addon.start({
      threads: options.threads ?? os.availableParallelism(),
      queueLimit: options.queueLimit ?? 1024,
      queueBytes: options.queueBytes ?? 4 * 2 ** 30,
      queueSeconds: options.queueSeconds ?? 300,
    });
    this.#held = held;
    this.#info = info;
    this.#provider(options.provider);
  }

  info(): EngineInfo {
    return this.#info;
  }

  inspectGraph(modelPath: string): Promise<GraphInfo> {
    return this.#call(() => this.#addon.inspect(modelPath));
  }

  load(options: LoadOptions): Promise<LoadedModel> {
    return this.#call(async () => {
      const provider = this.#provider(options.provider);
      const { id, inputs, outputs, sessions } = await this.#addon.load({
        path: options.modelPath,
        name: options.name,
        version: options.version,
        maxBatch: options.batching.max,
        provider,
        precision: options.precision ?? "float32",
        device: this.#gpu,
        deviceMemory: this.#gpuMemory,
        inputs: options.inputs.map(nativeInput),
        outputs: options.outputs.map(nativeOutput),
      });
      try {
        checkManifest(options, { inputs, outputs });
      } catch (mismatch) {
        await this.#addon.unload(id);
        throw mismatch;
      }
      this.#loaded.add(id);
      return { id, inputs, outputs, provider, sessions };
    });
  }

  unload(id: number): Promise<void> {
    this.#loaded.delete(id);
    return this.#call(() => this.#addon.unload(id));
  }

  infer(id: number, planes: Plane[], options: InferOptions): Promise<InferResult> {
    return this.#call(async () => {
      checkInferOptions(options);
      planes.forEach(checkPlane);
      const { priority = "routine", timeoutMs, cancelId, thresholds, geometry } = options;
      if (geometry !== undefined) checkGeometry(geometry);
      const dump = options.dump === true;
      const given = { priority, timeoutMs, cancelId, dump, thresholds, geometry };
      return inferenceOf(await this.#addon.infer(id, planes, given));
    });
  }

  runTensors(id: number, feeds: Tensor[], options: InferOptions = {}): Promise<Tensor[]> {
    return this.#call(() => {
      checkInferOptions(options);
      checkFeeds(feeds);
      const { priority = "routine", timeoutMs, cancelId } = options;
      return this.#addon.runTensors(id, { priority, timeoutMs, cancelId, feeds });
    });
  }

  render(plane: Plane, options: RenderOptions): Promise<Uint8Array> {
    return this.#call(() => {
      checkPlane(plane);
      checkRender(options);
      return this.#addon.render(plane, options);
    });
  }

  cancel(cancelId: number): void {
    this.#addon.cancel(cancelId);
  }

  stats(): EngineStats {
    return engineStatsSchema.parse(this.#addon.stats());
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#underWay > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await Promise.all([...this.#loaded].map((id) => this.#addon.unload(id)));
    this.#loaded.clear();
  }

  /** The provider that will be used, or a refusal. */
  #provider(wanted: "cpu" | "cuda"): "cpu" | "cuda" {
    if (wanted === "cpu") return "cpu";
    const refusal = cudaRefusal(this.#addon, this.#info.providers, this.#gpu);
    if (refusal === undefined) return "cuda";
    if (this.#fallback) return "cpu";
    throw new RadserveError("model_unavailable", refusal);
  }

  /**
   * A short request to an idle engine runs on this thread, in a turn of the event loop of its own: requests that come
   * together all go to the engine's threads, and other events come between two such runs.
   */
  #askToRunHeld(): void {
    if (this.#held[0] === 0) return;
    this.#held[0] = 0;
    setImmediate(this.#runHeld);
  }

  async #call<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined)
      throw new RadserveError("shutting_down", "The engine is closed and takes no new work.");
    this.#underWay++;
    try {
      const done = work();
      this.#askToRunHeld();
      return await done;
    } catch (thrown) {
      throw fromNative(thrown);
    } finally {
      if (--this.#underWay === 0) this.#idle?.();
    }
  }
}

/**
 * The engine of this thread. Sessions, queues and threads behind it belong to the process and are shared by all
 * its worker threads; models loaded here go when this thread ends.
 * Throws RadserveError: internal where the addon is not built, model_unavailable where CUDA is asked for and cannot
 * be used.
 */
export function createEngine(options: EngineOptions): Engine {
  return new NativeEngine(options);
}
