/**
 * Files of a folder that may be slices and cannot be read. A volume without them would end before
 * the body that was scanned does, so that they refuse the series that they belong to: by what their
 * elements say; by their names, or where nothing else is known of them by their sizes, among those
 * of its slices; or because no other series lies there.
 */
import type { RadserveError } from "../../base/errors.js";
import { groupsBy } from "../../base/groups.js";
import type { Warning } from "../image.js";
import { seriesInvalid } from "./series-fault.js";

/** Which file of its folder it is. */
export interface FolderPlace {
  name: string;
  /** Its number by name, from 1, and of how many: names may be those of patients. */
  entry: number;
  of: number;
  bytes: number;
}

const WHAT = {
  no_pixels: "without pixel data",
  damaged: "damaged",
  empty: "empty",
  blank: "filled with one value",
  packed: "packed (gzip, ZIP, or another)",
  other_format: "no DICOM",
  link: "a link or a device",
} as const;

/** What is wrong with a file, before it is known whether it belongs to a series. */
export interface Unread {
  unread: keyof typeof WHAT;
  /** It says that it is DICOM. */
  isDicom: boolean;
  seriesInstanceUid?: string | undefined;
  /** What reading it threw. */
  error?: RadserveError;
}

export interface Unreadable extends Unread, FolderPlace {
  /** SeriesInstanceUIDs of the series that it may be of; undefined if it may be of any. */
  series: readonly string[] | undefined;
}

interface PlacedSlice {
  place: FolderPlace;
  source: { seriesInstanceUid: string | undefined };
}

/**
 * The files that may be slices of one of the series, and those that belong to none: other things
 * that lie beside them.
 */
export function attributed<T extends Unread & FolderPlace>(
  found: readonly T[],
  slices: readonly PlacedSlice[],
): { unreadable: (T & Unreadable)[]; beside: T[] } {
  const series = [...groupsBy(slices, ({ source }) => source.seriesInstanceUid ?? "")].map(
    ([uid, own]) => [uid, own.map(({ place }) => place)] as const,
  );
  const unreadable: (T & Unreadable)[] = [];
  const beside: T[] = [];
  for (const one of found) {
    const following = series.filter(([, places]) => follows(one, places));
    const uids = following.map(([uid]) => uid);
    if (one.seriesInstanceUid !== undefined)
      unreadable.push({ ...one, series: [one.seriesInstanceUid] });
    else if (uids.length > 0) unreadable.push({ ...one, series: uids });
    else if (one.isDicom || isCalledDicom(one, slices))
      unreadable.push({ ...one, series: undefined });
    else beside.push(one);
  }
  return { unreadable, beside };
}

/** Whether its ending says that it is DICOM, whatever the slices are called. */
function isCalledDicom({ name, unread }: Unread & FolderPlace, slices: readonly PlacedSlice[]) {
  const names = slices.map(({ place }) => place.name);
  return unread !== "link" && IMAGE_ENDING.test(bareName(name, names) ?? "");
}

/** How much larger or smaller a file may be than all slices and still be as large as they are. */
const SIZE_TOLERANCE = 0.1;

function follows(one: Unread & FolderPlace, places: readonly FolderPlace[]): boolean {
  const names = places.map(({ name }) => name);
  if (followsNames(one.name, names, one.unread !== "link")) return true;
  if (one.unread !== "blank" || one.name.startsWith(".")) return false;
  const sizes = places.map(({ bytes }) => bytes);
  const least = sizes.reduce((a, b) => Math.min(a, b), Infinity) * (1 - SIZE_TOLERANCE);
  const most = sizes.reduce((a, b) => Math.max(a, b), 0) * (1 + SIZE_TOLERANCE);
  return one.bytes >= least && one.bytes <= most;
}

/** Endings that packing adds to a name, a copy kept aside, or a transfer that has not ended. */
const ADDED =
  /(?:\.(?:gz|zip|bz2|xz|zst|7z|part|partial|filepart|crdownload|download|tmp|bak|old|orig)|~)$/i;
/** Endings that some writers of slices leave out. */
const IMAGE_ENDING = /\.(?:dcm|dicom|ima)$/i;

/**
 * A name without what packing adds. Undefined for helpers of systems, which begin like the file
 * that they are of ("._IM0001"), and for what is packed beside the slice itself.
 */
