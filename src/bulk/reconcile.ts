/**
 * A job compared with what lies in its output folders, page by page: first its images, by their number, then its
 * folders. The server does it, because it has the roots, the names of folders, and the share; a client may have none of
 * them. Each page ends after some seconds, so that it holds up nobody, and nothing is kept between pages.
 */
import { readdir } from "node:fs/promises";
import path from "node:path";
import type { Pool } from "pg";
import type { Config } from "../config.js";
import { errno } from "../base/errno.js";
import { RadserveError } from "../base/errors.js";
import { hashFile, withPlain } from "../files/durable-files.js";
import { withInput } from "../files/guarded-paths.js";
import { isInside, narrowRoots, type Root } from "../files/roots.js";
import { receiptName } from "../results/receipt/names.js";
import { filesOf, readReceipt } from "../results/commit/reuse.js";
import type { Receipt } from "../results/receipt/receipt.js";
import type { Summary } from "../results/commit/compose.js";
import { isHelper } from "./classify.js";
import { pathsOf, type ItemPaths } from "./item-paths.js";
import type { ItemRow, JobRow } from "./jobs.js";
import type { Reconciliation } from "./schema.js";

type Difference = Reconciliation["differences"][number];

/** A page ends with the first image or folder after this. */
const LONGEST_PAGE_MS = 2_000;
const CHECKED_AT_ONCE = 8;
/** Of one folder; the others are counted. */
const MOST_UNLISTED = 1_000;
/** Differences after which an image has to run again. One whose result was replaced has none of its own to lose. */
const LACKING = new Set<Difference["difference"]>(["receipt_missing", "output_missing", "output_differs"]);

export interface ReconcileContext {
  config: Pick<Config, "path_map">;
  roots: { output: string[] };
}

export interface Page {
  limit: number;
  /** `i` and the number of the last image, or `f` and how many folders were compared. */
  cursor: string | undefined;
}

export interface PageFound extends Omit<Reconciliation, "requeued"> {
  /** Images that have to run again. */
  lacking: number[];
}

export async function reconcile(
  pool: Pool,
  job: JobRow,
  { limit, cursor = "i" }: Page,
  { config, roots }: ReconcileContext,
): Promise<PageFound> {
  const place: Place = {
    job,
    pathMap: config.path_map,
    roots: await narrowRoots(roots.output, job.output_roots ?? undefined),
    end: performance.now() + LONGEST_PAGE_MS,
  };
  const at = Number(cursor.slice(1));
  return cursor.startsWith("f")
    ? pageOfFolders(pool, place, at, limit)
    : pageOfItems(pool, place, cursor === "i" ? -1 : at, limit);
}

interface Place {
  job: JobRow;
  pathMap: Config["path_map"];
  roots: readonly Root[];
  end: number;
}

type Kept = Pick<ItemRow, "index" | "input" | "output" | "state"> & { result: Summary | null };

