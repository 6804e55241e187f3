/** The thread that reads receipts and compares weeks: hundreds of thousands take minutes. */
import { answerOwner } from "../../base/service-thread.js";
import { isAwayNow } from "../../files/absent-roots.js";
import { outermost, rootsAround } from "../../files/roots.js";
import { readReceipts } from "../../results/commit/read-receipts.js";
import { driftOf, FALSE_MARKS, FEWEST_STUDIES } from "./compare.js";
import type { DriftQuestion, DriftThread, DriftView } from "./messages.js";
import { mondayOf, Weeks } from "./weeks.js";

async function compare({ roots, folders, most, week }: DriftQuestion): Promise<DriftView> {
  const weeks = new Weeks();
  let whole = true;
  for (const root of rootsAround(roots, folders))
    if (await isAwayNow("output", root)) whole = false;
  // What is gone has no receipts; nor has a folder of a token that nothing was written into yet
  const unreadable = (_left: string, why: string | undefined) => {
    if (why !== "ENOENT") whole = false;
  };
  // A receipt counts once, however many of the folders it lies in
  for (const folder of outermost(folders))
    if (!(await readReceipts(folder, weeks, { most, unreadable }))) whole = false;
  const found = driftOf(weeks, week === undefined ? undefined : mondayOf(`${week}T00:00:00Z`));
  return { ...found, whole, folders, fewest_studies: FEWEST_STUDIES, false_marks: FALSE_MARKS };
}

answerOwner({ compare } satisfies DriftThread);