function bareName(name: string, others: readonly string[]): string | undefined {
  const bare = name.replace(ADDED, "");
  const isBesideItself = bare !== name && others.includes(bare);
  return name.startsWith(".") || isBesideItself ? undefined : bare;
}

/**
 * Whether a name is one of a row of names: equal but for its digits or for one character, all of
 * hexadecimal digits, or with the same ending as one of them.
 * @param byEnding whether the ending is enough
 */
export function followsNames(name: string, others: readonly string[], byEnding = true): boolean {
  const bare = bareName(name, others);
  if (bare === undefined) return false;
  const stem = bare.replace(IMAGE_ENDING, "");
  const stems = others.map((other) => other.replace(IMAGE_ENDING, ""));
  const isNumbered = /\d/.test(stem) && !stems.includes(stem);
  return others.some(
    (other, i) =>
      (isNumbered && skeleton(stem) === skeleton(stems[i] ?? other)) ||
      isOneApart(bare, other) ||
      (byEnding && ending(bare) !== "" && ending(bare) === ending(other)),
  );
}

const ending = (name: string): string =>
  /.\.([a-z][a-z0-9]{0,7})$/i.exec(name)?.[1]?.toLowerCase() ?? "";

/** A name without its numbers; those of UIDs are of several lengths. */
const skeleton = (name: string): string => name.toLowerCase().replace(/\d+(?:\.\d+)*/g, "#");

function isOneApart(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  if (a.length >= 4 && /^[0-9a-f-]+$/i.test(a) && /^[0-9a-f-]+$/i.test(b)) return true;
  let differing = 0;
  for (let i = 0; i < a.length && differing < 2; i++) if (a[i] !== b[i]) differing += 1;
  return differing < 2;
}

/** Whether the file may be a slice of the series. */
export const mayBeOf = ({ series }: Unreadable, uid: string): boolean =>
  series?.includes(uid) !== false;

/** A caveat about files of other series, if there are any. */
export function unreadableBeside(others: readonly Unreadable[]): Warning[] {
  if (others.length === 0) return [];
  const message = `Left out of the series: files that cannot be read and are of other series of the folder (${others.length}).`;
  return [{ code: "left_out_unreadable", message }];
}

/** Entries of the folder that a message lists. */
const LISTED = 10;

/** "entry 3", "entries 1, 2 and 9", or the first of them and how many more. */
export function entriesOf(places: readonly FolderPlace[]): string {
  const numbers = places.slice(0, LISTED).map(({ entry }) => entry);
  const more = places.length - numbers.length;
  const last = more > 0 ? `${more} more` : numbers.pop();
  return numbers.length === 0 ? `entry ${last}` : `entries ${numbers.join(", ")} and ${last}`;
}

/**
 * The refusal of a series some of whose files cannot be read: what reading one threw, or which
 * files they are. Names of files may be those of patients, so that files have numbers.
 */
export function unreadableFault(files: readonly Unreadable[]): RadserveError | undefined {
  const sorted = [...files].sort((a, b) => a.entry - b.entry);
  const [first] = sorted;
  if (first === undefined) return undefined;
  const thrown = sorted.find(({ error }) => error !== undefined)?.error;
  if (thrown !== undefined) return thrown;
  const kinds = [...new Set(sorted.map(({ unread }) => unread))].map((kind) => {
    const of = sorted.filter(({ unread }) => unread === kind);
    return { kind, count: of.length, text: `${WHAT[kind]} (${entriesOf(of)})` };
  });
  const isPacked = sorted.some(({ unread }) => unread === "packed");
  return seriesInvalid(
    "unreadable_slices",
    `Expected every slice of the series to be readable, found ${files.length} of its files that are not: ` +
      `${kinds.map(({ count, text }) => `${count} ${text}`).join(", ")}, of the ${first.of} entries of the folder by name. ` +
      `Without them the volume would not be whole. ${isPacked ? "Unpack the packed ones where they lie (`gunzip`, `unzip`), send others again from their source" : "Send them again from their source"}, or take what is not a slice out of the folder.`,
    {
      files: files.length,
      entries: sorted.slice(0, LISTED).map(({ entry }) => entry),
      found: Object.fromEntries(kinds.map(({ kind, count }) => [kind, count])),
    },
  );
}
