/** `radserve audit verify | export | hash`. */
import { createReadStream } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline/promises";
import { saidHead } from "../audit/chain.js";
import { parseHead, readLine, type Head } from "../audit/entry.js";
import { auditEvent } from "../audit/fhir.js";
import { auditPaths, hashOf, isDay, readKey } from "../audit/folders.js";
import { filesFrom, verifyAudit, type Finding } from "../audit/verify.js";
import { ConfigError } from "../base/errors.js";
import { count } from "../base/table.js";
import { requireFolder, type Config } from "../config.js";
import { during } from "./activity.js";
import { print, remark, standardOutput, type ExitStatus } from "./run.js";

export interface AuditRange {
  folder?: string;
  from?: string;
  to?: string;
}

/** A day as its file is named. Throws ConfigError for what is none. */
function dayFile(option: string, day: string | undefined): string | undefined {
  if (day === undefined) return undefined;
  if (isDay(day)) return `${day}.jsonl`;
  throw new ConfigError(`${option}: expected a day such as 2026-11-21; found "${day}".`);
}

function headOf(text: string): Head {
  const head = parseHead(text);
  if (head !== undefined) return head;
  throw new ConfigError(
    `--head: expected a head as the log says it, a number, a colon and 64 hexadecimal digits; found "${text.slice(0, 80)}".`,
  );
}

const many = (number: number, what: string) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

const told = ({ file, line, message }: Finding) => `${file}:${line}: ${message}`;

export async function auditVerify(
  config: Config,
  options: AuditRange & { head?: string[]; json?: boolean },
): Promise<ExitStatus> {
  const paths = auditPaths(config.state_dir);
  const folder = options.folder === undefined ? paths.folder : path.resolve(options.folder);
  requireFolder(folder, options.folder === undefined ? "RADSERVE_STATE_DIR" : "--folder");
  const from = dayFile("--from", options.from);
  const given = (options.head ?? []).map(headOf);
  // What the server said last; of a folder elsewhere nobody knows what it should hold
  const said = options.folder === undefined ? saidHead(paths.head) : undefined;
  const heads = said === undefined ? given : [...given, said];
  const known = { heads, ...(from === undefined ? {} : { from }) };
  const found = await during("Checking every line", () =>
    verifyAudit(folder, readKey(paths.chainKey), known),
  );
  if (options.json === true) print(JSON.stringify({ ok: found.faults.length === 0, ...found }, null, 2));
  else {
    for (const note of found.notes) print(`note  ${told(note)}`);
    for (const fault of found.faults) print(`FAULT ${told(fault)}`);
    const sum = `${many(found.lines, "line")} in ${many(found.files, "file")}; head ${found.head ?? "none"}`;
    print(found.faults.length === 0 ? `ok: ${sum}` : `${many(found.faults.length, "fault")}: ${sum}`);
  }
  return found.faults.length === 0 ? 0 : 1;
}

/** One AuditEvent a line. The lines are not verified: that is what `verify` is for. */
export async function auditExport(config: Config, options: AuditRange): Promise<ExitStatus> {
  const folder = options.folder ?? auditPaths(config.state_dir).folder;
  requireFolder(folder, options.folder === undefined ? "RADSERVE_STATE_DIR" : "--folder");
  const to = dayFile("--to", options.to);
  let strange = 0;
  const output = standardOutput();
  for (const name of filesFrom(folder, dayFile("--from", options.from))) {
    if (to !== undefined && name > to) break;
    for await (const text of createInterface({ input: createReadStream(path.join(folder, name)) })) {
      const line = readLine(text);
      if (line === undefined) strange += 1;
      const event = line === undefined ? undefined : auditEvent(line.entry);
      if (event !== undefined && !output.write(`${JSON.stringify(event)}\n`))
        await new Promise((resolve) => output.once("drain", resolve));
    }
  }
  if (strange === 0) return 0;
  remark(`${strange} lines are none of the audit and are left out; radserve audit verify says more.`);
  return 1;
}

/** The keyed hash by which lines name somebody or something. */
export function auditHash(
  config: Config,
  options: { patient?: string; study?: string; path?: string },
): Promise<ExitStatus> {
  const asked = (["patient", "study", "path"] as const).flatMap((what) => {
    const name = options[what];
    return name === undefined ? [] : [{ what, name }];
  });
  const [one] = asked;
  if (one === undefined || asked.length > 1)
    throw new ConfigError("Expected one of --patient, --study and --path; found none or several.");
  print(hashOf(readKey(auditPaths(config.state_dir).namesKey), one.what, one.name));
  return Promise.resolve(0);
}
