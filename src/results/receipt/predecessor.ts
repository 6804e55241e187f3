/** Which report a new one takes the place of (PS3.3 C.17.2.1, Predecessor Documents Sequence). */
import { COMPREHENSIVE_3D_SR, type Predecessor } from "../dicom/sr.js";
import type { Receipt, ReceiptModel } from "./receipt.js";

/** What makes two analyses of one image by models of one name the same. */
export interface Analysis {
  name: string;
  sha256: string;
  site_thresholds: Readonly<Record<string, number>>;
  file_sha256: string;
  radserve_version: string;
}

/**
 * The report of the result that lies there and will be replaced, where another version of the model, other thresholds,
 * another Radserve or a corrected file made it. The same analysis again is no successor of itself: it inherits the
 * predecessor that it had, so that a repeat writes the same bytes.
 * @param earlier an earlier result of the same image
 */
export function predecessorOf(earlier: Receipt | undefined, now: Analysis): ReceiptModel["predecessor"] {
  const before = earlier?.models.find(({ name, status }) => name === now.name && status === "succeeded");
  if (earlier === undefined || before === undefined) return undefined;
  const same =
    before.sha256 === now.sha256 &&
    thresholdsText(before.site_thresholds) === thresholdsText(now.site_thresholds) &&
    earlier.source.file_sha256 === now.file_sha256 &&
    earlier.radserve_version === now.radserve_version;
  if (same) return before.predecessor;
  const { study_instance_uid } = earlier.source;
  const report = before.outputs.find(({ sop_class_uid }) => sop_class_uid === COMPREHENSIVE_3D_SR);
  const { sop_class_uid, sop_instance_uid, series_instance_uid } = report ?? {};
  if (
    study_instance_uid === undefined ||
    series_instance_uid === undefined ||
    sop_class_uid === undefined ||
    sop_instance_uid === undefined
  )
    return before.predecessor;
  return { study_instance_uid, series_instance_uid, sop_class_uid, sop_instance_uid };
}

/** The same in the words of the builders. */
export function asPredecessor(found: ReceiptModel["predecessor"]): Predecessor | undefined {
  if (found === undefined) return undefined;
  return {
    studyInstanceUid: found.study_instance_uid,
    seriesInstanceUid: found.series_instance_uid,
    sopClassUid: found.sop_class_uid,
    sopInstanceUid: found.sop_instance_uid,
  };
}

function thresholdsText(thresholds: Readonly<Record<string, number>>): string {
  return JSON.stringify(Object.entries(thresholds).sort(([a], [b]) => (a < b ? -1 : 1)));
}
