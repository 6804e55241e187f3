/**
 * Commit of one image's results: all files appear, or none. Everything is written, synced and read back in the
 * staging folder `.NAME.radserve/`; the staged receipt, renamed there last, marks it complete. From then on the
 * result is decided: the files move into place, the receipt last, and whoever takes NAME next finishes what a killed
 * process left. Before the mark, the next taker deletes the folder and the old result stays.
 *
 *     .NAME.radserve/receipt.json    the mark; moves to NAME.json
 *     .NAME.radserve/files/          new files not yet in place
 *     .NAME.radserve/previous/       the old result's files, to be deleted, or to go back if this one fails
 *     .NAME.radserve/previous.json   the old result's receipt
 *
 * A receipt without files where no result lies needs none of this: it is written into a file without a name, which
 * then is given one; where the file system knows no such files, it is staged and renamed straight into place.
 */
import { closeSync, constants, fstatSync } from "node:fs";
import { rm } from "node:fs/promises";
import { descriptorPath } from "../../files/descriptor.js";
import { lstat, mkdir, openDescriptor, readdir, rename, rmdir, unlink } from "../../files/disk.js";
import { RadserveError } from "../../base/errors.js";
import {
  explained,
  hashFile,
  ifMissing,
  moveIfThere,
  sha256,
  syncFolder,
  UnnamedFile,
  writeDurably,
} from "../../files/durable-files.js";
import { NameLock, type LockOptions } from "../../files/name-lock.js";
import { belongsTo, checkFileName, checkName, receiptName } from "./names.js";
import { nameOfHelper, stagingName } from "../../files/helper-names.js";
import { receiptSchema, receiptText, type Receipt } from "../receipt/receipt.js";
import { filesOf, readReceipt, sameImage, type Existing } from "./reuse.js";

const MARK = "receipt.json";
const PREVIOUS = "previous.json";
/** Where a share is busy; each waits a tenth of a second longer than the one before. */
const MOST_RETRIES = 4;

export interface ResultFile {
  /** Plain name beside the receipt, beginning with NAME and a dot. */
  name: string;
  bytes: Uint8Array;
}

export interface HoldOptions extends LockOptions {
  /** Called before each change of the disk, with its name. */
  onStep?: (step: string) => void | Promise<void>;
}

/** NAME while its lock is held. */
export interface Held {
  /** What lies under NAME.json: nothing, a receipt, or a file that is none of ours. */
  existing(): Promise<Existing>;
  /**
   * Publishes the files and the receipt that lists exactly them. Replaces an earlier result of the same image.
   * @throws RadserveError output_name_taken, disk_full, path_not_allowed, overloaded (the lock was lost); then the
   * folder holds what it held before
   */
  commit(files: readonly ResultFile[], receipt: Receipt): Promise<void>;
}

interface Target {
  dir: string;
  name: string;
  lock: NameLock;
  step: (step: string) => void | Promise<void>;
}

/**
 * Runs `work` while holding NAME in the folder `dir` (any path that names it, `/proc/self/fd/N` too), after what an
 * earlier holder left behind is finished or removed.
 * @throws RadserveError bad_request (NAME), deadline_exceeded (waiting), disk_full, path_not_allowed; whatever `work` throws
 */
export async function withName<T>(
  dir: string,
  name: string,
  options: HoldOptions,
  work: (held: Held) => Promise<T>,
): Promise<T> {
  checkName(name);
  const lock = await explained(() => NameLock.take(dir, name, options));
  const target: Target = { dir, name, lock, step: options.onStep ?? (() => undefined) };
  try {
    await explained(() => recover(target));
    return await work({
      existing: () => explained(() => readReceipt(`${dir}/${receiptName(name)}`)),
      commit: (files, receipt) => explained(() => commit(target, files, receipt)),
    });
  } finally {
    await lock.release();
  }
}

/**
 * Finishes or removes what killed processes left in a folder; names that somebody holds are left alone.
 * @returns the names that were looked after
 */
export async function recoverFolder(dir: string): Promise<string[]> {
  const names = new Set<string>();
  for (const entry of await explained(() => readdir(dir))) {
    const name = nameOfHelper(entry);
    if (name !== undefined) names.add(name);
  }
  const recovered: string[] = [];
  for (const name of [...names].sort()) {
    const lock = await explained(() => NameLock.tryTake(dir, name));
    if (lock === undefined) continue;
    try {
      await explained(() => recover({ dir, name, lock, step: () => undefined }));
      recovered.push(name);
    } finally {
      await lock.release();
    }
  }
  return recovered;
}

