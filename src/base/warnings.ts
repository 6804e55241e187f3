/**
 * The closed tables of warnings: a result is usable, and a person should know this. The pages of
 * reading and of results are made from them (`npm run documents`). Codes that share a meaning stand
 * beside each other, and are one row there.
 */

/** About a file or folder: `warnings` of a receipt. */
export const FILE_WARNINGS = {
  missing_preamble:
    "the file begins with the data set; the transfer syntax was derived from the first element",
  missing_transfer_syntax:
    "the file begins with the data set; the transfer syntax was derived from the first element",
  byte_order_mismatch: "the data set has another byte order than the transfer syntax says",
  implicit_in_explicit:
    "elements are encoded in another way than the transfer syntax says, or with an unknown VR",
  explicit_in_implicit:
    "elements are encoded in another way than the transfer syntax says, or with an unknown VR",
  vr_unknown:
    "elements are encoded in another way than the transfer syntax says, or with an unknown VR",
  zlib_header: "the deflated data set has a zlib header",
  stray_item:
    "items outside any sequence, missing ends, odd lengths, or bytes behind the pixels; what is no element is ignored. In a deflated data set such bytes are damage (`corrupt_image`)",
  missing_delimiter:
    "items outside any sequence, missing ends, odd lengths, or bytes behind the pixels; what is no element is ignored. In a deflated data set such bytes are damage (`corrupt_image`)",
  odd_length:
    "items outside any sequence, missing ends, odd lengths, or bytes behind the pixels; what is no element is ignored. In a deflated data set such bytes are damage (`corrupt_image`)",
  trailing_data:
    "items outside any sequence, missing ends, odd lengths, or bytes behind the pixels; what is no element is ignored. In a deflated data set such bytes are damage (`corrupt_image`)",
  missing_attribute:
    "an attribute about the pixels is absent and was derived from others (PhotometricInterpretation, SamplesPerPixel, PixelRepresentation, HighBit, PlanarConfiguration, PixelPaddingValue beside PixelPaddingRangeLimit); or one of RescaleSlope (1) and RescaleIntercept (0)",
  value_ignored:
    "an attribute has an impossible value ([below](#values-of-attributes)) and was read as absent",
  doubled_element:
    "an element appears twice with the same value; with different values the file is refused (private elements: only if they are used)",
  character_set_spelling:
    "SpecificCharacterSet is misspelled and was read as the set that is meant (`ISO IR 192`, `UTF-8`, `latin1`, ...), or has UTF-8 beside others and was read as UTF-8; or it is unknown, or GB18030 beside others: text beyond ASCII was not read",
  character_set_unknown:
    "SpecificCharacterSet is misspelled and was read as the set that is meant (`ISO IR 192`, `UTF-8`, `latin1`, ...), or has UTF-8 beside others and was read as UTF-8; or it is unknown, or GB18030 beside others: text beyond ASCII was not read",
  not_a_number:
    "so many pixels of a frame are NaN or infinite; models get their background there. A frame without any number is `decode_suspect`",
  identity_differs:
    "images of one series or case name the patient differently, or not all do, or they are of several orders (AccessionNumber); results use the first",
  no_frames:
    "NumberOfFrames is 0: one frame was read; or there are more frames or items than it says: those it names were read",
  extra_frames:
    "NumberOfFrames is 0: one frame was read; or there are more frames or items than it says: those it names were read",
  extra_pixel_data: "the pixel data is longer than its frames; the rest was ignored",
  not_encapsulated:
    "the pixels are not compressed as the transfer syntax says; they were read as what they are",
  encapsulated_in_native:
    "the pixels are not compressed as the transfer syntax says; they were read as what they are",
  codestream_mismatch:
    "the pixels are not compressed as the transfer syntax says; they were read as what they are",
  defined_length:
    "the compressed pixel data has a defined length, no Basic Offset Table, or a wrong one",
  missing_offset_table:
    "the compressed pixel data has a defined length, no Basic Offset Table, or a wrong one",
  offset_table_wrong:
    "the compressed pixel data has a defined length, no Basic Offset Table, or a wrong one",
  codestream_irregular: "a frame breaks a rule of its coding, but has all of its pixels",
  missing_end_marker: "a frame breaks a rule of its coding, but has all of its pixels",
  precision_mismatch:
    "BitsStored, PixelRepresentation or HighBit differ from the compressed frame; the message says which was believed",
  sign_mismatch:
    "BitsStored, PixelRepresentation or HighBit differ from the compressed frame; the message says which was believed",
  high_bit_mismatch:
    "BitsStored, PixelRepresentation or HighBit differ from the compressed frame; the message says which was believed",
  overshoot_clamped:
    "lossy compression left values beyond BitsStored; they were set to the nearest value inside",
  stray_bits: "there are bits outside BitsStored that no overlay explains; they were left out",
  photometric_mismatch:
    "the colours are stored in another way than the attributes say; the message says what decided",
  polarity_mismatch:
    "PresentationLUTShape contradicts PhotometricInterpretation, which was believed",
  table_bits:
    "a lookup table of 8-bit entries says 16; or an empty item of a lookup table was ignored",
  lut_empty:
    "a lookup table of 8-bit entries says 16; or an empty item of a lookup table was ignored",
  modality_lut_ignored:
    "the Modality LUT of an XA or XRF image (PixelIntensityRelationship LOG or DISP) leads back to X-ray intensity; it was not applied",
  rescale_ignored:
    "RescaleSlope and RescaleIntercept beside a Modality LUT, which was used; or palettes beside grey pixels, which were read as grey",
  palette_ignored:
    "RescaleSlope and RescaleIntercept beside a Modality LUT, which was used; or palettes beside grey pixels, which were read as grey",
  several_items: "a sequence that may have one item has several that differ; the first was used",
  window_ignored:
    "a window without usable values, or widths without a centre, were ignored; one narrower than 1 was used as LINEAR_EXACT; an unknown function as LINEAR",
  window_narrow:
    "a window without usable values, or widths without a centre, were ignored; one narrower than 1 was used as LINEAR_EXACT; an unknown function as LINEAR",
  voi_function_unknown:
    "a window without usable values, or widths without a centre, were ignored; one narrower than 1 was used as LINEAR_EXACT; an unknown function as LINEAR",
  big_endian_32_bit: "writers differ in how they store such pixels; check the values",
  big_endian_bytes: "writers differ in how they store such pixels; check the values",
  empty_slice:
    "RescaleSlope (or DoseGridScaling) is 0 and every stored value is 0 (some PET scanners); the values are RescaleIntercept. With other values the file is refused",
  invalid_orientation:
    "ImageOrientationPatient is not two unit vectors at right angles (within 0.001): the frame has no place in the patient",
  signed_pixels:
    "PixelRepresentation is 1 in an image with unsigned pixels (digital X-ray, mammography, ultrasound, angiography). A frame with the upper bit set is `decode_suspect`",
  implausible_spacing:
    "a pixel of more than 50 mm, or an image of more than 4 m: lengths and areas are as wrong as the spacing",
  quadruped:
    "the patient is an animal (AnatomicalOrientationType QUADRUPED, or without it a species other than human): no side is drawn, and Laterality is not taken over",
  mosaic: "see [the table above](#kinds-that-are-easily-read-wrongly); the message has numbers",
  derived_values:
    "see [the table above](#kinds-that-are-easily-read-wrongly); the message has numbers",
  padding_only:
    "see [the table above](#kinds-that-are-easily-read-wrongly); the message has numbers",
  blank_frame:
    "see [the table above](#kinds-that-are-easily-read-wrongly); the message has numbers",
  cut_frame: "see [the table above](#kinds-that-are-easily-read-wrongly); the message has numbers",
  fewer_images:
    "see [the table above](#kinds-that-are-easily-read-wrongly); the message has numbers",
  missing_geometry:
    "slices of nuclear medicine (SliceVector, ImageType RECON TOMO) do not say where they lie",
  image_type_unknown:
    "ImageType of nuclear medicine is not in the standard; slices of a reconstruction without SliceVector were not placed",
  functional_group_twice:
    "shared, per-frame or top-level attributes differ; those of the frame were used",
  spacing_mismatch:
    "PixelSpacing and the regions of an ultrasound image differ; or regions reach beyond the image or have no place. See [Spacing](#spacing)",
  regions_ignored:
    "PixelSpacing and the regions of an ultrasound image differ; or regions reach beyond the image or have no place. See [Spacing](#spacing)",
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
  alpha_dropped: "PNG, JPEG and TIFF: [see above](#formats)",
  animation_dropped: "PNG, JPEG and TIFF: [see above](#formats)",
  incomplete_concatenation:
    "the file is one part of a concatenation; its frames were read as frames, counted from 1, and are no volume",
  concatenation_total_unknown: "the parts of a concatenation do not say how many they are",
  no_frame_of_reference: "the slices of a series have no FrameOfReferenceUID, or each another one",
  frame_of_reference_by_slice:
    "the slices of a series have no FrameOfReferenceUID, or each another one",
  reception_interrupted:
    "images came through the gateway, and some were begun and not kept, or an association broke off. Images may be missing ([gateway](gateway.md#whole-series))",
  more_warnings: "there are more than 50 different warnings; the others are not listed",
  left_out_copy:
    "[copies](#slices-that-cannot-be-read-and-copies) of slices, with their numbers in the folder; unreadable files of other series",
  left_out_unreadable:
    "[copies](#slices-that-cannot-be-read-and-copies) of slices, with their numbers in the folder; unreadable files of other series",
  left_out_localizer: "what is not a slice of the folder's series, with its count",
  left_out_segmentation: "what is not a slice of the folder's series, with its count",
  left_out_no_image: "what is not a slice of the folder's series, with its count",
  left_out_not_dicom: "what is not a slice of the folder's series, with its count",
  left_out_not_a_file: "what is not a slice of the folder's series, with its count",
  left_out_result: "what is not a slice of the folder's series, with its count",
  left_out_own_result: "what is not a slice of the folder's series, with its count",
  left_out_other_series: "what is not a slice of the folder's series, with its count",
} as const;

