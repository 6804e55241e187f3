/**
 * What NIfTI can hold of an image: one straight, whole and even stack of grey values, in the unit
 * that the file says, where SimpleITK and ITK have it when they read the same series.
 */
import { errors } from "../../base/errors.js";
import type { VolumeGrid } from "../../images/grids.js";
import type { Image, Interpretation, PixelFormat, VolumeGeometry } from "../../images/image.js";
import { seriesInvalid } from "../../images/dicom/series-fault.js";
import { volumeOf } from "../../images/dicom/volume.js";
import { modalityValue, storedRange, valueReader } from "../../images/stored-values.js";
import { cross, unit } from "../../images/vectors.js";
import { declaredThickness } from "../dicom/grid.js";
import { NIFTI_TYPES, type NiftiType } from "./header.js";

export interface NiftiVolume {
  grid: VolumeGrid;
  type: NiftiType;
  /** The voxels of each slice, in the order of the grid; they can be asked for once. */
  slices: () => AsyncGenerator<Uint8Array>;
  /** What a person should know of it, in sentences. */
  remarks: string[];
}

/**
 * Modality values: rescaled ones where the file has a rescale, HU for one. Nothing is inverted or
 * windowed, and Pixel Padding stays what it is.
 * @throws RadserveError series_invalid where it is no straight, whole and even stack, bad_request
 * for colours, each with `details.reason`; what decoding throws
 */
export function imageVolume(image: Image): NiftiVolume {
  const { format, frameCount } = image;
  if (format.samplesPerPixel > 1 || format.photometricInterpretation === "PALETTE COLOR")
    throw errors.bad_request(
      "Expected grey values; found colours, which few readers of NIfTI know. Use the images as they are, or as PNG.",
      { reason: "colour" },
    );
  const { grid, frames, remarks } = gridOf(image);
  const all = Array.from({ length: frameCount }, (_, frame) => image.interpretation(frame));
  const type = typeOf(format, all);
  const units = all[0]?.units;
  if (image.source.modality === "CT" && units !== "HU")
    remarks.push(`The values are not known to be HU: the file says ${units ?? "no unit"}.`);
  async function* slices() {
    for (const frame of frames) {
      const { modality } = image.interpretation(frame);
      const read = valueReader(await image.frame(frame), format);
      const out = new NIFTI_TYPES[type].array(format.rows * format.columns);
      for (let i = 0; i < out.length; i++) out[i] = modalityValue(modality, read(i));
      yield new Uint8Array(out.buffer);
    }
  }
  return { grid, type, slices, remarks };
}

interface Stack {
  grid: VolumeGrid;
  /** Which frame (from 0) each slice is. */
  frames: readonly number[];
  remarks: string[];
}

function gridOf(image: Image): Stack {
  const { rows, columns } = image.format;
  if (image.frameCount > 1) {
    const { geometry, frames } = volumeOf(image);
    return { grid: { geometry, slices: frames.length, rows, columns }, frames, remarks: [] };
  }
  const { attributes } = image;
  const thickness = attributes && declaredThickness(image, attributes, 0);
  const { geometry, remarks } = planeGeometry(image, thickness);
  return { grid: { geometry, slices: 1, rows, columns }, frames: [0], remarks };
}

/**
 * A plane by itself, as a volume of one slice.
 * @throws RadserveError series_invalid where it does not say where in the patient it lies
 */
export function planeGeometry(
  image: Pick<Image, "plane" | "planeFault" | "spacing">,
  thickness: number | undefined,
): { geometry: VolumeGeometry; remarks: string[] } {
  const [plane, spacing] = [image.plane(0), image.spacing(0)];
  const fault = image.planeFault?.(0);
  if (fault !== undefined) throw seriesInvalid(fault.reason, fault.message);
  if (plane === undefined || spacing?.patient !== true)
    throw seriesInvalid(
      "missing_geometry",
      "Expected an image that says where in the patient it lies (ImagePositionPatient, ImageOrientationPatient, PixelSpacing), because NIfTI says it of each image; found one that does not, such as a radiograph or a photograph. Train with the images as PNG.",
    );
  const [a, b, c, d, e, f] = plane.orientation;
  const column = unit([a, b, c]);
  const normal = unit(cross(column, [d, e, f]));
  const geometry = {
    origin: plane.position,
    columnDirection: column,
    rowDirection: cross(normal, column),
    sliceDirection: normal,
    columnSpacing: spacing.column,
    rowSpacing: spacing.row,
    sliceSpacing: thickness ?? 1,
  };
  return {
    geometry,
    remarks: [
      thickness === undefined
        ? "It is one slice without SliceThickness; 1 mm was written."
        : "It is one slice: its SliceThickness stands for the distance of slices.",
    ],
  };
}

/** The largest whole number that float32 holds, with all below it. */
const EXACT_IN_FLOAT32 = 24;

/** The smallest type that holds all values that the files could hold, as GDCM chooses it. */
function typeOf(format: PixelFormat, all: readonly Interpretation[]): NiftiType {
  const real = format.bitsStored > EXACT_IN_FLOAT32 && !isSingle(format) ? "float64" : "float32";
  if (format.float) return real;
  const ends = storedRange(format);
  let [least, most] = [Infinity, -Infinity];
  const widen = (value: number) => {
    least = Math.min(least, value);
    most = Math.max(most, value);
  };
  for (const { modality } of all) {
    if (modality.kind === "lut") for (const entry of modality.lut.entries) widen(entry);
    else for (const end of ends) widen(modalityValue(modality, end));
    const isWhole =
      modality.kind !== "rescale" ||
      (Number.isInteger(modality.slope) && Number.isInteger(modality.intercept));
    if (!isWhole) return real;
  }
  return INTEGERS.find(([, from, to]) => least >= from && most <= to)?.[0] ?? "float64";
}

const isSingle = ({ float, bitsAllocated }: PixelFormat) => float && bitsAllocated === 32;

const INTEGERS: readonly [NiftiType, number, number][] = [
  ["uint8", 0, 255],
  ["int16", -32_768, 32_767],
  ["uint16", 0, 65_535],
  ["int32", -(2 ** 31), 2 ** 31 - 1],
];
