/**
 * Writes the report of a job into its output folder: a page for people and a table for programs.
 * Images are read from the database and their receipts from the folders, some hundred at a time.
 * Both files appear whole or not at all; of equal receipts they are equal. If a node dies in the
 * middle, another begins anew.
 */
import { closeSync, constants } from "node:fs";
import path from "node:path";
import type { Pool } from "pg";
import { durations } from "../../base/durations.js";
import { groupsOf } from "../../base/groups.js";
import { monotonic } from "../../base/monotonic.js";
import { VERSION } from "../../base/version.js";
import { syncDescriptor, writeAll } from "../../files/descriptor.js";
import { openDescriptor, rename, unlink } from "../../files/disk.js";
import { explained, syncFolder } from "../../files/durable-files.js";
import { openOutputFolder } from "../../files/guarded-paths.js";
import { isMarked, markMissing, markName } from "../../files/folder-mark.js";
import { narrowRoots, type Root } from "../../files/roots.js";
import { readReceipt } from "../../results/receipt/read-receipt.js";
import { distrust } from "../../results/receipt/seal.js";
import { isReplaced, type Summary } from "../../results/commit/compose.js";
import { itemOf, jobOf } from "../../jobs/api.js";
import { ReportLeft, type Report, type ReportContext } from "../../jobs/feature.js";
import { findJob, listItems, type ItemRow, type JobRow } from "../../jobs/jobs.js";
import { pathsOf, type ItemPaths } from "../../jobs/item-paths.js";
import { inFolder } from "../../jobs/job-folders.js";
import { renewClaim, type ReportClaim } from "../../jobs/report-claims.js";
import { reportName, unfinishedName } from "../../files/report-names.js";
import { pageOf, type Thumbnail } from "./page.js";
import { HEAD_ROW, rowsOf } from "./rows.js";
import { Tally, type ReportedImage } from "./tally.js";
import { thumbnail } from "./thumbnails.js";

const IMAGES_AT_ONCE = 200;
const RECEIPTS_AT_ONCE = 8;
/** In the page: some 20 KiB each. */
const MOST_PICTURES = 24;

interface Context extends ReportContext {
  /** The page has small pictures. */
  pictures: boolean;
}

/** @throws ReportLeft; RadserveError path_not_allowed, disk_full, input_not_found */
export async function writeReport(claim: ReportClaim, context: Context): Promise<Report> {
  const { config } = context;
  const { pool } = context.database;
  const row = await findJob(pool, { subject: claim.subject, admin: true }, claim.job);
  const folder = await folderOf(pool, row);
  if (folder === undefined) return { html_path: null, csv_path: null, error: null };
  const roots = await narrowRoots(context.roots.output, row.output_roots ?? undefined);
  const paths = pathsOf(row.request, folder, config.path_map);
  const limits = { create: false, minimumFreeBytes: config.minimum_free_disk };
  const output = await openOutputFolder(paths.outputBase, roots, limits);
  try {
    // If the folder is gone, its parent was opened, and that has no mark either
    if (!(await isMarked(output.fdPath, markName(row.id)))) throw markMissing(markName(row.id));
    const reporter = new Reporter(claim, context, row, roots, paths.outputBase);
    await explained(() => reporter.write(output.fdPath));
  } finally {
    output.close();
  }
  return {
    html_path: paths.clientOutput(reportName(row.id, "html")),
    csv_path: paths.clientOutput(reportName(row.id, "csv")),
    error: null,
  };
}

/** Names the folder for the report: the job's own, or that of the first image of a list. */
async function folderOf(
  pool: Pool,
  row: JobRow,
): Promise<Pick<ItemRow, "input" | "output"> | undefined> {
  if (row.request.output_folder_path !== undefined) return { input: "", output: null };
  const [first] = await listItems(pool, row.id, { after: -1, limit: 1 });
  return first;
}

class Reporter {
  readonly #tally = new Tally();
  #renewedAt = 0;

  constructor(
    private readonly claim: ReportClaim,
    private readonly context: Context,
    private readonly row: JobRow,
    private readonly roots: readonly Root[],
    /** The path of the report's folder, from which links begin. */
    private readonly base: string,
  ) {}

