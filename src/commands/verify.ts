/** `radserve verify NAME.json`: replays a receipt and compares every hash. */
import { readdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { resultForms, type Config } from "../config.js";
import { ANY_STACK, type Image } from "../images/image.js";
import { ConfigError, errors } from "../base/errors.js";
import { table } from "../base/table.js";
import { replay } from "../inference/replay.js";
import { checkResult } from "../inference/verify-result.js";
import type { Receipt } from "../results/receipt/receipt.js";
import { readReceipt, type Existing } from "../results/receipt/read-receipt.js";
import { areEqual, check, type ReceiptCheck, type CheckVerdict } from "../results/commit/verify.js";
import { withEngine } from "./engine.js";
import { hashFile } from "../files/durable-files.js";
import { withImageFile } from "./files.js";
import { during } from "./activity.js";
import { print, type ExitStatus, type JsonOption } from "./run.js";

export interface VerifyCommand extends JsonOption {
  /**
   * The source, or a folder that it lies in, at any depth; by default what lies beside the receipt
   * under its name.
   */
  input?: string;
}

const WORDS: Readonly<Record<CheckVerdict, string>> = {
  ok: "ok",
  differs: "differs",
  missing: "missing",
  not_replayed: "cannot be replayed",
  unsigned: "not signed",
  known_fault: "known fault",
};

/**
 * Exit status 0 where everything is there and equal, 1 where anything differs, is missing or cannot
 * be replayed. Reads only: nothing is written anywhere.
 * @throws ConfigError where there is nothing at the path of the receipt
 */
export async function verify(
  config: Config,
  file: string,
  options: VerifyCommand,
): Promise<ExitStatus> {
  const receiptPath = path.resolve(file);
  const found = await readReceipt(receiptPath);
  if (found.kind === "none")
    throw new ConfigError(
      `${receiptPath}: expected the receipt of a result (NAME.json); nothing is there.`,
    );
  if (found.kind === "foreign" && (await stat(receiptPath)).isDirectory())
    throw new ConfigError(
      `${receiptPath}: expected the receipt of a result (NAME.json); found a folder. Name one of the receipts in it.`,
    );
  const checks =
    found.kind === "foreign"
      ? [check("receipt", "differs", "the file is not a receipt of Radserve, or was changed")]
      : await during("Computing the result again", () =>
          checksOf(receiptPath, found, options.input, (source) =>
            replayFrom(config, source, found.receipt),
          ),
        );
  const equal = areEqual(checks);
  print(
    options.json === true ? JSON.stringify({ equal, checks }, null, 2) : verdictText(checks, equal),
  );
  return equal ? 0 : 1;
}

/**
 * All checks of a receipt.
 * @param input the source, or a folder that it lies in
 * @param replayed computes the result again from the source at a path
 */
async function checksOf(
  receiptPath: string,
  { receipt, trust }: Extract<Existing, { kind: "receipt" }>,
  input: string | undefined,
  replayed: (source: string) => Promise<ReceiptCheck[]>,
): Promise<ReceiptCheck[]> {
  const folder = path.dirname(receiptPath);
  const given = path.resolve(input ?? path.join(folder, receipt.source.name));
  return checkResult({
    folder,
    receipt,
    trust,
    text: await readFile(receiptPath, "utf8"),
    replayed: async () => replayed(await sourceIn(given, receipt)),
    missing:
      input === undefined
        ? "the source is not beside the receipt: name it with --input"
        : "nothing is there with the SHA-256 of the receipt's source",
  });
}

/** Whether a source is a series or a case, whose files lie in one folder. */
export const isFolder = ({ slices, case: members }: Receipt["source"]): boolean =>
  slices !== undefined || members !== undefined;

/** SHA-256 of the files that a source is made of. */
function filesOfSource({ file_sha256, slices, case: members }: Receipt["source"]): string[] {
  const hashes = [...(slices ?? []), ...(members ?? []).flatMap((one) => one.slices ?? one)];
  return hashes.length === 0 ? [file_sha256] : hashes.map((one) => one.file_sha256);
}

/**
 * Finds the source: a receipt has its name and SHA-256 and no path, so that a folder is searched
 * for the file, or for the folder that holds all slices. Links are not followed.
 * @returns `given` where it is no folder, or where no folder has all slices: then what is in it
 * differs
 * @throws RadserveError input_not_found if no file in the folder is the source
 */
export async function sourceIn(given: string, { source }: Receipt): Promise<string> {
  const facts = await stat(given).catch(() => undefined);
  if (facts?.isDirectory() !== true) return given;
  const found = await sourceBelow(given, source);
  if (found !== undefined) return found;
  if (isFolder(source)) return given;
  throw errors.input_not_found("No file in the folder has the SHA-256 of the receipt's source.");
}

/**
 * Searches a folder, and those below it, for a source by its hashes.
 * @returns the file, or the folder that holds all slices; undefined where there is none
 */
export async function sourceBelow(
  given: string,
  source: Receipt["source"],
): Promise<string | undefined> {
  const wanted = new Set(filesOfSource(source));
  const wantsFolder = isFolder(source);
  const folders = [given];
  for (let folder = folders.shift(); folder !== undefined; folder = folders.shift()) {
    const found = new Set<string>();
    const entries = await readdir(folder, { withFileTypes: true });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const file = path.join(folder, entry.name);
      if (entry.isDirectory()) folders.push(file);
      if (!entry.isFile() || !(wantsFolder || (await stat(file)).size === source.bytes)) continue;
      const hash = await hashFile(file);
      if (hash === undefined || !wanted.has(hash)) continue;
      if (!wantsFolder) return file;
      found.add(hash);
    }
    if (wantsFolder && found.size === wanted.size) return folder;
  }
  return undefined;
}

/** Computes the result of a receipt again, with an engine of its own. */
const replayFrom = (config: Config, source: string, receipt: Receipt): Promise<ReceiptCheck[]> =>
  withModels(config, (replaying) => replaying(source, receipt));

export type Replaying = (source: string, receipt: Receipt) => Promise<ReceiptCheck[]>;

/** Loads the models once for all that is computed again. */
export function withModels<T>(
  config: Config,
  use: (replaying: Replaying) => Promise<T>,
): Promise<T> {
  return withEngine(config, async ({ engine, models }) => {
    const { entries } = await models();
    const forms = resultForms(config);
    return use((source, receipt) => {
      const { series_instance_uid: uid, case: members, group } = receipt.source;
      const choice = { uid, members, grouped: group !== undefined, tolerance: ANY_STACK };
      const again = (image: Image) => replay({ receipt, image, engine, models: entries, forms });
      return withImageFile(source, again, choice);
    });
  });
}

/** Aligned columns, and one line that says it all. */
function verdictText(checks: readonly ReceiptCheck[], equal: boolean): string {
  const rows = checks.map(({ what, verdict, detail }) => [WORDS[verdict], what, detail]);
  return `${table(rows)}\n${equal ? "Verified: every file and every replayed result is equal." : "Not verified: something differs, is missing or cannot be replayed."}`;
}
