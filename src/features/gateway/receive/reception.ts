/**
 * How series come. An association, or a request of STOW-RS, that brings objects of a series keeps
 * it open; one that breaks off, and objects that were begun and not kept, are remembered by series,
 * until they have come after all. Notes in the spool tell other nodes, and the next process:
 *
 *     reception/PEER/STUDY/SERIES+coming+NODE.1      an association brings it
 *     reception/PEER/STUDY/SERIES+broken+NODE.1      it broke off
 *     reception/PEER/STUDY/SERIES+lost+HASH          of an object that was begun and not kept
 *     reception/PEER/STUDY/SERIES+called+TITLE       hex, where it is not the first of the settings
 *     reception/PEER/STUDY/SERIES+beside+peer        another peer has objects that are missing here
 *
 * All of them are empty files.
 */
import { randomUUID } from "node:crypto";
import { closeSync } from "node:fs";
import { lstat, rename } from "node:fs/promises";
import path from "node:path";
import { ifThere } from "../../../base/errno.js";
import { RadserveError } from "../../../base/errors.js";
import { groupsBy } from "../../../base/groups.js";
import { monotonic } from "../../../base/monotonic.js";
import { openDescriptor } from "../../../files/disk.js";
import { ifMissing, sha256, syncFolder } from "../../../files/durable-files.js";
import { isStudyFolder } from "./patients.js";
import { isUid } from "../../../images/dicom/value-forms.js";
import { isPeerFolder, namesIn, removeEmpty, removeFile } from "./spool-folders.js";
import { keyOfPlace, seriesPath, type SeriesPlace, type Spool } from "./spool.js";

const KINDS = ["coming", "broken", "lost", "called", "beside"] as const;
type NoteKind = (typeof KINDS)[number];
const BETWEEN = "+";
const RECEPTION = "reception";
/** Notes of objects that were not kept: whoever sends so much that is refused fills no disk. */
const MOST_LOST = 100_000;

interface Note {
  /** SeriesInstanceUID. */
  series: string;
  kind: NoteKind;
  id: string;
}

const nameOf = ({ series, kind, id }: Note): string => [series, kind, id].join(BETWEEN);

function noteOf(name: string): Note[] {
  const [series, found, id = "", ...more] = name.split(BETWEEN);
  const kind = KINDS.find((one) => one === found);
  return kind !== undefined && isUid(series) && id !== "" && more.length === 0
    ? [{ series, kind, id }]
    : [];
}

const hashOf = (sopInstanceUid: string): string => sha256(sopInstanceUid).slice(0, 32);

/** What is known of how a series came. */
export interface SeriesReception {
  /** Objects that were begun, and are not there. */
  lost: number;
  /** Associations and requests that broke off. */
  broken: number;
  /** Another peer has brought objects of it that are not there. */
  isBeside: boolean;
  /** Associations of other nodes bring it. */
  elsewhere: number;
  /** When (ms of `monotonic`) something of it was interrupted last; undefined where nothing was. */
  interruptedAt: number | undefined;
  /** By which interruptions of the same objects are told apart; empty where there is none. */
  notes: readonly string[];
  /** AE titles that were called, as far as rules asked for them when it came. */
  titles: readonly string[];
}

export interface ReceptionOptions {
  /** The spool. */
  folder: string;
  within: Spool["within"];
  /** Resolves to the number of this node. */
  node: Promise<string>;
  /** A series was interrupted that may have its job already. */
  interrupted: (place: SeriesPlace) => void;
  /** What has brought a series is over. */
  closed: (place: SeriesPlace) => void;
  /** Objects that were not kept of which there are notes, about. */
  mostLost?: number;
}

/** What one association or request has brought of a series. */
interface Brought {
  place: SeriesPlace;
  /** When (ms of `monotonic`) its last object came. */
  at: number;
  /** Some of it was not there before, or with other bytes. */
  changed: boolean;
  /** The disk has the note that it is brought. */
  isNoted: boolean;
  /** Notes of what broke off before: one that its peer releases makes up for that. */
  before: readonly string[];
}

