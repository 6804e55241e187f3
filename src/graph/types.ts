/** What goes into graphs and comes out of them, and what may be said of it. */
import type { DataType, TensorData } from "./data-types.js";

/** A tensor that is fed, row-major. */
export interface Feed {
  /** The input's own, if it is left out. */
  dtype?: DataType;
  /** Whole numbers from 0. `[]` is a single number. */
  shape: readonly number[];
  /**
   * The elements. The run reads them where they lie, without a copy (texts are copied): until its
   * promise is settled, do not write into them. To transfer their buffer meanwhile is an error of
   * the run (bad_request). Memory that is shared between threads, or can be resized, is refused.
   */
  data: TensorData;
}

/** A tensor that came out, row-major. It is yours: nothing writes into it any more. */
export interface Tensor {
  dtype: DataType;
  shape: number[];
  /**
   * The elements, where ONNX Runtime has put them, without a copy (texts and tensors of up to 4 KiB
   * are copied). The memory goes when the array is collected. Another thread gets a copy: to
   * transfer the buffer is a DataCloneError of Node.js.
   */
  data: TensorData;
}

/** Tensors by their names. */
export type Feeds = Readonly<Record<string, Feed>>;
/** What came out, by its names. */
export type Outputs = Record<string, Tensor>;

/** An input or an output of a graph. */
export interface TensorInfo {
  name: string;
  dtype: DataType;
  /** -1 for a side that the graph leaves open; its symbol, or "", is in `names`. */
  shape: number[];
  names: string[];
}

/** What runs a graph: ONNX Runtime on the CPU or on a GPU, or OpenVINO on the CPU. */
export type Provider = "cpu" | "cuda" | "openvino";

/** "high" goes before "normal", and that before "low", which gets on all the same. */
export type Priority = "high" | "normal" | "low";

/** What createEngine takes. */
export interface EngineOptions {
  /**
   * Runs that go on at a time, and the cores that a run alone uses: by default as many as the
   * machine has. It is the whole process's, and the first engine decides: any other number is
   * refused then.
   */
  threads?: number;
}

/** What load takes beside the model. */
export interface LoadOptions {
  /** What errors and figures call it; by default the file's name. */
  name?: string;
  /**
   * "cpu" by default. "cuda" and "openvino" are refused where they cannot be used, never replaced.
   * Runs of OpenVINO go one after the other, each on all threads.
   */
  provider?: Provider;
  /**
   * Up to `max` runs with one row each (axis 0 of every input and output is the rows, and no row
   * depends on another) may run as one. The load measures whether that pays, and whether the bits
   * stay the same; where not, `batching` of the model is 1. 1 by default.
   */
  batching?: { max: number };
  /**
   * In what CUDA ("tf32") or OpenVINO ("bfloat16") computes; "float32" by default. ONNX Runtime on
   * a CPU computes in the types of the graph.
   */
  precision?: "float32" | "tf32" | "float16" | "bfloat16";
  /** Cores that a run alone uses; by default, and at most, those of the engine. */
  threads?: number;
  /** Numbers of the GPUs that it may go to; [0] by default. */
  gpus?: readonly number[];
  /** The most bytes that all models of a GPU may take there; 0, the default, is no limit. */
  gpuMemory?: number;
  /** Ends the load: cancelled. */
  signal?: AbortSignal;
  /** Ends the load: deadline_exceeded. */
  timeoutMs?: number;
}

/** What run takes beside the feeds. */
export interface RunOptions {
  /** The names of the outputs that are wanted; by default all. */
  outputs?: readonly string[];
  /** Ends the run between two steps of its graph: cancelled, with the signal's reason as cause. */
  signal?: AbortSignal;
  /** Ends it likewise: deadline_exceeded. */
  timeoutMs?: number;
  /** "normal" by default. */
  priority?: Priority;
}

/** Buckets that double: `ends` are upper bounds; `counts` has one more, for what is beyond. */
export interface Histogram {
  ends: number[];
  counts: number[];
  sum: number;
}

/** Figures of a model since its load. */
export interface ModelStats {
  name: string;
  /** Number of the GPU that it runs on; absent on a CPU. */
  gpu?: number;
  /** Runs that wait. */
  queued: Record<Priority, number>;
  started: Record<Priority, number>;
  completed: number;
  failed: number;
  /** Seconds from the call to the start. */
  waitSeconds: Record<Priority, Histogram>;
  /** Seconds of a run, or of a batch of them, in the graph. */
  runSeconds: Histogram;
  /** Runs that went together. */
  batchSizes: Histogram;
  /** Memory of its sessions: weights, and what runs keep for the next. */
  bytes: number;
}

/** Figures of the whole process, whichever thread loaded the models. */
export interface EngineStats {
  threads: number;
  /** Runs that go on. */
  running: number;
  /** Bytes that runs on the CPU have, or keep for the next ones. */
  runBytes: number;
  models: ModelStats[];
}
