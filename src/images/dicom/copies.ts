/** Copies of slices in their folder: "IM0002 (1)" beside "IM0002". */
import type { Warning } from "../image.js";
import { differingPersons } from "./identity.js";
import type { SeriesFile } from "./series.js";
import { entriesOf } from "./unreadable.js";

/**
 * The files without those that another says already: with the same bytes, or with the same
 * SOPInstanceUID in the same series and the same pixels at the same place. Files of one
 * SOPInstanceUID that differ stay, and refuse their series.
 */
export async function withoutCopies(
  files: readonly SeriesFile[],
): Promise<{ files: SeriesFile[]; caveats: Warning[] }> {
  const known = new Map<string, SeriesFile[]>();
  const copies: SeriesFile[] = [];
  // "002.dcm" stays, and not "002 (1).dcm"
  const shortest = [...files].sort((a, b) => a.place.name.length - b.place.name.length);
  for (const file of shortest) {
    const { sopInstanceUid, seriesInstanceUid, fileSha256 } = file.source;
    const key =
      sopInstanceUid === undefined ? fileSha256 : `${seriesInstanceUid} ${sopInstanceUid}`;
    const others = known.get(key) ?? [];
    if (await isAmong(file, others)) copies.push(file);
    else known.set(key, [...others, file]);
  }
  if (copies.length === 0) return { files: [...files], caveats: [] };
  const places = copies.map(({ place }) => place).sort((a, b) => a.entry - b.entry);
  const message =
    `Left out of the series: copies of slices, with the same SOPInstanceUID, place and pixels as another file ` +
    `(${places.length}; ${entriesOf(places)} of the folder, by name).`;
  return {
    files: files.filter((file) => !copies.includes(file)),
    caveats: [{ code: "left_out_copy", message }],
  };
}

async function isAmong(file: SeriesFile, others: readonly SeriesFile[]): Promise<boolean> {
  for (const other of others) if (await isSame(file, other)) return true;
  return false;
}

async function isSame(a: SeriesFile, b: SeriesFile): Promise<boolean> {
  if (a.source.fileSha256 === b.source.fileSha256) return true;
  const meaning = ({ format, frames }: SeriesFile) => JSON.stringify([format, frames]);
  if (meaning(a) !== meaning(b)) return false;
  if (differingPersons([a.attributes, b.attributes], []).length > 0) return false;
  const [one, other] = [await a.open(), await b.open()];
  for (let frame = 0; frame < a.frames.length; frame++)
    if (Buffer.compare(await one.frame(frame), await other.frame(frame)) !== 0) return false;
  return true;
}