/** About what one model made of it: `warnings` of the model, and statements of the report. */
export const MODEL_WARNINGS = {
  outside_envelope:
    "the image lies outside the range in which the model was tested, or does not say",
  envelope_unknown:
    "the image lies outside the range in which the model was tested, or does not say",
  laterality_doubtful: "see [above](#left-and-right)",
  laterality_unconfirmed: "see [above](#left-and-right)",
  laterality_contradictory: "see [above](#left-and-right)",
  no_patient_spacing:
    "areas, or distances of points, are in pixels, for the whole image or for one label",
  partly_unmeasured:
    "areas, or distances of points, are in pixels, for the whole image or for one label",
  not_measured: "a measurement of points is missing; the message says which and why",
  part_covered:
    "a map [covers a part](manifest.md#maps-of-a-part-of-the-input-and-of-logits) of the input; nothing is found outside",
  boxes_implausible:
    "boxes lie outside of the input, or are smaller than one of its pixels: see [the unit of boxes](manifest.md#detections)",
  point_outside: "a point lies outside the part of the image that the model sees",
  area_not_measured: "this kind of image does not have that measurement",
  volume_not_measured: "this kind of image does not have that measurement",
  values_not_measured:
    "statistics, distances or surfaces of segments are missing; the message says which and why",
  form_not_measured:
    "statistics, distances or surfaces of segments are missing; the message says which and why",
  segment_empty:
    "statistics, distances or surfaces of segments are missing; the message says which and why",
  pixels_not_measured:
    "Pixel Padding, or values that are no numbers, lie in a segment and are not in its statistics",
  classes_tied: "two labels that exclude each other have the same highest score",
  identity_left_out:
    "a value was not allowed in DICOM and is left out of the objects: one that tells whose image it is, or another",
  value_left_out:
    "a value was not allowed in DICOM and is left out of the objects: one that tells whose image it is, or another",
  place_left_out:
    "frames [share a place](#frames-that-share-a-place) and nothing tells them apart: the SEG does not say where they lie",
  thickness_assumed:
    "the source does not say how thick its frames are: the SEG makes them as thick as a pixel is wide. Take no volumes from it",
  output_not_written: "a kind of file was requested and cannot be written; the message says why",
  tilt_straightened:
    "a [tilted or incomplete stack](manifest.md#tilted-stacks-and-missing-slices) was straightened, or filled with the nearest slices, as the manifest allows",
  missing_slices_filled:
    "a [tilted or incomplete stack](manifest.md#tilted-stacks-and-missing-slices) was straightened, or filled with the nearest slices, as the manifest allows",
  region_empty:
    "the model that [finds the region](manifest.md#a-region-that-another-model-finds) found none",
  role_partly_outside:
    "a series of a [case](models.md#several-series-or-views-as-one-case) does not cover the first one",
  attribute_default:
    "an attribute that is an input was absent, and the manifest's default was used",
  unlikely_hounsfield:
    "no value is below 0 HU although some are above 900 HU: RescaleIntercept was probably lost",
  real_world_value_ignored:
    "the model uses modality values, and the image's Real World Value Mapping says something else ([models](manifest.md#values) can use it)",
  real_world_range: "values beyond the range of the Real World Value Mapping were mapped too",
  suv_scan_start:
    "the [start of the scan](manifest.md#values) for SUV was derived, or SeriesTime gives SUV that differ by more than 1 %",
  no_volume: "the slices of [a series as one item](reading.md#a-series-as-one-item) are no volume",
} as const;

export type WarningCode = keyof typeof FILE_WARNINGS | keyof typeof MODEL_WARNINGS;
