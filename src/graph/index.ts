/** What `radserve/engine`, and the package radserve-engine, export. */
export { createEngine, type Engine } from "./engine.js";
export type { Model } from "./model.js";
export { EngineError, ENGINE_ERRORS, type EngineErrorCode } from "./errors.js";
export type { DataType, NumberData, TensorData } from "./data-types.js";
export type {
  EngineOptions,
  EngineStats,
  Feed,
  Feeds,
  Histogram,
  LoadOptions,
  ModelStats,
  Outputs,
  Priority,
  Provider,
  RunOptions,
  Tensor,
  TensorInfo,
} from "./types.js";
