/**
 * Paths that clients name: inside the allowed roots and opened, or refused.
 *
 * The order matters: first the path is pinned without touching what it names (O_PATH: no read, no
 * device, no waiting on a FIFO), then the kernel says where the pinned thing really lies
 * (/proc/self/fd/N), and only then it is judged. Swapping a folder for a link afterwards changes
 * nothing: all later work goes through the descriptor.
 */
import { closeSync, constants, fstatSync } from "node:fs";
import path from "node:path";
import { errors, RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { descriptorPath } from "./descriptor.js";
import { isLocal, openDescriptor, stat } from "./disk.js";
import { checkUsable, createBelow } from "./output-folder.js";
import {
  FORBIDDEN,
  MISSING,
  checkedForm,
  nearestFolder,
  noPermission,
  notAllowed,
  notMounted,
  pin,
  type Pinned,
  type PathSide,
} from "./path-judgement.js";
import { translateIn, type PathMapping } from "./path-map.js";
import { isAbsent, isAway } from "./absent-roots.js";
import { isInside, leadsInside, type Root } from "./roots.js";

/** Something that lies inside the roots, open; `close` it when the work is done. */
export interface OpenedPath {
  /**
   * Another name of the open file or folder: works for reading, listing and creating, in every
   * thread.
   */
  fdPath: string;
  /** Its real path, to decide by and never to open again. */
  realPath: string;
  /** Its base name as the client gave it. */
  name: string;
  /** It lies on a disk of this machine. */
  local: boolean;
  close(): void;
}

export interface OpenedInput extends OpenedPath {
  kind: "file" | "folder";
  fd: number;
}

export interface OutputOptions {
  /**
   * It, or the nearest folder above it, lay on a disk of this machine a moment ago: it is opened on
   * the calling thread.
   */
  local?: boolean | undefined;
  /** Whose roots they are, for messages: images that are uploaded go to folders of inputs. */
  side?: PathSide;
  /**
   * False: only say whether it could be used; a missing folder gives its nearest existing parent.
   */
  create?: boolean;
  /** disk_full where the file system has less for us. */
  minimumFreeBytes?: number;
}

/**
 * Opens an input file or folder for reading.
 * @param given absolute path; links and `..` are followed, a trailing slash is ignored
 * @param roots real paths it must lie inside of; undefined: anywhere
 * @param local it lay on a disk of this machine a moment ago, and is opened on the calling thread
 * @param side whose roots they are, for messages: results are read again for clients without the
 * share Throws bad_request, path_not_allowed (also for missing files outside the roots),
 * input_not_found (file_not_found of results).
 */
export async function openInput(
  given: string,
  roots: readonly Root[] | undefined,
  pathMap: readonly PathMapping[] = [],
  local?: boolean,
  side: PathSide = "input",
): Promise<OpenedInput> {
  const target = checkedForm(translateIn(given, pathMap).path, side);
  // Where the root itself is gone, nothing below it can say so
  if (roots !== undefined && isAbsent(side, path.posix.normalize(target))) throw notMounted(side);
  let pinned;
  try {
    pinned = await pin(target, 0, local);
  } catch (error) {
    throw await whyNotOpened(target, roots, side, error);
  }
  try {
    if (!isInside(pinned.realPath, roots)) throw notAllowed(side, roots);
    const here = descriptorPath(pinned.fd);
    const found = await stat(here);
    if (!found.isFile() && !found.isDirectory())
      throw errors.bad_request(
        `Expected the ${side} path to name a regular file or a folder; found a device, pipe or socket.`,
      );
    if (roots !== undefined && isAway(side, pinned.realPath, found.dev)) throw notMounted(side);
    const kind = found.isFile() ? "file" : "folder";
    const fd = await openDescriptor(
      here,
      constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY,
    );
    const { realPath } = pinned;
    return { kind, fd, ...opened({ fd, realPath }, target) };
  } catch (error) {
    if (FORBIDDEN.has(errno(error))) throw noPermission(side, `read this ${side}`);
    throw error;
  } finally {
    closeSync(pinned.fd);
  }
}

/**
 * The result of `use` on an input, which is open meanwhile.
 * Throws what openInput and `use` throw.
 */
export async function withInput<T>(
  given: string,
  roots: readonly Root[] | undefined,
  use: (opened: OpenedInput) => Promise<T>,
  side?: PathSide,
): Promise<T> {
  const opened = await openInput(given, roots, [], undefined, side);
  try {
    return await use(opened);
  } finally {
    opened.close();
  }
}

/** Why an input could not be opened, without telling anything about files outside the roots. */
async function whyNotOpened(
  target: string,
  roots: readonly Root[] | undefined,
  side: PathSide,
  cause: unknown,
): Promise<Error> {
  const code = errno(cause);
  if (!MISSING.has(code) && !FORBIDDEN.has(code)) return cause as Error;
  let blocked = FORBIDDEN.has(code);
  let unmounted = false;
  try {
    const nearest = await nearestFolder(target, roots, side);
    blocked ||= nearest.blocked;
    unmounted = isAway(side, nearest.realPath, fstatSync(nearest.fd).dev);
    closeSync(nearest.fd);
  } catch (error) {
    return error as Error;
  }
  if (unmounted) return notMounted(side);
  if (blocked) return noPermission(side, `reach this ${side}`);
  return new RadserveError(
    side === "input" ? "input_not_found" : "file_not_found",
    `Expected the ${side} path to name a file or folder; nothing is there. Check the spelling, and that the share is mounted on the server.`,
  );
}

/**
 * Opens the folder that results go to, creating it inside its root where it is missing. Write
 * through `fdPath`. Throws bad_request (relative, not a folder), path_not_allowed (outside, not
 * writable, its share away), disk_full.
 */
export async function openOutputFolder(
  given: string,
  roots: readonly Root[] | undefined,
  options: OutputOptions = {},
  pathMap: readonly PathMapping[] = [],
): Promise<OpenedPath> {
  const { side = "output" } = options;
  const target = checkedForm(translateIn(given, pathMap).path, side);
  if (roots !== undefined && isAbsent(side, path.posix.normalize(target))) throw notMounted(side);
  const { folder, missing } = await pinOutput(target, roots, side, options.local);
  try {
    if (!leadsInside(folder.realPath, missing, roots)) throw notAllowed(side, roots);
    await checkUsable(folder, missing, roots, side, options.minimumFreeBytes);
    if (options.create !== false) await createBelow(folder, missing, roots, side);
  } catch (error) {
    closeSync(folder.fd);
    throw error;
  }
  return opened(folder, target);
}

/** The output folder, or the nearest one that exists and what is missing below it. */
async function pinOutput(
  target: string,
  roots: readonly Root[] | undefined,
  side: PathSide,
  local: boolean | undefined,
): Promise<{ folder: Pinned; missing: string[] }> {
  try {
    return { folder: await pin(target, constants.O_DIRECTORY, local), missing: [] };
  } catch (error) {
    if (!MISSING.has(errno(error)) && !FORBIDDEN.has(errno(error))) throw error;
    const folder = await nearestFolder(target, roots, side, { atOnce: local === true });
    if (folder.blocked || FORBIDDEN.has(errno(error))) {
      closeSync(folder.fd);
      throw noPermission(side, "reach this folder");
    }
    return { folder, missing: folder.rest.filter((part) => part !== "" && part !== ".") };
  }
}

function opened({ fd, realPath }: Pinned, given: string): OpenedPath {
  let isOpen = true;
  return {
    fdPath: descriptorPath(fd),
    realPath,
    name: nameOf(realPath, given),
    local: isLocal(fd),
    close() {
      // The number may be another file's by the second time
      if (isOpen) closeSync(fd);
      isOpen = false;
    },
  };
}

function nameOf(realPath: string, given: string): string {
  const named = path.posix.basename(given);
  return named === "" || named === "." || named === ".." ? path.posix.basename(realPath) : named;
}
