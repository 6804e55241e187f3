/** The messages between the thread that serves HTTP and the thread of the gateway's reception. */
import type { ReadableStream } from "node:stream/web";
import type { Config } from "../../../config.js";
import type { ReceivingSettings } from "../settings.js";
import type { Submission } from "./arrivals.js";
import type { Reach } from "./reach.js";

export interface ReceptionThreadOptions {
  config: Pick<Config, "log_level" | "minimum_free_disk" | "upload_limit" | "state_dir">;
  settings: ReceivingSettings;
}

export type ToReception =
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

/** Something that is wrong with the reception, in the words of the conditions. */
export interface ReceptionTrouble {
  condition:
    | "dicom_port_closed"
    | "received_waiting"
    | "received_conflict"
    | "received_share_full"
    | "certificate_expires"
    | "certificate_refused";
  where: string;
  message: string;
}

export interface ReceptionFigures {
  associations: number;
  /** Since the thread began, by `dicom` and `stow`. */
  objects: Record<string, number>;
  bytes: Record<string, number>;
  /** By reason. */
  refused: Record<string, number>;
  waiting: number;
  withoutRule: number;
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

export type FromReception =
  /** Answered with the id of the job. */
  | { type: "submit"; submission: Submission }
  /** Answered with what has become of it. */
  | { type: "state"; jobId: string }
  /** Answered when the audit has its line. */
  | { type: "tell"; told: ReceptionRecord }
  | { type: "figures"; figures: ReceptionFigures };
