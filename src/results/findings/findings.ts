/**
 * Says what the engine gave in the words of the manifest: findings and measurements of a receipt. A
 * score counts as present at or above its threshold; a label that was looked for and not found is a
 * finding too, `present: false`.
 */
import type { ModelOutput } from "../../manifest/outputs/outputs.js";
import type { Finding } from "../receipt/receipt.js";
import {
  invalid,
  type FrameResult,
  type GroupGeometry,
  type Interpreted,
} from "../kinds/finding.js";
import { resultKindOf } from "../kinds/kinds.js";

/**
 * Findings and measurements of one frame or of a volume, in the order of outputs and labels.
 * @param outputs the manifest's outputs, in the order of the outputs in `result` @param thresholds
 * for each output the thresholds of its labels in order, site.json applied; NaN for a label without
 * one
 * @throws RadserveError output_invalid if the engine's outputs do not fit the manifest, or are not
 * numbers
 */
export function interpret(
  outputs: readonly ModelOutput[],
  thresholds: readonly (readonly number[])[],
  result: FrameResult,
): Interpreted {
  if (result.outputs.length !== outputs.length)
    throw invalid(`${outputs.length} outputs`, `${result.outputs.length}`);
  const all = result.outputs.flatMap((given, i) => {
    const output = outputs[i];
    if (output === undefined) return [];
    const kind = resultKindOf(output);
    if (kind.gives !== given.kind) throw invalid(`an output of kind ${output.kind}`, given.kind);
    return [kind.interpret(output, thresholds[i] ?? [], given, result)];
  });
  return joined(all);
}

const joined = (all: readonly Partial<Interpreted>[]): Interpreted => ({
  findings: all.flatMap(({ findings = [] }) => findings),
  measurements: all.flatMap(({ measurements = [] }) => measurements),
  warnings: all.flatMap(({ warnings = [] }) => warnings),
});

/**
 * Findings about all frames of an image, for outputs whose manifest asks for them.
 * @param findings those of the frames
 * @param group how the frames lie, if they are the slices of a group
 * @throws RadserveError output_invalid as `interpret`
 */
export const interpretOver = (
  outputs: readonly ModelOutput[],
  thresholds: readonly (readonly number[])[],
  findings: readonly Finding[],
  group?: GroupGeometry,
): Interpreted =>
  joined(
    outputs.map(
      (output, i) =>
        resultKindOf(output).overFrames?.(output, thresholds[i] ?? [], findings, group) ?? {},
    ),
  );
