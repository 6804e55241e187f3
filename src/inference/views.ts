/**
 * How a model sees an image. A sample is what it is given at once: a frame, a frame with its
 * neighbours, the slices of a volume, or the images of all roles. Views change the sample, one
 * after the other, and take what the model says of it back to the source in the opposite order.
 */
import type { EngineOutput, InferOptions, InferResult, Plane } from "../engine/types.js";
import { volumeOf } from "../images/dicom/volume.js";
import type { Image, Spacing, Volume, VolumeGeometry, Warning } from "../images/image.js";
import {
  cascadeOf,
  imageInputs,
  isVolume,
  neighboursOf,
  toleranceOf,
  type Manifest,
} from "../manifest/manifest.js";
import { seenBy } from "../manifest/roles.js";
import type { Reason } from "../models/attribute-values.js";
import { cutCaveats, interpretationFor } from "../models/input-values.js";
import { isRegridded, type Filled } from "../models/roles.js";
import {
  inSourceSlices,
  mapsInSourceSlices,
  straightCaveats,
  straightened,
  straightOf,
  type Straight,
} from "../models/straighten.js";
import {
  boxOf,
  cutGeometry,
  cutPlane,
  labelMap,
  laidBack,
  nonzeroBox,
  nothingFound,
  wholePairs,
  withMargin,
  type Extent,
  type VoxelGrid,
} from "./region.js";
import { sliceOutputs } from "../results/findings/volume-outputs.js";
import type { Cuboid } from "../results/kinds/kind.js";

/** Frames of one image, as they lie behind each other. */
interface SamplePart {
  image: Image;
  /** From 0. */
  frames: readonly number[];
  /** Undefined unless they are the slices of a volume. */
  geometry: VolumeGeometry | undefined;
  /** Their voxels are not those of the first part, and are taken to its grid. */
  regrid: boolean;
  /** Undefined for a model without roles. */
  role: string | undefined;
}

/** Frames that a model is given at once. */
export interface ModelSample {
  /** One, or one for each role in the manifest's order. */
  parts: readonly SamplePart[];
  /** The frame that findings are about, from 0; undefined for a volume. */
  frame: number | undefined;
  /**
   * Place of that frame in the first part, whose other frames are its neighbours; undefined for a
   * model without.
   */
  centre: number | undefined;
  volume: Volume | undefined;
}

/**
 * Every sample of an image for a model, in the order in which findings are told.
 * @param roles of the image, as rolesIn gives them
 * @throws RadserveError series_invalid if a volume is needed and the image is not one
 */
export function samplesOf(
  manifest: Manifest,
  image: Image,
  roles: readonly Filled[],
): ModelSample[] {
  const isSeries = manifest.accepts.dimensions === "series";
  const volume = isSeries ? volumeOf(image, toleranceOf(manifest)) : undefined;
  const whole = { frame: isSeries ? undefined : 0, centre: undefined, volume };
  if (roles.length > 0)
    return [{ ...whole, parts: roles.map((filled) => partOf(manifest, filled, image)) }];
  const only = (frames: readonly number[]): SamplePart[] => [
    { image, frames, geometry: volume?.geometry, regrid: false, role: undefined },
  ];
  if (volume !== undefined) return [{ ...whole, parts: only(volume.frames) }];
  const around = neighboursOf(manifest);
  if (around === undefined)
    return Array.from({ length: image.frameCount }, (_, frame) => ({
      ...whole,
      frame,
      parts: only([frame]),
    }));
  const { frames } = volumeOf(image);
  return frames.map((frame, slice) => {
    const first = Math.max(0, slice - around.before);
    const parts = only(frames.slice(first, slice + around.after + 1));
    return { ...whole, frame, centre: slice - first, parts };
  });
}

/** A role's image: all of it as a volume, or its first frame. */
function partOf(manifest: Manifest, { role, image }: Filled, leading: Image): SamplePart {
  const volume = manifest.accepts.dimensions === "series" ? volumeOf(image) : undefined;
  const regrid = isRegridded(manifest, leading, image);
  return { image, frames: volume?.frames ?? [0], geometry: volume?.geometry, regrid, role };
}

