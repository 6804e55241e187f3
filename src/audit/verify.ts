/**
 * Whether the audit is as it was written: every line follows from the one before by the key, no
 * number is missing, no file is missing, and the lines that heads name are there.
 */
import { createHash, type KeyObject } from "node:crypto";
import { createReadStream } from "node:fs";
import path from "node:path";
import {
  follows,
  headText,
  NO_HEAD,
  readLine,
  type AuditEntry,
  type Head,
  type ReadLine,
} from "./entry.js";
import { dayFiles, dayOf, otherFiles } from "./folders.js";

interface LinePlace {
  file: string;
  /** From 1. */
  line: number;
}

/** Something that is wrong, or (a note) worth knowing and not wrong. */
export interface ChainFinding extends LinePlace {
  message: string;
}

export interface Verified {
  files: number;
  lines: number;
  /** The last line that is whole; undefined where there is none. */
  head: string | undefined;
  faults: ChainFinding[];
  notes: ChainFinding[];
}

export interface VerifyOptions {
  /** Heads that were kept elsewhere: their lines must be there. */
  heads?: readonly Head[];
  /** The first day to look at, as its file is named: what was before is archived. */
  from?: string;
}

/** Faults that are told; after so many the rest of the file says no more. */
const MOST_TOLD = 1_000;
const NO_LINE = "Expected a line of the audit; found something else, or one that was edited.";
const NO_BEGINNING =
  "Expected the line with which a file begins; found another. The beginning of the file is gone.";
const NEWLINE = 10;
/**
 * Lines wait for the disk and for others; two whose times differ by more tell of a clock that was
 * set back.
 */
const SET_BACK_MS = 60_000;
const DAY_MS = 86_400_000;
/** Empty for no date. */
const dayAt = (ms: number) => (Number.isNaN(ms) ? "" : dayOf(new Date(ms).toISOString()));

/** The lines of a file with their line feeds, and what stands behind the last. */
async function* linesOf(file: string): AsyncGenerator<Buffer> {
  let rest: Buffer[] = [];
  for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      yield Buffer.concat([...rest, chunk.subarray(from, at + 1)]);
      rest = [];
      from = at + 1;
    }
    rest.push(chunk.subarray(from));
  }
  const last = Buffer.concat(rest);
  if (last.length > 0) yield last;
}

/** The days of a folder that are looked at. Throws what listing throws. */
export function filesFrom(folder: string, from: string | undefined): string[] {
  return dayFiles(folder).filter((name) => from === undefined || name >= from);
}

/** @throws errors of the file system as they are */
export async function verifyAudit(
  folder: string,
  key: KeyObject,
  options: VerifyOptions = {},
): Promise<Verified> {
  const check = new ChainCheck(key, options);
  for (const name of otherFiles(folder)) check.other(name);
  for (const name of filesFrom(folder, options.from)) {
    check.file(name);
    for await (const line of linesOf(path.join(folder, name))) check.line(line);
  }
  return check.end();
}

interface Bad extends LinePlace {
  bytes: Buffer[];
}

class ChainCheck {
  readonly #found: Verified = { files: 0, lines: 0, head: undefined, faults: [], notes: [] };
  #wanted: readonly Head[];
  #file = "";
  #number = 0;
  /** The line before; undefined before the first, if that is not the first of all. */
  #head: Head | undefined;
  /** The line that the first one follows, which lies in a file that was not looked at. */
  #before: Head | undefined;
  /** Bytes that stand where lines should, since the last good one. */
  #bad: Bad | undefined;
  /** The time of the line before. */
  #time = "";
  /** A line that says a time to come was told. */
  #isAhead = false;
  readonly #from: string | undefined;

  constructor(
    private readonly key: KeyObject,
    { heads = [], from }: VerifyOptions,
  ) {
    this.#wanted = heads.filter(({ seq }) => seq > 0);
    this.#from = from;
    if (from === undefined) this.#head = NO_HEAD;
  }

  /** A file of which nothing is read. */
  other(name: string): void {
    this.#note("This file has the name of no day and was not read.", { file: name, line: 1 });
  }

  file(name: string): void {
    this.#file = name;
    this.#number = 0;
    this.#found.files += 1;
  }

  line(bytes: Buffer): void {
    this.#number += 1;
    const whole = bytes.at(-1) === NEWLINE;
    const line = whole ? readLine(bytes.toString("utf8", 0, bytes.length - 1)) : undefined;
    if (line === undefined) {
      this.#bad ??= { bytes: [], line: this.#number, file: this.#file };
      this.#bad.bytes.push(bytes);
      return;
    }
    this.#found.lines += 1;
    // A file that has no other line yet begins with that of its day
    if (this.#bad !== undefined && line.entry.kind !== "day") this.#explain(this.#bad, line);
    this.#follow(line);
    if (this.#number === 1 && line.entry.kind !== "day") this.#fault(NO_BEGINNING);
    if (line.entry.kind === "day") this.#checkDay(line.entry);
    this.#checkTime(line.entry.time);
    if (line.entry.kind === "trouble" && line.entry.reason === "head_gone")
      this.#fault(
        "The head that was said last was gone when this process began: lines before this one may be gone. Compare with the log: --head.",
      );
    else if (line.entry.kind === "trouble")
      this.#note(
        `No line could be written since ${line.entry.since ?? "?"}; ${line.entry.count ?? 0} actions were refused for it.`,
      );
  }

