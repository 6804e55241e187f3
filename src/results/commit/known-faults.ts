/**
 * Lists the known faults of results of earlier versions, so that `verify` and `explain` warn of a
 * receipt that shows one. CHANGELOG.md lists the same conditions.
 *
 * To add one: append an entry to KNOWN_FAULTS, evidence of it to CASES in its test, and a line to
 * CHANGELOG.md. `shows` decides from the receipt alone where that is enough; otherwise from the
 * source (`image`) or the manifest, which are there in `verify` only, and only where their SHA-256
 * are the receipt's. It is false where it cannot know, and throws nothing. `text` names the
 * attribute or the manifest's field first, then what was wrong, and what to do if it is more than
 * to run the image again. Entries are appended, so that texts keep their order.
 */
import { storedReasons, windowCaveats } from "../../models/acceptance.js";
import type { Image, SuvScale } from "../../images/image.js";
import { imageInputs, type Manifest } from "../../manifest/manifest.js";
import { labelsOf } from "../../manifest/outputs/outputs.js";
import { isThicknessAssumed } from "../dicom/frame-positions.js";
import { sourcePlaces } from "../dicom/grid.js";
import { phasesIn } from "../dicom/objects.js";
import { sideOf } from "../findings/sides.js";
import type { Receipt, ReceiptModel } from "../receipt/receipt.js";

/** The evidence that a result can be judged by. */
export interface Evidence {
  receipt: Receipt;
  /** The receipt's source, as this version reads it. */
  image?: Image | undefined;
  manifestOf?: ((model: ReceiptModel) => Manifest | undefined) | undefined;
}

export interface KnownFault {
  /** The first version without it. */
  before: string;
  shows: (evidence: Evidence) => boolean;
  text: string;
}

const succeeded = ({ receipt }: Evidence) =>
  receipt.models.filter(({ status }) => status === "succeeded");

/** Models of the receipt that have written an object of DICOM. */
const withObjects = (evidence: Evidence) =>
  succeeded(evidence).filter(({ outputs }) =>
    outputs.some(({ media_type }) => media_type === "application/dicom"),
  );

/** Models of the receipt that have measured areas. */
const withAreas = (evidence: Evidence) =>
  succeeded(evidence).filter(({ findings }) =>
    findings.some(({ area }) => area?.cm2 !== undefined),
  );

const isWarned = ({ image }: Evidence, ...codes: string[]): boolean =>
  image?.warnings.some(({ code }) => codes.includes(code)) === true;

const isTold = ({ warnings }: Receipt, ...codes: string[]): boolean =>
  warnings.some(({ code }) => codes.includes(code));

/** Whether a model has written a file of these endings, in the grid of the source. */
const hasWritten = (evidence: Evidence, endings: RegExp): boolean =>
  succeeded(evidence).some(
    ({ outputs, segmentation_grid: own }) =>
      own === undefined && outputs.some(({ path }) => endings.test(path)),
  );

/** Whether a label without a site has a side, or the image gives it one. */
const hasSideWithoutSite = (evidence: Evidence): boolean =>
  succeeded(evidence).some((model) => {
    const { image } = evidence;
    if (!model.outputs.some(({ path }) => /\.(?:sr|seg|rtstruct)\.dcm$/.test(path))) return false;
    const labels = evidence.manifestOf?.(model)?.outputs.flatMap(labelsOf) ?? [];
    return labels.some(
      (label) =>
        label.finding_site === undefined &&
        (label.laterality ?? (image && sideOf(image, label))) !== undefined,
    );
  });

/** Whether 0.6 left places out of a segmentation for want of a thickness. */
function lacksThickness({ image }: Evidence): boolean {
  const attributes = image?.attributes;
  if (image === undefined || attributes === undefined) return false;
  const whole = { image, attributes, phases: undefined };
  return isThicknessAssumed(whole, sourcePlaces(image, attributes));
}

/** Whether the values of the frames decide now which colours they have. */
const hasColoursByValues = ({ image }: Evidence): boolean =>
  image?.warnings.some(
    ({ code, message }) => code === "photometric_mismatch" && message.includes("by their values: "),
  ) === true;

/** Why this version makes no SUV of images of which 0.6 made some without a look at these. */
const NO_SUV_OF =
  /^(?:RescaleSlope|CorrectedImage|DecayCorrection) |^RadiopharmaceuticalStartTime says no day, and is /;

/** What this version says of SUV of the first frames. */
const suvsOf = ({ image }: Evidence): SuvScale[] =>
  (image?.case?.members ?? (image === undefined ? [] : [image])).flatMap(
    (member) => member.interpretation(0).suv ?? [],
  );

