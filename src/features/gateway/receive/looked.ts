/** What lies in the spool of a series, and how it came there. */
import path from "node:path";
import { groupsBy, groupsOf } from "../../../base/groups.js";
import { sha256 } from "../../../files/durable-files.js";
import type { NotedSeries } from "../../../inference/reception-note.js";
import type { Rule } from "../rule-settings.js";
import type { Marks, SeriesMark } from "./marks.js";
import { isStudyFolder, studyOf } from "./patients.js";
import type { Reception, SeriesReception } from "./reception.js";
import type { ObjectFacts, RuleBook, SeriesFacts } from "./rules.js";
import { isUid } from "../../../images/dicom/value-forms.js";
import { filesIn, isPeerFolder, namesIn } from "./spool-folders.js";
import { againPath, seriesPath, type SeriesPlace } from "./spool.js";

/** Objects whose files are read beside each other for the rules. */
const READ_AT_ONCE = 16;

/** What lies in the spool of a series. */
export interface Looked {
  place: SeriesPlace;
  names: string[];
  /** Of those that took the place of damaged ones. */
  again: string[];
  reception: SeriesReception;
  notes: Parameters<Reception["of"]>[2];
  /** What its job's note warns of; undefined where it came whole. */
  interruption: NotedSeries | undefined;
  /** By which it is told from the same objects that came another way. */
  how: readonly string[];
  /** Equal as long as it is the same series, and came the same way. */
  objects: string;
  mark: SeriesMark | undefined;
}

/** What is known of a series' objects. Facts are by the rules of one book, and judged by it. */
export interface KnownFacts {
  rules: RuleBook;
  /** By the names of the objects. */
  objects: Map<string, ObjectFacts>;
}

/** The SOPInstanceUID of an object that took another's place. */
export const instanceOf = (again: string): string => again.slice(0, again.lastIndexOf("."));

const hashOf = (names: readonly string[]) => sha256([...names].sort().join("\n"));

const isInterrupted = ({ lost, broken, isBeside }: SeriesReception): boolean =>
  lost + broken > 0 || isBeside;

const interruptionOf = ({ lost, broken, isBeside }: SeriesReception): NotedSeries => ({
  objects: lost,
  associations: broken,
  ...(isBeside ? { beside: true } : {}),
});

/** What lies there is a part: more of it is to come, and nobody waits for that any longer. */
export function markComing(looked: Looked): void {
  if (looked.interruption?.coming === true) return;
  looked.interruption = { ...interruptionOf(looked.reception), coming: true };
  looked.how = [...looked.how, "coming"];
  looked.objects = hashOf([...looked.names, ...looked.again, ...looked.how]);
}

export class SeriesReader {
  /** @param rules by which objects are read; others after a reload */
  constructor(
    private readonly folder: string,
    private readonly reception: Reception,
    private readonly marks: Marks,
    public rules: RuleBook,
  ) {}

  #path(...names: readonly string[]): string {
    return path.join(this.folder, ...names);
  }

  fileOf({ peer, study, series }: SeriesPlace, name: string): string {
    return this.#path(...seriesPath(peer, study, series), name);
  }

  /** The names of the files of its objects. */
  async objects({ peer, study, series }: SeriesPlace): Promise<string[]> {
    const names = await filesIn(this.#path(...seriesPath(peer, study, series)));
    return names.filter((name) => name.endsWith(".dcm") && isUid(name.slice(0, -".dcm".length)));
  }

  /** @param of the notes of its study, as the reception has them */
  async looked(place: SeriesPlace, of: Awaited<ReturnType<Reception["notesOf"]>>): Promise<Looked> {
    const names = await this.objects(place);
    const again = await namesIn(this.#path(...againPath(place.peer, place.study, place.series)));
    const mark = await this.marks.read(place);
    const notes = of.get(place.series) ?? [];
    const reception = this.reception.of(place, names, notes);
    const how = reception.notes;
    const interruption = isInterrupted(reception) ? interruptionOf(reception) : undefined;
    const objects = hashOf([...names, ...again, ...how]);
    const looked = { place, names, again, notes, reception, interruption, how, objects, mark };
    const isComing = reception.elsewhere > 0 || this.reception.openUntil(place, 0) === Infinity;
    if (isComing) markComing(looked);
    return looked;
  }

  /** Of a series that nothing is known of, by the rules of one book. */
  unknown(rules = this.rules): KnownFacts {
    return { rules, objects: new Map() };
  }

  /** The facts of a series, of which most are known from when it was asked before. */
  async factsOf(
    { place, names, again, reception }: Looked,
    { rules, objects: known }: KnownFacts,
  ): Promise<SeriesFacts> {
    const { peer } = place;
    // One that took another's place is another one
    const ofObject = groupsBy(again, instanceOf);
    const keyOf = (name: string) =>
      [name, ...(ofObject.get(name.slice(0, -".dcm".length)) ?? [])].join(" ");
    const unknown = names.filter((name) => !known.has(keyOf(name)));
    for (const some of groupsOf(unknown, READ_AT_ONCE))
      await Promise.all(
        some.map(async (name) => {
          known.set(keyOf(name), await rules.read(this.fileOf(place, name)));
        }),
      );
    const objects = names.flatMap((name) => known.get(keyOf(name)) ?? []);
    return { peer, titles: reception.titles, objects };
  }

  /** The rules that take a series, of the book that its facts are by. */
  async taking(looked: Looked, known: KnownFacts): Promise<Rule[]> {
    return known.rules.taking(await this.factsOf(looked, known));
  }

  /**
   * The series of a StudyInstanceUID, whichever peers and patients have it; of the folder of one
   * patient where that is named.
   */
  async placesOf(study: string): Promise<SeriesPlace[]> {
    const isOfStudy = (name: string) =>
      isStudyFolder(name) && (studyOf(name) === study || name === study);
    const found = await this.foldersIn("series", [isPeerFolder, isOfStudy, isUid]);
    return found.map(([peer = "", study = "", series = ""]) => ({ peer, study, series }));
  }

  /** The names of folders below one of the spool, as deep as the checks of their names. */
  async foldersIn(
    name: string,
    checks: readonly ((name: string) => boolean)[],
  ): Promise<string[][]> {
    let found: string[][] = [[]];
    for (const isName of checks) {
      const deeper = found.map(async (names) =>
        (await namesIn(this.#path(name, ...names))).filter(isName).map((one) => [...names, one]),
      );
      found = (await Promise.all(deeper)).flat();
    }
    return found;
  }
}
