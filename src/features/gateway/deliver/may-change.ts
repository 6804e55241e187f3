/** Which attributes a destination may change, beside those of the patient and the study. */
import { z } from "zod";
import { tagOf } from "../../../images/dicom/dictionary.js";

/**
 * What says which object it is, what was found, and what its pixels mean: with other values it is
 * no proof of anything.
 */
const NEVER = new Set([
  "SOPClassUID",
  "SOPInstanceUID",
  "StudyInstanceUID",
  "SeriesInstanceUID",
  "FrameOfReferenceUID",
  "ContentSequence",
  "SegmentSequence",
  "SharedFunctionalGroupsSequence",
  "PerFrameFunctionalGroupsSequence",
  "ReferencedSeriesSequence",
  "CurrentRequestedProcedureEvidenceSequence",
  "StructureSetROISequence",
  "ROIContourSequence",
  "RTROIObservationsSequence",
  "CompletionFlag",
  "VerificationFlag",
]);
/** Groups of the description of pixels, and of pixels. */
const NEVER_GROUPS = [0x0028, 0x7fe0];

const keyword = z.string().superRefine((name, context) => {
  const tag = tagOf(name);
  const fault =
    tag === undefined
      ? "Expected the keyword of a DICOM attribute, for example SeriesDescription"
      : NEVER.has(name) || NEVER_GROUPS.includes(tag >>> 16)
        ? "Expected an attribute that says nothing of the object's identity, findings or pixels"
        : undefined;
  if (fault !== undefined) context.addIssue({ code: "custom", message: `${fault}; found ${name}` });
});

export const mayChange = z.array(keyword).min(1);
