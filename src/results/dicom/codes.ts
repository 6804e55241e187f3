/** Coded concepts (PS3.3 section 8.8) as sequence items. */
import { errors, type RadserveError } from "../../base/errors.js";
import type { Code } from "../../manifest/texts.js";
import type { Dataset } from "./elements.js";
import { oneLine } from "./values.js";

/**
 * Code Value holds 16 characters; longer ones, and those that are URN or URL, have attributes of
 * their own (PS3.3 section 8.1).
 */
const LONGEST_CODE_VALUE = 16;
const URN = /^(?:urn|https?):/i;

export function codeItem({ value, scheme, meaning }: Code): Dataset {
  const keyword = URN.test(value)
    ? "URNCodeValue"
    : value.length > LONGEST_CODE_VALUE
      ? "LongCodeValue"
      : "CodeValue";
  return { [keyword]: value, CodingSchemeDesignator: scheme, CodeMeaning: oneLine(meaning, 64) };
}

/** The type of a segment, with the side of what it is (PS3.3 tables C.8.20-4, C.8-44). */
export const propertyType = (code: Code, side: Code | undefined): Dataset => ({
  ...codeItem(code),
  SegmentedPropertyTypeModifierCodeSequence: side && [codeItem(side)],
});

/**
 * The concept of a label or of a value. Models without codes are refused when they are loaded; this
 * is the last check that nothing is written without one.
 * @throws RadserveError output_invalid
 */
export function codeOf(named: { label: string; code?: Code | undefined }): Code {
  if (named.code === undefined) throw uncoded(named);
  return named.code;
}

export function uncoded({ label }: { label: string }): RadserveError {
  return errors.output_invalid(
    `Expected a coded concept for "${label}"; its manifest gives none, and no DICOM object can tell it. Add the code to the manifest.`,
  );
}
