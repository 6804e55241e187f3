/**
 * The side guard: it compares the side that a model names with the side that the image says it
 * shows. A finding of the other side is never written; a finding that the image cannot confirm
 * carries a caveat.
 */
import type { EngineOutput } from "../../engine/types.js";
import { errors, type RadserveError } from "../../base/errors.js";
import { attributesOfFrame, type Image, type Warning } from "../../images/image.js";
import type { Label } from "../../manifest/outputs/fields.js";
import { labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import type { Code } from "../../manifest/texts.js";
import { sideOfCode, statedSides, type BodySide } from "./sides.js";
import { sidesOf } from "./edges.js";
import type { SourcePoint } from "../kinds/kind.js";
import { kindOfGiven, resultKindOf } from "../kinds/kinds.js";
import type { Finding } from "../receipt/receipt.js";

interface Claimed {
  image: Image;
  outputs: readonly ModelOutput[];
  /** Findings of one frame, or of a volume. */
  findings: readonly Finding[];
  /** The engine's outputs for the same frame or volume. */
  results: readonly EngineOutput[];
}

const NAMES: Readonly<Record<BodySide, string>> = { L: "left", R: "right" };

/**
 * Compares the present findings that have a side with the image.
 * @returns caveats: laterality_contradictory, laterality_unconfirmed, laterality_doubtful
 * @throws RadserveError output_invalid if a finding is of the side that the image does not show
 */
export function checkSides(claimed: Claimed): Warning[] {
  const { image, outputs, findings, results } = claimed;
  const warnings: Warning[] = [];
  const all = statedSides(image, undefined);
  // The views of a case may well be of both sides
  if (all.size > 1 && !perFrame(image) && image.case === undefined)
    warnings.push({
      code: "laterality_contradictory",
      message:
        "The image calls itself left in one place and right in another; no side is taken from it.",
    });
  // Computed once for each output, and only where the image does not say its side
  const middles = new Map<number, readonly (SourcePoint | undefined)[]>();
  const middle = (o: number, index: number) => {
    const result = results[o];
    if (result === undefined) return undefined;
    const known = middles.get(o) ?? kindOfGiven(result).middles?.(result) ?? [];
    middles.set(o, known);
    return known[index];
  };
  for (const { output, label, o, index } of sidedLabels(outputs)) {
    for (const finding of findings) {
      if (!finding.present || finding.label !== label.label || !resultKindOf(output).isOf(finding))
        continue;
      // Of frames of both sides it is of both; those in which it is present were compared
      if (finding.over_frames !== undefined && all.size > 1 && perFrame(image)) continue;
      const [leading] = image.case?.members ?? [];
      const isPlaced = finding.box ?? finding.point ?? finding.area ?? finding.volume;
      const views = leading !== undefined && isPlaced === undefined;
      const stated = statedSides(views ? image : (leading ?? image), finding.frame);
      const other = label.side === "L" ? "R" : "L";
      if (views && stated.has(label.side)) continue;
      if (stated.has(other)) throw otherSide(label.label, label.side, other);
      if (stated.has(label.side)) continue;
      const at = pointOf(finding) ?? middle(o, index);
      warnings.push(...unconfirmed(image, finding, label, at));
    }
  }
  return warnings;
}

interface Sided {
  output: ModelOutput;
  o: number;
  index: number;
  label: Label & { laterality: Code; side: BodySide };
}

function sidedLabels(outputs: readonly ModelOutput[]): Sided[] {
  return outputs.flatMap((output, o) =>
    labelsOf(output).flatMap((label, index): Sided[] => {
      const { laterality } = label;
      const side =
        laterality === undefined ? undefined : sideOfCode(laterality.value, laterality.scheme);
      if (laterality === undefined || side === undefined) return [];
      return [{ output, o, index, label: { ...label, laterality, side } }];
    }),
  );
}

/**
 * Frames of one object may show different sides, each by its own functional groups, and so may the
 * images of a group.
 */
function perFrame(image: Image): boolean {
  if (image.series?.grouped === true) return true;
  return image.frameCount > 1 && image.attributes?.has("PerFrameFunctionalGroupsSequence") === true;
}

function unconfirmed(
  image: Image,
  finding: Finding,
  label: Sided["label"],
  at: SourcePoint | undefined,
): Warning[] {
  const leftness = at === undefined ? undefined : leftnessOf(image, (finding.frame ?? 1) - 1, at);
  const name = `"${label.label}" is a finding of the ${NAMES[label.side]} side`;
  if (leftness === undefined)
    return [
      {
        code: "laterality_unconfirmed",
        message: `${name}; the image does not say which side it shows.`,
      },
    ];
  if (leftness > 0.5 === (label.side === "L")) return [];
  const message = `${name}, and lies in the other half of the image by the image's orientation.`;
  return [{ code: "laterality_doubtful", message }];
}

/** Where a finding lies that is a box or a point. */
function pointOf({ box, point }: Finding): SourcePoint | undefined {
  return box === undefined ? point : { x: (box.x0 + box.x1) / 2, y: (box.y0 + box.y1) / 2 };
}

/**
 * How far to the patient's left a point lies, 0 to 1; undefined if the image's orientation does not
 * say.
 */
function leftnessOf(image: Image, frame: number, { x, y }: SourcePoint): number | undefined {
  const edges = sidesOf(image.plane(frame), attributesOfFrame(image, frame));
  const [across, down] = [x / image.format.columns, y / image.format.rows];
  switch ((edges?.right ?? "").charAt(0)) {
    case "L":
      return across;
    case "R":
      return 1 - across;
  }
  switch ((edges?.bottom ?? "").charAt(0)) {
    case "L":
      return down;
    case "R":
      return 1 - down;
  }
  return undefined;
}

function otherSide(label: string, claimed: BodySide, stated: BodySide): RadserveError {
  return errors.output_invalid(
    `Expected findings of the ${NAMES[stated]} side, which the image says it shows; found "${label}" of the ${NAMES[claimed]} side. ` +
      "Correct the image's laterality, or exclude such images in the model's accepts.",
    { label, finding: NAMES[claimed], image: NAMES[stated] },
  );
}
