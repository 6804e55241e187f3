/** Where pixels lie and how large they are (PS3.3 10.7, C.7.6.2, C.8.5.5). */
import { cachedWith } from "../../base/cached.js";
import { errors } from "../../base/errors.js";
import {
  warn,
  type PlaneFault,
  type PlanePosition,
  type UltrasoundRegion,
  type Spacing,
  type Warning,
} from "../image.js";
import { SPACING } from "./attributes-read.js";
import type { DataSetAttributes } from "./attributes.js";
import { functionalGroup, holderOf, perFrame } from "./functional-groups.js";
import { checkSides, directionsOf, planeReader, type Placed } from "./planes.js";

export interface FrameGeometry {
  spacing: Spacing | undefined;
  regions: readonly UltrasoundRegion[] | undefined;
  plane: PlanePosition | undefined;
  planeFault: PlaneFault | undefined;
  /** Height of a pixel divided by its width. */
  pixelAspect: number;
}

/**
 * Geometry by frame (from 0), read when first asked for. What is said twice, or cannot be, is a
 * warning. Throws corrupt_image if the planes of a dose grid cannot be told, or a scale cannot be.
 */
export function frameGeometry(
  attributes: DataSetAttributes,
  frames: number,
  warnings: Warning[],
): (frame: number) => FrameGeometry {
  const placed = planeReader(attributes, frames, warnings);
  const read = perFrame(attributes, (frame) =>
    readGeometry(attributes, frame, placed(frame), warnings),
  );
  return (frame) => {
    const { plane, fault } = placed(frame);
    return { ...read(frame), plane, planeFault: fault };
  };
}

function readGeometry(
  attributes: DataSetAttributes,
  frame: number,
  { plane, fault }: Placed,
  warnings: Warning[],
): Omit<FrameGeometry, "plane" | "planeFault"> {
  if (fault !== undefined) warn(warnings, fault.reason, fault.message);
  checkSides(attributes, plane, warnings);
  const declared = readSpacing(attributes, frame, plane, warnings);
  const { spacing, regions } = withRegions(attributes, declared, warnings);
  if (spacing !== undefined) checkPlausible(attributes, spacing, warnings);
  const stated = aspectRatio(attributes);
  const pixelAspect = spacing === undefined ? (stated ?? 1) : spacing.row / spacing.column;
  if (stated !== undefined && Math.abs(stated - pixelAspect) > SAME_SCALE * pixelAspect)
    warn(
      warnings,
      "aspect_mismatch",
      `PixelAspectRatio is ${shortly(stated)}, and by their spacing pixels are ${shortly(pixelAspect)} times as high as wide; the spacing was believed.`,
    );
  return {
    // The lengths in a mosaic are right within each of its slices, and nobody knows where those
    // begin
    spacing:
      spacing !== undefined && fault?.reason === "mosaic"
        ? { ...spacing, patient: false }
        : spacing,
    regions,
    pixelAspect,
  };
}

/** Larger pixels are of no scanner: those of nuclear medicine are some 10 mm. */
const LARGEST_PIXEL_MM = 50;
/** Twice the length of a human: pictures that were put together show whole bodies. */
const LARGEST_IMAGE_MM = 4000;

/** Lengths and areas follow from the spacing, which nobody can correct here. */
function checkPlausible(
  attributes: DataSetAttributes,
  { row, column, source }: Spacing,
  warnings: Warning[],
): void {
  const [rows, columns] = [attributes.number("Rows") ?? 0, attributes.number("Columns") ?? 0];
  const isPlausible =
    Math.max(row, column) <= LARGEST_PIXEL_MM &&
    Math.max(row * rows, column * columns) <= LARGEST_IMAGE_MM;
  if (isPlausible) return;
  warn(
    warnings,
    "implausible_spacing",
    `${source} is ${shortly(row)}\\${shortly(column)} mm, so that the image would be ${shortly((column * columns) / 1000)} m wide and ${shortly((row * rows) / 1000)} m high; lengths and areas are as wrong as it is. Correct it at the source.`,
  );
}

