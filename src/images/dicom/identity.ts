/** Whether files are of one person, by everything in them that says so (PS3.3 C.7.1.1). */
import { warn, type Attributes, type Warning } from "../image.js";

/** Attributes that differ from one person to the next. */
const OF_A_PERSON = [
  "PatientID",
  "IssuerOfPatientID",
  "PatientName",
  "PatientBirthDate",
  "PatientSex",
];
/** Attributes that may differ where images of one person were put together. */
const OF_AN_ORDER = ["AccessionNumber"];

/**
 * "DOE^JOHN" and "Doe^John^^" are one name: of its groups the first, without case and empty
 * components.
 */
function asName(text: string): string {
  const [group = ""] = text.normalize().toLowerCase().split("=");
  return group.replace(/[\s^]+/g, "^").replace(/^\^|\^$/g, "");
}

/**
 * The attributes that say that data sets are of several persons: two of them hold different values,
 * of which those are compared that are there.
 * @param warnings gets what differs without saying so: a name that is written in two ways, one that
 *   some data sets lack, and the order
 */
export function differingPersons(sets: readonly Attributes[], warnings: Warning[]): string[] {
  const valuesOf = (keyword: string, as = (text: string) => text) =>
    new Set(sets.map((set) => as(set.comparable(keyword))));
  const several = (keyword: string, values: ReadonlySet<string>) =>
    // Images without an identifier are not those with one
    values.size - Number(keyword !== "PatientID" && values.has("")) > 1;
  for (const keyword of [...OF_A_PERSON, ...OF_AN_ORDER])
    if (valuesOf(keyword).size > 1)
      warn(
        warnings,
        "identity_differs",
        `${keyword} is not the same in all images; results carry that of the first.`,
      );
  return OF_A_PERSON.filter((keyword) =>
    several(keyword, valuesOf(keyword, keyword === "PatientName" ? asName : undefined)),
  );
}
