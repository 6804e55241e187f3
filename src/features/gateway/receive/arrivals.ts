/**
 * What becomes of received objects. A series that is complete becomes a job, or a part of that of
 * its study, by each rule that takes it. It is complete when none of its objects has come for the
 * time that the rule sets and none is on its way, or when a client says so. It is removed when its
 * jobs have ended and the set time is over.
 *
 * Nothing depends on memory alone: a look through the spool finds objects that have no mark or came
 * after their mark. The key of a job follows from what it is of, so that nodes which share a spool,
 * and processes which follow one another, make one job of it.
 */
import { stat } from "node:fs/promises";
import path from "node:path";
import { backOff } from "../../../base/back-off.js";
import { durations } from "../../../base/durations.js";
import { asRadserveError, errors, type RadserveError } from "../../../base/errors.js";
import { groupsBy, groupsOf } from "../../../base/groups.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { monotonic } from "../../../base/monotonic.js";
import { sha256 } from "../../../files/durable-files.js";
import { RECEPTION_NOTE } from "../../../files/helper-names.js";
import { replaceFile } from "../../../files/new-file.js";
import type { RunningClock } from "../../../files/running-clock.js";
import type { Interruption, ReceptionNote } from "../../../inference/reception-note.js";
import type { JobEnd } from "../../../jobs/call.js";
import { gatewayRetry } from "../retry.js";
import { makesJobs, type JobRule, type Rule } from "../rule-settings.js";
import { Marks, type MarkedJob, type SeriesMark, type Unmade } from "./marks.js";
import { isStudyFolder, studyOf } from "./patients.js";
import type { Reception, SeriesReception } from "./reception.js";
import { Removal, REMOVING } from "./removal.js";
import {
  imagesIn,
  missingSeries,
  type ObjectFacts,
  type RuleBook,
  type SeriesFacts,
} from "./rules.js";
import { filesIn, isPeerFolder, namesIn, removeFile } from "./spool-folders.js";
import {
  againPath,
  isUid,
  keyOfPlace,
  seriesPath,
  type KeptObject,
  type SeriesPlace,
  type Spool,
} from "./spool.js";
import { linkStudy } from "./study-folder.js";

/** Objects that one look removes at most: no fault of a clock empties the spool at once. */
const MOST_REMOVED = 10_000;
/** A series of which something comes again and again waits for so many times its rule's `quiet`. */
const MOST_QUIETS = 10;
/** Of a rule that does not say how long open associations keep a series. */
const QUIETS_OF_PAUSE = 2;
/** A timer of Node.js that is to run for longer ends at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** Objects whose files are read beside each other for the rules. */
const READ_AT_ONCE = 16;

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

export interface ArrivalsOptions {
  folder: string;
  spool: Pick<Spool, "made" | "patients">;
  reception: Reception;
  rules: RuleBook;
  /** Seconds. */
  keep: number;
  clock: Pick<RunningClock, "isOlder">;
  log: Logger;
  /** @returns the id of the job @throws RadserveError of the endpoint of jobs, audit_failed */
  submit: (submission: Submission) => Promise<string>;
  jobState: (jobId: string) => Promise<JobEnd>;
  /** Writes down what is removed next. @throws RadserveError audit_failed */
  removing: (removal: { peer: string; study: string; objects: number }) => Promise<void>;
}

/** A series of which something is still to become. */
interface WaitingSeries {
  place: SeriesPlace;
  /** Objects that are known here; where there are more, another node receives, too. */
  known: number | undefined;
  /** How often something came. */
  arrivals: number;
  /** Since when, and when the last object came (ms of `monotonic`). */
  since: number;
  last: number;
  /** What is known of its objects, by their names. */
  facts: Map<string, ObjectFacts>;
  /** Complete, but nothing can become of it as it is. */
  held: { why: Unmade; rule: string } | undefined;
}

/** The waiting series of a study: a rule may take them together. */
interface WaitingStudy {
  peer: string;
  study: string;
  series: Map<string, WaitingSeries>;
  timer: NodeJS.Timeout | undefined;
  dueAt: number;
  failures: number;
  /** Why something of it cannot become a job: a code. */
  fault: string | undefined;
  /** One step after the other, and how many there are. */
  work: Promise<unknown>;
  turns: number;
}

/** What lies in the spool of a series. */
interface Looked {
  place: SeriesPlace;
  names: string[];
  /** Of those that took the place of damaged ones. */
  again: string[];
  reception: SeriesReception;
  notes: Parameters<Reception["of"]>[2];
  /** What its job's note says; undefined where it came whole. */
  interruption: Interruption | undefined;
  /** By which it is told from the same objects that came another way. */
  how: readonly string[];
  /** Equal as long as it is the same series, and came the same way. */
  objects: string;
  mark: SeriesMark | undefined;
}

