/**
 * A folder walked for inputs, link by link and root by root. Nothing is kept but the names of one folder and those of
 * folders still to be entered.
 */
import { closeSync, fstatSync, type Dirent } from "node:fs";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { accepts } from "../models/acceptance.js";
import { openPlain } from "../files/disk.js";
import { errno } from "../base/errno.js";
import { asRadserveError, RadserveError, type ErrorCode, type ErrorObject } from "../base/errors.js";
import type { ModelEntry } from "../models/entry.js";
import { openInput, type OpenedInput } from "../files/guarded-paths.js";
import type { Roots } from "../files/roots.js";
import { FOLDER_LIMITS, readSeriesFolder } from "../inference/read-input.js";
import { classify, isHelper, type Kind, type WhySkipped, type SliceHead } from "./classify.js";
import { holdsSomething } from "../files/folder-mark.js";

/** Paths are relative to the folder; that of the folder itself is empty. */
export type Found = { path: string } & (
  { is: "input" } | { is: "skipped"; reason: WhySkipped } | { is: "failed"; error: ErrorObject }
);

type Failed = Found & { is: "failed" };

export interface ScanOptions {
  /** Absolute. */
  folder: string;
  roots: Roots["input"];
  /** The models that the job is about. */
  models: readonly ModelEntry[];
  /** Else a folder without an entry counts as one whose share is away. */
  mayBeEmpty?: boolean;
}

const LOOKED_AT_ONCE = 16;
/** Among the details of an error of a scan. */
export const UNREAD = "unread";

type Looked =
  Found | { is: "own" } | { is: "link"; path: string } | { is: "slice"; path: string; slice: SliceHead };

/**
 * Everything in a folder that is or could have been an input; Radserve's own results are not mentioned. Every folder
 * is entered once, however many links lead to it; links come last, so that a file is found under its own name.
 * @throws RadserveError where the folder itself cannot be entered, or is away; errors of the file system as they are
 */
export async function* scanFolder(options: ScanOptions): AsyncGenerator<Found> {
  if (options.mayBeEmpty !== true) await mustBeThere(options);
  const seen = new Set<string>();
  const links: string[] = [];
  const waiting = [""];
  for (;;) {
    const here = waiting.pop() ?? links.shift();
    if (here === undefined) return;
    const folder = await enter(options, here);
    if ("error" in folder) {
      yield folder;
      continue;
    }
    try {
      const { dev, ino } = fstatSync(folder.fd);
      if (seen.has(`${dev}:${ino}`)) continue;
      seen.add(`${dev}:${ino}`);
      const folders: string[] = [];
      yield* scanOne(options, folder, here, { folders, links });
      waiting.push(...folders.reverse());
    } finally {
      folder.close();
    }
  }
}

async function enter({ folder, roots }: ScanOptions, here: string): Promise<OpenedInput | Failed> {
  try {
    const opened = await openInput(path.posix.join(folder, here), roots);
    if (opened.kind === "folder") return opened;
    opened.close();
    throw new RadserveError("bad_request", "Expected input_folder_path to name a folder; found a file.");
  } catch (error) {
    if (here === "" || !(error instanceof RadserveError)) throw error;
    // Where all of it is away, no part of it is to blame
    await mustBeThere({ folder, roots });
    return unread(here, error.code, `${error.message} Nothing in this folder was read.`, error.details);
  }
}

/** What retrying cannot mend, because only another scan could find what there is. */
function unread(at: string, code: ErrorCode, message: string, details: RadserveError["details"]): Failed {
  const fix = "Send it as a new request once that is mended.";
  return failed(at, new RadserveError(code, `${message} ${fix}`, { ...details, [UNREAD]: true }));
}

/** Throws where the folder itself is gone, or a mount point without its mount. */
async function mustBeThere({ folder, roots }: Pick<ScanOptions, "folder" | "roots">): Promise<void> {
  const opened = await openInput(folder, roots);
  try {
    if (opened.kind === "folder" && !(await holdsSomething(opened.fdPath)))
      throw new RadserveError("input_not_found", "Expected the input folder to hold something; it is empty.");
  } finally {
    opened.close();
  }
}

const join = (here: string, name: string) => (here === "" ? name : `${here}/${name}`);

async function* scanOne(
  options: ScanOptions,
  folder: OpenedInput,
  here: string,
  later: { folders: string[]; links: string[] },
): AsyncGenerator<Found> {
  const entries = await readdir(folder.fdPath, { withFileTypes: true });
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  const files: Dirent[] = [];
  if (entries.some(({ name }) => isBroken(name))) yield* brokenNames(folder, here);
  for (const entry of entries) {
    if (isHelper(entry.name) || isBroken(entry.name)) continue;
    if (entry.isDirectory()) later.folders.push(join(here, entry.name));
    else files.push(entry);
  }
  const series = new SeriesOfFolder(options, files.length);
  for (let i = 0; i < files.length; i += LOOKED_AT_ONCE) {
    const some = files.slice(i, i + LOOKED_AT_ONCE);
    for (const looked of await Promise.all(some.map((entry) => look(options, folder, here, entry)))) {
      if (looked.is === "own") continue;
      if (looked.is === "link") later.links.push(looked.path);
      else if (looked.is !== "slice") yield looked;
      else if (!series.take(looked)) yield { path: looked.path, is: "input" };
    }
  }
  yield* series.decide(folder, here);
}

const isBroken = (name: string) => name.includes("\ufffd");

