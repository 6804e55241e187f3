/** Makes the job of a rule: of one series, or of those of a study that the rule takes. */
import { stat } from "node:fs/promises";
import path from "node:path";
import { errors } from "../../../base/errors.js";
import type { Logger } from "../../../base/log.js";
import { sha256 } from "../../../files/durable-files.js";
import { RECEPTION_NOTE } from "../../../files/helper-names.js";
import { replaceFile } from "../../../files/new-file.js";
import type { ReceptionNote } from "../../../inference/reception-note.js";
import type { JobEnd } from "../../../jobs/call.js";
import { receiptName } from "../../../results/receipt/names.js";
import { readReceipt } from "../../../results/receipt/read-receipt.js";
import type { JobRule, Rule } from "../rule-settings.js";
import { instanceOf, type KnownFacts, type Looked, type SeriesReader } from "./looked.js";
import type { Marks, SeriesMark } from "./marks.js";
import type { Unmade } from "./received.js";
import { studyOf } from "./patients.js";
import type { Reception } from "./reception.js";
import { imagesIn, missingSeries, type RuleBook, type SeriesFacts } from "./rules.js";
import { isUid } from "../../../images/dicom/value-forms.js";
import { namesIn, removeFile } from "./spool-folders.js";
import { SameSeries } from "./same-series.js";
import { seriesPath, type SeriesPlace, type Spool } from "./spool.js";
import { linkStudy } from "./study-folder.js";

/** A job to be made of received objects. */
export interface Submission {
  peer: string;
  study: string;
  objects: number;
  /** Of the endpoint of jobs. */
  request: Record<string, unknown>;
}

/** What became of a study that was said to be complete. */
export interface Completed {
  peer: string;
  series: string[];
  /** null where no rule takes the series, so that nothing becomes of it. */
  rule: string | null;
  job_id: string | null;
  objects: number;
  /** Why there is no job; null where there is one. */
  why: Unmade | null;
}

export interface JobsOptions {
  /** The spool. */
  folder: string;
  spool: Pick<Spool, "made">;
  reception: Reception;
  reader: SeriesReader;
  marks: Marks;
  log: Logger;
  /** @returns the id of the job @throws RadserveError of the endpoint of jobs, audit_failed */
  submit: (submission: Submission) => Promise<string>;
  jobState: (jobId: string) => Promise<JobEnd>;
}

/** A series that a rule takes. */
interface TakenSeries {
  looked: Looked;
  facts: KnownFacts;
}

const NO_MARK: SeriesMark = { objects: "", count: 0, rules: "", at: 0, jobs: [] };

/** Whether a rule looks at a study as a whole. */
export const isOfStudy = ({ group, series }: Rule): boolean =>
  group === "study" || series === "largest";

export const notMade = ({ place, names }: Looked, why: Unmade, rule: string | null): Completed => ({
  peer: place.peer,
  series: [place.series],
  rule,
  job_id: null,
  objects: names.length,
  why,
});

/** The one with the most images; of several, the first. */
function largestOf(all: readonly Looked[], facts: ReadonlyMap<Looked, SeriesFacts>): Looked[] {
  const sizeOf = (looked: Looked) => imagesIn(facts.get(looked) ?? { objects: [] });
  const [first, ...others] = all;
  if (first === undefined) return [];
  return [others.reduce((most, one) => (sizeOf(one) > sizeOf(most) ? one : most), first)];
}

export class ReceivedJobs {
  readonly #same: SameSeries;
  /**
   * By study: resolves when its last job is made. Two peers may bring the same at one moment.
   */
  readonly #making = new Map<string, Promise<unknown>>();

  constructor(private readonly options: JobsOptions) {
    this.#same = new SameSeries(options);
  }

