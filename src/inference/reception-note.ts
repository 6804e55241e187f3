/**
 * What the gateway knows of a series and no file of it says: its reception was interrupted, or
 * somebody had objects of it replaced. A note beside the images says so, because whoever reads them
 * reads it, too: jobs, single requests and commands, now and later.
 *
 *     .radserve-reception.json   {"series":{"1.2.3.4":{"objects":2,"associations":1}}}
 */
import { closeSync, fstatSync, lstatSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { errno } from "../base/errno.js";
import { storedJson } from "../base/stored-json.js";
import { counted } from "../base/table.js";
import { readAt } from "../files/descriptor.js";
import { openPlain } from "../files/disk.js";
import type { OpenedInput } from "../files/guarded-paths.js";
import { RECEPTION_NOTE } from "../files/helper-names.js";
import type { Image, Warning } from "../images/image.js";
import { interrupted } from "../results/receipt/reception.js";

/** More than the note of a study with thousands of series. */
const MOST_BYTES = 1024 * 1024;

const count = z.int().min(0);
const noteSchema = z.strictObject({
  /** The folder is that of a study: results are named after its series, also where it has one. */
  study: z.literal(true).optional(),
  /** By SeriesInstanceUID. */
  series: z.record(
    z.string(),
    z.strictObject({
      /** Objects that were begun, and are not there. */
      objects: count,
      /** Associations and requests that brought some of it and broke off. */
      associations: count,
      /** When the gateway did not wait any longer, some of it was still coming. */
      coming: z.literal(true).optional(),
      /** Another peer has brought objects of it that are not there. */
      beside: z.literal(true).optional(),
      /** SOPInstanceUIDs of objects that took the place of others. */
      replaced: z.array(z.string()).optional(),
    }),
  ),
});
export type ReceptionNote = z.infer<typeof noteSchema>;
export type NotedSeries = ReceptionNote["series"][string];

/** Where nobody knows what it says: something is wrong all the same. */
type ReadNote = ReceptionNote | "unreadable" | undefined;

/**
 * The note beside an image, or in the folder of a series. To be read before the images are: what
 * comes meanwhile may take it away.
 */
export async function readReceptionNote(input: OpenedInput): Promise<ReadNote> {
  // By the real path of the folder: whoever could change it meanwhile could write the note as well
  const folder = input.kind === "folder" ? input.fdPath : path.dirname(input.realPath);
  const note = path.join(folder, RECEPTION_NOTE);
  let fd: number;
  try {
    // To throw ENOENT for nearly each image takes longer than to look
    if (input.local && lstatSync(note, { throwIfNoEntry: false }) === undefined) return undefined;
    fd = await openPlain(note, input.local);
  } catch (error) {
    return errno(error) === "ENOENT" ? undefined : "unreadable";
  }
  try {
    const { size } = fstatSync(fd);
    if (size > MOST_BYTES) return "unreadable";
    const text = await readAt(fd, size, 0);
    return noteSchema.safeParse(storedJson(text)).data ?? "unreadable";
  } catch {
    return "unreadable";
  } finally {
    closeSync(fd);
  }
}

/** What a note says of the series of an image: of a case, of all its members. */
function notedOf({ series }: ReceptionNote, image: Image): NotedSeries[] {
  const members = image.case?.members ?? [image];
  const uids = new Set(members.map(({ source }) => source.seriesInstanceUid ?? ""));
  return Object.entries(series).flatMap(([uid, one]) => (uids.has(uid) ? one : []));
}

/** SOPInstanceUIDs of the series of an image whose objects took the place of others. */
export function replacedOf(note: ReadNote, image: Image): string[] {
  if (note === undefined || note === "unreadable") return [];
  return notedOf(note, image).flatMap(({ replaced = [] }) => replaced);
}

/** Whether the results of a folder are named after its series, though there is one. */
export const namesSeries = (note: ReadNote): boolean =>
  note !== undefined && note !== "unreadable" && note.study === true;

/** What a note warns of. */
export function warningsOf(note: ReadNote, image: Image): Warning[] {
  if (note === undefined) return [];
  if (note === "unreadable") return [interrupted("the gateway's note beside it cannot be read")];
  const found = notedOf(note, image);
  const sum = (of: "objects" | "associations") => found.reduce((all, one) => all + one[of], 0);
  const [objects, associations] = [sum("objects"), sum("associations")];
  const parts = [
    ...(objects === 0 ? [] : [`${counted(objects, "object")} begun and not kept`]),
    ...(associations === 0
      ? []
      : [`${counted(associations, "association")} broken off before the end`]),
    ...(found.some(({ beside }) => beside) ? ["another sender has objects that are not here"] : []),
    ...(found.some(({ coming }) => coming) ? ["still coming when its time was over"] : []),
  ];
  return parts.length === 0 ? [] : [interrupted(parts.join(", "))];
}
