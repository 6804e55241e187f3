/** The segments of a segmentation: which labels they are, and the pixels of each on each frame. */
import { equalTo, nonZero } from "../../addon/bytes.js";
import type { EngineOutput } from "../../engine/types.js";
import { isFractional, labelsOf, type Label, type ModelOutput } from "../../manifest/manifest.js";
import { trackingUid, type Subject } from "./subject.js";

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

export function segmentTracking(subject: Subject, segment: Segment): { id: string; uid: string } {
  return {
    id: `${subject.model.name}: ${segment.label.label}`,
    uid: trackingUid(subject, ["segment", segment.output, segment.index]),
  };
}

/** What the model gave for each frame of the image, in its order. */
export type FrameOutputs = readonly (readonly EngineOutput[])[];

/** Number of a SEG frame (from 1): all source frames of the first segment, then those of the second. */
export function segFrameNumber(segment: number, frame: number, frames: number): number {
  return (segment - 1) * frames + frame + 1;
}

/** The pixels of a segment on a frame, one byte each: 0 or 1 in a mask, 0 to 255 among probabilities. */
type PlanesOf = (segment: Pick<Segment, "output" | "index">, frame: number) => Uint8Array;

/**
 * All segments of a model are written in one way: as probabilities, in steps of 1/255, if the manifest says so of one
 * of its outputs, else as masks.
 * @throws Error if an output is not a segmentation of the image's size: the engine's contract is broken
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
    if (!fractional) return overlapping ? nonZero(plane(mask), pixels) : equalTo(mask, index + 1, pixels);
    if (fractions === undefined || fractions.length < (index + 1) * pixels)
      throw new Error("A fractional segmentation has a plane of probabilities for every label");
    return plane(fractions);
  };
}
