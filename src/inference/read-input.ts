import type { OpenedInput, OpenedPath } from "../files/guarded-paths.js";
import {
  CaseImage,
  candidatesOf,
  memberImages,
  type Candidates,
  type MemberIdentity,
} from "../images/dicom/case.js";
import type { Case, Image, Warning } from "../images/image.js";
import { readImage } from "../images/read-image.js";
import { closeSync, fstatSync } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { release } from "../addon/bytes.js";
import { readStart, readWhole } from "../files/descriptor.js";
import { isDicom } from "../images/dicom/dicom-file.js";
import { KNOWN_FORMAT_BYTES, knownFormat } from "../images/known-formats.js";
import {
  seriesImage,
  seriesFile,
  studySeries,
  type LeftOut,
  type SeriesChoice,
  type SeriesFile,
  type Stacking,
} from "../images/dicom/series.js";
import { seriesInvalid } from "../images/dicom/series-fault.js";
import { withoutCopies } from "../images/dicom/copies.js";
import {
  attributed,
  unreadableBeside,
  unreadableFault,
  type FolderPlace,
  type Unread,
  type Unreadable,
} from "../images/dicom/unreadable.js";
import { SliceMemory } from "./reading-memory.js";
import { openPlain } from "../files/disk.js";
import { isHelper } from "../files/own-entries.js";
import { errno } from "../base/errno.js";
import { errors, RadserveError } from "../base/errors.js";
import {
  LARGEST_AMONG_IMAGES,
  nameOfReceipt,
  namesIn,
  readReceipt,
} from "../results/receipt/read-receipt.js";

export interface FolderLimits {
  /** Entries of the folder, whatever they are. */
  files: number;
  /** Bytes of all DICOM files together. */
  bytes: number;
  /** Elements and items of all slices together: they are kept as long as the image is used. */
  elements: number;
}

/**
 * More than the longest studies (some 5,000 slices of 512 KiB), and little enough for a server to
 * look through.
 */
export const FOLDER_LIMITS: FolderLimits = {
  files: 20_000,
  bytes: 4 * 2 ** 30,
  elements: 8_000_000,
};

/** What is kept of a frame takes as much memory as so many elements. */
const FRAME_ELEMENTS = 8;

/** Which of a folder's images are meant: one series, or a case of several. */
export interface FolderChoice extends SeriesChoice {
  /** The case that the folder is; asked where no series is named. undefined if it is none. */
  caseOf?: ((found: Candidates) => Case | undefined) | undefined;
  /** The case of a receipt, by what tells its members; then nothing else counts. */
  members?: readonly MemberIdentity[] | undefined;
}

/**
 * Files that are read at once: enough to hide the latency of a share, few enough to keep in memory.
 */
const READ_AT_ONCE = 8;
const HEAD_BYTES = Math.max(160, KNOWN_FORMAT_BYTES);
const uncounted = () => new SliceMemory(undefined, { patient: true, check: () => undefined });

type SeriesEntry =
  | { file: SeriesFile }
  | { leftOut: LeftOut }
  /** Perhaps a slice; `beside` is what it is called if it is none. */
  | { unread: Unread & FolderPlace & { beside: LeftOut } };

/** What a folder holds that may be of a series. */
interface FolderFiles {
  files: SeriesFile[];
  unreadable: Unreadable[];
  leftOut: Warning[];
}

const NOT_DICOM: LeftOut = { code: "left_out_not_dicom", what: "files that are not DICOM" };
const NOT_REGULAR: LeftOut = {
  code: "left_out_not_a_file",
  what: "links, folders and other entries that are not plain files",
};
const OWN_OUTPUT: LeftOut = {
  code: "left_out_own_result",
  what: "results that a receipt in the folder lists",
};

/**
 * Reads one series of a folder, the only one or the chosen one, or the case that it is. Slices are
 * regular DICOM files directly in it; everything else is left out, with a warning that counts it:
 * other formats, objects without pixels, segmentations, localizers, results of Radserve. What may
 * be a slice and cannot be read refuses the series. Pixels are read when they are asked for, so
 * `folder` has to stay open as long as the image is used.
 * @param choice which of several series is meant
 * @param memory where the slices are counted; without it they are not
 * @throws RadserveError series_invalid (limits, grouping, geometry); what an unreadable slice
 * throws
 */
