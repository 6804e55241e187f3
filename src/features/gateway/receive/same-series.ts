/**
 * The same slices that come from a modality and from the PACS are one series: they get one job. It
 * is that of whichever peer brought them first, as long as the objects are equal, pixels too.
 */
import { readFile } from "node:fs/promises";
import { ifMissing } from "../../../files/durable-files.js";
import { compareObjects } from "../deliver/proof.js";
import type { Looked, SeriesReader } from "./looked.js";
import type { MarkedJob, Marks } from "./marks.js";
import { studyOf } from "./patients.js";
import type { Reception } from "./reception.js";
import type { SeriesPlace } from "./spool.js";

/**
 * Keywords in which the objects may differ: a PACS sets them, and no result depends on them. Those
 * by which a patient is known are none of them.
 */
const MAY_DIFFER = new Set([
  "PatientName",
  "OtherPatientIDs",
  "OtherPatientIDsSequence",
  "OtherPatientNames",
  "PatientComments",
  "ReferencedPatientSequence",
  "StudyID",
  "AccessionNumber",
  "IssuerOfAccessionNumberSequence",
  "ReferringPhysicianName",
  "PhysiciansOfRecord",
  "NameOfPhysiciansReadingStudy",
  "ReferencedStudySequence",
  "RequestAttributesSequence",
  "InstitutionName",
]);

export interface SameSeriesOptions {
  reader: Pick<SeriesReader, "placesOf" | "looked" | "fileOf" | "rules">;
  reception: Pick<Reception, "notesOf">;
  marks: Pick<Marks, "read">;
}

export class SameSeries {
  constructor(private readonly options: SameSeriesOptions) {}

  /**
   * The job that a rule has made of the same series of another peer, and of no others; undefined
   * where there is none. A series that did not come whole is the same as no other.
   */
  async jobOf(rule: string, all: readonly Looked[]): Promise<MarkedJob | undefined> {
    const [first, ...others] = all;
    if (first === undefined || all.some(({ interruption }) => interruption !== undefined))
      return undefined;
    const places = await this.options.reader.placesOf(studyOf(first.place.study));
    for (const place of places) {
      if (place.peer === first.place.peer || place.series !== first.place.series) continue;
      const job = await this.#jobAt(place, rule, first);
      if (job === undefined || !(await this.#isOfAll(place, places, rule, job, all.length)))
        continue;
      const same = await Promise.all(
        others.map((one) => this.#jobAt({ ...place, series: one.place.series }, rule, one)),
      );
      if (!same.every((one) => one?.job_id === job.job_id)) continue;
      if (await this.#areEqual(place, all)) return job;
    }
    return undefined;
  }

  /** The job of what lies at a place, if it is of the same names as a series. */
  async #jobAt(place: SeriesPlace, rule: string, looked: Looked): Promise<MarkedJob | undefined> {
    const mark = await this.options.marks.read(place);
    const job = mark?.jobs.find((one) => one.rule === rule);
    // Rules of before may have asked for something else
    const isNow = mark?.objects === "" || mark?.rules === this.options.reader.rules.version;
    return isNow && job?.objects === looked.objects ? job : undefined;
  }

  /** Whether a job is of so many series of its study. */
  async #isOfAll(
    { peer, study }: SeriesPlace,
    places: readonly SeriesPlace[],
    rule: string,
    { job_id }: MarkedJob,
    count: number,
  ): Promise<boolean> {
    const siblings = places.filter((one) => one.peer === peer && one.study === study);
    const marks = await Promise.all(siblings.map((one) => this.options.marks.read(one)));
    const isOfJob = (one: MarkedJob) => one.rule === rule && one.job_id === job_id;
    return marks.filter((mark) => mark?.jobs.some(isOfJob)).length === count;
  }

  async #areEqual(place: SeriesPlace, all: readonly Looked[]): Promise<boolean> {
    const { reader, reception } = this.options;
    const notes = await reception.notesOf(place.peer, place.study);
    for (const one of all) {
      const theirs = { ...place, series: one.place.series };
      // Its job may be of objects that have left the spool, or changed
      if ((await reader.looked(theirs, notes)).objects !== one.objects) return false;
      for (const name of one.names) {
        const files = [reader.fileOf(one.place, name), reader.fileOf(theirs, name)];
        const [own, other] = await Promise.all(
          files.map((file) => readFile(file).catch(ifMissing(undefined))),
        );
        if (own === undefined || other === undefined || !(await isEqual(own, other))) return false;
      }
    }
    return true;
  }
}

async function isEqual(own: Buffer, other: Buffer): Promise<boolean> {
  if (own.equals(other)) return true;
  const compared = await compareObjects(other, own);
  return compared.equal && compared.coerced.every((keyword) => MAY_DIFFER.has(keyword));
}
