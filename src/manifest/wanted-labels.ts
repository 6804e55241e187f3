/**
 * The labels that a request names: which models have them, and a model as it is when only these are
 * told.
 */
import type { Manifest } from "./manifest.js";
import { labelsOf } from "./outputs/outputs.js";
import { isSegmentation } from "./outputs/segmentation.js";

/** The labels of a model of segments, in its order; none of a model that gives anything else. */
export const segmentLabels = ({ outputs }: Pick<Manifest, "outputs">): string[] =>
  outputs.every(isSegmentation)
    ? outputs.flatMap((output) => labelsOf(output).map(({ label }) => label))
    : [];

/** Those of the wanted labels that a model has, in its order. */
export const wantedOf = (
  manifest: Pick<Manifest, "outputs">,
  wanted: readonly string[],
): string[] => segmentLabels(manifest).filter((label) => wanted.includes(label));

/**
 * The manifest with these labels alone, and outputs that have any of them. It is for what is told
 * of a result; the engine runs the whole one.
 */
export const withLabels = (manifest: Manifest, wanted: readonly string[]): Manifest => ({
  ...manifest,
  outputs: manifest.outputs.flatMap((output) => {
    if (!isSegmentation(output)) return [];
    const labels = output.labels.filter(({ label }) => wanted.includes(label));
    return labels.length === 0 ? [] : [{ ...output, labels }];
  }),
});
