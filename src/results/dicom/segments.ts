/** The segments of a segmentation: which labels they are, and the pixels of each on each frame. */
import { equalTo, nonZero } from "../../addon/bytes.js";
import type { Attributes } from "../../images/image.js";
import type { Phase } from "../../images/dicom/shared-places.js";
import type { EngineOutput } from "../../engine/types.js";
import type { SegmentationType } from "../forms.js";
import type { Label } from "../../manifest/outputs/fields.js";
import { labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { isFractional, isSegmentation, mayOverlap } from "../../manifest/outputs/segmentation.js";
import { trackingUid, type Subject } from "./subject.js";
import { oneLine } from "./values.js";

export const LABEL_MAP_SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.7";

/**
 * The number of the segment that a frame of a segmentation is of (PS3.3 C.8.20.3.1); undefined in a
 * label map, whose frames have all.
 * @param groups the frame's item of PerFrameFunctionalGroupsSequence
 */
export const segmentOfFrame = (groups: Attributes): number | undefined =>
  groups.sequence("SegmentIdentificationSequence")?.[0]?.number("ReferencedSegmentNumber");

/** One segment of a SEG: a label of one of the model's segmentations. */
export interface Segment {
  /** From 1, over all segmentations in the manifest's order. */
  number: number;
  output: number;
  /** Index in the output's labels. */
  index: number;
  label: Label;
}

export function segmentsOf(outputs: readonly ModelOutput[]): Segment[] {
  const segments: Segment[] = [];
  outputs.forEach((output, o) => {
    if (output.kind !== "segmentation") return;
    labelsOf(output).forEach((label, index) =>
      segments.push({ number: segments.length + 1, output: o, index, label }),
    );
  });
  return segments;
}

/** A segment on the frames of one phase, as objects that are read by geometry have it. */
export interface PhaseSegment extends Segment {
  /** From 1, over the segments in their order, and the phases of each. */
  number: number;
  phase: Phase;
}

/** The phases of a subject's frames: one of all where they are not parted. */
export function phasesIn({ image, phases }: Pick<Subject, "image" | "phases">): readonly Phase[] {
  if (phases !== undefined && typeof phases !== "string") return phases;
  return [{ name: "", frames: Array.from({ length: image.frameCount }, (_, frame) => frame) }];
}

export function partsOf(segments: readonly Segment[], phases: readonly Phase[]): PhaseSegment[] {
  return segments.flatMap((segment) =>
    phases.map((phase, i) => ({
      ...segment,
      number: (segment.number - 1) * phases.length + i + 1,
      phase,
    })),
  );
}

/** The name of a part in one line of at most 64 characters: the phase is never cut off first. */
export function partName({ label: { label }, phase: { name } }: PhaseSegment): string {
  if (name === "") return oneLine(label, 64);
  const end = ` (${oneLine(name, 40)})`;
  return `${oneLine(label, 64 - end.length)}${end}`;
}

/**
 * What follows a segment over phases has one tracking UID in all of them (PS3.3 C.8.20.2).
 */
export function segmentTracking(subject: Subject, segment: Segment): { id: string; uid: string } {
  return {
    id: `${subject.model.name}: ${segment.label.label}`,
    uid: trackingUid(subject, ["segment", segment.output, segment.index]),
  };
}

/** The model's output for each frame of the image, in its order. */
export type FrameOutputs = readonly (readonly EngineOutput[])[];

/**
 * How the frames of a segmentation are laid out: one for each segment and source frame, or one for
 * all segments.
 */
export type SegmentationForm = "binary" | "fractional" | "labelmap";

/**
 * The form of a model's segmentation over an image, which is known before the model runs. A label
 * map has one label a pixel, so that labels must not overlap; and what a report says of one frame
 * of several it could not refer to there, because a reference names frames or segments and not both
 * (PS3.3 table 10-3).
 * @param wanted what the site has chosen
 */
export function segmentationForm(
  { image, model }: Pick<Subject, "image" | "model">,
  wanted: SegmentationType,
): SegmentationForm {
  const { manifest } = model;
  if (manifest.outputs.some(isFractional)) return "fractional";
  const isWhole = image.frameCount === 1 || manifest.accepts.dimensions === "series";
  return wanted === "labelmap" && isWhole && areExclusive(manifest.outputs) ? "labelmap" : "binary";
}

/** Whether no two segments of the model can meet in a pixel. */
export function areExclusive(outputs: readonly ModelOutput[]): boolean {
  const [one, ...others] = outputs.filter(isSegmentation);
  if (one === undefined || others.length > 0) return false;
  return !mayOverlap(one.activation) && !isFractional(one);
}

/**
 * The labels of a frame, one byte a pixel: 0 for none, else the number of its segment.
 * @throws Error if an output is not a segmentation of the image's size
 */
export function labelPlane(
  model: readonly ModelOutput[],
  outputs: FrameOutputs,
  frame: number,
  pixels: number,
): Uint8Array {
  const given = outputs[frame]?.[model.findIndex(({ kind }) => kind === "segmentation")];
  if (given?.kind !== "segmentation" || given.overlapping || given.mask.length !== pixels)
    throw new Error(
      "A label map has one label of the source's size for every pixel of every frame",
    );
  return given.mask;
}

/**
 * The pixels of a segment on a frame, one byte each: 0 or 1 in a mask, 0 to 255 among
 * probabilities.
 */
type PlanesOf = (segment: Pick<Segment, "output" | "index">, frame: number) => Uint8Array;

/**
 * All segments of a model are written in one way: as probabilities, in steps of 1/255, if the
 * manifest says so of one of its outputs, else as masks.
 * @throws Error if an output is not a segmentation of the image's size: the engine's contract is
 * broken
 */
export function segmentPlanes(
  model: readonly ModelOutput[],
  outputs: FrameOutputs,
  pixels: number,
): PlanesOf {
  const fractional = model.some(isFractional);
  return ({ output, index }, frame) => {
    const given = outputs[frame]?.[output];
    if (given?.kind !== "segmentation" || given.rows * given.columns !== pixels)
      throw new Error("A segmentation has a mask of the source's size for every frame");
    const { mask, overlapping, fractions } = given;
    const plane = (all: Uint8Array) => all.subarray(index * pixels, (index + 1) * pixels);
    if (!fractional)
      return overlapping ? nonZero(plane(mask), pixels) : equalTo(mask, index + 1, pixels);
    if (fractions === undefined || fractions.length < (index + 1) * pixels)
      throw new Error("A fractional segmentation has a plane of probabilities for every label");
    return plane(fractions);
  };
}
