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
import { backOff } from "../../../base/back-off.js";
import { durations } from "../../../base/durations.js";
import { asRadserveError, type RadserveError } from "../../../base/errors.js";
import { groupsBy } from "../../../base/groups.js";
import { faultForLog } from "../../../base/log.js";
import { monotonic } from "../../../base/monotonic.js";
import { LONGEST_TIMER_MS } from "../../../base/waiting.js";
import type { RunningClock } from "../../../files/running-clock.js";
import type { JobEnd } from "../../../jobs/call.js";
import { gatewayRetry } from "../retry.js";
import { makesJobs, pauseOf, type Rule } from "../rule-settings.js";
import { markComing, SeriesReader, type KnownFacts, type Looked } from "./looked.js";
import { Marks, type MarkedJob, type SeriesMark } from "./marks.js";
import type { Unmade } from "./received.js";
import { OtherPeers } from "./other-peers.js";
import { isStudyFolder, studyOf } from "./patients.js";
import {
  isOfStudy,
  notMade,
  ReceivedJobs,
  type Completed,
  type JobsOptions,
} from "./received-jobs.js";
import type { Received, ReceivedDetails } from "./received.js";
import { Removal, REMOVING, type RemovalOptions } from "./removal.js";
import { imagesIn, type RuleBook } from "./rules.js";
import { isUid } from "../../../images/dicom/value-forms.js";
import { isPeerFolder } from "./spool-folders.js";
import { keyOfPlace, type KeptObject, type SeriesPlace } from "./spool.js";

/** Objects that one look removes at most: no fault of a clock empties the spool at once. */
const MOST_REMOVED = 10_000;
/** A series of which something comes again and again waits for so many times its rule's `quiet`. */
const MOST_QUIETS = 10;

export interface ArrivalsOptions
  extends Omit<JobsOptions, "reader" | "marks">, Omit<RemovalOptions, "reception"> {
  spool: JobsOptions["spool"] & RemovalOptions["spool"];
  rules: RuleBook;
  /** Seconds. */
  keep: number;
  clock: Pick<RunningClock, "isOlder">;
}

/** A series of which something is still to become. */
interface WaitingSeries {
  place: SeriesPlace;
  /** Objects that are known here; where there are more, another node receives, too. */
  known: number | undefined;
  /** How often something came, was interrupted, or ended. */
  arrivals: number;
  /** Since when, and when the last object came (ms of `monotonic`). */
  since: number;
  last: number;
  /** Others after the rules have changed. */
  facts: KnownFacts;
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

/** A series that no job is made of. */
export interface UnmadeSeries {
  place: SeriesPlace;
  why: Unmade;
  /** Numbers of its objects, by SOP class. */
  classes: Record<string, number>;
}

/** A series whose objects are all of jobs, or of none. */
interface Settled extends Pick<Looked, "place" | "names" | "objects"> {
  mark: SeriesMark;
}

/** A waiting series as it is looked at. */
interface AskedSeries {
  one: WaitingSeries;
  looked: Looked;
  /** Of before it was looked at; undefined where it came only then. */
  arrivals: number | undefined;
  /** By which it was asked about. */
  facts: KnownFacts;
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

export class Arrivals {
  /** By peer and study. */
  readonly #studies = new Map<string, WaitingStudy>();
  readonly #unmade = new Map<string, UnmadeSeries>();
  readonly #marks: Marks;
  readonly #removal: Removal;
  readonly #reader: SeriesReader;
  readonly #otherPeers: OtherPeers;
  readonly #jobs: ReceivedJobs;
  /** Codes, of series that could not be looked at. */
  readonly #faults = new Map<string, string>();
  #keep: number;
  #lookTimer: NodeJS.Timeout | undefined;
  /** Looks one after the other in which something could not be seen. */
  #lookFailures = 0;
  #closed = false;

