/**
 * Commit of one image's results: all files appear, or none. Everything is written, synced and read
 * back in the staging folder `.NAME.radserve/`; the staged receipt, renamed there last, marks it
 * complete. From then on the result is decided: the files move into place, the receipt last, and
 * whoever takes NAME next finishes what a killed process left. Before the mark, the next taker
 * deletes the folder and the old result stays.
 *
 *     .NAME.radserve/receipt.json    the mark; moves to NAME.json
 *     .NAME.radserve/NAME.*          new files not yet in place; of 0.6, in a folder files/
 *     .NAME.radserve/previous/       the old result's files, if there are any: to be deleted, or to
 *                                    go back if this one fails
 *     .NAME.radserve/previous.json   the old result's receipt
 *     .NAME.radserve/delivery.json, previous.delivery.json
 *                                    the same of the files that say to where it is delivered
 *
 * An old result that is not delivered yet is not deleted: its staging folder becomes
 * `.NAME.delivery.N`, until it is.
 *
 * A receipt without files that replaces no result needs none of this. It is written into a file
 * without a name, which is then given its name. On a file system without such files it is staged
 * and renamed straight into place.
 */
import { errno } from "../../base/errno.js";
import { errors } from "../../base/errors.js";
import { anyThere, rename } from "../../files/disk.js";
import { explained, syncFolder, UnnamedFile, writeDurably } from "../../files/durable-files.js";
import { deliveryName, stagingName } from "../../files/helper-names.js";
import { NameLock, type LockOptions } from "../../files/name-lock.js";
import { deliveryText, readDelivery, type Delivery } from "../receipt/delivery.js";
import { receiptSchema, signedText, type Receipt } from "../receipt/receipt.js";
import { checkFileName, checkName, receiptName, type ResultFile } from "../receipt/names.js";
import { publish, recover, rollBack } from "./publish.js";
import { filesOf, LARGEST, readReceipt, type Existing } from "../receipt/read-receipt.js";
import {
  DELIVERY,
  exists,
  MARK,
  nameTaken,
  requireHeld,
  Staging,
  type StagingTarget,
} from "./staging.js";

export interface HoldOptions extends LockOptions {
  /** Called before each change of the disk, with its name. */
  onStep?: (step: string) => void | Promise<void>;
  /** The commit may have a delivery. */
  delivers?: boolean;
}

/** NAME while its lock is held. */
export interface HeldName {
  /**
   * The thing that lies under NAME.json: nothing, a receipt, or a file that is not a receipt of
   * Radserve.
   */
  existing(): Promise<Existing>;
  /**
   * Asked directly before something else is written under NAME.
   * @throws RadserveError overloaded, where another has taken NAME over
   */
  requireHeld(): Promise<void>;
  /**
   * Publishes the files and the receipt that lists exactly them. Replaces an earlier result of the
   * same image.
   * @param allowed what has to be done before the result is decided; it goes on beside the staging
   * @param delivery what is asked for of a result with files: it appears with them
   * @throws RadserveError output_name_taken, disk_full, path_not_allowed, overloaded (the lock was
   * lost), and what `allowed` throws; then the folder holds what it held before
   */
  commit(
    files: readonly ResultFile[],
    receipt: Receipt,
    allowed?: Promise<void>,
    delivery?: Delivery,
  ): Promise<void>;
}

/**
 * Runs `work` while holding NAME in the folder `dir` (any path that names it, `/proc/self/fd/N`
 * too), after what an earlier holder left behind is finished or removed.
 * @throws RadserveError bad_request (NAME), deadline_exceeded (waiting), disk_full,
 * path_not_allowed; what `work` throws
 */
export async function withName<T>(
  dir: string,
  name: string,
  options: HoldOptions,
  work: (held: HeldName) => Promise<T>,
): Promise<T> {
  checkName(name, options.delivers);
  const lock = await explained(() => NameLock.take(dir, name, options));
  const target: StagingTarget = { dir, name, lock, step: options.onStep ?? (() => undefined) };
  let found: Existing | undefined;
  try {
    const place = `${dir}/${receiptName(name)}`;
    const helpers = [stagingName(name), deliveryName(name)].map((helper) => `${dir}/${helper}`);
    const isFree = !(await anyThere([place, ...helpers]));
    if (isFree) found = { kind: "none" };
    else await explained(() => recover(target));
    return await work({
      existing: async () => (found ??= await explained(() => readReceipt(place))),
      requireHeld: () => explained(() => requireHeld(target)),
      commit: (files, receipt, allowed = Promise.resolve(), delivery) => {
        // If the staging fails first, nobody waits for it
        allowed.catch(() => undefined);
        const wasFree = found?.kind === "none";
        return explained(() => commit(target, { files, receipt, allowed, delivery, wasFree }));
      },
    });
  } finally {
    await lock.release();
  }
}

/** The files that are to be published. */
interface Result {
  files: readonly ResultFile[];
  receipt: Receipt;
  allowed: Promise<void>;
  delivery: Delivery | undefined;
  /** Nothing lay under the receipt's name when its lock was held already. */
  wasFree: boolean;
}

async function commit(
  target: StagingTarget,
  { files, receipt, allowed, delivery, wasFree }: Result,
): Promise<void> {
  const text = await checked(target, files, receipt);
  const place = `${target.dir}/${receiptName(target.name)}`;
  // A file that has appeared since keeps its name: neither way of publishing a lone receipt writes
  // over it
  const alone = files.length === 0 && (wasFree || !(await exists(place)));
  if (alone && (await publishUnnamed(target, text, allowed))) return;
  const staging = await makeStaging(target);
  try {
    if (alone) await publishAlone(target, staging, { text, allowed });
    else {
      await stage(target, staging, { text, allowed, files, delivery });
      await requireHeld(target);
      await publish(target, staging, receipt);
    }
  } catch (error) {
    // After a lost lock nothing more is touched: another may be publishing what is staged here. In
    // that case, and if putting things back fails, the next taker of NAME decides by the mark.
    if (await target.lock.isHeld().catch(() => false))
      await rollBack(target, staging, receipt).catch(() => undefined);
    throw error;
  } finally {
    staging.close();
  }
}

