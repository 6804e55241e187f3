/** The part of the addon that knows graphs and tensors alone (native/addon/graphs.cc). */
import type { DataType, NumberData } from "./data-types.js";
import type { Provider, TensorInfo } from "./types.js";

export interface RuntimeInfo {
  onnxRuntimeVersion: string;
  /** As ONNX Runtime names them: CPUExecutionProvider, CUDAExecutionProvider. */
  providers: string[];
  /** Threads of the engine, of the whole process. */
  threads: number;
}

/** A graph in the process, by its number. */
export interface LoadedGraph {
  id: number;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  /** Outputs that are no tensors. */
  leftOut: string[];
  /** Most runs that go together. */
  batching: number;
  gpu?: number;
  /** Its tensors have other shapes than the graph says, and go through it part by part. */
  byWindows?: boolean;
}

export interface NativeModelStats {
  id: number;
  name: string;
  gpu?: number;
  queued: NativeClasses<number>;
  started: NativeClasses<number>;
  completed: number;
  failed: number;
  waitSeconds: NativeClasses<NativeHistogram>;
  runSeconds: NativeHistogram;
  batchSizes: NativeHistogram;
  sessions: { bytes: number }[];
}

/** The three priorities, as the scheduler names them. */
export interface NativeClasses<T> {
  stat: T;
  routine: T;
  bulk: T;
}

interface NativeHistogram {
  ends: number[];
  counts: number[];
  sum: number;
}

export interface NativeStats {
  threads: number;
  running: number;
  models: NativeModelStats[];
}

/** Tensors and tolerances that a model must keep to when it is loaded again. */
export interface NativeCanary {
  feeds: NativeTensor[];
  expected: NativeTensor[];
  absolute: number;
  relative: number;
  timeoutMs: number;
}

interface NativeTensor {
  name: string;
  dtype: DataType;
  shape: number[];
  data: Uint8Array;
}

/** For each output its shape, and its memory or its texts. */
export type NativeOutputs = (number[] | ArrayBuffer | string[])[];

export interface GraphAddon {
  start(options: { threads: number }): RuntimeInfo;
  /** Why CUDA cannot be used on that GPU; "" if it can. */
  cudaProblem(device: number): string;
  /** The version of OpenVINO, and why it cannot be used; "" if it can. */
  openvino(): { version: string; problem: string };
  inspect(path: string): Promise<unknown>;
  loadGraph(options: {
    path: string | undefined;
    bytes: Uint8Array | undefined;
    name: string;
    maxBatch: number;
    provider: Provider;
    precision: string;
    threads: number;
    gpus: readonly number[];
    gpuMemory: number;
    hashes: readonly never[];
    timeoutMs: number | undefined;
    cancelId: number | undefined;
  }): Promise<LoadedGraph>;
  keepCanary(id: number, canary: NativeCanary): void;
  leaveIdle(milliseconds: number): void;
  unload(id: number): Promise<void>;
  run(
    id: number,
    data: readonly (NumberData | readonly string[])[],
    shapes: readonly (readonly number[])[],
    outputs: readonly number[],
    priority: number,
    timeoutMs: number,
    cancelId: number,
    subject: number,
  ): Promise<NativeOutputs>;
  /** A number for `cancel` that nothing else in the process has. */
  newCancelId(): number;
  cancel(cancelId: number): void;
  limitRuns(bytes: number): void;
  limitWeights(bytes: number): void;
  runMemory(): number;
  stats(): NativeStats;
}