async function commit(target: Target, files: readonly ResultFile[], receipt: Receipt): Promise<void> {
  const text = checked(target, files, receipt);
  const old = await refuseForeign(target, receipt);
  const alone = files.length === 0 && old === undefined;
  if (alone && (await publishUnnamed(target, text))) return;
  const path = `${target.dir}/${stagingName(target.name)}`;
  await target.step("make the staging folder");
  await mkdir(path);
  const staging = await Staging.open(path);
  try {
    if (alone) await publishAlone(target, staging, text);
    else {
      await stage(target, staging, files, { text, hashes: filesOf(receipt) });
      if (!(await target.lock.isHeld())) throw lostLock();
      await publish(target, staging, receipt);
    }
  } catch (error) {
    // Who lost the lock touches nothing more: another may be publishing what is staged here. Then, and where putting
    // things back fails, the next taker of NAME decides by the mark.
    if (await target.lock.isHeld().catch(() => false))
      await rollBack(target, staging, receipt).catch(() => undefined);
    throw error;
  } finally {
    staging.close();
  }
}

/**
 * The receipt's text, where it lists exactly the files that are given; anything else is a fault of the caller. That
 * the files have the listed hashes is seen when they are read back.
 */
function checked(target: Target, files: readonly ResultFile[], receipt: Receipt): Buffer {
  const listed = filesOf(receipt);
  for (const { name } of files) {
    checkFileName(target.name, name);
    if (!listed.has(name)) throw new Error("Expected the receipt to list each result file");
  }
  if (listed.size !== files.length) throw new Error("The receipt lists a file that was not given");
  return Buffer.from(receiptText(receiptSchema.parse(receipt)));
}

/** The staging folder, held open: were it deleted by who took the lock over, its old path would lead to the new one. */
class Staging {
  private constructor(
    readonly path: string,
    private readonly fd: number,
  ) {}

  /** Opens the folder itself, never what a link of that name leads to. */
  static async open(path: string): Promise<Staging> {
    const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
    return new Staging(path, await openDescriptor(path, flags));
  }

  /** Path of an entry, through the open descriptor. */
  at(entry: string): string {
    return `${descriptorPath(this.fd)}/${entry}`;
  }

  sync(): Promise<void> {
    return syncFolder(this.at("."));
  }

  /** Removes this folder; one that another has made under the same name since stays. */
  async remove(): Promise<void> {
    const [mine, there] = [fstatSync(this.fd), await lstat(this.path).catch(ifMissing(undefined))];
    if (there?.ino !== mine.ino || there.dev !== mine.dev) return;
    for (const entry of await readdir(this.at(".")))
      await rm(this.at(entry), { recursive: true, force: true, maxRetries: MOST_RETRIES });
    await rmdir(this.path).catch(ifMissing(undefined));
  }

  close(): void {
    closeSync(this.fd);
  }
}

/**
 * A receipt that lists no file and replaces none is whole by itself: its name is its mark too. A file without a name
 * leaves nothing behind when its process is killed, and never takes a name that something else has.
 * @returns false where it could not be made, written or named so: then nothing has happened
 */
async function publishUnnamed({ dir, name, lock, step }: Target, text: Buffer): Promise<boolean> {
  if (!lock.local) return false;
  await step("write the receipt");
  const file = await UnnamedFile.make(dir).catch(() => undefined);
  try {
    if (file === undefined || !(await file.holds(text))) return false;
    await step("move the receipt into place");
    if (!(await lock.isHeld())) throw lostLock();
    if (!file.appearAs(`${dir}/${receiptName(name)}`)) return false;
  } finally {
    file?.close();
  }
  await syncFolder(dir);
  return true;
}

/** The same in the staging folder. Before the rename, the next taker of NAME finds a folder without a mark and deletes it. */
async function publishAlone(
  { dir, name, lock, step }: Target,
  staging: Staging,
  text: Buffer,
): Promise<void> {
  const part = staging.at(`${MARK}.part`);
  await step("write the receipt");
  await writeAndReadBack(part, text);
  await step("move the receipt into place");
  const place = `${dir}/${receiptName(name)}`;
  if (await exists(place)) throw nameTaken("a file that appeared while the receipt was written");
  if (!(await lock.isHeld())) throw lostLock();
  await rename(part, place);
  await syncFolder(dir);
  await step("remove the staging folder");
  await staging.remove().catch(() => undefined);
}

