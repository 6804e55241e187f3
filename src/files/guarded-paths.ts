/**
 * Paths that clients name: resolved, held by the opened file, and inside the allowed roots or refused.
 *
 * The order matters: first the path is opened without touching what it names (O_PATH: no read, no device, no waiting
 * on a FIFO), then the kernel says where the opened thing really lies (/proc/self/fd/N), and only then it is judged.
 * Whoever swaps a folder for a link afterwards changes nothing: all later work goes through the descriptor.
 */
import { closeSync, constants, readlinkSync } from "node:fs";
import { readlink } from "node:fs/promises";
import path from "node:path";
import { descriptorPath } from "./descriptor.js";
import { access, freeBytes, lstat, mkdir, openDescriptor, stat, statfs } from "./disk.js";
import { errno } from "../base/errno.js";
import { RadserveError } from "../base/errors.js";
import { translateIn, type PathMapping } from "./path-map.js";
import { isStagingName } from "./helper-names.js";
import { isInside, leadsInside, type Root } from "./roots.js";
import { isMarked, shareMissing } from "./share-mark.js";

/** Something that lies inside the roots, held open; `close` it when the work is done. */
export interface Opened {
  /** Another name of the held file or folder: works for reading, listing and creating, in every thread. */
  fdPath: string;
  /** Where it really lies; for decisions, never for opening again. */
  realPath: string;
  /** Its base name as the client gave it. */
  name: string;
  close(): void;
}

export interface OpenedInput extends Opened {
  kind: "file" | "folder";
  fd: number;
}

export interface OutputOptions {
  /** False: only say whether it could be used; a missing folder gives its nearest existing parent. */
  create?: boolean;
  /** disk_full where the file system has less for us. */
  minimumFreeBytes?: number;
}

/** Linux open(2): a descriptor that names a file without opening it. Not among node's constants. */
const O_PATH = 0o10000000;
const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants;
const LONGEST_PATH = 4095;

/** `\\server\share`, `D:\x`, `D:/x` */
const WINDOWS_PATH = /^(?:\\\\|[A-Za-z]:[\\/])/;

const MISSING = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);
const FORBIDDEN = new Set(["EACCES", "EPERM"]);

type Side = "input" | "output";

function notAllowed(side: Side, roots: readonly Root[] | undefined): RadserveError {
  // The server has at least one root on each side: where none is left, the token took them.
  const byToken = roots?.every((root) => typeof root !== "string" && !("marked" in root)) === true;
  return new RadserveError(
    "path_not_allowed",
    `Expected ${side} paths inside the ${side} folders that ${byToken ? "this token allows" : "the server allows"} ` +
      `(links are followed first); found one outside. Use a path inside, or have ` +
      (byToken
        ? `a token issued with another --${side}-root, or without one.`
        : `RADSERVE_${side.toUpperCase()}_ROOTS extended.`),
    { side, ...(byToken ? { reason: "token" } : {}) },
  );
}

function noPermission(side: Side, what: string): RadserveError {
  return new RadserveError(
    "path_not_allowed",
    `The server's user may not ${what}. Give it that permission on the file and every folder above it.`,
    { side, reason: "permission" },
  );
}

function reserved(): RadserveError {
  return new RadserveError(
    "bad_request",
    "Expected an output path without folders called .NAME.radserve: Radserve works in these and removes them. Use another name.",
    { side: "output", reason: "reserved" },
  );
}

/** The path without trailing slashes. Throws bad_request where it is not absolute, too long, or holds a NUL byte. */
function checkedForm(given: string, side: Side): string {
  const refuse = (expected: string, found: string) =>
    new RadserveError("bad_request", `Expected ${side} path to be ${expected}; found ${found}.`, { side });
  if (given.includes("\0")) throw refuse("text without NUL bytes", "a NUL byte");
  if (WINDOWS_PATH.test(given))
    throw refuse(
      "one of the server's own, or one that RADSERVE_PATH_MAP translates",
      "a Windows path that it does not",
    );
  if (!given.startsWith("/")) throw refuse("absolute, beginning with /", "a relative one");
  const bytes = Buffer.byteLength(given);
  if (bytes > LONGEST_PATH) throw refuse(`at most ${LONGEST_PATH} bytes long`, `${bytes} bytes`);
  return given.replace(/\/+$/, "") || "/";
}

/** A file or folder that is named but not opened; `closeSync` lets it go. */
interface Named {
  fd: number;
  realPath: string;
}

