/**
 * Where received objects lie until they are removed: a folder inside a root, which all nodes see.
 * An object is known by its sender, patient, study, series and instance, so that nobody can keep a
 * UID from another peer or patient:
 *
 *     series/PEER/STUDY/SERIES/1.2.840.113619.2.55.dcm
 *     again/PEER/STUDY/SERIES/1.2.840.113619.2.55.HASH   it took the place of a damaged one
 *     replace/PEER/STUDY/SERIES                          those of other bytes may take their place
 *     objects/3f/1.2.840.113619.2.55.dcm                 its second name, of version 0.6
 *
 * All names are UIDs that were checked and names of peers from the settings, never other text of an
 * object. The file is whole, walked to its end and synced before it has a name. STUDY is the
 * StudyInstanceUID, or, of a second patient, one with a hash behind it.
 */
import { createHash } from "node:crypto";
import { closeSync, constants, readlinkSync } from "node:fs";
import { link, lstat, mkdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { errno } from "../../../base/errno.js";
import { errors, RadserveError } from "../../../base/errors.js";
import { Gathering } from "../../../base/gathering.js";
import { descriptorPath } from "../../../files/descriptor.js";
import { deviceOf, onBlockDevice, openDescriptor } from "../../../files/disk.js";
import {
  explainedFault,
  hashFile,
  ifMissing,
  syncFolder,
  withPlain,
} from "../../../files/durable-files.js";
import { receiveFile, replaceFile } from "../../../files/new-file.js";
import { isUnmounted } from "../../../files/roots.js";
import { isSameFile } from "../../../files/same-file.js";
import { readHead, type DicomHead } from "../../../images/dicom/dicom-file.js";
import { isImageClass } from "../../../images/dicom/image-classes.js";
import { isUid } from "../../../images/dicom/value-forms.js";
import { fileHead } from "../../../results/dicom/elements.js";
import { Conflicts } from "./conflicts.js";
import { checkOdd, isDamaged, lacksEnds } from "./judge.js";
import { Patients, studyOf } from "./patients.js";
import { Shares, type Coming } from "./shares.js";
import { WholeObject } from "./whole-object.js";

/** Bytes of an object in which its UIDs have to lie; they come before everything that is large. */
const MOST_HEAD_BYTES = 16 * 1024 * 1024;
const USUAL_HEAD_BYTES = 64 * 1024;
/** A slow sender is known by fewer. */
const FIRST_HEAD_BYTES = 4 * 1024;

/** How often a folder is made, at most, that others remove as empty. */
const MOST_TRIES = 10;

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
  /** Told as soon as its head has come, whether it will be kept or not. */
  named?: (place: SeriesPlace) => void;
  /** Asked when it is whole, before it appears; what it throws keeps it out. */
  appears?: (place: SeriesPlace, studyInstanceUid: string) => Promise<void>;
}

/** Where the objects of a series lie. */
export interface SeriesPlace {
  peer: string;
  /** The name of the folder of its study, which a second patient does not share. */
  study: string;
  /** SeriesInstanceUID. */
  series: string;
}
export const keyOfPlace = ({ peer, study, series }: SeriesPlace): string =>
  `${peer}/${study}/${series}`;

export const placeOf = (
  peer: string,
  { study, seriesInstanceUid: series }: Pick<KeptObject, "study" | "seriesInstanceUid">,
): SeriesPlace => ({ peer, study, series });

export interface KeptObject {
  sopInstanceUid: string;
  studyInstanceUid: string;
  /** The name of the folder of its study, which a second patient does not share. */
  study: string;
  seriesInstanceUid: string;
  /** The folder of its series. */
  folder: string;
  /** Nothing of that name was there before. */
  fresh: boolean;
  /** Other bytes lie there than before, or some where none did. */
  changed: boolean;
  bytes: number;
  /** Hex, of the whole file. */
  sha256: string;
}

export interface SpoolLimits {
  /** Bytes of one object. */
  mostBytes: number;
  /** disk_full where the file system would have less left. */
  minimumFreeBytes: number;
  /** Part of the disk that one peer may fill, as `Shares` has it. */
  peerShare: number;
}