/** Files and folders whose names are no UTF-8: a result cannot be named after them. Told with their bytes (`M\xfcller`). */
async function* brokenNames(folder: OpenedInput, here: string): AsyncGenerator<Failed> {
  const message = "Expected a name in UTF-8; found other bytes. Rename the file or folder.";
  for (const name of await readdir(folder.fdPath, { encoding: "buffer" })) {
    if (!isBroken(name.toString())) continue;
    const bytes = (text: string) => `\\x${Buffer.from(text, "latin1").toString("hex")}`;
    const told = name.toString("latin1").replace(/[^\x20-\x7e]/g, bytes);
    yield unread(join(here, told), "bad_request", message, {});
  }
}

async function look(
  { folder: base, roots }: ScanOptions,
  folder: OpenedInput,
  here: string,
  entry: Dirent,
): Promise<Looked> {
  const { name } = entry;
  const at = join(here, name);
  if (entry.isFIFO() || entry.isSocket() || entry.isCharacterDevice() || entry.isBlockDevice())
    return { path: at, is: "skipped", reason: { code: "no_file", message: "A device, pipe or socket." } };
  try {
    if (entry.isFile()) return await lookAtFile(folder, name, at);
    const opened = await openInput(path.posix.join(base, at), roots);
    try {
      if (opened.kind === "folder") return { is: "link", path: at };
      return lookedOf(at, await classify(opened.fd, folder.fdPath, name));
    } finally {
      opened.close();
    }
  } catch (error) {
    if (error instanceof RadserveError) {
      await mustBeThere({ folder: base, roots });
      return failed(at, error);
    }
    if (isPermission(error))
      return failed(
        at,
        new RadserveError("path_not_allowed", "The server's user may not read this file.", {
          side: "input",
          reason: "permission",
        }),
      );
    if (isGone(error)) return { is: "own" };
    throw error;
  }
}

/** A plain file in a folder that is held open needs no look at the roots. */
async function lookAtFile(folder: OpenedInput, name: string, at: string): Promise<Looked> {
  const fd = await openPlain(`${folder.fdPath}/${name}`);
  try {
    return lookedOf(at, await classify(fd, folder.fdPath, name));
  } finally {
    closeSync(fd);
  }
}

function lookedOf(at: string, kind: Kind): Looked {
  if (kind.is === "own") return kind;
  if (kind.is === "skipped") return { path: at, is: "skipped", reason: kind.reason };
  return kind.slice === undefined ? { path: at, is: "input" } : { path: at, is: "slice", slice: kind.slice };
}

function failed(at: string, error: RadserveError): Failed {
  return { path: at, is: "failed", error: error.toObject() };
}

const isPermission = (error: unknown) => ["EACCES", "EPERM"].includes(errno(error));
/** Removed, or swapped for something else, since its folder was read. */
const isGone = (error: unknown) => ["ENOENT", "ELOOP", "ENXIO"].includes(errno(error));

/**
 * The files of one folder that could be the slices of a series. Where a model takes series and would take this one,
 * the folder is one item, and its files are items of their own only where a model of single images takes them too;
 * the other models then run on every slice within it.
 */
class SeriesOfFolder {
  readonly #files: { path: string; slice: SliceHead }[] = [];
  readonly #models: readonly ModelEntry[];
  readonly #possible: boolean;

  constructor({ models }: ScanOptions, files: number) {
    this.#models = models.filter(({ state }) => state === "ready");
    this.#possible =
      files <= FOLDER_LIMITS.files &&
      this.#models.some(({ manifest }) => manifest.accepts.dimensions === "series");
  }

  /** False where the file is an item whatever else is in the folder. */
  take(file: { path: string; slice: SliceHead }): boolean {
    if (!this.#possible || file.slice.seriesInstanceUid === undefined) return false;
    this.#files.push(file);
    return true;
  }

  async *decide(folder: OpenedInput, here: string): AsyncGenerator<Found> {
    const files = this.#files;
    const taken = await this.#asSeries(folder, here);
    if (taken !== undefined) yield taken;
    if (taken?.is === "input" && !files.some(({ slice }) => this.#fits(slice, "2d"))) return;
    for (const { path: at } of files) yield { path: at, is: "input" };
  }

  /** The folder as an item, where it holds a series that a model takes or might have taken. */
  async #asSeries(folder: OpenedInput, here: string): Promise<Found | undefined> {
    const slices = this.#files.map(({ slice }) => slice);
    const series = new Map<string, number>();
    for (const slice of slices)
      if (this.#fits(slice, "series"))
        series.set(slice.seriesInstanceUid ?? "", (series.get(slice.seriesInstanceUid ?? "") ?? 0) + 1);
    if (![...series.values()].some((count) => count > 1)) return undefined;
    const skipped = (code: string, message: string): Found => ({
      path: here,
      is: "skipped",
      reason: { code, message },
    });
    if (series.size > 1)
      return skipped(
        "several_series",
        `The folder holds ${series.size} series, so no model took one as a whole. Put each in a folder of its own.`,
      );
    try {
      const image = await readSeriesFolder(folder);
      const some = this.#models.some(
        (entry) => entry.manifest.accepts.dimensions === "series" && accepts(entry, image).length === 0,
      );
      return some ? { path: here, is: "input" } : undefined;
    } catch (error) {
      const { code, message } = asRadserveError(error);
      if (code === "internal") throw error;
      return skipped(code, `No model took the folder as one series. ${message}`);
    }
  }

  #fits({ modality, sopClassUid }: SliceHead, dimensions: "2d" | "series"): boolean {
    return this.#models.some(({ manifest: { accepts: rules } }) => {
      const among = (list: readonly string[] | undefined, value: string | undefined) =>
        list === undefined || (value !== undefined && list.includes(value));
      return (
        rules.dimensions === dimensions &&
        among(rules.formats, "dicom") &&
        among(rules.modality, modality) &&
        among(rules.sop_class, sopClassUid)
      );
    });
  }
}
