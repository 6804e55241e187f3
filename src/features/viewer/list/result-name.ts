/**
 * Opaque names of results, for addresses: a path may hold a person's name, and addresses are kept
 * by browsers and proxies. A name is the path of the receipt below its output root, encrypted by a
 * key that lies in that root: so it is the same on every node of a share, wherever the share is
 * mounted, and stays the same as long as the result exists. The path is found from the name alone,
 * without any list. Equal paths have equal names, because the initial vector follows from the path
 * (as in RFC 5297, with HMAC); an invented name fits no key. A name gives no access: the path that
 * it stands for is checked like any other path.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  randomBytes,
  timingSafeEqual,
  type KeyObject,
} from "node:crypto";
import { mkdir, open, writeFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { errno } from "../../../base/errno.js";
import { PLAIN } from "../../../files/disk.js";
import { holdsSomething } from "../../../files/folder-mark.js";
import { LIST_FOLDER } from "../../../files/helper-names.js";
import { createPrivately } from "../../../files/private-file.js";
import { innermostRoot } from "../../../files/roots.js";

const KEY_FILE = "names.key";
const KEY = /^[0-9a-f]{64}\n?$/;
const LONGEST_KEY_FILE = 128;
const IV_BYTES = 16;

export const opaqueName = z
  .string()
  .regex(/^[\w-]{23,8000}$/, "Expected a name as the list of results gives it");

/** What a name stands for: one of each never reads as one of the other. */
type NamedThing = "receipt" | "input" | "whose";

/** The two keys that things of one kind are sealed with. */
export interface SealingKeys {
  mac: KeyObject;
  cipher: KeyObject;
}

export function sealingKeys(key: Buffer, of: NamedThing): SealingKeys {
  const both = createHmac("sha512", key).update(of).digest();
  const [mac, cipher] = [both.subarray(0, 32), both.subarray(32)];
  return { mac: createSecretKey(mac), cipher: createSecretKey(cipher) };
}
const vectorOf = (mac: KeyObject, text: Buffer) =>
  createHmac("sha256", mac).update(text).digest().subarray(0, IV_BYTES);

export function sealed({ mac, cipher }: SealingKeys, text: string): string {
  const bytes = Buffer.from(text);
  const iv = vectorOf(mac, bytes);
  const encrypted = createCipheriv("aes-256-ctr", cipher, iv).update(bytes);
  return Buffer.concat([iv, encrypted]).toString("base64url");
}

/** Undefined where other keys made the name, or nobody did. */
export function unsealed({ mac, cipher }: SealingKeys, name: string): string | undefined {
  const all = Buffer.from(name, "base64url");
  const iv = all.subarray(0, IV_BYTES);
  if (iv.length < IV_BYTES || all.toString("base64url") !== name) return undefined;
  const bytes = createDecipheriv("aes-256-ctr", cipher, iv).update(all.subarray(IV_BYTES));
  return timingSafeEqual(vectorOf(mac, bytes), iv) ? bytes.toString("utf8") : undefined;
}

const keyFile = (root: string) => path.join(root, LIST_FOLDER, KEY_FILE);

/** The key of a root; undefined where there is none, or something else has its place. */
async function keyOf(root: string): Promise<Buffer | undefined> {
  let handle;
  try {
    handle = await open(keyFile(root), PLAIN);
    const found = await handle.stat();
    if (!found.isFile() || found.size > LONGEST_KEY_FILE) return undefined;
    const text = await handle.readFile("utf8");
    return KEY.test(text) ? Buffer.from(text.trim(), "hex") : undefined;
  } catch {
    return undefined;
  } finally {
    await handle?.close();
  }
}

/**
 * The key of a root in which results lie, made where there is none. An empty root is left alone: it
 * may be the mount point of a share that is away.
 */
async function keyToBe(root: string): Promise<Buffer | undefined> {
  const known = await keyOf(root);
  if (known !== undefined || !(await holdsSomething(root))) return known;
  const text = `${randomBytes(32).toString("hex")}\n`;
  try {
    await mkdir(path.dirname(keyFile(root)), { mode: 0o700 }).catch((error: unknown) => {
      if (errno(error) !== "EEXIST") throw error;
    });
    await createPrivately(keyFile(root), text).catch(async (error: unknown) => {
      // A share without hard links
      if (errno(error) !== "EEXIST")
        await writeFile(keyFile(root), text, { flag: "wx", mode: 0o600, flush: true });
    });
  } catch {
    // Another node was faster, or nothing can be written: then results have no names
  }
  return keyOf(root);
}

async function keysToBe(root: string) {
  const key = await keyToBe(root);
  if (key === undefined) return undefined;
  return { receipt: sealingKeys(key, "receipt"), input: sealingKeys(key, "input") };
}

/** Gives names to results of some roots (real paths); each key is read once. */
export class ResultNames {
  readonly #keys = new Map<string, Promise<Record<"receipt" | "input", SealingKeys> | undefined>>();

  constructor(private readonly roots: readonly string[]) {}

  /** Names of a result and of its image; undefined where its root has no key. */
  async of(receipt: string, input: string | undefined) {
    const root = innermostRoot(receipt, this.roots);
    if (root === undefined) return undefined;
    const reading = this.#keys.get(root) ?? keysToBe(root);
    this.#keys.set(root, reading);
    const keys = await reading;
    if (keys === undefined) return undefined;
    return {
      id: sealed(keys.receipt, path.relative(root, receipt)),
      ...(input === undefined ? {} : { input_id: sealed(keys.input, input) }),
    };
  }

  /** What a name stands for: the path of a receipt or of an image; undefined where no key fits. */
  async find(of: NamedThing, name: string): Promise<string | undefined> {
    for (const root of this.roots) {
      const key = await keyOf(root);
      const text = key === undefined ? undefined : unsealed(sealingKeys(key, of), name);
      if (text !== undefined) return of === "receipt" ? path.join(root, text) : text;
    }
    return undefined;
  }
}
