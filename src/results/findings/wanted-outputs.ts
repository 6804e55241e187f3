/** What a model said, with the labels that a request names alone. */
import { release } from "../../addon/bytes.js";
import type { EngineOutput, ModelGridMask } from "../../engine/types.js";
import type { Manifest } from "../../manifest/manifest.js";
import { isSegmentation } from "../../manifest/outputs/segmentation.js";

type Mask = Pick<ModelGridMask, "overlapping" | "mask" | "counts" | "fractions">;

/**
 * Outputs for the manifest that withLabels makes of `whole`: other labels are background, and
 * outputs that have none of the wanted are left out.
 */
export function wantedOutputs(
  outputs: readonly EngineOutput[],
  whole: Pick<Manifest, "outputs">,
  wanted: readonly string[],
): EngineOutput[] {
  return outputs.flatMap((output, o): EngineOutput[] => {
    const described = whole.outputs[o];
    if (output.kind !== "segmentation" || described === undefined || !isSegmentation(described))
      return [];
    const places = described.labels.flatMap(({ label }, i) => (wanted.includes(label) ? [i] : []));
    if (places.length === 0) return [];
    const { model } = output;
    return [
      {
        ...output,
        ...reduced(output, places),
        ...(model === undefined ? {} : { model: { ...model, ...reduced(model, places) } }),
      },
    ];
  });
}

/** @param places of the labels that stay, from 0, in their order */
function reduced({ overlapping, mask, counts, fractions }: Mask, places: readonly number[]): Mask {
  const all = counts.length;
  const planes = (values: Uint8Array) => {
    const plane = values.length / all;
    const kept = new Uint8Array(plane * places.length);
    places.forEach((place, i) => {
      kept.set(values.subarray(place * plane, (place + 1) * plane), i * plane);
    });
    release(values);
    return kept;
  };
  if (!overlapping) {
    const numbers = new Uint8Array(all + 1);
    places.forEach((place, i) => (numbers[place + 1] = i + 1));
    for (let i = 0; i < mask.length; i++) if (mask[i] !== 0) mask[i] = numbers[mask[i] ?? 0] ?? 0;
  }
  return {
    overlapping,
    mask: overlapping ? planes(mask) : mask,
    counts: places.map((place) => counts[place] ?? 0),
    ...(fractions === undefined ? {} : { fractions: planes(fractions) }),
  };
}
