/** What Radserve itself leaves in folders beside images and results. */
import { isMarkName } from "./folder-mark.js";
import { LIST_FOLDER, nameOfHelper, RECEPTION_NOTE } from "./helper-names.js";
import { isReportName } from "./report-names.js";

/**
 * Locks and staging folders of results, the list of a root, the marks and reports of jobs, and the
 * gateway's note beside images.
 */
export function isHelper(name: string): boolean {
  return (
    isMarkName(name) ||
    isReportName(name) ||
    nameOfHelper(name) !== undefined ||
    name === RECEPTION_NOTE ||
    name === LIST_FOLDER
  );
}