export async function readSeriesFolder(
  folder: OpenedPath,
  memory = uncounted(),
  limits: FolderLimits = FOLDER_LIMITS,
  choice: FolderChoice = {},
): Promise<Image> {
  const found = await readFiles(folder, memory, limits, true);
  const { files, unreadable, leftOut } = found;
  const chosen = chosenCase(found, choice);
  if (chosen === undefined) return seriesImage(files, leftOut, { ...choice, unreadable });
  const uids = [chosen.members, chosen.candidates.map(({ image }) => image)].map(
    (images) => new Set(images.map(({ source }) => source.seriesInstanceUid ?? "")),
  );
  const [ofMembers = new Set(), all = new Set()] = uids;
  // One of a series of which nothing can be read may be a view that the case lacks
  const isBeside = ({ series }: Unreadable) =>
    series?.every((uid) => all.has(uid) && !ofMembers.has(uid)) === true;
  const fault = unreadableFault(unreadable.filter((one) => !isBeside(one)));
  if (fault !== undefined) throw fault;
  return new CaseImage(chosen, [...leftOut, ...unreadableBeside(unreadable)]);
}

function chosenCase(
  { files, unreadable }: FolderFiles,
  { uid, caseOf, members }: FolderChoice,
): Case | undefined {
  const found = candidatesOf(files, unreadable);
  if (members === undefined) {
    try {
      return uid === undefined ? caseOf?.(found) : undefined;
    } catch (error) {
      // What it lacks may be what cannot be read
      throw unreadableFault(unreadable) ?? error;
    }
  }
  for (const candidates of [found.series(), found.images()]) {
    const [leading, ...others] = memberImages(candidates, members) ?? [];
    if (leading !== undefined) return { members: [leading, ...others], candidates };
  }
  throw seriesInvalid(
    "no_such_series",
    `Expected the ${members.length} members of the case in the folder, by the UIDs of its receipt; not all of them are there.`,
  );
}

/**
 * Reads all series of a folder, as readSeriesFolder reads one, and what of it may be a case.
 * @throws RadserveError for what is wrong with all
 */
export async function readStudyFolder(
  folder: OpenedPath,
  memory: SliceMemory,
  stacking: Stacking,
): Promise<{ series: ReturnType<typeof studySeries>; candidates: Candidates }> {
  const { files, unreadable, leftOut } = await readFiles(folder, memory, FOLDER_LIMITS, false);
  return {
    series: studySeries(files, leftOut, { ...stacking, unreadable }),
    candidates: candidatesOf(files, unreadable),
  };
}

/** @param keeps pixels are asked for, so that files stay in memory where there is room */
async function readFiles(
  folder: OpenedPath,
  memory: SliceMemory,
  limits: FolderLimits,
  keeps: boolean,
): Promise<FolderFiles> {
  const all = (await readdir(folder.fdPath, { encoding: "buffer" })).filter(
    (name) => !isHelper(name.toString("utf8")),
  );
  if (all.length > limits.files)
    throw seriesInvalid(
      "too_many_files",
      `Expected a folder of at most ${limits.files} entries, found ${all.length}. Send a folder that holds one series.`,
      { most: limits.files, found: all.length },
    );
  all.sort((a, b) => Buffer.compare(a, b));
  const results = await resultsAmong(folder, all);
  // They came after the series, and change nothing of what is read: not even a warning
  const names = all.filter((name) => !results.ours.has(name.toString("utf8")));
  const budget = new FolderBudget(limits);
  const entries: SeriesEntry[] = [];
  for (let i = 0; i < names.length; i += READ_AT_ONCE) {
    const some = names.slice(i, i + READ_AT_ONCE);
    const read = some.map(async (name, n): Promise<SeriesEntry> => {
      if (results.listed.has(name.toString("utf8"))) return { leftOut: OWN_OUTPUT };
      const place = { name: name.toString("latin1"), entry: i + n + 1, of: names.length };
      const entry = readEntry(pathOf(folder, name), place, budget, memory, keeps);
      return entry.catch((error: unknown) => {
        throw numbered(error, place);
      });
    });
    entries.push(...(await settled(read)));
  }
  const slices = entries.flatMap((entry) => ("file" in entry ? [entry.file] : []));
  const unread = entries.flatMap((entry) => ("unread" in entry ? [entry.unread] : []));
  const { files, caveats } = await withoutCopies(slices, memory.check);
  const { unreadable, beside } = await attributed(unread, files, memory.check);
  memory.keepForAgain(
    files.map(({ source, attributes }) => ({
      bytes: source.bytes,
      elements: attributes.extent.elements,
    })),
  );
  const leftOut = [
    ...entries.flatMap((entry) => ("leftOut" in entry ? [entry.leftOut] : [])),
    ...beside.map((one) => one.beside),
  ];
  return { files, unreadable, leftOut: [...warningsOf(leftOut), ...caveats] };
}

