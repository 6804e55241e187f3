/** Which report a new report replaces (PS3.3 C.17.2.1, Predecessor Documents Sequence). */
import { canonicalJson } from "../../base/canonical-json.js";
import { COMPREHENSIVE_3D_SR, type Predecessor } from "../dicom/sr.js";
import type { Receipt, ReceiptModel } from "./receipt.js";

/** Two results of one image by models of one name are the same if these are equal. */
export interface Origin {
  name: string;
  sha256: string;
  site_thresholds: Readonly<Record<string, number>>;
  file_sha256: string;
  radserve_version: string;
}

/**
 * The report of the earlier result, if another version of the model, other thresholds, another Radserve or a corrected
 * file made it. A repeat of the same analysis does not succeed itself: it inherits the predecessor that it had, so that
 * it writes the same bytes.
 * @param earlier an earlier result of the same image
 */
export function predecessorOf(earlier: Receipt | undefined, now: Origin): ReceiptModel["predecessor"] {
  const before = earlier?.models.find(({ name, status }) => name === now.name && status === "succeeded");
  if (earlier === undefined || before === undefined) return undefined;
  const same =
    before.sha256 === now.sha256 &&
    canonicalJson(before.site_thresholds) === canonicalJson(now.site_thresholds) &&
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

/** The predecessor as the builders of DICOM objects take it. */
export function asPredecessor(found: ReceiptModel["predecessor"]): Predecessor | undefined {
  if (found === undefined) return undefined;
  return {
    studyInstanceUid: found.study_instance_uid,
    seriesInstanceUid: found.series_instance_uid,
    sopClassUid: found.sop_class_uid,
    sopInstanceUid: found.sop_instance_uid,
  };
}
