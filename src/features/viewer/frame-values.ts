/**
 * A frame of a result's image as numbers and facts, for who sets a window, points at a pixel and
 * reads the corners.
 */
import type { Attributes, Image, Interpretation } from "../../images/image.js";
import { valueReader } from "../../images/stored-values.js";
import { edgesOf } from "../../results/findings/edges.js";
import { displayed, planeOf } from "../../results/picture/draw-result.js";
import type { Plane } from "../../engine/types.js";
import type { FrameFacts } from "./messages.js";

/** Values of more pixels are not sent: the picture is shown by its own window then. */
const MOST_VALUES = 16_000_000;

/** @param frame from 0 */
export async function frameFacts(image: Image, frame: number): Promise<FrameFacts> {
  const { attributes } = image;
  const [spacing, place] = [image.spacing(frame), image.plane(frame)];
  return factsOf(displayed(planeOf(image, frame, await image.frame(frame))), attributes, {
    spacing: spacing?.patient === true ? [spacing.row, spacing.column] : null,
    sides: edgesOf(place, attributes?.strings("PatientOrientation")) ?? null,
    position: place?.position ?? null,
    instance_number: attributes?.string("InstanceNumber") ?? null,
    across: null,
  });
}

/**
 * @param attributes of the image that the plane is of
 * @param place where it lies, and which it is
 */
export function factsOf(
  plane: Plane,
  attributes: Attributes | undefined,
  place: Pick<FrameFacts, "spacing" | "sides" | "position" | "instance_number" | "across">,
): FrameFacts {
  const { interpretation, format, pixelAspect } = plane;
  const text = (keyword: string) => attributes?.string(keyword) ?? null;
  return {
    rows: format.rows,
    columns: format.columns,
    pixel_aspect: pixelAspect,
    inverted: format.photometricInterpretation === "MONOCHROME1",
    window: windowOf(interpretation),
    unit: interpretation.units ?? null,
    ...place,
    patient_name: text("PatientName"),
    patient_id: text("PatientID"),
    study_date: text("StudyDate"),
    series_description: text("SeriesDescription"),
    values: valuesOf(plane),
  };
}

function windowOf({ voi: [voi] }: Interpretation): FrameFacts["window"] {
  return voi?.kind === "window" && voi.function !== "SIGMOID"
    ? { center: voi.center, width: voi.width, exact: voi.function === "LINEAR_EXACT" }
    : null;
}

/**
 * Stored values in at most 32 bits; null where they are no grey numbers of 16 bits or float32, or
 * go through a table.
 */
function valuesOf({ format, data, interpretation: { modality } }: Plane): FrameFacts["values"] {
  const { bitsAllocated, signed, float, samplesPerPixel, rows, columns } = format;
  const grey = samplesPerPixel === 1 && format.photometricInterpretation.startsWith("MONOCHROME");
  const fits = bitsAllocated <= (float ? 32 : 16) && rows * columns <= MOST_VALUES;
  if (!grey || !fits || modality.kind === "lut") return null;
  const read = valueReader(data, format);
  const packed = new (float ? Float32Array : signed ? Int16Array : Uint16Array)(rows * columns);
  for (let i = 0; i < packed.length; i++) packed[i] = read(i);
  const { slope, intercept } = modality.kind === "rescale" ? modality : { slope: 1, intercept: 0 };
  const type = float ? "float32" : signed ? "int16" : "uint16";
  return { type, slope, intercept, base64: Buffer.from(packed.buffer).toString("base64") };
}