async function hold(target: string, flags: number): Promise<Named> {
  const fd = await openDescriptor(target, flags);
  try {
    return { fd, realPath: readlinkSync(descriptorPath(fd)) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function nameOf(realPath: string, given: string): string {
  const named = path.posix.basename(given);
  return named === "" || named === "." || named === ".." ? path.posix.basename(realPath) : named;
}

/**
 * The nearest folder above a path that could not be opened, held, with the components below it.
 * Throws path_not_allowed where that folder lies outside, or where what follows could leave it: a dangling link, or
 * `..` behind a folder that does not exist.
 */
async function nearestFolder(
  target: string,
  roots: readonly Root[] | undefined,
  side: Side,
  hops = 0,
): Promise<Named & { rest: string[]; blocked: boolean }> {
  const rest: string[] = [];
  let parent = target;
  let blocked = false;
  for (;;) {
    rest.unshift(path.posix.basename(parent));
    parent = path.posix.dirname(parent);
    let held;
    try {
      held = await hold(parent, O_PATH | O_DIRECTORY);
    } catch (error) {
      if (FORBIDDEN.has(errno(error))) blocked = true;
      else if (!MISSING.has(errno(error))) throw error;
      if (parent === "/") throw notAllowed(side, roots);
      continue;
    }
    try {
      if (rest.includes("..") || !leadsInside(held.realPath, rest, roots)) throw notAllowed(side, roots);
      const next = `${descriptorPath(held.fd)}/${rest[0] ?? ""}`;
      const link = (await lstat(next).catch(() => undefined))?.isSymbolicLink() === true;
      if (link && side === "output") throw notAllowed(side, roots);
      if (link) throw await deadLink(held.realPath, await readlink(next), rest.slice(1), roots, hops);
      return { ...held, rest, blocked };
    } catch (error) {
      closeSync(held.fd);
      throw error;
    }
  }
}

/** Linux follows so many links, then says ELOOP (path_resolution(7)). */
const MOST_HOPS = 40;

/**
 * What is said of an input link that leads nowhere: that, where every step stays inside the roots, else
 * path_not_allowed, so that links tell nothing about what exists outside.
 */
async function deadLink(
  folder: string,
  text: string,
  rest: readonly string[],
  roots: readonly Root[] | undefined,
  hops: number,
): Promise<Error> {
  const nowhere = new RadserveError(
    "input_not_found",
    "Expected the input path to name a file or folder; found a link that leads nowhere. Correct the link, or check that the share it leads to is mounted on the server.",
    { reason: "link" },
  );
  if (hops >= MOST_HOPS) return nowhere;
  const target = [...(text.startsWith("/") ? [text] : [folder, text]), ...rest].join("/");
  try {
    closeSync((await nearestFolder(target, roots, "input", hops + 1)).fd);
    return nowhere;
  } catch (error) {
    return error as Error;
  }
}

/** Why an input could not be opened, without telling anything about files outside the roots. */
async function whyNotOpened(
  target: string,
  roots: readonly Root[] | undefined,
  cause: unknown,
): Promise<Error> {
  const code = errno(cause);
  if (code === "ENAMETOOLONG")
    return new RadserveError(
      "bad_request",
      "Expected every part of the input path to be at most 255 bytes long.",
    );
  if (!MISSING.has(code) && !FORBIDDEN.has(code)) return cause as Error;
  let blocked = FORBIDDEN.has(code);
  try {
    const nearest = await nearestFolder(target, roots, "input");
    blocked ||= nearest.blocked;
    closeSync(nearest.fd);
  } catch (error) {
    return error as Error;
  }
  if (blocked) return noPermission("input", "reach this input");
  return new RadserveError(
    "input_not_found",
    "Expected the input path to name a file or folder; nothing is there. Check the spelling, and that the share is mounted on the server.",
  );
}

/**
 * Opens an input file or folder for reading.
 * @param given absolute path; links and `..` are followed, a trailing slash is ignored
 * @param roots real paths it must lie inside of; undefined: anywhere
 * Throws bad_request, path_not_allowed (also for missing files outside the roots), input_not_found.
 */
export async function openInput(
  given: string,
  roots: readonly Root[] | undefined,
  pathMap: readonly PathMapping[] = [],
): Promise<OpenedInput> {
  const target = checkedForm(translateIn(given, pathMap).path, "input");
  let named;
  try {
    named = await hold(target, O_PATH);
  } catch (error) {
    throw await whyNotOpened(target, roots, error);
  }
  try {
    if (!isInside(named.realPath, roots)) throw notAllowed("input", roots);
    const here = descriptorPath(named.fd);
    const found = await stat(here);
    if (!found.isFile() && !found.isDirectory())
      throw new RadserveError(
        "bad_request",
        "Expected the input path to name a regular file or a folder; found a device, pipe or socket.",
      );
    const kind = found.isFile() ? "file" : "folder";
    const fd = await openDescriptor(here, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    const { realPath } = named;
    return { kind, fd, ...opened({ fd, realPath }, target) };
  } catch (error) {
    if (FORBIDDEN.has(errno(error))) throw noPermission("input", `read this input`);
    throw error;
  } finally {
    closeSync(named.fd);
  }
}

/**
 * Opens the folder that results go to, creating it inside its root where it is missing. Write through `fdPath`.
 * Throws bad_request (relative, not a folder), path_not_allowed (outside, not writable, its share away), disk_full.
 */
export async function openOutputFolder(
  given: string,
  roots: readonly Root[] | undefined,
  options: OutputOptions = {},
  pathMap: readonly PathMapping[] = [],
): Promise<Opened> {
  const target = checkedForm(translateIn(given, pathMap).path, "output");
  let held: Named;
  let missing: string[] = [];
  try {
    held = await hold(target, O_PATH | O_DIRECTORY);
  } catch (error) {
    if (errno(error) === "ENAMETOOLONG")
      throw new RadserveError(
        "bad_request",
        "Expected every part of the output path to be at most 255 bytes long.",
      );
    if (!MISSING.has(errno(error)) && !FORBIDDEN.has(errno(error))) throw error;
    const nearest = await nearestFolder(target, roots, "output");
    held = nearest;
    missing = nearest.rest.filter((part) => part !== "" && part !== ".");
    if (nearest.blocked || FORBIDDEN.has(errno(error))) {
      closeSync(held.fd);
      throw noPermission("output", "reach this folder");
    }
  }
  try {
    if (!leadsInside(held.realPath, missing, roots)) throw notAllowed("output", roots);
    if ([...held.realPath.split("/"), ...missing].some(isStagingName)) throw reserved();
    await checkMarks(held.realPath, roots);
    await checkUsable(descriptorPath(held.fd), options.minimumFreeBytes);
    if (options.create !== false) await createBelow(held, missing, roots);
  } catch (error) {
    closeSync(held.fd);
    throw error;
  }
  return opened(held, target);
}

function opened({ fd, realPath }: Named, given: string): Opened {
  let isOpen = true;
  return {
    fdPath: descriptorPath(fd),
    realPath,
    name: nameOf(realPath, given),
    close() {
      // The number may be another file's by the second time
      if (isOpen) closeSync(fd);
      isOpen = false;
    },
  };
}

/** The folder is held open already: what is unmounted from here on takes the results with it. */
async function checkMarks(realPath: string, roots: readonly Root[] = []): Promise<void> {
  for (const root of roots)
    if (typeof root !== "string" && "marked" in root && isInside(realPath, [root]))
      if (!(await isMarked(root.path))) throw shareMissing();
}

async function checkUsable(here: string, minimumFreeBytes: number | undefined): Promise<void> {
  await access(here, constants.W_OK | constants.X_OK).catch((error: unknown) => {
    if (errno(error) === "EROFS")
      throw new RadserveError(
        "path_not_allowed",
        "The output folder is on a file system that is mounted read-only. Mount it for writing, or use another folder.",
        { side: "output", reason: "read_only" },
      );
    throw noPermission("output", "write to this folder");
  });
  if (minimumFreeBytes === undefined) return;
  const free = freeBytes(await statfs(here));
  if (free < minimumFreeBytes)
    throw new RadserveError(
      "disk_full",
      `Expected at least ${minimumFreeBytes} bytes free on the output folder's disk; found ${free}. Make room there and send the request again.`,
      { free_bytes: free, needed_bytes: minimumFreeBytes },
    );
}

/**
 * Creates one folder after the other, each opened without following links before the next is made inside it.
 * @param held the folder to begin in; afterwards the last one, or the one where it failed
 */
async function createBelow(
  held: Named,
  parts: readonly string[],
  roots: readonly Root[] | undefined,
): Promise<void> {
  for (const [index, part] of parts.entries()) {
    const child = `${descriptorPath(held.fd)}/${part}`;
    try {
      await mkdir(child).catch((error: unknown) => {
        if (errno(error) !== "EEXIST") throw error;
      });
      const next = await hold(child, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      closeSync(held.fd);
      Object.assign(held, next);
    } catch (error) {
      if (errno(error) === "ENOTDIR")
        throw new RadserveError("bad_request", "Expected the output path to name a folder; found a file.");
      if (errno(error) === "ELOOP") throw notAllowed("output", roots);
      if (FORBIDDEN.has(errno(error))) throw noPermission("output", "create this folder");
      if (errno(error) === "ENOSPC")
        throw new RadserveError("disk_full", "The output folder's disk has no room for another folder.");
      throw error;
    }
    if (!leadsInside(held.realPath, parts.slice(index + 1), roots)) throw notAllowed("output", roots);
  }
}
