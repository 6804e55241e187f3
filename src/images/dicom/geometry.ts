/** Where pixels lie and how large they are (PS3.3 10.7, C.7.6.2, C.8.5.5). */
import { RadserveError } from "../../base/errors.js";
import type { PlanePosition, Region, Spacing } from "../image.js";
import { cross, unit } from "../vectors.js";
import type { DataSetAttributes } from "./attributes.js";

/**
 * The attributes of one functional group macro (PS3.3 C.7.6.16) for a frame (from 0): the per-frame item overrides
 * the shared one. Undefined if the object has neither; then the attributes at the top of the data set count.
 */
export function functionalGroup(
  attributes: DataSetAttributes,
  frame: number,
  macro: string,
): DataSetAttributes | undefined {
  const own = attributes.sequence("PerFrameFunctionalGroupsSequence")?.[frame]?.sequence(macro)?.[0];
  return own ?? attributes.sequence("SharedFunctionalGroupsSequence")?.[0]?.sequence(macro)?.[0];
}

/** Calls `read` once a frame if frames can differ, else once in all. */
export function perFrame<T>(attributes: DataSetAttributes, read: (frame: number) => T): (frame: number) => T {
  const varies = attributes.has("PerFrameFunctionalGroupsSequence");
  const known = new Map<number, T>();
  return (frame) => {
    const key = varies ? frame : 0;
    let value = known.get(key);
    if (value === undefined) {
      value = read(key);
      known.set(key, value);
    }
    return value;
  };
}

export interface FrameGeometry {
  spacing: Spacing | undefined;
  regions: readonly Region[] | undefined;
  plane: PlanePosition | undefined;
  /** Height of a pixel divided by its width. */
  pixelAspect: number;
}

/**
 * Geometry by frame (from 0), read when first asked for.
 * Throws corrupt_image if the planes of a dose grid cannot be told.
 */
export function frameGeometry(
  attributes: DataSetAttributes,
  frames: number,
): (frame: number) => FrameGeometry {
  const planes = dosePlanes(attributes, frames);
  const read = readGeometry(attributes);
  if (planes === undefined) return read;
  return (frame) => ({ ...read(frame), plane: planes[frame] });
}

function readGeometry(attributes: DataSetAttributes): (frame: number) => FrameGeometry {
  return perFrame(attributes, (frame) => {
    const declared = readSpacing(attributes, frame);
    const regions = declared === undefined ? ultrasoundRegions(attributes) : undefined;
    const spacing = declared ?? commonSpacing(regions);
    return {
      spacing,
      regions,
      plane: readPlane(attributes, frame),
      pixelAspect: spacing === undefined ? aspectRatio(attributes) : spacing.row / spacing.column,
    };
  });
}

/** `row \ column`: of a spacing in mm (PS3.3 10.7.1.3), the first value is the distance between rows. */
function pair(
  attributes: DataSetAttributes | undefined,
  keyword: string,
): { row: number; column: number } | undefined {
  const [row, column] = attributes?.numbers(keyword) ?? [];
  if (row === undefined || column === undefined || !(row > 0) || !(column > 0)) return undefined;
  return { row, column };
}

function readSpacing(attributes: DataSetAttributes, frame: number): Spacing | undefined {
  const measures = functionalGroup(attributes, frame, "PixelMeasuresSequence");
  const measured = pair(measures, "PixelSpacing");
  if (measured !== undefined && isReconstructed(attributes, frame))
    return { ...measured, source: "PixelSpacing", patient: true };
  const pixel = measured ?? pair(attributes, "PixelSpacing");
  const imager = pair(attributes, "ImagerPixelSpacing");
  const scanned = pair(attributes, "NominalScannedPixelSpacing");
  // Equal to the detector's, PixelSpacing says that nothing was corrected for magnification (PS3.3 10.7.1.1)
  const corrected = [imager, scanned].every(
    (other) => other === undefined || pixel?.row !== other.row || pixel.column !== other.column,
  );
  if (pixel !== undefined && corrected) {
    const unknown = imager === undefined && scanned === undefined && isProjection(attributes);
    return { ...pixel, source: "PixelSpacing", patient: !unknown };
  }
  if (imager !== undefined) return { ...imager, source: "ImagerPixelSpacing", patient: false };
  if (scanned !== undefined) return { ...scanned, source: "NominalScannedPixelSpacing", patient: false };
  return undefined;
}

/**
 * Whether a frame is a plane in the patient by its functional groups, as those of tomosynthesis and of other X-ray 3D
 * reconstructions are. Then the PixelSpacing of its Pixel Measures is in the patient (PS3.3 C.7.6.16.2.1), whatever the
 * modality is called and however far apart the pixels of the detector were.
 */
function isReconstructed(attributes: DataSetAttributes, frame: number): boolean {
  const orientation = functionalGroup(attributes, frame, "PlaneOrientationSequence");
  return orientation?.numbers("ImageOrientationPatient")?.length === 6;
}

const PROJECTIONS = ["CR", "DX", "IO", "MG", "PX", "RF", "RG", "XA"];

/** Whether a projection that does not say how it was calibrated was calibrated at all is unknown (PS3.3 10.7.1.1). */
function isProjection(attributes: DataSetAttributes): boolean {
  return (
    PROJECTIONS.includes(attributes.string("Modality") ?? "") &&
    attributes.string("PixelSpacingCalibrationType") === undefined &&
    attributes.numbers("ImageOrientationPatient") === undefined
  );
}

const TWO_DIMENSIONAL = 1;
const CENTIMETRES = 3;

/** Bit 0 of RegionFlags (PS3.3 C.8.5.5.1.3): 0 is high priority, 1 is low. */
const LOW_PRIORITY = 1;

