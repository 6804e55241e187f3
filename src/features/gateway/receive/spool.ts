/**
 * Where received objects lie until they are removed: a folder inside a root, which all boxes see.
 * Each object has one file, by its SOPInstanceUID, so that a second object of that UID is found
 * whatever series it says it is of:
 *
 *     objects/3f/1.2.840.113619.2.55.dcm
 *     series/PEER/STUDY/SERIES/1.2.840.113619.2.55.dcm
 *                                         the same file, under the names that inference reads
 *
 * All names are UIDs that were checked (PS3.5 section 9.1) and names of peers from the settings,
 * never other text of an object. The file is whole and synced before it has a name.
 */
import { createHash } from "node:crypto";
import { closeSync, constants, linkSync, lstatSync, readlinkSync, unlinkSync } from "node:fs";
import { lstat, mkdir, stat } from "node:fs/promises";
import path from "node:path";
import { errno, ifThere } from "../../../base/errno.js";
import { errors, RadserveError } from "../../../base/errors.js";
import { Gathering } from "../../../base/gathering.js";
import { descriptorPath } from "../../../files/descriptor.js";
import { noteDevice, onBlockDevice, openDescriptor } from "../../../files/disk.js";
import { explainedFault, hashFile, syncFolder } from "../../../files/durable-files.js";
import { receiveFile } from "../../../files/new-file.js";
import { isUnmounted } from "../../../files/roots.js";
import { readHead, type DicomHead } from "../../../images/dicom/dicom-file.js";
import { fileHead } from "../../../results/dicom/elements.js";

/** Bytes of an object in which its UIDs have to lie; they come before everything that is large. */
const MOST_HEAD_BYTES = 16 * 1024 * 1024;
const FIRST_HEAD_BYTES = 64 * 1024;

/** An object on its way into the spool. */
export interface Arriving {
  sopClassUid: string;
  sopInstanceUid: string;
  transferSyntax: string;
  /**
   * The data set, without preamble and File Meta Information; a piece holds until the next one is
   * asked for.
   */
  dataSet: AsyncIterable<Buffer>;
}

export interface Kept {
  studyInstanceUid: string;
  seriesInstanceUid: string;
  /** The folder of its series. */
  folder: string;
  /** False where the same bytes were there before. */
  fresh: boolean;
  bytes: number;
  /** Hex, of the whole file. */
  sha256: string;
}

export interface SpoolLimits {
  /** Bytes of one object. */
  mostBytes: number;
  /** disk_full where the file system would have less left. */
  minimumFreeBytes: number;
}

/** A UID (PS3.5 section 9.1): no component begins with 0 unless it is 0. */
export const isUid = (text: string | undefined): text is string =>
  text !== undefined && text.length <= 64 && /^(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*$/.test(text);

const OBJECTS = "objects";

/** All at once: later each would ask the disk for a sync of its own. */
async function makeDrawers(objects: string): Promise<void> {
  for (let i = 0; i < 0x100; i++)
    await mkdir(path.join(objects, i.toString(16).padStart(2, "0")), { mode: 0o770 }).catch(
      ifThere,
    );
  await syncFolder(objects);
}

/** The names of an object below the spool. */
export function objectPath(sopInstanceUid: string): [string, string, string] {
  const drawer = createHash("sha256").update(sopInstanceUid).digest("hex").slice(0, 2);
  return [OBJECTS, drawer, `${sopInstanceUid}.dcm`];
}

/** The names of the folder of a series below the spool. */
export const seriesPath = (peer: string, study: string, series: string): string[] => [
  "series",
  peer,
  study,
  series,
];

interface Folder {
  path: string;
  /** Open. */
  fd: number;
  fdPath: string;
}

export class Spool {
  constructor(
    private readonly folder: string,
    private readonly limits: SpoolLimits,
  ) {}

  /**
   * Keeps an object: when this resolves, the disk has it under both names.
   * @param peer a name from the settings
   * @throws RadserveError bad_request for UIDs that are missing, malformed or not those that were
   * announced; file_exists for another object of the same SOPInstanceUID; body_too_large,
   * disk_full, corrupt_image
   */
  async keep(peer: string, object: Arriving): Promise<Kept> {
    const { dev } = await stat(this.folder);
    if (isUnmounted(this.folder, dev))
      throw errors.input_not_found("The spool's share is not mounted. Send it again later.");
    try {
      return await this.#kept(peer, object, dev);
    } catch (error) {
      const explained = explainedFault(error, "input");
      throw explained instanceof RadserveError && explained.code === "disk_full"
        ? explained
        : error;
    }
  }

  async #kept(peer: string, object: Arriving, dev: number): Promise<Kept> {
    const { sopInstanceUid } = object;
    if (!isUid(sopInstanceUid)) throw badUid("SOPInstanceUID");
    const pieces = object.dataSet[Symbol.asyncIterator]();
    const { head, begun } = await readBeginning(object, pieces);
    const { studyInstanceUid, seriesInstanceUid } = namesOf(head, object);
    const [objectsName, drawer, name] = objectPath(sopInstanceUid);
    const objects = await this.#open(dev, objectsName, drawer);
    let series: Folder | undefined;
    try {
      const options = { ...this.limits, overwrite: false, waits: true, leaveFolder: true } as const;
      const file = await receiveFile(objects.fdPath, name, resumed(begun, pieces), options);
      const first = `${objects.fdPath}/${name}`;
      try {
        series = await this.#open(dev, ...seriesPath(peer, studyInstanceUid, seriesInstanceUid));
        // By its path: a folder that was taken away for removal is not there any more
        await linkOnce(first, path.join(series.path, name), file.sha256);
      } catch (error) {
        // Nobody was told that it is kept, nothing would remove it, and its UID would refuse other
        // bytes
        if (file.outcome === "created" && lstatSync(first).nlink === 1) unlinkSync(first);
        throw error;
      }
      await Promise.all([syncFolder(objects.fdPath), syncFolder(series.fdPath)]);
      const { bytes, sha256, outcome } = file;
      const fresh = outcome === "created";
      return { studyInstanceUid, seriesInstanceUid, folder: series.path, fresh, bytes, sha256 };
    } finally {
      closeSync(objects.fd);
      if (series !== undefined) closeSync(series.fd);
    }
  }

  /**
   * Opens the folder below the spool, and makes it where it is not there.
   * @param dev the spool's device
   */
  async #open(dev: number, ...names: readonly string[]): Promise<Folder> {
    const folder = path.join(this.folder, ...names);
    const flags = constants.O_RDONLY | constants.O_DIRECTORY;
    // At once where it is this machine's disk: a folder that is there is found in memory
    const now = onBlockDevice({ dev });
    const fd = await openDescriptor(folder, flags, undefined, now).catch(async (error: unknown) => {
      if (!["ENOENT", "ENOTDIR"].includes(errno(error))) throw error;
      return openDescriptor(await this.made(...names), flags);
    });
    noteDevice(fd, { dev });
    const fdPath = descriptorPath(fd);
    // A link would lead out of the spool
    if (readlinkSync(fdPath) === folder) return { path: folder, fd, fdPath };
    closeSync(fd);
    throw noFolder();
  }

  /** The folder below the spool; each one that is made is synced into the one that holds it. */
  async made(...names: readonly string[]): Promise<string> {
    let folder = this.folder;
    for (const name of names) {
      const holder = folder;
      folder = path.join(holder, name);
      try {
        await mkdir(folder, { mode: 0o770 });
        if (folder === path.join(this.folder, OBJECTS)) await makeDrawers(folder);
        await syncFolder(holder);
      } catch (error) {
        if (errno(error) !== "EEXIST") throw error;
        // A link would lead out of the spool
        if (!(await lstat(folder)).isDirectory()) throw noFolder();
      }
    }
    return folder;
  }
}

