import type { EngineOutput } from "./types.js";

/** The label map of a volume, of the first segmentation whose labels exclude each other. */
export function markedLabels(outputs: readonly EngineOutput[]): Uint8Array | undefined {
  for (const output of outputs) if (output.kind === "segmentation" && !output.overlapping) return output.mask;
  return undefined;
}
