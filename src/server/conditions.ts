/**
 * What is wrong now: one list, which /health/ready, the overview of the page, `radserve status` and `radserve doctor`
 * show. One word for each condition; those of paused jobs and of errors are the same words.
 */
import { constants } from "node:fs";
import { z } from "zod";
import { durations } from "../base/durations.js";
import { ERRORS, type RadserveError } from "../base/errors.js";
import type { Logger } from "../base/log.js";
import type { BulkFigures } from "../bulk/messages.js";
import type { Config } from "../config.js";
import type { EngineStats } from "../engine/stats.js";
import { folderFault, roomFault, type FolderFault } from "../files/usable.js";
import { expiryWarning, type WatchedCertificates } from "./certificates.js";

export const conditionSchema = z.strictObject({
  condition: z.string().describe("One word for what is wrong; docs/operations.md lists them"),
  where: z.string().describe("What it is about; no path"),
  message: z.string(),
  remedy: z.string().describe("What to do"),
});
export type Condition = z.infer<typeof conditionSchema>;

/** What to do about each. What keeps the server from being ready has the code of its error, and the remedy of that. */
export const REMEDIES = {
  share_unavailable: "Mount the share, or create the folder.",
  input_not_readable: "Let the server's user read the folder.",
  output_not_writable: "Let the server's user write to the folder, and mount its file system so that it may.",
  state_not_writable: "Let the server's user write to RADSERVE_STATE_DIR.",
  disk_full: "Make room, or lower RADSERVE_MINIMUM_FREE_DISK.",
  certificate_expires: "Replace the file; a running server takes it within seconds.",
  certificate_refused: "Correct the file. Until then the server goes on with the certificates of before.",
  model_failed: "radserve status says why with a token, and radserve models check explains.",
  gpu_lost: "Restart the server to use it again.",
  bulk_unavailable: ERRORS.bulk_unavailable.remedy,
  job_paused: "radserve jobs --state paused lists them, and radserve explain JOB says more.",
  box_silent: "See whether that machine runs and reaches the database.",
} as const;
type Word = keyof typeof REMEDIES;

const of = (condition: Word, where: string, message: string): Condition => ({
  ...{ condition, where, message },
  remedy: REMEDIES[condition],
});

export const READ = constants.R_OK | constants.X_OK;
export const WRITE = READ | constants.W_OK;

/** Every folder that serving needs, by its name among them, the access that it needs, and the word for its want. */
function foldersOf({ input_roots, output_roots, state_dir }: Config) {
  const all = (name: string, roots: readonly string[], mode: number, forbidden: Word) =>
    roots.map((folder, i) => ({
      ...{ folder, mode, forbidden },
      where: roots.length === 1 ? name : `${name} ${i + 1}`,
    }));
  return [
    ...all("input root", input_roots, READ, "input_not_readable"),
    ...all("output root", output_roots, WRITE, "output_not_writable"),
    ...all("state directory", [state_dir], WRITE, "state_not_writable"),
  ];
}

/** What is wrong with the folders and their disks now. */
export async function foldersNow(config: Config): Promise<Condition[]> {
  const found = await Promise.all(
    foldersOf(config).map(async ({ folder, where, mode, forbidden }) => {
      const unusable = await folderFault(folder, mode);
      const fault: FolderFault | undefined =
        unusable ?? (mode === WRITE ? await roomFault(folder, config.minimum_free_disk) : undefined);
      if (fault === undefined) return [];
      const word = fault.condition === "forbidden" ? forbidden : fault.condition;
      return of(word, where, `The ${where}: ${fault.found}.`);
    }),
  );
  return found.flat();
}

export interface Sources {
  config: Config;
  /** Why the server is not ready. */
  fault: () => RadserveError | undefined;
  models: () => readonly { name: string; health: string; error?: string }[];
  gpus: () => EngineStats["gpus"];
  certificates: () => Pick<WatchedCertificates, "expiries" | "refused"> | undefined;
  bulk: () => BulkFigures;
  log: Logger;
}

export class Conditions {
  #folders: Condition[] = [];
  #known = new Map<string, Condition>();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly sources: Sources) {}

  /** Looks now and again, and logs what begins and what ends. */
  async watch(): Promise<void> {
    this.#folders = await foldersNow(this.sources.config);
    this.#tell();
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.watch(), durations.conditionsLook).unref();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /** What keeps the server from being ready comes first. Folders are as they were seconds ago: nobody waits for a share. */
  list(): Condition[] {
    const { fault, models, gpus, certificates, bulk } = this.sources;
    const blocking = fault();
    const { trouble, paused_for, boxes } = bulk();
    const { expiries, refused } = certificates() ?? { expiries: [] };
    return [
      ...(blocking === undefined
        ? []
        : [
            {
              ...{ condition: blocking.code, where: "server", message: blocking.message },
              remedy: ERRORS[blocking.code].remedy,
            },
          ]),
      ...models()
        .filter(({ health }) => health === "failed")
        .map(({ name, error = "failed" }) =>
          of("model_failed", `model ${name}`, `${name} failed: ${error}.`),
        ),
      ...this.#folders,
      ...gpus()
        .filter(({ lost }) => lost)
        .map(({ number }) => of("gpu_lost", `GPU ${number}`, `GPU ${number} is lost.`)),
      ...expiries.flatMap((expiry) => {
        const message = expiryWarning(expiry);
        return message === undefined
          ? []
          : of("certificate_expires", `certificate ${expiry.certificate}`, message);
      }),
      ...(refused === undefined ? [] : [of("certificate_refused", "new certificates", refused)]),
      ...(trouble === null
        ? []
        : [of("bulk_unavailable", "bulk queue", `Jobs wait, and none can be sent: ${trouble}.`)]),
      ...Object.entries(paused_for).map(([reason, jobs]) =>
        of(
          "job_paused",
          `jobs: ${reason}`,
          `${jobs} ${jobs === 1 ? "job is" : "jobs are"} paused: ${reason}.`,
        ),
      ),
      ...boxes
        .filter(({ alive }) => !alive)
        .map(({ name, seen_at }) =>
          of("box_silent", `box ${name}`, `Box ${name} shows no sign of life since ${seen_at}.`),
        ),
    ];
  }

  #tell(): void {
    const { log } = this.sources;
    const now = new Map(this.list().map((one) => [`${one.condition} ${one.where}`, one]));
    for (const [key, { condition, where, message }] of now)
      if (!this.#known.has(key)) log.warn({ condition, where }, message);
    for (const [key, { condition, where }] of this.#known)
      if (!now.has(key)) log.info({ condition, where }, "this is well again");
    this.#known = now;
  }
}
