/**
 * A job compared with what lies in its output folders, page by page: first its images, by their
 * number, then its folders. The server does it, because it has the roots, the names of folders, and
 * the share; a client may have none of them. Each page ends after some seconds, so that it holds up
 * nobody, and nothing is kept between pages.
 */
import { readdir } from "node:fs/promises";
import path from "node:path";
import type { Pool } from "pg";
import { groupsOf } from "../base/groups.js";
import type { Config } from "../config.js";
import { hashFile, withPlain } from "../files/durable-files.js";
import { isHelper } from "../files/own-entries.js";
import { isInside, narrowRoots, type Root } from "../files/roots.js";
import { receiptName } from "../results/receipt/names.js";
import { filesOf, readReceipt } from "../results/receipt/read-receipt.js";
import { distrust } from "../results/receipt/seal.js";
import type { Receipt } from "../results/receipt/receipt.js";
import { isReplaced, type Summary } from "../results/commit/compose.js";
import { FOLDER_OF_ITEM, pathsOf, type ItemPaths } from "./item-paths.js";
import { inFolder } from "./job-folders.js";
import type { ItemRow, JobRow } from "./jobs.js";
import type { Reconciliation } from "./schema.js";
import type { RootsContext } from "./visible-jobs.js";

type JobDifference = Reconciliation["differences"][number];

/** A page ends with the first image or folder after this. */
const LONGEST_PAGE_MS = 2_000;
const CHECKED_AT_ONCE = 8;
/** Entries of one folder that are listed; the others are counted. */
const MOST_UNLISTED = 1_000;
/**
 * Differences after which an image has to run again. One whose result was replaced has none of its
 * own to lose.
 */
const LACKING = new Set<JobDifference["difference"]>([
  "receipt_missing",
  "receipt_untrusted",
  "output_missing",
  "output_differs",
]);

export interface ReconcilePage {
  limit: number;
  /** `i` and the number of the last image, or `f` and how many folders were compared. */
  cursor: string | undefined;
}

export interface PageFound extends Omit<Reconciliation, "requeued"> {
  /** Images that have to run again. */
  lacking: number[];
}

/** Compares one page of a job. */
export async function reconcile(
  pool: Pool,
  job: JobRow,
  { limit, cursor = "i" }: ReconcilePage,
  { config, roots }: RootsContext,
): Promise<PageFound> {
  const narrowed = await narrowRoots(roots.output, job.output_roots ?? undefined);
  const comparison = new JobComparison(pool, job, config.path_map, narrowed);
  const at = Number(cursor.slice(1));
  return cursor.startsWith("f")
    ? comparison.folders(at, limit)
    : comparison.items(cursor === "i" ? -1 : at, limit);
}

type EndedItem = Pick<ItemRow, "index" | "input" | "output" | "state"> & { result: Summary | null };
type MakeDifference = (
  difference: JobDifference["difference"],
  name: string,
  message: string,
) => JobDifference;

class JobComparison {
  readonly #end = performance.now() + LONGEST_PAGE_MS;
  /** The items are those of a folder that was scanned. */
  readonly #scanned: boolean;

  constructor(
    private readonly pool: Pool,
    private readonly job: JobRow,
    private readonly pathMap: Config["path_map"],
    private readonly roots: readonly Root[],
  ) {
    this.#scanned = job.request.output_folder_path !== undefined;
  }

