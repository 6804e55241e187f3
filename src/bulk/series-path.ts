/** What an item is called that is one of several series in a folder, or the case that the folder is. */

/** No path that a scan makes has it. */
const MARK = "//";
/** No UID has letters. */
const CASE = "case";

/** @param folder relative to the folder of the job */
export const seriesPath = (folder: string, uid: string): string => `${folder}${MARK}${uid}`;
export const casePath = (folder: string): string => `${folder}${MARK}${CASE}`;

/** The folder or file, and what of it the item is: a series by its SeriesInstanceUID, a case, or all of it. */
export function fromSeriesPath(item: string): {
  within: string;
  series: string | undefined;
  isCase: boolean;
} {
  const [within = "", part] = item.split(MARK);
  const isCase = part === CASE;
  return { within, series: isCase ? undefined : part, isCase };
}
