/**
 * Objects that contradict what lies in the spool: a person has to decide which of them is right, so
 * each study of them is a condition until it is not in the spool any more, also over a restart.
 *
 *     conflicts/PEER/STUDY.json   how many objects contradict it, by attribute
 */
import { lstat } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { counted } from "../../../base/table.js";
import { ifMissing, sha256 } from "../../../files/durable-files.js";
import { replaceFile } from "../../../files/new-file.js";
import { isUnmountedNow } from "../../../files/roots.js";
import { isStudyFolder, studyOf } from "./patients.js";
import { isPeerFolder, namesIn, removeFile, storedIn } from "./spool-folders.js";
import type { ReceptionTrouble } from "./trouble.js";

/** Studies that are told one by one; of more than these, how many objects were refused. */
const MOST_STUDIES = 100;

/** What contradicts what lies there: all of the study, or one object. */
const countsSchema = z.object({
  PatientID: z.int().min(1).optional(),
  SOPInstanceUID: z.int().min(1).optional(),
});
type Counts = z.infer<typeof countsSchema>;
type ConflictOf = keyof Counts;
const WHY: Record<ConflictOf, (objects: string) => string> = {
  PatientID: (objects) => `Kept apart: ${objects}, because the study came under two PatientIDs`,
  SOPInstanceUID: (objects) =>
    `Refused: ${objects}, because another whole object of that SOPInstanceUID lies in its series`,
};
const CONFLICTS = "conflicts";

interface Conflict {
  peer: string;
  study: string;
  counts: Counts;
  /** The file has other counts. */
  isNew: boolean;
}

export class Conflicts {
  readonly #studies = new Map<string, Conflict>();
  #others = 0;
  #looking = false;

  #read: Promise<void> | undefined;

  /**
   * @param folder of the spool
   * @param made makes a folder below it
   */
  constructor(
    private readonly folder: string,
    private readonly made: (...names: string[]) => Promise<string>,
  ) {}

  /** Resolves when what is new of it is written, or could not be: it is told all the same. */
  async note(peer: string, study: string, of: ConflictOf): Promise<void> {
    await this.#readOnce().catch(() => undefined);
    const key = `${peer}/${study}`;
    const known = this.#studies.get(key);
    if (known === undefined && this.#studies.size >= MOST_STUDIES) {
      this.#others += 1;
      return;
    }
    const conflict = known ?? { peer, study, counts: {}, isNew: true };
    const before = conflict.counts[of];
    conflict.counts[of] = (before ?? 0) + 1;
    conflict.isNew = true;
    this.#studies.set(key, conflict);
    // Further ones are written down together
    if (before === undefined) await this.#write(conflict).catch(() => undefined);
  }

  async #write(conflict: Conflict): Promise<void> {
    const { peer, study, counts } = conflict;
    conflict.isNew = false;
    try {
      const dir = await this.made(CONFLICTS, peer);
      await replaceFile(dir, `${study}.json`, JSON.stringify(counts));
    } catch (error) {
      conflict.isNew = true;
      throw error;
    }
  }

  #readOnce(): Promise<void> {
    this.#read ??= this.#readAll().catch((error: unknown) => {
      this.#read = undefined;
      throw error;
    });
    return this.#read;
  }

  /** What processes before have written down. */
  async #readAll(): Promise<void> {
    for (const peer of await namesIn(path.join(this.folder, CONFLICTS)))
      for (const name of await namesIn(path.join(this.folder, CONFLICTS, peer))) {
        const study = name.slice(0, -".json".length);
        const counts = await storedIn(path.join(this.folder, CONFLICTS, peer), name, countsSchema);
        const isKnown = this.#studies.has(`${peer}/${study}`);
        const isOne = isPeerFolder(peer) && isStudyFolder(study);
        if (!isOne || counts === undefined || isKnown || this.#studies.size >= MOST_STUDIES)
          continue;
        this.#studies.set(`${peer}/${study}`, { peer, study, counts, isNew: false });
      }
  }

  /** A person has decided which of the objects are right. */
  async settle(peer: string, study: string): Promise<void> {
    await this.#readOnce();
    const key = `${peer}/${study}`;
    const known = this.#studies.get(key);
    if (known === undefined) return;
    delete known.counts.SOPInstanceUID;
    if (known.counts.PatientID !== undefined) {
      await this.#write(known);
      return;
    }
    this.#studies.delete(key);
    await removeFile(path.join(this.folder, CONFLICTS, peer), `${study}.json`);
  }

  /** Without an identifier: a study is told by a hash of its UID. */
  troubles(): ReceptionTrouble[] {
    const condition = "received_conflict" as const;
    const told = [...this.#studies.values()].map(({ peer, study, counts }) => ({
      condition,
      where: `${peer}: study ${sha256(studyOf(study)).slice(0, 16)}`,
      message: (Object.keys(WHY) as ConflictOf[])
        .flatMap((of) => {
          const count = counts[of];
          return count === undefined ? [] : `${WHY[of](counted(count, "object"))}.`;
        })
        .join(" "),
    }));
    if (this.#others === 0) return told;
    const message = `Of more studies: ${counted(this.#others, "object")}.`;
    return [...told, { condition, where: "received images", message }];
  }

  /**
   * Looks which of the studies have left the spool, so that nothing contradicts an object of them,
   * and writes down what is new of the others.
   */
  async look(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    try {
      // A mount point without its share has no folders: nothing has left the spool
      if (await isUnmountedNow(this.folder)) return;
      await this.#readOnce();
      for (const [key, conflict] of this.#studies) {
        const { peer, study } = conflict;
        const folders = [study, studyOf(study)].map((one) =>
          lstat(path.join(this.folder, "series", peer, one)).catch(ifMissing(undefined)),
        );
        if ((await Promise.all(folders)).includes(undefined)) {
          await removeFile(path.join(this.folder, CONFLICTS, peer), `${study}.json`);
          this.#studies.delete(key);
        } else if (conflict.isNew) await this.#write(conflict);
      }
      if (this.#studies.size === 0) this.#others = 0;
    } catch {
      // The share is away: it is told elsewhere, and the conflicts are as they were
    } finally {
      this.#looking = false;
    }
  }
}
