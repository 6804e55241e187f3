/** Folders that a person names: made where they are missing, and tried. */
import { accessSync, constants, mkdirSync, statSync } from "node:fs";
import path from "node:path";
import { errno } from "../base/errno.js";
import { tryMaking } from "./durable-files.js";

/** @returns false where the folder is there already @throws errors of the file system */
function makeOne(folder: string, mode: number): boolean {
  try {
    mkdirSync(folder, { mode });
    return true;
  } catch (error) {
    if (errno(error) === "ENOENT" || !isFolder(folder)) throw error;
    return false;
  }
}

function isFolder(place: string): boolean {
  try {
    return statSync(place).isDirectory();
  } catch {
    return false;
  }
}

/**
 * Makes a folder, and those above it that are missing. Node's own way (`recursive`) never ends in
 * /proc: there making fails as if the folder above were missing, and that one is there.
 * @returns the first that was made; undefined where all are there
 * @throws errors of the file system
 */
export function makeWithParents(folder: string, mode = 0o777): string | undefined {
  const whole = path.resolve(folder);
  try {
    return makeOne(whole, mode) ? whole : undefined;
  } catch (error) {
    if (errno(error) !== "ENOENT" || isFolder(path.dirname(whole))) throw error;
  }
  const first = makeWithParents(path.dirname(whole), mode);
  return makeOne(whole, mode) ? (first ?? whole) : first;
}

/**
 * The same for a folder that this user has to be able to read, and to make files in.
 * @throws errors of the file system
 */
export function makeUsable(folder: string, mode = 0o777): void {
  makeWithParents(folder, mode);
  accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  tryMaking(folder);
}