  constructor(private readonly options: ArrivalsOptions) {
    const { folder, spool, reception, rules, keep } = options;
    this.#keep = keep;
    this.#marks = new Marks(folder, (names, work) => spool.within(names, work));
    this.#removal = new Removal(options);
    this.#reader = new SeriesReader(folder, reception, this.#marks, rules);
    this.#otherPeers = new OtherPeers(this.#reader, reception);
    this.#jobs = new ReceivedJobs({ ...options, reader: this.#reader, marks: this.#marks });
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
    if (rules.version === this.#reader.rules.version) return;
    this.#reader.rules = rules;
    for (const study of this.#studies.values()) {
      for (const one of study.series.values()) one.facts = this.#reader.unknown();
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
    // A wait that is over counts no longer: its limit would make a job of whichever part came first
    if (one.last + this.#longest(peer) <= monotonic()) one.since = monotonic();
    this.#release(one);
    one.last = monotonic();
    this.#unmade.delete(keyOfPlace(place));
    if (isKnown && kept.fresh && one.known !== undefined) one.known += 1;
    this.#askAt(this.#studyOf(place), this.#quiet(peer));
    if (isKnown) return;
    const { length } = await this.#reader.objects(place);
    one.known ??= length;
  }

  /** The reception of a series was interrupted; it may have its job already. */
  interrupted(place: SeriesPlace): void {
    const known = this.#waits(place);
    if (known !== undefined) {
      known.arrivals += 1;
      this.#release(known);
      this.#await(place);
      return;
    }
    const add = async () => {
      if ((await this.#reader.objects(place)).length > 0) this.#await(place);
    };
    // It is found when the spool is looked through
    void add().catch(() => undefined);
  }

  /** What has brought a series is over, and keeps it open no longer. */
  closed(place: SeriesPlace): void {
    const known = this.#waits(place);
    if (known === undefined) return;
    known.arrivals += 1;
    this.#askAt(this.#studyOf(place), this.#quiet(place.peer));
  }

  #waits({ peer, study, series }: SeriesPlace): WaitingSeries | undefined {
    return this.#studies.get(`${peer}/${study}`)?.series.get(series);
  }

  #factsAt(place: SeriesPlace): KnownFacts {
    return this.#waits(place)?.facts ?? this.#reader.unknown();
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
      facts: this.#reader.unknown(),
      held: undefined,
    };
    series.set(place.series, made);
    this.#unmade.delete(keyOfPlace(place));
    return made;
  }

  /** Something may become of it again: where nothing could, its wait begins anew. */
  #release(one: WaitingSeries): void {
    if (one.held !== undefined) one.since = monotonic();
    one.held = undefined;
  }

  #await(place: SeriesPlace): void {
    this.#enter(place);
    this.#askAt(this.#studyOf(place), this.#quiet(place.peer));
  }

  /** Milliseconds without an object after which the first rule may be asked. */
  #quiet(peer: string): number {
    const quiets = this.#reader.rules.rules.flatMap(({ from, quiet }) =>
      from?.includes(peer) === false ? [] : quiet,
    );
    return 1000 * Math.min(...(quiets.length === 0 ? [60] : quiets));
  }

