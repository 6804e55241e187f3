/**
 * Objects that were refused because of what lies in the spool: a person has to say which of them is
 * right, so each study of them is a condition until it is not in the spool any more.
 */
import { lstat } from "node:fs/promises";
import path from "node:path";
import { counted } from "../../../base/table.js";
import { ifMissing, sha256 } from "../../../files/durable-files.js";

/** Studies that are told one by one; of more than these, how many objects were refused. */
const MOST_STUDIES = 100;

/** What contradicts what lies there: all of the study, or one object. */
type Of = "PatientID" | "SOPInstanceUID";
const WHY: Record<Of, string> = {
  PatientID: "the study lies in the spool under another PatientID",
  SOPInstanceUID: "another whole object of that SOPInstanceUID lies in its series",
};

/** In the words of the conditions. */
export interface ConflictTold {
  condition: "received_conflict";
  where: string;
  message: string;
}

interface Conflict {
  peer: string;
  study: string;
  refused: Partial<Record<Of, number>>;
}

export class Conflicts {
  readonly #studies = new Map<string, Conflict>();
  #others = 0;
  #looking = false;

  /** @param folder of the spool */
  constructor(private readonly folder: string) {}

  note(peer: string, study: string, of: Of): void {
    const key = `${peer}/${study}`;
    const known = this.#studies.get(key);
    if (known === undefined && this.#studies.size >= MOST_STUDIES) {
      this.#others += 1;
      return;
    }
    const conflict = known ?? { peer, study, refused: {} };
    conflict.refused[of] = (conflict.refused[of] ?? 0) + 1;
    this.#studies.set(key, conflict);
  }

  /** Without an identifier: a study is told by a hash of its UID. */
  troubles(): ConflictTold[] {
    const condition = "received_conflict" as const;
    const told = [...this.#studies.values()].map(({ peer, study, refused }) => ({
      condition,
      where: `${peer}: study ${sha256(study).slice(0, 16)}`,
      message: `Refused: ${(Object.keys(WHY) as Of[])
        .flatMap((of) => {
          const count = refused[of];
          return count === undefined ? [] : `${counted(count, "object")}, because ${WHY[of]}`;
        })
        .join("; ")}.`,
    }));
    if (this.#others === 0) return told;
    const message = `Refused of more studies: ${counted(this.#others, "object")}.`;
    return [...told, { condition, where: "received images", message }];
  }

  /** Looks which of the studies have left the spool: nothing contradicts an object of them. */
  async forgetRemoved(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    try {
      for (const [key, { peer, study }] of this.#studies) {
        const folder = path.join(this.folder, "series", peer, study);
        if ((await lstat(folder).catch(ifMissing(undefined))) === undefined)
          this.#studies.delete(key);
      }
      if (this.#studies.size === 0) this.#others = 0;
    } catch {
      // The share is away: it is said elsewhere, and the conflicts are as they were
    } finally {
      this.#looking = false;
    }
  }
}