/** Whoever lost the lock may have made its folder late, after this holder had looked for one. */
async function makeStaging(target: StagingTarget): Promise<Staging> {
  try {
    return await Staging.make(target);
  } catch (error) {
    if (errno(error) !== "EEXIST") throw error;
    await requireHeld(target);
    await recover(target);
    return Staging.make(target);
  }
}

/**
 * The receipt's text, with its MAC; one that could not be read back is refused before anything is
 * written (output_invalid). The caller has to list exactly the files that it gives, each
 * with the hash of its bytes.
 */
async function checked(
  target: StagingTarget,
  files: readonly ResultFile[],
  receipt: Receipt,
): Promise<Buffer> {
  const listed = filesOf(receipt);
  for (const { name, sha256 } of files) {
    checkFileName(target.name, name);
    if (listed.get(name) !== sha256)
      throw new Error("Expected the receipt to list each result file with its hash");
  }
  if (listed.size !== files.length) throw new Error("The receipt lists a file that was not given");
  const text = Buffer.from(await signedText(receiptSchema.parse(receipt), target.name));
  if (text.length > LARGEST)
    throw errors.output_invalid(
      `Expected a receipt of at most ${LARGEST} bytes, found ${text.length}: a finding takes some 300 bytes for each label and frame. Ask for fewer labels, or send the frames in several images.`,
    );
  return text;
}

/**
 * A receipt that lists no file and replaces none is whole by itself: its name is its mark too. A
 * file without a name leaves nothing behind when its process is killed, and never takes a name that
 * something else has.
 * @returns false if it could not be made, written or named so; then nothing has happened
 */
async function publishUnnamed(
  target: StagingTarget,
  text: Buffer,
  allowed: Promise<void>,
): Promise<boolean> {
  const { dir, name, lock, step } = target;
  if (!lock.local) return false;
  await step("write the receipt");
  const file = await UnnamedFile.make(dir).catch(() => undefined);
  try {
    if (file === undefined || !(await file.holds(text))) return false;
    await allowed;
    await step("move the receipt into place");
    await requireHeld(target);
    if (!file.appearAs(`${dir}/${receiptName(name)}`)) return false;
  } finally {
    file?.close();
  }
  await syncFolder(dir);
  return true;
}

/**
 * Publishes such a receipt through the staging folder. Before the rename, the next taker of NAME
 * finds a folder without a mark and deletes it.
 */
async function publishAlone(
  target: StagingTarget,
  staging: Staging,
  { text, allowed }: { text: Buffer; allowed: Promise<void> },
): Promise<void> {
  const { dir, name, step } = target;
  const part = staging.at(`${MARK}.part`);
  await step("write the receipt");
  await writeAndReadBack(part, text);
  await allowed;
  await step("move the receipt into place");
  const place = `${dir}/${receiptName(name)}`;
  if (await exists(place)) throw nameTaken("a file that appeared while the receipt was written");
  await requireHeld(target);
  await rename(part, place);
  await syncFolder(dir);
  await step("remove the staging folder");
  await staging.remove().catch(() => undefined);
}

/** All files at once: each of them waits for the disk. */
async function stage(
  target: StagingTarget,
  staging: Staging,
  result: Pick<Result, "files" | "allowed" | "delivery"> & { text: Buffer },
): Promise<void> {
  await allOf([
    ...result.files.map(async ({ name, bytes }) => {
      await target.step(`write ${name}`);
      await writeAndReadBack(staging.fileAt(name), bytes);
    }),
    (async () => {
      await target.step("write the receipt");
      await writeAndReadBack(staging.at(`${MARK}.part`), result.text);
    })(),
    ...(result.delivery === undefined ? [] : [stageDelivery(target, staging, result.delivery)]),
    // The staging folder's own entry
    syncFolder(target.dir),
  ]);
  await staging.sync();
  // From the mark on the result is decided: whoever finds it will publish it
  await result.allowed;
  await target.step("mark it complete");
  // The next taker would publish it over what another has written meanwhile
  await requireHeld(target);
  await rename(staging.at(`${MARK}.part`), staging.at(MARK));
  await staging.sync();
}

async function stageDelivery(
  { dir, name, step }: StagingTarget,
  staging: Staging,
  delivery: Delivery,
): Promise<void> {
  await step("write the delivery");
  const before = await readDelivery(`${dir}/${deliveryName(name)}`, name);
  // Not what that one has replaced, and so on
  delete before?.replaces;
  delete before?.events;
  const whole = before === undefined ? delivery : { ...delivery, replaces: before };
  await writeAndReadBack(staging.at(DELIVERY), Buffer.from(await deliveryText(whole, name)));
}

/**
 * Waits for all of them even if one fails, so that nothing is written any more into what is put
 * back.
 */
async function allOf(works: readonly Promise<void>[]): Promise<void> {
  const endings = await Promise.allSettled(works);
  const failed = endings.find((ending) => ending.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

async function writeAndReadBack(path: string, bytes: Uint8Array): Promise<void> {
  if (await writeDurably(path, bytes)) return;
  throw errors.internal(
    "A result file read back from the output folder's disk differs from what was written. Check that disk.",
  );
}
