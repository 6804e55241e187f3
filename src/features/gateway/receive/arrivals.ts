/**
 * What becomes of received objects. A series, or all series of a study that a rule takes, becomes a
 * job when none of its objects has come for the time that the rule sets, or when a client says that
 * it is complete. It is removed when its job has ended and the set time is over.
 *
 *     marks/PEER/STUDY/SERIES.json     which objects of a series are of which job
 *     studies/RULE/PEER/STUDY/...      the objects of a study in one folder, for a rule of studies
 *     removing/RULE/PEER/STUDY/SERIES  series that are removed just now
 *
 * Nothing depends on memory alone: a look through the spool finds objects that have no mark or came
 * after their mark. The key of a job follows from what it is of, so that nodes which share a spool,
 * and processes which follow one another, make one job of it.
 */
import { closeSync } from "node:fs";
import { link, lstat, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { headOf } from "../../../jobs/classify.js";
import { durations } from "../../../base/durations.js";
import { backOff } from "../../../base/back-off.js";
import { errno } from "../../../base/errno.js";
import { asRadserveError, errors } from "../../../base/errors.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { monotonic } from "../../../base/monotonic.js";
import { storedJson } from "../../../base/stored-json.js";
import { readStart } from "../../../files/descriptor.js";
import { openPlain } from "../../../files/disk.js";
import { ifMissing, sha256, syncFolder } from "../../../files/durable-files.js";
import { replaceFile } from "../../../files/new-file.js";
import type { RunningClock } from "../../../files/running-clock.js";
import { tagReasons } from "../../../models/acceptance.js";
import type { JobEnd } from "../../../jobs/call.js";
import { gatewayRetry } from "../retry.js";
import type { Rule } from "../settings.js";
import { isStudyFolder, studyOf } from "./patients.js";
import {
  filesIn,
  isPeerFolder,
  namesIn,
  removeEmpty,
  removeFile,
  textIn,
} from "./spool-folders.js";
import { againPath, isUid, objectPath, seriesPath, type KeptObject, type Spool } from "./spool.js";

const FIRST_BYTES = 16 * 1024;
/** Objects that one look removes at most: no fault of a clock empties the spool at once. */
const MOST_REMOVED = 10_000;
/** A series of which something comes again and again waits for so many times its rule's `quiet`. */
const MOST_QUIETS = 10;
/** A timer of Node.js that is to run for longer ends at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

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
}

export interface ArrivalsOptions {
  folder: string;
  spool: Pick<Spool, "made" | "patients">;
  rules: readonly Rule[];
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

/** Which objects of a series are of which job. */
const markSchema = z.object({
  /** SHA-256 over the names of the objects, and of those that took the place of damaged ones. */
  objects: z.string(),
  count: z.int(),
  rule: z.string(),
  job_id: z.string(),
  /** The job was seen to have ended. One that goes before that was lost, and is made again. */
  ended: z.boolean(),
  /** Milliseconds since 1970. */
  at: z.number(),
});
type JobMark = z.infer<typeof markSchema>;

interface ArrivedSeries {
  peer: string;
  study: string;
  series: string;
}

/** A series whose objects are all of a job. */
interface Made {
  one: ArrivedSeries;
  names: string[];
  mark: JobMark;
}

/** What lies in the spool of a series. */
interface Looked {
  series: string;
  names: string[];
  /** Of those that took the place of damaged ones. */
  again: string[];
  objects: string;
  mark: JobMark | undefined;
}

/** Series that become one job. */
interface ArrivalGroup {
  peer: string;
  study: string;
  rule: Rule;
  series: Set<string>;
  /** Objects that are known here; where there are more, another node receives, too. */
  known: number;
  /** How often something came. */
  arrivals: number;
  /** Since when (ms of `monotonic`) it waits for its job. */
  since: number;
  timer: NodeJS.Timeout | undefined;
  failures: number;
  /** Why it cannot become a job: a code. */
  fault: string | undefined;
  /** One step after the other. */
  work: Promise<unknown>;
}

const keyOf = ({ peer, study, series }: ArrivedSeries) => `${peer}/${study}/${series}`;
const hashOf = (names: readonly string[]) => sha256([...names].sort().join("\n"));
/** Another name of an object in the folder of a study in which two series have its UID. */
const nameBeside = (name: string, series: string) =>
  `${name.slice(0, -".dcm".length)}.${sha256(series).slice(0, 16)}.dcm`;

export class Arrivals {
  /**
   * The group of each series that waits; undefined of one that no rule takes, which is told once.
   */
  readonly #groups = new Map<string, Promise<ArrivalGroup | undefined>>();
  readonly #waiting = new Map<string, ArrivalGroup>();
  /** Series that no rule takes. */
  readonly #withoutRule = new Map<string, ArrivedSeries>();
  #lookTimer: NodeJS.Timeout | undefined;
  #closed = false;
  /** Codes, of series that could not be looked at. */
  readonly #faults = new Map<string, string>();

  constructor(private readonly options: ArrivalsOptions) {}

  /**
   * Series and studies that wait, series that no rule takes, and why some cannot become jobs:
   * codes.
   */
  get figures(): { waiting: number; withoutRule: number; faults: string[] } {
    const ofGroups = [...this.#waiting.values()].flatMap(({ fault }) => fault ?? []);
    const faults = [...ofGroups, ...this.#faults.values()];
    return { waiting: this.#waiting.size, withoutRule: this.#withoutRule.size, faults };
  }

  /** An object has come. */
  async arrived(peer: string, kept: KeptObject): Promise<void> {
    const one = { peer, study: kept.study, series: kept.seriesInstanceUid };
    const isKnown = this.#groups.has(keyOf(one));
    const group = await this.#groupIfThere(one);
    if (group === undefined) return;
    if (isKnown && kept.fresh) group.known += 1;
    group.arrivals += 1;
    this.#wait(group, quietOf(group));
  }

  /**
   * Makes jobs of all that has come of a study, and that somebody reaches: nothing of it is made
   * where that throws.
   * @throws RadserveError where one cannot be made
   */
  async complete(
    study: string,
    reaches: (one: ArrivedSeries, rule: Rule | undefined) => Promise<boolean>,
  ): Promise<Completed[]> {
    const all: Completed[] = [];
    if (!isUid(study)) return all;
    const groups = new Set<ArrivalGroup>();
    for (const one of await this.#seriesOf(study)) {
      const { peer, series } = one;
      const group = await this.#groupIfThere(one);
      if (!(await reaches(one, group?.rule))) continue;
      if (group !== undefined) {
        groups.add(group);
        // Should it fail now, it is tried again
        if (group.timer === undefined) this.#wait(group, quietOf(group));
      } else {
        const { length: objects } = await this.#objects(one);
        all.push({ peer, series: [series], rule: null, job_id: null, objects });
      }
    }
    for (const group of groups) {
      const made = await this.#inTurn(group, () => this.#submit(group));
      all.push({ peer: group.peer, rule: group.rule.name, ...made });
    }
    return all;
  }

  /** The series of a StudyInstanceUID, whichever peers and patients have it. */
  async #seriesOf(study: string): Promise<ArrivedSeries[]> {
    const found: ArrivedSeries[] = [];
    for (const peer of await namesIn(this.#path("series")))
      for (const folder of await namesIn(this.#path("series", peer)))
        if (studyOf(folder) === study)
          for (const series of await namesIn(this.#path("series", peer, folder)))
            found.push({ peer, study: folder, series });
    return found;
  }

  /** Looks through the spool now, and again and again. */
  async look(): Promise<void> {
    try {
      const ofSeries = [isPeerFolder, isStudyFolder, isUid];
      const leaving = await this.#foldersIn("removing", [() => true, ...ofSeries]);
      for (const [rule = "", peer = "", study = "", series = ""] of leaving) {
        const one = { peer, study, series };
        await this.#alone(one, () => this.#endRemoval(rule, one));
      }
      await this.#forgetRemoved();
      const made: Made[] = [];
      const there = await this.#foldersIn("series", ofSeries);
      for (const [peer = "", study = "", series = ""] of there) {
        if (this.#closed) break;
        const one = { peer, study, series };
        await this.#alone(one, async () => void made.push(...(await this.#lookAt(one))));
      }
      const found = new Set(
        [...leaving.map((names) => names.slice(1)), ...there].map((names) => names.join("/")),
      );
      for (const key of this.#faults.keys()) if (!found.has(key)) this.#faults.delete(key);
      // After what waits for a job: the database may be away
      await this.#lookAfter(made).catch((error: unknown) =>
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
    if (!this.#closed)
      this.#lookTimer = setTimeout(() => void this.look(), durations.spoolLook).unref();
  }

  /** Series that no rule takes, and that a person has removed. */
  async #forgetRemoved(): Promise<void> {
    for (const [key, one] of this.#withoutRule)
      if ((await this.#objects(one)).length === 0) {
        this.#withoutRule.delete(key);
        this.#groups.delete(key);
      }
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#lookTimer);
    for (const { timer } of this.#waiting.values()) clearTimeout(timer);
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
  async #alone(one: ArrivedSeries, work: () => Promise<void>): Promise<void> {
    const key = keyOf(one);
    try {
      await work();
      this.#faults.delete(key);
    } catch (thrown) {
      const { code } = asRadserveError(thrown);
      if (this.#faults.get(key) !== code)
        this.options.log.warn(
          { peer: one.peer, error: code, fault: faultForLog(thrown) },
          "a received series could not be looked at; it is tried again",
        );
      this.#faults.set(key, code);
    }
  }

  async #objects({ peer, study, series }: ArrivedSeries): Promise<string[]> {
    const names = await filesIn(this.#path(...seriesPath(peer, study, series)));
    return names.filter((name) => name.endsWith(".dcm") && isUid(name.slice(0, -".dcm".length)));
  }

  async #markOf({ peer, study, series }: ArrivedSeries): Promise<JobMark | undefined> {
    const text = await textIn(this.#path("marks", peer, study), `${series}.json`);
    // Where it is damaged, the key of the job finds it again
    return markSchema.safeParse(storedJson(text ?? "null")).data;
  }

  async #looked(one: ArrivedSeries): Promise<Looked> {
    const names = await this.#objects(one);
    const again = await namesIn(this.#path(...againPath(one.peer, one.study, one.series)));
    const mark = await this.#markOf(one);
    return { series: one.series, names, again, objects: hashOf([...names, ...again]), mark };
  }

  /** @returns the series, if it is of a job already */
  async #lookAt(one: ArrivedSeries): Promise<Made[]> {
    if (this.#groups.has(keyOf(one))) return [];
    const { names, objects, mark } = await this.#looked(one);
    if (names.length === 0) return [];
    if (mark?.objects === objects) return [{ one, names, mark }];
    await this.#await(one);
    return [];
  }

  async #await(one: ArrivedSeries): Promise<void> {
    const group = await this.#groupIfThere(one);
    if (group !== undefined) this.#wait(group, quietOf(group));
  }

  /** What becomes of series after their jobs were made. */
  async #lookAfter(made: readonly Made[]): Promise<void> {
    let removed = 0;
    for (const { one, names, mark } of made) {
      if (this.#closed || this.#groups.has(keyOf(one))) continue;
      const state = mark.ended ? "ended" : await this.options.jobState(mark.job_id);
      if (state === "gone") await this.#await(one);
      if (state !== "ended") continue;
      if (this.options.clock.isOlder(mark.at, this.options.keep * 1000)) {
        // The others go with the next looks
        if (removed > 0 && removed + names.length > MOST_REMOVED) continue;
        removed += names.length;
        await this.#remove(one, names, mark.rule).catch((error: unknown) =>
          this.options.log.warn(
            { peer: one.peer, fault: faultForLog(error) },
            "received images could not be removed; it is tried again",
          ),
        );
      } else if (!mark.ended) await this.#writeMark(one, { ...mark, ended: true });
    }
  }

  /** Undefined too where somebody has removed the series just now. */
  async #groupIfThere(one: ArrivedSeries): Promise<ArrivalGroup | undefined> {
    try {
      return await this.#groupOf(one);
    } catch (error) {
      if ((await this.#objects(one)).length > 0) throw error;
      this.#tellGone({ peer: one.peer });
      return undefined;
    }
  }

  #tellGone(of: { peer: string; rule?: string }): void {
    this.options.log.warn(
      of,
      "received images that waited for their job are not in the spool any more: nothing becomes of them",
    );
  }

  #groupOf(one: ArrivedSeries): Promise<ArrivalGroup | undefined> {
    const key = keyOf(one);
    const found = this.#groups.get(key) ?? this.#enter(one);
    this.#groups.set(key, found);
    // Asked again when the next object comes
    found.catch(() => this.#groups.delete(key));
    return found;
  }

  async #enter(one: ArrivedSeries): Promise<ArrivalGroup | undefined> {
    const names = await this.#objects(one);
    if (names.length === 0) throw errors.not_found("The series is not in the spool any more.");
    const rule = await this.#ruleOf(one, names);
    if (rule === undefined) {
      this.#withoutRule.set(keyOf(one), one);
      this.options.log.warn(
        { peer: one.peer },
        "no rule takes a received series: it is kept, and no job is made",
      );
      return undefined;
    }
    const key = [
      rule.name,
      one.peer,
      one.study,
      ...(rule.group === "series" ? [one.series] : []),
    ].join("/");
    const group = this.#waiting.get(key) ?? {
      peer: one.peer,
      study: one.study,
      rule,
      series: new Set<string>(),
      known: 0,
      arrivals: 0,
      since: monotonic(),
      timer: undefined,
      failures: 0,
      fault: undefined,
      work: Promise.resolve(),
    };
    this.#waiting.set(key, group);
    group.series.add(one.series);
    group.known += names.length;
    return group;
  }

  /** The first rule that takes the series by its sender and the attributes of one object. */
  async #ruleOf(one: ArrivedSeries, names: readonly string[]): Promise<Rule | undefined> {
    const head = await this.#headIn(one, names);
    return this.options.rules.find(
      ({ from, when }) =>
        from?.includes(one.peer) !== false &&
        when?.every(
          (rule) =>
            head !== undefined && tagReasons({ ...rule, reason: "" }, head.attributes).length === 0,
        ) !== false,
    );
  }

  /** Of the first object that this user may read; its job tells of the others. */
  async #headIn({ peer, study, series }: ArrivedSeries, names: readonly string[]) {
    for (const name of names) {
      const file = this.#path(...seriesPath(peer, study, series), name);
      const fd = await openPlain(file).catch((error: unknown) => {
        if (errno(error) === "EACCES" || errno(error) === "EPERM") return undefined;
        throw error;
      });
      if (fd === undefined) continue;
      try {
        return await headOf(fd, await readStart(fd, FIRST_BYTES));
      } finally {
        closeSync(fd);
      }
    }
    return undefined;
  }

  #wait(group: ArrivalGroup, ms: number): void {
    clearTimeout(group.timer);
    if (this.#closed) return;
    const now = Math.min(ms, LONGEST_TIMER_MS);
    const next = () => (now < ms ? this.#wait(group, ms - now) : void this.#due(group));
    group.timer = setTimeout(next, now).unref();
  }

  async #due(group: ArrivalGroup): Promise<void> {
    try {
      await this.#inTurn(group, async () => {
        const counts = await Promise.all(
          [...group.series].map(async (one) => this.#objects(of(group, one))),
        );
        const found = counts.flat().length;
        if (found === 0) {
          this.#forget(group);
          this.#tellGone({ peer: group.peer, rule: group.rule.name });
          return;
        }
        const more = found > group.known;
        group.known = found;
        if (more) this.#wait(group, quietOf(group));
        else await this.#submit(group);
      });
    } catch (thrown) {
      const error = asRadserveError(thrown);
      const fault = error.code === "internal" ? { fault: faultForLog(thrown) } : {};
      this.options.log.warn(
        { peer: group.peer, rule: group.rule.name, error: error.code, ...fault },
        "received images could not become a job; it is tried again",
      );
      group.fault = error.code;
      group.failures += 1;
      this.#wait(group, backOff(group.failures, gatewayRetry()));
    }
  }

  #inTurn<T>(group: ArrivalGroup, step: () => Promise<T>): Promise<T> {
    const work = group.work.then(step);
    group.work = work.catch(() => undefined);
    return work;
  }

  async #submit(
    group: ArrivalGroup,
  ): Promise<{ job_id: string; series: string[]; objects: number }> {
    const { peer, study, rule, arrivals } = group;
    // Series of earlier jobs belong to the study too: the study's folder holds them. In one order,
    // whichever came first here: the key of the job has to be the same on all nodes
    const there = rule.group === "study" ? await namesIn(this.#path("series", peer, study)) : [];
    const looked = await Promise.all(
      [...new Set([...group.series, ...there])]
        .sort()
        .map((series) => this.#looked({ peer, study, series })),
    );
    const all = looked.filter(
      ({ series, names, mark }) =>
        names.length > 0 && (group.series.has(series) || mark?.rule === rule.name),
    );
    const objects = all.flatMap(({ names }) => names);
    const made = all.every(({ mark, objects }) => mark?.objects === objects)
      ? all[0]?.mark
      : undefined;
    let jobId = made?.job_id;
    if (made?.ended === false && (await this.options.jobState(made.job_id)) === "gone") {
      this.options.log.warn(
        { peer, job: jobId },
        "the job of received images was lost: it is made again",
      );
      jobId = undefined;
    }
    if (jobId === undefined) {
      const { models, outputs, output_folder, deliver } = rule;
      const request = {
        input_folder_path: await this.#inputOf(group, all),
        output_folder_path: path.join(output_folder, peer, study),
        group: "series",
        ...(models === undefined ? {} : { models }),
        ...(outputs === undefined ? {} : { outputs }),
        ...(deliver === undefined
          ? {}
          : deliver.length === 0
            ? { deliver: "none" }
            : { destinations: deliver }),
      };
      const births = await Promise.all(
        all.map(({ series, names }) => this.#birth(of(group, series), names)),
      );
      const idempotency_key = `received-${sha256(JSON.stringify([request, births, [...objects, ...all.flatMap(({ again }) => again)].sort()]))}`;
      jobId = await this.options.submit({
        peer,
        study,
        objects: objects.length,
        request: { ...request, idempotency_key },
      });
      for (const { series, names, objects } of all)
        await this.#writeMark(
          { peer, study, series },
          {
            objects,
            count: names.length,
            rule: rule.name,
            job_id: jobId,
            ended: false,
            at: Date.now(),
          },
        );
    }
    group.fault = undefined;
    group.failures = 0;
    group.since = monotonic();
    if (group.arrivals === arrivals) this.#forget(group);
    return { job_id: jobId, series: all.map(({ series }) => series), objects: objects.length };
  }

  /** What came while the job was made is on its way to another; then the group goes on. */
  #forget(group: ArrivalGroup): void {
    clearTimeout(group.timer);
    for (const [key, waiting] of this.#waiting) if (waiting === group) this.#waiting.delete(key);
    for (const series of group.series) this.#groups.delete(keyOf(of(group, series)));
  }

  /** When the first object came: those that come again after they were removed are others. */
  async #birth(
    { peer, study, series }: ArrivedSeries,
    [first = ""]: readonly string[],
  ): Promise<number> {
    return (await stat(this.#path(...seriesPath(peer, study, series), first))).mtimeMs;
  }

  /**
   * The folder that the job reads: that of the series, or one with a further name of each object of
   * the study.
   */
  async #inputOf({ peer, study, rule }: ArrivalGroup, all: readonly Looked[]): Promise<string> {
    if (rule.group === "series")
      return this.#path(...seriesPath(peer, study, all[0]?.series ?? ""));
    const folder = await this.options.spool.made("studies", rule.name, peer, study);
    const taken = new Set<number>();
    for (const { series, names } of all)
      for (const name of names) {
        const file = this.#path(...seriesPath(peer, study, series), name);
        await this.#linkInto(folder, file, name, series, taken);
      }
    await syncFolder(folder);
    return folder;
  }

  /**
   * A further name in the folder of a study. What has the name may be the same object; a damaged
   * one, in whose place this one came; or the object of another series with the same UID.
   * @param taken inodes of the objects that have a name already
   */
  async #linkInto(
    folder: string,
    file: string,
    name: string,
    series: string,
    taken: Set<number>,
  ): Promise<void> {
    const { ino } = await lstat(file);
    for (const one of [name, nameBeside(name, series)]) {
      const there = path.join(folder, one);
      const before = (await lstat(there).catch(ifMissing(undefined)))?.ino;
      if (before !== undefined && before !== ino && taken.has(before)) continue;
      if (before !== undefined && before !== ino) await rm(there, { force: true });
      if (before !== ino) await link(file, there);
      taken.add(ino);
      return;
    }
  }

  async #writeMark({ peer, study, series }: ArrivedSeries, mark: JobMark): Promise<void> {
    const folder = await this.options.spool.made("marks", peer, study);
    await replaceFile(folder, `${series}.json`, JSON.stringify(mark));
  }

  /**
   * The series goes as a whole and at once: no job may be made of a part of it. What came meanwhile
   * stays.
   */
  async #remove(one: ArrivedSeries, names: readonly string[], rule: string): Promise<void> {
    const { peer, study, series } = one;
    await this.options.removing({ peer, study, objects: names.length });
    const folder = this.#path(...seriesPath(peer, study, series));
    const leaving = path.join(await this.options.spool.made("removing", rule, peer, study), series);
    await rename(folder, leaving);
    for (const late of (await namesIn(leaving)).filter((name) => !names.includes(name)))
      await rename(
        path.join(leaving, late),
        path.join(await this.options.spool.made(...seriesPath(peer, study, series)), late),
      );
    await this.#endRemoval(rule, one);
    this.options.log.info(
      { peer, objects: names.length },
      "received images were removed: their time is over",
    );
  }

  /** Removes what lies in the folder of a removal; a process before may have begun it. */
  async #endRemoval(rule: string, { peer, study, series }: ArrivedSeries): Promise<void> {
    const leaving = this.#path("removing", rule, peer, study, series);
    const inStudies = this.#path("studies", rule, peer, study);
    const inodeOf = async (file: string) =>
      (await lstat(file).catch(ifMissing(undefined)))?.ino ?? NaN;
    for (const name of await filesIn(leaving)) {
      const file = path.join(leaving, name);
      const inode = await inodeOf(file);
      for (const further of [name, nameBeside(name, series)])
        if ((await inodeOf(path.join(inStudies, further))) === inode)
          await removeFile(inStudies, further);
      // Of version 0.6; another peer's series may have it, too
      const second = this.#path(...objectPath(name.slice(0, -".dcm".length)));
      const links = (await lstat(file).catch(ifMissing(undefined)))?.nlink ?? 0;
      if (links <= 2 && (await inodeOf(second)) === inode)
        await removeFile(path.dirname(second), path.basename(second));
      await removeFile(leaving, name);
    }
    const again = this.#path(...againPath(peer, study, series));
    for (const name of await filesIn(again)) await removeFile(again, name);
    const marks = this.#path("marks", peer, study);
    await removeFile(marks, `${series}.json`);
    const left = this.#path("series", peer, study);
    // Of objects that were refused, and of which no other came
    for (const other of await namesIn(left)) await removeEmpty(path.join(left, other));
    if ((await namesIn(left)).length === 0) await this.options.spool.patients.forget(peer, study);
    for (const empty of [
      leaving,
      path.dirname(leaving),
      inStudies,
      again,
      path.dirname(again),
      marks,
      left,
    ])
      await removeEmpty(empty);
  }
}

/**
 * Milliseconds until a group is due: without another object, and however many come, not much longer
 * than that. What comes later makes another job.
 */
function quietOf({ rule, since }: ArrivalGroup): number {
  const quiet = rule.quiet * 1000;
  const most = Math.max(MOST_QUIETS * quiet, durations.receivedMost);
  return Math.max(0, Math.min(quiet, since + most - monotonic()));
}

const of = ({ peer, study }: ArrivalGroup, series: string): ArrivedSeries => ({
  peer,
  study,
  series,
});
