/**
 * The revoked tokens, as a running server knows them. What was revoked once stays so: the marks lie in the keys folder,
 * from which they may vanish (a backup put back, a share replaced), and a copy of their names in this box's state
 * directory outlives that, and this process too.
 */
import { readFileSync, readdirSync } from "node:fs";
import { open, readdir, rename } from "node:fs/promises";
import { ConfigError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { isNameOfToken, nameOf } from "./token-records.js";

/** What a listing of the folder gave: its names, or the system's code. */
type Listing = { names: string[] } | { code: string };

export class Revocations {
  readonly #known = new Set<string>();
  /** There was a folder of revocations; until then there is nothing to miss. */
  #begun = false;
  #listed = true;
  /** How many were told to have vanished. */
  #told = 0;
  #unsaved = false;
  #saveFailed = false;

  /**
   * @param folder of the marks; it is made by the first revocation
   * @param copy file that keeps their names beyond this process; undefined: nothing is kept
   * @throws ConfigError where the copy is there and cannot be read
   */
  constructor(
    private readonly folder: string,
    private readonly copy: string | undefined,
    private readonly report: (message: string) => void,
  ) {
    for (const name of this.#kept()) this.#known.add(name);
    this.#take(listing(() => readdirSync(folder)));
  }

  /** False while the folder that was there cannot be listed: nobody can say then which tokens others have revoked. */
  get listed(): boolean {
    return this.#listed;
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

  #take(found: Listing): void {
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
          `${vanished === 1 ? "stays" : "stay"} in force on this box alone. Put the folder revoked back from a backup.`,
      );
    this.#told = vanished;
  }

  #kept(): string[] {
    if (this.copy === undefined) return [];
    try {
      const names = readFileSync(this.copy, "utf8").split("\n");
      this.#begun = true;
      return names.filter(isNameOfToken);
    } catch (error) {
      if (errno(error) === "ENOENT") return [];
      throw new ConfigError(
        `${this.copy}: expected the revocations that this box knows; it cannot be read (${errno(error)}). ` +
          "Let the server's user read it.",
      );
    }
  }

  async #save(): Promise<void> {
    if (this.copy === undefined) return;
    const part = `${this.copy}.part`;
    try {
      const handle = await open(part, "w", 0o600);
      try {
        await handle.writeFile([...this.#known].sort().join("\n"));
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(part, this.copy);
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

function listing(list: () => string[]): Listing {
  try {
    return { names: list() };
  } catch (error) {
    return { code: errno(error) || "unknown" };
  }
}