/**
 * `row \ column`: of a spacing in mm (PS3.3 10.7.1.3), the first value is the distance between
 * rows.
 */
function pair(
  attributes: DataSetAttributes | undefined,
  keyword: string,
): { row: number; column: number } | undefined {
  const [row, column] = attributes?.numbers(keyword) ?? [];
  if (row === undefined || column === undefined || !(row > 0) || !(column > 0)) return undefined;
  return { row, column };
}

function readSpacing(
  attributes: DataSetAttributes,
  frame: number,
  plane: PlanePosition | undefined,
  warnings: Warning[],
): Spacing | undefined {
  const macro = "PixelMeasuresSequence";
  const measured = pair(functionalGroup(attributes, frame, macro, warnings), "PixelSpacing");
  if (measured !== undefined) holderOf(attributes, frame, macro, ["PixelSpacing"], warnings);
  const pixel = measured ?? pair(attributes, "PixelSpacing");
  if (pixel !== undefined && isPlane(attributes, frame, measured !== undefined, plane, warnings))
    return { ...pixel, source: "PixelSpacing", patient: true };
  const imager = pair(attributes, "ImagerPixelSpacing");
  const scanned = pair(attributes, "NominalScannedPixelSpacing");
  // Equal to the detector's but for rounding, PixelSpacing says that nothing was corrected (PS3.3
  // 10.7.1.1)
  const isOther = (other: PixelScale | undefined) =>
    other === undefined || pixel === undefined || !isSameScale(pixel, other);
  if (pixel !== undefined && isOther(imager) && isOther(scanned)) {
    const unknown = imager === undefined && scanned === undefined && isProjection(attributes);
    return { ...pixel, source: "PixelSpacing", patient: !unknown };
  }
  if (imager !== undefined) return { ...imager, source: "ImagerPixelSpacing", patient: false };
  if (scanned !== undefined)
    return { ...scanned, source: "NominalScannedPixelSpacing", patient: false };
  return undefined;
}

/**
 * Whether a frame is a plane in the patient, so that its PixelSpacing is in the patient too,
 * however far apart the pixels of a detector or of a film were (PS3.3 C.7.6.2.1.1, C.7.6.16.2.1;
 * A.8.1.3 for secondary captures). Projections have planes by functional groups alone, as
 * tomosynthesis and other X-ray 3D reconstructions have.
 * @param measured whether PixelSpacing is that of a functional group
 */
function isPlane(
  attributes: DataSetAttributes,
  frame: number,
  measured: boolean,
  plane: PlanePosition | undefined,
  warnings: Warning[],
): boolean {
  if (measured) {
    const turned = functionalGroup(attributes, frame, "PlaneOrientationSequence", warnings);
    if (directionsOf(turned) !== undefined) return true;
  }
  const isCapture = attributes.string("SOPClassUID")?.startsWith(SECONDARY_CAPTURE) === true;
  return (
    plane !== undefined && (isCapture || !PROJECTIONS.includes(attributes.string("Modality") ?? ""))
  );
}

/** How the UIDs of all SOP classes of secondary captures begin. */
export const SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7";

const PROJECTIONS = ["CR", "DX", "IO", "MG", "PX", "RF", "RG", "XA"];

/**
 * Whether a projection that does not say how it was calibrated was calibrated at all is unknown
 * (PS3.3 10.7.1.1).
 */
function isProjection(attributes: DataSetAttributes): boolean {
  return (
    PROJECTIONS.includes(attributes.string("Modality") ?? "") &&
    attributes.string("PixelSpacingCalibrationType") === undefined &&
    directionsOf(attributes) === undefined
  );
}

/**
 * RegionSpatialFormat (PS3.3 C.8.5.5.1.1): of a plane; of M-mode, spectra and waveforms, along
 * which time runs.
 */
