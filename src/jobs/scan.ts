/**
 * A folder walked for inputs, link by link and root by root. Nothing is kept but the names of one
 * folder and those of folders still to be entered.
 */
import { closeSync, fstatSync, type Dirent } from "node:fs";
import { readdir } from "node:fs/promises";
import { constants } from "node:os";
import path from "node:path";
import { openPlain } from "../files/disk.js";
import { errno } from "../base/errno.js";
import { groupsOf } from "../base/groups.js";
import {
  errors,
  RadserveError,
  reasonOf,
  type ErrorCode,
  type ErrorObject,
} from "../base/errors.js";
import { takesWhole, toleranceOf, type Manifest } from "../manifest/manifest.js";
import type { ModelEntry } from "../models/entry.js";
import { openInput, withInput, type OpenedInput } from "../files/guarded-paths.js";
import { isHelper } from "../files/own-entries.js";
import type { Roots } from "../files/roots.js";
import { fileKey } from "../files/same-file.js";
import type { Image } from "../images/image.js";
import { saidOf } from "../images/known-formats.js";
import { accepts } from "../models/acceptance.js";
import type { Candidates } from "../images/dicom/case.js";
import { isUid } from "../images/dicom/value-forms.js";
import { FOLDER_LIMITS, readStudyFolder } from "../inference/read-input.js";
import { caseFor, judgeSeries, whyNoCase } from "../inference/plan.js";
import { namesSeries, readReceptionNote } from "../inference/reception-note.js";
import { PREFERENCES } from "../models/prefer.js";
import { casePath, seriesPath } from "./item-paths.js";
import { UNREAD } from "./jobs.js";
import { SliceMemory } from "../inference/reading-memory.js";
import type { ProcessMemory } from "../base/process-memory.js";
import { classify, type FileKind, type WhySkipped, type SliceHead } from "./classify.js";
import { holdsSomething } from "../files/folder-mark.js";

/** Paths are relative to the folder; that of the folder itself is empty. */
export type ScanResult = { path: string } & (
  { is: "input" } | { is: "skipped"; reason: WhySkipped } | { is: "failed"; error: ErrorObject }
);

type FailedFile = ScanResult & { is: "failed" };

export interface ScanOptions {
  /** Absolute. */
  folder: string;
  roots: Roots["input"];
  /** The models that the job is about. */
  models: readonly ModelEntry[];
  /** Otherwise an empty folder would be taken for a share that is away. */
  mayBeEmpty?: boolean;
  /** Each series is one item, for models of single images too. */
  grouped?: boolean;
  /** Where the slices that are read are counted; without it they are not. */
  memory?: ProcessMemory;
  /** Asked while there is no room for them; what it throws ends the scan. */
  check?: () => void;
}

const OPENED_AT_ONCE = 16;
/** How often a folder is read again that changes meanwhile. */
const MOST_CHANGES = 3;
/** Errors that say nothing of the series in a folder: the scan is tried again, */
const NO_FAULT_OF_FOLDERS = new Set<ErrorCode>(["internal", "overloaded"]);
/** or only that it could not be read. */
const FAULTS_OF_READING = new Set<ErrorCode>(["share_unavailable", "path_not_allowed"]);

/** An entry of a folder as its first bytes and its kind tell. */
type FolderEntry = { path: string } & (
  Exclude<FileKind, { is: "foreign" }> | Pick<FailedFile, "is" | "error"> | { is: "link" }
);

/**
 * Everything in a folder that is or could have been an input; Radserve's own results are not
 * mentioned. Every folder is entered once, however many links lead to it; links come last, so that
 * a file is found under its own name.
 * @throws RadserveError if the folder itself cannot be entered, or is away; errors of the file
 * system as they are
 */
export async function* scanFolder(options: ScanOptions): AsyncGenerator<ScanResult> {
  if (options.mayBeEmpty !== true) await mustBeThere(options);
  const seen = new Set<string>();
  const links: string[] = [];
  const waiting = [""];
  for (;;) {
    const here = waiting.pop() ?? links.shift();
    if (here === undefined) return;
    const entered = await enter(options, here);
    if ("error" in entered) {
      yield entered;
      continue;
    }
    try {
      if (seen.has(entered.key)) continue;
      seen.add(entered.key);
      const folders: string[] = [];
      yield* scanOne(options, entered, here, { folders, links });
      for (const name of folders.reverse()) waiting.push(name);
    } finally {
      entered.folder.close();
    }
  }
}