  /** @param folder a path that names the open folder */
  async write(folder: string): Promise<void> {
    const { job, token, before } = this.claim;
    for (const kind of ["html", "csv"] as const)
      if (before !== null) await removed(`${folder}/${unfinishedName(job, kind, before)}`);
    const at = (kind: "html" | "csv") => `${folder}/${unfinishedName(job, kind, token)}`;
    try {
      await written(at("csv"), (write) => this.#gather(write));
      const pictures = await this.#pictures();
      await written(at("html"), async (write) => {
        for (const part of pageOf(this.#about(), this.#tally, pictures)) await write(part);
      });
      await this.#stillMine(true);
      for (const kind of ["csv", "html"] as const)
        await rename(at(kind), `${folder}/${reportName(job, kind)}`);
      await syncFolder(folder);
    } finally {
      await removed(at("html"));
      await removed(at("csv"));
    }
  }

  #about() {
    const { row, claim } = this;
    // Its marks are still in its folders, so that it does not count as ended yet
    const ended = row.cancelled_at === null ? ("completed" as const) : ("cancelled" as const);
    return {
      job: { ...jobOf(row), state: ended, finished_at: claim.finishedAt.toISOString() },
      startedAt: row.started_at?.toISOString(),
      version: VERSION,
      csv: reportName(row.id, "csv"),
    };
  }

  async #gather(write: (text: string) => Promise<void>): Promise<void> {
    await write(HEAD_ROW);
    for (let after = -1; ;) {
      await this.#stillMine();
      const limit = IMAGES_AT_ONCE;
      const rows = await listItems(this.context.database.pool, this.row.id, { after, limit });
      for (const some of groupsOf(rows, RECEIPTS_AT_ONCE)) {
        const images = await Promise.all(some.map((row) => this.#imageOf(row)));
        for (const image of images) this.#tally.add(image);
        await write(images.map(rowsOf).join(""));
      }
      if (rows.length < limit) return;
      after = rows.at(-1)?.index ?? after;
    }
  }

  #pathsOf(row: Pick<ItemRow, "input" | "output">): ItemPaths {
    return pathsOf(this.row.request, row, this.context.config.path_map);
  }

  async #imageOf(row: ItemRow): Promise<ReportedImage> {
    const item = itemOf(row, this.row.request, this.context.config.path_map);
    const result = row.result as Summary | null;
    if (result === null) return { ...item, receiptLost: false };
    const paths = this.#pathsOf(row);
    const receiptPath = paths.clientOutput(result.receipt);
    const found = await this.#inFolder(paths.outputFolder, async (open) => {
      const found = await readReceipt(`${open}/${result.receipt}`);
      return found.kind === "receipt" ? found : undefined;
    });
    if (found === undefined) return { ...item, receiptPath, receiptLost: true };
    const { receipt, trust } = found;
    const untold = !trust.trusted
      ? { code: "result_untrusted", message: `The receipt is not trusted: ${distrust(trust)}.` }
      : isReplaced(receipt, result)
        ? { code: "receipt_replaced", message: "Another run has written its result here since." }
        : undefined;
    return {
      ...item,
      receiptPath,
      receiptLost: false,
      ...(untold === undefined ? { receipt } : { untold }),
    };
  }

  async #pictures(): Promise<Thumbnail[]> {
    if (!this.context.pictures) return [];
    const found: Thumbnail[] = [];
    for (const candidate of this.#tally.candidates(MOST_PICTURES)) {
      await this.#stillMine();
      const { index, file, sha256 } = candidate;
      const [row] = await listItems(this.context.database.pool, this.row.id, {
        after: index - 1,
        limit: 1,
      });
      if (row === undefined) continue;
      const { outputFolder } = this.#pathsOf(row);
      const small = await this.#inFolder(outputFolder, (open) =>
        thumbnail(`${open}/${file}`, sha256).catch(() => undefined),
      );
      if (small === undefined) continue;
      const relative = path.posix.relative(this.base, `${outputFolder}/${file}`);
      const href = relative.split("/").map(encodeURIComponent).join("/");
      found.push({ ...candidate, ...small, href: relative.startsWith("../") ? undefined : href });
    }
    return found;
  }

  /** Reads a folder; undefined if it cannot be read. */
  #inFolder<T>(
    folder: string,
    use: (open: string) => Promise<T | undefined>,
  ): Promise<T | undefined> {
    return inFolder(folder, this.roots, use, () => undefined);
  }

  /** @throws ReportLeft */
  async #stillMine(now = false): Promise<void> {
    if (this.context.stopped()) throw new ReportLeft("The server is stopping.");
    if (!now && monotonic() - this.#renewedAt < durations.reportRenew) return;
    this.#renewedAt = monotonic();
    if (!(await renewClaim(this.context.database.pool, this.claim)))
      throw new ReportLeft("The job is not over, or another node writes its report.");
  }
}

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;

/** A new file with what `fill` writes, on the disk. */
async function written(
  file: string,
  fill: (write: (text: string) => Promise<void>) => Promise<void>,
): Promise<void> {
  const fd = await openDescriptor(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o644);
  try {
    await fill((text) => writeAll(fd, Buffer.from(text)));
    await syncDescriptor(fd);
  } finally {
    closeSync(fd);
  }
}

const removed = (file: string) => unlink(file).catch(() => undefined);