/** All files at once: each of them waits for the disk. */
async function stage(
  target: Target,
  staging: Staging,
  files: readonly ResultFile[],
  receipt: { text: Buffer; hashes: ReadonlyMap<string, string> },
): Promise<void> {
  await target.step("make its folders");
  await allOf(["files", "previous"].map((folder) => mkdir(staging.at(folder))));
  await allOf([
    ...files.map(async ({ name, bytes }) => {
      await target.step(`write ${name}`);
      await writeAndReadBack(staging.at(`files/${name}`), bytes, receipt.hashes.get(name));
    }),
    (async () => {
      await target.step("write the receipt");
      await writeAndReadBack(staging.at(`${MARK}.part`), receipt.text);
    })(),
  ]);
  await allOf([syncFolder(staging.at("files")), syncFolder(target.dir)]);
  await target.step("mark it complete");
  await rename(staging.at(`${MARK}.part`), staging.at(MARK));
  await staging.sync();
}

/** Waits until none of them runs any more, also where one fails: then nothing is written into what is put back. */
async function allOf(works: readonly Promise<void>[]): Promise<void> {
  const endings = await Promise.allSettled(works);
  const failed = endings.find((ending) => ending.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

async function writeAndReadBack(path: string, bytes: Uint8Array, listed = sha256(bytes)): Promise<void> {
  await writeDurably(path, bytes);
  if ((await hashFile(path)) === listed) return;
  if (sha256(bytes) !== listed)
    throw new Error("Expected the receipt to list each result file with its hash");
  throw new RadserveError(
    "internal",
    "A result file read back from the output folder's disk differs from what was written. Check that disk.",
  );
}

/** Moves a complete staging folder's files into place. Each step may have been done before: it is also the recovery. */
async function publish(target: Target, staging: Staging, receipt: Receipt): Promise<void> {
  const { dir, name, step } = target;
  const old = await oldReceipt(target, staging, receipt);
  await step("move the old receipt aside");
  await moveIfThere(`${dir}/${receiptName(name)}`, staging.at(PREVIOUS));
  const fresh = [...filesOf(receipt).keys()];
  for (const file of await replaced(target, staging, receipt, old)) {
    await step(`move the old ${file} aside`);
    await moveIfThere(`${dir}/${file}`, staging.at(`previous/${file}`));
  }
  for (const file of fresh) {
    await step(`move ${file} into place`);
    await moveIfThere(staging.at(`files/${file}`), `${dir}/${file}`);
  }
  await syncFolder(dir);
  await step("move the receipt into place");
  if (!(await target.lock.isHeld())) throw lostLock();
  await rename(staging.at(MARK), `${dir}/${receiptName(name)}`);
  await syncFolder(dir);
  await step("remove the staging folder");
  // The result is there; a rest that cannot be removed now is removed by the next taker of NAME.
  await staging.remove().catch(() => undefined);
}

/** The receipt of the result that is being replaced, in place or already aside. */
async function oldReceipt(target: Target, staging: Staging, receipt: Receipt): Promise<Receipt | undefined> {
  const inPlace = await refuseForeign(target, receipt, staging);
  if (inPlace !== undefined) return inPlace;
  const aside = await readReceipt(staging.at(PREVIOUS));
  return aside.kind === "receipt" ? aside.receipt : undefined;
}

/**
 * Old files that make room: those of the same names, and those the new result no longer has, unless somebody changed
 * them. A new file that already lies in place is not old: it has left the staging folder.
 */
async function replaced(
  { dir, name }: Target,
  staging: Staging,
  receipt: Receipt,
  old: Receipt | undefined,
): Promise<string[]> {
  const fresh = filesOf(receipt);
  const found: string[] = [];
  for (const [file, hash] of old === undefined ? [] : filesOf(old)) {
    if (!belongsTo(name, file)) continue;
    const mine = fresh.has(file)
      ? await exists(staging.at(`files/${file}`))
      : (await hashFile(`${dir}/${file}`)) === hash;
    if (mine) found.push(file);
  }
  return found;
}

/**
 * Refuses to write over what is not an earlier result of the same image.
 * @returns the earlier result's receipt, where it lies in place
 * @throws RadserveError output_name_taken
 */
async function refuseForeign(
  { dir, name }: Target,
  receipt: Receipt,
  staging?: Staging,
): Promise<Receipt | undefined> {
  const found = await readReceipt(`${dir}/${receiptName(name)}`);
  if (found.kind === "foreign") throw nameTaken("a file that is not a receipt of Radserve");
  if (found.kind === "receipt" && !sameImage(found.receipt, receipt.source))
    throw nameTaken("the result of another image");
  const inPlace = found.kind === "receipt" ? found.receipt : undefined;
  let old = inPlace;
  if (old === undefined && staging !== undefined) {
    const aside = await readReceipt(staging.at(PREVIOUS));
    if (aside.kind === "receipt") old = aside.receipt;
  }
  const ours = new Set(old === undefined ? [] : filesOf(old).keys());
  for (const file of filesOf(receipt).keys()) {
    if (ours.has(file) || !(await exists(`${dir}/${file}`))) continue;
    const moved = staging !== undefined && !(await exists(staging.at(`files/${file}`)));
    if (!moved) throw nameTaken("a file that no receipt of this image lists");
  }
  return inPlace;
}

/** Puts the folder back as it was before the commit, and the mark away before anything it vouches for. */
async function rollBack(target: Target, staging: Staging, receipt: Receipt): Promise<void> {
  const { dir, name, step } = target;
  if (await exists(staging.at(MARK))) {
    for (const [file, hash] of filesOf(receipt)) {
      const moved = !(await exists(staging.at(`files/${file}`)));
      if (moved && (await hashFile(`${dir}/${file}`)) === hash) {
        await step(`take ${file} back`);
        await rename(`${dir}/${file}`, staging.at(`files/${file}`));
      }
    }
    for (const file of await readdir(staging.at("previous"))) {
      await step(`put the old ${file} back`);
      if (!(await exists(`${dir}/${file}`))) await rename(staging.at(`previous/${file}`), `${dir}/${file}`);
    }
    await step("put the old receipt back");
    if (!(await exists(`${dir}/${receiptName(name)}`)))
      await moveIfThere(staging.at(PREVIOUS), `${dir}/${receiptName(name)}`);
    await syncFolder(dir);
    await step("unmark the staging folder");
    await unlink(staging.at(MARK));
    await staging.sync();
  }
  await step("remove the staging folder");
  await staging.remove();
}

/** Finishes or removes what an earlier holder of NAME left. */
async function recover(target: Target): Promise<void> {
  const path = `${target.dir}/${stagingName(target.name)}`;
  const found = await lstat(path).catch(ifMissing(undefined));
  if (found === undefined) return;
  if (!found.isDirectory()) throw nameTaken("something that is no folder where results are prepared");
  const staging = await Staging.open(path);
  try {
    const mark = await readReceipt(staging.at(MARK));
    if (mark.kind === "none") {
      await target.step("remove the staging folder");
      await staging.remove();
    } else if (mark.kind === "foreign") {
      throw nameTaken("a folder that Radserve did not make where results are prepared");
    } else if (await isWhole(target, staging, mark.receipt)) {
      await publish(target, staging, mark.receipt);
    } else {
      await rollBack(target, staging, mark.receipt);
    }
  } finally {
    staging.close();
  }
}

/** Whether each file that a staged receipt lists is there, staged or in place, unharmed, with nothing foreign in its way. */
async function isWhole(target: Target, staging: Staging, receipt: Receipt): Promise<boolean> {
  for (const [file, hash] of filesOf(receipt)) {
    if (!belongsTo(target.name, file)) return false;
    const found = (await hashFile(staging.at(`files/${file}`))) ?? (await hashFile(`${target.dir}/${file}`));
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

function exists(path: string): Promise<boolean> {
  return lstat(path).then(() => true, ifMissing(false));
}

function nameTaken(found: string): RadserveError {
  return new RadserveError(
    "output_name_taken",
    `Expected the result's name to be free in the output folder, but ${found} lies there. ` +
      "Choose another output folder, or move that away.",
  );
}

function lostLock(): RadserveError {
  return new RadserveError(
    "overloaded",
    "The server stood still for so long that another took over this result's name. Repeat the request: it finds what the other wrote, or works again.",
  );
}