/** A folder that is open, by whatever name it was found. */
interface EnteredFolder {
  folder: OpenedInput;
  key: string;
  entries: Dirent[];
}

async function enter(
  { folder: base, roots }: ScanOptions,
  here: string,
): Promise<EnteredFolder | FailedFile> {
  try {
    const folder = await openInput(path.posix.join(base, here), roots);
    try {
      if (folder.kind === "file")
        throw errors.bad_request("Expected input_folder_path to name a folder; found a file.");
      const key = fileKey(fstatSync(folder.fd, { bigint: true }));
      return { folder, key, entries: await readdir(folder.fdPath, { withFileTypes: true }) };
    } catch (error) {
      folder.close();
      throw error;
    }
  } catch (thrown) {
    const error = here === "" ? undefined : readingFault(thrown);
    if (error === undefined) throw thrown;
    // If all of it is away, no part of it is to blame
    await mustBeThere({ folder: base, roots });
    return unread(
      here,
      error.code,
      `${error.message} Nothing in this folder was read.`,
      error.details,
    );
  }
}

/** Faults that the system has with this process or machine, and not with what it reads. */
const OF_PROCESS = new Set(["EMFILE", "ENFILE", "ENOMEM", "EINTR", "EAGAIN"]);

/**
 * Why something in the folder cannot be read: one bad place of a disk, or one file that somebody
 * holds, does not keep the others from being found. Undefined where the fault is none of what is
 * read, so that the scan has to be tried again.
 */
function readingFault(thrown: unknown): RadserveError | undefined {
  if (thrown instanceof RadserveError) return thrown;
  const fault = errno(thrown);
  if (!(fault in constants.errno) || OF_PROCESS.has(fault)) return undefined;
  return isPermission(thrown)
    ? errors.path_not_allowed("The server's user may not read this file or folder.", {
        side: "input",
        reason: "permission",
      })
    : errors.share_unavailable(`Reading this file or folder failed (${fault}).`, {
        side: "input",
        errno: fault,
      });
}

/** An error that retrying cannot mend, because only another scan could find what there is. */
function unread(
  at: string,
  code: ErrorCode,
  message: string,
  details: RadserveError["details"],
): FailedFile {
  const fix = "Correct that, then send it as a new request.";
  return failed(at, new RadserveError(code, `${message} ${fix}`, { ...details, [UNREAD]: true }));
}

/** Throws if the folder itself is gone, or a mount point without its mount. */
async function mustBeThere({
  folder,
  roots,
}: Pick<ScanOptions, "folder" | "roots">): Promise<void> {
  await withInput(folder, roots, async ({ kind, fdPath }) => {
    if (kind === "folder" && !(await holdsSomething(fdPath)))
      throw errors.input_not_found("Expected the input folder to hold something; it is empty.");
  });
}

const join = (here: string, name: string) => (here === "" ? name : `${here}/${name}`);

async function* scanOne(
  options: ScanOptions,
  { folder, entries }: EnteredFolder,
  here: string,
  later: { folders: string[]; links: string[] },
): AsyncGenerator<ScanResult> {
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  const files: Dirent[] = [];
  if (entries.some(({ name }) => isBroken(name))) yield* brokenNames(folder, here);
  for (const entry of entries) {
    if (isHelper(entry.name) || isBroken(entry.name)) continue;
    if (entry.isDirectory()) later.folders.push(join(here, entry.name));
    else files.push(entry);
  }
  const series = new SeriesOfFolder(options, files.length);
  for (const some of groupsOf(files, OPENED_AT_ONCE)) {
    for (const entry of await Promise.all(some.map((one) => entryOf(options, folder, here, one)))) {
      if (entry.is === "link") later.links.push(entry.path);
      else if (entry.is === "failed" || entry.is === "skipped") yield entry;
      else if (entry.is === "input" && !series.take(entry)) yield { path: entry.path, is: "input" };
    }
  }
  yield* series.decide(folder, here);
}

const isBroken = (name: string) => name.includes("\ufffd");

/**
 * Files and folders whose names are no UTF-8: a result cannot be named after them. Told with their
 * bytes (`M\xfcller`).
 */
async function* brokenNames(folder: OpenedInput, here: string): AsyncGenerator<FailedFile> {
  const message = "Expected a name in UTF-8; found other bytes. Rename the file or folder.";
  for (const name of await readdir(folder.fdPath, { encoding: "buffer" })) {
    if (!isBroken(name.toString())) continue;
    const bytes = (text: string) => `\\x${Buffer.from(text, "latin1").toString("hex")}`;
    const told = name.toString("latin1").replace(/[^\x20-\x7e]/g, bytes);
    yield unread(join(here, told), "bad_request", message, {});
  }
}

