/** The facts of which every kind of output makes its findings and measurements. */
import { errors, type RadserveError } from "../../base/errors.js";
import type { EngineOutput, Plane } from "../../engine/types.js";
import type { UltrasoundRegion, Spacing, VolumeGeometry, Warning } from "../../images/image.js";
import type { Label } from "../../manifest/outputs/fields.js";
import type { Finding, Measurement } from "../receipt/receipt.js";

/** The result of one model for one frame, or for a volume. */
export interface FrameResult {
  /** Number of the frame, from 1; undefined for a source of one frame. */
  frame?: number | undefined;
  outputs: readonly EngineOutput[];
  spacing: Spacing | undefined;
  /** The frame is a slice of a group, whose volumes are told together. */
  inGroup?: boolean | undefined;
  /** Where parts of the frame have scales of their own. */
  regions?: readonly UltrasoundRegion[] | undefined;
  /** How a whole series lies; counts are then of voxels. */
  volume?: VolumeGeometry | undefined;
  /** Of a volume, which frame (from 0) each slice is. */
  slices?: readonly number[] | undefined;
  /** Whether its slices do not follow each other straight and evenly. */
  flawed?: boolean | undefined;
  /**
   * The pixels of the frame, or of the volume's slices in their order, with the meaning that the
   * model gives them.
   */
  planes?: readonly Plane[] | undefined;
}

/** How the slices of a group lie, or why they are not a straight and whole volume, in words. */
export type GroupGeometry = VolumeGeometry | { missing: string };

/** The frame or volume that findings are about. */
export type FindingScope = Omit<FrameResult, "outputs">;

export interface Interpreted {
  findings: Finding[];
  measurements: Measurement[];
  warnings: Warning[];
}

export function labelFields(
  label: Label,
  part: FindingScope,
): Pick<Finding, "label" | "code" | "frame"> {
  return {
    label: label.label,
    ...(label.code === undefined ? {} : { code: label.code }),
    ...frameOf(part),
  };
}

export const frameOf = ({ frame }: FindingScope): { frame?: number } =>
  frame === undefined ? {} : { frame };

/** Height of a pixel divided by its width, as it is in the patient. */
export const pixelAspect = ({ spacing, planes }: FindingScope): number =>
  spacing === undefined ? (planes?.[0]?.pixelAspect ?? 1) : spacing.row / spacing.column;

/** @param what is in pixels then */
export const noPatientSpacing = ({ spacing }: FindingScope, what: string): Warning => ({
  code: "no_patient_spacing",
  message: `${
    spacing === undefined
      ? "The image does not say how large its pixels are"
      : `The image gives ${spacing.source}, which is not known to be spacing in the patient`
  }; ${what}.`,
});

/**
 * Scores are float32: a score of 0.7 arrives as 0.69999999, so the threshold is rounded in the same
 * way.
 */
export const isPresent = (score: number, threshold: number): boolean =>
  Math.fround(score) >= Math.fround(threshold);

/** @throws RadserveError output_invalid */
export function thresholdOf(label: Label, threshold: number | undefined): number {
  if (threshold === undefined || Number.isNaN(threshold))
    throw invalid(`a threshold for the label "${label.label}"`, "none");
  return threshold;
}

/** @throws RadserveError output_invalid */
export function finite(value: number | undefined): number {
  if (value === undefined || !Number.isFinite(value))
    throw invalid("finite numbers", String(value));
  return value;
}

export const invalid = (expected: string, found: string): RadserveError =>
  errors.output_invalid(
    `Expected ${expected} from the model, but found ${found}. Check the manifest's outputs with "radserve models check".`,
  );
