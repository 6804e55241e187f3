/** What was done to get the source: the report's "Procedure reported" is the imaging procedure, not the analysis. */
import type { Attributes } from "../../image.js";
import type { Code } from "../../manifest.js";
import { oneLine, type Subject } from "./common.js";
import { sct } from "./content.js";

const BY_MODALITY: Readonly<Record<string, Code>> = {
  CT: sct("77477000", "Computed tomography"),
  MR: sct("113091000", "Magnetic resonance imaging"),
  US: sct("16310003", "Ultrasonography"),
  CR: sct("168537006", "Plain radiography"),
  DX: sct("168537006", "Plain radiography"),
  MG: sct("71651007", "Mammography"),
  NM: sct("373205008", "Nuclear medicine imaging procedure"),
  PT: sct("82918005", "Positron emission tomography"),
  XA: sct("77343006", "Angiography"),
  RF: sct("44491008", "Fluoroscopy"),
};
const IMAGING = sct("363679005", "Imaging");

/** As the source codes it, else by modality. */
export function procedureReported({ attributes, image }: Subject): Code {
  for (const keyword of ["ProcedureCodeSequence", "RequestedProcedureCodeSequence"])
    for (const item of attributes.sequence(keyword) ?? []) {
      const code = wholeCode(item);
      if (code !== undefined) return code;
    }
  return BY_MODALITY[image.source.modality ?? ""] ?? IMAGING;
}

function wholeCode(item: Attributes): Code | undefined {
  const [value, scheme, meaning] = ["CodeValue", "CodingSchemeDesignator", "CodeMeaning"].map((keyword) =>
    item.string(keyword),
  );
  if (value === undefined || scheme === undefined || meaning === undefined) return undefined;
  if (value.length > 16 || scheme.length > 16) return undefined;
  return { value, scheme, meaning: oneLine(meaning, 64) };
}
