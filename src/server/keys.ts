/**
 * The keys of a folder, one JSON file for each. Many machines may share the folder; a running
 * server looks at it before it judges a token, several times a second where there are many.
 */
import { readdir } from "node:fs/promises";
import path from "node:path";
import { durations } from "../base/durations.js";
import { ConfigError, refusalFor } from "../base/errors.js";
import { errno } from "../base/errno.js";
import {
  createKey,
  isKeyFile,
  namesIn,
  readKeys,
  stampOf,
  type FoundKeys,
  type Key,
} from "../files/key-file.js";
import { READ_ONLY_REMEDY } from "../files/path-judgement.js";
import { resultKeysIn } from "../results/receipt/seal.js";
import { Revocations } from "./revocations.js";
import { revokedIn } from "./token-records.js";
import { within } from "../base/waiting.js";

/** Refuses a folder that has no usable key, saying what is wrong with each file. */
function firstOf(folder: string, { keys: [first], problems }: FoundKeys): Key {
  if (first !== undefined) return first;
  throw new ConfigError(
    [
      `Expected a key in ${folder}; found ${problems.length === 0 ? "none" : "no usable one"}.`,
      ...problems,
    ].join("\n"),
  );
}

interface FirstKey {
  key: Key;
  isNew: boolean;
  problems: readonly string[];
}

/**
 * @param what the key is of
 * @param command makes one by hand
 */
async function firstIn(folder: string, what: string, command: string): Promise<FirstKey> {
  const found = readKeys(folder);
  const isNew = found.keys.length === 0 && found.problems.length === 0;
  try {
    const key = isNew ? await createKey(folder) : firstOf(folder, found);
    return { key, isNew, problems: found.problems };
  } catch (error) {
    const why = errno(error);
    if (error instanceof ConfigError || why === "") throw error;
    const unit = why === "EROFS" ? ` ${READ_ONLY_REMEDY}` : "";
    throw refusalFor(
      why,
      `Expected a key of ${what} in ${folder}, or to be able to make one; found none (${why}). ` +
        `Run ${command} where that folder can be written.${unit}`,
      { cause: error },
    );
  }
}

/**
 * The first key of tokens, made if the folder has no key file at all.
 * @throws ConfigError where it cannot be made, or all files are bad
 */
export const firstKey = (keysDir: string): Promise<FirstKey> =>
  firstIn(keysDir, "tokens", "radserve key new");

/** The same for results. */
export const firstResultKey = (keysDir: string): Promise<FirstKey> =>
  firstIn(resultKeysIn(keysDir), "results", "radserve key new --results");

export interface Keyring {
  keys(): readonly Key[];
  isRevoked(jti: string): boolean;
  /** False where the revocations are lost, so that no token can be trusted. */
  listsRevoked(): boolean;
}

/** A keyring that can change while it is used. */
export type LivingKeyring = Pick<WatchedKeys, keyof Keyring | "fresh" | "trouble">;

/**
 * The keys and revocations of a running server. It lists the folder again and again instead of
 * watching it, because change notifications do not cross network folders and directory times are
 * coarse there.
 */
export class WatchedKeys implements Keyring {
  #keys: Key[] = [];
  #problems: string[] = [];
  #stamp = "";
  #neverHadKeys = true;
  readonly #revocations: Revocations;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;
  #unreadable = false;
  #looking: Promise<void> | undefined;
  /** A request has waited in vain for the look that goes on. */
  #slow = false;
  #lookedAt = performance.now();

  /**
   * Broken key files are reported and left out. Throws ConfigError where there are only such files
   * at the start. A folder without any may be a share that is not mounted: its keys are found when
   * it is.
   * @param copyOfRevoked file that keeps the names of revoked tokens beyond this process
   */
  constructor(
    private readonly folder: string,
    private readonly report: (message: string) => void,
    copyOfRevoked?: string,
  ) {
    const names = namesIn(folder).filter(isKeyFile);
    this.#reread(names);
    if (names.length > 0) firstOf(folder, { keys: this.#keys, problems: [] });
    this.#revocations = new Revocations(revokedIn(folder), copyOfRevoked, report);
    this.#schedule();
  }

  keys(): readonly Key[] {
    return this.#keys;
  }

  /** It has had none yet. */
  get neverHadKeys(): boolean {
    return this.#neverHadKeys;
  }

  isRevoked(jti: string): boolean {
    return this.#revocations.has(jti);
  }

  listsRevoked(): boolean {
    return this.#revocations.listed;
  }

  /** What is wrong with the keys themselves, without a path; undefined where nothing is. */
  trouble(): string | undefined {
    if (this.#unreadable)
      return "The keys folder cannot be read; the keys known before stay in force.";
    const { length } = this.#problems;
    if (length === 0) return undefined;
    return (
      `${length === 1 ? "A file of the keys folder cannot be used as a key" : `${length} files of the keys folder cannot be used as keys`}; ` +
      "every token of such a key is an invalid token. The log names the file."
    );
  }

  /**
   * Resolves when the keys and revocations are those of a moment ago, or it would take too long to
   * know.
   */
  async fresh(): Promise<void> {
    if (this.#slow || performance.now() - this.#lookedAt < durations.keysFresh) return;
    const isAnswered = await within(this.#lookOnce(), durations.keysAnswer);
    this.#slow = !isAnswered && this.#looking !== undefined;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #lookOnce(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
      this.#slow = false;
      this.#lookedAt = performance.now();
    });
    return this.#looking;
  }

  #schedule(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      void this.#lookOnce().finally(() => this.#schedule());
    }, durations.keysLook);
    this.#timer.unref();
  }

  /**
   * If the keys folder itself cannot be read, what was known stays in force: its share may be away
   * for a moment.
   */
  async #look(): Promise<void> {
    try {
      const names = await readdir(this.folder);
      await this.#revocations.look();
      this.#reread(names.filter(isKeyFile).sort());
      this.#unreadable = false;
    } catch (error) {
      if (this.#unreadable) return;
      this.#unreadable = true;
      const code = errno(error) || "unknown";
      this.report(`The keys folder cannot be read (${code}); the keys known before stay in force.`);
    }
  }

  /** Key files are read again only when the size or times of one changed. */
  #reread(names: string[]): void {
    const stamp = names.map((name) => stampOf(path.join(this.folder, name))).join("\n");
    if (stamp === this.#stamp) return;
    const { keys, problems } = readKeys(this.folder);
    this.#stamp = stamp;
    for (const problem of problems.filter((one) => !this.#problems.includes(one)))
      this.report(problem);
    this.#keys = keys;
    this.#neverHadKeys &&= keys.length === 0;
    this.#problems = problems;
  }
}
