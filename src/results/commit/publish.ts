/**
 * Moves what a staging folder holds into place, or puts the output folder back as it was. A killed
 * process may have done any of the steps before.
 */
import { errno } from "../../base/errno.js";
import { RadserveError } from "../../base/errors.js";
import { anyThere, lstat, readdir, rename, unlink } from "../../files/disk.js";
import { hashFile, ifMissing, moveIfThere, syncFolder } from "../../files/durable-files.js";
import {
  deliveryName,
  notOurs,
  stagingName,
  undeliveredName,
  undeliveredNumber,
} from "../../files/helper-names.js";
import { readDeliveryFile } from "../receipt/delivery.js";
import type { Receipt } from "../receipt/receipt.js";
import { belongsTo, receiptName } from "../receipt/names.js";
import { filesOf, readReceipt } from "../receipt/read-receipt.js";
import { sameImage } from "./reuse.js";
import {
  DELIVERY,
  exists,
  lostLock,
  MARK,
  nameTaken,
  PREVIOUS,
  PREVIOUS_DELIVERY,
  requireHeld,
  Staging,
  type StagingTarget,
} from "./staging.js";

/**
 * Moves a complete staging folder's files into place. Each step may have been done before: it is
 * also the recovery.
 */
export async function publish(
  target: StagingTarget,
  staging: Staging,
  receipt: Receipt,
): Promise<void> {
  const { dir, name, step } = target;
  const old = await refuseForeign(target, receipt, staging);
  const [place, delivery] = [`${dir}/${receiptName(name)}`, `${dir}/${deliveryName(name)}`];
  if (old !== undefined) {
    await step("move the old delivery aside");
    await requireUnfinished(target, staging);
    // While the old receipt is in its place, so is the old file of its delivery
    if (await exists(place))
      await moveIfThere(delivery, staging.at(PREVIOUS_DELIVERY)).catch(ifTooLong);
    await step("move the old receipt aside");
    await requireUnfinished(target, staging);
    await moveIfThere(place, staging.at(PREVIOUS));
  }
  const fresh = [...filesOf(receipt).keys()];
  const aside = await replaced(target, staging, receipt, old);
  if (aside.length > 0) await staging.makeFolder("previous");
  for (const file of aside) {
    await step(`move the old ${file} aside`);
    await requireUnfinished(target, staging);
    await moveIfThere(`${dir}/${file}`, staging.at(`previous/${file}`));
  }
  for (const file of fresh) {
    await step(`move ${file} into place`);
    await moveIfThere(staging.fileAt(file), `${dir}/${file}`);
  }
  await step("move the delivery into place");
  await moveIfThere(staging.at(DELIVERY), delivery);
  await syncFolder(dir);
  await step("move the receipt into place");
  await requireHeld(target);
  await rename(staging.at(MARK), place);
  await syncFolder(dir);
  await step("remove the staging folder");
  // The result is there; a rest that cannot be removed now is removed by the next taker of NAME.
  await leave(target, staging).catch(() => undefined);
}

/**
 * Another who has taken NAME over may have published this result, and a newer one over it: what
 * lies in place then is not the old one.
 * @throws RadserveError overloaded
 */
async function requireUnfinished(target: StagingTarget, staging: Staging): Promise<void> {
  await requireHeld(target);
  if (!(await exists(staging.at(MARK)))) throw lostLock();
}

/**
 * Removes a staging folder without a mark, unless the old result in it is still to be delivered.
 */
async function leave({ dir, name }: StagingTarget, staging: Staging): Promise<void> {
  // One that is not trusted is kept, too: nothing of it is sent, and whoever knows it can adopt it
  const old = await readDeliveryFile(staging.at(PREVIOUS_DELIVERY), name);
  if (old === undefined || old.delivery?.open === false) return staging.remove();
  const last = Math.max(
    0,
    ...(await readdir(dir)).map((entry) => undeliveredNumber(entry, name) ?? 0),
  );
  await staging.keepAs(`${dir}/${undeliveredName(name, last + 1)}`);
}

/**
 * Old files that make room: those of the same names, and those the new result no longer has, unless
 * somebody changed them. A new file that already lies in place is not old: it has left the staging
 * folder.
 */
async function replaced(
  { dir, name }: StagingTarget,
  staging: Staging,
  receipt: Receipt,
  old: Receipt | undefined,
): Promise<string[]> {
  const fresh = filesOf(receipt);
  const found: string[] = [];
  for (const [file, hash] of old === undefined ? [] : filesOf(old)) {
    if (!belongsTo(name, file)) continue;
    const mine = fresh.has(file)
      ? await exists(staging.fileAt(file))
      : (await hashFile(`${dir}/${file}`)) === hash;
    if (mine) found.push(file);
  }
  return found;
}

/**
 * Refuses to write over what is not an earlier result of the same image.
 * @returns the receipt of the result that is being replaced, in place or already aside
 * @throws RadserveError output_name_taken
 */
