/**
 * The revoked tokens, as a running server knows them. What was revoked once stays so: the marks lie
 * in the keys folder, from which they may vanish (a backup put back, a share replaced), and a copy
 * of their names in this node's state directory outlives that, and this process too.
 */
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { readdir, rename, writeFile } from "node:fs/promises";
import { ConfigError, RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { textOfRegularSync } from "../files/regular-file.js";
import { isNameOfToken, nameOf } from "./token-records.js";

/**
 * The last line of a copy: SHA-256 of the names before it. Version 0.5 passes over it, and wrote
 * none.
 */
const CHECK = /^sha256 ([0-9a-f]{64})$/;

/** Bytes of a copy: some four million revocations. */
const MOST_OF_COPY = 2 ** 28;

const checkOf = (names: readonly string[]): string =>
  createHash("sha256").update(names.join("\n")).digest("hex");

function textOf(known: Iterable<string>): string {
  const names = [...known].sort();
  return [...names, `sha256 ${checkOf(names)}`, ""].join("\n");
}

interface Copy {
  names: string[];
  /** undefined: it has no checksum, as version 0.5 wrote it. */
  isWhole: boolean | undefined;
}

function copyOf(text: string): Copy {
  const lines = text.split("\n").filter((line) => line !== "");
  const [, check] = CHECK.exec(lines.at(-1) ?? "") ?? [];
  const names = check === undefined ? lines : lines.slice(0, -1);
  if (!names.every(isNameOfToken)) return { names: [], isWhole: false };
  if (check === undefined) return { names, isWhole: undefined };
  return { names, isWhole: checkOf(names) === check };
}

/** A listing of the folder: its names, or the system's code. */
type FolderListing = { names: string[] } | { code: string };

export class Revocations {
  readonly #known = new Set<string>();
  /** There was a folder of revocations; until then there is nothing to miss. */
  #begun = false;
  #listed = true;
  /** How many were told to have vanished. */
  #told = 0;
  #unsaved = false;
  /** Copies are there, and none is as it was written. */
  #damaged = false;
  #saveFailed = false;

  /**
   * @param folder of the marks; it is made by the first revocation
   * @param copy file that keeps their names beyond this process, and a second of its name with `.2`
   * behind, written after it, so that no torn write can damage both; undefined: nothing is kept
   * @throws ConfigError where a copy is there and cannot be read
   */
  constructor(
    private readonly folder: string,
    private readonly copy: string | undefined,
    private readonly report: (message: string) => void,
  ) {
    for (const name of this.#kept()) this.#known.add(name);
    this.#take(listing(() => readdirSync(folder)));
  }

  /**
   * False while the folder that was there cannot be listed, and where no copy can be trusted:
   * nobody can say then which tokens are revoked.
   */
  get listed(): boolean {
    return this.#listed && !this.#damaged;
  }

  has(jti: string): boolean {
    return this.#known.has(nameOf(jti));
  }

  /** Looks at the folder again, and keeps what is new. */
  async look(): Promise<void> {
    this.#take(
      await readdir(this.folder).then(
        (names) => ({ names }),
        (error: unknown) => ({ code: errno(error) || "unknown" }),
      ),
    );
    if (this.#unsaved) await this.#save();
  }

  #take(found: FolderListing): void {
    if ("code" in found) {
      const missed = found.code !== "ENOENT" || this.#begun;
      if (missed && this.#listed)
        this.report(
          `The revoked tokens cannot be listed (${found.code}); every token is refused until the folder revoked of ` +
            "the keys folder can be read again. Put it back from a backup; revocations known here stay in force.",
        );
      this.#listed = !missed;
      return;
    }
    this.#listed = true;
    this.#unsaved ||= !this.#begun;
    this.#begun = true;
    const names = new Set(found.names.filter(isNameOfToken));
    for (const name of names) {
      if (this.#known.has(name)) continue;
      this.#known.add(name);
      this.#unsaved = true;
    }
    const vanished = this.#known.size - names.size;
    if (vanished > this.#told)
      this.report(
        `${vanished} revocation${vanished === 1 ? " has" : "s have"} vanished from the keys folder, and ` +
          `${vanished === 1 ? "stays" : "stay"} in force on this node alone. Put the folder revoked back from a backup.`,
      );
    this.#told = vanished;
  }

  #kept(): string[] {
    const found = this.#copies().flatMap((file) => {
      try {
        return [copyOf(textOfRegularSync(file, MOST_OF_COPY))];
      } catch (error) {
        if (errno(error) === "ENOENT") return [];
        // Something else lies there, or what is too long
        if (error instanceof RadserveError) return [{ names: [], isWhole: false }];
        throw new ConfigError(
          `${file}: expected the revocations that this node knows; it cannot be read (${errno(error)}). ` +
            "Let the server's user read it.",
        );
      }
    });
    const whole = found.filter(({ isWhole }) => isWhole);
    const isOfOlder = found.length === 1 && found[0]?.isWhole === undefined;
    this.#begun = found.length > 0;
    this.#damaged = found.length > 0 && whole.length === 0 && !isOfOlder;
    this.#unsaved = found.length > 0 && whole.length < 2;
    if (this.#damaged)
      this.report(
        `${this.copy}: expected the revocations that this node knows, as they were written; found other bytes. Every token ` +
          "is refused. Compare the folder revoked of the keys folder with a backup; when it is whole, remove " +
          `${this.#copies().join(" and ")} and start again.`,
      );
    // A name too many refuses one token; what has no checksum may also be of a version 0.5 that was
    // gone back to
    return found.flatMap(({ names, isWhole }) => (isWhole === false ? [] : names));
  }

  #copies(): string[] {
    return this.copy === undefined ? [] : [this.copy, `${this.copy}.2`];
  }

  async #save(): Promise<void> {
    // Damaged copies stay as they are, as evidence
    if (this.#damaged) return;
    try {
      const text = textOf(this.#known);
      for (const file of this.#copies()) await replaceFile(file, text);
      this.#unsaved = false;
      this.#saveFailed = false;
    } catch (error) {
      if (!this.#saveFailed)
        this.report(
          `The revocations cannot be written to the state directory (${errno(error) || "unknown"}); ` +
            "one that vanishes from the keys folder would be forgotten at the next start.",
        );
      this.#saveFailed = true;
    }
  }
}

async function replaceFile(file: string, text: string): Promise<void> {
  const part = `${file}.part`;
  await writeFile(part, text, { mode: 0o600, flush: true });
  await rename(part, file);
}

function listing(list: () => string[]): FolderListing {
  try {
    return { names: list() };
  } catch (error) {
    return { code: errno(error) || "unknown" };
  }
}
