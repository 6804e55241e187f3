/**
 * The closed tables of warnings: a result is usable, and whoever uses it should know this. The
 * pages of reading and of results are made from them (`npm run documents`). Codes that share a
 * meaning are one row there.
 */

const alike = <Code extends string>(meaning: string, codes: Code[]) =>
  Object.fromEntries(codes.map((code) => [code, meaning])) as Record<Code, string>;

/** About a file or folder: `warnings` of a receipt. */
export const FILE_WARNINGS = {
  ...alike(
    "the file begins with the data set; the transfer syntax was derived from the first element",
    ["missing_preamble", "missing_transfer_syntax"],
  ),
  byte_order_mismatch: "the data set has another byte order than the transfer syntax says",
  ...alike(
    "elements are encoded in another way than the transfer syntax says, or with an unknown VR",
    ["implicit_in_explicit", "explicit_in_implicit", "vr_unknown"],
  ),
  zlib_header: "the deflated data set has a zlib header",
  ...alike(
    "items outside any sequence, missing ends, odd lengths, or bytes behind the pixels; what is no element is ignored. In a deflated data set such bytes are damage (`corrupt_image`)",
    ["stray_item", "missing_delimiter", "odd_length", "trailing_data"],
  ),
  missing_attribute:
    "an attribute about the pixels is absent and was derived from others (PhotometricInterpretation, SamplesPerPixel, PixelRepresentation, HighBit, PlanarConfiguration, PixelPaddingValue beside PixelPaddingRangeLimit); or one of RescaleSlope (1) and RescaleIntercept (0)",
  value_ignored:
    "an attribute has an impossible value ([below](#values-of-attributes)) and was read as absent",
  doubled_element:
    "an element appears twice with the same value; with different values the file is refused (private elements: only if they are used)",
  ...alike(
    "SpecificCharacterSet is misspelled and was read as the set that is meant (`ISO IR 192`, `UTF-8`, `latin1`, ...), or has UTF-8 beside others and was read as UTF-8; or it is unknown, or GB18030 beside others: text beyond ASCII was not read",
    ["character_set_spelling", "character_set_unknown"],
  ),
  not_a_number:
    "so many pixels of a frame are NaN or infinite; models get their background there. A frame without any number is `decode_suspect`",
  identity_differs:
    "images of one series or case name the patient differently, or not all do, or they are of several orders (AccessionNumber); results use the first",
  ...alike(
    "NumberOfFrames is 0: one frame was read; or there are more frames or items than it says: those it names were read",
    ["no_frames", "extra_frames"],
  ),
  extra_pixel_data: "the pixel data is longer than its frames; the rest was ignored",
  ...alike(
    "the pixels are not compressed as the transfer syntax says; they were read as what they are",
    ["not_encapsulated", "encapsulated_in_native", "codestream_mismatch"],
  ),
  ...alike(
    "the compressed pixel data has a defined length, no Basic Offset Table, or a wrong one",
    ["defined_length", "missing_offset_table", "offset_table_wrong"],
  ),
  ...alike("a frame breaks a rule of its coding, but has all of its pixels", [
    "codestream_irregular",
    "missing_end_marker",
  ]),
  ...alike(
    "BitsStored, PixelRepresentation or HighBit differ from the compressed frame; the message says which was believed",
    ["precision_mismatch", "sign_mismatch", "high_bit_mismatch"],
  ),
  overshoot_clamped:
    "lossy compression left values beyond BitsStored; they were set to the nearest value inside",
  stray_bits: "there are bits outside BitsStored that no overlay explains; they were left out",
  photometric_mismatch:
    "the colours are stored in another way than the attributes say; the message says what decided",
  polarity_mismatch:
    "PresentationLUTShape contradicts PhotometricInterpretation, which was believed",
  ...alike(
    "a lookup table of 8-bit entries says 16; or an empty item of a lookup table was ignored",
    ["table_bits", "lut_empty"],
  ),
  modality_lut_ignored:
    "the Modality LUT of an XA or XRF image (PixelIntensityRelationship LOG or DISP) leads back to X-ray intensity; it was not applied",
  ...alike(
    "RescaleSlope and RescaleIntercept beside a Modality LUT, which was used; or palettes beside grey pixels, which were read as grey",
    ["rescale_ignored", "palette_ignored"],
  ),
  several_items: "a sequence that may have one item has several that differ; the first was used",
  ...alike(
    "a window without usable values, or widths without a centre, were ignored; one narrower than 1 was used as LINEAR_EXACT; an unknown function as LINEAR",
    ["window_ignored", "window_narrow", "voi_function_unknown"],
  ),
  ...alike("writers differ in how they store such pixels; check the values", [
    "big_endian_32_bit",
    "big_endian_bytes",
  ]),
  empty_slice:
    "RescaleSlope (or DoseGridScaling) is 0 and every stored value is 0 (some PET scanners); the values are RescaleIntercept. With other values the file is refused",
  invalid_orientation:
    "ImageOrientationPatient is not two unit vectors at right angles (within 0.001): the frame has no place in the patient",
  signed_pixels:
    "PixelRepresentation is 1 in an image with unsigned pixels (digital X-ray, mammography, ultrasound, angiography, visible light, ophthalmology, intravascular tomography, RT Image, multi-frame secondary captures). A frame with the upper bit set is `decode_suspect`",
  implausible_spacing:
    "a pixel of more than 50 mm, or an image of more than 4 m: lengths and areas are as wrong as the spacing",
  quadruped:
    "the patient is an animal (AnatomicalOrientationType QUADRUPED, or without it a species other than human): no side is drawn, and findings get none from Laterality",
  ...alike("see [the table above](#kinds-that-are-easily-read-wrongly); the message has numbers", [
    "mosaic",
    "derived_values",
    "padding_only",
    "blank_frame",
    "cut_frame",
    "fewer_images",
  ]),
  missing_geometry:
    "slices of nuclear medicine (SliceVector, ImageType RECON TOMO) do not say where they lie",
  image_type_unknown:
    "ImageType of nuclear medicine is not in the standard; slices of a reconstruction without SliceVector were not placed",
  functional_group_twice:
    "shared, per-frame or top-level attributes differ; those of the frame were used",
  ...alike(
    "PixelSpacing and the regions of an ultrasound image differ; or regions reach beyond the image or have no place. See [Spacing](#spacing)",
    ["spacing_mismatch", "regions_ignored"],
  ),
  orientation_mismatch:
    "PatientOrientation names one axis twice, or other sides than ImageOrientationPatient, which was believed",
  aspect_mismatch: "PixelAspectRatio contradicts the spacing, which was believed",
  mixed_acquisition:
    "slices or frames of a volume differ in what those of one acquisition have in common ([below](#slices-of-one-acquisition)); the message lists it",
  mixed_storage:
    "slices of a folder have different bits or signs; each was read by its own attributes",
  rounded_positions:
    "slices lie evenly only if positions, or distances from the first, were rounded to 0.1 mm",
  stored_values_differ:
    "frames have rescales of their own, and a model uses stored values, which cannot be compared",
  ...alike("PNG, JPEG and TIFF: [see above](#formats)", ["alpha_dropped", "animation_dropped"]),
  incomplete_concatenation:
    "the file is one part of a concatenation; its frames were read as frames, counted from 1, and are no volume",
  concatenation_total_unknown: "the parts of a concatenation do not say how many they are",
  ...alike("the slices of a series have no FrameOfReferenceUID, or each another one", [
    "no_frame_of_reference",
    "frame_of_reference_by_slice",
  ]),
  reception_interrupted:
    "images came through the gateway, and some were begun and not kept, or an association broke off. Images may be missing ([gateway](gateway.md#whole-series))",
  more_warnings: "there are more than 50 different warnings; the others are not listed",
  ...alike(
    "[copies](#slices-that-cannot-be-read-and-copies) of slices, with their numbers in the folder; unreadable files of other series",
    ["left_out_copy", "left_out_unreadable"],
  ),
  ...alike("what is not a slice of the folder's series, with its count", [
    "left_out_localizer",
    "left_out_segmentation",
    "left_out_no_image",
    "left_out_not_dicom",
    "left_out_not_a_file",
    "left_out_result",
    "left_out_own_result",
    "left_out_other_series",
  ]),
} as const;

