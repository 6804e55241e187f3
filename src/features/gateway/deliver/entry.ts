/** An entry of the queue: a result that is to be delivered, and where it lies. */
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { errno } from "../../../base/errno.js";
import { errors, RadserveError } from "../../../base/errors.js";
import { syncFolder } from "../../../files/durable-files.js";
import { replaceFile } from "../../../files/new-file.js";
import { innermostRoot, isOnOtherDisk, isUnmountedNow } from "../../../files/roots.js";
import { deliverySchema } from "../../../results/receipt/delivery.js";

export const entrySchema = z.object({
  /** Real path of the output folder, and NAME. */
  folder: z.string(),
  name: z.string(),
  /** The result lay there already: what is asked for is added to what its file says. */
  reused: z.boolean(),
  /**
   * Of that result: another may take its place before the queue looks at it. Entries of 0.6 have
   * none.
   */
  objects_sha256: z.string().optional(),
  /** The folder lies on another disk than its root: on a share that is mounted below that. */
  apart: z.boolean().optional(),
  delivery: deliverySchema,
});
export type OutboxEntry = z.infer<typeof entrySchema>;

/**
 * Writes an entry; the disk has it when this resolves.
 * @param folder of the queue; made where it is missing
 * @param outputRoots real paths
 * @returns the entry as it was written
 * @throws RadserveError delivery_unavailable
 */
export async function keepEntry(
  folder: string,
  entry: OutboxEntry,
  outputRoots: readonly string[],
  minimumFreeBytes: number,
): Promise<OutboxEntry> {
  // One that cannot be looked at is taken for a share that is away
  const root = innermostRoot(entry.folder, outputRoots) ?? entry.folder;
  const apart = await isOnOtherDisk(entry.folder, root).catch(() => true);
  try {
    const holder = path.dirname(folder);
    if (await isUnmountedNow(holder)) throw new Error("its share is not mounted");
    if ((await mkdir(folder, { recursive: true, mode: 0o770 })) !== undefined)
      await syncFolder(holder);
    const kept = { ...entry, ...(apart ? { apart } : {}) };
    await replaceFile(folder, `${entry.delivery.id}.json`, JSON.stringify(kept), {
      minimumFreeBytes,
    });
    return kept;
  } catch (error) {
    const why =
      error instanceof RadserveError ? error.code : errno(error) || "its share is not mounted";
    throw errors.delivery_unavailable(
      `The delivery queue cannot be written (${why}), so no result was written. Correct that and send the request again, or send it with deliver none.`,
      undefined,
      { cause: error },
    );
  }
}