/**
 * A component begins with 0 and is not 0, or is empty: the standard has no such UID (PS3.5 section
 * 9.1). It is accepted at every listener, and told in the log.
 */
export const isOddUid = (text: string): boolean => /(^|\.)(0[0-9]|\.|$)/.test(text);

const OBJECTS = "objects";
const REPLACE = "replace";
/** For how long objects with other bytes may come in the place of those that lie there. */
const REPLACEABLE_MS = 86_400_000;

/** The second name that version 0.6 gave each object, below the spool. */
export function objectPath(sopInstanceUid: string): [string, string, string] {
  const drawer = createHash("sha256").update(sopInstanceUid).digest("hex").slice(0, 2);
  return [OBJECTS, drawer, `${sopInstanceUid}.dcm`];
}

/** The names of the folder that says which objects of a series took the place of damaged ones. */
export const againPath = (peer: string, study: string, series: string): string[] => [
  "again",
  peer,
  study,
  series,
];

/** The names of the folder of a series below the spool. */
export const seriesPath = (peer: string, study: string, series: string): string[] => [
  "series",
  peer,
  study,
  series,
];

export class Spool {
  #judging: Promise<unknown> = Promise.resolve();
  /** Folders that were made, and that the disk may not have: one whose fault was met, say. */
  readonly #unsynced = new Set<string>();
  readonly patients: Patients;
  readonly conflicts: Conflicts;
  readonly shares: Shares;

  constructor(
    private readonly folder: string,
    private readonly limits: SpoolLimits,
  ) {
    this.conflicts = new Conflicts(folder, (...names) => this.made(...names));
    this.patients = new Patients(folder, (...names) => this.made(...names));
    const { minimumFreeBytes, peerShare: part } = limits;
    this.shares = new Shares({ folder, part, minimumFreeBytes });
  }

  /**
   * Keeps an object: when this resolves, the disk has it, and it is whole.
   * @param peer a name from the settings
   * @throws RadserveError bad_request for UIDs that are missing, malformed or not those that were
   * announced; file_exists for another
   * whole object of this peer, study, series and instance;
   * body_too_large, disk_full, share_unavailable, spool_share_full, corrupt_image, truncated_image
   */
  async keep(peer: string, object: Arriving): Promise<KeptObject> {
    const dev = await deviceOf(this.folder).catch((error: unknown) => {
      throw faultOfSpool(error);
    });
    if (isUnmounted(this.folder, dev))
      throw errors.share_unavailable("The spool's share is not mounted. Send it again later.");
    try {
      const begun = await this.#begun(peer, object);
      const coming = await this.shares.begin(peer);
      let fresh = false;
      try {
        const kept = await this.#kept(peer, object, begun, dev, coming);
        fresh = kept.fresh;
        return kept;
      } finally {
        coming.end(fresh);
      }
    } catch (error) {
      throw faultOfSpool(error);
    }
  }

