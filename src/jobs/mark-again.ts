/**
 * An output folder without the mark of its job that is the job's all the same. After a backup of
 * the database was put back, jobs that had ended, and whose marks are gone, are open again. The
 * folder is known by what lies in it: results that this installation signed for the job's images,
 * and all of those that the database says are there. Then it gets its mark again, and what lies
 * there is reused.
 */
import { translateIn } from "../files/path-map.js";
import { isMarked, markName } from "../files/folder-mark.js";
import { narrowRoots, type Root } from "../files/roots.js";
import { receiptName } from "../results/receipt/names.js";
import { readReceipt } from "../results/receipt/read-receipt.js";
import { transaction } from "./database.js";
import { pathsOf, type ItemPaths } from "./item-paths.js";
import { inFolder, makeFolders } from "./job-folders.js";
import { endPause, findJob, namedPaths, type ItemRow, type JobRow } from "./jobs.js";
import type { NodeContext } from "./nodes.js";
import { reconcile } from "./reconcile.js";

type MarkContext = Pick<NodeContext, "config" | "roots" | "database">;

/** Why a job waits whose folder lacks its mark. */
export const OUTPUT_REPLACED = "output_replaced";

const PAGE = 1_000;
/** Images of a folder that are looked for in it; one is enough. */
const MOST_LOOKED_AT = 100;

/**
 * Leaves the mark again in the folders of a job that are its own, and lets it go on.
 * @returns false if one of its folders is not known to be its own
 */
export async function markAgain(id: string, context: MarkContext): Promise<boolean> {
  const { config, roots, database } = context;
  const job = await findJob(database.pool, { subject: "", admin: true }, id);
  const narrowed = await narrowRoots(roots.output, job.output_roots ?? undefined);
  const { outputs } = await namedPaths(database.pool, job);
  const unmarked: string[] = [];
  for (const folder of new Set(outputs)) {
    if (await isMarked(translateIn(folder, config.path_map).path, markName(id))) continue;
    if (!(await holdsOne(job, folder, narrowed, context))) return false;
    unmarked.push(folder);
  }
  if (!(await holdsAll(job, context))) return false;
  if (!(await leaveMarks(job, unmarked, narrowed, context))) return false;
  await endPause(database.pool, id, OUTPUT_REPLACED);
  return true;
}

/** The job is locked meanwhile, so that no mark comes after its end. */
function leaveMarks(
  { id }: JobRow,
  folders: readonly string[],
  roots: readonly Root[],
  { config, database }: MarkContext,
): Promise<boolean> {
  return transaction(database.pool, async (client) => {
    const { rowCount } = await client.query(
      "select from radserve.job where id = $1 and finished_at is null for update",
      [id],
    );
    if (rowCount === 1) await makeFolders(id, folders, roots, config);
    return rowCount === 1;
  });
}

/** Whether all that the database says was written is there, whoever wrote it last. */
async function holdsAll(job: JobRow, { config, roots, database }: MarkContext): Promise<boolean> {
  for (let cursor = "i"; cursor.startsWith("i");) {
    const page = { limit: PAGE, cursor };
    const found = await reconcile(database.pool, job, page, { config, roots });
    if (found.differences.some(({ difference }) => difference !== "receipt_replaced")) return false;
    cursor = found.next_cursor ?? "";
  }
  return true;
}

/** Whether a result of this installation lies in a folder, for an image that has it there. */
async function holdsOne(
  job: JobRow,
  folder: string,
  roots: readonly Root[],
  { config, database }: MarkContext,
): Promise<boolean> {
  const { rows } = await database.pool.query<Pick<ItemRow, "input" | "output">>(
    `select input, output from radserve.item where job_id = $1 and (output is null or output = $2)
     order by state in ('succeeded', 'partial') desc, index limit $3`,
    [job.id, folder, MOST_LOOKED_AT],
  );
  for (const row of rows)
    if (await hasResult(pathsOf(job.request, row, config.path_map), roots)) return true;
  return false;
}

const hasResult = ({ outputFolder, name }: ItemPaths, roots: readonly Root[]): Promise<boolean> =>
  inFolder(
    outputFolder,
    roots,
    async (open) => {
      const found = await readReceipt(`${open}/${receiptName(name)}`);
      return found.kind === "receipt" && found.trust.trusted;
    },
    () => false,
  );
