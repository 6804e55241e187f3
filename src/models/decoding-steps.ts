/** The ordered steps from tensors to what is found, in words and numbers, for the receipt. */
import type { TransformStep } from "../images/image.js";
import type { Manifest } from "../manifest/manifest.js";
import { kindOf, labelsOf } from "../manifest/outputs/outputs.js";

/**
 * The steps of every output whose decoding has some, one output after the other.
 * @param thresholds for each output those of its labels in order, site.json applied
 */
export const decodingSteps = (
  { outputs }: Manifest,
  thresholds: readonly (readonly number[])[],
): TransformStep[] =>
  outputs.flatMap((output, o) => {
    const byLabel = labelsOf(output).map(({ label }, i) => [label, thresholds[o]?.[i] ?? NaN] as const);
    return kindOf(output).decoding?.(output, Object.fromEntries(byLabel)) ?? [];
  });
