/** The thread that reads receipts and compares weeks: hundreds of thousands take minutes. */
import { answerOwner } from "../../base/service-thread.js";
import { outermost } from "../../files/roots.js";
import { readReceipts } from "../../results/commit/read-receipts.js";
import { driftOf, FALSE_MARKS, FEWEST_STUDIES } from "./compare.js";
import type { DriftQuestion, DriftThread, DriftView } from "./messages.js";
import { mondayOf, Weeks } from "./weeks.js";

async function compare({ folders, most, week }: DriftQuestion): Promise<DriftView> {
  const weeks = new Weeks();
  let whole = true;
  // A receipt counts once, however many of the folders it lies in
  for (const folder of outermost(folders))
    whole = (await readReceipts(folder, weeks, { most })) && whole;
  const found = driftOf(weeks, week === undefined ? undefined : mondayOf(`${week}T00:00:00Z`));
  return { ...found, whole, folders, fewest_studies: FEWEST_STUDIES, false_marks: FALSE_MARKS };
}

answerOwner({ compare } satisfies DriftThread);
