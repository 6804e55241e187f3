/** Files of the audit in the state directory, and its two keys. */
import { createHmac, createSecretKey, randomBytes, type KeyObject } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { errno, ifThere } from "../base/errno.js";
import { ConfigError } from "../base/errors.js";
import { createPrivately, makePrivateFolder } from "../files/private-file.js";

const KEY_BYTES = 32;
/**
 * A key that is older has lines made with it: the first one follows at once, in this process or the
 * one beside it.
 */
const NEW_KEY_MS = 60_000;

/** The files of the chain: one for each UTC day. */
const isDayFile = (name: string): boolean => /^\d{4}-\d{2}-\d{2}\.jsonl$/.test(name);

/** Whether a text names a day that the calendar has, as 2026-11-21. */
export function isDay(text: string): boolean {
  const date = new Date(`${text}T00:00:00Z`);
  return !Number.isNaN(date.getTime()) && date.toISOString().slice(0, 10) === text;
}

export function auditPaths(stateDir: string) {
  return {
    folder: path.join(stateDir, "audit"),
    /** The key of the chain: with it, lines can be written that verify. */
    chainKey: path.join(stateDir, "audit-chain.key"),
    /** The key of the patients' hashes: with it, names can be tried against the hashes. */
    namesKey: path.join(stateDir, "audit-names.key"),
    /** The last head that the server has said. */
    head: path.join(stateDir, "audit-head"),
    lock: path.join(stateDir, "audit-lock"),
  };
}
export type AuditPaths = ReturnType<typeof auditPaths>;

/**
 * The audit that a server has begun. @throws ConfigError where there is none: an empty folder made
 * in its place would verify
 */
export function auditFolder(stateDir: string): string {
  const { folder } = auditPaths(stateDir);
  if (existsSync(folder)) return folder;
  throw new ConfigError(
    `RADSERVE_STATE_DIR: expected the audit of a server at ${folder}; found none. Name the server's own state directory, ` +
      "and run this as the server's user.",
  );
}

/** The files of a folder in the order of their days. Throws what listing throws. */
export const dayFiles = (folder: string): string[] => readdirSync(folder).filter(isDayFile).sort();

/** Files that lie among those of the days and are none of them. Throws what listing throws. */
export function otherFiles(folder: string): string[] {
  return readdirSync(folder).filter((name) => !isDayFile(name));
}

export const dayOf = (name: string): string => name.slice(0, 10);

/** @throws ConfigError where the file cannot be read or is no key */
export function readKey(file: string): KeyObject {
  let text;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new ConfigError(
      `${file}: expected the key of the audit; it cannot be read (${errno(error)}). Run this as the server's user, or put the file back from a backup.`,
    );
  }
  const bytes = Buffer.from(text.trim(), "base64url");
  if (bytes.length === KEY_BYTES) return createSecretKey(bytes);
  throw new ConfigError(
    `${file}: expected ${KEY_BYTES} bytes in base64url; found ${bytes.length}. Put the file back from a backup.`,
  );
}

async function readOrMakeKey(file: string, mayMake: boolean): Promise<KeyObject> {
  if (!existsSync(file)) {
    if (!mayMake)
      throw new ConfigError(
        `${file}: expected the key of the audit that lies beside it; found none. Put it back from a backup, or move ` +
          "the folder audit and the file audit-head away, and a new audit begins.",
      );
    await createPrivately(file, `${randomBytes(KEY_BYTES).toString("base64url")}\n`).catch(ifThere);
  }
  return readKey(file);
}

export interface AuditKeys {
  chain: KeyObject;
  names: KeyObject;
}

/**
 * Makes the folder and the keys where they are missing.
 * @throws ConfigError where a key is gone and lines made with it are there; errors of the file
 * system as they are
 */
export async function openFolder(
  stateDir: string,
): Promise<AuditPaths & { keys: AuditKeys; isOldKey: boolean }> {
  const paths = auditPaths(stateDir);
  const made = statSync(paths.chainKey, { throwIfNoEntry: false })?.mtimeMs ?? Infinity;
  makePrivateFolder(paths.folder);
  const isNew = dayFiles(paths.folder).length === 0 && !existsSync(paths.head);
  const chain = await readOrMakeKey(paths.chainKey, isNew);
  const names = await readOrMakeKey(paths.namesKey, isNew);
  return { ...paths, keys: { chain, names }, isOldKey: made < Date.now() - NEW_KEY_MS };
}

export type HashedKind = "patient" | "study" | "path";

/**
 * The keyed hash of a name: 128 bits of HMAC-SHA256, hexadecimal. The same name has another hash as
 * something else.
 */
export function hashOf(key: KeyObject, what: HashedKind, name: string): string {
  return createHmac("sha256", key).update(`${what}\0${name}`).digest("hex").slice(0, 32);
}