/**
 * The regions of an ultrasound image that show a plane of the body (PS3.3 C.8.5.5); undefined if none of them has a
 * scale. Regions that reach beyond the image are those of a larger one, before somebody shrank it, and so are their
 * scales: then none is believed.
 */
function ultrasoundRegions(attributes: DataSetAttributes): Region[] | undefined {
  const size = { rows: attributes.number("Rows") ?? 0, columns: attributes.number("Columns") ?? 0 };
  const regions = (attributes.sequence("SequenceOfUltrasoundRegions") ?? [])
    .filter((region) => region.number("RegionSpatialFormat") === TWO_DIMENSIONAL)
    .map((region) => ({
      ...extentOf(region, size),
      scale: scaleOf(region),
      highPriority: ((region.number("RegionFlags") ?? 0) & LOW_PRIORITY) === 0,
    }));
  // Some writers give one beyond the last pixel, a size instead of a position
  const fits = regions.every(({ x1, y1 }) => x1 <= size.columns && y1 <= size.rows);
  return fits && regions.some(({ scale }) => scale !== undefined) ? regions : undefined;
}

function scaleOf(region: DataSetAttributes): Region["scale"] {
  const inCentimetres =
    region.number("PhysicalUnitsXDirection") === CENTIMETRES &&
    region.number("PhysicalUnitsYDirection") === CENTIMETRES;
  const column = Math.abs(region.number("PhysicalDeltaX") ?? 0) * 10;
  const row = Math.abs(region.number("PhysicalDeltaY") ?? 0) * 10;
  return inCentimetres && row > 0 && column > 0 ? { row, column } : undefined;
}

/** The scale of all regions; undefined if they differ. */
function commonSpacing(regions: readonly Region[] | undefined): Spacing | undefined {
  const scale = regions?.[0]?.scale;
  const shared = regions?.every(
    (region) => region.scale?.row === scale?.row && region.scale?.column === scale?.column,
  );
  if (scale === undefined || shared !== true) return undefined;
  return { ...scale, source: "SequenceOfUltrasoundRegions", patient: true };
}

/** The pixels that a region covers; the whole image if it does not say. */
function extentOf(region: DataSetAttributes, { rows, columns }: { rows: number; columns: number }) {
  return {
    x0: region.number("RegionLocationMinX0") ?? 0,
    y0: region.number("RegionLocationMinY0") ?? 0,
    x1: region.number("RegionLocationMaxX1") ?? columns - 1,
    y1: region.number("RegionLocationMaxY1") ?? rows - 1,
  };
}

function aspectRatio(attributes: DataSetAttributes): number {
  const { row, column } = pair(attributes, "PixelAspectRatio") ?? { row: 1, column: 1 };
  return row / column;
}

function readPlane(attributes: DataSetAttributes, frame: number): PlanePosition | undefined {
  const position =
    functionalGroup(attributes, frame, "PlanePositionSequence")?.numbers("ImagePositionPatient") ??
    attributes.numbers("ImagePositionPatient");
  const orientation =
    functionalGroup(attributes, frame, "PlaneOrientationSequence")?.numbers("ImageOrientationPatient") ??
    attributes.numbers("ImageOrientationPatient");
  if (position?.length !== 3 || orientation?.length !== 6) return undefined;
  return {
    position: position as PlanePosition["position"],
    orientation: orientation as PlanePosition["orientation"],
  };
}

/** Positions are decimal text that is rounded on its own in each attribute. */
const SAME_PLACE_MM = 0.01;
const SAME_DIRECTION = 1e-4;
const TRANSVERSE = [1, 0, 0, 0, 1, 0];

/**
 * The planes of a dose grid with several frames (PS3.3 C.8.8.3.2). GridFrameOffsetVector begins with 0 and says how far
 * each frame lies from the first along the cross product of row and column direction; or it begins with the z of
 * ImagePositionPatient, the frames are transverse (1\0\0\0\1\0), and it holds the z of each frame. Undefined if there is
 * none, or no plane to begin at.
 * Throws corrupt_image if it is neither of the two, or has not one value for each frame.
 */
function dosePlanes(attributes: DataSetAttributes, frames: number): PlanePosition[] | undefined {
  const offsets = attributes.numbers("GridFrameOffsetVector");
  const plane = readPlane(attributes, 0);
  if (frames === 1 || offsets === undefined || plane === undefined) return undefined;
  if (offsets.length !== frames)
    throw new RadserveError(
      "corrupt_image",
      `Expected GridFrameOffsetVector to have one value for each of the ${frames} frames, found ${offsets.length}. Correct the object at the source.`,
      { frames, offsets: offsets.length },
    );
  const { position, orientation } = plane;
  const [first = NaN] = offsets;
  const [x, y, z] = position;
  if (first === 0) {
    const [a, b, c, d, e, f] = orientation;
    const normal = unit(cross([a, b, c], [d, e, f]));
    return offsets.map((offset) => ({
      position: [x + offset * normal[0], y + offset * normal[1], z + offset * normal[2]],
      orientation,
    }));
  }
  const isTransverse = orientation.every(
    (cosine, i) => Math.abs(cosine - (TRANSVERSE[i] ?? NaN)) <= SAME_DIRECTION,
  );
  if (isTransverse && Math.abs(first - z) <= SAME_PLACE_MM)
    return offsets.map((offset) => ({ position: [x, y, offset], orientation }));
  throw new RadserveError(
    "corrupt_image",
    `Expected GridFrameOffsetVector to begin with 0, or in transverse frames with the z of ImagePositionPatient, ${z}; found ${first}. Correct the object at the source.`,
    { first, z, transverse: isTransverse },
  );
}
