/** `radserve verify NAME.json`: replays a receipt and compares every hash. */
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { type Config } from "../config.js";
import { ConfigError, RadserveError } from "../base/errors.js";
import { createLog } from "../base/log.js";
import { table } from "../base/table.js";
import { loadModels } from "../models/set.js";
import { replay } from "../inference/replay.js";
import { receiptText, type Receipt } from "../results/receipt/receipt.js";
import { readReceipt } from "../results/commit/reuse.js";
import { check, checkFiles, type Check, type Verdict } from "../results/receipt/verify.js";
import { withEngine } from "../server/start-engine.js";
import { withImageFile } from "./files.js";
import { print, type ExitStatus } from "./run.js";

export interface VerifyCommand {
  /** The source; by default what lies beside the receipt under its name. */
  input?: string;
  json?: boolean;
}

const WORDS: Readonly<Record<Verdict, string>> = {
  ok: "ok",
  differs: "differs",
  missing: "missing",
  not_replayed: "cannot be replayed",
};

/**
 * Exit status 0 where everything is there and equal, 1 where anything differs, is missing or cannot be replayed. Reads
 * only: nothing is written anywhere.
 * @throws ConfigError where there is nothing at the path of the receipt
 */
export async function verify(config: Config, file: string, options: VerifyCommand): Promise<ExitStatus> {
  const receiptPath = path.resolve(file);
  const found = await readReceipt(receiptPath);
  if (found.kind === "none")
    throw new ConfigError(`${receiptPath}: expected the receipt of a result (NAME.json); nothing is there.`);
  if (found.kind === "foreign" && (await stat(receiptPath)).isDirectory())
    throw new ConfigError(
      `${receiptPath}: expected the receipt of a result (NAME.json); found a folder. Name one of the receipts in it.`,
    );
  const checks =
    found.kind === "foreign"
      ? [check("receipt", "differs", "the file is no receipt of Radserve, or was changed")]
      : await checksOf(config, receiptPath, found.receipt, options.input);
  const equal = checks.every(({ verdict }) => verdict === "ok");
  print(options.json === true ? JSON.stringify({ equal, checks }, null, 2) : verdictText(checks, equal));
  return equal ? 0 : 1;
}

async function checksOf(
  config: Config,
  receiptPath: string,
  receipt: Receipt,
  input: string | undefined,
): Promise<Check[]> {
  const folder = path.dirname(receiptPath);
  const text = await readFile(receiptPath, "utf8");
  const written =
    text === receiptText(receipt)
      ? check("receipt", "ok", `of Radserve ${receipt.radserve_version}`)
      : check("receipt", "differs", "the text is not as Radserve writes it");
  const source = path.resolve(input ?? path.join(folder, receipt.source.name));
  return [
    written,
    ...(await checkFiles(folder, receipt)),
    ...(await replayFrom(config, source, receipt, input === undefined)),
  ];
}

async function replayFrom(
  config: Config,
  source: string,
  receipt: Receipt,
  beside: boolean,
): Promise<Check[]> {
  const all = (first: Check, reason: string) => [
    first,
    ...receipt.models.map(({ name }) => check(name, "not_replayed", reason)),
  ];
  try {
    return await withImageFile(source, (image) =>
      withEngine(config, async (engine, providers) => {
        const log = createLog("silent");
        const models = await loadModels({ directory: config.models_dir, engine, providers, log });
        try {
          return await replay({
            ...{ receipt, image, engine, models: models.entries },
            overlayOpacity: config.overlay_opacity,
          });
        } finally {
          await models.close();
        }
      }),
    );
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    if (error.code === "input_not_found")
      return all(
        check(
          "source",
          "missing",
          beside ? "not beside the receipt: name it with --input" : "nothing is there",
        ),
        "there is no source",
      );
    if (error.status !== 415 && error.status !== 422) throw error;
    return all(check("source", "differs", `cannot be read: ${error.message}`), "the source is another");
  }
}

/** Aligned columns, and one line that says it all. */
function verdictText(checks: readonly Check[], equal: boolean): string {
  const rows = checks.map(({ what, verdict, detail }) => [WORDS[verdict], what, detail]);
  return `${table(rows)}\n${equal ? "Everything is there and equal." : "Not everything is there and equal."}`;
}