  /** The head, before there may be room for the rest: it says of which series something is lost. */
  async #begun(peer: string, object: Arriving): Promise<Begun> {
    const { sopInstanceUid } = object;
    // Not by `for await`, which would end them where they are refused: an association reads the
    // rest
    const pieces = object.dataSet[Symbol.asyncIterator]();
    // Where it has no name that can be one, its series can be read all the same
    const readable = isUid(sopInstanceUid) ? object : { ...object, sopInstanceUid: "0" };
    const { head, begun, headBytes } = await readBeginning(readable, pieces);
    const [studyInstanceUid, seriesInstanceUid] = ["StudyInstanceUID", "SeriesInstanceUID"].map(
      (keyword) => head.attributes.string(keyword),
    );
    const named = (study: string) =>
      object.named?.({ peer, study, series: seriesInstanceUid ?? "" });
    if (isUid(studyInstanceUid) && isUid(seriesInstanceUid)) named(studyInstanceUid);
    if (!isUid(sopInstanceUid)) throw badUid("SOPInstanceUID", sopInstanceUid);
    checkAnnounced(head, object);
    if (!isUid(studyInstanceUid)) throw badUid("StudyInstanceUID", studyInstanceUid);
    if (!isUid(seriesInstanceUid)) throw badUid("SeriesInstanceUID", seriesInstanceUid);
    const study = await this.patients.folderOf(
      peer,
      studyInstanceUid,
      [seriesInstanceUid, `${sopInstanceUid}.dcm`],
      head.attributes,
    );
    if (study !== studyInstanceUid) named(study);
    return { head, begun, headBytes, pieces, studyInstanceUid, seriesInstanceUid, study };
  }

  async #kept(
    peer: string,
    object: Arriving,
    { head, begun, headBytes, pieces, studyInstanceUid, seriesInstanceUid, study }: Begun,
    dev: number,
    coming: Coming,
  ): Promise<KeptObject> {
    const { sopInstanceUid } = object;
    const file = `${sopInstanceUid}.dcm`;
    const names = [peer, study, seriesInstanceUid] as const;
    const series = await this.#folder(dev, ...seriesPath(...names));
    const isImage = isImageClass(object.sopClassUid);
    const walk = new WholeObject(object.transferSyntax, isImage);
    const walked = walking([...begun], pieces, headBytes, walk, coming);
    // By its path: a folder that was taken away for removal is made again
    const written = await receiveFile(series, file, walked, {
      ...this.limits,
      overwrite: (there, sha256, fd) =>
        this.#givesWay(there, sopInstanceUid, names, { sha256, fd }),
      check: async (content) => {
        if (walk.isOdd) {
          const fd = await content.written();
          await this.#oneAtATime(() => checkOdd(fd, isImage));
        }
        const place = { peer, study, series: seriesInstanceUid };
        await object.appears?.(place, studyInstanceUid);
      },
      dev,
      makeFolder: () => this.made(...seriesPath(...names)),
    });
    const { bytes, sha256, outcome } = written;
    const settled =
      study === studyInstanceUid
        ? await this.patients.settled(peer, study, [seriesInstanceUid, file], head.attributes)
        : study;
    const folder =
      settled === study
        ? series
        : await this.#moved(series, file, peer, settled, seriesInstanceUid);
    if (settled !== studyInstanceUid) await this.#noteApart(peer, settled);
    return {
      sopInstanceUid,
      studyInstanceUid,
      study: settled,
      seriesInstanceUid,
      folder,
      fresh: outcome === "created",
      changed: outcome !== "same",
      bytes,
      sha256,
    };
  }

  /**
   * Takes an object to the folder of its own patient: another's came at the same moment.
   * @returns the folder of its series there
   * @throws RadserveError file_exists where it lies there with other bytes
   */
  async #moved(from: string, file: string, ...names: [string, string, string]): Promise<string> {
    const here = path.join(from, file);
    const to = await this.within(seriesPath(...names), async (folder) => {
      const there = path.join(folder, file);
      try {
        await link(here, there);
      } catch (error) {
        if (errno(error) !== "EEXIST") throw error;
        if ((await hashFile(here)) !== (await hashFile(there))) {
          await rm(here, { force: true });
          throw await this.#otherBytes(names);
        }
      }
      await syncFolder(folder);
      return folder;
    });
    await rm(here, { force: true });
    await syncFolder(from);
    return to;
  }

  /** Says that a study came under two PatientIDs, as long as both of its folders are there. */
  async #noteApart(peer: string, study: string): Promise<void> {
    const other = path.join(this.folder, "series", peer, studyOf(study));
    if ((await lstat(other).catch(ifMissing(undefined))) !== undefined)
      await this.conflicts.note(peer, study, "PatientID");
  }

  async #otherBytes([peer, study]: readonly [string, string, string]): Promise<RadserveError> {
    await this.conflicts.note(peer, study, "SOPInstanceUID");
    return errors.file_exists(
      "Expected no object of that SOPInstanceUID in the series; found a whole one with other bytes.",
      { attribute: "SOPInstanceUID", found: "another whole object has it" },
    );
  }

  /**
   * A person says that objects of a series with other bytes are right: for a day they take the
   * place of those that lie there.
   */
  async replaceable({ peer, study, series }: SeriesPlace): Promise<void> {
    await this.within([REPLACE, peer, study], (folder) => replaceFile(folder, series, ""));
    await this.conflicts.settle(peer, study);
  }

  async #isReplaceable(names: readonly [string, string, string]): Promise<boolean> {
    const file = path.join(this.folder, REPLACE, ...names);
    const found = await lstat(file).catch(ifMissing(undefined));
    return found?.isFile() === true && Math.abs(Date.now() - found.mtimeMs) < REPLACEABLE_MS;
  }

  /**
   * Whether an object that lies there is damaged, so that the whole one takes its place. That it
   * did is written down before: the series is another one then, and makes another job.
   * @throws RadserveError file_exists
   */
  async #givesWay(
    there: string,
    sopInstanceUid: string,
    names: readonly [string, string, string],
    { sha256, fd }: { sha256: string; fd: number },
  ): Promise<boolean> {
    const isWorse = async () =>
      (await isDamaged(there)) ||
      ((await withPlain(there, lacksEnds)) === true && !(await lacksEnds(fd)));
    const givesWay = (await this.#oneAtATime(isWorse)) || (await this.#isReplaceable(names));
    if (!givesWay) throw await this.#otherBytes(names);
    // The second name of version 0.6
    const second = path.join(this.folder, ...objectPath(sopInstanceUid));
    const [one, other] = await Promise.all(
      [there, second].map((file) => lstat(file, { bigint: true }).catch(ifMissing(undefined))),
    );
    // By which file goes, too: the first bytes may come once more after others
    const change = [sha256, one?.ino, one?.mtimeNs].join(" ");
    const hash = createHash("sha256").update(change).digest("hex").slice(0, 16);
    await this.within(againPath(...names), async (again) => {
      await writeFile(path.join(again, `${sopInstanceUid}.${hash}`), "");
      await syncFolder(again);
    });
    if (isSameFile(one, other)) await rm(second, { force: true });
    return true;
  }

  /** Objects that have to be read whole are, one after the other: memory holds one. */
  #oneAtATime<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#judging.then(work);
    this.#judging = done.catch(() => undefined);
    return done;
  }

  /**
   * The folder below the spool, which is made where it is not there.
   * @param dev the spool's device
   */
  async #folder(dev: number, ...names: readonly string[]): Promise<string> {
    const folder = path.join(this.folder, ...names);
    const flags = constants.O_RDONLY | constants.O_DIRECTORY;
    // At once where it is this machine's disk: a folder that is there is found in memory
    const now = onBlockDevice({ dev });
    const make = async () => openDescriptor(await this.made(...names), flags);
    const isThere = this.#unsynced.size === 0;
    const fd = await (isThere ? openDescriptor(folder, flags, undefined, now) : make()).catch(
      async (error: unknown) => {
        if (!isThere || !["ENOENT", "ENOTDIR"].includes(errno(error))) throw error;
        return make();
      },
    );
    const opened = readlinkSync(descriptorPath(fd));
    closeSync(fd);
    // A link would lead out of the spool
    if (opened !== folder) throw noFolder();
    return folder;
  }

  /**
   * Works in a folder below the spool, which is made where it is not there. Another association or
   * node may remove it as empty before the work has put something into it: then the folder is made
   * and the work is done once more, so the work may be repeated.
   */
  async within<T>(names: readonly string[], work: (folder: string) => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1)
      try {
        return await work(await this.made(...names));
      } catch (error) {
        if (tries === MOST_TRIES || !isGone(error)) throw error;
      }
  }

  /** The folder below the spool; each one that is made is synced into the one that holds it. */
  async made(...names: readonly string[]): Promise<string> {
    let folder = this.folder;
    for (const name of names) {
      const holder = folder;
      folder = path.join(holder, name);
      try {
        await mkdir(folder, { mode: 0o770 });
        this.#unsynced.add(folder);
      } catch (error) {
        if (errno(error) !== "EEXIST") throw error;
        // A link would lead out of the spool
        if (!(await lstat(folder)).isDirectory()) throw noFolder();
      }
      if (!this.#unsynced.has(folder)) continue;
      await syncFolder(holder);
      this.#unsynced.delete(folder);
    }
    return folder;
  }
}