  #path(...names: readonly string[]): string {
    return path.join(this.options.folder, ...names);
  }

  /**
   * Makes the job of a rule.
   * @returns what was made, and of which series nothing can be made as they are
   */
  async make(
    study: Pick<SeriesPlace, "peer" | "study">,
    rule: JobRule,
    taken: readonly TakenSeries[],
  ): Promise<{ made: Completed[]; held: Unmade | undefined }> {
    const own = taken.map(({ looked }) => looked);
    const { reader } = this.options;
    // The rule is of this book: another one may have been read meanwhile
    const rules = taken[0]?.facts.rules ?? reader.rules;
    const others = isOfStudy(rule) ? await this.#othersOf(study, rule, own, rules) : [];
    // In one order, whichever came first here: the key of the job has to be the same on all nodes
    const all = [...own, ...others].sort((a, b) => (a.place.series < b.place.series ? -1 : 1));
    const facts = new Map<Looked, SeriesFacts>();
    const isAsked = rule.series === "largest" || rule.require_series !== undefined;
    for (const looked of isAsked ? all : []) {
      const known = taken.find((asked) => asked.looked === looked)?.facts;
      facts.set(looked, await reader.factsOf(looked, known ?? reader.unknown(rules)));
    }
    const chosen = rule.series === "largest" ? largestOf(all, facts) : all;
    const missing = missingSeries(
      rule,
      chosen.flatMap((looked) => facts.get(looked) ?? []),
    );
    const held: Unmade | undefined =
      missing.length > 0
        ? "series_missing"
        : rule.require === "whole" && chosen.some(({ interruption }) => interruption !== undefined)
          ? "not_whole"
          : undefined;
    if (held !== undefined)
      return { made: own.map((looked) => notMade(looked, held, rule.name)), held };
    return {
      made: [await this.#inTurn(studyOf(study.study), () => this.#jobOf(rule, chosen))],
      held,
    };
  }

  async #inTurn<T>(study: string, work: () => Promise<T>): Promise<T> {
    const making = (this.#making.get(study) ?? Promise.resolve()).then(work);
    const made = making.catch(() => undefined);
    this.#making.set(study, made);
    try {
      return await making;
    } finally {
      if (this.#making.get(study) === made) this.#making.delete(study);
    }
  }

  /** Series of the study that do not wait: those of earlier jobs of the rule belong to its next. */
  async #othersOf(
    { peer, study }: Pick<SeriesPlace, "peer" | "study">,
    rule: JobRule,
    own: readonly Looked[],
    rules: RuleBook,
  ): Promise<Looked[]> {
    const { reader } = this.options;
    const notes = await this.options.reception.notesOf(peer, study);
    const found: Looked[] = [];
    for (const series of await namesIn(this.#path("series", peer, study))) {
      if (!isUid(series) || own.some(({ place }) => place.series === series)) continue;
      const looked = await reader.looked({ peer, study, series }, notes);
      const { names, mark } = looked;
      if (names.length === 0) continue;
      const wasTaken = mark?.jobs.some((job) => job.rule === rule.name) === true;
      const mayBe = mark?.unmade === "not_largest";
      if (
        wasTaken ||
        (mayBe && (await reader.taking(looked, reader.unknown(rules))).includes(rule))
      )
        found.push(looked);
    }
    return found;
  }

  async #jobOf(rule: JobRule, all: readonly Looked[]): Promise<Completed> {
    const [first] = all;
    if (first === undefined) throw errors.not_found("The series is not in the spool any more.");
    const { peer, study } = first.place;
    const jobIn = ({ mark }: Looked) => mark?.jobs.find((job) => job.rule === rule.name);
    const isMade = all.every((looked) => jobIn(looked)?.objects === looked.objects);
    const made = isMade ? jobIn(first) : undefined;
    let jobId = made?.job_id;
    if (made?.ended === false && (await this.options.jobState(made.job_id)) === "gone") {
      this.options.log.warn(
        { peer, job: jobId },
        "the job of received images was lost: it is made again",
      );
      jobId = undefined;
    }
    const objects = all.reduce((sum, { names }) => sum + names.length, 0);
    if (jobId === undefined) {
      jobId =
        (await this.#jobOfAnother(rule, all)) ??
        (await this.options.submit({
          peer,
          study,
          objects,
          request: await this.#requestOf(rule, all),
        }));
      for (const looked of all) {
        const { unmade: _, classes: __, ...mark } = looked.mark ?? { ...NO_MARK };
        const job = {
          rule: rule.name,
          job_id: jobId,
          objects: looked.objects,
          ended: false,
          at: Date.now(),
        };
        const jobs = [...mark.jobs.filter((one) => one.rule !== rule.name), job];
        looked.mark = { ...mark, count: looked.names.length, jobs };
        await this.options.marks.write(looked.place, looked.mark);
      }
    }
    const series = all.map(({ place }) => place.series);
    return { peer, series, rule: rule.name, job_id: jobId, objects, why: null };
  }

  /** The job of the same series, which another peer has brought before. */
  async #jobOfAnother({ name }: JobRule, all: readonly Looked[]): Promise<string | undefined> {
    const job = await this.#same.jobOf(name, all);
    if (job === undefined) return undefined;
    const peer = all[0]?.place.peer;
    this.options.log.info(
      { peer, rule: name, job: job.job_id, series: all.length },
      "the same objects came from another peer before: they are of its job",
    );
    return job.job_id;
  }

  async #requestOf(rule: JobRule, all: readonly Looked[]): Promise<Record<string, unknown>> {
    const { models, outputs, labels, output_folder, deliver, priority } = rule;
    const { peer = "", study = "" } = all[0]?.place ?? {};
    const request = {
      input_folder_path: await this.#inputOf(rule, all),
      output_folder_path: path.join(output_folder, peer, study),
      group: "series",
      ...(models === undefined ? {} : { models }),
      ...(outputs === undefined ? {} : { outputs }),
      ...(labels === undefined ? {} : { labels }),
      ...(deliver === undefined
        ? {}
        : deliver.length === 0
          ? { deliver: "none" }
          : { destinations: deliver }),
      ...(priority === undefined ? {} : { priority }),
    };
    const births = await Promise.all(all.map(({ place, names }) => this.#birth(place, names)));
    const names = all.flatMap((looked) => [...looked.names, ...looked.again, ...looked.how]);
    const key = sha256(JSON.stringify([request, births, names.sort()]));
    return { ...request, idempotency_key: `received-${key}` };
  }

  /** When the first object came: those that come again after they were removed are others. */
  async #birth(place: SeriesPlace, [first = ""]: readonly string[]): Promise<number> {
    return (await stat(this.options.reader.fileOf(place, first))).mtimeMs;
  }

  /**
   * Whether a study's only series has a result under the study's name, as versions before named it:
   * the next one takes its place.
   */
  async #hasNameOfStudy({ output_folder }: JobRule, all: readonly Looked[]): Promise<boolean> {
    const [first, ...others] = all;
    if (first === undefined || others.length > 0) return false;
    const { peer, study, series } = first.place;
    const before = path.join(output_folder, peer, study, receiptName(study));
    const found = await readReceipt(before);
    return found.kind === "receipt" && found.receipt.source.series_instance_uid === series;
  }

  /**
   * The folder that the job reads: that of the series, or one with a further name of each object of
   * the study. The note in it says how they came.
   */
  async #inputOf(rule: JobRule, all: readonly Looked[]): Promise<string> {
    const { peer = "", study = "", series = "" } = all[0]?.place ?? {};
    const note: ReceptionNote = { series: {} };
    for (const { place, interruption, again } of all) {
      const replaced = [...new Set(again.map(instanceOf))].sort();
      const whole = { objects: 0, associations: 0 };
      if (replaced.length > 0) note.series[place.series] = { ...(interruption ?? whole), replaced };
      else if (interruption !== undefined) note.series[place.series] = interruption;
    }
    const isOne = rule.group === "series";
    const folder = isOne
      ? this.#path(...seriesPath(peer, study, series))
      : await this.options.spool.made("studies", rule.name, peer, study);
    if (!isOne && !(await this.#hasNameOfStudy(rule, all))) note.study = true;
    if (Object.keys(note.series).length === 0 && note.study === undefined)
      await removeFile(folder, RECEPTION_NOTE);
    else await replaceFile(folder, RECEPTION_NOTE, JSON.stringify(note));
    if (isOne) return folder;
    const files = all.map(({ place, names }) => ({
      series: place.series,
      files: names.map((name) => this.options.reader.fileOf(place, name)),
    }));
    await linkStudy(folder, files);
    return folder;
  }
}