/** The factors that SUV were computed with. */
const suvFactors = (evidence: Evidence): number[] =>
  succeeded(evidence)
    .flatMap(({ transforms }) => transforms.filter(({ step }) => step === "suv_bw"))
    .map(({ multiply }) => Number(multiply));

/**
 * Whether SUV were computed with another factor than this version takes for the first frame, or has
 * none.
 */
function hasOtherSuv(evidence: Evidence): boolean {
  const factors = suvsOf(evidence).flatMap((suv) =>
    "factor" in suv ? suv.factor : NO_SUV_OF.test(suv.missing) ? [] : NaN,
  );
  const isSame = (taken: number) =>
    factors.some((factor) => Math.abs(factor - taken) <= 1e-6 * factor);
  return factors.length > 0 && suvFactors(evidence).some((factor) => !isSame(factor));
}

const hasSuvOfNone = (evidence: Evidence): boolean =>
  suvFactors(evidence).length > 0 &&
  suvsOf(evidence).some((suv) => "missing" in suv && NO_SUV_OF.test(suv.missing));

/** Whether a model's values depend on how many bits the stored ones have. */
const goesByBits = (manifest: Manifest, image: Image): boolean =>
  imageInputs(manifest).some(({ values, monochrome1 }) => {
    const { kind } = values;
    const frames = Array.from({ length: image.frameCount }, (_, i) => image.interpretation(i));
    if (kind === "full_range") return true;
    if (kind === "voi")
      return (
        values.if_absent === "full_range" && frames.some(({ voi }) => voi.length <= values.index)
      );
    const isInverted =
      monochrome1 === "invert" && image.format.photometricInterpretation === "MONOCHROME1";
    const isOfBits =
      kind === "stored" || (kind === "modality" && frames.some(({ units }) => units !== "HU"));
    return isInverted && isOfBits;
  });

/** Whether a model took slices of other bits than those over which it was given their values. */
const hasOtherBits = (evidence: Evidence): boolean =>
  isWarned(evidence, "mixed_storage") &&
  succeeded(evidence).some((model) => {
    const manifest = evidence.manifestOf?.(model);
    const { image } = evidence;
    return manifest !== undefined && image !== undefined && goesByBits(manifest, image);
  });

