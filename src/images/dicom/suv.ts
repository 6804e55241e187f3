/**
 * Standardised uptake values by body weight: SUV = activity concentration / (decayed dose /
 * weight), by the vendor-neutral computation of QIBA's FDG-PET/CT Profile and the Attributes of
 * PS3.3 C.8.9.1 and C.8.9.2. If the file lacks something that is needed, or states it twice, there
 * is no SUV, and the reason is reported. Two things are assumed. A dose with a time but no date was
 * given in the hours before the scan. If the series and the scan have different times, decay was
 * corrected to the start that the frames state, or to the earliest acquisition; this second
 * assumption is reported as a caveat.
 */
import { ownValue } from "../../base/own-value.js";
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
const MILLISECONDS = 1000;
/**
 * The smallest dose in Bq that a scanner can make an image of; less is a number in MBq or in mCi.
 */
const LEAST_DOSE_BQ = 1e5;
const DAY_SECONDS = 86_400;

/**
 * Private elements with the scan's start, and with factors of its own, where the public ones do not
 * serve.
 */
const GE = { creator: "GEMS_PETD_01", group: 0x0009, scanStart: 0x0d };
const PHILIPS = {
  creator: "Philips PET Private Group",
  group: 0x7053,
  suv: 0x00,
  concentration: 0x09,
};

/**
 * A longer half-life leaves much of a dose from the days before, so that its hour does not tell
 * when it was given.
 */
const LONGEST_HALF_LIFE_BY_HOUR = 6 * 3600;
/**
 * An hour without a day is believed only if a patient may have waited so long. Else it is later
 * than the scan, by a mistake in one of the two, and would be taken for one of the day before.
 */
const LONGEST_WAIT = { halfLives: 6, seconds: 12 * 3600 };
/** How far two statements of one time may differ. */
const SAME_SECONDS = 1;
/** How far the factors of two slices may differ, as a part of them. */
const SAME_FACTOR = 1e-3;
/** SUV that differ by more than such a part deserve a word. */
const OTHER_FACTOR = 0.01;

/** When one image was acquired. */
interface ImageTimes {
  /** Seconds since 1970 on the clock of the place; NaN if the image does not say it. */
  acquired: number;
  /**
   * Seconds from the scan's start to the time of the average count rate, and that the frame took;
   * NaN if not said.
   */
  reference: number;
  lasted: number;
}

/** The times of acquisition, of the images of a series or of a single image. */
function seriesTimes(images: readonly DataSetAttributes[]): ImageTimes[] {
  const seconds = (image: DataSetAttributes, keyword: string) =>
    (positive(image.string(keyword)) ?? NaN) / MILLISECONDS;
  return images.map((image) => ({
    acquired: joined(image, "AcquisitionDate", "AcquisitionTime") ?? NaN,
    reference: seconds(image, "FrameReferenceTime"),
    lasted: seconds(image, "ActualFrameDuration"),
  }));
}

/**
 * When the scan began, counted back from each image's AcquisitionTime: FrameReferenceTime leads
 * from there to the time within the frame at which the count rate was its average, ln(d / (1 -
 * e^-d)) / lambda of a frame of d = lambda * duration (PS3.3 C.8.9.4.1.5, QIBA).
 * @returns the earliest; undefined if an image lacks its times, or if they lead to SUV that differ
 */
function startByFrames(times: readonly ImageTimes[], halfLife: number): number | undefined {
  const decay = Math.LN2 / halfLife;
  const starts = times.map(({ acquired, reference, lasted }) => {
    const d = decay * lasted;
    return acquired - reference + Math.log(d / -Math.expm1(-d)) / decay;
  });
  const [least, most] = rangeOf(starts);
  return starts.every(Number.isFinite) && most - least <= sameSeconds(halfLife) ? least : undefined;
}

/** How far times may differ without other SUV, or because they are rounded. */
const sameSeconds = (halfLife: number) =>
  Math.max(SAME_SECONDS, halfLife * Math.log2(1 + SAME_FACTOR));

/**
 * The factor from modality values to SUV in g/ml; undefined if the image is not of positron
 * emission.
 * @param times of all images of the series that are there
 */
export function readSuv(
  attributes: DataSetAttributes,
  times: readonly ImageTimes[] = seriesTimes([attributes]),
): SuvScale | undefined {
  if (attributes.string("Modality") !== "PT") return undefined;
  const ofUnits = ownValue(BY_UNITS, attributes.string("Units") ?? "");
  if (ofUnits === undefined) return { missing: "Units is neither BQML, CNTS nor GML" };
  if (!isRescaled(attributes)) return { missing: "RescaleSlope is absent or no number" };
  const missing = uncorrected(attributes);
  return missing === undefined ? ofUnits(attributes, times) : { missing };
}

