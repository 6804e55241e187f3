/**
 * The forms of text values (PS3.5 section 6.2): which texts have them, and what those mean.
 * Everything that is read as a number or a time goes through here: what JavaScript takes for a
 * number besides (0x10, 1_000, blanks inside) is none.
 */

/** What fills values up to an even length (PS3.5 section 6.2): a blank, and NUL for a UID. */
export const PADDING = "\0 ";

/** Forms by VR; values of other VRs are taken as they are. */
export const FORMS: ReadonlyMap<string, RegExp> = new Map([
  ["AS", /^\d{3}[DWMY]$/],
  ["CS", /^[A-Z0-9_ ]{1,16}$/],
  ["DA", /^\d{4}(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d)|(?:0[13-9]|1[0-2])30|(?:0[13578]|1[02])31)$/],
  ["DS", /^(?=.{1,16}$)[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$/],
  ["DT", /^\d{4,14}(?:\.\d{1,6})?(?:[-+]\d{4})?$/],
  ["IS", /^[-+]?\d{1,12}$/],
  ["LO", /^[^\\]{0,64}$/su],
  ["LT", /^.{0,10240}$/su],
  ["SH", /^[^\\]{0,16}$/su],
  ["ST", /^.{0,1024}$/su],
  ["TM", /^(?:[01]\d|2[0-3])(?:[0-5]\d(?:(?:[0-5]\d|60)(?:\.\d{1,6})?)?)?$/],
]);

/**
 * What is read as a UID: digits and dots, as other toolkits do. Components that begin with 0 or are
 * empty, which the standard does not have (PS3.5 section 9.1), come from modalities and
 * de-identifications. Results repeat the source's own, because they can refer to it by no other
 * name.
 */
export const isUid = (text: string | undefined): text is string =>
  text !== undefined && /^[0-9][0-9.]{0,63}$/.test(text);

const DECIMAL = /^[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$/;

/**
 * The number that a Decimal String or an Integer String is. More than its 16 or 12 characters are
 * read too: they leave no doubt about the number.
 * @returns undefined if it is none, or none that a double can hold
 */
export function decimal(text: string): number | undefined {
  const value = DECIMAL.test(text) ? Number(text) : Number.NaN;
  return Number.isFinite(value) ? value : undefined;
}

/** A moment on the clock of a place. */
export interface Moment {
  /** Seconds since the beginning of 1970 on that clock. */
  local: number;
  /** How many minutes that clock is ahead of UTC; undefined if that is not said. */
  offset: number | undefined;
}

/** YYYYMMDD, and YYYY.MM.DD as before DICOM. */
const DATE = /^(\d{4})(\.?)(\d\d)\2(\d\d)$/;
/** HHMM[SS[.F]], and HH:MM[:SS[.F]] as before DICOM. */
const TIME = /^([01]\d|2[0-3])(:?)([0-5]\d)(?:\2((?:[0-5]\d|60)(?:\.\d{1,6})?))?$/;
/** The date, the time and the offset of a DT. */
const DATE_TIME = /^(\d{8})([\d.]{4,13})([-+]\d{4})?$/;
const OFFSET = /^([-+])(0\d|1[0-4])([0-5]\d)$/;

/**
 * Seconds from the beginning of 1970 to that of the day of a DA; undefined if it is none, or names
 * a day that there is not.
 */
export function secondsOfDate(text: string | undefined): number | undefined {
  const [, year, , month, day] = DATE.exec(text ?? "") ?? [];
  if (year === undefined) return undefined;
  const at = new Date(0);
  at.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  return at.getUTCMonth() === Number(month) - 1 && at.getUTCDate() === Number(day)
    ? at.getTime() / 1000
    : undefined;
}

/**
 * Seconds from midnight to a TM, a leap second among them; undefined if it is none, or does not say
 * the minute.
 */
export function secondsOfTime(text: string | undefined): number | undefined {
  const [, hours, , minutes, seconds = "0"] = TIME.exec(text ?? "") ?? [];
  if (hours === undefined) return undefined;
  return Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds);
}

/** Minutes ahead of UTC that `&ZZXX` says, from -1200 to +1400; undefined if it is none. */
export function minutesOfOffset(text: string | undefined): number | undefined {
  const [, sign, hours, minutes] = OFFSET.exec(text ?? "") ?? [];
  if (sign === undefined || text === "-0000") return undefined;
  const offset = (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
  return offset >= -12 * 60 && offset <= 14 * 60 ? offset : undefined;
}

/** The moment that a DT says; undefined if it is none, or does not say the minute. */
export function momentOf(text: string | undefined): Moment | undefined {
  const [, date, time, zone] = DATE_TIME.exec(text ?? "") ?? [];
  const [day, seconds] = [secondsOfDate(date), secondsOfTime(time)];
  const offset = minutesOfOffset(zone);
  if (day === undefined || seconds === undefined || (zone !== undefined && offset === undefined))
    return undefined;
  return { local: day + seconds, offset };
}
