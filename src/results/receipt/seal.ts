/**
 * The MAC of what Radserve writes beside images: whoever can write to an output folder can write a
 * receipt there, and only who has a key of the installation can write its MAC (HMAC-SHA-256, RFC
 * 2104). Bytes go in, and a verdict comes out; the MAC is over all bytes of the file but its own
 * field, and over NAME. A result may so be moved with its folder, and a receipt that was copied to
 * another NAME is not right there.
 *
 * Keys are files of a folder of their own, which several nodes may share. The newest signs, all of
 * them check. A thread has the keys that were known when it was started, and looks at the folder
 * again before it uses them.
 */
import { createHmac, timingSafeEqual, type KeyObject } from "node:crypto";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";
import { z } from "zod";
import { durations } from "../../base/durations.js";
import { errno } from "../../base/errno.js";
import { within } from "../../base/waiting.js";
import { isKeyFile, readKeys, signingKey, stampOf, type Key } from "../../files/key-file.js";

/** The purpose of a file: a receipt is not right in the place of another file. */
export type Sealed = "receipt" | "delivery";

export const macSchema = z
  .object({
    key_id: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
    hmac_sha256: z.string().regex(/^[0-9a-f]{64}$/),
  })
  .describe(
    "HMAC-SHA-256 by a key of the installation, over NAME and all of the file but this field; docs/results.md says how. Comparisons leave it out",
  );

export const trustSchema = z.discriminatedUnion("trusted", [
  z.object({ trusted: z.literal(true), key_id: z.string().describe("Of the key of its MAC") }),
  z.object({
    trusted: z.literal(false),
    why: z
      .enum(["no_mac", "wrong_mac", "unknown_key", "no_receipt"])
      .describe(
        "no_mac: written by Radserve 0.6, by a command without keys, or by somebody else; wrong_mac: changed, or moved to another name, since it was written; unknown_key: written by another installation, or with a key that was removed; no_receipt: the file is not a receipt, or is too large",
      ),
  }),
]);
/** Whether a file is one that this installation wrote, and as it wrote it. */
export type Trust = z.infer<typeof trustSchema>;

const WORDS = {
  no_mac: "it has no MAC: Radserve 0.6 wrote it, or a command without keys, or somebody else",
  wrong_mac: "its MAC is not right: it was changed, or moved to another name, since it was written",
  unknown_key: "its MAC is by a key that this installation does not have",
  no_receipt: "it is not a receipt, or is too large",
};
/** Why a file is not trusted, in words. */
export const distrust = (trust: Trust): string => (trust.trusted ? "" : WORDS[trust.why]);
export const TO_TRUST =
  "If it is yours, run radserve adopt on it: that computes it again, and signs what is equal.";

/** The end of a file that has a MAC, as it is written here and never otherwise. */
const END = "\n}\n";
const FORM =
  /,\n {2}"mac": \{\n {4}"key_id": "([A-Za-z0-9_-]{1,64})",\n {4}"hmac_sha256": "([0-9a-f]{64})"\n {2}\}\n\}\n$/;
/** Of a MAC that another program has written again in its own form. */
const FIELD = '"hmac_sha256"';
/** Longer than what that expression matches. */
export const LONGEST_MAC = 256;

interface KnownKeys {
  folder: string;
  keys: readonly Key[];
}
/** Environment data of threads is of this process alone, and threads hand it on. */
const DATA = "radserve.result-keys";

/** The folder below that of the keys of tokens: neither signs in the place of the other. */
export const resultKeysIn = (keysDir: string): string => path.join(keysDir, "results");

/** The keys of one thread. */
class ResultKeys {
  #known: KnownKeys | undefined = getEnvironmentData(DATA) as KnownKeys | undefined;
  #stamp = "";
  #lookedAt = -Infinity;
  #looking: Promise<void> | undefined;
  #problems: readonly string[] = [];
  #unreadable: string | undefined;

