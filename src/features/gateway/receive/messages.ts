/** What the thread that serves HTTP and that of the reception have to say to one another. */
import type { ReadableStream } from "node:stream/web";
import type { MessagePort } from "node:worker_threads";
import type { Config } from "../../../config.js";
import type { ReceivingSettings } from "../settings.js";
import type { Completed, Submission } from "./received-jobs.js";
import type { ContextRefusal, RefusedCaller } from "./dicom-listener.js";
import type { Reach } from "./reach.js";
import type { Received, ReceivedChange, ReceivedChoice, ReceivedDetails } from "./received.js";
import type { Senders } from "./senders.js";
import type { StowAnswer } from "./stow.js";
import type { ReceptionTrouble } from "./trouble.js";

export interface ReceptionThreadOptions {
  config: Pick<Config, "log_level" | "minimum_free_disk" | "upload_limit" | "state_dir">;
  settings: ReceivingSettings;
}

/** What the thread that serves HTTP asks the thread of the gateway's reception. */
export interface ReceptionThread {
  /** Keeps the objects of one request. */
  store(request: StowRequest, body: ReadableStream<Uint8Array>): Promise<StowAnswer>;
  /** A sender by STOW-RS is refused: its token does not reach what becomes of its images. */
  beyondReach(peer: string, address: string | undefined): void;
  /** What becomes of a study that is complete. */
  complete(study: string, reach: Reach): Promise<Completed[]>;
  /** What lies there, as far as somebody reaches it. */
  list(filter: ReceivedFilter, reach: Reach): Promise<Received[]>;
  /** What has come from whom. */
  senders(reach: Reach): Promise<Senders>;
  show(study: string, reach: Reach): Promise<ReceivedDetails[]>;
  /** What of a study was removed. @throws RadserveError audit_failed */
  remove(study: string, choice: ReceivedChoice, reach: Reach): Promise<ReceivedChange[]>;
  /** Of which series objects with other bytes are taken from now on. */
  replace(study: string, choice: ReceivedChoice, reach: Reach): Promise<ReceivedChange[]>;
  /** Rules, peers, titles and `keep`; what else has changed counts from the next start on. */
  reload(settings: ReceivingSettings): void;
  /** Takes no more. */
  close(): void;
}

export interface ReceivedFilter {
  peer?: string | undefined;
  state?: Received["state"] | undefined;
  /** How many at most. */
  limit: number;
}

export interface StowRequest {
  peer: string;
  address: string | undefined;
  boundary: string;
}

/** Presentation contexts of a peer that were refused. */
export interface RefusedContext {
  peer: string;
  sop_class: string;
  why: ContextRefusal;
  count: number;
}

export interface ReceptionFigures {
  associations: number;
  /** Since the thread began, by `dicom` and `stow`. */
  objects: Record<string, number>;
  bytes: Record<string, number>;
  /** By reason. */
  refused: Record<string, number>;
  waiting: number;
  /** Series that no job is made of, by why. */
  unmade: Record<string, number>;
  /** Their objects, by SOP class. */
  classes: Record<string, number>;
  contexts: RefusedContext[];
  callers: (RefusedCaller & { count: number })[];
  troubles: ReceptionTrouble[];
}

/** Objects of a series that came, or go. */
export interface ReceptionRecord {
  kind: "received" | "removed";
  /** `asked` before the first of them is kept. */
  outcome?: "asked" | "done";
  peer: string;
  study: string;
  count?: number;
  address?: string | undefined;
  bytes?: number;
  ms?: number;
}

/** What the thread of the gateway's reception asks the one that serves HTTP, and tells it. */
export interface ReceptionOwner {
  /** @returns the id of the job */
  submit(submission: Submission): Promise<string>;
  /** Answered by JobsAside. */
  lineToJobs(): Promise<MessagePort>;
  /** Resolves when the audit has the line. @throws RadserveError audit_failed */
  tell(told: ReceptionRecord): Promise<void>;
  /** The audit gets the line of what has happened, however long that takes. */
  tellAtLast(told: ReceptionRecord): void;
  figures(figures: ReceptionFigures): void;
}