const TWO_DIMENSIONAL = 1;
const OF_TIME = [2, 3, 4];
const CENTIMETRES = 3;

/** Bit 0 of RegionFlags (PS3.3 C.8.5.5.1.3): 0 is high priority, 1 is low. */
const LOW_PRIORITY = 1;

/**
 * How far a scale may be from PixelSpacing that says the same, as a part of it: both are rounded.
 */
const SAME_SCALE = 1e-3;
/** How many a warning lists. */
const SCALES_NAMED = 8;

/**
 * The spacing of the image, and the regions of ultrasound outside of which it does not hold.
 * Regions with a scale take precedence over PixelSpacing, which holds for the whole picture. If
 * regions reach beyond the image, they and their scales belong to a larger image that was shrunk:
 * neither they nor a PixelSpacing that agrees with them are used. Regions without a position are
 * not used either, nor is a PixelSpacing that contradicts them.
 */
function withRegions(
  attributes: DataSetAttributes,
  declared: Spacing | undefined,
  warnings: Warning[],
): Pick<FrameGeometry, "spacing" | "regions"> {
  const { planes, ofTime, scales, extremes, regions, isPlaced, isInside } = regionsOf(attributes);
  const pixel = declared?.source === "PixelSpacing" ? declared : undefined;
  const agrees = extremes.every((scale) => pixel !== undefined && isSameScale(scale, pixel));
  if (scales.length === 0) {
    if (pixel === undefined || planes > 0 || ofTime === 0)
      return { spacing: declared, regions: undefined };
    warn(
      warnings,
      "spacing_mismatch",
      "PixelSpacing was ignored: no region of SequenceOfUltrasoundRegions shows a plane (RegionSpatialFormat).",
    );
    return { spacing: { ...pixel, patient: false }, regions: undefined };
  }
  if (!isPlaced || !isInside) {
    const believed = agrees !== isPlaced && (isPlaced || scales.length === planes + ofTime);
    warn(
      warnings,
      "regions_ignored",
      `A region of SequenceOfUltrasoundRegions ${isPlaced ? "reaches beyond the image, which somebody shrank" : "does not say where it lies"}; the regions were ignored` +
        (pixel === undefined
          ? "."
          : `, and ${believed ? "PixelSpacing was believed" : "so was PixelSpacing"}.`),
    );
    return {
      spacing: pixel && { ...pixel, patient: pixel.patient && believed },
      regions: undefined,
    };
  }
  if (pixel !== undefined && agrees && scales.length === regions.length)
    return { spacing: pixel, regions: undefined };
  if (pixel !== undefined && !agrees)
    warn(
      warnings,
      "spacing_mismatch",
      `PixelSpacing is ${pixel.row}\\${pixel.column} mm, and SequenceOfUltrasoundRegions gives ${scales
        .slice(0, SCALES_NAMED)
        .map(({ row, column }) => `${shortly(row)}\\${shortly(column)}`)
        .join(", ")}${scales.length > SCALES_NAMED ? ", ..." : ""}; the regions were believed.`,
    );
  return { spacing: scales.length === planes ? commonSpacing(extremes) : undefined, regions };
}

/** What the regions of an image say, read once: each frame asks, and there may be very many. */
const regionsOf = cachedWith((attributes: DataSetAttributes) => {
  const [rows, columns] = [attributes.number("Rows") ?? 0, attributes.number("Columns") ?? 0];
  const items = attributes.sequence("SequenceOfUltrasoundRegions") ?? [];
  const planes = items.filter((item) => item.number("RegionSpatialFormat") === TWO_DIMENSIONAL);
  const ofTime = items.filter((item) => OF_TIME.includes(item.number("RegionSpatialFormat") ?? 0));
  const scales = planes.flatMap((plane) => scaleOf(plane) ?? []);
  const regions = [
    ...planes.flatMap((plane) => regionOf(plane, scaleOf(plane)) ?? []),
    ...ofTime.flatMap((item) => regionOf(item, undefined) ?? []),
  ];
  return {
    planes: planes.length,
    ofTime: ofTime.length,
    scales,
    extremes: extremesOf(scales),
    regions,
    isPlaced: regions.length === planes.length + ofTime.length,
    // Some writers give one beyond the last pixel, a size instead of a position
    isInside: regions.every(({ x1, y1 }) => x1 <= columns && y1 <= rows),
  };
});

