/** `radserve export`: images and masks of results as NIfTI, for those who train networks. */
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import { during } from "../../commands/activity.js";
import { leftOut } from "../../commands/receipt-folders.js";
import { recordCommand } from "../../commands/recorded.js";
import { print, remark, type ExitStatus, type JsonOption } from "../../commands/run.js";
import { SourceIndex } from "../../commands/source-index.js";
import { errno } from "../../base/errno.js";
import { ConfigError, RadserveError } from "../../base/errors.js";
import { groupsBy } from "../../base/groups.js";
import { counted } from "../../base/table.js";
import { makeUsable } from "../../files/folders.js";
import type { Config } from "../../config.js";
import { readReceipts } from "../../results/commit/read-receipts.js";
import { readReceipt } from "../../results/receipt/read-receipt.js";
import type { Receipt } from "../../results/receipt/receipt.js";
import { distrust, type Trust } from "../../results/receipt/seal.js";
import { ExportFolder, inFileName } from "./folder.js";
import { NiftiFiles, type Exporter, type ResultToExport } from "./nifti.js";
import { NnunetDataset } from "./nnunet.js";

export interface ExportCommand extends JsonOption {
  to: string;
  nifti?: boolean;
  nnunet?: boolean;
  model?: string;
  /** The sources, or a folder that they lie in. */
  input?: string;
  /** False: only masks. */
  image: boolean;
  separate?: boolean;
}

interface Exported {
  receipt_path: string;
  files: string[];
  remarks: string[];
  error?: { error: string; message: string };
}

/** @returns 0 if every result is written; one that cannot be keeps no other from it */
export async function exportResults(
  config: Config,
  given: readonly string[],
  options: ExportCommand,
): Promise<ExitStatus> {
  checkOptions(options);
  const results = await during("Reading receipts", () => resultsOf(given));
  const to = path.resolve(options.to);
  await requireEmpty(to);
  const sources = new SourceIndex(
    options.input === undefined ? config.input_roots : [path.resolve(options.input)],
  );
  const folder = new ExportFolder(to, config.minimum_free_disk);
  const exporter: Exporter =
    options.nnunet === true
      ? new NnunetDataset(folder, sources, options)
      : new NiftiFiles(folder, sources, options);
  const all: Exported[] = [];
  await during("Writing NIfTI", async () => {
    for (const result of named(results)) all.push(await exported(exporter, folder, result));
    await exporter.finish();
  });
  const written = all.filter(({ error }) => error === undefined).length;
  if (written > 0) await recordCommand(config, { command: `export (${written})` });
  if (options.json === true) print(JSON.stringify({ folder: to, results: all }, null, 2));
  else print(`${counted(written, "result")} of ${all.length} written to ${to}`);
  return written === all.length ? 0 : 1;
}

/** @throws ConfigError */
function checkOptions({ nifti, nnunet, image, separate }: ExportCommand): void {
  if ((nifti === true) === (nnunet === true))
    throw new ConfigError(
      `Expected --nifti or --nnunet; found ${nifti === true ? "both" : "neither"}.`,
    );
  if (nnunet === true && (!image || separate === true))
    throw new ConfigError(
      `Expected --${image ? "separate" : "no-image"} with --nifti alone: nnU-Net wants an image and one label map for each case.`,
    );
}

type FoundResult = Omit<ResultToExport, "name">;

/** @throws ConfigError where a path holds no receipt */
async function resultsOf(given: readonly string[]): Promise<FoundResult[]> {
  const found = new Map<string, FoundResult>();
  for (const one of given.map((each) => path.resolve(each))) {
    const here: FoundResult[] = [];
    const add = (receipt: Receipt, at: string, trust: Trust) =>
      here.push({ receipt, trust, receiptPath: at, folder: path.dirname(at) });
    const facts = await stat(one).catch(() => undefined);
    if (facts?.isDirectory() === true) {
      await readReceipts(one, { looked: 0, add }, { unreadable: leftOut });
    } else {
      const read = await readReceipt(one);
      if (read.kind === "receipt") add(read.receipt, one, read.trust);
    }
    for (const result of here) found.set(result.receiptPath, result);
    if (here.length === 0)
      throw new ConfigError(
        `${one}: expected the receipt of a result (NAME.json), or a folder with receipts; found ${facts === undefined ? "nothing" : "none"}.`,
      );
  }
  return [...found.values()].sort((a, b) => (a.receiptPath < b.receiptPath ? -1 : 1));
}

/**
 * Results of one NAME are told apart by the first digits of the SHA-256 of their images, and those
 * of one image by a number.
 */
function named(results: readonly FoundResult[]): ResultToExport[] {
  const plain = (one: FoundResult) => inFileName(one.receipt.source.name);
  const groups = groupsBy(results, plain);
  const given = new Map<string, number>();
  return results.map((one) => {
    const name = plain(one);
    if (groups.get(name)?.length === 1) return { ...one, name };
    const marked = `${name}_${one.receipt.source.file_sha256.slice(0, 8)}`;
    const before = given.get(marked) ?? 0;
    given.set(marked, before + 1);
    return { ...one, name: before === 0 ? marked : `${marked}_${before + 1}` };
  });
}

/** What was there before would be taken for a part of what is written. @throws ConfigError */
async function requireEmpty(folder: string): Promise<void> {
  let found;
  try {
    makeUsable(folder);
    found = (await readdir(folder)).length > 0 ? "files in it" : undefined;
  } catch (error) {
    const code = errno(error);
    if (code === "") throw error;
    const isFile = code === "EEXIST" || code === "ENOTDIR";
    found = isFile ? "a file in its place" : `none that this user may write to (${code})`;
  }
  if (found !== undefined)
    throw new ConfigError(`${folder}: expected a new or empty folder; found ${found}.`);
}

async function exported(
  exporter: Exporter,
  folder: ExportFolder,
  result: ResultToExport,
): Promise<Exported> {
  const { receiptPath, trust } = result;
  const done: Exported = { receipt_path: receiptPath, files: [], remarks: [] };
  if (!trust.trusted)
    done.remarks.push(`The receipt is not one that this installation signed: ${distrust(trust)}`);
  try {
    await folder.begin();
    done.remarks.push(...(await exporter.add(result)));
    done.files = folder.written;
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    await folder.undo();
    done.error = { error: error.code, message: error.message };
    remark(`Not written: ${receiptPath}: ${error.message}`);
  }
  for (const text of done.remarks) remark(`${receiptPath}: ${text}`);
  return done;
}