async function refuseForeign(
  { dir, name }: StagingTarget,
  receipt: Receipt,
  staging: Staging,
): Promise<Receipt | undefined> {
  const place = `${dir}/${receiptName(name)}`;
  const fresh = [...filesOf(receipt).keys()];
  // One look for what is the case nearly always
  const inTheWay = [staging.at(PREVIOUS), ...fresh.map((file) => `${dir}/${file}`)];
  if (!(await anyThere([place, ...inTheWay]))) return undefined;
  const found = await readReceipt(place);
  if (found.kind === "foreign") throw nameTaken("a file that is not a receipt of Radserve");
  if (found.kind === "receipt" && !sameImage(found.receipt, receipt.source))
    throw nameTaken("the result of another image");
  const before = found.kind === "receipt" ? found : await readReceipt(staging.at(PREVIOUS), name);
  const old = before.kind === "receipt" ? before.receipt : undefined;
  const ours = new Set(old === undefined ? [] : filesOf(old).keys());
  for (const file of fresh) {
    if (ours.has(file) || !(await exists(`${dir}/${file}`))) continue;
    if (await exists(staging.fileAt(file)))
      throw nameTaken("a file that no receipt of this image lists");
  }
  return old;
}

/**
 * Puts the folder back as it was before the commit, and the mark away before anything it vouches
 * for.
 */
export async function rollBack(
  target: StagingTarget,
  staging: Staging,
  receipt: Receipt,
): Promise<void> {
  const { dir, name, step } = target;
  if (await exists(staging.at(MARK))) {
    for (const [file, hash] of filesOf(receipt)) {
      if (!belongsTo(name, file)) continue;
      const moved = !(await exists(staging.fileAt(file)));
      if (moved && (await hashFile(`${dir}/${file}`)) === hash) {
        await step(`take ${file} back`);
        await rename(`${dir}/${file}`, staging.fileAt(file));
      }
    }
    for (const file of await readdir(staging.at("previous")).catch(ifMissing([]))) {
      await step(`put the old ${file} back`);
      if (!(await exists(`${dir}/${file}`)))
        await rename(staging.at(`previous/${file}`), `${dir}/${file}`);
    }
    await step("put the old receipt back");
    const delivery = `${dir}/${deliveryName(name)}`;
    const isAside = !(await exists(`${dir}/${receiptName(name)}`));
    if (isAside) await moveIfThere(delivery, staging.at(DELIVERY)).catch(ifTooLong);
    await moveIfThere(staging.at(PREVIOUS_DELIVERY), delivery);
    if (isAside) await moveIfThere(staging.at(PREVIOUS), `${dir}/${receiptName(name)}`);
    await syncFolder(dir);
    await step("unmark the staging folder");
    await unlink(staging.at(MARK));
    await staging.sync();
  } else if (await exists(staging.at(PREVIOUS))) {
    // The new receipt is in place, and the disk may not have it yet: the old result is kept for the
    // next taker, who removes it
    return;
  }
  await step("remove the staging folder");
  await leave(target, staging);
}

/**
 * Finishes or removes what an earlier holder of NAME left. A staged receipt that is not trusted
 * publishes nothing: what lay there before comes back.
 */
export async function recover(target: StagingTarget): Promise<void> {
  const path = `${target.dir}/${stagingName(target.name)}`;
  const found = await lstat(path).catch(ifMissing(undefined));
  if (found === undefined) return dropDelivery(target);
  if (!found.isDirectory()) throw notOurs(stagingName("NAME"), "a folder", found);
  const staging = await Staging.open(path);
  try {
    const mark = await readReceipt(staging.at(MARK), target.name);
    if (mark.kind === "none") {
      await target.step("remove the staging folder");
      await leave(target, staging);
    } else if (mark.kind === "foreign") {
      throw nameTaken("a folder that Radserve did not make where results are prepared");
    } else if (mark.trust.trusted && (await isWhole(target, staging, mark.receipt))) {
      await publish(target, staging, mark.receipt);
    } else {
      const there = await readReceipt(`${target.dir}/${receiptName(target.name)}`);
      const isSafe = there.kind === "receipt" && there.trust.trusted && !mark.trust.trusted;
      // The files of a trusted result stay where they are, whatever a staged receipt says of them
      await rollBack(target, staging, isSafe ? { ...mark.receipt, models: [] } : mark.receipt);
    }
  } finally {
    staging.close();
  }
  await dropDelivery(target);
}

/** A delivery without a receipt is of a result that somebody has removed. */
async function dropDelivery({ dir, name }: StagingTarget): Promise<void> {
  if (!(await exists(`${dir}/${receiptName(name)}`)))
    await unlink(`${dir}/${deliveryName(name)}`)
      .catch(ifMissing(undefined))
      .catch(ifTooLong);
}

/**
 * A file system that cannot hold the name of the file of a delivery has none, and nothing is to be
 * delivered there.
 */
function ifTooLong(error: unknown): void {
  if (errno(error) !== "ENAMETOOLONG") throw error;
}

/**
 * Whether each file that a staged receipt lists is there, staged or in place, unharmed, with
 * nothing foreign in its way.
 */
async function isWhole(
  target: StagingTarget,
  staging: Staging,
  receipt: Receipt,
): Promise<boolean> {
  for (const [file, hash] of filesOf(receipt)) {
    if (!belongsTo(target.name, file)) return false;
    const found =
      (await hashFile(staging.fileAt(file))) ?? (await hashFile(`${target.dir}/${file}`));
    if (found !== hash) return false;
  }
  try {
    await refuseForeign(target, receipt, staging);
    return true;
  } catch (error) {
    if (error instanceof RadserveError && error.code === "output_name_taken") return false;
    throw error;
  }
}
