/** What was done to get the source: the report's "Procedure reported" is the imaging procedure, not the analysis. */
import type { Code } from "../../manifest/manifest.js";
import type { Subject } from "./common.js";
import { sct } from "./content.js";

const loinc = (value: string, meaning: string): Code => ({ value, scheme: "LN", meaning });

/** PS3.16 CID 100, which TID 1500 names; the study's own codes are in Procedure Code Sequence, as the source has them. */
const BY_MODALITY: Readonly<Record<string, Code>> = {
  CT: loinc("25045-6", "CT unspecified body region"),
  MR: loinc("25056-3", "MRI unspecified body region"),
  NM: loinc("49118-3", "NM unspecified body region"),
  PT: loinc("44136-0", "PET unspecified body region"),
};
const IMAGING_PROCEDURE = sct("363679005", "Imaging procedure");

export function procedureReported({ image }: Subject): Code {
  return BY_MODALITY[image.source.modality ?? ""] ?? IMAGING_PROCEDURE;
}