/**
 * All results, or the error of the first in order that failed: the refusal does not depend on which
 * read was faster.
 */
async function settled<T>(work: Promise<T>[]): Promise<T[]> {
  return (await Promise.allSettled(work)).map((result) => {
    if (result.status === "rejected") throw result.reason as Error;
    return result.value;
  });
}

function pathOf(folder: OpenedPath, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${folder.fdPath}/`), name]);
}

interface ResultNames {
  /** Receipts that this installation wrote, and the files that they list. */
  ours: Set<string>;
  /** Files that other receipts list. */
  listed: Set<string>;
}

/** An earlier request may have written its results beside the slices. */
async function resultsAmong(folder: OpenedPath, names: readonly Buffer[]): Promise<ResultNames> {
  const [ours, listed] = [new Set<string>(), new Set<string>()];
  for (const name of names) {
    if (!name.toString("latin1").endsWith(".json")) continue;
    const file = name.toString("utf8");
    const receipt = nameOfReceipt(file);
    const found = await readReceipt(`${folder.fdPath}/${file}`, receipt, LARGEST_AMONG_IMAGES);
    if (found.kind !== "receipt") continue;
    const { trusted } = found.trust;
    if (trusted) ours.add(file);
    for (const one of namesIn(found, receipt)) (trusted ? ours : listed).add(one);
  }
  return { ours, listed };
}

/** Counts a folder's files and elements against its limits. */
class FolderBudget {
  readonly #counted = { bytes: 0, elements: 0 };

  constructor(private readonly limits: FolderLimits) {}

  add(what: "bytes" | "elements", count: number): void {
    this.#counted[what] += count;
    const most = this.limits[what];
    if (this.#counted[what] <= most) return;
    const [code, limit, excess] =
      what === "bytes"
        ? (["too_many_bytes", "bytes", "are larger. Send fewer or smaller slices."] as const)
        : (["too_many_elements", "elements and items", "have more. Send fewer slices."] as const);
    throw seriesInvalid(
      code,
      `Expected a series of at most ${most} ${limit}; the folder's DICOM files ${excess}`,
      { most },
    );
  }
}

async function readEntry(
  path: Buffer,
  at: Omit<FolderPlace, "bytes">,
  budget: FolderBudget,
  memory: SliceMemory,
  keeps: boolean,
): Promise<SeriesEntry> {
  const entry = await lstat(path).catch((error: unknown) => {
    throw unreadable(error);
  });
  const place = { ...at, bytes: entry.size };
  if (entry.isDirectory()) return { leftOut: NOT_REGULAR };
  const notRead = (unread: Unread, beside: LeftOut): SeriesEntry => ({
    unread: { ...unread, ...place, beside },
  });
  if (!entry.isFile()) return notRead({ unread: "link", isDicom: false }, NOT_REGULAR);
  const found = await withRegular<SeriesFile | LeftOut | Unread>(path, async (fd, size) => {
    const head = await readStart(fd, HEAD_BYTES);
    if (!isDicom(head)) return { unread: unlike(head), isDicom: false };
    budget.add("bytes", size);
    return memory.within(
      size,
      () => readWhole(fd),
      async (bytes, most) => {
        const { length } = bytes;
        const kept = { is: false };
        const again = {
          place: { ...place, bytes: length },
          read: () => memory.again(() => reread(path, length)),
          filesAhead: () => memory.filesAhead(),
          keepWhole: (elements: number) => (kept.is = keeps && memory.keepWhole(length, elements)),
        };
        const file = await seriesFile(bytes, again, most);
        // Garbage of whole files would be collected again and again while a long series is read
        if (!kept.is) release(bytes);
        return file;
      },
    );
  });
  if ("code" in found) return { leftOut: found };
  if ("unread" in found) {
    const { error } = found;
    const told = error === undefined ? found : { ...found, error: numbered(error, place) };
    return notRead(told, NOT_DICOM);
  }
  const { bytes, elements } = found.attributes.extent;
  // A frame of one byte is kept as an object, too
  const extent = { bytes, elements: elements + FRAME_ELEMENTS * found.frames.length };
  budget.add("elements", extent.elements);
  memory.keep(extent);
  return { file: found };
}

