/** The staging folder of one NAME, and what all steps of a commit share. */
import { closeSync, constants, fstatSync } from "node:fs";
import { rm } from "node:fs/promises";
import { ifThere } from "../../base/errno.js";
import { errors, type RadserveError } from "../../base/errors.js";
import { descriptorPath } from "../../files/descriptor.js";
import {
  exactFacts,
  lstat,
  mkdir,
  openDescriptor,
  readdir,
  rename,
  rmdir,
} from "../../files/disk.js";
import { ifMissing, syncFolder } from "../../files/durable-files.js";
import { stagingName } from "../../files/helper-names.js";
import type { NameLock } from "../../files/name-lock.js";
import { isSameFile } from "../../files/same-file.js";

/**
 * Names in the staging folder: the staged receipt, which is the mark, and the receipt that is being
 * replaced.
 */
export const MARK = "receipt.json";
export const PREVIOUS = "previous.json";
/** Names in it of the files that say to where the new and the old result are delivered. */
export const DELIVERY = "delivery.json";
export const PREVIOUS_DELIVERY = "previous.delivery.json";
/** Folder in it where Radserve 0.6 put the new files. */
const OLDER_FILES = "files";
/** Opens the folder of that name, and never what a link leads to. */
const FOLDER_ITSELF = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Retries while a share is busy; each waits a tenth of a second longer than the one before. */
const MOST_RETRIES = 4;

export interface StagingTarget {
  dir: string;
  name: string;
  lock: NameLock;
  step: (step: string) => void | Promise<void>;
}

/**
 * The staging folder, open by its descriptor: if another holder of NAME deletes it and makes its
 * own, the old path would lead to that one.
 */
export class Staging {
  private constructor(
    readonly path: string,
    private readonly fd: number,
    /** What the names of the new files in it begin with. */
    private readonly files: "" | `${typeof OLDER_FILES}/`,
  ) {}

  /**
   * Makes a new one for NAME.
   * @throws RadserveError overloaded (the lock was lost); errors of the file system as they are
   */
  static async make(target: StagingTarget): Promise<Staging> {
    const path = `${target.dir}/${stagingName(target.name)}`;
    await target.step("make the staging folder");
    await requireHeld(target);
    await mkdir(path);
    return new Staging(path, await openDescriptor(path, FOLDER_ITSELF), "");
  }

  /**
   * Opens one that an earlier holder left: the folder itself, never what a link of that name leads
   * to.
   */
  static async open(path: string): Promise<Staging> {
    const fd = await openDescriptor(path, FOLDER_ITSELF);
    try {
      const isOlder = await exists(`${descriptorPath(fd)}/${OLDER_FILES}`);
      return new Staging(path, fd, isOlder ? `${OLDER_FILES}/` : "");
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /** Path of an entry, through the open descriptor. */
  at(entry: string): string {
    return `${descriptorPath(this.fd)}/${entry}`;
  }

  /** Path of a new file that is not yet in place: no other entry ends as its name does. */
  fileAt(name: string): string {
    return this.at(`${this.files}${name}`);
  }

  /** Makes a folder in it, where there is none yet. */
  async makeFolder(entry: string): Promise<void> {
    await mkdir(this.at(entry)).catch(ifThere);
  }

  sync(): Promise<void> {
    return syncFolder(this.at("."));
  }

  /** Another may have made a folder under the same name since. */
  async #isThere(): Promise<boolean> {
    const mine = fstatSync(this.fd, { bigint: true });
    return isSameFile(await exactFacts(this.path).catch(ifMissing(undefined)), mine);
  }

  /** Keeps this folder under another name. */
  async keepAs(path: string): Promise<void> {
    if (await this.#isThere()) await rename(this.path, path);
  }

  /** Removes this folder, unless another has its name. */
  async remove(): Promise<void> {
    if (!(await this.#isThere())) return;
    for (const entry of await readdir(this.at(".")))
      await rm(this.at(entry), { recursive: true, force: true, maxRetries: MOST_RETRIES });
    await rmdir(this.path).catch(ifMissing(undefined));
  }

  close(): void {
    closeSync(this.fd);
  }
}

export const exists = (path: string): Promise<boolean> =>
  lstat(path).then(() => true, ifMissing(false));

export function nameTaken(found: string): RadserveError {
  return errors.output_name_taken(
    `Expected the result's name to be free in the output folder, but ${found} lies there. ` +
      "Choose another output folder, or move that away.",
  );
}

/** @throws RadserveError overloaded, where another has taken NAME over */
export async function requireHeld({ lock }: Pick<StagingTarget, "lock">): Promise<void> {
  if (!(await lock.isHeld())) throw lostLock();
}

export function lostLock(): RadserveError {
  return errors.overloaded(
    "The server stood still for so long that another took over this result's name. Repeat the request: it finds what the other wrote, or works again.",
  );
}
