import { errors, type RadserveError } from "../../base/errors.js";

/**
 * Why images are no volume: `details.reason` of series_invalid. The page of reading is made from
 * this table (`npm run documents`).
 */
export const SERIES_FAULTS = {
  no_images: "no images, too few slices to make a volume",
  single_slice: "one slice, too few to make a volume",
  unreadable_slices:
    "unreadable files of the series: `entries` are the numbers of the first ten, `found` counts each kind",
  several_series: "several series of which none was named; `details.series` lists them",
  no_such_series: "none has the name of the request; `details.series` lists them",
  several_cases: "models use different series of the folder as cases",
  invalid_series_uid:
    "an invalid SeriesInstanceUID in a folder of several series: results could not be named after it",
  missing_series_uid: "images without a SeriesInstanceUID",
  several_patients:
    "another study, PatientID, IssuerOfPatientID, PatientName, PatientBirthDate or PatientSex under one SeriesInstanceUID (`attributes`)",
  incomplete_concatenation:
    "parts of a concatenation are missing, doubled or unnumbered, or frames between them (`missing`, `doubled`)",
  mixed_frame_of_reference: "several acquisitions",
  mixed_size: "rows and columns differ",
  mixed_spacing: "PixelSpacing differs",
  mixed_format: "Modality, SOP class, colours or kind of numbers differ",
  mixed_units: "the units of the values differ, mostly because a slice has lost its rescale",
  missing_geometry: "a slice without position, orientation or spacing in the patient",
  missing_frame_positions:
    "several frames with one position for all: times of one slice, or positions that were not written",
  mosaic: "frames that show many slices side by side",
  invalid_orientation: "directions that are not at right angles",
  mixed_orientation: "slices that are not parallel",
  duplicate_position:
    "two slices within a tenth of a pixel (at least 0.01 mm, at most 0.1 mm): times, echoes or copies",
  duplicate_instance:
    "files with one SOPInstanceUID and different content: results could not say which they are about",
  tilt: "a slice more than 0.1 pixel beside the normal: a tilted gantry or another shear",
  gap: "a distance of 1.5 times the usual distance or more",
  uneven_spacing:
    "distances that differ by more than 1 %, or a slice more than 10 % of a distance from its place",
  too_many_files: "more than 20,000 entries in the folder",
  too_many_bytes: "more than 4 GiB of DICOM files in the folder",
  too_many_elements: "more than 8,000,000 elements and items in the files of the folder",
  changed: "files that changed while they were read",
} as const;
export type SeriesFault = keyof typeof SERIES_FAULTS;

/** @param fault why slices are no volume: `details.reason` of series_invalid */
export function seriesInvalid(
  fault: SeriesFault,
  message: string,
  details: Record<string, unknown> = {},
): RadserveError {
  return errors.series_invalid(message, { reason: fault, ...details });
}