/** What a file is that does not begin as DICOM does. */
function unlike(head: Uint8Array): Unread["unread"] {
  if (head.length === 0) return "empty";
  if (head.every((byte) => byte === head[0])) return "blank";
  return knownFormat(head)?.holds === "package" ? "packed" : "other_format";
}

/** Works on a file that is still what the folder listed. */
async function withRegular<T>(
  path: Buffer,
  work: (fd: number, size: number) => Promise<T>,
): Promise<T> {
  const fd = await openPlain(path).catch((error: unknown) => {
    throw unreadable(error);
  });
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile()) throw changed();
    return await work(fd, facts.size);
  } finally {
    closeSync(fd);
  }
}

/** Reads a file again that had so many bytes, for which memory is counted. */
function reread(path: Buffer, bytes: number): Promise<Uint8Array> {
  return withRegular(path, (fd, size) => {
    if (size !== bytes) throw changed();
    return readWhole(fd);
  });
}

function changed(): RadserveError {
  return seriesInvalid(
    "changed",
    "Expected the folder to stay as it is while it is read; a file in it was replaced. Send the request again once all files are there.",
  );
}

/** Names of files can be names of patients: the system's own message is not passed on. */
function unreadable(error: unknown): unknown {
  const code = errno(error);
  if (code === "EACCES" || code === "EPERM")
    return errors.path_not_allowed(
      "The server's user may not read a file of the folder. Give it that permission on every file.",
      { side: "input", reason: "permission" },
    );
  return code === "ENOENT" || code === "ELOOP" || code === "ENXIO" ? changed() : error;
}

/** Says by its number, and not by its name, which file could not be used. */
function numbered<E>(
  error: E,
  { entry, of }: Pick<FolderPlace, "entry" | "of">,
): E | RadserveError {
  if (!(error instanceof RadserveError) || error.code === "series_invalid") return error;
  const message = `${error.message} It is entry ${entry} of ${of} of the folder, by name; a series is taken whole or not at all.`;
  return new RadserveError(error.code, message, { ...error.details, entry }, { cause: error });
}

function warningsOf(found: readonly LeftOut[]): Warning[] {
  const counts = new Map<string, { what: string; count: number }>();
  for (const { code, what } of found) {
    const seen = counts.get(code);
    counts.set(code, { what: seen?.what ?? what, count: (seen?.count ?? 0) + 1 });
  }
  return [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([code, { what, count }]) => ({
      code,
      message: `Left out of the series: ${what} (${count}).`,
    }));
}

/**
 * Reads what a client named: a file, or a folder that holds one series. `input` has to stay open as
 * long as the image is used: the slices of a series are read from it when they are asked for.
 * @param check asked while a decoder works; what it throws stops the decoder
 * @throws RadserveError as readImage does; unsupported_format for a file that is too long;
 * series_invalid for a folder that holds no volume
 */
export async function readInput(
  input: OpenedInput,
  check?: () => void,
  choice: FolderChoice = {},
): Promise<Image> {
  if (input.kind === "folder") return readSeriesFolder(input, uncounted(), FOLDER_LIMITS, choice);
  return readImage(await readWhole(input.fd), check);
}
