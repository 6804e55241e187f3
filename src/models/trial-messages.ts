/** What a server and the process that tries models for it say to each other. */
import type { ErrorObject } from "../base/errors.js";
import type { GraphInfo } from "../engine/types.js";

interface Order {
  /** Memory that it may take beside what the process has. */
  bytes: number;
}

/** A model to be loaded and run for the first time. */
export interface TrialOrder extends Order {
  /** Bytes that the weights of models that make room for each other may have together. */
  weights: number;
  folder: string;
  /** What is to run it. */
  provider: "cpu" | "openvino";
  /** What counts in place of its model.json. */
  manifest?: unknown;
}

/** A graph to be looked at. */
export interface LookOrder extends Order {
  graph: string;
}

export interface TrialAnswer {
  /** What it took at most, beside what the process had. */
  bytes: number;
  /** What its runs took of that, as far as is known. */
  runs: number;
  /** Why the model does not serve. */
  error?: ErrorObject;
}

/** What the graph has, or why it cannot be looked at. */
export type LookAnswer = { graph: GraphInfo } | { error: ErrorObject };