/** The smallest and the largest, of rows and columns each by themselves; none of none. */
function extremesOf(scales: readonly PixelScale[]): PixelScale[] {
  const [first] = scales;
  if (first === undefined) return [];
  const [least, most] = [{ ...first }, { ...first }];
  for (const scale of scales)
    for (const side of ["row", "column"] as const) {
      least[side] = Math.min(least[side], scale[side]);
      most[side] = Math.max(most[side], scale[side]);
    }
  return [least, most];
}

const isSameScale = (a: PixelScale, b: PixelScale): boolean =>
  (["row", "column"] as const).every((side) => Math.abs(a[side] - b[side]) <= SAME_SCALE * b[side]);

type PixelScale = Pick<Spacing, "row" | "column">;

const shortly = (mm: number): string => String(Number(mm.toPrecision(6)));

/**
 * The pixels that a region of an ultrasound image covers (PS3.3 C.8.5.5); undefined if it does not
 * say.
 */
function regionOf(
  item: DataSetAttributes,
  scale: UltrasoundRegion["scale"],
): UltrasoundRegion | undefined {
  const [x0, y0, x1, y1] = ["MinX0", "MinY0", "MaxX1", "MaxY1"].map((end) =>
    item.number(`RegionLocation${end}`),
  );
  if (x0 === undefined || y0 === undefined || x1 === undefined || y1 === undefined)
    return undefined;
  if (x1 < x0 || y1 < y0) return undefined;
  return {
    x0,
    y0,
    x1,
    y1,
    scale,
    highPriority: ((item.number("RegionFlags") ?? 0) & LOW_PRIORITY) === 0,
  };
}

function scaleOf(region: DataSetAttributes): UltrasoundRegion["scale"] {
  const inCentimetres =
    region.number("PhysicalUnitsXDirection") === CENTIMETRES &&
    region.number("PhysicalUnitsYDirection") === CENTIMETRES;
  if (!inCentimetres) return undefined;
  const column = millimetres(region, "PhysicalDeltaX");
  const row = millimetres(region, "PhysicalDeltaY");
  return row > 0 && column > 0 ? { row, column } : undefined;
}

/** @throws RadserveError corrupt_image for a length that no pixel has */
function millimetres(region: DataSetAttributes, keyword: string): number {
  const size = Math.abs(region.number(keyword) ?? 0) * 10;
  if (size !== 0 && (size < SPACING.least || size > SPACING.most))
    throw errors.corrupt_image(
      `${keyword} of a region in SequenceOfUltrasoundRegions should be from ${SPACING.least / 10} to ${SPACING.most / 10} cm, or 0, and is ${shortly(size / 10)}. Correct the attribute at the source.`,
      { attribute: keyword },
    );
  return size;
}

/** The scale of all regions, by their extremes; undefined if they differ. */
function commonSpacing([first, last]: readonly PixelScale[]): Spacing | undefined {
  if (first === undefined || first.row !== last?.row || first.column !== last.column)
    return undefined;
  return { ...first, source: "SequenceOfUltrasoundRegions", patient: true };
}

/** Height of a pixel divided by its width, if PixelAspectRatio says it. */
function aspectRatio(attributes: DataSetAttributes): number | undefined {
  const { row, column } = pair(attributes, "PixelAspectRatio") ?? {};
  return row === undefined || column === undefined ? undefined : row / column;
}
