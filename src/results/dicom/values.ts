/**
 * Values in the forms that the standard allows (PS3.5 section 6.2): which texts have them, and how
 * ours get them.
 */
import { FORMS } from "../../images/dicom/value-forms.js";

const LONGEST_DS = 16;

/**
 * A number as a Decimal String: the shortest form that is exact, else as many digits as 16
 * characters hold.
 */
export function decimalString(value: number): string {
  if (!Number.isFinite(value))
    throw new RangeError(`Expected a finite number for a DS, found ${value}`);
  const exact = String(value);
  if (exact.length <= LONGEST_DS) return exact;
  for (let digits = 15; digits > 0; digits--) {
    const shorter = String(Number(value.toPrecision(digits)));
    if (shorter.length <= LONGEST_DS) return shorter;
  }
  return value.toExponential(8);
}

/** Text for LO, SH and CS-like values, where a backslash would divide it. */
export function oneLine(text: string, longest: number): string {
  const plain = text.replace(/[\\\p{Cc}]+/gu, " ").trim();
  return Array.from(plain).slice(0, longest).join("").trim();
}

/** Text of several lines, for UT, ST and LT. */
export function freeText(text: string, longest = 10_000): string {
  return Array.from(text.replace(/[^\P{Cc}\n\r\t\f]/gu, " "))
    .slice(0, longest)
    .join("");
}

/** Control characters; texts of several lines may hold some of them (PS3.5 section 6.1.3). */
const CONTROL = /\p{Cc}/u;
const CONTROL_IN_LINES = /[^\P{Cc}\n\r\t\f]/u;
const LINES = new Set(["LT", "ST"]);

/** Enumerated values (PS3.3 C.7.1.1, C.7.2.2). */
const ENUMERATED: Readonly<Record<string, readonly string[]>> = {
  PatientSex: ["M", "F", "O"],
  TypeOfPatientID: ["TEXT", "RFID", "BARCODE"],
  PatientIdentityRemoved: ["YES", "NO"],
  PatientSexNeutered: ["ALTERED", "UNALTERED"],
  QualityControlSubject: ["YES", "NO"],
  SmokingStatus: ["YES", "NO", "UNKNOWN"],
};

export const isCodeString = (text: string): boolean => FORMS.get("CS")?.test(text) === true;

/**
 * U+FFFD stands for bytes that the source's character set does not have: what they were is not
 * known.
 */
export function isOfForm(keyword: string, vr: string, value: string): boolean {
  if (value === "") return true;
  if (value.includes("\ufffd") || (LINES.has(vr) ? CONTROL_IN_LINES : CONTROL).test(value))
    return false;
  if (vr === "PN") return isPersonName(value);
  return (FORMS.get(vr)?.test(value) ?? true) && (ENUMERATED[keyword]?.includes(value) ?? true);
}

/**
 * A person's name: up to three component groups of 64 characters, of up to five components each
 * (PS3.5 section 6.2.1).
 */
function isPersonName(value: string): boolean {
  const groups = value.split("=");
  const fits = (group: string) => Array.from(group).length <= 64 && group.split("^").length <= 5;
  return groups.length <= 3 && groups.every(fits);
}
