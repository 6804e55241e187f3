/**
 * Judges where a path leads, by the kernel's answer for what was pinned, and says why it is
 * refused.
 */
import { withoutEnd } from "../base/ends.js";
import { ABSOLUTE_NAME } from "./path-map.js";
import { closeSync, constants, readlinkSync } from "node:fs";
import path from "node:path";
import { errors, type RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { descriptorPath } from "./descriptor.js";
import { linkIn, pinDescriptor } from "./disk.js";
import { leadsInside, type Root } from "./roots.js";

/** `\\server\share`, `D:\x`, `D:/x` */
const WINDOWS_PATH = /^(?:\\\\|[A-Za-z]:)/;

/** Faults of what is not there: no file has a name that its file system cannot hold. */
export const MISSING = new Set(["ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG"]);
export const FORBIDDEN = new Set(["EACCES", "EPERM"]);
/**
 * What may be missing where something is to be written: the right, or a file system that takes it.
 */
export const REFUSED = new Set([...FORBIDDEN, "EROFS"]);

/** What to do about EROFS: a unit of systemd makes read-only what it does not name. */
export const READ_ONLY_REMEDY =
  "A systemd unit has to name it in ReadWritePaths=; otherwise mount it writable.";

export type PathSide = "input" | "output";

export function notAllowed(side: PathSide, roots: readonly Root[] | undefined): RadserveError {
  // The server has at least one root on each side: where none is left, the token took them.
  const byToken = roots?.every((root) => typeof root !== "string" && !("mark" in root)) === true;
  return errors.path_not_allowed(
    `Expected ${side} paths inside the ${side} folders that ${byToken ? "this token allows" : "the server allows"} ` +
      `(links are followed first); found one outside. Use a path inside, or have ` +
      (byToken
        ? `a token issued with another --${side}-root, or without one.`
        : `RADSERVE_${side.toUpperCase()}_ROOTS extended.`),
    { side, ...(byToken ? { reason: "token" } : {}) },
  );
}

export function noPermission(side: PathSide, what: string): RadserveError {
  return errors.path_not_allowed(
    `The server's user may not ${what}. Give it that permission on the file and every folder above it.`,
    { side, reason: "permission" },
  );
}

/** The reason of details where a root is not what it was or what other nodes see, or is silent. */
export const NOT_MOUNTED = "not_mounted";

/** What lies at its root is not the share, or does not answer. Another node may have it. */
export function notMounted(side: PathSide): RadserveError {
  return errors.share_unavailable(
    `The share of the ${side} folder does not answer or is not mounted on this node, or another folder is in its place. Send the request to another node, or again when the share is here; radserve status says what was found.`,
    { side, reason: NOT_MOUNTED },
  );
}

/**
 * The path without trailing slashes. Throws path_not_allowed where it is another machine's name,
 * and bad_request where it is not absolute or holds a NUL byte.
 */
export function checkedForm(given: string, side: PathSide): string {
  const refuse = (expected: string, found: string) =>
    errors.bad_request(`Expected ${side} path to be ${expected}; found ${found}.`, { side });
  if (given.includes("\0")) throw refuse("text without NUL bytes", "a NUL byte");
  if (!given.startsWith("/") && ABSOLUTE_NAME.test(given))
    throw errors.path_not_allowed(
      `Expected ${side} path to be one of the server's own, or one that RADSERVE_PATH_MAP translates; found ${WINDOWS_PATH.test(given) ? "a Windows path" : "an address"} that it does not.`,
      { side, reason: "path_map" },
    );
  if (!given.startsWith("/")) throw refuse("absolute, beginning with /", "a relative one");
  return withoutEnd(given, "/") || "/";
}

/**
 * A file or folder that a descriptor names without having opened it (O_PATH); `closeSync` lets it
 * go.
 */
export interface Pinned {
  fd: number;
  realPath: string;
}

/** @param atOnce it is known to lie on a disk of this machine */
export async function pin(target: string, flags: number, atOnce = false): Promise<Pinned> {
  const fd = await pinDescriptor(target, flags, atOnce);
  try {
    return { fd, realPath: readlinkSync(descriptorPath(fd)) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/**
 * Pins the nearest folder above a path that could not be opened. `rest` are the components below
 * it; `blocked` says that a folder between them may not be entered. `atOnce` as pin has it; `hops`
 * are the links that were followed to get here. Throws path_not_allowed where that folder lies
 * outside, or where what follows could leave it: a dangling link, or `..` behind a folder that does
 * not exist.
 */
export async function nearestFolder(
  target: string,
  roots: readonly Root[] | undefined,
  side: PathSide,
  { atOnce = false, hops = 0 } = {},
): Promise<Pinned & { rest: string[]; blocked: boolean }> {
  const rest: string[] = [];
  let parent = target;
  let blocked = false;
  for (;;) {
    rest.unshift(path.posix.basename(parent));
    parent = path.posix.dirname(parent);
    let folder;
    try {
      folder = await pin(parent, constants.O_DIRECTORY, atOnce);
    } catch (error) {
      if (FORBIDDEN.has(errno(error))) blocked = true;
      else if (!MISSING.has(errno(error))) throw error;
      if (parent === "/") throw notAllowed(side, roots);
      continue;
    }
    try {
      if (rest.includes("..") || !leadsInside(folder.realPath, rest, roots))
        throw notAllowed(side, roots);
      // If it was exchanged meanwhile, there is no link any more
      const link = await linkIn(folder.fd, rest[0] ?? "", atOnce);
      if (link !== undefined && side === "output") throw notAllowed(side, roots);
      if (link !== undefined)
        throw await deadLink(folder.realPath, link, rest.slice(1), roots, hops);
      return { ...folder, rest, blocked };
    } catch (error) {
      closeSync(folder.fd);
      throw error;
    }
  }
}

/** Linux follows so many links, then says ELOOP (path_resolution(7)). */
const MOST_HOPS = 40;

/**
 * The error for an input link that leads nowhere: that, where every step stays inside the roots,
 * else path_not_allowed, so that links tell nothing about what exists outside.
 */
async function deadLink(
  folder: string,
  text: string,
  rest: readonly string[],
  roots: readonly Root[] | undefined,
  hops: number,
): Promise<Error> {
  const nowhere = errors.input_not_found(
    "Expected the input path to name a file or folder; found a link that leads nowhere. Correct the link, or check that the share it leads to is mounted on the server.",
    { reason: "link" },
  );
  if (hops >= MOST_HOPS) return nowhere;
  const target = [...(text.startsWith("/") ? [text] : [folder, text]), ...rest].join("/");
  try {
    closeSync((await nearestFolder(target, roots, "input", { hops: hops + 1 })).fd);
    return nowhere;
  } catch (error) {
    return error as Error;
  }
}
