/**
 * Standardised uptake values by body weight: SUV = activity concentration / (decayed dose / weight), by the
 * vendor-neutral computation of QIBA's FDG-PET/CT Profile and the Attributes of PS3.3 C.8.9.1 and C.8.9.2. What it
 * needs and the file does not say, or says twice, is a reason why there is no SUV. Two things are assumed: a dose of which
 * only the hour is said was given within the day before the scan, and where the series says another time than that of the
 * scan, decay was corrected to its earliest acquisition. The second is a caveat.
 */
import { rangeOf } from "../../base/range.js";
import type { SuvScale, Warning } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";
import {
  decimal,
  minutesOfOffset,
  momentOf,
  secondsOfDate,
  secondsOfTime,
  type Moment,
} from "./value-forms.js";

const GRAMS_PER_KILOGRAM = 1000;
/** The smallest dose in Bq that a scanner can make an image of; less is a number in MBq or in mCi. */
const LEAST_DOSE_BQ = 1e5;
const DAY_SECONDS = 86_400;

/** Private elements with the scan's start, and with factors of its own, where the public ones do not serve. */
const GE = { creator: "GEMS_PETD_01", group: 0x0009, scanStart: 0x0d };
const PHILIPS = { creator: "Philips PET Private Group", group: 0x7053, suv: 0x00, concentration: 0x09 };

/** A longer half-life leaves much of a dose from the days before, so that its hour does not tell when it was given. */
const LONGEST_HALF_LIFE_BY_HOUR = 6 * 3600;
/** How far two statements of one time may differ. */
const SAME_SECONDS = 1;

/** Of several images of one series. */
interface SeriesTimes {
  /** Seconds since 1970 on the clock of the place; undefined if an image does not say it. */
  earliestAcquisition: number | undefined;
  images: number;
}

/** What the images of a series, or a single image, say of the time of acquisition. */
function seriesTimes(images: readonly DataSetAttributes[]): SeriesTimes {
  const times = images.map((image) => joined(image, "AcquisitionDate", "AcquisitionTime"));
  const earliest = times.reduce((a, b) => (a === undefined || b === undefined ? undefined : Math.min(a, b)));
  return { earliestAcquisition: earliest, images: images.length };
}

/**
 * The factor from modality values to SUV in g/ml; undefined if the image is not of positron emission.
 * @param times of all images of the series that are there
 */
export function readSuv(
  attributes: DataSetAttributes,
  times = seriesTimes([attributes]),
): SuvScale | undefined {
  if (attributes.string("Modality") !== "PT") return undefined;
  switch (attributes.string("Units")) {
    case "GML":
      return (attributes.string("SUVType") ?? "BW") === "BW"
        ? { factor: 1 }
        : { missing: "Units is GML by another SUVType than BW (body weight)" };
    case "BQML":
      return ofConcentration(attributes, times);
    case "CNTS":
      return ofCounts(attributes, times);
    default:
      return { missing: "Units is neither BQML, CNTS nor GML" };
  }
}

/** How far the factors of two slices may differ, as a part of them. */
const SAME_FACTOR = 1e-3;

/** What all files of a series together say of SUV; nothing for those that are not of positron emission. */
export function suvOf<File extends { attributes: DataSetAttributes }>(
  files: readonly File[],
): Map<File, SuvScale> {
  const times = seriesTimes(files.map(({ attributes }) => attributes));
  const found = files.flatMap((file) => {
    const suv = readSuv(file.attributes, times);
    return suv === undefined ? [] : [[file, suv] as const];
  });
  const [least, most] = rangeOf(found.flatMap(([, suv]) => ("factor" in suv ? suv.factor : [])));
  if (!(most > least * (1 + SAME_FACTOR))) return new Map(found);
  const missing = "the slices differ in weight, dose or times, and lead to different SUV";
  return new Map(files.map((file) => [file, { missing }]));
}

/** Counts become SUV by a factor that only Philips gives, or activity by another. */
function ofCounts(attributes: DataSetAttributes, times: SeriesTimes): SuvScale {
  const { creator, group } = PHILIPS;
  const own = positive(attributes.privateValue(creator, group, PHILIPS.suv));
  if (own !== undefined) return { factor: own };
  const concentration = positive(attributes.privateValue(creator, group, PHILIPS.concentration));
  if (concentration === undefined)
    return { missing: "Units is CNTS, and no factor to Bq/ml or SUV is given" };
  const scale = ofConcentration(attributes, times);
  return "factor" in scale ? { ...scale, factor: scale.factor * concentration } : scale;
}

function ofConcentration(attributes: DataSetAttributes, times: SeriesTimes): SuvScale {
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
      const scan = scanStart(attributes, times);
      if (typeof scan === "string") return { missing: scan };
      const decay = decaySeconds(attributes, given, scan.local, halfLife);
      if (typeof decay === "string") return { missing: decay };
      const left = dose * 2 ** (-decay / halfLife);
      // More than was given where the times are in the wrong order, too little where one of them is of another day
      if (left > dose || left < LEAST_DOSE_BQ)
        return {
          missing:
            decay < 0
              ? `the radiopharmaceutical was given ${elapsed(-decay)} after the scan began, by the times in the file`
              : `of the dose less than ${LEAST_DOSE_BQ} Bq was left when the scan began, ${elapsed(decay)} later by the times in the file`,
        };
      const { caveat } = scan;
      return { factor: perKilogram / left, ...(caveat === undefined ? {} : { caveat }) };
    }
    default:
      return { missing: "DecayCorrection is neither START nor ADMIN" };
  }
}

