/**
 * `radserve adopt`: signs results that have no right MAC, those of Radserve 0.6 for one, after the
 * checks of `radserve verify`. What differs is never signed.
 */
import { readdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { ConfigError, RadserveError } from "../base/errors.js";
import { counted, table } from "../base/table.js";
import type { Config } from "../config.js";
import {
  deliveryName,
  isStagingName,
  nameOfHelper,
  undeliveredNumber,
} from "../files/helper-names.js";
import { replaceFile } from "../files/new-file.js";
import { giveToOwnerOf } from "../files/private-file.js";
import { checkResult } from "../inference/verify-result.js";
import { withName, type HeldName } from "../results/commit/commit.js";
import { PREVIOUS, PREVIOUS_DELIVERY } from "../results/commit/staging.js";
import type { ReceiptCheck } from "../results/commit/verify.js";
import { deliveryText, readDeliveryFile } from "../results/receipt/delivery.js";
import { receiptName } from "../results/receipt/names.js";
import { isOfReceipt } from "../results/receipt/of-receipt.js";
import { nameOfReceipt, readReceipt, type Existing } from "../results/receipt/read-receipt.js";
import { receiptText, signedText } from "../results/receipt/receipt.js";
import { distrust, signingKeyId } from "../results/receipt/seal.js";
import { during } from "./activity.js";
import { leftOut } from "./receipt-folders.js";
import { recordCommand } from "./recorded.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";
import { SourceIndex } from "./source-index.js";
import { withModels, type Replaying } from "./verify.js";

export interface AdoptCommand extends JsonOption {
  /** The sources, or a folder that they lie in. */
  input?: string;
  /** Verify, and change nothing. */
  dryRun?: boolean;
  /** Sign also what cannot be computed again here. */
  withoutReplay?: boolean;
}

type AdoptOutcome = "trusted" | "signed_again" | "adopted" | "refused";
interface Adopted {
  path: string;
  outcome: AdoptOutcome;
  why?: string;
}

/** A receipt, and where its files and its delivery lie. */
interface ReceiptPlace {
  /** Of NAME, which is held while it is signed. */
  dir: string;
  name: string;
  receipt: string;
  files: string;
  delivery: string;
}

const beside = (dir: string, name: string): ReceiptPlace => ({
  dir,
  name,
  receipt: path.join(dir, receiptName(name)),
  files: dir,
  delivery: path.join(dir, deliveryName(name)),
});

/** @returns 0 if every result is trusted now, or would be; 1 if one was refused */
export async function adopt(
  config: Config,
  given: readonly string[],
  options: AdoptCommand,
): Promise<ExitStatus> {
  const key = await signingKeyId();
  if (key === undefined)
    throw new ConfigError(
      `Expected a key of results in ${config.keys_dir}/results; found none. Run radserve init as the user that serves.`,
    );
  const paths = given.length > 0 ? given.map((one) => path.resolve(one)) : config.output_roots;
  if (paths.length === 0)
    throw new ConfigError("Expected receipts or folders, or RADSERVE_OUTPUT_ROOTS; found neither.");
  const inputs = options.input === undefined ? config.input_roots : [path.resolve(options.input)];
  const sources = new SourceIndex(inputs);
  const all: Adopted[] = [];
  await during(
    options.dryRun === true ? "Verifying results" : "Verifying and signing results",
    () =>
      withModels(config, async (replaying) => {
        for (const one of paths)
          for await (const place of placesIn(one)) {
            const done = await new Adoption(place, key, options).run(sources, replaying);
            if (done !== undefined) all.push(done);
            if (done?.outcome === "refused") remark(`Refused: ${done.path}: ${done.why}`);
          }
      }),
  );
  const of = (outcome: AdoptOutcome) => all.filter((one) => one.outcome === outcome).length;
  const [adopted, again, refused] = [of("adopted"), of("signed_again"), of("refused")];
  if (options.dryRun !== true && adopted + again > 0)
    await recordCommand(config, { command: `adopt (${adopted + again})`, kid: key });
  if (options.json === true) print(JSON.stringify({ key_id: key, results: all }, null, 2));
  else {
    const would = options.dryRun === true ? "would be " : "";
    print(
      table([
        [counted(all.length, "result"), ""],
        [`  ${of("trusted")}`, "trusted before"],
        [`  ${again}`, `${would}signed again with the key ${key}`],
        [`  ${adopted}`, `${would}verified and signed`],
        [`  ${refused}`, "refused"],
      ]),
    );
  }
  return refused === 0 ? 0 : 1;
}

/** The receipts of a path, at any depth, with those that newer ones have replaced. */
async function* placesIn(given: string): AsyncGenerator<ReceiptPlace> {
  const facts = await stat(given).catch(() => undefined);
  if (facts === undefined)
    throw new ConfigError(
      `${given}: expected a receipt (NAME.json) or a folder; nothing is there.`,
    );
  if (facts.isDirectory()) yield* placesBelow(given);
  else yield beside(path.dirname(given), nameOfReceipt(given));
}

async function* placesBelow(dir: string): AsyncGenerator<ReceiptPlace> {
  const entries = await readdir(dir, { withFileTypes: true }).catch((error: unknown) => {
    leftOut(dir, error instanceof Error && "code" in error ? String(error.code) : undefined);
    return [];
  });
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const at = path.join(dir, entry.name);
    const name = nameOfHelper(entry.name);
    if (entry.isDirectory() && name !== undefined && isStagingName(entry.name)) {
      if (undeliveredNumber(entry.name, name) === undefined) continue;
      const [receipt, delivery] = [path.join(at, PREVIOUS), path.join(at, PREVIOUS_DELIVERY)];
      yield { dir, name, receipt, delivery, files: path.join(at, "previous") };
    } else if (entry.isDirectory()) yield* placesBelow(at);
    else if (entry.isFile() && entry.name.endsWith(receiptName("")) && name === undefined)
      yield beside(dir, nameOfReceipt(entry.name));
  }
}

