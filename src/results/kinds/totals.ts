/**
 * What is said of a label over all slices of a group: whether it is in any of them, and in how
 * many.
 */
import type { Label } from "../../manifest/outputs/fields.js";
import { own } from "../../manifest/texts.js";
import type { Finding } from "../receipt/receipt.js";
import { labelFields, type Interpreted } from "./finding.js";
import { NO_UNITS } from "./measurements.js";

/** The measurement that says in how many slices a label is. */
export const SLICES = "Slices";
const IN_SLICES = own("slices", "Number of slices with the finding");

/** @param volumeOf of a label, from its findings in the slices */
export function totals(
  labels: readonly Label[],
  findings: readonly Finding[],
  volumeOf?: (mine: readonly Finding[]) => Finding["volume"],
): Pick<Interpreted, "findings" | "measurements"> {
  const whole = labels.map((label) => {
    const mine = findings.filter((one) => one.label === label.label);
    const present = mine.filter((one) => one.present);
    const threshold = mine.find((one) => one.threshold !== undefined)?.threshold;
    const volume = volumeOf?.(mine);
    const finding: Finding = {
      ...labelFields(label, { spacing: undefined }),
      ...(threshold === undefined ? {} : { threshold }),
      present: present.length > 0,
      over_frames: "total",
      ...(volume === undefined ? {} : { volume }),
    };
    const value = new Set(present.map(({ frame }) => frame)).size;
    return {
      finding,
      slices: { name: SLICES, code: IN_SLICES, label: label.label, value, unit: NO_UNITS },
    };
  });
  return {
    findings: whole.map(({ finding }) => finding),
    measurements: whole.map(({ slices }) => slices),
  };
}
