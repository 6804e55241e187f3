/**
 * Standardised uptake values by body weight: SUV = activity concentration / (decayed dose / weight), by the
 * vendor-neutral computation of QIBA's FDG-PET/CT Profile and the Attributes of PS3.3 C.8.9.1 and C.8.9.2. What it
 * needs and the file does not say, or says twice, is a reason why there is no SUV; nothing is assumed but that a dose
 * given at an hour later than the scan's was given the day before.
 */
import type { SuvScale } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";

const GRAMS_PER_KILOGRAM = 1000;
/** The smallest dose in Bq that a scanner can make an image of; less is a number in MBq or in mCi. */
const LEAST_DOSE_BQ = 1e5;
const DAY_SECONDS = 86_400;

/** Private elements with the scan's start, and with factors of its own, where the public ones do not serve. */
const GE = { creator: "GEMS_PETD_01", group: 0x0009, scanStart: 0x0d };
const PHILIPS = { creator: "Philips PET Private Group", group: 0x7053, suv: 0x00, concentration: 0x09 };

/** The factor from modality values to SUV in g/ml; undefined if the image is not of positron emission. */
export function readSuv(attributes: DataSetAttributes): SuvScale | undefined {
  if (attributes.string("Modality") !== "PT") return undefined;
  switch (attributes.string("Units")) {
    case "GML":
      return (attributes.string("SUVType") ?? "BW") === "BW"
        ? { factor: 1 }
        : { missing: "Units is GML by another SUVType than BW (body weight)" };
    case "BQML":
      return ofConcentration(attributes);
    case "CNTS":
      return ofCounts(attributes);
    default:
      return { missing: "Units is neither BQML, CNTS nor GML" };
  }
}

/** Counts become SUV by a factor that only Philips gives, or activity by another. */
function ofCounts(attributes: DataSetAttributes): SuvScale {
  const { creator, group } = PHILIPS;
  const own = positive(attributes.privateValue(creator, group, PHILIPS.suv));
  if (own !== undefined) return { factor: own };
  const concentration = positive(attributes.privateValue(creator, group, PHILIPS.concentration));
  if (concentration === undefined)
    return { missing: "Units is CNTS, and no factor to Bq/ml or SUV is given" };
  const scale = ofConcentration(attributes);
  return "factor" in scale ? { factor: scale.factor * concentration } : scale;
}

function ofConcentration(attributes: DataSetAttributes): SuvScale {
  const corrected = attributes.strings("CorrectedImage") ?? [];
  for (const correction of ["ATTN", "DECY"])
    if (!corrected.includes(correction)) return { missing: `CorrectedImage does not hold ${correction}` };
  const weight = positive(attributes.string("PatientWeight"));
  if (weight === undefined) return { missing: "PatientWeight is absent or not above 0 kg" };
  const [given, another] = attributes.sequence("RadiopharmaceuticalInformationSequence") ?? [];
  if (given === undefined || another !== undefined)
    return { missing: "RadiopharmaceuticalInformationSequence does not hold one item" };
  const dose = positive(given.string("RadionuclideTotalDose"));
  if (dose === undefined || dose < LEAST_DOSE_BQ)
    return { missing: `RadionuclideTotalDose is absent or below ${LEAST_DOSE_BQ} Bq` };
  const perKilogram = weight * GRAMS_PER_KILOGRAM;
  switch (attributes.string("DecayCorrection")) {
    case "ADMIN":
      return { factor: perKilogram / dose };
    case "START": {
      const halfLife = positive(given.string("RadionuclideHalfLife"));
      if (halfLife === undefined) return { missing: "RadionuclideHalfLife is absent or not above 0 s" };
      const decay = decaySeconds(attributes, given);
      if (typeof decay === "string") return { missing: decay };
      return { factor: perKilogram / (dose * 2 ** (-decay / halfLife)) };
    }
    default:
      return { missing: "DecayCorrection is neither START nor ADMIN" };
  }
}

/** Seconds from the administration to the time that decay was corrected to; or why they are not known. */
function decaySeconds(attributes: DataSetAttributes, given: DataSetAttributes): number | string {
  const scan = scanStart(attributes);
  if (typeof scan === "string") return scan;
  const stated = seconds(given.string("RadiopharmaceuticalStartDateTime"));
  if (stated !== undefined) return checkedDecay(scan - stated);
  const time = secondsOfDay(given.string("RadiopharmaceuticalStartTime"));
  if (time === undefined) return "no time of the radiopharmaceutical's administration is given";
  const midnight = Math.floor(scan / DAY_SECONDS) * DAY_SECONDS;
  const start = midnight + time;
  return checkedDecay(scan - (start > scan ? start - DAY_SECONDS : start));
}

function checkedDecay(decay: number): number | string {
  return decay >= 0 && decay < DAY_SECONDS
    ? decay
    : "the radiopharmaceutical was not given within the day before the scan";
}

/**
 * The time that decay was corrected to (PS3.3 C.8.9.1.1.7): the start of the series, unless its times are those of a
 * later computation; then only a scanner that keeps the scan's own start can say it.
 */
function scanStart(attributes: DataSetAttributes): number | string {
  const series = joined(attributes, "SeriesDate", "SeriesTime");
  const acquisition = joined(attributes, "AcquisitionDate", "AcquisitionTime");
  if (series !== undefined && acquisition !== undefined && series <= acquisition) return series;
  const kept = seconds(attributes.privateValue(GE.creator, GE.group, GE.scanStart));
  return (
    kept ?? "SeriesTime is absent or later than AcquisitionTime, so the time of decay correction is not known"
  );
}

function joined(attributes: DataSetAttributes, date: string, time: string): number | undefined {
  return seconds(`${attributes.string(date) ?? ""}${attributes.string(time) ?? ""}`);
}

function positive(text: string | undefined): number | undefined {
  const value = Number(text ?? Number.NaN);
  return value > 0 && Number.isFinite(value) ? value : undefined;
}

/** A DT, or a DA and a TM, to seconds since 1970, an offset of its zone left out: all times of a file are of one place. */
function seconds(text: string | undefined): number | undefined {
  const match = /^(\d{4})(\d\d)(\d\d)(\d{4}(?:\d\d(?:\.\d{1,6})?)?)(?:[-+]\d{4})?$/.exec(text ?? "");
  if (match === null) return undefined;
  const time = secondsOfDay(match[4]);
  const day = Date.UTC(Number(match[1]), Number(match[2]) - 1, Number(match[3])) / 1000;
  return time === undefined ? undefined : day + time;
}

function secondsOfDay(text: string | undefined): number | undefined {
  const match = /^(\d\d)(\d\d)(\d\d(?:\.\d{1,6})?)?$/.exec(text ?? "");
  if (match === null) return undefined;
  return Number(match[1]) * 3600 + Number(match[2]) * 60 + Number(match[3] ?? 0);
}