/** What becomes of one result. */
class Adoption {
  constructor(
    private readonly place: ReceiptPlace,
    private readonly key: string,
    private readonly options: AdoptCommand,
  ) {}

  /**
   * What keeps one result from being signed keeps no other.
   * @returns undefined where the file is no receipt
   */
  async run(sources: SourceIndex, replaying: Replaying): Promise<Adopted | undefined> {
    try {
      return await this.#adopt(sources, replaying);
    } catch (error) {
      if (!(error instanceof RadserveError)) throw error;
      return this.#refused(error.message);
    }
  }

  async #adopt(sources: SourceIndex, replaying: Replaying): Promise<Adopted | undefined> {
    const found = await this.#read();
    if (found.kind === "none") return undefined;
    if (found.kind === "foreign")
      return found.why === "too_large" ? this.#refused("it is too large for a receipt") : undefined;
    const { trust } = found;
    if (trust.trusted) {
      const [outcome, why] = await this.#sign(found, trust.key_id !== this.key);
      return { path: this.place.receipt, outcome, ...(why === undefined ? {} : { why }) };
    }
    const checks = await this.#checks(found, sources, replaying);
    const why = this.#whyNot(checks);
    if (why !== undefined) return this.#refused(why);
    const [outcome, fault] = await this.#sign(found, true);
    return outcome === "refused"
      ? this.#refused(fault ?? "")
      : { path: this.place.receipt, outcome: "adopted" };
  }

  #read(): Promise<Existing> {
    return readReceipt(this.place.receipt, this.place.name);
  }

  #refused(why: string): Adopted {
    return { path: this.place.receipt, outcome: "refused", why };
  }

  async #checks(
    { receipt, trust }: Extract<Existing, { kind: "receipt" }>,
    sources: SourceIndex,
    replaying: Replaying,
  ): Promise<ReceiptCheck[]> {
    const { receipt: file, files, dir } = this.place;
    return checkResult({
      folder: files,
      receipt,
      // A changed or renamed receipt may still say what is computed again
      trust: trust.trusted ? trust : { trusted: false, why: "no_mac" },
      text: await readFile(file, "utf8"),
      replayed: async () => replaying(await sources.find(receipt, dir), receipt),
      missing: "its source is neither beside it nor in --input",
    });
  }

  /** Why what was checked is not signed. */
  #whyNot(checks: readonly ReceiptCheck[]): string | undefined {
    const fault = checks.find(
      ({ what, verdict }) => verdict === "differs" || (verdict === "missing" && what !== "source"),
    );
    if (fault !== undefined) return `${fault.what}: ${fault.detail}`;
    if (this.options.withoutReplay === true) return undefined;
    const unknown = checks.find(
      ({ verdict }) => verdict === "not_replayed" || verdict === "missing",
    );
    if (unknown === undefined) return undefined;
    return `${unknown.what}: ${unknown.detail}. What cannot be computed again is signed with --without-replay alone: use it for folders that nobody else could write to`;
  }

  /**
   * Signs the receipt, and what is to be delivered of it, while NAME is held.
   * @param isDue the receipt, too, and not the delivery alone
   */
  async #sign(
    { receipt }: Extract<Existing, { kind: "receipt" }>,
    isDue: boolean,
  ): Promise<[AdoptOutcome, string?]> {
    const { dir, name } = this.place;
    const work = async (held?: HeldName): Promise<[AdoptOutcome, string?]> => {
      const now = await this.#read();
      if (now.kind !== "receipt" || receiptText(now.receipt) !== receiptText(receipt))
        return ["refused", "it was replaced while it was verified"];
      if (isDue) await this.#write(this.place.receipt, await signedText(receipt, name), held);
      const found = await readDeliveryFile(this.place.delivery, name);
      if (found !== undefined) {
        const { delivery, trust } = found;
        if (delivery !== undefined && !isOfReceipt(delivery, receipt))
          return [
            "refused",
            "its file .NAME.delivery.json names objects that are not the receipt's",
          ];
        if (!trust.trusted && (delivery === undefined || trust.why === "wrong_mac"))
          return ["refused", `its file .NAME.delivery.json is not trusted: ${distrust(trust)}`];
        if (delivery !== undefined && (!trust.trusted || trust.key_id !== this.key))
          await this.#write(this.place.delivery, await deliveryText(delivery, name), held);
      }
      return [isDue ? "signed_again" : "trusted"];
    };
    return this.options.dryRun === true ? work() : withName(dir, name, {}, work);
  }

  /** @param held undefined for --dry-run, which writes nothing */
  async #write(file: string, text: string, held: HeldName | undefined): Promise<void> {
    if (held === undefined) return;
    await held.requireHeld();
    await replaceFile(path.dirname(file), path.basename(file), text, { side: "output" });
    giveToOwnerOf(path.dirname(file), file);
  }
}
