/**
 * The list of results: `.radserve-results` in each output root, with a file of lines of JSON for
 * each node that writes there, so that all nodes of a share see all results and nobody has to walk
 * its folders. A line is appended before its receipt appears, and is valid as long as the receipt
 * exists. If several lines name one receipt, the last one is valid. Writing does not wait for the
 * disk: `rebuild` makes lines that a power cut lost again from the receipts.
 */
import { createHash } from "node:crypto";
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { z } from "zod";
import { errno } from "../../../base/errno.js";
import { storedJson } from "../../../base/stored-json.js";
import { descriptorPath } from "../../../files/descriptor.js";
import { isAwayNow } from "../../../files/absent-roots.js";
import type { OpenedPath } from "../../../files/guarded-paths.js";
import { LIST_FOLDER } from "../../../files/helper-names.js";
import { innermostRoot } from "../../../files/roots.js";
import { readReceipts } from "../../../results/commit/read-receipts.js";
import { foundIn } from "../../../results/commit/compose.js";
import type { Existing } from "../../../results/receipt/read-receipt.js";
import type { Receipt } from "../../../results/receipt/receipt.js";
import { trustSchema, type Trust } from "../../../results/receipt/seal.js";
import type { Away } from "../read-within.js";
import { LINES, linesFromEnd, LONGEST_LINE, openLists } from "./files.js";
import { openWhose, sealedAgain, sealedWhoseSchema, whoseSchema } from "./whose.js";

/** The file that `rebuild` writes. */
const REBUILT = `rebuilt${LINES}`;
/** While it is written; no file of lines to who reads them. */
const PART = `${REBUILT}.part`;

const rowSchema = z.object({
  at: z.string().describe("When it was written, ISO 8601"),
  receipt: z.string().describe("Path of the receipt"),
  input: z
    .string()
    .optional()
    .describe("Path of the image or folder; absent if only the receipt is known"),
  status: z.enum(["completed", "partial"]),
  modality: z.string().optional(),
  study: z.string().optional().describe("StudyInstanceUID"),
  series: z.string().optional().describe("SeriesInstanceUID"),
  whose: sealedWhoseSchema.optional(),
  models: z.array(
    z.object({
      name: z.string(),
      version: z.string(),
      status: z.enum(["succeeded", "failed", "not_accepted"]),
      shadow: z.literal(true).optional(),
      found: z.array(z.string()).describe("Labels that are present"),
    }),
  ),
});
/** What a line has where its labels would make it longer than any that is read. */
const shortenedRow = rowSchema.extend({ shortened: z.literal(true).optional() });
type LineRow = z.infer<typeof shortenedRow>;
/** A result in the list. In its file `receipt` is relative to the root. */
export type ListRow = z.infer<typeof rowSchema>;

const listedRow = rowSchema.extend({
  whose: whoseSchema
    .optional()
    .describe(
      "Patient and study as the image named them when it was analysed, where that is known",
    ),
  trust: trustSchema.describe(
    "Whether the receipt is this installation's; of one that is not, nothing that was found is told",
  ),
});
export type ListedRow = z.infer<typeof listedRow>;

export const listedSchema = z.strictObject({
  results: z.array(listedRow.strict()),
  next_cursor: z.string().nullable(),
  unreadable_results: z
    .int()
    .min(0)
    .describe("Results that this page lacks because their folders cannot be read now"),
  unreadable_lists: z
    .int()
    .min(0)
    .describe("Output roots that are away, and files of lists that cannot be used"),
});
type Listed = z.infer<typeof listedSchema>;

/** What a result has to be, to be given; what is absent is not asked for. */
export interface ListQuery {
  model?: string | undefined;
  /** A label that is present, in upper or lower case. */
  finding?: string | undefined;
  status?: ListRow["status"] | undefined;
  modality?: string | undefined;
  /** A part of the path of the receipt or the image, or one of its UIDs. */
  text?: string | undefined;
  /** Its keyed hashes: each key of results has another. */
  patient?: readonly string[] | undefined;
  accession?: readonly string[] | undefined;
  /** StudyInstanceUID. */
  study?: string | undefined;
  /** ISO 8601; `to` is not included. */
  from?: string | undefined;
  to?: string | undefined;
}

