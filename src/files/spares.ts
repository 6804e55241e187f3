/**
 * Lock files and staging folders that serve again. Every result needs one of each for a moment, and a file system that
 * takes its time to use the place of a removed file again (ext4 without a journal waits five minutes) searches longer and
 * longer for a free one: at 40 results a second a sixth of all processor time went there.
 *
 * What was made for a folder of results is kept for that folder alone, because it has the folder's group and access
 * rights; meanwhile it lies in a folder of this thread in the server's state folder. That works where both lie on one
 * mount. Elsewhere nothing is kept, and callers make and remove as they would without this.
 */
import { closeSync, mkdirSync, rmSync, statSync, type Stats } from "node:fs";
import { rename } from "./disk.js";
import { linkDescriptor } from "./durable-files.js";

/** So many of each are kept, for so many folders of results as were used last. */
const MOST_FOLDERS = 4;
const MOST_OF_EACH = 4;
const MOST_APART = 1000;

/** Whose spares may serve there: the same folder, and still with the same owner and rights. */
export type FolderKey = string;

export const keyOfFolder = ({ dev, ino, mode, uid, gid }: Stats): FolderKey =>
  [dev, ino, mode, uid, gid].join(":");

/** A file that is open, and its name here. */
export interface SpareFile {
  fd: number;
  path: string;
}

/** What is kept for one folder. */
interface Kept {
  files: SpareFile[];
  folders: string[];
  /** Folders that are being moved here. */
  moving: number;
}

export class Spares {
  readonly #kept = new Map<FolderKey, Kept>();
  readonly #dev: number;
  #count = 0;
  /** Folders that lie on another mount than this one. */
  readonly #apart = new Set<FolderKey>();

  /** @param home a folder of this thread alone, which is made where it is missing */
  constructor(private readonly home: string) {
    mkdirSync(home, { recursive: true, mode: 0o700 });
    this.#dev = statSync(home).dev;
  }

  takeFile(key: FolderKey): SpareFile | undefined {
    return this.#kept.get(key)?.files.pop();
  }

  /**
   * Gives a file a name here, so that it outlives its others.
   * @param fd of a file that was made in that folder of results
   * @returns undefined where it cannot have one
   */
  adopt(key: FolderKey, fd: number): SpareFile | undefined {
    if (this.#of(key) === undefined) return undefined;
    const path = this.#newPath();
    if (linkDescriptor(fd, path)) return { fd, path };
    this.#liesApart(key);
    return undefined;
  }

  /** Keeps a file that has no other name any more, or removes it where there are enough. */
  keepFile(key: FolderKey, file: SpareFile): void {
    const files = this.#of(key)?.files;
    if (files !== undefined && files.length < MOST_OF_EACH) files.push(file);
    else discard(file);
  }

  /** Moves a folder that was kept to where it is needed. False where there is none, or it cannot be moved. */
  async takeFolder(key: FolderKey, to: string): Promise<boolean> {
    const path = this.#kept.get(key)?.folders.pop();
    if (path === undefined) return false;
    return rename(path, to).then(
      () => true,
      () => {
        remove(path);
        return false;
      },
    );
  }

  /**
   * Moves a folder here.
   * @param ino of the folder that is meant; what another put in its place goes back there
   * @returns false where it still lies there
   */
  async keepFolder(key: FolderKey, from: string, ino: number): Promise<boolean> {
    const kept = this.#of(key);
    if (kept === undefined || kept.folders.length + kept.moving >= MOST_OF_EACH) return false;
    const path = this.#newPath();
    kept.moving += 1;
    try {
      await rename(from, path);
    } catch {
      this.#liesApart(key);
      return false;
    } finally {
      kept.moving -= 1;
    }
    if (statSync(path).ino !== ino) {
      await rename(path, from);
      return false;
    }
    // All may have been dropped meanwhile
    if (this.#kept.get(key) === kept) kept.folders.push(path);
    else remove(path);
    return true;
  }

  /** Removes all: where nothing is done for a while, nothing lies about. */
  drop(): void {
    for (const key of [...this.#kept.keys()]) this.#drop(key);
    this.#apart.clear();
  }

  #of(key: FolderKey): Kept | undefined {
    if (this.#apart.has(key) || !key.startsWith(`${this.#dev}:`)) return undefined;
    const kept = this.#kept.get(key) ?? { files: [], folders: [], moving: 0 };
    // The one that was used last is the last to go
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MOST_FOLDERS && oldest !== undefined) this.#drop(oldest);
    return kept;
  }

  #drop(key: FolderKey): void {
    const { files, folders } = this.#kept.get(key) ?? { files: [], folders: [] };
    this.#kept.delete(key);
    for (const file of files) discard(file);
    for (const path of folders) remove(path);
  }

  #liesApart(key: FolderKey): void {
    if (this.#apart.size >= MOST_APART) this.#apart.clear();
    this.#apart.add(key);
  }

  #newPath(): string {
    return `${this.home}/${(this.#count += 1)}`;
  }
}

/** Closes a file and takes its name here away. */
export function discard({ fd, path }: SpareFile): void {
  closeSync(fd);
  remove(path);
}

/** What cannot be removed is removed at the server's next start. */
function remove(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch {
    // Nothing of it is needed
  }
}

let ofThread: Spares | undefined;

/** From now on this thread keeps spares, in `home`. */
export function keepSpares(home: string): void {
  try {
    ofThread = new Spares(home);
  } catch {
    // On a full disk, for example. Results are written without them too
    ofThread = undefined;
  }
}

/** Undefined in a thread that keeps none. */
export const spares = (): Spares | undefined => ofThread;