async function pageOfItems(pool: Pool, place: Place, after: number, limit: number): Promise<PageFound> {
  const { rows } = await pool.query<Kept & { result: Summary }>(
    `select index, input, output, state, result from radserve.item
     where job_id = $1 and index > $2 and state in ('succeeded', 'partial') order by index limit $3`,
    [place.job.id, after, limit],
  );
  const differences: Difference[] = [];
  let checked = 0;
  while (checked < rows.length && (checked === 0 || performance.now() < place.end)) {
    const some = rows.slice(checked, checked + CHECKED_AT_ONCE);
    const found = await Promise.all(some.map((row) => differencesOf(row, place)));
    differences.push(...found.flat());
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

/** What of an image's results does not lie where it says. */
async function differencesOf(row: Kept & { result: Summary }, place: Place): Promise<Difference[]> {
  const paths = pathsOf(place.job.request, row, place.pathMap);
  const differs = (difference: Difference["difference"], name: string, message: string): Difference => ({
    difference,
    path: paths.clientOutput(name),
    index: row.index,
    message,
  });
  const { receipt: name } = row.result;
  const missing = differs(
    "receipt_missing",
    name,
    `The image says ${row.state}, and its receipt is not there.`,
  );
  return inFolder(
    paths.outputFolder,
    place,
    async (folder) => {
      const found = await readReceipt(`${folder}/${name}`);
      if (found.kind === "none") return [missing];
      if (found.kind === "foreign")
        return [differs("receipt_invalid", name, "The file is no receipt of Radserve, or was changed.")];
      if (!isOf(found.receipt, row.result))
        return [
          differs("receipt_replaced", name, "The receipt is of another run, which wrote other results here."),
        ];
      return outputsOf(folder, row.result, differs);
    },
    (why) => [why === undefined ? missing : differs("folder_unreadable", name, why)],
  );
}

/** Whether a receipt is the one that the image's end was written down with. */
function isOf(receipt: Receipt, { outputs, status }: Summary): boolean {
  const listed = filesOf(receipt);
  return (
    receipt.status === status &&
    listed.size === outputs.length &&
    outputs.every((file) => listed.get(file.path) === file.sha256)
  );
}

async function outputsOf(
  folder: string,
  { outputs }: Summary,
  differs: (difference: Difference["difference"], name: string, message: string) => Difference,
): Promise<Difference[]> {
  const differences: Difference[] = [];
  for (const { path: name, bytes, sha256 } of outputs) {
    const file = `${folder}/${name}`;
    const size = await withPlain(file, (_, facts) => Promise.resolve(facts.size));
    if (size === undefined) differences.push(differs("output_missing", name, "The file is not there."));
    else if (bytes !== undefined && size !== bytes)
      differences.push(differs("output_differs", name, `Expected ${bytes} bytes; found ${size}.`));
    else if ((await hashFile(file)) !== sha256)
      differences.push(differs("output_differs", name, "Its SHA-256 is another."));
  }
  return differences;
}

/**
 * What `use` makes of an open folder.
 * @param otherwise told why it cannot be read; undefined where it is not there
 */
async function inFolder<T>(
  folder: string,
  { roots }: Place,
  use: (fdPath: string) => Promise<T>,
  otherwise: (why: string | undefined) => T,
): Promise<T> {
  try {
    return await withInput(folder, roots, ({ fdPath }) => use(fdPath));
  } catch (error) {
    if (error instanceof RadserveError)
      return otherwise(error.code === "input_not_found" ? undefined : error.message);
    if (errno(error) === "") throw error;
    return otherwise(`The folder, or a file in it, cannot be read (${errno(error)}).`);
  }
}

/** An output folder of the job: its path on this box, and what it and its items are called. */
interface JobFolder {
  local: string;
  paths: Pick<ItemPaths, "clientOutput">;
  items: Kept[];
  /** Names of folders in it that hold items, or folders with items; undefined where folders do not matter. */
  folders: ReadonlySet<string> | undefined;
  /** Inputs of the job lie here too. */
  amongInputs: boolean;
}

async function pageOfFolders(pool: Pool, place: Place, skip: number, limit: number): Promise<PageFound> {
  const scanned = place.job.request.output_folder_path !== undefined;
  const all = await foldersOf(pool, place.job.id, scanned);
  const differences: Difference[] = [];
  let at = skip;
  const last = Math.min(all.length, skip + limit);
  for (; at < last && (at === skip || performance.now() < place.end); at++) {
    const folder = await jobFolder(pool, place, all, all[at] ?? "", scanned);
    differences.push(...(await unlistedIn(folder, place)));
  }
  return { checked: 0, differences, next_cursor: at < all.length ? `f${at}` : null, lacking: [] };
}

/** In SQL: the folder of an item of a scanned job, relative to the job's. */
const FOLDER = "case when position('/' in input) = 0 then '' else regexp_replace(input, '/[^/]*$', '') end";

/** Output folders as the client named them; of a scanned job relative to its own, with all that lie between. */
async function foldersOf(pool: Pool, jobId: string, scanned: boolean): Promise<string[]> {
  const sql = scanned
    ? `with folder as (
         select distinct string_to_array(${FOLDER}, '/') as parts from radserve.item
         where job_id = $1 and output is null
       )
       select distinct array_to_string(parts[1:n], '/') collate "C" as name
       from folder, generate_series(0, coalesce(cardinality(parts), 0)) as n order by name`
    : `select distinct output collate "C" as name from radserve.item
       where job_id = $1 and output is not null order by name`;
  return (await pool.query<{ name: string }>(sql, [jobId])).rows.map(({ name }) => name);
}

async function jobFolder(
  pool: Pool,
  { job, pathMap }: Place,
  all: readonly string[],
  name: string,
  scanned: boolean,
): Promise<JobFolder> {
  const { rows: items } = await pool.query<Kept>(
    `select index, input, output, state, result from radserve.item
     where job_id = $1 and ${scanned ? `output is null and ${FOLDER} = $2` : "output = $2"}`,
    [job.id, name],
  );
  // An item's paths without the item: nothing depends on its name
  const example = scanned
    ? { input: name === "" ? "x" : `${name}/x`, output: null }
    : { input: "/x", output: name };
  const paths = pathsOf(job.request, example, pathMap);
  const prefix = name === "" ? "" : `${name}/`;
  const below = all.filter((one) => one !== "" && one.startsWith(prefix) && one !== name);
  const local = paths.outputFolder;
  return {
    local,
    paths,
    items,
    amongInputs: scanned
      ? isInside(local, [paths.inputBase ?? ""])
      : items.some((item) => path.dirname(pathsOf(job.request, item, pathMap).input) === local),
    folders: scanned ? new Set(below.map((one) => one.slice(prefix.length).split("/")[0] ?? "")) : undefined,
  };
}

/** What lies in a folder and belongs to no image of the job. */
async function unlistedIn(folder: JobFolder, place: Place): Promise<Difference[]> {
  const { paths, items, folders } = folder;
  const belongs = belonging(items, place);
  const unlisted = (name: string, message: string): Difference => ({
    difference: "unlisted",
    path: paths.clientOutput(name),
    index: null,
    message,
  });
  const look = async (open: string): Promise<Difference[]> => {
    const found: Difference[] = [];
    for (const entry of await readdir(open, { withFileTypes: true })) {
      const { name } = entry;
      if (isHelper(name) || belongs(name)) continue;
      if (entry.isDirectory()) {
        if (folders !== undefined && !folders.has(name) && !folder.amongInputs)
          found.push(unlisted(name, "No image of this job has its results in this folder."));
      } else if (name.endsWith(receiptName("")) && (await readReceipt(`${open}/${name}`)).kind === "receipt")
        found.push(unlisted(name, "A receipt of no image of this job."));
      // Where inputs lie too, nobody can say which of the other files are inputs
      else if (!folder.amongInputs) found.push(unlisted(name, "It belongs to no image of this job."));
    }
    if (found.length <= MOST_UNLISTED) return found;
    const more = found.length - MOST_UNLISTED;
    return [...found.slice(0, MOST_UNLISTED), unlisted("", `${more} more belong to no image of this job.`)];
  };
  return inFolder(folder.local, place, look, (why) =>
    // That nothing is there is said of each image
    why === undefined ? [] : [{ ...unlisted("", why), difference: "folder_unreadable" }],
  );
}

/** Tells the names in a folder that are results of its items. What an item that did not end well has left is its own. */
function belonging(items: readonly Kept[], { job, pathMap }: Place): (name: string) => boolean {
  const exact = new Set<string>();
  const stems = new Set<string>();
  for (const item of items) {
    if (item.result !== null) {
      exact.add(item.result.receipt);
      for (const file of item.result.outputs) exact.add(file.path);
    } else stems.add(pathsOf(job.request, item, pathMap).name);
  }
  return (name) => {
    if (exact.has(name)) return true;
    for (let dot = name.indexOf(".", 1); dot !== -1; dot = name.indexOf(".", dot + 1))
      if (stems.has(name.slice(0, dot))) return true;
    return false;
  };
}
