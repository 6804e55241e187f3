/** One model as every thread sees it. */
import type { SessionMemory } from "../engine/types.js";
import type { ErrorObject } from "../base/errors.js";
import type { Manifest, Site } from "../manifest/manifest.js";
import type { FirstModel } from "../manifest/region.js";

/** Plain data, structured-cloneable. */
export interface ModelEntry {
  name: string;
  version: string;
  /** SHA-256 over the manifest's canonical JSON and all files of the model, hex. */
  sha256: string;
  manifest: Manifest;
  site: Site;
  /**
   * Thresholds for each output in its label order, site.json applied; NaN for a label without one.
   */
  thresholds: number[][];
  state: "ready" | "failed" | "off";
  error?: ErrorObject;
  /** The engine's number for the loaded model; set only in state ready. */
  nativeId?: number;
  provider?: "cpu" | "cuda";
  /** Number of the GPU that it runs on. */
  gpu?: number;
  /**
   * The one or two sessions of the engine that keep its weights, with the bytes of each right after
   * loading.
   */
  sessions?: SessionMemory[];
  /** In a plan: the model in whose region this one looks. */
  first?: FirstModel;
}

/** All models of a process. */
export interface KnownModels {
  entries: readonly ModelEntry[];
  /** Models without an entry, because their manifest cannot be read. */
  problems: readonly { name: string; error: ErrorObject }[];
}