/** A series that no job is made of. */
export interface UnmadeSeries {
  place: SeriesPlace;
  why: Unmade;
  /** Numbers of its objects, by SOP class. */
  classes: Record<string, number>;
}

/** A series whose objects are all of jobs, or of none. */
interface Settled {
  place: SeriesPlace;
  names: string[];
  mark: SeriesMark;
}

/** A waiting series as it is looked at. */
interface AskedSeries {
  one: WaitingSeries;
  looked: Looked;
  /** Of when it was looked at. */
  arrivals: number;
  /** Undefined where it is not quiet yet. */
  taking: readonly Rule[] | undefined;
}

const WHY_UNMADE: Record<Unmade, string> = {
  no_rule: "no rule takes a received series: it is kept, and no job is made",
  no_images: "a received series has no images: it is kept, and no job is made",
  not_largest: "a received series is not the largest of its study: it is kept, and no job is made",
  not_whole: "a received series did not come whole, and its rule requires that: no job is made",
  series_missing: "a received study lacks series that its rule requires: no job is made",
  discarded: "received objects were discarded, as their rule says",
};

const NO_MARK: SeriesMark = { objects: "", count: 0, rules: "", at: 0, jobs: [] };

const hashOf = (names: readonly string[]) => sha256([...names].sort().join("\n"));

const isInterrupted = ({ lost, broken }: SeriesReception): boolean => lost + broken > 0;

