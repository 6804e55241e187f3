/** The messages between the thread that serves HTTP and the thread of the doors. */
import type { ReadableStream } from "node:stream/web";
import type { Config } from "../../../config.js";
import type { ReceivingSettings } from "../settings.js";
import type { Submission } from "./arrivals.js";
import type { Reach } from "./reach.js";

export interface DoorsThreadOptions {
  config: Pick<Config, "log_level" | "minimum_free_disk" | "upload_limit" | "state_dir">;
  settings: ReceivingSettings;
}

export interface DoorsThread {
  ask(call: ToDoors): Promise<unknown>;
}

export interface DoorsOwner {
  ask(call: FromDoors): Promise<unknown>;
}

export type ToDoors =
  /** Objects of one request; answered with what became of them. */
  | {
      type: "store";
      peer: string;
      address: string | undefined;
      boundary: string;
      body: ReadableStream<Uint8Array>;
    }
  /** Answered with what became of the study. */
  | { type: "complete"; study: string; reach: Reach }
  /** Takes no more. */
  | { type: "close" };

/** Something that is wrong with a door, in the words of the conditions. */
export interface DoorTrouble {
  condition:
    | "door_closed"
    | "received_waiting"
    | "received_conflict"
    | "certificate_expires"
    | "certificate_refused";
  where: string;
  message: string;
}

export interface DoorFigures {
  associations: number;
  /** Since the thread began, by `dicom` and `stow`. */
  objects: Record<string, number>;
  bytes: Record<string, number>;
  /** By reason. */
  refused: Record<string, number>;
  waiting: number;
  withoutRule: number;
  troubles: DoorTrouble[];
}

/** Objects of a series that came, or go. */
export interface Told {
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

export type FromDoors =
  /** Answered with the id of the job. */
  | { type: "submit"; submission: Submission }
  /** Answered with what has become of it. */
  | { type: "state"; jobId: string }
  /** Answered when the audit has its line. */
  | { type: "tell"; told: Told }
  | { type: "figures"; figures: DoorFigures };
