/** `radserve audit export`. */
import { createReadStream } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline/promises";
import { readLine } from "../../audit/entry.js";
import { dayOf } from "../../audit/folders.js";
import { filesFrom } from "../../audit/verify.js";
import { ConfigError } from "../../base/errors.js";
import { counted } from "../../base/table.js";
import { allTold, dayFile, examined, folderOf, type AuditRange } from "../../commands/audit.js";
import { remark, type ExitStatus } from "../../commands/run.js";
import type { Config } from "../../config.js";
import { auditEvent, type Interactions } from "./fhir.js";

/** Lines that `auditExport` tells of the files; `verify` tells all. */
const MOST_REMARKS = 20;

/**
 * Tells what `verify` finds in the files that are exported. @returns false where a line may be
 * missing or changed
 */
async function remarksOfVerify(config: Config, options: AuditRange): Promise<boolean> {
  try {
    const found = await examined(config, options);
    const lines = allTold(found).reverse();
    for (const line of lines.slice(0, MOST_REMARKS)) remark(line);
    if (lines.length > MOST_REMARKS) remark("radserve audit verify says the rest.");
    return found.faults.length === 0;
  } catch (error) {
    // An archive may lie where its key is not
    if (!(error instanceof ConfigError) || options.folder === undefined) throw error;
    remark(`The lines are exported unverified: ${error.message}`);
    return true;
  }
}

/**
 * One AuditEvent a line, of the days that the lines themselves say: after a clock was set back,
 * lines of many days lie in the file of a later one. Status 1 where the files are not as they were
 * written.
 * @param interactionOf what each endpoint does, in FHIR's words
 */
export async function auditExport(
  config: Config,
  options: AuditRange,
  interactionOf: Interactions,
): Promise<ExitStatus> {
  const folder = folderOf(config, options);
  const [from, to] = [dayFile("--from", options.from), dayFile("--to", options.to)];
  const isGood = await remarksOfVerify(config, options);
  let strange = 0;
  const output = process.stdout;
  for (const name of filesFrom(folder, from)) {
    for await (const text of createInterface({
      input: createReadStream(path.join(folder, name)),
    })) {
      const line = readLine(text);
      if (line === undefined) strange += 1;
      const day = line === undefined ? "" : `${dayOf(line.entry.time)}.jsonl`;
      if (
        line === undefined ||
        (from !== undefined && day < from) ||
        (to !== undefined && day > to)
      )
        continue;
      const event = auditEvent(line.entry, interactionOf);
      if (event !== undefined && !output.write(`${JSON.stringify(event)}\n`))
        await new Promise((resolve) => output.once("drain", resolve));
    }
  }
  if (strange > 0)
    remark(
      `Left out: ${counted(strange, "line")} not of the audit. radserve audit verify says more.`,
    );
  return isGood && strange === 0 ? 0 : 1;
}
