/** Copies of slices in their folder: "IM0002 (1)" beside "IM0002". */
import { setImmediate } from "node:timers/promises";
import type { Warning } from "../image.js";
import { differingPersons } from "./identity.js";
import type { SeriesFile } from "./series.js";
import { entriesOf } from "./unreadable.js";

/** Files of one SOPInstanceUID in one series. */
interface Known {
  first: SeriesFile;
  /** SHA-256 of all that are known. */
  hashes: Set<string>;
  /** They refuse their series, so that what else is among them decides nothing. */
  differ: boolean;
}

/**
 * The files without those that another says already: with the same bytes, or with the same
 * SOPInstanceUID in the same series and the same pixels at the same place. Files of one
 * SOPInstanceUID that differ stay, and refuse their series.
 * @param check throws what ends the reading; asked before each comparison
 */
export async function withoutCopies(
  files: readonly SeriesFile[],
  check: () => void = () => undefined,
): Promise<{ files: SeriesFile[]; caveats: Warning[] }> {
  const known = new Map<string, Known>();
  const copies = new Set<SeriesFile>();
  // "002.dcm" stays, and not "002 (1).dcm"
  const shortest = [...files].sort((a, b) => a.place.name.length - b.place.name.length);
  for (const file of shortest) {
    const { sopInstanceUid, seriesInstanceUid, fileSha256 } = file.source;
    const key =
      sopInstanceUid === undefined ? fileSha256 : `${seriesInstanceUid} ${sopInstanceUid}`;
    const found = known.get(key);
    if (found === undefined) {
      known.set(key, { first: file, hashes: new Set([fileSha256]), differ: false });
      continue;
    }
    if (found.hashes.has(fileSha256)) {
      copies.add(file);
      continue;
    }
    found.hashes.add(fileSha256);
    if (found.differ) continue;
    await setImmediate();
    check();
    if (await isSame(found.first, file)) copies.add(file);
    else found.differ = true;
  }
  if (copies.size === 0) return { files: [...files], caveats: [] };
  const places = [...copies].map(({ place }) => place).sort((a, b) => a.entry - b.entry);
  const message =
    `Left out of the series: copies of slices, with the same SOPInstanceUID, place and pixels as another file ` +
    `(${places.length}; ${entriesOf(places)} of the folder, by name).`;
  return {
    files: files.filter((file) => !copies.has(file)),
    caveats: [{ code: "left_out_copy", message }],
  };
}

async function isSame(a: SeriesFile, b: SeriesFile): Promise<boolean> {
  if (a.frames.length !== b.frames.length) return false;
  const meaning = ({ format, frames }: SeriesFile) => JSON.stringify([format, frames]);
  if (meaning(a) !== meaning(b)) return false;
  if (differingPersons([a.attributes, b.attributes], []).length > 0) return false;
  const [one, other] = [await a.open(), await b.open()];
  for (let frame = 0; frame < a.frames.length; frame++)
    if (Buffer.compare(await one.frame(frame), await other.frame(frame)) !== 0) return false;
  return true;
}