/** Seconds from the administration to the time that decay was corrected to; or why they are not known. */
function decaySeconds(
  attributes: DataSetAttributes,
  given: DataSetAttributes,
  scan: number,
  halfLife: number,
): number | string {
  const [stated, hour] = ["RadiopharmaceuticalStartDateTime", "RadiopharmaceuticalStartTime"].map((keyword) =>
    given.string(keyword),
  );
  const time = secondsOfTime(hour);
  if (hour !== undefined && time === undefined)
    return "RadiopharmaceuticalStartTime is no time that says the minute (PS3.5 6.2, TM)";
  if (stated !== undefined) {
    const moment = momentOf(stated);
    if (moment === undefined)
      return "RadiopharmaceuticalStartDateTime is no date and time that says the minute (PS3.5 6.2, DT)";
    const local = onTheClockOf(attributes, moment, time);
    if (typeof local === "string") return local;
    if (time !== undefined && fromMidnight(local - time) > SAME_SECONDS)
      return "RadiopharmaceuticalStartDateTime and RadiopharmaceuticalStartTime say different times";
    return scan - local;
  }
  if (time === undefined) return "no time of the radiopharmaceutical's administration is given";
  if (halfLife > LONGEST_HALF_LIFE_BY_HOUR)
    return "RadiopharmaceuticalStartTime says no day, which has to be known with a half-life of more than 6 hours";
  const ago = (scan - time) % DAY_SECONDS;
  return ago < 0 ? ago + DAY_SECONDS : ago;
}

/** How many seconds a time is from the nearest midnight. */
function fromMidnight(seconds: number): number {
  const after = Math.abs(seconds % DAY_SECONDS);
  return Math.min(after, DAY_SECONDS - after);
}

/**
 * A moment in seconds since 1970 on the clock that the dates and times of the file are of (PS3.3 C.12.1.1.8); or why it is
 * not known. One that names no offset is of that clock (PS3.5 6.2).
 * @param time what the file says of the same moment on its own clock
 */
function onTheClockOf(
  attributes: DataSetAttributes,
  { local, offset }: Moment,
  time: number | undefined,
): number | string {
  if (offset === undefined) return local;
  const zone = attributes.string("TimezoneOffsetFromUTC");
  const ahead = minutesOfOffset(zone);
  if (ahead !== undefined) return local + (ahead - offset) * 60;
  if (zone !== undefined) return "TimezoneOffsetFromUTC is no offset";
  if (time !== undefined && fromMidnight(local - time) <= SAME_SECONDS) return local;
  return "RadiopharmaceuticalStartDateTime names an offset from UTC, and the file no TimezoneOffsetFromUTC for the scan's own times";
}

function elapsed(seconds: number): string {
  return seconds < DAY_SECONDS
    ? `${Number((seconds / 3600).toPrecision(3))} hours`
    : `${Number((seconds / DAY_SECONDS).toPrecision(3))} days`;
}

/**
 * The time that decay was corrected to (PS3.3 C.8.9.1.1.7): the start of the series, unless its times are those of a
 * later computation; then the scan's own start, where a scanner keeps it, or else the earliest acquisition of the series.
 */
function scanStart(
  attributes: DataSetAttributes,
  { earliestAcquisition, images }: SeriesTimes,
): { local: number; caveat?: Warning } | string {
  const series = joined(attributes, "SeriesDate", "SeriesTime");
  if (series !== undefined && earliestAcquisition !== undefined && series <= earliestAcquisition)
    return { local: series };
  const kept = momentOf(attributes.privateValue(GE.creator, GE.group, GE.scanStart));
  if (kept !== undefined) {
    const local = onTheClockOf(attributes, kept, undefined);
    return typeof local === "string"
      ? "the scan's start that the scanner kept is not on the file's clock"
      : { local };
  }
  if (series === undefined || earliestAcquisition === undefined)
    return "SeriesDate and SeriesTime, or AcquisitionDate and AcquisitionTime, are absent or say no minute, so the time of decay correction is not known";
  const [reference, lasted] = [
    attributes.number("FrameReferenceTime"),
    attributes.number("ActualFrameDuration"),
  ];
  if (images === 1 && reference !== undefined && lasted !== undefined && reference > lasted)
    return "SeriesTime is later than AcquisitionTime, and FrameReferenceTime says that the image is not of the scan's first frame: send the whole series";
  return {
    local: earliestAcquisition,
    caveat: {
      code: "suv_scan_start",
      message:
        "SeriesTime is later than AcquisitionTime, so that it is not the time to which decay was corrected; the earliest " +
        `AcquisitionTime of ${images === 1 ? "the only image that is there" : `the ${images} images that are there`} was taken. ` +
        "SUV are too high or too low if the scan began at another time.",
    },
  };
}

function joined(attributes: DataSetAttributes, date: string, time: string): number | undefined {
  const [day, seconds] = [secondsOfDate(attributes.string(date)), secondsOfTime(attributes.string(time))];
  return day === undefined || seconds === undefined ? undefined : day + seconds;
}

function positive(text: string | undefined): number | undefined {
  const value = decimal(text ?? "") ?? 0;
  return value > 0 ? value : undefined;
}
