/**
 * What became of a series: a mark says which of its objects are of which jobs.
 *
 *     marks/PEER/STUDY/SERIES.json
 */
import path from "node:path";
import { z } from "zod";
import { replaceFile } from "../../../files/new-file.js";
import { UNMADE } from "./received.js";
import { storedIn } from "./spool-folders.js";
import type { SeriesPlace, Spool } from "./spool.js";

const jobSchema = z.object({
  rule: z.string(),
  job_id: z.string(),
  /** SHA-256 over the names of its objects, and over what else makes it another series. */
  objects: z.string(),
  /** The job was seen to have ended. One that goes before that was lost, and is made again. */
  ended: z.boolean(),
  /** Milliseconds since 1970. */
  at: z.number(),
});
export type MarkedJob = z.infer<typeof jobSchema>;

const markSchema = z.object({
  /** As that of a job; empty while something is still to become of it. */
  objects: z.string(),
  count: z.int(),
  /** The version of the rules that were asked. */
  rules: z.string(),
  /** Milliseconds since 1970, when it became complete. */
  at: z.number(),
  jobs: z.array(jobSchema),
  unmade: z.enum(UNMADE).optional(),
  /** Of an unmade one, numbers of its objects by SOP class. */
  classes: z.record(z.string(), z.int()).optional(),
});
/** As versions before wrote it: of one rule. */
const earlierSchema = jobSchema
  .extend({ count: z.int() })
  .transform(({ count, ...job }): SeriesMark => ({
    objects: job.objects,
    count,
    rules: "",
    at: job.at,
    jobs: [job],
  }));
export type SeriesMark = z.infer<typeof markSchema>;
const anySchema = z.union([markSchema, earlierSchema]);

export class Marks {
  constructor(
    private readonly folder: string,
    private readonly within: Spool["within"],
  ) {}

  /** Undefined where there is none; where it is damaged, the key of the job finds it again. */
  read({ peer, study, series }: SeriesPlace): Promise<SeriesMark | undefined> {
    return storedIn(path.join(this.folder, "marks", peer, study), `${series}.json`, anySchema);
  }

  async write({ peer, study, series }: SeriesPlace, mark: SeriesMark): Promise<void> {
    await this.within(["marks", peer, study], (folder) =>
      replaceFile(folder, `${series}.json`, JSON.stringify(mark)),
    );
  }
}