/** A part of a sample with its pixels. */
export type Stack = Pick<SamplePart, "geometry" | "regrid" | "role"> & { planes: Plane[] };

/**
 * Another form of a sample: `into` makes it, and `back` takes what the model says of it back to the
 * sample.
 */
interface SampleView {
  into: (stacks: Stack[]) => Stack[];
  back: (result: InferResult) => InferResult;
}

const composed = (views: readonly SampleView[]): SampleView => ({
  into: (stacks) => views.reduce((given, { into }) => into(given), stacks),
  back: (result) => views.reduceRight((said, { back }) => back(said), result),
});

/**
 * A tilted stack, or one with missing slices, as a straight and whole one; tensors of the graph
 * stay what they were.
 */
const straightView = (straight: Straight, format: Image["format"]): SampleView => ({
  into: (stacks) =>
    stacks.map((stack) => ({
      ...stack,
      planes: straightened(stack.planes, straight),
      geometry: straight.geometry,
    })),
  back: ({ tensors, ...result }) => {
    const outputs = inSourceSlices(result.outputs, straight, format);
    if (tensors === undefined) return { ...result, outputs };
    const probabilities = tensors.probabilities.map((maps) =>
      mapsInSourceSlices(maps, straight, format),
    );
    return { ...result, outputs, tensors: { ...tensors, probabilities } };
  },
});

/**
 * A box of the sample. Images of roles with another grid are resampled to the grid of the box.
 * Probabilities exist only inside the box.
 */
const boxView = (box: Cuboid, grid: VoxelGrid): SampleView => ({
  into: (stacks) =>
    stacks.map((stack) => {
      const { planes, geometry } = stack;
      if (stack.regrid) return stack;
      const within = planes.slice(box.slice, box.slice + box.slices);
      return {
        ...stack,
        planes: within.map((plane) => cutPlane(plane, box)),
        geometry: geometry && cutGeometry(geometry, box),
      };
    }),
  back: (result) => ({ ...result, outputs: laidBack(result.outputs, box, grid) }),
});

/**
 * Stored values with the meaning that the model's inputs give them; nothing has to be taken back.
 */
const meaningView = (manifest: Manifest): SampleView => ({
  into: (stacks) =>
    stacks.map((stack) => {
      const seen = stack.role === undefined ? manifest : seenBy(manifest, stack.role);
      const meant = ({ interpretation, ...plane }: Plane) => ({
        ...plane,
        interpretation: interpretationFor(seen, interpretation),
      });
      return { ...stack, planes: stack.planes.map(meant) };
    }),
  back: (result) => result,
});

/**
 * nnU-Net takes an image for a slice of a volume whose slices lie so many times as far apart as its
 * pixels.
 */
const THICK = 999;

/** An image as a volume of one slice. Findings about that volume are findings about the image. */
const flatView = ({ row, column }: Pick<Spacing, "row" | "column">): SampleView => ({
  into: (stacks) =>
    stacks.map((stack) => ({
      ...stack,
      geometry: {
        origin: [0, 0, 0],
        columnDirection: [1, 0, 0],
        rowDirection: [0, 1, 0],
        sliceDirection: [0, 0, 1],
        columnSpacing: column,
        rowSpacing: row,
        sliceSpacing: THICK * Math.max(row, column),
      },
    })),
  back: (result) => ({ ...result, outputs: sliceOutputs(result.outputs, 0) }),
});

/** A model that has run on the same sample before another. */
export interface FirstRun {
  manifest: Manifest;
  outputs: readonly EngineOutput[];
}

export interface SampleModel {
  manifest: Manifest;
  /**
   * The model that finds the region of this one, or gives it labels. @throws RadserveError if that
   * failed
   */
  first: (name: string) => FirstRun;
  infer: (
    planes: Plane[],
    given: Pick<InferOptions, "geometry" | "centre" | "sources" | "labels">,
  ) => Promise<InferResult>;
}

/** The outputs of a model for a sample, in pixels of the source. */
export interface SampleResult extends Pick<InferResult, "outputs" | "preparation" | "tensors"> {
  /** Undefined if the engine did not run. */
  rawSha256?: string;
  /** Undefined if no other part than the whole was asked for. */
  extent: Extent | undefined;
  warnings: Warning[];
}