/** A line about a receipt. */
export function rowOf(
  receipt: Receipt,
  known: Pick<ListRow, "receipt" | "input" | "whose">,
): ListRow {
  const { source, models, timings, status } = receipt;
  return {
    at: timings.finished_at,
    ...known,
    status,
    modality: source.modality,
    study: source.study_instance_uid,
    series: source.series_instance_uid,
    models: models.map(({ name, version, status, shadow, findings }) => ({
      name,
      version,
      status,
      found: foundIn(findings),
      ...(shadow === undefined ? {} : { shadow }),
    })),
  };
}

/** A name for the files of the node that has this state directory. */
export function listName(stateDir: string): string {
  const host = os.hostname().replace(/[^\w.-]/g, "_");
  return `${host}-${createHash("sha256").update(stateDir).digest("hex").slice(0, 8)}`;
}

function inFolder<T>(root: string, use: (at: (name: string) => string) => T): T {
  const fd = openSync(path.join(root, LIST_FOLDER), constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    return use((name) => `${descriptorPath(fd)}/${name}`);
  } finally {
    closeSync(fd);
  }
}

/** Appends lines to the files of a node. */
export class ListWriter {
  /**
   * @param roots real paths of the output roots
   * @param node a name that no other node has, and that is one of a file
   */
  constructor(
    private readonly roots: readonly string[],
    private readonly node: string,
  ) {}