  /** Milliseconds without an object after which no rule waits for another one. */
  #longest(peer: string): number {
    const waits = this.#reader.rules.rules.flatMap((rule) =>
      rule.from?.includes(peer) === false
        ? []
        : [rule.quiet * 1000, pauseOf(rule), rule.resend * 1000],
    );
    return Math.max(this.#quiet(peer), ...waits);
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
    // Other rules were read meanwhile: nothing is to be made, or removed, by those of before
    if (asked.some(({ facts }) => facts.rules !== this.#reader.rules))
      return this.#ask(study, forced);
    let next = quietAt;
    for (const one of asked.filter(({ taking }) => taking?.length === 0)) {
      const facts = await this.#reader.factsOf(one.looked, one.facts);
      const why = imagesIn(facts) === 0 ? "no_images" : "no_rule";
      await this.#settle(study, one, [], why);
      made.push(notMade(one.looked, why, null));
    }
    /** Series of which more is to become. */
    const open = new Set<AskedSeries>();
    /** Series that wait no longer, though more of them is to come. */
    const parts = new Set<AskedSeries>();
    for (const { rule, taken } of unitsOf(asked)) {
      // Nothing is made, or removed, by rules that were replaced meanwhile
      if (taken.some(({ facts }) => facts.rules !== this.#reader.rules)) {
        next = monotonic();
        for (const one of taken) open.add(one);
        continue;
      }
      const isForced = taken.every(({ one }) => forced.has(one.place.series));
      const readyAt = Math.max(
        ...(isOfStudy(rule) ? asked : taken).map((one) => this.#readyAt(one, rule)),
      );
      if (!isForced && readyAt > monotonic()) {
        next = Math.min(next, readyAt);
        for (const one of taken) open.add(one);
        continue;
      }
      // Who says that all has come knows it
      const ofUnit = isForced ? [] : taken.filter((one) => this.#quietAt(one, rule) > monotonic());
      for (const { looked } of ofUnit) markComing(looked);
      if (ofUnit.length > 0) next = Math.min(next, monotonic() + rule.quiet * 1000);
      try {
        const done = makesJobs(rule)
          ? await this.#jobs.make(
              study,
              rule,
              taken.map(({ looked, facts }) => ({ looked, facts })),
            )
          : await this.#discardAll(study, rule, taken);
        made.push(...done.made);
        for (const one of ofUnit) parts.add(one);
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
    for (const one of asked)
      // It is asked about again when it is quiet, and waits anew until then
      if (parts.has(one) && !open.has(one)) one.one.since = monotonic();
      else await this.#conclude(study, one, open.has(one));
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
    // Of one moment: what becomes quiet meanwhile was not compared
    const now = monotonic();
    const here = [...study.series.values()].flatMap(({ place, last }) =>
      forced.has(place.series) || last + quiet <= now ? [place] : [],
    );
    // What is a part since these came becomes another job
    for (const part of await this.#otherPeers.compare(study.study, here)) this.#await(part);
    // Of before the notes are read: what is interrupted after that stands in none of them
    const before = new Map([...study.series.values()].map((one) => [one, one.arrivals]));
    const notes = await this.options.reception.notesOf(peer, study.study);
    // With those that come meanwhile: a rule for studies waits for them
    for (const one of study.series.values()) {
      const looked = await this.#reader.looked(one.place, notes);
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
      const isQuiet = forced.has(one.place.series) || quietAt <= now;
      if (!isQuiet) next = Math.min(next, quietAt);
      const { facts } = one;
      const taking = isQuiet ? await this.#reader.taking(looked, facts) : undefined;
      asked.push({ one, looked, arrivals: before.get(one), facts, taking });
    }
    return { asked, next };
  }

  /** @param isOpen more is to become of it */
  async #conclude(study: WaitingStudy, asked: AskedSeries, isOpen: boolean): Promise<void> {
    const { one, looked, facts, taking = [] } = asked;
    if (taking.length === 0 || study.series.get(one.place.series) !== one) return;
    const jobs = looked.mark?.jobs ?? [];
    if (!isOpen) {
      await this.#settle(study, asked, jobs, jobs.length === 0 ? "not_largest" : undefined);
      return;
    }
    if (one.held === undefined) return;
    const { why } = one.held;
    await this.#mark(facts, looked, { objects: "", jobs, unmade: why });
    await this.#tellUnmade(asked, why);
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

  /** When (ms of `monotonic`) nothing more of a series is to come, as far as a rule sees. */
  #quietAt({ one, looked, arrivals }: AskedSeries, rule: Rule): number {
    const quiet = rule.quiet * 1000;
    const open = this.options.reception.openUntil(one.place, pauseOf(rule));
    // An object on its way comes later, and says so: until then it is looked at again and again.
    // What has come, was lost or broke off since the series was looked at is seen by the next look
    const wasComing = looked.interruption?.coming === true || one.arrivals !== arrivals;
    const isComing = open === Infinity || wasComing;
    return Math.max(one.last + quiet, isComing ? monotonic() + quiet : open);
  }

  /** When (ms of `monotonic`) a rule waits no longer for a series. */
  #readyAt(asked: AskedSeries, rule: Rule): number {
    const { one, looked, taking } = asked;
    // It may be of its study, and is asked about by the next look
    if (taking === undefined) return Infinity;
    const [quiet, resend] = [rule.quiet * 1000, rule.resend * 1000];
    const quietAt = this.#quietAt(asked, rule);
    const most = this.#mostOf(one, quiet);
    const { interruptedAt } = looked.reception;
    const resentAt = interruptedAt === undefined ? 0 : interruptedAt + resend;
    return Math.max(Math.min(quietAt, most), Math.min(resentAt, most + resend));
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
    if ((await this.#reader.objects(place)).length > 0) this.#await(place);
  }

  /** What was to become of a series has become of it. */
  async #settle(
    study: WaitingStudy,
    asked: AskedSeries,
    jobs: readonly MarkedJob[],
    unmade: Unmade | undefined,
  ): Promise<void> {
    const { one, looked, facts, arrivals } = asked;
    const { place, names, objects, notes } = looked;
    await this.#mark(facts, looked, { objects, jobs, unmade });
    // What came meanwhile is on its way to another job
    one.since = monotonic();
    if (one.arrivals !== arrivals) return;
    // The rules that were read meanwhile are asked next
    if (unmade !== undefined && facts.rules !== this.#reader.rules) return;
    this.#forget(study, one);
    if (unmade !== undefined) await this.#tellUnmade(asked, unmade);
    await this.options.reception.settled(place, names, notes);
  }

  /** Writes down what became of a series, unless it stands there. */
  async #mark(
    facts: KnownFacts,
    looked: Looked,
    {
      objects,
      jobs,
      unmade,
    }: Pick<SeriesMark, "objects" | "unmade"> & { jobs: readonly MarkedJob[] },
  ): Promise<void> {
    const { place, names, mark } = looked;
    const { version } = facts.rules;
    const isSame = mark?.objects === objects && mark.unmade === unmade;
    if (isSame && mark.rules === version && mark.jobs.length === jobs.length) return;
    const classes = unmade === undefined ? undefined : await this.#classesOf(facts, looked);
    looked.mark = {
      objects,
      count: names.length,
      rules: version,
      at: isSame ? mark.at : Date.now(),
      jobs: [...jobs],
      ...(unmade === undefined ? {} : { unmade, classes }),
    };
    await this.#marks.write(place, looked.mark);
  }

  async #classesOf(facts: KnownFacts, looked: Looked): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { sopClassUid } of (await this.#reader.factsOf(looked, facts)).objects)
      counts[sopClassUid] = (counts[sopClassUid] ?? 0) + 1;
    return counts;
  }

  /** It is kept, and listed; the log says so once. */
  async #tellUnmade({ one, looked, facts }: AskedSeries, why: Unmade): Promise<void> {
    const key = keyOfPlace(looked.place);
    const isNew = this.#unmade.get(key)?.why !== why;
    const classes = looked.mark?.classes ?? (await this.#classesOf(facts, looked));
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
    for (const place of await this.#reader.placesOf(study)) {
      const notes = await this.options.reception.notesOf(place.peer, place.study);
      const looked = await this.#reader.looked(place, notes);
      if (looked.names.length === 0) continue;
      const taking = await this.#reader.taking(looked, this.#factsAt(place));
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

  /** All series of the spool, or those of one StudyInstanceUID, or of one patient with it. */
  async places(study?: string): Promise<SeriesPlace[]> {
    if (study !== undefined) return this.#reader.placesOf(study);
    const all = await this.#reader.foldersIn("series", [isPeerFolder, isStudyFolder, isUid]);
    return all.map(([peer = "", study = "", series = ""]) => ({ peer, study, series }));
  }

  /** What is known of a series; undefined where nothing of it is there. */
  async seen(place: SeriesPlace): Promise<Received | undefined> {
    const { peer, study, series } = place;
    const notes = await this.options.reception.notesOf(peer, study);
    const { names, mark, reception } = await this.#reader.looked(place, notes);
    if (names.length === 0) return undefined;
    const waits = this.#waits(place);
    const why = waits?.held?.why ?? mark?.unmade ?? null;
    const isWaiting = this.#isOpen(place);
    const jobs = (mark?.jobs ?? []).map(({ rule, job_id }) => ({ rule, job_id }));
    const state = isWaiting || mark === undefined ? "waiting" : why === null ? "job" : "unused";
    return {
      peer,
      study_instance_uid: studyOf(study),
      study,
      series_instance_uid: series,
      apart: studyOf(study) !== study,
      objects: names.length,
      state,
      why: state === "unused" ? why : null,
      jobs,
      lost: reception.lost,
      broken: reception.broken,
      ...(state === "unused" && mark?.classes !== undefined ? { classes: mark.classes } : {}),
    };
  }

  /** The same, and what each rule says to it. */
  async details(place: SeriesPlace): Promise<ReceivedDetails | undefined> {
    const seen = await this.seen(place);
    if (seen === undefined) return undefined;
    const notes = await this.options.reception.notesOf(place.peer, place.study);
    const looked = await this.#reader.looked(place, notes);
    const known = this.#factsAt(place);
    const facts = await this.#reader.factsOf(looked, known);
    const rules = known.rules.verdicts(facts).map(({ rule, why, asked }) => ({
      rule: rule.name,
      takes: why.length === 0,
      asked,
      why,
    }));
    return { ...seen, rules };
  }

  /**
   * A person has a series removed; results of its jobs stay.
   * @returns how many objects it had
   * @throws RadserveError audit_failed
   */
  async remove(place: SeriesPlace): Promise<number> {
    return this.#inTurn(this.#studyOf(place), async () => {
      const names = await this.#reader.objects(place);
      if (names.length > 0) await this.#remove(place, names, "as somebody asked");
      return names.length;
    });
  }

  /** Looks through the spool now, and again and again. */
  async look(): Promise<void> {
    clearTimeout(this.#lookTimer);
    let isWhole = true;
    const { log, reception } = this.options;
    // What was open in a process before has broken off before anything becomes of it
    await reception.begin().catch((error: unknown) => {
      log.error({ fault: faultForLog(error) }, "how series came before could not be read");
      isWhole = false;
    });
    try {
      const ofSeries = [isPeerFolder, isStudyFolder, isUid];
      const leaving = await this.#reader.foldersIn(REMOVING, [() => true, ...ofSeries]);
      for (const [rule = "", peer = "", study = "", series = ""] of leaving) {
        const place = { peer, study, series };
        await this.#alone(place, () =>
          this.#inTurn(this.#studyOf(place), () => this.#removal.end(rule, place)),
        );
      }
      await this.#forgetRemoved();
      await reception.sweep((at) => this.options.clock.isOlder(at, this.#keep * 1000));
      const settled: Settled[] = [];
      const there = await this.#reader.foldersIn("series", ofSeries);
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
        log.warn(
          { fault: faultForLog(error) },
          "received images that are of a job could not be looked after; it is tried again",
        ),
      );
    } catch (error) {
      log.error(
        { fault: faultForLog(error) },
        "the spool could not be looked through; it is tried again",
      );
      isWhole = false;
    }
    clearTimeout(this.#lookTimer);
    if (!this.#closed)
      this.#lookTimer = setTimeout(() => void this.look(), this.#untilLook(isWhole)).unref();
  }

  /** Milliseconds until the next look, soon where something could not be seen in this one. */
  #untilLook(isWhole: boolean): number {
    this.#lookFailures = isWhole && this.#faults.size === 0 ? 0 : this.#lookFailures + 1;
    if (this.#lookFailures === 0) return durations.spoolLook;
    return Math.min(durations.spoolLook, backOff(this.#lookFailures, gatewayRetry()));
  }

  /** Series that no job is made of, and that a person has removed. */
  async #forgetRemoved(): Promise<void> {
    for (const [key, { place }] of this.#unmade)
      if ((await this.#reader.objects(place)).length === 0) this.#unmade.delete(key);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#lookTimer);
    for (const { timer } of this.#studies.values()) clearTimeout(timer);
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

  /** @returns the series, if all that was to become of it has */
  async #lookAt(place: SeriesPlace): Promise<Settled[]> {
    const { peer, study } = place;
    if (this.#isOpen(place)) return [];
    const isHeld = this.#waits(place) !== undefined;
    const looked = await this.#reader.looked(
      place,
      await this.options.reception.notesOf(peer, study),
    );
    const { names, objects, mark } = looked;
    if (names.length === 0) return [];
    if (isHeld) return mark === undefined ? [] : [{ place, names, objects, mark }];
    const { jobs = [], rules, unmade } = mark ?? {};
    // Other rules may take what none of before has
    const isAsked = jobs.length > 0 || rules === this.#reader.rules.version;
    if (mark?.objects === objects && isAsked) {
      if (unmade !== undefined && !this.#unmade.has(keyOfPlace(place)))
        this.#unmade.set(keyOfPlace(place), { place, why: unmade, classes: mark.classes ?? {} });
      return [{ place, names, objects, mark }];
    }
    this.#await(place);
    return [];
  }

  /** What becomes of series after their jobs were made, or none was. */
  async #lookAfter(settled: readonly Settled[]): Promise<void> {
    let removed = 0;
    for (const one of settled) {
      const { place, names, mark } = one;
      if (this.#closed || this.#isOpen(place)) continue;
      const states = await Promise.all(
        mark.jobs.map(async ({ ended, job_id }): Promise<JobEnd> =>
          ended ? "ended" : this.options.jobState(job_id),
        ),
      );
      if (states.includes("gone")) this.#await(place);
      if (states.some((state) => state === "open" || state === "gone")) continue;
      const at = Math.max(...(mark.jobs.length === 0 ? [mark.at] : mark.jobs.map((job) => job.at)));
      if (this.options.clock.isOlder(at, this.#keep * 1000)) {
        // The others go with the next looks
        if (removed > 0 && removed + names.length > MOST_REMOVED) continue;
        removed += names.length;
        await this.#removeOld(one).catch((error: unknown) =>
          this.options.log.warn(
            { peer: place.peer, fault: faultForLog(error) },
            "received images could not be removed; it is tried again",
          ),
        );
      } else if (mark.jobs.some((job) => !job.ended)) await this.#noteEnd(place, mark.jobs);
    }
  }

  /** More is to become of a series. */
  #isOpen(place: SeriesPlace): boolean {
    const waits = this.#waits(place);
    return waits !== undefined && waits.held === undefined;
  }

  /**
   * Removes a series whose time is over, unless it comes again, or has become another one or
   * another job since that was seen.
   */
  async #removeOld({ place, names, objects, mark }: Settled): Promise<void> {
    const { peer, study } = place;
    await this.#inTurn(this.#studyOf(place), async () => {
      const notes = await this.options.reception.notesOf(peer, study);
      const now = await this.#reader.looked(place, notes);
      const isSame = now.objects === objects && JSON.stringify(now.mark) === JSON.stringify(mark);
      if (this.#isOpen(place) || !isSame) return;
      await this.#remove(place, names, "their time is over");
    });
  }

  /** Notes that jobs have ended; the series may have become another job meanwhile. */
  async #noteEnd(place: SeriesPlace, ended: readonly MarkedJob[]): Promise<void> {
    const ids = new Set(ended.map(({ job_id }) => job_id));
    await this.#inTurn(this.#studyOf(place), async () => {
      const mark = await this.#marks.read(place);
      const isNews = ({ job_id, ended }: MarkedJob) => ids.has(job_id) && !ended;
      if (mark?.jobs.some(isNews) !== true) return;
      const jobs = mark.jobs.map((job) => (isNews(job) ? { ...job, ended: true } : job));
      await this.#marks.write(place, { ...mark, jobs });
    });
  }

  async #remove(place: SeriesPlace, names: readonly string[], why: string): Promise<void> {
    await this.#removal.series(place, names);
    const waits = this.#waits(place);
    if (waits !== undefined) this.#forget(this.#studyOf(place), waits);
    this.#unmade.delete(keyOfPlace(place));
    this.options.log.info(
      { peer: place.peer, objects: names.length },
      `received images were removed: ${why}`,
    );
    // What came meanwhile is another series; where it cannot be seen, the next look finds it
    const left = await this.#reader.objects(place).catch(() => []);
    if (left.length > 0) this.#await(place);
  }
}

/** Each rule with the series that it takes together: of a study, or each by itself. */
function unitsOf(asked: readonly AskedSeries[]): { rule: Rule; taken: AskedSeries[] }[] {
  const rules = new Set(asked.flatMap(({ taking }) => taking ?? []));
  return [...rules].flatMap((rule) => {
    const taken = asked.filter(({ taking }) => taking?.includes(rule) === true);
    return isOfStudy(rule) ? [{ rule, taken }] : taken.map((one) => ({ rule, taken: [one] }));
  });
}
