/** Numbers, times and codes as people read them. */

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Four digits of a measured value, and all that stand before its point. */
const digitsOf = (value: number): number =>
  Math.min(21, Math.max(4, Math.abs(Math.trunc(value)).toFixed().length));

/** A measured value to four digits, or whole, without zeros at the end. */
export const figure = (value: number): string => String(Number(value.toPrecision(digitsOf(value))));

/**
 * The same with grouped digits, for a value that stands alone: coordinates and windows have commas
 * between them.
 */
export const grouped = (value: number): string =>
  value.toLocaleString("en", { maximumSignificantDigits: digitsOf(value) });

export const count = (n: number): string => whole.format(n);

export const counted = (n: number, one: string): string =>
  `${count(n)} ${one}${n === 1 ? "" : "s"}`;

export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const at = n < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(n) / 10));
  return `${number.format(n / 1024 ** at)} ${units[at] ?? ""}`;
}

export function milliseconds(ms: number): string {
  if (ms < 10) return `${number.format(ms)} ms`;
  return ms < 1000 ? `${whole.format(ms)} ms` : `${number.format(ms / 1000)} s`;
}

/** For example 2 h 05 min. */
export function span(seconds: number): string {
  if (seconds < 60) return `${whole.format(Math.max(0, seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const since = (iso: string, now = Date.now()): string =>
  span((now - Date.parse(iso)) / 1000);

const clock = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "short",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
});
export const moment = (iso: string): string => clock.format(new Date(iso));

/** Where the clock of `moment` stands. */
export const timeZone = (): string => new Intl.DateTimeFormat().resolvedOptions().timeZone;

/** A date of DICOM (PS3.5 6.2, DA) as 2026-11-20; undefined of what is none. */
export const dayOf = (date: string | null | undefined): string | undefined =>
  /^(\d{4})(\d{2})(\d{2})$/
    .exec(date ?? "")
    ?.slice(1)
    .join("-");

/** What base64 stands for. */
export const bytesOf = (base64: string) =>
  Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

/** A code such as truncated_image as words. */
export const words = (code: string): string => {
  const spaced = code.replaceAll("_", " ").replace(/^sop class/, "SOP class");
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
};

/** What stands between the slashes of a path, of either kind; those at its end do not count. */
function partsOf(path: string): string[] {
  const parts = path.split(/[/\\]/);
  while (parts.length > 1 && parts.at(-1) === "") parts.pop();
  return parts;
}

/** The last part of a path, of either kind. */
export const baseName = (path: string): string => partsOf(path).at(-1) ?? "";

/** The last two folders above a path, of either kind: enough to tell alike names apart. */
export function folderName(path: string): string {
  const above = partsOf(path).slice(0, -1);
  return above.length <= 3 ? above.join("/") || "/" : `…/${above.slice(-2).join("/")}`;
}

export const percent = (part: number, all: number): string =>
  all === 0 ? "0 %" : `${number.format((100 * part) / all)} %`;
