/** One model as every thread sees it. */
import type { SessionMemory } from "../engine/types.js";
import type { ErrorObject } from "../base/errors.js";
import type { Manifest, Site } from "../manifest/manifest.js";
import type { Provider } from "../manifest/providers.js";
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
  /** Of a model of parts those of all its parts, in their order; the first is nativeId. */
  partIds?: readonly number[];
  provider?: Provider;
  /** Number of the GPU that it runs on. */
  gpu?: number;
  /**
   * The one or two sessions of the engine that keep its weights, with the bytes of each right after
   * loading.
   */
  sessions?: SessionMemory[];
  /** In a plan: the model in whose region this one looks. */
  first?: FirstModel;
  /**
   * In a plan: the labels that the request names, as far as the model has them. `manifest` and
   * `thresholds` are then as if it had these alone, and `whole` is the manifest that the engine
   * runs; with none of them the model does not run.
   */
  wanted?: { labels: readonly string[]; whole: Manifest };
}

/** All of the engine's numbers for a model; none if it is not loaded. */
export const nativeIdsOf = ({
  nativeId,
  partIds,
}: Pick<ModelEntry, "nativeId" | "partIds">): readonly number[] =>
  partIds ?? (nativeId === undefined ? [] : [nativeId]);

/**
 * Why a model could not come back when it was last wanted; undefined if it could.
 * @param missing by the engine's numbers
 */
export function missingOf(
  entry: Pick<ModelEntry, "nativeId" | "partIds">,
  missing: ReadonlyMap<number, string>,
): string | undefined {
  return nativeIdsOf(entry)
    .map((id) => missing.get(id))
    .find((message) => message !== undefined);
}

/** All models of a process. */
export interface KnownModels {
  entries: readonly ModelEntry[];
  /** Models without an entry, because their manifest cannot be read. */
  problems: readonly { name: string; error: ErrorObject }[];
}