/** Whether a file or folder on the way was not there. */
function isGone(error: unknown): boolean {
  const explained = error instanceof RadserveError ? error.details?.["errno"] : undefined;
  return (explained ?? errno(error)) === "ENOENT";
}

/** Faults of the system are the spool's, and not the object's: it is sent again later. */
function faultOfSpool(thrown: unknown): unknown {
  const explained = explainedFault(thrown, "input");
  if (!(explained instanceof RadserveError)) return thrown;
  const { code, details, cause } = explained;
  const fault = details?.["errno"];
  // The audit lies on another disk, and says so
  const isNamed = ["audit_failed", "disk_full", "share_unavailable"].includes(code);
  if (typeof fault !== "string" || isNamed) return explained;
  return errors.share_unavailable(
    `The spool's disk or share cannot be used (${fault}). Look at it on the server; nothing of the object was acknowledged, so send it again when it is mended.`,
    { errno: fault, side: "input" },
    { cause },
  );
}

const noFolder = () =>
  errors.path_not_allowed("Expected folders in the spool; found something else.");

function badUid(attribute: string, text: string | undefined): RadserveError {
  const found =
    text === undefined || text === ""
      ? "missing"
      : text.length > 64
        ? `${text.length} characters`
        : "other characters than digits and dots";
  return errors.bad_request(
    `Expected ${attribute} to be a UID of digits and dots, at most 64 characters; found: ${found}. Correct the object at its source.`,
    { attribute, found },
  );
}

