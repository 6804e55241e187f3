/** What an item is called that is one of several series in a folder. */

/** No path that a scan makes has it. */
const MARK = "//";

/** @param folder relative to the folder of the job */
export const seriesPath = (folder: string, uid: string): string => `${folder}${MARK}${uid}`;

/** The folder or file, and the SeriesInstanceUID of an item that is a series of it. */
export function fromSeriesPath(item: string): { within: string; series: string | undefined } {
  const [within = "", series] = item.split(MARK);
  return { within, series };
}
