/**
 * Objects leave the spool: a series as a whole and at once, because no job may be made of a part of
 * it. Nothing of what is removed is left behind, under no other name either.
 *
 *     removing/RULE/PEER/STUDY/SERIES  series that are removed just now
 *
 * What comes meanwhile is no part of that: a list in the folder says which objects go, so that
 * whoever ends a removal whose process was killed keeps the others.
 */
import { link, lstat, rename } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { ifThere } from "../../../base/errno.js";
import { RadserveError } from "../../../base/errors.js";
import { ifMissing, syncFolder } from "../../../files/durable-files.js";
import { RECEPTION_NOTE, stagingName } from "../../../files/helper-names.js";
import { replaceFile } from "../../../files/new-file.js";
import { isSameFile } from "../../../files/same-file.js";
import type { Reception } from "./reception.js";
import { filesIn, namesIn, removeEmpty, removeFile, storedIn } from "./spool-folders.js";
import { againPath, objectPath, seriesPath, type SeriesPlace, type Spool } from "./spool.js";
import { nameBeside } from "./study-folder.js";

export const REMOVING = "removing";
/** In the folder of a series that is removed: the names of the objects that go. */
const LEAVING = stagingName("removing");
const leavingSchema = z.array(z.string());
/** In the place of a rule's name, which earlier versions had there. */
const ANY_RULE = "=";

export interface RemovalOptions {
  /** The spool. */
  folder: string;
  spool: Pick<Spool, "within" | "patients">;
  reception: Pick<Reception, "forget">;
  /** Writes down what is removed next. @throws RadserveError audit_failed */
  removing: (removal: { peer: string; study: string; objects: number }) => Promise<void>;
}

/** Objects in a folder that are none of those that go. */
async function lateIn(folder: string, names: readonly string[]): Promise<string[]> {
  const going = new Set(names);
  return (await filesIn(folder)).filter((name) => name.endsWith(".dcm") && !going.has(name));
}

export class Removal {
  constructor(private readonly options: RemovalOptions) {}

  #path(...names: readonly string[]): string {
    return path.join(this.options.folder, ...names);
  }

  /** @param names of the objects that go; what came meanwhile stays */
  async series(place: SeriesPlace, names: readonly string[]): Promise<void> {
    const { peer, study, series } = place;
    const { spool, removing } = this.options;
    await removing({ peer, study, objects: names.length });
    const folder = this.#path(...seriesPath(peer, study, series));
    await replaceFile(folder, LEAVING, JSON.stringify(names)).catch(async (error: unknown) => {
      if (!(error instanceof RadserveError) || error.code !== "disk_full") throw error;
      // What is removed makes room: without a list all goes, so there may be nothing else
      await removeFile(folder, LEAVING);
      if ((await lateIn(folder, names)).length > 0) throw error;
    });
    await spool.within([REMOVING, ANY_RULE, peer, study], (removed) =>
      rename(folder, path.join(removed, series)),
    );
    await this.end(ANY_RULE, place, names);
  }

  /**
   * Removes what lies in the folder of a removal; a process before may have begun it.
   * @param names of the objects that go; if absent, those of its list. Versions before wrote none:
   * then all go
   */
  async end(rule: string, place: SeriesPlace, names?: readonly string[]): Promise<void> {
    const { peer, study, series } = place;
    const leaving = this.#path(REMOVING, rule, peer, study, series);
    // Another node has ended it; what lies in the spool is another series by now
    if (names === undefined && (await lstat(leaving).catch(ifMissing(undefined))) === undefined)
      return;
    const studies = (await namesIn(this.#path("studies"))).map((one) =>
      this.#path("studies", one, peer, study),
    );
    await this.#keepLate(
      place,
      leaving,
      names ?? (await storedIn(leaving, LEAVING, leavingSchema)),
    );
    for (const name of (await filesIn(leaving)).filter((one) => one !== LEAVING)) {
      await this.#removeFurther(place, path.join(leaving, name), studies);
      await removeFile(leaving, name);
    }
    // The last: whoever goes on with this needs it
    await removeFile(leaving, LEAVING);
    const left = this.#path("series", peer, study);
    // What came meanwhile is a series of its own
    const isGone = (await filesIn(path.join(left, series))).length === 0;
    const again = this.#path(...againPath(peer, study, series));
    for (const name of await filesIn(again)) await removeFile(again, name);
    const marks = this.#path("marks", peer, study);
    const replace = this.#path("replace", peer, study);
    await removeFile(marks, `${series}.json`);
    await removeFile(replace, series);
    if (isGone) await this.options.reception.forget(place);
    // Of objects that were refused, and of which no other came
    for (const other of await namesIn(left)) await removeEmpty(path.join(left, other));
    if ((await namesIn(left)).length === 0) {
      await this.options.spool.patients.forget(peer, study);
      for (const folder of studies) await removeFile(folder, RECEPTION_NOTE);
    }
    for (const empty of [
      leaving,
      path.dirname(leaving),
      ...studies,
      again,
      path.dirname(again),
      marks,
      replace,
      left,
    ])
      await removeEmpty(empty);
  }

  /** Objects that are none of those that go lie in their series again. */
  async #keepLate(
    { peer, study, series }: SeriesPlace,
    leaving: string,
    names: readonly string[] | undefined,
  ): Promise<void> {
    if (names === undefined) return;
    const late = await lateIn(leaving, names);
    if (late.length === 0) return;
    await this.options.spool.within(seriesPath(peer, study, series), async (to) => {
      // One that came again since is there already
      for (const name of late)
        await link(path.join(leaving, name), path.join(to, name)).catch(ifThere);
      await syncFolder(to);
    });
    for (const name of late) await removeFile(leaving, name);
  }

  /**
   * Further names of an object: in the folders of studies, and that of version 0.6.
   * @param studies those folders, of all rules
   */
  async #removeFurther(
    { series }: SeriesPlace,
    file: string,
    studies: readonly string[],
  ): Promise<void> {
    const factsOf = (one: string) => lstat(one, { bigint: true }).catch(ifMissing(undefined));
    const found = await factsOf(file);
    if (found === undefined) return;
    const name = path.basename(file);
    const isFound = async (other: string) => isSameFile(await factsOf(other), found);
    for (const folder of studies)
      for (const further of [name, nameBeside(name, series)])
        if (await isFound(path.join(folder, further))) await removeFile(folder, further);
    // Another peer's series may have it, too
    const second = this.#path(...objectPath(name.slice(0, -".dcm".length)));
    const links = (await factsOf(file))?.nlink ?? 0n;
    if (links <= 2n && (await isFound(second)))
      await removeFile(path.dirname(second), path.basename(second));
  }
}