/** About what one model made of it: `warnings` of the model, and statements of the report. */
export const MODEL_WARNINGS = {
  ...alike("the image lies outside the range in which the model was tested, or does not say", [
    "outside_envelope",
    "envelope_unknown",
  ]),
  ...alike("see [above](#left-and-right)", [
    "laterality_doubtful",
    "laterality_unconfirmed",
    "laterality_contradictory",
  ]),
  ...alike("areas, or distances of points, are in pixels, for the whole image or for one label", [
    "no_patient_spacing",
    "partly_unmeasured",
  ]),
  not_measured: "a measurement of points is missing; the message says which and why",
  part_covered:
    "a map [covers a part](manifest.md#maps-of-a-part-of-the-input-and-of-logits) of the input; nothing is found outside",
  boxes_implausible:
    "boxes lie outside of the input, are smaller than one of its pixels, or have their edges in the wrong order: see [the unit of boxes](manifest.md#detections)",
  points_implausible:
    "all points lie within one pixel of the input: see [the unit of points](manifest.md#keypoints)",
  point_outside: "a point lies outside the part of the image that the model sees",
  ...alike("this kind of image does not have that measurement", [
    "area_not_measured",
    "volume_not_measured",
  ]),
  ...alike(
    "statistics, distances or surfaces of segments are missing; the message says which and why",
    ["values_not_measured", "form_not_measured", "segment_empty"],
  ),
  pixels_not_measured:
    "Pixel Padding, or values that are no numbers, lie in a segment and are not in its statistics",
  classes_tied: "two labels that exclude each other have the same highest score",
  ...alike(
    "a value was not allowed in DICOM and is left out of the objects: one that tells whose image it is, or another",
    ["identity_left_out", "value_left_out"],
  ),
  place_left_out:
    "frames [share a place](#frames-that-share-a-place) and nothing tells them apart, some have none, or FrameOfReferenceUID is no UID: the SEG does not say where they lie",
  thickness_assumed:
    "the source does not say how thick its frames are: the SEG makes them as thick as a pixel is wide. Take no volumes from it",
  output_not_written: "a kind of file was requested and cannot be written; the message says why",
  ...alike(
    "a [tilted or incomplete stack](manifest.md#tilted-stacks-and-missing-slices) was straightened, or filled with the nearest slices, as the manifest allows",
    ["tilt_straightened", "missing_slices_filled"],
  ),
  region_empty:
    "the model that [finds the region](manifest.md#a-region-that-another-model-finds) found none",
  role_partly_outside:
    "a series of a [case](models.md#several-series-or-views-as-one-case) does not cover the first one",
  attribute_default:
    "an attribute that is an input was absent, and the manifest's default was used",
  unlikely_hounsfield:
    "no value is below 0 HU although some are above 900 HU: RescaleIntercept was probably lost",
  values_cut:
    "values of the image lie beyond what the [type](manifest.md#values) of the model's tensor holds, and were cut off there: the model saw another picture",
  windows_differ:
    "the model takes slices together, each by its own window (`voi`), and the windows differ",
  real_world_value_ignored:
    "the model uses modality values, and the image's Real World Value Mapping says something else ([models](manifest.md#values) can use it)",
  real_world_range: "values beyond the range of the Real World Value Mapping were mapped too",
  suv_scan_start:
    "the [start of the scan](manifest.md#values) for SUV was derived, or SeriesTime gives SUV that differ by more than 1 %",
  no_volume: "the slices of [a series as one item](reading.md#a-series-as-one-item) are no volume",
} as const;

export type WarningCode = keyof typeof FILE_WARNINGS | keyof typeof MODEL_WARNINGS;
