/**
 * The use-case: read one image, run every model that accepts it, commit the results. The HTTP handler, the bulk
 * runner and the command line all call it; it runs inside a worker thread or in the command itself.
 */
import type { Engine } from "./engine.js";
import type { OutputKind } from "./manifest.js";
import type { ModelEntry } from "./models.js";
import type { Roots } from "./paths.js";
import type { Answer } from "./results/receipt.js";

/** Small and structured-cloneable: it crosses to a worker thread. */
export interface InferTask {
  requestId: string;
  inputPath: string;
  outputFolder: string;
  /** Base name of the results; by default the input's. */
  name?: string;
  /** Names of models to run; all that accept the image where absent. */
  models?: string[];
  outputs?: OutputKind[];
  priority: "stat" | "routine" | "bulk";
  /** Milliseconds since the epoch. */
  deadline?: number;
  cancelId: number;
  roots: Roots;
}

export interface InferContext {
  engine: Engine;
  models: readonly ModelEntry[];
}

/** Throws RadserveError; what it wrote before is removed. */
export declare function infer(task: InferTask, context: InferContext): Promise<Answer>;
