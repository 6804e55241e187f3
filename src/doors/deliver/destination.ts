/** What a destination does, whatever its protocol: objects are sent to it, and read back to see that they are there. */

export interface ObjectToSend {
  path: string;
  sop_class_uid: string;
  sop_instance_uid: string;
  study_instance_uid: string;
  series_instance_uid: string;
  transfer_syntax_uid: string;
  /** Of the whole file, hex; a file with other bytes is not sent. */
  sha256: string;
}

/**
 * What became of sending an object. A reason may quote the peer's own words: it belongs into answers and the file beside the
 * receipt, and not into the log.
 */
export type Sent =
  /** The peer says that it has it; with the warning that came with that. */
  | { state: "stored"; warning?: string }
  /** It will never take this object as it is. */
  | { state: "refused"; reason: string }
  /**
   * It may take it later.
   * @property answered true where the peer was there and failed with this object: a few more tries are enough
   */
  | { state: "away"; reason: string; answered?: true };

/** What was found when an object was read back. */
export type Proved =
  /**
   * @property at when, in ISO 8601
   * @property coerced keywords of attributes of the patient and the study that the peer has set otherwise (PS3.4 annex B.4.1)
   */
  | { state: "proven"; how: ProofBy; at: string; coerced?: string[] }
  | { state: "differs" | "missing"; reason: string }
  | { state: "away" | "not_provable"; reason: string };

export type ProofBy = "wado-rs" | "c-get" | "c-move" | "commitment";

export interface Destination {
  /**
   * Sends objects and tells of each once, in any order. A destination that cannot be reached is no error: its objects are
   * away. What the signal ends is away, too.
   */
  send(objects: readonly ObjectToSend[], signal: AbortSignal): AsyncIterable<[sopInstanceUid: string, Sent]>;
  /** Reads an object back and compares it with its file. */
  prove(object: ObjectToSend, signal: AbortSignal): Promise<Proved>;
  /** Ends what is open. */
  close(): void;
}