  /**
   * Where nothing can be written the result appears all the same: it is in its folder, and
   * `rebuild` lists it. Nothing stays open, so that a share can be unmounted.
   * @param folder the folder that the receipt appears in, held open, and its real path; one in no
   * root is not listed
   */
  add(
    { fdPath, realPath }: Pick<OpenedPath, "fdPath" | "realPath">,
    receipt: Receipt,
    { name, ...known }: Pick<ListRow, "input" | "whose"> & { name: string },
  ): void {
    const root = innermostRoot(realPath, this.roots);
    if (root === undefined) return;
    const parts = path.relative(root, realPath).split("/").filter(Boolean);
    const row = rowOf(receipt, { ...known, receipt: [...parts, name].join("/") });
    const { O_DIRECTORY, O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
    try {
      // Up from the folder that is held: where the root's share has gone, its mount point is
      // another folder
      const above = openSync(`${fdPath}${"/..".repeat(parts.length)}`, O_DIRECTORY);
      try {
        if (readlinkSync(descriptorPath(above)) !== root) return;
        makeFolder(descriptorPath(above));
        const flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW;
        const isGone = () =>
          inFolder(descriptorPath(above), (at) => {
            const fd = openSync(at(`${this.node}${LINES}`), flags, 0o600);
            try {
              writeSync(fd, lineOf(row));
              return fstatSync(fd).nlink === 0;
            } finally {
              closeSync(fd);
            }
          });
        // A list that is made again removes this file: then the line goes into a new one, too
        while (isGone());
      } finally {
        closeSync(above);
      }
    } catch {
      // It is listed when the list is made again
    }
  }
}

/** A line, without labels where it would be longer than any that is read. */
function lineOf(row: LineRow): string {
  const line = `${JSON.stringify(row)}\n`;
  if (Buffer.byteLength(line) < LONGEST_LINE) return line;
  const models = row.models.map((one) => ({ ...one, found: [] }));
  return `${JSON.stringify({ ...row, models, shortened: true } satisfies LineRow)}\n`;
}

function makeFolder(root: string): void {
  const folder = path.join(root, LIST_FOLDER);
  try {
    // To throw EEXIST for each result takes longer than to look
    if (!existsSync(folder)) mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (errno(error) !== "EEXIST") throw error;
  }
}

/** A line of a file that is not parsed yet. */
interface ListLine {
  at: string;
  root: string;
  text: string;
  /** The whole path of its receipt, as JSON has it. */
  receipt: string;
}
/** What a line of ours begins with: a time in UTC. */
const HEAD = /^\{"at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)"/;
const RECEIPT = '"receipt":"';
/** The rest of a text of JSON, after its first quote. */
const TEXT = /(?:[^"\\]|\\.)*(?=")/y;
const inJson = (text: string) => JSON.stringify(text).slice(1, -1);

/** Time and receipt of a line, found in one pass: most lines of a search are never parsed. */
function headOf(text: string): Pick<ListLine, "at" | "receipt"> | undefined {
  const at = HEAD.exec(text)?.[1];
  const key = text.indexOf(RECEIPT);
  if (at === undefined || key < 0 || !text.endsWith("}")) return undefined;
  TEXT.lastIndex = key + RECEIPT.length;
  const receipt = TEXT.exec(text)?.[0];
  return receipt === undefined ? undefined : { at, receipt };
}

/** The lines of a file from its end; two that a power cut made one are left out. */
function* linesOf(fd: number, root: string): Generator<ListLine> {
  const folder = inJson(root);
  for (const text of linesFromEnd(fd)) {
    const head = headOf(text);
    if (head === undefined || text.lastIndexOf('{"at":"') > 0) continue;
    yield { at: head.at, root, text, receipt: `${folder}/${head.receipt}` };
  }
}

/**
 * A row with its receipt's whole path; undefined where a line is none, or where its fields are not
 * those that were seen before it was parsed, because it has one twice.
 */
function parsed({ at, text, root, receipt }: ListLine): LineRow | undefined {
  const row = shortenedRow.safeParse(storedJson(text)).data;
  if (row?.at !== at || `${inJson(root)}/${inJson(row.receipt)}` !== receipt) return undefined;
  return { ...row, receipt: path.join(root, row.receipt) };
}

type Dated = Pick<ListRow, "at" | "receipt">;
const isLater = (a: Dated, b: Dated) => a.at > b.at || (a.at === b.at && a.receipt > b.receipt);

/** All lines of roots, the latest first, as far as each file is in order. */
async function* allLines(
  roots: readonly string[],
  unreadable: (lists: number) => void,
): AsyncGenerator<ListLine> {
  const files: { root: string; fd: number }[] = [];
  try {
    for (const root of roots) {
      const found = await openLists(root);
      files.push(...found.files.map(({ fd }) => ({ root, fd })));
      unreadable(found.bad.length + ((await isAwayNow("output", root)) ? 1 : 0));
    }
    const heads = files.flatMap(({ root, fd }) => {
      const lines = linesOf(fd, root);
      const first = lines.next();
      return first.done === true ? [] : { line: first.value, lines };
    });
    while (heads.length > 0) {
      const latest = heads.reduce((a, b) => (isLater(b.line, a.line) ? b : a));
      yield latest.line;
      const next = latest.lines.next();
      if (next.done === true) heads.splice(heads.indexOf(latest), 1);
      else latest.line = next.value;
    }
  } finally {
    files.forEach(({ fd }) => closeSync(fd));
  }
}

/** People do not mind the case of letters. */
const isSame = (label: string, wanted: string): boolean =>
  label.toLowerCase() === wanted.toLowerCase();

/** Of a shortened line the labels are not known before its receipt is read. */
function fits(row: LineRow, wanted: ListQuery): boolean {
  const { model, finding, status, modality, text, patient, accession, study, from, to } = wanted;
  const isOneOf = (hashes: readonly string[], hash: string | undefined) =>
    hash !== undefined && hashes.includes(hash);
  const models = model === undefined ? row.models : row.models.filter(({ name }) => name === model);
  return (
    (model === undefined || models.some((one) => one.status !== "not_accepted")) &&
    (finding === undefined ||
      row.shortened === true ||
      models.some(({ found }) => found.some((label) => isSame(label, finding)))) &&
    (status === undefined || row.status === status) &&
    (modality === undefined || row.modality === modality) &&
    (patient === undefined || isOneOf(patient, row.whose?.patient)) &&
    (accession === undefined || isOneOf(accession, row.whose?.accession)) &&
    (study === undefined || row.study === study) &&
    (from === undefined || row.at >= from) &&
    (to === undefined || row.at < to) &&
    (text === undefined ||
      [row.receipt, row.input ?? ""].some((one) =>
        one.toLowerCase().includes(text.toLowerCase()),
      ) ||
      [row.study, row.series].includes(text))
  );
}

const SHORTENED = '"shortened":true';

/**
 * Whether a line may fit by its text alone: to parse every line takes most of the time of a search.
 */
function sieve({
  text,
  from,
  to,
  model,
  finding,
  status,
  modality,
  patient,
  accession,
  study,
}: ListQuery): (line: ListLine) => boolean {
  const words = [model, status, modality, study].filter((word) => word !== undefined);
  const fields = words.map((word) => JSON.stringify(word));
  const label = finding === undefined ? undefined : JSON.stringify(finding).toLowerCase();
  const hashes = [patient, accession].filter((each) => each !== undefined);
  const part = text === undefined ? undefined : inJson(text).toLowerCase();
  return (line) =>
    // Not in order where a clock was wrong: an early line says nothing of those before it
    (from === undefined || line.at >= from) &&
    (to === undefined || line.at < to) &&
    fields.every((word) => line.text.includes(word)) &&
    (label === undefined ||
      line.text.toLowerCase().includes(label) ||
      line.text.includes(SHORTENED)) &&
    hashes.every((each) => each.some((hash) => line.text.includes(hash))) &&
    (part === undefined || `${line.receipt} ${line.text}`.toLowerCase().includes(part));
}

/** Short, because it stands in an address, and no path. */
const cursorOf = ({ at, receipt }: ListRow) =>
  `${at} ${createHash("sha256").update(receipt).digest("hex").slice(0, 16)}`;

interface ListPage {
  limit: number;
  /** `next_cursor` of the page before. */
  cursor?: string | undefined;
  /** Whether the caller may see a receipt at this path. */
  sees: (receipt: string) => boolean;
  /** The receipt at a path, inside the folders that the caller may see. */
  read: (receipt: string) => Promise<Existing | Away>;
}

/**
 * A row as its receipt says it: anybody may have written the line. Of a receipt that is not trusted
 * nothing is told but that it is there.
 * @returns undefined where there is no receipt (any more), or it is not what is wanted
 */
async function listedRowOf(
  { shortened: _shortened, ...row }: LineRow,
  wanted: ListQuery,
  found: Existing,
): Promise<ListedRow | undefined> {
  if (found.kind === "none") return undefined;
  const trust: Trust =
    found.kind === "receipt" ? found.trust : { trusted: false, why: "no_receipt" };
  const whose =
    found.kind === "receipt" && row.whose !== undefined
      ? await openWhose(row.whose, found.receipt)
      : undefined;
  if (found.kind === "receipt" && trust.trusted) {
    const { receipt, input } = row;
    const known = {
      receipt,
      ...(input === undefined ? {} : { input }),
      // Its hashes are searched only where it was made for this receipt
      ...(whose === undefined ? {} : { whose: row.whose }),
    };
    const told = rowOf(found.receipt, known);
    return fits(told, wanted) ? { ...told, whose, trust } : undefined;
  }
  const models = row.models.map(({ name, version, status }) => ({
    name,
    version,
    status,
    found: [],
  }));
  const told = { ...row, models, whose: whose && row.whose };
  return fits(told, wanted) ? { ...told, whose: undefined, trust } : undefined;
}

/**
 * Results of roots, the latest first.
 * @returns rows with whole paths
 */
export async function listResults(
  roots: readonly string[],
  wanted: ListQuery,
  { limit, cursor, sees, read }: ListPage,
): Promise<Listed> {
  const results: ListedRow[] = [];
  const lacking = { unreadable_results: 0, unreadable_lists: 0 };
  /** Receipts whose later lines do not count. */
  const seen = new Set<string>();
  const isOfSomebody = wanted.patient !== undefined || wanted.accession !== undefined;
  const mayFit = sieve(wanted);
  let before = cursor;
  let last: ListRow | undefined;
  const lines = allLines(roots, (lists) => (lacking.unreadable_lists += lists));
  for await (const line of lines) {
    if (before?.startsWith(line.at) !== true && !mayFit(line)) continue;
    const row = parsed(line);
    if (row === undefined) continue;
    if (before !== undefined && before === cursorOf(row)) {
      before = undefined;
      seen.add(row.receipt);
      continue;
    }
    if (seen.has(row.receipt) || !sees(row.receipt) || !fits(row, wanted)) continue;
    // Anybody may have written a line. Whose a result is can be read from a line of before, too:
    // of a search for somebody only the one counts that fits the receipt
    if (!isOfSomebody) {
      seen.add(row.receipt);
      if (before !== undefined) continue;
    }
    const found = await read(row.receipt);
    if (found.kind === "away") {
      seen.add(row.receipt);
      if (before === undefined) lacking.unreadable_results += 1;
      continue;
    }
    const shown = await listedRowOf(row, wanted, found);
    if (shown === undefined) continue;
    seen.add(row.receipt);
    if (before !== undefined) continue;
    if (results.length === limit)
      return { results, next_cursor: last === undefined ? null : cursorOf(last), ...lacking };
    last = row;
    results.push(shown);
  }
  return { results, next_cursor: null, ...lacking };
}

/**
 * The nearest folder above a receipt that is not there, if it is empty or cannot be read: a share
 * may be away that is mounted there.
 */
function awayFolder(receipt: string): string | undefined {
  for (let folder = path.dirname(receipt); ; folder = path.dirname(folder))
    try {
      return readdirSync(folder).length === 0 ? folder : undefined;
    } catch (error) {
      if (errno(error) !== "ENOENT" || folder === path.dirname(folder)) return folder;
    }
}

/**
 * Makes the list of a root again from the receipts in its folders. What lines of before knew beyond
 * a receipt is kept, sealed with the key that signs now.
 * @returns how many results there are, how many had no line, and how many lines had no result
 */
export async function rebuild(
  root: string,
  unreadable: (folder: string, why: string | undefined) => void,
): Promise<{ results: number; added: number; gone: number }> {
  const rows = new Map<string, LineRow>();
  const found = {
    get looked() {
      return rows.size;
    },
    add(receipt: Receipt, at: string) {
      rows.set(at, rowOf(receipt, { receipt: at }));
    },
  };
  await readReceipts(root, found, { unreadable });
  makeFolder(root);
  const { files, bad } = await openLists(root);
  for (const { name, why } of bad) unreadable(path.join(root, name), why);
  const said = () => {
    const lines = new Map<string, LineRow>();
    for (const { fd } of files)
      for (const line of linesOf(fd, root)) {
        const row = parsed(line);
        if (row !== undefined && !lines.has(row.receipt)) lines.set(row.receipt, row);
      }
    return lines;
  };
  const before = said();
  const away = new Set<string>();
  for (const [receipt, line] of before) {
    if (!existsSync(receipt)) {
      const folder = awayFolder(receipt);
      if (folder === undefined) continue;
      away.add(folder);
    }
    const row = rows.get(receipt);
    if (row !== undefined && row.at > line.at) continue;
    const whose = line.whose && (await sealedAgain(line.whose));
    // A line may have fewer labels than its receipt
    const { models, shortened } = row?.at === line.at ? row : line;
    rows.set(receipt, { ...line, whose, models, shortened });
  }
  for (const folder of away)
    unreadable(
      folder,
      "empty or unreadable, as where a share is away: its results stay listed until the folder is removed",
    );
  inFolder(root, (at) => {
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    const sorted = [...rows.values()].sort((a, b) => (isLater(a, b) ? 1 : -1));
    // The lists of before go when the new one is on the disk: nothing else has what they know
    rmSync(at(PART), { force: true });
    const fd = openSync(at(PART), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    const append = (row: ListRow) =>
      writeFileSync(fd, lineOf({ ...row, receipt: path.relative(root, row.receipt) }));
    try {
      sorted.forEach(append);
      fsyncSync(fd);
      renameSync(at(PART), at(REBUILT));
      // Whoever writes meanwhile finds its file gone, and writes its line again into a new one
      for (const { name } of files) if (name !== REBUILT) unlinkSync(at(name));
      for (const [receipt, row] of said())
        if (before.get(receipt)?.at !== row.at && existsSync(receipt)) append(row);
    } finally {
      closeSync(fd);
      files.forEach((file) => closeSync(file.fd));
    }
  });
  const added = [...rows.keys()].filter((receipt) => !before.has(receipt)).length;
  const gone = [...before.keys()].filter((receipt) => !rows.has(receipt)).length;
  return { results: rows.size, added, gone };
}