type OfUnits = (attributes: DataSetAttributes, times: readonly ImageTimes[]) => SuvScale;

const BY_UNITS: Record<string, OfUnits> = {
  BQML: ofConcentration,
  CNTS: ofCounts,
  GML: (attributes) =>
    (attributes.string("SUVType") ?? "BW") === "BW"
      ? { factor: 1 }
      : { missing: "Units is GML by another SUVType than BW (body weight)" },
};

/**
 * Which correction an image lacks whose values could become SUV. QIBA asks for them before it looks
 * at Units: a factor of the scanner for its counts, and SUV that are stored as such, presuppose
 * them too.
 */
function uncorrected(attributes: DataSetAttributes): string | undefined {
  const corrected = attributes.strings("CorrectedImage") ?? [];
  const lacking = ["ATTN", "DECY"].find((correction) => !corrected.includes(correction));
  if (lacking !== undefined) return `CorrectedImage does not hold ${lacking}`;
  return ["START", "ADMIN"].includes(attributes.string("DecayCorrection") ?? "")
    ? undefined
    : "DecayCorrection is neither START nor ADMIN";
}

/**
 * Units says what rescaled values are (PS3.3 C.8.9.1): stored values without a slope are in none
 * that anybody knows. Multi-frame objects rescale in functional groups.
 */
function isRescaled(attributes: DataSetAttributes): boolean {
  const hasSlope = (holder: DataSetAttributes) => holder.number("RescaleSlope") !== undefined;
  const isGroup = (group: DataSetAttributes) =>
    group.sequence("PixelValueTransformationSequence")?.some(hasSlope) === true;
  const frames = attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  return (
    hasSlope(attributes) ||
    attributes.sequence("SharedFunctionalGroupsSequence")?.some(isGroup) === true ||
    (frames.length > 0 && frames.every(isGroup))
  );
}

/**
 * The SUV scale that all files of a series together give; undefined for those that are not of
 * positron emission.
 */
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
function ofCounts(attributes: DataSetAttributes, times: readonly ImageTimes[]): SuvScale {
  const { creator, group } = PHILIPS;
  const own = positive(attributes.privateValue(creator, group, PHILIPS.suv));
  if (own !== undefined) return { factor: own };
  const concentration = positive(attributes.privateValue(creator, group, PHILIPS.concentration));
  if (concentration === undefined)
    return { missing: "Units is CNTS, and no factor to Bq/ml or SUV is given" };
  const scale = ofConcentration(attributes, times);
  return "factor" in scale ? { ...scale, factor: scale.factor * concentration } : scale;
}

