/** `radserve audit verify | hash`, and what looks at the lines of a folder. */
import path from "node:path";
import { saidHead } from "../audit/chain.js";
import { parseHead, type Head } from "../audit/entry.js";
import { auditFolder, auditPaths, hashOf, isDay, readKey } from "../audit/folders.js";
import { verifyAudit, type ChainFinding, type Verified } from "../audit/verify.js";
import { ConfigError } from "../base/errors.js";
import { count } from "../base/table.js";
import { requireFolder, type Config } from "../config.js";
import { during } from "./activity.js";
import { print, type ExitStatus } from "./run.js";

export interface AuditRange {
  folder?: string;
  from?: string;
  to?: string;
}

/** A day as its file is named. Throws ConfigError for what is none. */
export function dayFile(option: string, day: string | undefined): string | undefined {
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

const findingText = ({ file, line, message }: ChainFinding) => `${file}:${line}: ${message}`;

const HEAD_GONE =
  "The head that was said last is gone, so a cut end would not show. Compare with the last `audit head` of the log: --head.";
const NO_HEAD =
  "No head was given, so a cut end would not show. Give the last `audit head` of the log: --head.";

/** The files of the audit that are meant. @throws ConfigError where there is no such folder */
export function folderOf({ state_dir }: Config, { folder }: AuditRange): string {
  if (folder === undefined) return auditFolder(state_dir);
  requireFolder(folder, "--folder");
  return path.resolve(folder);
}

/** Verifies the files. Throws ConfigError where the key cannot be read. */
export async function examined(
  config: Config,
  options: AuditRange & { head?: string[] },
): Promise<Verified> {
  const paths = auditPaths(config.state_dir);
  const folder = folderOf(config, options);
  const from = dayFile("--from", options.from);
  const given = (options.head ?? []).map(headOf);
  // The head that the server said last; a folder elsewhere has none
  const said = options.folder === undefined ? saidHead(paths.head) : undefined;
  const heads = said === undefined ? given : [...given, said];
  const known = { heads, ...(from === undefined ? {} : { from }) };
  const found = await during("Checking every line", () =>
    verifyAudit(folder, readKey(paths.chainKey), known),
  );
  if (options.folder === undefined && said === undefined)
    found.faults.unshift({ file: paths.head, line: 1, message: HEAD_GONE });
  else if (heads.length === 0) found.notes.unshift({ file: paths.head, line: 1, message: NO_HEAD });
  return found;
}

/** The findings about the files, notes first. */
export const allTold = ({ notes, faults }: Verified): string[] => [
  ...notes.map((note) => `note  ${findingText(note)}`),
  ...faults.map((fault) => `FAULT ${findingText(fault)}`),
];

export async function auditVerify(
  config: Config,
  options: AuditRange & { head?: string[]; json?: boolean },
): Promise<ExitStatus> {
  const found = await examined(config, options);
  if (options.json === true)
    print(JSON.stringify({ ok: found.faults.length === 0, ...found }, null, 2));
  else {
    for (const line of allTold(found)) print(line);
    const sum = `${many(found.lines, "line")} in ${many(found.files, "file")}; head ${found.head ?? "none"}`;
    print(
      found.faults.length === 0 ? `ok: ${sum}` : `${many(found.faults.length, "fault")}: ${sum}`,
    );
  }
  return found.faults.length === 0 ? 0 : 1;
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