export class Reception {
  readonly #transfers = new Set<Transfer>();
  /** When (ms of `monotonic`) each note of an interruption was seen first, by its path. */
  readonly #seen = new Map<string, number>();
  /** Notes that the disk could not take, by the folders of their studies. */
  readonly #unwritten = new Map<string, Set<string>>();
  #hasBegun = false;
  /** How many transfers have begun. */
  #begun = 0;
  /** Notes of objects that were not kept: what the last sweep counted, and those since. */
  #lost = 0;
  readonly #started = randomUUID().slice(0, 8);

  constructor(private readonly options: ReceptionOptions) {}

  /**
   * What an earlier process of this node had open has broken off: its notes say so from now on.
   * Once that is written, another call does nothing.
   */
  async begin(): Promise<void> {
    if (this.#hasBegun) return;
    const node = await this.options.node;
    // The port may be open already
    const isBefore = (id: string) => id.startsWith(`${node}.`) && !this.#isOwn(id);
    for (const [peer, study] of await this.#studies())
      for (const note of (await namesIn(this.#path(peer, study))).flatMap(noteOf))
        if (note.kind === "coming" && isBefore(note.id))
          await this.#change(peer, study, note, "broken").catch(ifMissing(undefined));
    this.#hasBegun = true;
  }

  async #studies(): Promise<[peer: string, study: string][]> {
    const found: [string, string][] = [];
    for (const peer of (await namesIn(this.#path())).filter(isPeerFolder))
      for (const study of (await namesIn(this.#path(peer))).filter(isStudyFolder))
        found.push([peer, study]);
    return found;
  }

  /**
   * Forgets series of which nothing was kept, and nothing has come since; and notes that a disk did
   * not let go before.
   * @param isOld of a time in milliseconds since 1970
   */
  async sweep(isOld: (at: number) => boolean): Promise<void> {
    let lost = 0;
    for (const [peer, study] of await this.#studies())
      for (const [series, notes] of await this.notesOf(peer, study)) {
        const place = { peer, study, series };
        lost += notes.filter(({ kind }) => kind === "lost").length;
        await this.#drop(place, this.#leftOf(place, notes)).catch(() => undefined);
        if (await this.#lies(place)) continue;
        const times = notes.map(async (note) => {
          const found = await lstat(this.#path(peer, study, nameOf(note))).catch(
            ifMissing(undefined),
          );
          // What has gone meanwhile was no old one
          return found?.mtimeMs ?? Infinity;
        });
        if (isOld(Math.max(...(await Promise.all(times))))) await this.#forget(place, notes);
      }
    this.#lost = lost;
  }

  async #lies({ peer, study, series }: SeriesPlace): Promise<boolean> {
    const folder = path.join(this.options.folder, ...seriesPath(peer, study, series));
    return (await namesIn(folder)).length > 0;
  }

  /** Notes of transfers of this process that are over, which the disk did not let go. */
  #leftOf(place: SeriesPlace, notes: readonly Note[]): string[] {
    // Until it can be noted that one broke off, its note is all that a process after this one has
    if (this.#isUnwritten(place)) return [];
    const open = new Set([...this.#transfers].map(({ id }) => id));
    return notes
      .filter(({ kind, id }) => kind === "coming" && this.#isOwn(id) && !open.has(id))
      .map(nameOf);
  }

  /** An association or a request begins. */
  open(peer: string): Transfer {
    const transfer = new Transfer(peer, this, async () => {
      const node = await this.options.node;
      return `${node}.${this.#started}-${(this.#begun += 1)}`;
    });
    this.#transfers.add(transfer);
    return transfer;
  }

  /** The notes of a study, by SeriesInstanceUID. */
  async notesOf(peer: string, study: string): Promise<Map<string, Note[]>> {
    const unwritten = this.#unwritten.get(`${peer}/${study}`);
    if (unwritten !== undefined) await this.#writeAgain(peer, study, unwritten);
    const names = new Set([...(await namesIn(this.#path(peer, study))), ...(unwritten ?? [])]);
    return groupsBy([...names].sort().flatMap(noteOf), ({ series }) => series);
  }

  /**
   * @param names of its objects' files
   * @param notes as `notesOf` gives them
   */
  of(
    { peer, study }: Pick<SeriesPlace, "peer" | "study">,
    names: readonly string[],
    notes: readonly Note[],
  ): SeriesReception {
    const there = new Set(names.map((name) => hashOf(name.slice(0, -".dcm".length))));
    const of = (kind: NoteKind) => notes.filter((note) => note.kind === kind);
    const lost = of("lost").filter(({ id }) => !there.has(id));
    const broken = of("broken");
    const beside = of("beside");
    const elsewhere = of("coming").filter(({ id }) => !this.#isOwn(id));
    const at = [...lost, ...broken].map((note) => this.#firstSeen(peer, study, note));
    return {
      lost: lost.length,
      broken: broken.length,
      isBeside: beside.length > 0,
      elsewhere: elsewhere.length,
      interruptedAt: at.length === 0 ? undefined : Math.max(...at),
      notes: [...lost, ...broken, ...beside].map(nameOf),
      titles: of("called").map(({ id }) => Buffer.from(id, "hex").toString("latin1")),
    };
  }

  /**
   * Whether a note is of this process, which knows better what it has open: its disk may not have
   * let the note go when that ended.
   */
  #isOwn(id: string): boolean {
    return id.includes(`.${this.#started}-`);
  }

  #firstSeen(peer: string, study: string, note: Note): number {
    const key = `${peer}/${study}/${nameOf(note)}`;
    const known = this.#seen.get(key) ?? monotonic();
    this.#seen.set(key, known);
    return known;
  }

  /**
   * Until when (ms of `monotonic`) associations and requests of this process keep a series open;
   * Infinity while one of its objects is on its way, 0 where none does.
   * @param pause milliseconds after its last object
   */
  openUntil(place: SeriesPlace, pause: number): number {
    return Math.max(0, ...[...this.#transfers].map((transfer) => transfer.holds(place, pause)));
  }

  /**
   * A series has its jobs: what brings it brings something else by now, and what was lost of it and
   * came after all is forgotten.
   */
  async settled(
    place: SeriesPlace,
    names: readonly string[],
    notes: readonly Note[],
  ): Promise<void> {
    const there = new Set(names.map((name) => hashOf(name.slice(0, -".dcm".length))));
    for (const transfer of this.#transfers) transfer.forget(place);
    const isOver = ({ kind, id }: Note) =>
      (kind === "lost" && there.has(id)) || (kind === "coming" && this.#isOwn(id));
    await this.#drop(place, notes.filter(isOver).map(nameOf));
  }

  /** A series has left the spool. Where it comes again by now, its notes are of what comes. */
  async forget(place: SeriesPlace): Promise<void> {
    const { peer, study, series } = place;
    const notes = (await this.notesOf(peer, study)).get(series) ?? [];
    const isElsewhere = notes.some(({ kind, id }) => kind === "coming" && !this.#isOwn(id));
    const comes = isElsewhere || this.openUntil(place, 0) === Infinity;
    // In this order: what is not on its way any more lies there
    if (comes || (await this.#lies(place))) return;
    await this.#forget(place, notes);
  }

  async #forget(place: SeriesPlace, notes: readonly Note[]): Promise<void> {
    await this.#drop(place, notes.map(nameOf));
    for (const transfer of this.#transfers) transfer.forget(place);
    await removeEmpty(this.#path(place.peer, place.study));
  }

  async write({ peer, study, series }: SeriesPlace, kind: NoteKind, id: string): Promise<void> {
    await this.options.within([RECEPTION, peer, study], async (folder) => {
      const file = path.join(folder, nameOf({ series, kind, id }));
      await openDescriptor(file, "wx", 0o640).then(closeSync, ifThere);
      await syncFolder(folder);
    });
  }

  /**
   * For transfers: an object was begun and is not kept.
   * @returns whether that is noted
   */
  async lost(place: SeriesPlace, sopInstanceUid: string): Promise<boolean> {
    const isNoted = this.#lost < (this.options.mostLost ?? MOST_LOST);
    if (isNoted) {
      this.#lost += 1;
      const id = hashOf(sopInstanceUid);
      const { peer, study, series } = place;
      // It may be lost again after a time, and is waited for again
      this.#seen.set(`${peer}/${study}/${nameOf({ series, kind: "lost", id })}`, monotonic());
      await this.write(place, "lost", id).catch(() =>
        this.#remember(place, nameOf({ series, kind: "lost", id })),
      );
    }
    this.options.interrupted(place);
    return isNoted;
  }

  /** Whether it is noted that another peer has objects of a series that this one lacks. */
  async isBeside({ peer, study, series }: SeriesPlace): Promise<boolean> {
    const notes = (await this.notesOf(peer, study)).get(series) ?? [];
    return notes.some(({ kind }) => kind === "beside");
  }

  async noteBeside(place: SeriesPlace, is: boolean): Promise<void> {
    if (is === (await this.isBeside(place))) return;
    const note = { series: place.series, kind: "beside", id: "peer" } as const;
    if (is) await this.write(place, note.kind, note.id);
    else await this.#drop(place, [nameOf(note)]);
  }

  /** For transfers: one has ended. @throws what the disk says, once all of it is noted */
  async ended(
    transfer: Transfer,
    brought: readonly Brought[],
    { isWhole, makesUp }: { isWhole: boolean; makesUp: boolean },
  ): Promise<void> {
    const faults: unknown[] = [];
    const broken = new Set<Brought>();
    for (const one of brought) {
      const { place, changed, before } = one;
      const { peer, study, series } = place;
      const coming: Note = { series, kind: "coming", id: transfer.id };
      // A kill now would forget what the disk could not take a note of
      if (!this.#isUnwritten(place) && (isWhole || !changed)) {
        const names = [nameOf(coming), ...(makesUp ? before : [])];
        await this.#drop(place, names).catch((fault: unknown) => faults.push(fault));
      } else {
        const name = nameOf({ ...coming, kind: "broken" });
        await this.#change(peer, study, coming, "broken").catch(() => this.#remember(place, name));
        broken.add(one);
      }
    }
    // Until this moment what broke off counts as coming, and what is whole keeps its series open
    this.#transfers.delete(transfer);
    for (const one of brought)
      if (broken.has(one)) this.options.interrupted(one.place);
      else this.options.closed(one.place);
    if (faults.length > 0) throw faults[0];
  }

  /** Notes of what broke off of a series. */
  async broken({ peer, study, series }: SeriesPlace): Promise<string[]> {
    const notes = (await this.notesOf(peer, study)).get(series) ?? [];
    return notes.filter(({ kind }) => kind === "broken").map(nameOf);
  }

  async #drop({ peer, study }: SeriesPlace, names: readonly string[]): Promise<void> {
    if (names.length === 0) return;
    const folder = this.#path(peer, study);
    const faults: unknown[] = [];
    for (const name of names)
      try {
        await removeFile(folder, name);
        this.#seen.delete(`${peer}/${study}/${name}`);
        this.#unwritten.get(`${peer}/${study}`)?.delete(name);
      } catch (fault) {
        faults.push(fault);
      }
    if (faults.length > 0) throw faults[0];
    await syncFolder(folder).catch(ifMissing(undefined));
    await removeEmpty(folder);
  }

  async #change(peer: string, study: string, note: Note, kind: NoteKind): Promise<void> {
    const folder = this.#path(peer, study);
    const [from, to] = [note, { ...note, kind }].map((one) => path.join(folder, nameOf(one)));
    await rename(from ?? "", to ?? "");
    await syncFolder(folder);
  }

  /** A full disk takes no note: this process knows it all the same, and writes it later. */
  #remember({ peer, study }: SeriesPlace, name: string): void {
    const key = `${peer}/${study}`;
    const known = this.#unwritten.get(key) ?? new Set();
    this.#unwritten.set(key, known.add(name));
  }

  #isUnwritten({ peer, study, series }: SeriesPlace): boolean {
    const names = this.#unwritten.get(`${peer}/${study}`) ?? [];
    return [...names].flatMap(noteOf).some((note) => note.series === series);
  }

  async #writeAgain(peer: string, study: string, names: Set<string>): Promise<void> {
    for (const note of [...names].flatMap(noteOf)) {
      const { series, kind, id } = note;
      await this.write({ peer, study, series }, kind, id).then(
        () => names.delete(nameOf(note)),
        () => undefined,
      );
    }
    if (names.size === 0) this.#unwritten.delete(`${peer}/${study}`);
  }

  #path(...names: readonly string[]): string {
    return path.join(this.options.folder, RECEPTION, ...names);
  }
}

/** One association, or one request of STOW-RS: what it brings, and how it ends. */
export class Transfer {
  /** NODE.STARTED-NUMBER, by which its notes are named; empty until it has brought something. */
  id = "";
  /** By `keyOfPlace`. */
  readonly #brought = new Map<string, Brought>();
  #last: SeriesPlace | undefined;
  /** The object that comes: undefined where none does, `place` where its head has not come. */
  #coming: { place?: SeriesPlace } | undefined;
  /** It broke off, and is there until that is noted. */
  #isBroken = false;
  /** Something of it was lost of which there is no note: it counts as one that broke off. */
  #isShort = false;

  constructor(
    readonly peer: string,
    private readonly reception: Reception,
    private readonly name: () => Promise<string>,
  ) {}

  /** An object begins to come. */
  begins(): void {
    this.#coming = {};
  }

  /** Its head has come. */
  named(place: SeriesPlace): void {
    this.#coming = { place };
  }

  /**
   * It is whole, and will appear. Resolves when the disk has the note that this brings the series.
   * @param title that was called, where rules ask for it
   */
  async brings(place: SeriesPlace, title?: string): Promise<void> {
    const known = this.#brought.get(keyOfPlace(place));
    if (known?.isNoted === true) return;
    if (this.id === "") this.id = await this.name();
    const before = known?.before ?? (await this.reception.broken(place));
    const brought = { changed: false, isNoted: false, ...known, place, at: monotonic(), before };
    this.#brought.set(keyOfPlace(place), brought);
    // Where the disk does not take it, the next object of the series tries again
    await this.reception.write(place, "coming", this.id);
    if (title !== undefined)
      await this.reception.write(place, "called", Buffer.from(title, "latin1").toString("hex"));
    brought.isNoted = true;
  }

  /** It lies there. */
  kept(place: SeriesPlace, changed: boolean): void {
    this.#coming = undefined;
    this.#last = place;
    const nothing = { place, before: [], changed: false, isNoted: false };
    const known = this.#brought.get(keyOfPlace(place)) ?? nothing;
    this.#brought.set(keyOfPlace(place), {
      ...known,
      at: monotonic(),
      changed: known.changed || changed,
    });
  }

  /**
   * It was refused, or did not come to its end.
   * @param why what was thrown
   */
  async notKept(sopInstanceUid: string | undefined, why: unknown): Promise<void> {
    const code = why instanceof RadserveError ? why.code : "broken";
    // What has no head that can be read is of the series that came last; what names no series, of
    // none
    const place = this.#coming?.place ?? (code === "bad_request" ? undefined : this.#last);
    // Another object of that UID lies there, and nothing is missing
    if (place !== undefined && sopInstanceUid !== undefined && code !== "file_exists")
      this.#isShort = !(await this.reception.lost(place, sopInstanceUid)) || this.#isShort;
    // Until it is noted that it was lost, it is coming
    this.#coming = undefined;
  }

  /** As `openUntil` of the reception says. */
  holds(place: SeriesPlace, pause: number): number {
    if (place.peer !== this.peer) return 0;
    if (this.#coming !== undefined) {
      const { place: coming } = this.#coming;
      if (coming === undefined || keyOfPlace(coming) === keyOfPlace(place)) return Infinity;
    }
    const known = this.#brought.get(keyOfPlace(place));
    if (known === undefined) return 0;
    return this.#isBroken ? Infinity : known.at + pause;
  }

  forget(place: SeriesPlace): void {
    this.#brought.delete(keyOfPlace(place));
  }

  /**
   * @param isWhole nothing of it is missing
   * @param makesUp its peer said that it is done: what broke off before is not missing either
   */
  async end(isWhole: boolean, makesUp = isWhole): Promise<void> {
    this.#coming = undefined;
    this.#isBroken = !isWhole || this.#isShort;
    const how = { isWhole: !this.#isBroken, makesUp: makesUp && !this.#isShort };
    await this.reception.ended(this, [...this.#brought.values()], how);
  }
}