function ofConcentration(attributes: DataSetAttributes, times: readonly ImageTimes[]): SuvScale {
  const weight = positive(attributes.string("PatientWeight"));
  if (weight === undefined) return { missing: "PatientWeight is absent or not above 0 kg" };
  const [given, another] = attributes.sequence("RadiopharmaceuticalInformationSequence") ?? [];
  if (given === undefined || another !== undefined)
    return { missing: "RadiopharmaceuticalInformationSequence does not hold one item" };
  const dose = positive(given.string("RadionuclideTotalDose"));
  if (dose === undefined || dose < LEAST_DOSE_BQ)
    return { missing: `RadionuclideTotalDose is absent or below ${LEAST_DOSE_BQ} Bq` };
  const perKilogram = weight * GRAMS_PER_KILOGRAM;
  if (attributes.string("DecayCorrection") === "ADMIN") return { factor: perKilogram / dose };
  const halfLife = positive(given.string("RadionuclideHalfLife"));
  if (halfLife === undefined) return { missing: "RadionuclideHalfLife is absent or not above 0 s" };
  const scan = scanStart(attributes, times, halfLife);
  if (typeof scan === "string") return { missing: scan };
  const decay = decaySeconds(attributes, given, scan.local, halfLife);
  if (typeof decay === "string") return { missing: decay };
  const left = dose * 2 ** (-decay / halfLife);
  // More than was given where the times are in the wrong order, too little where one of them is of
  // another day
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

/**
 * Seconds from the administration to the time that decay was corrected to; or why they are not
 * known.
 */
function decaySeconds(
  attributes: DataSetAttributes,
  given: DataSetAttributes,
  scan: number,
  halfLife: number,
): number | string {
  const [stated, hour] = ["RadiopharmaceuticalStartDateTime", "RadiopharmaceuticalStartTime"].map(
    (keyword) => given.string(keyword),
  );
  const time = secondsOfTime(hour);
  if (hour !== undefined && time === undefined)
    return "RadiopharmaceuticalStartTime is not a time with hour and minute (PS3.5 6.2, TM)";
  if (stated !== undefined) {
    const moment = momentOf(stated);
    if (moment === undefined)
      return "RadiopharmaceuticalStartDateTime is not a date and time with hour and minute (PS3.5 6.2, DT)";
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
  const waited = ago < 0 ? ago + DAY_SECONDS : ago;
  return waited <= Math.min(LONGEST_WAIT.seconds, LONGEST_WAIT.halfLives * halfLife)
    ? waited
    : `RadiopharmaceuticalStartTime says no day, and is ${elapsed(DAY_SECONDS - waited)} after the scan began or ${elapsed(waited)} before it: one of the two times is wrong, or the day has to be known`;
}

/** How many seconds a time is from the nearest midnight. */
function fromMidnight(seconds: number): number {
  const after = Math.abs(seconds % DAY_SECONDS);
  return Math.min(after, DAY_SECONDS - after);
}

/**
 * A moment in seconds since 1970 on the clock that the dates and times of the file are of (PS3.3
 * C.12.1.1.8); or why it is not known. One that names no offset is of that clock (PS3.5 6.2).
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
  if (zone !== undefined) return "TimezoneOffsetFromUTC is not an offset";
  if (time !== undefined && fromMidnight(local - time) <= SAME_SECONDS) return local;
  return "RadiopharmaceuticalStartDateTime names an offset from UTC, and the file no TimezoneOffsetFromUTC for the scan's own times";
}

function elapsed(seconds: number): string {
  return seconds < DAY_SECONDS
    ? `${Number((seconds / 3600).toPrecision(3))} hours`
    : `${Number((seconds / DAY_SECONDS).toPrecision(3))} days`;
}

/**
 * The time that decay was corrected to (PS3.3 C.8.9.1.1.7): the start of the series, unless its
 * times are those of a later computation; then the scan's own start, where a scanner keeps it; or
 * else that by the frames' own times, or the earliest acquisition of the series.
 */
function scanStart(
  attributes: DataSetAttributes,
  times: readonly ImageTimes[],
  halfLife: number,
): { local: number; caveat?: Warning } | string {
  const series = joined(attributes, "SeriesDate", "SeriesTime");
  const [earliest] = rangeOf(times.map(({ acquired }) => acquired));
  const byFrames = startByFrames(times, halfLife);
  if (series !== undefined && series <= earliest) {
    const change = byFrames === undefined ? 1 : 2 ** ((series - byFrames) / halfLife);
    if (Math.abs(change - 1) <= OTHER_FACTOR) return { local: series };
    return caveated(
      series,
      "SeriesTime was taken as the time to which decay was corrected; by AcquisitionTime and FrameReferenceTime the scan " +
        `began at another, by which SUV would be ${Number((100 / change).toPrecision(3))} % of these.`,
    );
  }
  const kept = momentOf(attributes.privateValue(GE.creator, GE.group, GE.scanStart));
  if (kept !== undefined) {
    const local = onTheClockOf(attributes, kept, undefined);
    return typeof local === "string"
      ? "the scan's start that the scanner kept is not on the file's clock"
      : { local };
  }
  if (series === undefined || !Number.isFinite(earliest))
    return "SeriesDate and SeriesTime, or AcquisitionDate and AcquisitionTime, are absent or say no minute, so the time of decay correction is not known";
  const found = byFrames !== undefined && byFrames <= earliest + SAME_SECONDS;
  return caveated(
    found ? byFrames : earliest,
    "SeriesTime is later than AcquisitionTime, so that it is not the time to which decay was corrected; " +
      (found
        ? "the scan's start by AcquisitionTime, FrameReferenceTime and ActualFrameDuration"
        : `the earliest AcquisitionTime of ${times.length === 1 ? "the only image that is there" : `the ${times.length} images that are there`}`) +
      " was taken. SUV are too high or too low if the scan began at another time.",
  );
}

const caveated = (local: number, message: string) => ({
  local,
  caveat: { code: "suv_scan_start", message },
});

function joined(attributes: DataSetAttributes, date: string, time: string): number | undefined {
  const [day, seconds] = [
    secondsOfDate(attributes.string(date)),
    secondsOfTime(attributes.string(time)),
  ];
  return day === undefined || seconds === undefined ? undefined : day + seconds;
}

function positive(text: string | undefined): number | undefined {
  const value = decimal(text ?? "") ?? 0;
  return value > 0 ? value : undefined;
}
