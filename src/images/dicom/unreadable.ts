/**
 * Files of a folder that may be slices and cannot be read. A volume without them would end before
 * the body that was scanned does, so that they refuse the series that they belong to: by what their
 * elements say; by their names, or where nothing else is known of them by their sizes, among those
 * of its slices; or because no other series lies there.
 */
import { setImmediate } from "node:timers/promises";
import type { RadserveError } from "../../base/errors.js";
import { groupsBy } from "../../base/groups.js";
import { rangeOf } from "../../base/range.js";
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
 * @param check throws what ends the reading; asked before each series is looked at
 */
export async function attributed<T extends Unread & FolderPlace>(
  found: readonly T[],
  slices: readonly PlacedSlice[],
  check: () => void = () => undefined,
): Promise<{ unreadable: (T & Unreadable)[]; beside: T[] }> {
  if (found.length === 0) return { unreadable: [], beside: [] };
  const series = new Map<T, string[]>();
  for (const [uid, own] of groupsBy(slices, ({ source }) => source.seriesInstanceUid ?? "")) {
    await setImmediate();
    check();
    const places = own.map(({ place }) => place);
    for (const one of followers(found, places)) {
      const uids = series.get(one);
      if (uids === undefined) series.set(one, [uid]);
      else uids.push(uid);
    }
  }
  const names = new NameRow(slices.map(({ place }) => place.name));
  const unreadable: (T & Unreadable)[] = [];
  const beside: T[] = [];
  for (const one of found) {
    const uids = series.get(one);
    if (one.seriesInstanceUid !== undefined)
      unreadable.push({ ...one, series: [one.seriesInstanceUid] });
    else if (uids !== undefined) unreadable.push({ ...one, series: uids });
    else if (one.isDicom || isCalledDicom(one, names))
      unreadable.push({ ...one, series: undefined });
    else beside.push(one);
  }
  return { unreadable, beside };
}

/** Whether its ending says that it is DICOM, whatever the slices are called. */
const isCalledDicom = ({ name, unread }: Unread & FolderPlace, names: NameRow): boolean =>
  unread !== "link" && IMAGE_ENDING.test(names.bareName(name) ?? "");

/** How much larger or smaller a file may be than all slices and still be as large as they are. */
const SIZE_TOLERANCE = 0.1;

/** The files that may be slices beside those that lie at the places. */
function followers<T extends Unread & FolderPlace>(
  found: readonly T[],
  places: readonly FolderPlace[],
): T[] {
  const row = new NameRow(places.map(({ name }) => name));
  const byForm = row.followedByForm(found.map(({ name }) => name));
  const [smallest, largest] = rangeOf(places.map(({ bytes }) => bytes));
  const [least, most] = [smallest * (1 - SIZE_TOLERANCE), largest * (1 + SIZE_TOLERANCE)];
  return found.filter(({ name, unread, bytes }) => {
    if (byForm.has(name) || (unread !== "link" && row.hasEndingOf(name))) return true;
    return unread === "blank" && !name.startsWith(".") && bytes >= least && bytes <= most;
  });
}

/** Endings that packing adds to a name, a copy kept aside, or a transfer that has not ended. */
const ADDED =
  /(?:\.(?:gz|zip|bz2|xz|zst|7z|part|partial|filepart|crdownload|download|tmp|bak|old|orig)|~)$/i;
/** Endings that some writers of slices leave out. */
const IMAGE_ENDING = /\.(?:dcm|dicom|ima)$/i;

const isHexadecimal = (name: string): boolean => name.length >= 4 && /^[0-9a-f-]+$/i.test(name);

const withoutImageEnding = (name: string): string => name.replace(IMAGE_ENDING, "");

/**
 * The names of a series' files, and which other names are of their row. A folder may have ten
 * thousand of both, so that nothing is asked for each pair.
 */
export class NameRow {
  readonly #names: ReadonlySet<string>;
  readonly #stems: ReadonlySet<string>;
  readonly #skeletons: ReadonlySet<string>;
  readonly #endings: ReadonlySet<string>;
  readonly #byLength: ReadonlyMap<number, readonly string[]>;
  readonly #hexadecimal: ReadonlySet<number>;

  constructor(names: readonly string[]) {
    this.#names = new Set(names);
    this.#stems = new Set(names.map(withoutImageEnding));
    this.#skeletons = new Set([...this.#stems].map(skeleton));
    this.#endings = new Set(names.map(ending));
    this.#byLength = groupsBy(names, ({ length }) => length);
    this.#hexadecimal = new Set(names.filter(isHexadecimal).map(({ length }) => length));
  }

  /**
   * A name without what packing adds. Undefined for helpers of systems, which begin like the file
   * that they are of ("._IM0001"), and for what is packed beside the slice itself.
   */
  bareName(name: string): string | undefined {
    const bare = name.replace(ADDED, "");
    const isBesideItself = bare !== name && this.#names.has(bare);
    return name.startsWith(".") || isBesideItself ? undefined : bare;
  }

  /** Whether a name has the same ending as one of the row. */
  hasEndingOf(name: string): boolean {
    const found = ending(this.bareName(name) ?? "");
    return found !== "" && this.#endings.has(found);
  }

  /**
   * The names that are equal to one of the row but for their digits or for one character, or
   * hexadecimal digits throughout as it is.
   */
  followedByForm(names: readonly string[]): ReadonlySet<string> {
    const bareNames = new Map(names.map((name) => [name, this.bareName(name)]));
    const oneApart = this.#oneApart([...bareNames.values()].filter((bare) => bare !== undefined));
    const follows = (bare: string) =>
      this.#isNumbered(bare) ||
      oneApart.has(bare) ||
      (this.#hexadecimal.has(bare.length) && isHexadecimal(bare));
    return new Set(
      [...bareNames].flatMap(([name, bare]) => (bare !== undefined && follows(bare) ? name : [])),
    );
  }

  #isNumbered(bare: string): boolean {
    const stem = withoutImageEnding(bare);
    return /\d/.test(stem) && !this.#stems.has(stem) && this.#skeletons.has(skeleton(stem));
  }

  /**
   * The names that differ from one of the row in one character at most. One place after the other
   * is masked in all of them: the masks of all places together would take much memory.
   */
  #oneApart(names: readonly string[]): ReadonlySet<string> {
    const found = new Set<string>();
    for (const [length, asked] of groupsBy(names, (name) => name.length)) {
      const row = this.#byLength.get(length) ?? [];
      for (let place = 0; row.length > 0 && place < length; place++) {
        const masked = (name: string) => `${name.slice(0, place)}/${name.slice(place + 1)}`;
        const known = new Set(row.map(masked));
        for (const name of asked) if (known.has(masked(name))) found.add(name);
      }
    }
    return found;
  }
}

const ending = (name: string): string =>
  /.\.([a-z][a-z0-9]{0,7})$/i.exec(name)?.[1]?.toLowerCase() ?? "";

/** A name without its numbers; those of UIDs are of several lengths. */
const skeleton = (name: string): string => name.toLowerCase().replace(/\d+(?:\.\d+)*/g, "#");

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
