/**
 * The same slices that come from a modality and from the PACS are one series: they get one job. It
 * is that of whichever peer brought them first, as long as the objects are equal, pixels too.
 */
import { readFile, stat } from "node:fs/promises";
import { hashFile, ifMissing } from "../../../files/durable-files.js";
import type { JobEnd } from "../../../jobs/call.js";
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

/**
 * The longest object whose attributes are compared: both are in memory then, of the thread that
 * receives.
 */
const MOST_COMPARED = 64 * 1024 * 1024;

export interface SameSeriesOptions {
  reader: Pick<SeriesReader, "placesOf" | "looked" | "fileOf" | "rules">;
  reception: Pick<Reception, "notesOf">;
  marks: Pick<Marks, "read">;
  jobState: (jobId: string) => Promise<JobEnd>;
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
      // One that has no result, because it was cancelled or failed, is no reason for none here
      const state = await this.options.jobState(job.job_id);
      if (state === "gone" || state === "failed") continue;
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
        if (!(await areSame(reader.fileOf(one.place, name), reader.fileOf(theirs, name))))
          return false;
      }
    }
    return true;
  }
}

/** Whether two files are one object. Where that takes too much to say, they are not. */
async function areSame(own: string, other: string): Promise<boolean> {
  const [size, otherSize] = await Promise.all([own, other].map(bytesOf));
  if (size === undefined || otherSize === undefined) return false;
  if (size === otherSize) {
    const hash = await hashFile(own);
    if (hash !== undefined && hash === (await hashFile(other))) return true;
  }
  if (Math.max(size, otherSize) > MOST_COMPARED) return false;
  const [mine, theirs] = await Promise.all(
    [own, other].map((file) => readFile(file).catch(ifMissing(undefined))),
  );
  if (mine === undefined || theirs === undefined) return false;
  // Pixels that are coded otherwise are others: this thread decodes nothing that a peer sends
  const compared = await compareObjects(theirs, mine, { decodes: false });
  return compared.equal && compared.coerced.every((keyword) => MAY_DIFFER.has(keyword));
}

const bytesOf = (file: string): Promise<number | undefined> =>
  stat(file).then(({ size }) => size, ifMissing(undefined));