export const KNOWN_FAULTS: readonly KnownFault[] = [
  {
    before: "0.7.0",
    shows: ({ receipt }) =>
      receipt.warnings.some(
        ({ code, message }) =>
          code === "photometric_mismatch" &&
          message.includes("their components were taken as YBR_FULL"),
      ),
    text:
      "PhotometricInterpretation YBR_ICT over frames without a component transform: the components were taken as " +
      "luminance and chrominance without a look at their values; where they are red, green and blue, the models saw " +
      "wrong colours.",
  },
  {
    before: "0.6.0",
    shows: ({ receipt }) =>
      receipt.warnings.some(
        ({ code, message }) =>
          code === "photometric_mismatch" &&
          message.includes("the codestream has no such transform"),
      ),
    text:
      "PhotometricInterpretation YBR_RCT or YBR_ICT over JPEG 2000 without a component transform: the components were " +
      "taken as RGB and not as luminance and chrominance, so the models saw wrong colours.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      withObjects(evidence).length > 0 &&
      evidence.image?.attributes?.strings("FrameOfReferenceUID")?.join("") === "",
    text: "FrameOfReferenceUID is empty in the source, and so in the SEG and the RTSTRUCT, where it must have a value.",
  },
  {
    before: "0.6.0",
    shows: hasOtherSuv,
    text:
      "RadiopharmaceuticalStartDateTime with an offset from UTC, times of the dose that contradict each other, or an hour " +
      "without a day and a long half-life: SUV (suv_bw) were computed with another decay than the file says.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      withObjects(evidence).length > 0 &&
      evidence.image?.attributes?.string("TimezoneOffsetFromUTC") === undefined &&
      evidence.image?.attributes !== undefined,
    text:
      "TimezoneOffsetFromUTC is absent in the source, and the objects have the server's of the day of the analysis: it " +
      "counts for the dates and times of the source in them too, and is wrong where those are of another zone or season.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      withAreas(evidence).length > 0 &&
      ((evidence.image?.attributes?.has("PixelSpacing") === true &&
        evidence.image.regions?.(0) !== undefined) ||
        isWarned(evidence, "regions_ignored", "spacing_mismatch")),
    text:
      "SequenceOfUltrasoundRegions beside a PixelSpacing that does not hold for all of it, or without the places of its " +
      "regions: areas are by a scale that is not theirs.",
  },
  {
    // 0.6 knew only those of ImageType MOSAIC, and measured no area in them
    before: "0.7.0",
    shows: (evidence) => withAreas(evidence).length > 0 && isWarned(evidence, "mosaic"),
    text: "ImageType MOSAIC or another grid of slices: areas are those of many slices that lie side by side in one frame.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      withObjects(evidence).some(({ findings, measurements }) =>
        [...findings, ...measurements].some(({ code }) =>
          /^(?:urn|https?):/i.test(code?.value ?? ""),
        ),
      ),
    text: "A code of the manifest is a URN or URL: the objects have it as Code Value or Long Code Value and not as URN Code Value.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      succeeded(evidence).some(
        ({ findings, measurements, outputs }) =>
          outputs.some(({ path }) => path.endsWith(".sr.dcm")) &&
          outputs.some(({ path }) => path.endsWith(".seg.dcm")) &&
          findings.some(({ present }) => present) &&
          measurements.some(({ label, frame }) =>
            findings.some((one) => one.label === label && one.frame === frame && !one.present),
          ),
      ),
    text: "Labels that were not found beside others that were: the SR lacks their measurements (0), which the receipt has.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      withObjects(evidence).length > 0 &&
      isWarned(evidence, "character_set_spelling", "character_set_unknown"),
    text: "SpecificCharacterSet is misspelt or unknown: names and other texts in the objects were read by another set.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      succeeded(evidence).some(({ findings }) => {
        const seen = findings
          .filter(({ box }) => box === undefined)
          .map(({ label, frame }) => `${frame} ${label}`);
        return new Set(seen).size < seen.length;
      }),
    text:
      "A label is that of two outputs of the model: their findings have one name, one threshold and one tracking UID. " +
      "Give the labels of each output names of their own.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      withAreas(evidence).length > 0 &&
      evidence.image?.attributes?.has("PixelSpacing") === true &&
      /^(?:Imager|NominalScanned)/.test(evidence.image.spacing(0)?.source ?? ""),
    text:
      "PixelSpacing equals ImagerPixelSpacing or NominalScannedPixelSpacing but for rounding: areas are those at the " +
      "detector or on the film, and were taken for those in the patient.",
  },
  {
    before: "0.6.0",
    shows: (evidence) => {
      const named = (evidence.receipt.source.slices ?? []).flatMap((slice) =>
        slice.sop_instance_uid === undefined
          ? []
          : `${slice.sop_instance_uid} ${slice.frame ?? ""}`,
      );
      return withObjects(evidence).length > 0 && new Set(named).size < named.length;
    },
    text: "SOPInstanceUID is the same in several files of the source: the objects do not say which of them they are about.",
  },
  {
    before: "0.6.0",
    shows: ({ receipt: { source, models } }) =>
      source.case !== undefined &&
      models.some(({ name, region }) => {
        const finder = models.find((model) => model.name === region?.model);
        const isFound = finder?.findings.some(
          ({ label, present }) => label === region?.label && present,
        );
        return isFound === true && name < (region?.model ?? "");
      }),
    text:
      "region beside roles, and a model whose name comes before that of the model which finds the region: it ran first, as " +
      "if nothing had been found, although the other model's findings have the region.",
  },
  {
    before: "0.7.0",
    shows: (evidence) =>
      withObjects(evidence).length > 0 &&
      (evidence.image?.frameCount ?? 1) > 1 &&
      evidence.image?.series === undefined &&
      evidence.image?.attributes?.has("SliceVector") === true &&
      evidence.image.attributes.strings("ImageType")?.some((type) => /^RECON /.test(type)) !== true,
    text: "SliceVector without ImageType RECON TOMO: SEG and RTSTRUCT have all slices in the plane of the first.",
  },
  {
    before: "0.7.0",
    shows: (evidence) => succeeded(evidence).length > 0 && isWarned(evidence, "derived_values"),
    text:
      "VolumeBasedCalculationTechnique or ImageType says that values are not Hounsfield units of one slice " +
      "(MIP, VRT, maps, pages): they were taken for those.",
  },
  {
    before: "0.7.0",
    shows: (evidence) =>
      hasWritten(evidence, /\.(?:seg|rtstruct)\.dcm$/) &&
      evidence.image !== undefined &&
      phasesIn(evidence.image, undefined) !== undefined,
    text:
      "ImagePositionPatient is the same in several frames (times, echoes, b-values), or tiles of several optical paths show one " +
      "place: the RTSTRUCT has their contours in one region, and programs that read the SEG by its places unite their masks.",
  },
  {
    before: "0.7.0",
    shows: (evidence) => hasWritten(evidence, /\.seg\.dcm$/) && lacksThickness(evidence),
    text: "SliceThickness is empty or absent, and frames are at no one distance: the SEG does not say where they lie.",
  },
  {
    before: "0.7.0",
    shows: (evidence) => succeeded(evidence).length > 0 && isWarned(evidence, "quadruped"),
    text:
      "AnatomicalOrientationType or PatientSpeciesDescription says that the patient is an animal: pictures have the sides of a " +
      "human, and objects may have Laterality.",
  },
  {
    before: "0.7.0",
    shows: (evidence) =>
      succeeded(evidence).some((model) => {
        const manifest = evidence.manifestOf?.(model);
        const { image } = evidence;
        if (manifest === undefined || image === undefined) return false;
        return storedReasons(manifest, image).length > 0;
      }),
    text:
      "inputs.values is stored, and RescaleSlope or RescaleIntercept differ from slice to slice: the model compared numbers of " +
      "different scales. Let it take modality values.",
  },
  {
    // A source that this version reads has all of its slices
    before: "0.7.0",
    shows: ({ receipt, image }) =>
      image === undefined &&
      receipt.source.slices !== undefined &&
      isTold(receipt, "left_out_no_image", "left_out_not_dicom"),
    text:
      "PixelData or more was missing in files that were left out of the series (left_out_no_image, left_out_not_dicom): where " +
      "those were its slices at an end, the volume is too short. Verify it with the folder, which is refused if they are.",
  },
  {
    // Those that 0.6 told of are the first entry's
    before: "0.7.0",
    shows: (evidence) =>
      succeeded(evidence).length > 0 &&
      hasColoursByValues(evidence) &&
      !isTold(evidence.receipt, "photometric_mismatch"),
    text:
      "Colours contradict the frames (PhotometricInterpretation, markers, component transform): they were taken without a look " +
      "at the values, and models may have seen wrong ones.",
  },
  {
    before: "0.7.0",
    shows: hasSuvOfNone,
    text:
      "RescaleSlope is absent, or CorrectedImage lacks ATTN or DECY, or DecayCorrection is neither START nor ADMIN, or " +
      "RadiopharmaceuticalStartTime is too long before the scan, or later: SUV (suv_bw) were computed from stored values, from " +
      "values that are not corrected, or with a decay that cannot have been.",
  },
  {
    before: "0.7.0",
    shows: hasOtherBits,
    text:
      "BitsStored or PixelRepresentation differ between the slices, and the model takes values over all that the bits allow " +
      "(full_range, or MONOCHROME1 that is inverted): all were taken over the bits of all together.",
  },
  {
    before: "0.7.0",
    shows: (evidence) =>
      succeeded(evidence).some((model) => {
        const manifest = evidence.manifestOf?.(model);
        const { image } = evidence;
        if (manifest === undefined || image === undefined) return false;
        return windowCaveats(manifest, image).length > 0;
      }),
    text:
      "inputs.values is voi over slices whose windows differ: the model compared values of different windows. Let it take a " +
      "window of the manifest.",
  },
  {
    before: "0.7.0",
    shows: hasSideWithoutSite,
    text:
      "laterality of a label without finding_site, or the side that the image names: SEG, RTSTRUCT and SR do not have it, so " +
      "that both sides of an organ differ by their names alone.",
  },
  {
    before: "0.7.0",
    shows: (evidence) =>
      hasWritten(evidence, /\.seg\.dcm$/) &&
      evidence.image?.plane(0) !== undefined &&
      /(?:^|\.)0\d/.test(evidence.image.attributes?.string("FrameOfReferenceUID") ?? ""),
    text: "FrameOfReferenceUID has a component that begins with 0: the SEG does not say where its frames lie.",
  },
];

/** True where `version` comes before `other`; both as 0.6.0. */
function isBefore(version: string, other: string): boolean {
  const [left = [], right = []] = [version, other].map((one) =>
    one.split(".").map((part) => parseInt(part, 10)),
  );
  const at = right.findIndex((part, i) => part !== left[i]);
  return at >= 0 && (left[at] ?? 0) < (right[at] ?? 0);
}

/**
 * Faults that the result of a receipt has, or may have, as far as the evidence shows; none if a
 * later version made it.
 */
export function knownFaults(evidence: Evidence): string[] {
  const { radserve_version: version } = evidence.receipt;
  return KNOWN_FAULTS.filter(
    ({ before, shows }) => isBefore(version, before) && shows(evidence),
  ).map(({ text }) => text);
}