async function entryOf(
  options: ScanOptions,
  folder: OpenedInput,
  here: string,
  entry: Dirent,
): Promise<FolderEntry> {
  const { folder: base, roots } = options;
  const { name } = entry;
  const at = join(here, name);
  if (entry.isFIFO() || entry.isSocket() || entry.isCharacterDevice() || entry.isBlockDevice())
    return {
      path: at,
      is: "skipped",
      reason: { code: "no_file", message: "A device, pipe or socket." },
    };
  try {
    if (entry.isFile()) return judged(options, at, await kindOfFile(folder, name));
    return await withInput(path.posix.join(base, at), roots, async ({ kind, fd }) =>
      kind === "folder"
        ? { path: at, is: "link" }
        : judged(options, at, await classify(fd, folder.fdPath, name)),
    );
  } catch (thrown) {
    if (isGone(thrown)) return { path: at, is: "own" };
    const error = readingFault(thrown);
    if (error === undefined) throw thrown;
    await mustBeThere({ folder: base, roots });
    return failed(at, error);
  }
}

/**
 * A file in which images are, or may be, that cannot be read has failed: who sent it counts on its
 * results. A picture has not where no model takes pictures.
 */
function judged({ models }: ScanOptions, at: string, kind: FileKind): FolderEntry {
  if (kind.is !== "foreign") return { path: at, ...kind };
  const { format } = kind;
  const error = errors.unsupported_format(saidOf(format), { format: format.id });
  const isPicture = (taken: string) => taken !== "dicom";
  if (
    format.holds !== "picture" ||
    models.some(
      ({ manifest, state }) => state !== "off" && manifest.accepts.formats.some(isPicture),
    )
  )
    return failed(at, error);
  return { path: at, is: "skipped", reason: { code: "no_image", message: error.message } };
}

/** A plain file in a folder that is held open needs no look at the roots. */
async function kindOfFile(folder: OpenedInput, name: string): Promise<FileKind> {
  const fd = await openPlain(`${folder.fdPath}/${name}`);
  try {
    return await classify(fd, folder.fdPath, name);
  } finally {
    closeSync(fd);
  }
}

function failed(at: string, error: RadserveError): FailedFile {
  return { path: at, is: "failed", error: error.toObject() };
}

const isPermission = (error: unknown) => ["EACCES", "EPERM"].includes(errno(error));
/** A file was removed or replaced while its folder was read. */
const hasChanged = (error: RadserveError) => reasonOf(error) === "changed";
/** Removed, or swapped for something else, since its folder was read. */
const isGone = (error: unknown) => ["ENOENT", "ELOOP", "ENXIO"].includes(errno(error));

const takesCase = ({ roles }: Manifest): boolean => roles !== undefined;
const takesSingle = ({ accepts: { dimensions }, roles }: Manifest): boolean =>
  dimensions === "2d" && roles === undefined;

type ScannedStudy = Awaited<ReturnType<typeof readStudyFolder>>;

interface JudgedFile {
  /** SOPInstanceUIDs of images of a group that are items whatever their series is. */
  apart?: ReadonlySet<string | undefined>;
  series: { uid: string | undefined; found: ScanResult }[];
  ofCase:
    | { found: ScanResult; holds: (uid: string | undefined, sop: string | undefined) => boolean }
    | undefined;
}

/** A series that a model takes, and to which each such model prefers another one of the folder. */
const isBehind = (found: ScanResult): boolean =>
  found.is === "skipped" && PREFERENCES.has(found.reason.code);

function skippedSeries(
  at: string,
  { code, message }: { code: string; message: string },
): ScanResult {
  const reason = { code, message: `No model took the folder as one series. ${message}` };
  return { path: at, is: "skipped", reason };
}

/**
 * The files of one folder that could be the slices of a series, or members of a case. A folder that
 * is a case for a model with roles is one item beside all others. If a model takes series, or
 * slices with their neighbours, and would take this one, the folder is one item, and its files are
 * items of their own only if a model of single images takes them too; the other models then run on
 * every slice within it. In groups each series of several images is one item, and files are items
 * beside it only if a model takes them by themselves and not their series.
 */
class SeriesOfFolder {
  readonly #files: { path: string; slice: SliceHead }[] = [];
  readonly #models: readonly ModelEntry[];
  readonly #possible: boolean;