export class Arrivals {
  /** By peer and study. */
  readonly #studies = new Map<string, WaitingStudy>();
  readonly #unmade = new Map<string, UnmadeSeries>();
  readonly #marks: Marks;
  readonly #removal: Removal;
  /** Codes, of series that could not be looked at. */
  readonly #faults = new Map<string, string>();
  #rules: RuleBook;
  #keep: number;
  #lookTimer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly options: ArrivalsOptions) {
    this.#rules = options.rules;
    this.#keep = options.keep;
    this.#marks = new Marks(options.folder, (...names) => options.spool.made(...names));
    this.#removal = new Removal(options);
  }

  /** Series that wait; those of which nothing becomes; and why some cannot become jobs: codes. */
  get figures(): { waiting: number; unmade: UnmadeSeries[]; faults: string[] } {
    const studies = [...this.#studies.values()];
    const all = studies.flatMap(({ series }) => [...series.values()]);
    const faults = [...studies.flatMap(({ fault }) => fault ?? []), ...this.#faults.values()];
    return {
      waiting: all.filter(({ held }) => held === undefined).length,
      unmade: [...this.#unmade.values()],
      faults,
    };
  }

  /** The rules of a file that was read again. What no rule took is asked for anew. */
  reload(rules: RuleBook, keep: number): void {
    this.#keep = keep;
    if (rules.version === this.#rules.version) return;
    this.#rules = rules;
    for (const study of this.#studies.values()) {
      for (const one of study.series.values()) one.facts.clear();
      this.#askAt(study, 0);
    }
    void this.look();
  }

  /** An object has come. */
  async arrived(peer: string, kept: KeptObject): Promise<void> {
    const place = { peer, study: kept.study, series: kept.seriesInstanceUid };
    const isKnown = this.#waits(place) !== undefined;
    const one = this.#enter(place);
    one.arrivals += 1;
    one.last = monotonic();
    one.held = undefined;
    this.#unmade.delete(keyOfPlace(place));
    if (isKnown && kept.fresh && one.known !== undefined) one.known += 1;
    this.#askAt(this.#studyOf(place), this.#quiet(peer));
    if (isKnown) return;
    const { length } = await this.#objects(place);
    one.known ??= length;
  }

  /** The reception of a series was interrupted; it may have its job already. */
  interrupted(place: SeriesPlace): void {
    const known = this.#waits(place);
    if (known !== undefined) known.held = undefined;
    const add = async () => {
      if ((await this.#objects(place)).length > 0) this.#await(place);
    };
    // It is found when the spool is looked through
    void add().catch(() => undefined);
  }

  #waits({ peer, study, series }: SeriesPlace): WaitingSeries | undefined {
    return this.#studies.get(`${peer}/${study}`)?.series.get(series);
  }

  #studyOf({ peer, study }: Pick<SeriesPlace, "peer" | "study">): WaitingStudy {
    const key = `${peer}/${study}`;
    const known = this.#studies.get(key);
    if (known !== undefined) return known;
    const made: WaitingStudy = {
      peer,
      study,
      series: new Map(),
      timer: undefined,
      dueAt: Infinity,
      failures: 0,
      fault: undefined,
      work: Promise.resolve(),
      turns: 0,
    };
    this.#studies.set(key, made);
    return made;
  }

  #enter(place: SeriesPlace): WaitingSeries {
    const { series } = this.#studyOf(place);
    const known = series.get(place.series);
    if (known !== undefined) return known;
    const now = monotonic();
    const made: WaitingSeries = {
      place,
      known: undefined,
      arrivals: 0,
      since: now,
      last: now,
      facts: new Map(),
      held: undefined,
    };
    series.set(place.series, made);
    this.#unmade.delete(keyOfPlace(place));
    return made;
  }

  #await(place: SeriesPlace): void {
    this.#enter(place);
    this.#askAt(this.#studyOf(place), this.#quiet(place.peer));
  }

  /** Milliseconds without an object after which the first rule may be asked. */
  #quiet(peer: string): number {
    const quiets = this.#rules.rules.flatMap(({ from, quiet }) =>
      from?.includes(peer) === false ? [] : quiet,
    );
    return 1000 * Math.min(...(quiets.length === 0 ? [60] : quiets));
  }

  /** Asks a study in so many milliseconds, unless it is asked before. */
  #askAt(study: WaitingStudy, ms: number): void {
    const at = monotonic() + ms;
    if (this.#closed || study.dueAt <= at) return;
    clearTimeout(study.timer);
    study.dueAt = at;
    const now = Math.min(Math.max(0, ms), LONGEST_TIMER_MS);
    study.timer = setTimeout(() => {
      study.dueAt = Infinity;
      const left = at - monotonic();
      if (now < ms && left > 0) this.#askAt(study, left);
      else void this.#due(study);
    }, now).unref();
  }

  async #due(study: WaitingStudy): Promise<void> {
    try {
      const { faults } = await this.#inTurn(study, () => this.#ask(study));
      if (faults[0] !== undefined) throw faults[0];
      study.fault = undefined;
      study.failures = 0;
    } catch (thrown) {
      const error = asRadserveError(thrown);
      const fault = error.code === "internal" ? { fault: faultForLog(thrown) } : {};
      const field = error.details?.["field"];
      this.options.log.warn(
        {
          peer: study.peer,
          error: error.code,
          ...(typeof field === "string" ? { field } : {}),
          ...fault,
        },
        "received images could not become a job; it is tried again",
      );
      study.fault = error.code;
      study.failures += 1;
      this.#askAt(study, backOff(study.failures, gatewayRetry()));
    }
  }

  async #inTurn<T>(study: WaitingStudy, step: () => Promise<T>): Promise<T> {
    study.turns += 1;
    const work = study.work.then(step);
    study.work = work.catch(() => undefined);
    try {
      return await work;
    } finally {
      study.turns -= 1;
      const key = `${study.peer}/${study.study}`;
      if (study.turns === 0 && study.series.size === 0) {
        clearTimeout(study.timer);
        if (this.#studies.get(key) === study) this.#studies.delete(key);
      }
    }
  }

  /**
   * Makes jobs of what is complete, and asks again when the next of it may be.
   * @param forced series that a client says are complete
   */
  async #ask(
    study: WaitingStudy,
    forced: ReadonlySet<string> = new Set(),
  ): Promise<{ made: Completed[]; faults: RadserveError[] }> {
    const made: Completed[] = [];
    const faults: RadserveError[] = [];
    const { asked, next: quietAt } = await this.#quietSeries(study, forced);
    let next = quietAt;
    for (const one of asked.filter(({ taking }) => taking?.length === 0)) {
      const facts = await this.#factsOf(one.looked, one.one.facts);
      const why = imagesIn(facts) === 0 ? "no_images" : "no_rule";
      await this.#settle(study, one, [], why);
      made.push(notMade(one.looked, why, null));
    }
    /** Series of which more is to become. */
    const open = new Set<AskedSeries>();
    for (const { rule, taken } of unitsOf(asked)) {
      const isForced = taken.every(({ one }) => forced.has(one.place.series));
      const readyAt = Math.max(
        ...(isOfStudy(rule) ? asked : taken).map((one) => this.#readyAt(one, rule)),
      );
      if (!isForced && readyAt > monotonic()) {
        next = Math.min(next, readyAt);
        for (const one of taken) open.add(one);
        continue;
      }
      try {
        const done = makesJobs(rule)
          ? await this.#makeOf(study, rule, taken)
          : await this.#discardAll(study, rule, taken);
        made.push(...done.made);
        const { held } = done;
        for (const one of taken) {
          one.one.held = held === undefined ? undefined : { why: held, rule: rule.name };
          if (held !== undefined) open.add(one);
        }
      } catch (thrown) {
        faults.push(asRadserveError(thrown));
        for (const one of taken) open.add(one);
      }
    }
    for (const one of asked) await this.#conclude(study, one, open.has(one));
    if (next < Infinity) this.#askAt(study, Math.max(0, next - monotonic()));
    return { made, faults };
  }

  /** Series that may be complete are asked for by the rules; the others are not yet. */
  async #quietSeries(
    study: WaitingStudy,
    forced: ReadonlySet<string>,
  ): Promise<{ asked: AskedSeries[]; next: number }> {
    const { peer } = study;
    const quiet = this.#quiet(peer);
    const asked: AskedSeries[] = [];
    let next = Infinity;
    const notes = await this.options.reception.notesOf(peer, study.study);
    for (const one of study.series.values()) {
      const { arrivals } = one;
      const looked = await this.#looked(one.place, notes);
      const { length } = looked.names;
      if (length === 0) {
        this.#forget(study, one);
        this.#tellGone(peer);
        continue;
      }
      // Another node receives it, too
      if (length > (one.known ?? length)) one.last = monotonic();
      one.known = length;
      const quietAt = Math.min(one.last + quiet, this.#mostOf(one, quiet));
      const isQuiet = forced.has(one.place.series) || quietAt <= monotonic();
      if (!isQuiet) next = Math.min(next, quietAt);
      const taking = isQuiet
        ? this.#rules.taking(await this.#factsOf(looked, one.facts))
        : undefined;
      asked.push({ one, looked, arrivals, taking });
    }
    return { asked, next };
  }

  /** @param isOpen more is to become of it */
  async #conclude(study: WaitingStudy, asked: AskedSeries, isOpen: boolean): Promise<void> {
    const { one, looked, taking = [] } = asked;
    if (taking.length === 0 || study.series.get(one.place.series) !== one) return;
    const jobs = looked.mark?.jobs ?? [];
    if (!isOpen) {
      await this.#settle(study, asked, jobs, jobs.length === 0 ? "not_largest" : undefined);
      return;
    }
    if (one.held === undefined) return;
    const { why } = one.held;
    await this.#mark(one, looked, { objects: "", jobs, unmade: why });
    await this.#tellUnmade(one, looked, why);
  }

  async #discardAll(
    study: WaitingStudy,
    rule: Rule,
    taken: readonly AskedSeries[],
  ): Promise<{ made: Completed[]; held: undefined }> {
    const made: Completed[] = [];
    for (const one of taken) {
      // Another rule before it needs the series
      if ((one.taking?.length ?? 0) > 1) continue;
      await this.#discard(study, one, rule);
      made.push(notMade(one.looked, "discarded", rule.name));
    }
    return { made, held: undefined };
  }

  /** However much comes, and however often, a series waits no longer (ms of `monotonic`). */
  #mostOf(one: WaitingSeries, quiet: number): number {
    return one.since + Math.max(MOST_QUIETS * quiet, durations.receivedMost);
  }

  /** When (ms of `monotonic`) a series is complete for a rule. */
  #readyAt({ one, looked: { reception } }: AskedSeries, rule: Rule): number {
    const [quiet, resend] = [rule.quiet * 1000, rule.resend * 1000];
    const pause = rule.pause === undefined ? QUIETS_OF_PAUSE * quiet : rule.pause * 1000;
    const open = this.options.reception.openUntil(one.place, pause);
    // An object on its way comes later, and says so: until then it is looked at again and again
    const isComing = open === Infinity || reception.elsewhere > 0;
    const quietAt = Math.max(one.last + quiet, isComing ? monotonic() + quiet : open);
    const most = this.#mostOf(one, quiet);
    const { interruptedAt } = reception;
    const resentAt = interruptedAt === undefined ? 0 : interruptedAt + resend;
    return Math.max(Math.min(quietAt, most), Math.min(resentAt, most + resend));
  }

  /** The facts of a series, of which most are known from when it was asked before. */
  async #factsOf(
    { place, names, again, reception }: Looked,
    known = new Map<string, ObjectFacts>(),
  ): Promise<SeriesFacts> {
    const { peer } = place;
    // One that took another's place is another one
    const keyOf = (name: string) =>
      [name, ...again.filter((file) => file.startsWith(name.slice(0, -"dcm".length)))].join(" ");
    const unknown = names.filter((name) => !known.has(keyOf(name)));
    for (const some of groupsOf(unknown, READ_AT_ONCE))
      await Promise.all(
        some.map(async (name) => {
          known.set(keyOf(name), await this.#rules.read(this.#fileOf(place, name)));
        }),
      );
    const objects = names.flatMap((name) => known.get(keyOf(name)) ?? []);
    return { peer, titles: reception.titles, objects };
  }

  #fileOf({ peer, study, series }: SeriesPlace, name: string): string {
    return this.#path(...seriesPath(peer, study, series), name);
  }

  /**
   * Makes the job of a rule.
   * @returns what was made, and of which series nothing can be made as they are
   */
  async #makeOf(
    study: WaitingStudy,
    rule: JobRule,
    taken: readonly AskedSeries[],
  ): Promise<{ made: Completed[]; held: Unmade | undefined }> {
    const own = taken.map(({ looked }) => looked);
    const all = isOfStudy(rule) ? [...own, ...(await this.#othersOf(study, rule, own))] : own;
    const facts = new Map<Looked, SeriesFacts>();
    for (const looked of all) {
      const one = taken.find((asked) => asked.looked === looked)?.one;
      facts.set(looked, await this.#factsOf(looked, one?.facts));
    }
    const chosen = rule.series === "largest" ? largestOf(all, facts) : all;
    const missing = missingSeries(
      rule,
      chosen.flatMap((looked) => facts.get(looked) ?? []),
    );
    const held: Unmade | undefined =
      missing.length > 0
        ? "series_missing"
        : rule.require === "whole" && chosen.some(({ reception }) => isInterrupted(reception))
          ? "not_whole"
          : undefined;
    if (held !== undefined)
      return { made: own.map((looked) => notMade(looked, held, rule.name)), held };
    // In one order, whichever came first here: the key of the job has to be the same on all nodes
    const inOrder = [...chosen].sort((a, b) => (a.place.series < b.place.series ? -1 : 1));
    const made = await this.#jobOf(rule, inOrder);
    return { made: [made], held };
  }

  /** Series of the study that do not wait: those of earlier jobs of the rule belong to its next. */
  async #othersOf(
    { peer, study }: WaitingStudy,
    rule: JobRule,
    own: readonly Looked[],
  ): Promise<Looked[]> {
    const notes = await this.options.reception.notesOf(peer, study);
    const found: Looked[] = [];
    for (const series of await namesIn(this.#path("series", peer, study))) {
      if (!isUid(series) || own.some(({ place }) => place.series === series)) continue;
      const looked = await this.#looked({ peer, study, series }, notes);
      const { names, mark } = looked;
      if (names.length === 0) continue;
      const wasTaken = mark?.jobs.some((job) => job.rule === rule.name) === true;
      const mayBe = mark?.unmade === "not_largest";
      if (wasTaken || (mayBe && this.#rules.taking(await this.#factsOf(looked)).includes(rule)))
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
      jobId = await this.options.submit({
        peer,
        study,
        objects,
        request: await this.#requestOf(rule, all),
      });
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
        await this.#marks.write(looked.place, looked.mark);
      }
    }
    const series = all.map(({ place }) => place.series);
    return { peer, series, rule: rule.name, job_id: jobId, objects, why: null };
  }

  async #requestOf(rule: JobRule, all: readonly Looked[]): Promise<Record<string, unknown>> {
    const { models, outputs, output_folder, deliver, priority } = rule;
    const { peer = "", study = "" } = all[0]?.place ?? {};
    const request = {
      input_folder_path: await this.#inputOf(rule, all),
      output_folder_path: path.join(output_folder, peer, study),
      group: "series",
      ...(models === undefined ? {} : { models }),
      ...(outputs === undefined ? {} : { outputs }),
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
    return (await stat(this.#fileOf(place, first))).mtimeMs;
  }

  /**
   * The folder that the job reads: that of the series, or one with a further name of each object of
   * the study. The note in it says how they came.
   */
  async #inputOf(rule: JobRule, all: readonly Looked[]): Promise<string> {
    const { peer = "", study = "", series = "" } = all[0]?.place ?? {};
    const note: ReceptionNote = { series: {} };
    for (const { place, interruption } of all)
      if (interruption !== undefined) note.series[place.series] = interruption;
    const isOne = rule.group === "series";
    const folder = isOne
      ? this.#path(...seriesPath(peer, study, series))
      : await this.options.spool.made("studies", rule.name, peer, study);
    if (Object.keys(note.series).length === 0) await removeFile(folder, RECEPTION_NOTE);
    else await replaceFile(folder, RECEPTION_NOTE, JSON.stringify(note));
    if (isOne) return folder;
    const files = all.map(({ place, names }) => ({
      series: place.series,
      files: names.map((name) => this.#fileOf(place, name)),
    }));
    await linkStudy(folder, files);
    return folder;
  }

  async #discard(study: WaitingStudy, { one, looked }: AskedSeries, rule: Rule): Promise<void> {
    const { place, names } = looked;
    await this.#removal.series(place, names);
    this.options.log.info(
      { peer: place.peer, rule: rule.name, objects: names.length },
      "received objects were discarded, as their rule says",
    );
    this.#forget(study, one);
    // What came meanwhile is another series
    if ((await this.#objects(place)).length > 0) this.#await(place);
  }

  /** What was to become of a series has become of it. */
  async #settle(
    study: WaitingStudy,
    { one, looked, arrivals }: AskedSeries,
    jobs: readonly MarkedJob[],
    unmade: Unmade | undefined,
  ): Promise<void> {
    const { place, names, objects, notes } = looked;
    await this.#mark(one, looked, { objects, jobs, unmade });
    // What came meanwhile is on its way to another job
    one.since = monotonic();
    if (one.arrivals !== arrivals) return;
    this.#forget(study, one);
    if (unmade !== undefined) await this.#tellUnmade(one, looked, unmade);
    await this.options.reception.settled(place, names, notes);
  }

  /** Writes down what became of a series, unless it stands there. */
  async #mark(
    one: WaitingSeries,
    looked: Looked,
    {
      objects,
      jobs,
      unmade,
    }: Pick<SeriesMark, "objects" | "unmade"> & { jobs: readonly MarkedJob[] },
  ): Promise<void> {
    const { place, names, mark } = looked;
    const isSame = mark?.objects === objects && mark.unmade === unmade;
    if (isSame && mark.rules === this.#rules.version && mark.jobs.length === jobs.length) return;
    const classes = unmade === undefined ? undefined : await this.#classesOf(one, looked);
    looked.mark = {
      objects,
      count: names.length,
      rules: this.#rules.version,
      at: isSame ? mark.at : Date.now(),
      jobs: [...jobs],
      ...(unmade === undefined ? {} : { unmade, classes }),
    };
    await this.#marks.write(place, looked.mark);
  }

  async #classesOf(one: WaitingSeries, looked: Looked): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { sopClassUid } of (await this.#factsOf(looked, one.facts)).objects)
      counts[sopClassUid] = (counts[sopClassUid] ?? 0) + 1;
    return counts;
  }

  /** It is kept, and listed; the log says so once. */
  async #tellUnmade(one: WaitingSeries, looked: Looked, why: Unmade): Promise<void> {
    const key = keyOfPlace(looked.place);
    const isNew = this.#unmade.get(key)?.why !== why;
    const classes = looked.mark?.classes ?? (await this.#classesOf(one, looked));
    this.#unmade.set(key, { place: looked.place, why, classes });
    if (!isNew) return;
    const { peer } = looked.place;
    const told = { peer, ...(one.held === undefined ? {} : { rule: one.held.rule }), classes };
    if (why === "no_images") this.options.log.info(told, WHY_UNMADE[why]);
    else this.options.log.warn(told, WHY_UNMADE[why]);
  }

  #forget({ series }: WaitingStudy, { place }: WaitingSeries): void {
    series.delete(place.series);
    this.#unmade.delete(keyOfPlace(place));
  }

  #tellGone(peer: string): void {
    this.options.log.warn(
      { peer },
      "received images that waited for their job are not in the spool any more: nothing becomes of them",
    );
  }

  /**
   * Makes jobs of all that has come of a study, and that somebody reaches: nothing of it is made
   * where that throws.
   * @throws RadserveError where one cannot be made
   */
  async complete(
    study: string,
    reaches: (place: SeriesPlace, rule: Rule | undefined) => Promise<boolean>,
  ): Promise<Completed[]> {
    if (!isUid(study)) return [];
    const reached: SeriesPlace[] = [];
    for (const place of await this.placesOf(study)) {
      const notes = await this.options.reception.notesOf(place.peer, place.study);
      const looked = await this.#looked(place, notes);
      if (looked.names.length === 0) continue;
      const taking = this.#rules.taking(await this.#factsOf(looked, this.#waits(place)?.facts));
      let isReached = true;
      for (const rule of taking.length === 0 ? [undefined] : taking)
        isReached &&= await reaches(place, rule);
      if (isReached) reached.push(place);
    }
    const all: Completed[] = [];
    for (const places of groupsBy(reached, ({ peer, study: of }) => `${peer}/${of}`).values()) {
      const [place] = places;
      if (place === undefined) continue;
      const waiting = this.#studyOf(place);
      const { made, faults } = await this.#inTurn(waiting, () => {
        for (const one of places) this.#enter(one);
        return this.#ask(waiting, new Set(places.map(({ series }) => series)));
      });
      if (faults[0] !== undefined) {
        // It is tried again
        this.#askAt(waiting, this.#quiet(waiting.peer));
        throw faults[0];
      }
      all.push(...made);
    }
    return all;
  }

  /** The series of a StudyInstanceUID, whichever peers and patients have it. */
  async placesOf(studyInstanceUid: string): Promise<SeriesPlace[]> {
    const found: SeriesPlace[] = [];
    for (const peer of (await namesIn(this.#path("series"))).filter(isPeerFolder))
      for (const study of (await namesIn(this.#path("series", peer))).filter(isStudyFolder))
        if (studyOf(study) === studyInstanceUid)
          for (const series of (await namesIn(this.#path("series", peer, study))).filter(isUid))
            found.push({ peer, study, series });
    return found;
  }

  /** Looks through the spool now, and again and again. */
  async look(): Promise<void> {
    clearTimeout(this.#lookTimer);
    try {
      const ofSeries = [isPeerFolder, isStudyFolder, isUid];
      const leaving = await this.#foldersIn(REMOVING, [() => true, ...ofSeries]);
      for (const [rule = "", peer = "", study = "", series = ""] of leaving) {
        const place = { peer, study, series };
        await this.#alone(place, () => this.#removal.end(rule, place));
      }
      await this.#forgetRemoved();
      const settled: Settled[] = [];
      const there = await this.#foldersIn("series", ofSeries);
      for (const [peer = "", study = "", series = ""] of there) {
        if (this.#closed) break;
        const place = { peer, study, series };
        await this.#alone(place, async () => void settled.push(...(await this.#lookAt(place))));
      }
      const found = new Set(
        [...leaving.map((names) => names.slice(1)), ...there].map((names) => names.join("/")),
      );
      for (const key of this.#faults.keys()) if (!found.has(key)) this.#faults.delete(key);
      // After what waits for a job: the database may be away
      await this.#lookAfter(settled).catch((error: unknown) =>
        this.options.log.warn(
          { fault: faultForLog(error) },
          "received images that are of a job could not be looked after; it is tried again",
        ),
      );
    } catch (error) {
      this.options.log.error(
        { fault: faultForLog(error) },
        "the spool could not be looked through",
      );
    }
    clearTimeout(this.#lookTimer);
    if (!this.#closed)
      this.#lookTimer = setTimeout(() => void this.look(), durations.spoolLook).unref();
  }

  /** Series that no job is made of, and that a person has removed. */
  async #forgetRemoved(): Promise<void> {
    for (const [key, { place }] of this.#unmade)
      if ((await this.#objects(place)).length === 0) this.#unmade.delete(key);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#lookTimer);
    for (const { timer } of this.#studies.values()) clearTimeout(timer);
  }

  #path(...names: readonly string[]): string {
    return path.join(this.options.folder, ...names);
  }

  /** The names of folders below one of the spool, as deep as the checks of their names. */
  async #foldersIn(
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

  /** Whatever is wrong with one series stops no other; why it waits is told. */
  async #alone(place: SeriesPlace, work: () => Promise<void>): Promise<void> {
    const key = keyOfPlace(place);
    try {
      await work();
      this.#faults.delete(key);
    } catch (thrown) {
      const { code } = asRadserveError(thrown);
      if (this.#faults.get(key) !== code)
        this.options.log.warn(
          { peer: place.peer, error: code, fault: faultForLog(thrown) },
          "a received series could not be looked at; it is tried again",
        );
      this.#faults.set(key, code);
    }
  }

  async #objects({ peer, study, series }: SeriesPlace): Promise<string[]> {
    const names = await filesIn(this.#path(...seriesPath(peer, study, series)));
    return names.filter((name) => name.endsWith(".dcm") && isUid(name.slice(0, -".dcm".length)));
  }

  /** @param of the notes of its study, as the reception has them */
  async #looked(
    place: SeriesPlace,
    of: Awaited<ReturnType<Reception["notesOf"]>>,
  ): Promise<Looked> {
    const names = await this.#objects(place);
    const again = await namesIn(this.#path(...againPath(place.peer, place.study, place.series)));
    const mark = await this.#marks.read(place);
    const notes = of.get(place.series) ?? [];
    const reception = this.options.reception.of(place, names, notes);
    const isComing =
      reception.elsewhere > 0 || this.options.reception.openUntil(place, 0) === Infinity;
    const interruption: Interruption | undefined =
      isInterrupted(reception) || isComing
        ? {
            objects: reception.lost,
            associations: reception.broken,
            ...(isComing ? { coming: true } : {}),
          }
        : undefined;
    const how = [...reception.notes, ...(isComing ? ["coming"] : [])];
    const objects = hashOf([...names, ...again, ...how]);
    return { place, names, again, notes, reception, interruption, how, objects, mark };
  }

  /** @returns the series, if all that was to become of it has */
  async #lookAt(place: SeriesPlace): Promise<Settled[]> {
    const { peer, study } = place;
    const waits = this.#waits(place);
    if (waits !== undefined && waits.held === undefined) return [];
    const looked = await this.#looked(place, await this.options.reception.notesOf(peer, study));
    const { names, objects, mark } = looked;
    if (names.length === 0) return [];
    if (waits !== undefined) return mark === undefined ? [] : [{ place, names, mark }];
    const { jobs = [], rules, unmade } = mark ?? {};
    // Other rules may take what none of before has
    const isAsked = jobs.length > 0 || rules === this.#rules.version;
    if (mark?.objects === objects && isAsked) {
      if (unmade !== undefined && !this.#unmade.has(keyOfPlace(place)))
        this.#unmade.set(keyOfPlace(place), { place, why: unmade, classes: mark.classes ?? {} });
      return [{ place, names, mark }];
    }
    this.#await(place);
    return [];
  }

  /** What becomes of series after their jobs were made, or none was. */
  async #lookAfter(settled: readonly Settled[]): Promise<void> {
    let removed = 0;
    for (const { place, names, mark } of settled) {
      const waits = this.#waits(place);
      if (this.#closed || (waits !== undefined && waits.held === undefined)) continue;
      const states = await Promise.all(
        mark.jobs.map(async ({ ended, job_id }): Promise<JobEnd> =>
          ended ? "ended" : this.options.jobState(job_id),
        ),
      );
      if (states.includes("gone")) this.#await(place);
      if (states.some((state) => state !== "ended")) continue;
      const at = Math.max(...(mark.jobs.length === 0 ? [mark.at] : mark.jobs.map((job) => job.at)));
      if (this.options.clock.isOlder(at, this.#keep * 1000)) {
        // The others go with the next looks
        if (removed > 0 && removed + names.length > MOST_REMOVED) continue;
        removed += names.length;
        await this.#remove(place, names).catch((error: unknown) =>
          this.options.log.warn(
            { peer: place.peer, fault: faultForLog(error) },
            "received images could not be removed; it is tried again",
          ),
        );
      } else if (mark.jobs.some((job) => !job.ended))
        await this.#marks.write(place, {
          ...mark,
          jobs: mark.jobs.map((job) => ({ ...job, ended: true })),
        });
    }
  }

  async #remove(place: SeriesPlace, names: readonly string[]): Promise<void> {
    await this.#removal.series(place, names);
    const waits = this.#waits(place);
    if (waits !== undefined) this.#forget(this.#studyOf(place), waits);
    this.#unmade.delete(keyOfPlace(place));
    this.options.log.info(
      { peer: place.peer, objects: names.length },
      "received images were removed: their time is over",
    );
  }
}

/** Whether a rule looks at a study as a whole. */
const isOfStudy = ({ group, series }: Rule): boolean => group === "study" || series === "largest";

/** Each rule with the series that it takes together: of a study, or each by itself. */
function unitsOf(asked: readonly AskedSeries[]): { rule: Rule; taken: AskedSeries[] }[] {
  const rules = new Set(asked.flatMap(({ taking }) => taking ?? []));
  return [...rules].flatMap((rule) => {
    const taken = asked.filter(({ taking }) => taking?.includes(rule) === true);
    return isOfStudy(rule) ? [{ rule, taken }] : taken.map((one) => ({ rule, taken: [one] }));
  });
}

/** The one with the most images; of several, the first by SeriesInstanceUID. */
function largestOf(all: readonly Looked[], facts: ReadonlyMap<Looked, SeriesFacts>): Looked[] {
  const sizeOf = (looked: Looked) => imagesIn(facts.get(looked) ?? { objects: [] });
  const inOrder = [...all].sort((a, b) => (a.place.series < b.place.series ? -1 : 1));
  const [first, ...others] = inOrder;
  if (first === undefined) return [];
  return [others.reduce((most, one) => (sizeOf(one) > sizeOf(most) ? one : most), first)];
}

const notMade = ({ place, names }: Looked, why: Unmade, rule: string | null): Completed => ({
  peer: place.peer,
  series: [place.series],
  rule,
  job_id: null,
  objects: names.length,
  why,
});
