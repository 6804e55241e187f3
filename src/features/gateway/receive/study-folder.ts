/**
 * The folder that a job of a whole study reads: a further name of each of its objects, and the note
 * of how they came.
 */
import { link, lstat, rm } from "node:fs/promises";
import path from "node:path";
import { ifMissing, sha256, syncFolder } from "../../../files/durable-files.js";
import { fileKey } from "../../../files/same-file.js";

/** Another name of an object in the folder of a study in which two series have its UID. */
export const nameBeside = (name: string, series: string): string =>
  `${name.slice(0, -".dcm".length)}.${sha256(series).slice(0, 16)}.dcm`;

/** @param all the files of each series, by their real paths */
export async function linkStudy(
  folder: string,
  all: readonly { series: string; files: readonly string[] }[],
): Promise<void> {
  const taken = new Set<string>();
  for (const { series, files } of all)
    for (const file of files) await linkInto(folder, file, series, taken);
  await syncFolder(folder);
}

/**
 * A further name in the folder of a study. What has the name may be the same object; a damaged one,
 * in whose place this one came; or the object of another series with the same UID.
 * @param taken keys of the objects that have a name already
 */
async function linkInto(
  folder: string,
  file: string,
  series: string,
  taken: Set<string>,
): Promise<void> {
  const key = fileKey(await lstat(file, { bigint: true }));
  const name = path.basename(file);
  for (const one of [name, nameBeside(name, series)]) {
    const there = path.join(folder, one);
    const found = await lstat(there, { bigint: true }).catch(ifMissing(undefined));
    const before = found === undefined ? undefined : fileKey(found);
    if (before !== undefined && before !== key && taken.has(before)) continue;
    if (before !== undefined && before !== key) await rm(there, { force: true });
    if (before !== key) await link(file, there);
    taken.add(key);
    return;
  }
}
