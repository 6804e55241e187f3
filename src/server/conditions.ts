/**
 * The conditions that are wrong now: one list, which /health/ready, the overview of the page,
 * `radserve status` and `radserve doctor` show. One word for each condition; those of paused jobs
 * and of errors are the same words.
 */
import { constants } from "node:fs";
import { durations } from "../base/durations.js";
import { ERRORS, type RadserveError } from "../base/errors.js";
import type { Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { counted } from "../base/table.js";
import type { BulkFigures } from "../jobs/messages.js";
import type { Config } from "../config.js";
import { conditionsFrom, type Condition } from "./condition.js";
import { FLEET_REMEDIES, fleetConditions, fleetWarnings } from "./fleet.js";
import type { RunningFeatures } from "./running-features.js";
import type { EngineStats } from "../engine/stats.js";
import { folderFault, roomFault, type FolderFault } from "../files/usable.js";
import { resultKeysTrouble } from "../results/receipt/seal.js";
import { expiryWarning, type WatchedCertificates } from "../files/certificates.js";

/**
 * The remedy of each condition. A condition that keeps the server from being ready is an error's
 * code, with the remedy of that error.
 */
export const REMEDIES = {
  share_unavailable:
    "Mount the share, or create the folder. If reading or writing fails, look at the disk (dmesg).",
  input_not_readable: "Let the server's user read the folder.",
  output_not_writable:
    "Let the server's user write to the folder. What is read-only has to be mounted for writing, and named in ReadWritePaths= of a systemd unit.",
  state_not_writable: "Let the server's user write to RADSERVE_STATE_DIR.",
  disk_full: "Free space, or lower RADSERVE_MINIMUM_FREE_DISK.",
  certificate_expires: "Replace the file; a running server reads it within seconds.",
  certificate_refused: "Correct the file. Until then the server keeps the previous certificates.",
  key_refused:
    "Let the server's user read the keys folder and its files, or correct or remove the file.",
  model_failed:
    "Run radserve status with a token for the cause, and radserve models check for each mistake.",
  no_models:
    "Mount the share of the models, put a model into RADSERVE_MODELS_DIR, or correct it; then run radserve models reload.",
  gpu_not_used:
    "radserve doctor names the library or driver that is missing. Where no GPU is wanted, set RADSERVE_PROVIDERS=cpu.",
  runs_late:
    "Each holds a core and memory until it ends; others have places of their own. Look at the network: one node of it may take minutes, or RADSERVE_DEADLINE_SECONDS may be short for it. A restart ends them.",
  spool_not_writable:
    "Let the server's user write to the spool of RADSERVE_GATEWAY, and name it in ReadWritePaths= of a systemd unit.",
  gpu_lost: "Restart the server to use it again.",
  bulk_unavailable: ERRORS.bulk_unavailable.remedy,
  job_paused: "radserve jobs list --state paused lists them; radserve explain JOB says more.",
  job_left_alone:
    "Mount here what other nodes have, or give this node the same models; it tries again by itself. radserve explain JOB says more.",
  jobs_lost:
    "Send them again: only what is missing is computed. radserve jobs purge ID ends this for a job. Before you put a backup back, see docs/operations.md.",
  node_silent: "Check that this machine runs and reaches the database.",
  ...FLEET_REMEDIES,
} as const;
type ConditionName = keyof typeof REMEDIES;

const of = conditionsFrom(REMEDIES);

const MOST_NAMED = 20;
const named = (ids: readonly string[]): string =>
  [...ids.slice(0, MOST_NAMED), ...(ids.length > MOST_NAMED ? ["and others"] : [])].join(", ");

export const READ = constants.R_OK | constants.X_OK;
const WRITE = READ | constants.W_OK;

/** A folder that serving needs, and what is wrong with it or its disk, if anything is. */
export interface NeededFolder {
  folder: string;
  name: "input root" | "output root" | "state directory" | "spool";
  /** The name among the folders, with a number if there are several of the kind. */
  where: string;
  fault?: Omit<FolderFault, "condition"> & { condition: ConditionName };
}

/** Looks at every folder that serving needs. */
export function neededFolders(config: Config, spool?: string): Promise<NeededFolder[]> {
  const all = (
    name: NeededFolder["name"],
    folders: readonly string[],
    mode: number,
    forbidden: ConditionName,
  ) =>
    folders.map(async (folder, i): Promise<NeededFolder> => {
      const needed = { folder, name, where: folders.length === 1 ? name : `${name} ${i + 1}` };
      const fault =
        (await folderFault(folder, mode)) ??
        (mode === WRITE ? await roomFault(folder, config.minimum_free_disk) : undefined);
      if (fault === undefined) return needed;
      const condition = fault.condition === "forbidden" ? forbidden : fault.condition;
      return { ...needed, fault: { ...fault, condition } };
    });
  return Promise.all([
    ...all("input root", config.input_roots, READ, "input_not_readable"),
    ...all("output root", config.output_roots, WRITE, "output_not_writable"),
    ...all("spool", spool === undefined ? [] : [spool], WRITE, "spool_not_writable"),
    ...all("state directory", [config.state_dir], WRITE, "state_not_writable"),
  ]);
}

export const folderCondition = ({ where, fault }: NeededFolder): Condition[] =>
  fault === undefined ? [] : [of(fault.condition, where, `The ${where}: ${fault.found}.`)];

/** What looks at the folders now and again. */
export interface WatchedFolders {
  look(): Promise<void>;
  conditions(): Condition[];
  /** What the other nodes see of them is known. */
  known(): boolean;
}

/** How often it is looked until then. */
const FIRST_LOOKS_MS = 200;

export interface Sources {
  /** Why the server is not ready. */
  fault: () => RadserveError | undefined;
  /** What is wrong with the keys. */
  keys: () => string | undefined;
  models: () => readonly { name: string; health: string; error?: string }[];
  /** The models are being loaded, so that nobody knows yet which there are. */
  loading: () => boolean;
  /** The settings ask for a GPU, and models run on the CPU. */
  lacksGpu: boolean;
  engine: () => Pick<EngineStats, "gpus" | "models">;
  certificates: () => Pick<WatchedCertificates, "expiries" | "refused"> | undefined;
  bulk: () => BulkFigures;
  folders: WatchedFolders;
  features: RunningFeatures;
  log: Logger;
}

export class Conditions {
  #keysOfResults: string | undefined;
  readonly #failing = new Map<string, { errno: string; at: number }>();
  #known = new Map<string, Condition>();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly sources: Sources) {}

  /** Told of each error that is answered: a disk that fails is known by its requests alone. */
  noteFault({ code, details }: Pick<RadserveError, "code" | "details">): void {
    const errno = details?.["errno"];
    if (code !== "share_unavailable" || typeof errno !== "string") return;
    const side = details?.["side"] === "output" ? "output root" : "disk";
    this.#failing.set(side, { errno, at: monotonic() });
  }

  /** Disks that have failed a request a moment ago. */
  #disks(): Condition[] {
    return [...this.#failing].flatMap(([where, { errno, at }]) =>
      monotonic() - at > durations.diskFault
        ? []
        : of("share_unavailable", where, `Reading or writing there fails (${errno}).`),
    );
  }

  /** Looks now and again, and logs what begins and what ends. */
  async watch(): Promise<void> {
    const { folders, features } = this.sources;
    await folders.look();
    this.#keysOfResults = await resultKeysTrouble();
    await features.look();
    this.#tell();
    if (this.#closed) return;
    const pause = folders.known() ? durations.conditionsLook : FIRST_LOOKS_MS;
    this.#timer = setTimeout(() => void this.watch(), pause).unref();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /**
   * The condition that keeps the server from being ready comes first. Folders are as they were
   * seconds ago: nobody waits for a share.
   */
  list(): Condition[] {
    const {
      fault,
      keys,
      models,
      loading,
      lacksGpu,
      engine,
      certificates,
      bulk,
      folders,
      features,
    } = this.sources;
    const blocking = fault();
    const known = models();
    const refusedKeys = keys();
    const { gpus, models: loaded } = engine();
    const { trouble, paused_for, left_alone, lost, nodes } = bulk();
    const { expiries, refused } = certificates() ?? { expiries: [] };
    const others: Condition[] = [
      ...(refusedKeys === undefined ? [] : [of("key_refused", "keys folder", refusedKeys)]),
      ...(known.every(({ health }) => health === "off") && !loading()
        ? [of("no_models", "models", "No model serves, so that every image is refused.")]
        : []),
      ...(lacksGpu
        ? [
            of(
              "gpu_not_used",
              "GPU",
              "RADSERVE_PROVIDERS asks for CUDA, which cannot be used here: models run on the CPU.",
            ),
          ]
        : []),
      ...known
        .filter(({ health }) => health === "failed")
        .map(({ name, error = "failed" }) =>
          of("model_failed", `model ${name}`, `${name} failed: ${error}.`),
        ),
      ...folders.conditions(),
      ...this.#disks(),
      ...loaded
        .filter(({ late }) => late > 0)
        .map(({ name, late }) =>
          of(
            "runs_late",
            `model ${name}`,
            `${counted(late, "run")} of ${name} ${late === 1 ? "goes" : "go"} on after the time of the image was over.`,
          ),
        ),
      ...gpus
        .filter(({ lost }) => lost)
        .map(({ number }) => of("gpu_lost", `GPU ${number}`, `GPU ${number} stopped working.`)),
      ...expiries.flatMap((expiry) => {
        const message = expiryWarning(expiry);
        return message === undefined
          ? []
          : of("certificate_expires", `certificate ${expiry.certificate}`, message);
      }),
      ...(refused === undefined ? [] : [of("certificate_refused", "new certificates", refused)]),
      ...(this.#keysOfResults === undefined
        ? []
        : [of("key_refused", "keys of results", this.#keysOfResults)]),
      ...features.all.flatMap((running) => running.conditions?.() ?? []),
      ...(trouble === null
        ? []
        : [
            of(
              "bulk_unavailable",
              "bulk queue",
              `Jobs are waiting, and new ones are refused: ${trouble}.`,
            ),
          ]),
      ...Object.entries(paused_for).map(([reason, jobs]) =>
        of("job_paused", `jobs: ${reason}`, `${counted(jobs, "job")} paused: ${reason}.`),
      ),
      ...Object.entries(left_alone).map(([reason, jobs]) =>
        of(
          "job_left_alone",
          `this node: ${reason}`,
          `This node leaves ${counted(jobs, "job")} to others: ${reason}.`,
        ),
      ),
      ...(lost.length === 0
        ? []
        : [
            of(
              "jobs_lost",
              "bulk queue",
              `The database lacks ${counted(lost.length, "job")}: ${named(lost)}.`,
            ),
          ]),
      ...nodes
        .filter(({ alive }) => !alive)
        .map(({ name, seen_at }) =>
          of("node_silent", `node ${name}`, `Node ${name} has not answered since ${seen_at}.`),
        ),
      ...fleetConditions(nodes),
    ];
    if (blocking === undefined) return others;
    const { code, message } = blocking;
    // A root that is away has a condition of its own, which says which one it is
    const [same, rest] = [true, false].map((is) =>
      others.filter(({ condition }) => (condition === code) === is),
    ) as [Condition[], Condition[]];
    const first =
      same.length > 0
        ? same
        : [{ condition: code, where: "server", message, remedy: ERRORS[code].remedy }];
    return [...first, ...rest];
  }

  /** What may become wrong. */
  warnings(): Condition[] {
    const { bulk, features } = this.sources;
    return [
      ...fleetWarnings(bulk().nodes),
      ...features.all.flatMap((running) => running.warnings?.() ?? []),
    ];
  }

  #tell(): void {
    const { log } = this.sources;
    const all = [...this.list(), ...this.warnings()];
    const now = new Map(all.map((one) => [`${one.condition} ${one.where}`, one]));
    for (const [key, { condition, where, message }] of now)
      if (!this.#known.has(key)) log.warn({ condition, where }, message);
    for (const [key, { condition, where }] of this.#known)
      if (!now.has(key)) log.info({ condition, where }, "resolved");
    this.#known = now;
  }
}