  constructor(
    private readonly options: ScanOptions,
    files: number,
  ) {
    // Those that could not be loaded, too: their items say so
    this.#models = options.models.filter(({ state }) => state !== "off");
    this.#possible =
      files <= FOLDER_LIMITS.files &&
      this.#models.some(({ manifest }) => this.#takesSeries(manifest) || takesCase(manifest));
  }

  /** Whether a series may be an item for the model. */
  #takesSeries(manifest: Manifest): boolean {
    return !takesCase(manifest) && (this.options.grouped === true || takesWhole(manifest));
  }

  /** @returns false for a file that is an item whatever else is in the folder */
  take({ path, slice }: { path: string; slice?: SliceHead }): boolean {
    if (!this.#possible || slice?.seriesInstanceUid === undefined) return false;
    this.#files.push({ path, slice });
    return true;
  }

  async *decide(folder: OpenedInput, here: string): AsyncGenerator<ScanResult> {
    const taken = new Set<string | undefined>();
    const { series, ofCase, apart } = await this.#judged(folder, here);
    for (const { uid, found } of series) {
      yield found;
      if (found.is === "input" || isBehind(found)) taken.add(uid);
    }
    if (ofCase !== undefined) yield ofCase.found;
    const single =
      this.options.grouped !== true &&
      this.#files.some(({ slice }) => this.#fits(slice, takesSingle));
    // Slices need no items of their own if their series is one, or the folder that holds it alone
    const isPart = ({ seriesInstanceUid: uid, sopInstanceUid }: SliceHead) =>
      taken.has(uid) || taken.has(undefined) || ofCase?.holds(uid, sopInstanceUid) === true;
    for (const { path: at, slice } of this.#files)
      if (single || apart?.has(slice.sopInstanceUid) === true || !isPart(slice))
        yield { path: at, is: "input" };
  }

  /**
   * The series that a model takes or might have taken, and the case that the folder is or might
   * have been.
   */
  async #judged(folder: OpenedInput, here: string): Promise<JudgedFile> {
    const counts = new Map<string, number>();
    for (const { slice } of this.#files) {
      const { seriesInstanceUid = "" } = slice;
      if (this.#fits(slice, (manifest) => this.#takesSeries(manifest)))
        counts.set(seriesInstanceUid, (counts.get(seriesInstanceUid) ?? 0) + 1);
    }
    const possible = new Set([...counts].filter(([, count]) => count > 1).map(([uid]) => uid));
    const maybeCase = this.#files.filter(({ slice }) => this.#fits(slice, takesCase)).length > 1;
    if (possible.size === 0 && !maybeCase) return { series: [], ofCase: undefined };
    try {
      const { series, candidates } = await this.#read(folder);
      const apart = this.options.grouped === true ? this.#apart(series, candidates) : [];
      const isNamed = this.options.grouped === true && namesSeries(await readReceptionNote(folder));
      const placed = series.map((one) =>
        isNamed && isUid(one.uid) ? { ...one, alone: false } : one,
      );
      return {
        series: possible.size === 0 ? [] : this.#decided(placed, possible, here, apart),
        ofCase: maybeCase ? this.#caseOf(candidates, here) : undefined,
        apart: new Set(apart.map(({ sopInstanceUid }) => sopInstanceUid)),
      };
    } catch (thrown) {
      const error = readingFault(thrown);
      if (error === undefined || NO_FAULT_OF_FOLDERS.has(error.code)) throw thrown;
      // What cannot be read now may be a series all the same: its item is judged when it runs
      const isUnread = hasChanged(error) || FAULTS_OF_READING.has(error.code);
      if (isUnread) await mustBeThere(this.options);
      const found: ScanResult = isUnread ? { path: here, is: "input" } : skippedSeries(here, error);
      return { series: [{ uid: undefined, found }], ofCase: undefined };
    }
  }

  /**
   * A scan has no deadline: it waits while there is no room. Where a file goes away while the
   * folder is read, as the temporary ones of rsync do, it is read again.
   */
  async #read(folder: OpenedInput): ReturnType<typeof readStudyFolder> {
    const check = this.options.check ?? (() => undefined);
    const tolerance = toleranceOf(...this.#models.map(({ manifest }) => manifest));
    for (let changes = 0; ;) {
      const memory = new SliceMemory(this.options.memory, { patient: true, yields: true, check });
      try {
        return await readStudyFolder(folder, memory, { tolerance, grouped: this.options.grouped });
      } catch (error) {
        if (!(error instanceof RadserveError)) throw error;
        if (hasChanged(error)) changes += 1;
        else if (error.code !== "overloaded") throw error;
        if (changes > MOST_CHANGES) throw error;
      } finally {
        await memory.close();
      }
    }
  }

  /**
   * The possible series that a model takes, or that are none; `uid` is undefined if the folder
   * itself is the item. Where a note says that the folder is that of a study, it is not.
   */
  #decided(
    series: ScannedStudy["series"],
    possible: ReadonlySet<string>,
    here: string,
    apart: readonly Image["source"][],
  ): JudgedFile["series"] {
    const verdicts = judgeSeries(
      this.#models,
      series.map(({ image }) => image),
      this.options.grouped,
    );
    // A group that no model takes, and of which none takes an image, is told once
    const isUntaken = (uid: string) =>
      this.options.grouped === true &&
      !apart.some(({ seriesInstanceUid }) => seriesInstanceUid === uid);
    return series.flatMap(({ uid, alone, image, unreadable }, i) => {
      const { taken = false, why = [] } = verdicts[i] ?? {};
      const behind = why.find(({ code }) => PREFERENCES.has(code));
      const fault = image instanceof RadserveError ? image : behind;
      if (!possible.has(uid) || (!taken && fault === undefined && !isUntaken(uid))) return [];
      const at = alone ? here : seriesPath(here, uid);
      // Whatever is wrong with the rest of it may be so because of what cannot be read: its item
      // fails, and says so
      const isBroken = unreadable && image instanceof RadserveError;
      const found: ScanResult =
        taken || fault === undefined || isBroken
          ? { path: at, is: "input" }
          : skippedSeries(at, fault);
      return [{ uid: alone ? undefined : uid, found }];
    });
  }

  /** Images that a model takes by themselves, and not their series. */
  #apart(series: ScannedStudy["series"], candidates: Candidates): Image["source"][] {
    const models = this.#models.filter(
      ({ manifest }) => !takesCase(manifest) && !takesWhole(manifest),
    );
    const refusing = new Map<string | undefined, ModelEntry[]>();
    for (const { uid, image } of series)
      if (!(image instanceof RadserveError))
        refusing.set(
          uid,
          models.filter((entry) => accepts(entry, image).length > 0),
        );
    const isApart = (image: Image) =>
      refusing
        .get(image.source.seriesInstanceUid)
        ?.some((entry) => accepts(entry, image).length === 0);
    return candidates
      .images()
      .flatMap(({ image }) => (isApart(image) === true ? [image.source] : []));
  }

  /**
   * The case that the folder is for a model with roles, or why not, if some of its roles are there.
   */
  #caseOf(candidates: Candidates, here: string): JudgedFile["ofCase"] {
    const models = this.#models.filter(({ manifest }) => takesCase(manifest));
    const path = casePath(here);
    try {
      const chosen = caseFor(models, candidates, false);
      if (chosen !== undefined) {
        const members = chosen.members.map(({ source }) => source);
        const holds = (uid: string | undefined, sop: string | undefined) =>
          members.some(
            ({ seriesInstanceUid, sopInstanceUid }) =>
              seriesInstanceUid === uid && (sopInstanceUid === undefined || sopInstanceUid === sop),
          );
        return { found: { path, is: "input" }, holds };
      }
    } catch (error) {
      if (!(error instanceof RadserveError)) throw error;
      return { found: failed(path, error), holds: () => false };
    }
    const reasons = whyNoCase(models, candidates).filter(({ partly }) => partly);
    if (reasons.length === 0) return undefined;
    const message = reasons
      .map(({ name, reasons: all }) => `${name}: ${all.map((reason) => reason.message).join(" ")}`)
      .join(" ");
    const reason = { code: "no_case", message: `No model took the folder as a case. ${message}` };
    return { found: { path, is: "skipped", reason }, holds: () => false };
  }

  #fits({ modality, sopClassUid }: SliceHead, takes: (manifest: Manifest) => boolean): boolean {
    return this.#models.some(({ manifest }) => {
      const { accepts: rules } = manifest;
      const among = (list: readonly string[] | undefined, value: string | undefined) =>
        list === undefined || (value !== undefined && list.includes(value));
      return (
        takes(manifest) &&
        among(rules.formats, "dicom") &&
        among(rules.modality, modality) &&
        among(rules.sop_class, sopClassUid)
      );
    });
  }
}