/** The pieces that were read to find the head, the file's own beginning before them. */
interface Beginning {
  head: DicomHead;
  begun: Buffer[];
  /** Of the file's own beginning. */
  headBytes: number;
}

/** An object whose head has come. */
interface Begun extends Beginning {
  pieces: AsyncIterator<Buffer>;
  studyInstanceUid: string;
  seriesInstanceUid: string;
  /** The name of the folder of its study. */
  study: string;
}

async function readBeginning(
  { sopClassUid, sopInstanceUid, transferSyntax }: Arriving,
  pieces: AsyncIterator<Buffer>,
): Promise<Beginning> {
  const begun = new Gathering();
  begun.add(fileHead(sopClassUid, sopInstanceUid, transferSyntax));
  const headBytes = begun.bytes.length;
  let tried = FIRST_HEAD_BYTES;
  for (;;) {
    const next = await pieces.next();
    const whole = next.done === true;
    const piece = whole ? Buffer.alloc(0) : next.value;
    const bytes = begun.bytes.length + piece.length;
    if (whole || bytes >= tried) {
      const all = [begun.bytes, piece];
      try {
        const head = readHead(
          Buffer.concat(all, Math.min(bytes, Math.max(tried, USUAL_HEAD_BYTES))),
          whole,
        );
        return { head, begun: all, headBytes };
      } catch (error) {
        const mayCome = error instanceof RadserveError && error.code === "truncated_image";
        if (whole || !mayCome || bytes >= MOST_HEAD_BYTES) throw error;
        tried = bytes * 2;
      }
    }
    begun.add(piece);
  }
}

/** @throws RadserveError bad_request where it is another object than the one that was announced */
function checkAnnounced(
  { attributes }: DicomHead,
  { sopClassUid, sopInstanceUid }: Arriving,
): void {
  const found = { SOPClassUID: sopClassUid, SOPInstanceUID: sopInstanceUid };
  for (const [keyword, announced] of Object.entries(found))
    if (attributes.string(keyword) !== announced)
      throw errors.bad_request(
        `Expected ${keyword} of the data set to be the one that was announced; found another, or none. Correct the object at its source.`,
        { attribute: keyword, found: "not what the command says" },
      );
}

/**
 * What was read to find the head, and then the rest, as far as there is room for it; the walk has
 * seen each piece.
 * @param skipped bytes before the data set
 */
async function* walking(
  begun: Buffer[],
  pieces: AsyncIterator<Buffer>,
  skipped: number,
  walk: WholeObject,
  coming: Coming,
): AsyncGenerator<Buffer, void, undefined> {
  let left = skipped;
  const following = async () => {
    const next = await pieces.next();
    return next.done === true ? undefined : next.value;
  };
  for (;;) {
    const piece = begun.shift() ?? (await following());
    if (piece === undefined) break;
    const looked = coming.add(piece.length);
    if (looked !== undefined) await looked;
    walk.add(piece.subarray(left));
    left = Math.max(0, left - piece.length);
    yield piece;
  }
  walk.end();
}