  end(): Verified {
    const bad = this.#bad;
    if (bad !== undefined) {
      const bytes = Buffer.concat(bad.bytes).length;
      const unfinished =
        bad.file === this.#file && bad.bytes.at(-1)?.at(-1) !== NEWLINE && bad.bytes.length === 1;
      if (unfinished)
        this.#note(
          `${bytes} bytes at the end are not a whole line: it is being written, or its process was killed.`,
          bad,
        );
      else this.#fault(NO_LINE, bad);
    }
    for (const head of this.#wanted)
      if (this.#before !== undefined && head.seq < this.#before.seq)
        this.#note(
          `The line that the head ${headText(head)} names lies before those that were looked at.`,
        );
      else this.#tellMissing(head);
    return { ...this.#found, head: this.#head === undefined ? undefined : headText(this.#head) };
  }

  #tellMissing(head: Head): void {
    this.#fault(
      this.#head !== undefined && head.seq > this.#head.seq
        ? `The end is cut off: expected line ${head.seq}, which the head ${headText(head)} names; found ${this.#head.seq} as the last.`
        : `Expected line ${head.seq} as the head ${headText(head)} names it; found none with that MAC.`,
    );
  }

  /** A chain without its last days, or whose files have other names, is whole by its MACs. */
  #checkDay({ day, previous, time }: AuditEntry): void {
    const name = dayOf(this.#file);
    // Up to 0.5 the line did not say its day, which was that of its time or, at midnight, the one
    // before
    const days =
      day === undefined ? [dayAt(Date.parse(time)), dayAt(Date.parse(time) - SET_BACK_MS)] : [day];
    if ((day !== undefined || this.#number === 1) && !days.includes(name))
      this.#fault(`Expected the file of ${name}; found that of ${days[0] ?? ""}: it was renamed.`);
    const before = previous?.day;
    if (this.#found.lines === 1 && before !== undefined && this.#from !== undefined)
      if (before >= dayOf(this.#from))
        this.#fault(`The file of ${before} is missing before this one.`);
  }

  #checkTime(time: string): void {
    const isAhead = Date.parse(time) > Date.now() + DAY_MS;
    if (isAhead && !this.#isAhead)
      this.#note(
        `This line says ${time}, a time that has not come: the clock was wrong, or is now.`,
      );
    if (Date.parse(time) < Date.parse(this.#time) - SET_BACK_MS)
      this.#note(`The clock was set back: this line says ${time}, the one before ${this.#time}.`);
    this.#isAhead = isAhead;
    this.#time = time;
  }

  #follow(line: ReadLine): void {
    const { seq, kind, previous } = line.entry;
    const mine: Head = { seq, mac: line.mac };
    // Without the files before, the first says itself what it follows; its own MAC vouches for that
    const before = this.#head ?? (kind === "day" ? previous : undefined);
    if (this.#head === undefined && before !== undefined && follows(this.key, before, line)) {
      this.#before = before;
      this.#meet(before);
    }
    this.#head = mine;
    this.#meet(mine);
    if (before === undefined) {
      this.#fault(NO_BEGINNING);
      return;
    }
    if (follows(this.key, before, line)) {
      if (seq !== before.seq + 1) this.#fault(`Expected line ${before.seq + 1}; found ${seq}.`);
      return;
    }
    // Whether the line itself is right shows where it names what it follows
    const isRight = previous !== undefined && follows(this.key, previous, line);
    if (seq === before.seq + 2) this.#fault(`Line ${before.seq + 1} is missing before this one.`);
    else if (seq > before.seq + 1)
      this.#fault(
        `Lines ${before.seq + 1} to ${seq - 1} are missing before this one${isRight ? ": a file is missing, or the end of the one before" : ""}.`,
      );
    else if (seq <= before.seq)
      this.#fault(
        `Expected line ${before.seq + 1}; found ${seq}: lines were moved, repeated or added.`,
      );
    else
      this.#fault("The MAC is not that of this line after the one before: one of them was edited.");
  }

  #meet(head: Head): void {
    this.#wanted = this.#wanted.filter(({ seq, mac }) => seq !== head.seq || mac !== head.mac);
  }

  /** The next line tells of bytes that a crash has left: then they are no fault. */
  #explain(bad: Bad, { entry }: ReadLine): void {
    this.#bad = undefined;
    const all = Buffer.concat(bad.bytes);
    const torn = all.subarray(0, entry.bytes ?? 0);
    const rest = all.length - torn.length;
    const said =
      entry.kind === "torn" &&
      (rest === 0 || (rest === 1 && all.at(-1) === NEWLINE)) &&
      createHash("sha256").update(torn).digest("hex") === entry.sha256;
    if (said)
      this.#note(
        `${torn.length} bytes are not a line: a process or the machine stopped while it wrote them.`,
        bad,
      );
    else this.#fault(NO_LINE, bad);
  }

  #fault(message: string, at?: LinePlace): void {
    this.#tell(this.#found.faults, message, at);
  }

  #note(message: string, at?: LinePlace): void {
    this.#tell(this.#found.notes, message, at);
  }

  #tell(
    all: ChainFinding[],
    message: string,
    { file, line }: LinePlace = { file: this.#file, line: this.#number },
  ) {
    if (all.length < MOST_TOLD) all.push({ file, line, message });
  }
}