const noFolder = () =>
  errors.path_not_allowed("Expected folders in the spool; found something else.");

function badUid(keyword: string): RadserveError {
  return errors.bad_request(
    `Expected ${keyword} to be a UID of digits and dots, at most 64 characters; found another, or none. Correct the object at its source.`,
    { attribute: keyword },
  );
}

/** The pieces that were read to find the head, the file's own beginning before them. */
interface Beginning {
  head: DicomHead;
  begun: Buffer[];
}

async function readBeginning(
  { sopClassUid, sopInstanceUid, transferSyntax }: Arriving,
  pieces: AsyncIterator<Buffer>,
): Promise<Beginning> {
  const begun = new Gathering();
  begun.add(fileHead(sopClassUid, sopInstanceUid, transferSyntax));
  let tried = FIRST_HEAD_BYTES;
  for (;;) {
    const next = await pieces.next();
    const whole = next.done === true;
    const piece = whole ? Buffer.alloc(0) : next.value;
    const bytes = begun.bytes.length + piece.length;
    if (whole || bytes >= tried) {
      const all = [begun.bytes, piece];
      try {
        return { head: readHead(Buffer.concat(all, Math.min(bytes, tried)), whole), begun: all };
      } catch (error) {
        const mayCome = error instanceof RadserveError && error.code === "truncated_image";
        if (whole || !mayCome || bytes >= MOST_HEAD_BYTES) throw error;
        tried = bytes * 2;
      }
    }
    begun.add(piece);
  }
}

function namesOf(
  { attributes }: DicomHead,
  { sopClassUid, sopInstanceUid }: Arriving,
): Pick<Kept, "studyInstanceUid" | "seriesInstanceUid"> {
  const found = { SOPClassUID: sopClassUid, SOPInstanceUID: sopInstanceUid };
  for (const [keyword, announced] of Object.entries(found))
    if (attributes.string(keyword) !== announced)
      throw errors.bad_request(
        `Expected ${keyword} of the data set to be the one that was announced; found another, or none. Correct the object at its source.`,
        { attribute: keyword },
      );
  const [studyInstanceUid, seriesInstanceUid] = ["StudyInstanceUID", "SeriesInstanceUID"].map(
    (keyword) => {
      const uid = attributes.string(keyword);
      if (!isUid(uid)) throw badUid(keyword);
      return uid;
    },
  );
  if (studyInstanceUid === undefined || seriesInstanceUid === undefined)
    throw badUid("StudyInstanceUID");
  return { studyInstanceUid, seriesInstanceUid };
}

async function* resumed(
  begun: readonly Buffer[],
  pieces: AsyncIterator<Buffer>,
): AsyncGenerator<Buffer> {
  yield* begun;
  for (let next = await pieces.next(); next.done !== true; next = await pieces.next())
    yield next.value;
}

/**
 * Gives the file its second name; what has that name already is the same file, or has the same
 * bytes.
 */
async function linkOnce(from: string, to: string, sha256: string): Promise<void> {
  try {
    linkSync(from, to);
  } catch (error) {
    if (errno(error) !== "EEXIST") throw error;
    if ((await hashFile(to)) !== sha256)
      throw errors.file_exists(
        "Expected no file of that name in the spool; found one with other bytes.",
      );
  }
}