  use(folder: string): void {
    this.#known = { folder, keys: [] };
    [this.#stamp, this.#lookedAt] = ["", -Infinity];
    setEnvironmentData(DATA, this.#known);
  }

  get keys(): readonly Key[] {
    return this.#known?.keys ?? [];
  }

  /** What is wrong with the folder or its files; undefined where nothing is. */
  get trouble(): string | undefined {
    if (this.#known === undefined) return undefined;
    if (this.#unreadable !== undefined)
      return `The folder of the keys of results cannot be read (${this.#unreadable}); the keys known before stay in force.`;
    if (signingKey(this.keys) === undefined)
      return "There is no key of results: what is written has no MAC, is computed again for each request, and is not delivered.";
    if (this.#problems.length === 0) return undefined;
    return "A file of the folder of the keys of results cannot be used as a key; radserve doctor names it. What it has signed is not trusted.";
  }

  /**
   * Resolves when the keys are those of a moment ago. While the share of the folder does not
   * answer, those that are known stay in force.
   */
  async fresh(oldest = durations.keysFresh): Promise<void> {
    if (this.#known === undefined || performance.now() - this.#lookedAt < oldest) return;
    this.#looking ??= this.#look(this.#known.folder).finally(() => {
      this.#looking = undefined;
      this.#lookedAt = performance.now();
    });
    const first = this.#lookedAt === -Infinity && this.keys.length === 0;
    await within(this.#looking, first ? durations.keysFirst : durations.keysAnswer);
  }

  async #look(folder: string): Promise<void> {
    try {
      const names = await readdir(folder).catch((error: unknown) => {
        if (errno(error) === "ENOENT") return [];
        throw error;
      });
      const files = names.filter(isKeyFile).sort();
      const stamp = files.map((name) => stampOf(path.join(folder, name))).join("\n");
      this.#unreadable = undefined;
      if (stamp === this.#stamp) return;
      const { keys, problems } = readKeys(folder);
      this.#known = { folder, keys: keys.filter(({ algorithm }) => algorithm === "HS256") };
      [this.#stamp, this.#problems] = [stamp, problems];
      setEnvironmentData(DATA, this.#known);
    } catch (error) {
      this.#unreadable = errno(error) || "unknown";
    }
  }
}

const ring = new ResultKeys();

/** This process, and the threads that it starts from now on, sign and check with these keys. */
export function useResultKeys(keysDir: string): void {
  ring.use(resultKeysIn(keysDir));
}

/** What is wrong with the keys of results. */
export async function resultKeysTrouble(): Promise<string | undefined> {
  await ring.fresh();
  return ring.trouble;
}

/** The id of the key that signs now; undefined where there is none. */
export async function signingKeyId(): Promise<string | undefined> {
  await ring.fresh();
  return signingKey(ring.keys)?.kid;
}

/** The ids of all keys that check. */
export async function resultKeyIds(): Promise<string[]> {
  await ring.fresh();
  return ring.keys.map(({ kid }) => kid);
}

/** What was made, for one purpose, of a key that was made of one of the keys of results. */
export interface DerivedKey<T> {
  /** The id of the key that it was made of. */
  id: string;
  key: T;
}

/**
 * Keys for what all nodes of an installation have to read, and nobody else. They are made once:
 * Node.js takes longer to take a key of bytes than to use it.
 */
export class DerivedKeys<T> {
  #of: readonly Key[] = [];
  #made: readonly DerivedKey<T>[] = [];

  /**
   * @param purpose keys of two purposes have nothing in common
   * @param take makes of the 32 bytes of a key what it is used as
   */
  constructor(
    private readonly purpose: string,
    private readonly take: (key: Buffer) => T,
  ) {}

  /**
   * The one that is used now first, then those of before. None where there is no key of results.
   */
  async all(): Promise<readonly DerivedKey<T>[]> {
    await ring.fresh();
    const { keys } = ring;
    if (keys === this.#of) return this.#made;
    const signs = signingKey(keys);
    this.#made = [...keys]
      .sort((a, b) => Number(b === signs) - Number(a === signs))
      .map(({ kid, verify }) => ({ id: kid, key: this.take(this.#bytesOf(verify)) }));
    this.#of = keys;
    return this.#made;
  }

  #bytesOf(key: KeyObject): Buffer {
    return createHmac("sha256", key).update(`radserve.derived/1\0${this.purpose}`).digest();
  }
}

function begun(kind: Sealed, name: string, { verify }: Key) {
  return createHmac("sha256", verify).update(`radserve.${kind}/1\0${name.normalize()}\0`);
}

/**
 * A text of JSON with its MAC; as it is where there are no keys.
 * @param text of an object, indented by two, with a line feed at its end
 */
export async function seal(kind: Sealed, name: string, text: string): Promise<string> {
  await ring.fresh();
  const key = signingKey(ring.keys);
  if (key === undefined) return text;
  if (!text.endsWith(END)) throw new Error("Expected an object of JSON, indented by two");
  const mac = begun(kind, name, key).update(text).digest("hex");
  const field = `"mac": {\n    "key_id": "${key.kid}",\n    "hmac_sha256": "${mac}"\n  }`;
  return `${text.slice(0, -END.length)},\n  ${field}${END}`;
}

/**
 * Checks a file piece by piece. @param end its last bytes, at least LONGEST_MAC of them or all
 * @param pieces all of its bytes in order, without those of the field of its MAC
 */
export async function checkPieces(
  kind: Sealed,
  name: string,
  end: Buffer,
  pieces: (field: number) => AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<Trust> {
  const found = FORM.exec(end.toString("latin1"));
  if (found === null) return { trusted: false, why: end.includes(FIELD) ? "wrong_mac" : "no_mac" };
  const [field, key_id = "", mac = ""] = found;
  await ring.fresh();
  const find = () => ring.keys.find(({ kid }) => kid === key_id);
  // Another node may have made it just now
  if (find() === undefined) await ring.fresh(durations.keysUnknown);
  const key = find();
  if (key === undefined) return { trusted: false, why: "unknown_key" };
  const hmac = begun(kind, name, key);
  for await (const piece of pieces(field.length)) hmac.update(piece);
  const right = timingSafeEqual(hmac.update(END).digest(), Buffer.from(mac, "hex"));
  return right ? { trusted: true, key_id } : { trusted: false, why: "wrong_mac" };
}

/** The MAC that a file has, whether it is right or not. @param end its last bytes */
export const macIn = (end: Buffer): string | undefined => FORM.exec(end.toString("latin1"))?.[2];

/** The verdict on the bytes of a file. */
export const checkSeal = (kind: Sealed, name: string, bytes: Buffer): Promise<Trust> =>
  checkPieces(kind, name, bytes.subarray(-LONGEST_MAC), (field) => [
    bytes.subarray(0, bytes.length - field),
  ]);