/**
 * Runs a model on a sample through the views that its manifest asks for.
 * @param stacks the parts of the sample, with the interpretations of their files
 * @returns a reason if there is no region, and the manifest refuses that
 */
export async function inferSample(
  { volume, frame = 0, centre, parts }: ModelSample,
  stacks: Stack[],
  { manifest, first, infer }: SampleModel,
): Promise<SampleResult | Reason> {
  const image = parts[0]?.image;
  const plane = stacks[0]?.planes[0];
  if (image === undefined || plane === undefined) throw new RangeError("A sample has a frame");
  const grid = volume === undefined ? gridOfFrame(image, frame) : gridOfVolume(image, volume);
  const extent = extentOf(manifest, plane, grid, first);
  if (extent?.kind === "refused") return regionEmpty(manifest, extent.kind);
  const warnings =
    extent === undefined || extent.kind === "part" ? [] : [regionEmpty(manifest, extent.kind)];
  if (extent?.kind === "nothing") {
    const outputs = nothingFound(manifest, grid, volume !== undefined);
    return { outputs, preparation: {}, extent, warnings };
  }
  const straight = volume && straightOf(volume, image.format);
  if (straight !== undefined) warnings.push(...straightCaveats(straight));
  const isFlat = volume === undefined && imageInputs(manifest).some(isVolume);
  const view = composed([
    ...(isFlat ? [flatView(image.spacing(frame) ?? { row: 1, column: 1 })] : []),
    ...(straight === undefined ? [] : [straightView(straight, image.format)]),
    ...(extent?.kind === "part" ? [boxView(extent.box, grid)] : []),
    meaningView(manifest),
  ]);
  const given = view.into(stacks);
  const cascade = cascadeOf(manifest);
  const planes = given.flatMap((stack) => stack.planes);
  const result = await infer(planes, {
    geometry: given[0]?.geometry,
    centre,
    labels: cascade && labelMap(first(cascade.model).outputs),
    sources:
      manifest.roles &&
      given.map(({ geometry, regrid, planes: own }) => ({ geometry, regrid, planes: own.length })),
  });
  warnings.push(...cutCaveats(manifest, result.preparation));
  return { ...view.back(result), extent, warnings };
}

function gridOfFrame(image: Image, frame: number): VoxelGrid {
  const { rows, columns } = image.format;
  const spacing = image.spacing(frame);
  return { slices: 1, rows, columns, spacing: spacing && { ...spacing, slice: 0 } };
}

function gridOfVolume(
  { format: { rows, columns } }: Image,
  { frames, geometry }: Volume,
): VoxelGrid {
  const { sliceSpacing: slice, rowSpacing: row, columnSpacing: column } = geometry;
  return { slices: frames.length, rows, columns, spacing: { slice, row, column } };
}

/** The extent that a manifest asks for; undefined for all of the sample. */
function extentOf(
  manifest: Manifest,
  plane: Plane,
  grid: VoxelGrid,
  first: SampleModel["first"],
): Extent | { kind: "refused" } | undefined {
  const { region } = manifest;
  if (imageInputs(manifest)[0]?.crop !== undefined) {
    const box = nonzeroBox(plane);
    return box && { kind: "part", box };
  }
  if (region === undefined) return undefined;
  const finder = first(region.model);
  const box = boxOf(finder.manifest, finder.outputs, region.label);
  if (box !== undefined)
    return { kind: "part", box: wholePairs(withMargin(box, region.margin_mm, grid), plane.format) };
  const kinds = { refuse: "refused", whole: "whole", negative: "nothing" } as const;
  return { kind: kinds[region.when_empty] };
}

/**
 * The reason of a model that refuses to run where the other found nothing, and the warning of one
 * that does not.
 */
export const REGION_EMPTY = "region_empty";

function regionEmpty({ region }: Manifest, kind: "refused" | "whole" | "nothing"): Reason {
  const nothing = `The model "${region?.model}" found no "${region?.label}"`;
  const messages = {
    refused: `Expected ${region?.label} to look at. ${nothing}.`,
    whole: `${nothing}; the whole image was used.`,
    nothing: `${nothing}; this model did not look, and says that nothing is there.`,
  };
  return { code: REGION_EMPTY, message: messages[kind] };
}
