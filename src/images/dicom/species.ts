/** Whether the patient is an animal whose sides are not a human's (PS3.3 C.7.1.1, 10.17). */
import type { Attributes } from "../image.js";

/** Homo sapiens in SNOMED CT and SNOMED-RT (PS3.16 CID 7454). */
const HUMAN_CODES = new Set(["337915000", "L-85B00"]);
const HUMAN = /human|homo/i;

/**
 * By AnatomicalOrientationType, or by a species other than human where that says nothing. The
 * front of such a patient is its head's side, and "right hand" and "anterior" mean nothing there.
 */
export function isQuadruped(attributes: Attributes): boolean {
  const type = attributes.string("AnatomicalOrientationType");
  if (type !== undefined) return type === "QUADRUPED";
  const codes = attributes.sequence("PatientSpeciesCodeSequence") ?? [];
  const code = codes[0]?.string("CodeValue");
  if (code !== undefined) return !HUMAN_CODES.has(code);
  const species = attributes.string("PatientSpeciesDescription");
  return species !== undefined && !HUMAN.test(species);
}