  async items(after: number, limit: number): Promise<PageFound> {
    const { rows } = await this.pool.query<EndedItem & { result: Summary }>(
      `select index, input, output, state, result from radserve.item
       where job_id = $1 and index > $2 and state in ('succeeded', 'partial') order by index limit $3`,
      [this.job.id, after, limit],
    );
    const differences: JobDifference[] = [];
    let checked = 0;
    for (const some of groupsOf(rows, CHECKED_AT_ONCE)) {
      if (checked > 0 && performance.now() >= this.#end) break;
      differences.push(...(await Promise.all(some.map((row) => this.#differencesOf(row)))).flat());
      checked += some.length;
    }
    const last = rows[checked - 1];
    const through = checked === rows.length && rows.length < limit;
    const lacking = differences.flatMap(({ difference, index }) =>
      index !== null && LACKING.has(difference) ? [index] : [],
    );
    return {
      checked,
      differences,
      next_cursor: through || last === undefined ? "f0" : `i${last.index}`,
      lacking: [...new Set(lacking)],
    };
  }

  #pathsOf(item: Pick<ItemRow, "input" | "output">): ItemPaths {
    return pathsOf(this.job.request, item, this.pathMap);
  }

  /** Compares an image's results with the files in its folder. */
  async #differencesOf(row: EndedItem & { result: Summary }): Promise<JobDifference[]> {
    const paths = this.#pathsOf(row);
    const { index, state, result } = row;
    const differs: MakeDifference = (difference, name, message) => ({
      difference,
      path: paths.clientOutput(name),
      index,
      message,
    });
    const name = result.receipt;
    const missing = differs(
      "receipt_missing",
      name,
      `The image says ${state}, and its receipt is not there.`,
    );
    return inFolder(
      paths.outputFolder,
      this.roots,
      async (folder) => {
        const found = await readReceipt(`${folder}/${name}`);
        if (found.kind === "none") return [missing];
        if (found.kind === "foreign")
          return [
            differs(
              "receipt_invalid",
              name,
              "The file is not a receipt of Radserve, or was changed.",
            ),
          ];
        if (!found.trust.trusted)
          return [
            differs(
              "receipt_untrusted",
              name,
              `The receipt is not trusted: ${distrust(found.trust)}.`,
            ),
          ];
        if (isOf(found.receipt, result)) return outputsOf(folder, result, differs);
        const message = "The receipt is of another run, which wrote other results here.";
        return [differs("receipt_replaced", name, message)];
      },
      (why) => [why === undefined ? missing : differs("folder_unreadable", name, why)],
    );
  }

  async folders(skip: number, limit: number): Promise<PageFound> {
    const all = await this.#folderNames();
    const differences: JobDifference[] = [];
    let at = skip;
    const last = Math.min(all.length, skip + limit);
    for (; at < last && (at === skip || performance.now() < this.#end); at++)
      for (const difference of await this.#unlistedIn(all[at] ?? "", all))
        differences.push(difference);
    return { checked: 0, differences, next_cursor: at < all.length ? `f${at}` : null, lacking: [] };
  }

  /**
   * Output folders as the client named them; of a scanned job relative to its own, with all that
   * lie between.
   */
  async #folderNames(): Promise<string[]> {
    const sql = this.#scanned
      ? `with folder as (
           select distinct string_to_array(${FOLDER_OF_ITEM}, '/') as parts from radserve.item
           where job_id = $1 and output is null
         )
         select distinct array_to_string(parts[1:n], '/') collate "C" as name
         from folder, generate_series(0, coalesce(cardinality(parts), 0)) as n order by name`
      : `select distinct output collate "C" as name from radserve.item
         where job_id = $1 and output is not null order by name`;
    return (await this.pool.query<{ name: string }>(sql, [this.job.id])).rows.map(
      ({ name }) => name,
    );
  }

  /** Lists entries of a folder that belong to no image of the job. */
  async #unlistedIn(name: string, all: readonly string[]): Promise<JobDifference[]> {
    const scanned = this.#scanned;
    const { rows: items } = await this.pool.query<EndedItem>(
      `select index, input, output, state, result from radserve.item
       where job_id = $1 and ${scanned ? `output is null and ${FOLDER_OF_ITEM} = $2` : "output = $2"}`,
      [this.job.id, name],
    );
    const prefix = name === "" ? "" : `${name}/`;
    // An item's paths without the item: nothing depends on its name
    const paths = this.#pathsOf(
      scanned ? { input: `${prefix}x`, output: null } : { input: "/x", output: name },
    );
    const { outputFolder, inputBase } = paths;
    const amongInputs = scanned
      ? isInside(outputFolder, [inputBase ?? ""])
      : items.some((item) => path.dirname(this.#pathsOf(item).input) === outputFolder);
    // Names of folders in it that hold items, or folders with items
    const below = all.filter((one) => one !== "" && one.startsWith(prefix) && one !== name);
    const folders = new Set(below.map((one) => one.slice(prefix.length).split("/")[0]));
    const belongs = this.#belonging(items);
    const unlisted = (entry: string, message: string): JobDifference => ({
      difference: "unlisted",
      path: paths.clientOutput(entry),
      index: null,
      message,
    });
    const list = async (open: string): Promise<JobDifference[]> => {
      const found: JobDifference[] = [];
      for (const entry of await readdir(open, { withFileTypes: true })) {
        if (isHelper(entry.name) || belongs(entry.name)) continue;
        if (entry.isDirectory()) {
          if (scanned && !folders.has(entry.name) && !amongInputs)
            found.push(
              unlisted(entry.name, "No image of this job has its results in this folder."),
            );
        } else if (await isReceipt(open, entry.name))
          found.push(unlisted(entry.name, "A receipt of no image of this job."));
        // If inputs lie here too, nobody can say which of the other files are inputs
        else if (!amongInputs)
          found.push(unlisted(entry.name, "It belongs to no image of this job."));
      }
      if (found.length <= MOST_UNLISTED) return found;
      const more = found.length - MOST_UNLISTED;
      return [
        ...found.slice(0, MOST_UNLISTED),
        unlisted("", `${more} more belong to no image of this job.`),
      ];
    };
    return inFolder(outputFolder, this.roots, list, (why) =>
      // That nothing is there is said of each image
      why === undefined ? [] : [{ ...unlisted("", why), difference: "folder_unreadable" }],
    );
  }

  /**
   * Tells the names in a folder that are results of its items. What an item that did not end well
   * has left is its own.
   */
  #belonging(items: readonly EndedItem[]): (name: string) => boolean {
    const exact = new Set<string>();
    const stems = new Set<string>();
    for (const item of items) {
      if (item.result !== null) {
        exact.add(item.result.receipt);
        for (const file of item.result.outputs) exact.add(file.path);
      } else stems.add(this.#pathsOf(item).name);
    }
    return (name) => {
      if (exact.has(name)) return true;
      for (let dot = name.indexOf(".", 1); dot !== -1; dot = name.indexOf(".", dot + 1))
        if (stems.has(name.slice(0, dot))) return true;
      return false;
    };
  }
}

async function isReceipt(folder: string, name: string): Promise<boolean> {
  return (
    name.endsWith(receiptName("")) && (await readReceipt(`${folder}/${name}`)).kind === "receipt"
  );
}

/** Whether a receipt is the one that the image's end was written down with. */
function isOf(receipt: Receipt, summary: Summary): boolean {
  const { outputs, status } = summary;
  const listed = filesOf(receipt);
  return (
    !isReplaced(receipt, summary) &&
    receipt.status === status &&
    listed.size === outputs.length &&
    outputs.every((file) => listed.get(file.path) === file.sha256)
  );
}

async function outputsOf(
  folder: string,
  { outputs }: Summary,
  differs: MakeDifference,
): Promise<JobDifference[]> {
  const differences: JobDifference[] = [];
  for (const { path: name, bytes, sha256 } of outputs) {
    const file = `${folder}/${name}`;
    const size = await withPlain(file, (_, facts) => Promise.resolve(facts.size));
    if (size === undefined)
      differences.push(differs("output_missing", name, "The file is not there."));
    else if (bytes !== undefined && size !== bytes)
      differences.push(differs("output_differs", name, `Expected ${bytes} bytes; found ${size}.`));
    else if ((await hashFile(file)) !== sha256)
      differences.push(differs("output_differs", name, "Its SHA-256 is another."));
  }
  return differences;
}
