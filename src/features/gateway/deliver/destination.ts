/**
 * What a destination does, whatever its protocol: objects are sent to it, and read back to see that
 * they are there.
 */

import { errno } from "../../../base/errno.js";
import { Gathering } from "../../../base/gathering.js";
import { readHashed } from "../../../files/durable-files.js";
import type { AttributeChange } from "../../../results/receipt/delivery.js";

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
 * What became of sending an object. A reason may quote the peer's own words: it belongs into
 * answers and the file beside the receipt, and not into the log.
 */
export type Sent =
  /** The peer says that it has it; with the warning that came with that. */
  | { state: "stored"; warning?: string }
  /**
   * It will never take this object as it is.
   * @property syntax true where it may take it in another transfer syntax
   * @property changed true where its file has other bytes, and the destination was not asked
   */
  | { state: "refused"; reason: string; syntax?: true; changed?: true }
  /**
   * It may take it later.
   * @property answered true where the peer was there and failed with this object: a few more tries
   * are enough
   * @property full true where it has no resources for it
   * @property lost true where the connection was lost with it
   * @property local true where its own file is the cause, and the destination was not asked
   * @property untried true where it was not sent, because others have failed
   */
  | {
      state: "away";
      reason: string;
      answered?: true;
      full?: true;
      lost?: true;
      local?: true;
      untried?: true;
    };

export type Unsent =
  Extract<Sent, { state: "refused" }> | (Extract<Sent, { state: "away" }> & { local: true });

/** What was found when an object was read back. */
export type Proved =
  /**
   * @property at when, in ISO 8601
   * @property coerced keywords of attributes of the patient and the study that the peer has set
   * otherwise (PS3.4 annex B.4.1)
   */
  | {
      state: "proven";
      how: ProofBy;
      at: string;
      coerced?: string[];
      changed_by?: AttributeChange[];
    }
  /** It is not there yet, or was lost: it is looked for again, and then sent again. */
  | { state: "missing"; reason: string }
  /** Its pixels differ, or it cannot be read: it is sent again. */
  | { state: "differs"; reason: string }
  /** Attributes differ that the peer may not change: sending it again does not help. */
  | { state: "changed"; reason: string; changed_by?: AttributeChange[] }
  /** The peer does not commit to it: never, or not yet. */
  | { state: "refused" | "failed"; reason: string }
  /**
   * It may show it later.
   * @property answered true where the peer was there and failed with this object
   * @property local true where its own file is the cause, and the destination was not asked
   */
  | { state: "away"; reason: string; answered?: true; local?: true }
  | { state: "not_provable"; reason: string };

/** What a report of a commitment says of each object that it names (PS3.4 section J.3.3). */
export interface CommitmentReport {
  transaction: string;
  outcomes: ReadonlyMap<string, Proved>;
}

/** Proofs that a peer reports when it likes. */
export interface Commitments {
  /**
   * From now on reports are taken, of whatever process has asked for them; undone by the result.
   * @param take says whether the transaction is known
   */
  listen(take: (report: CommitmentReport) => boolean | Promise<boolean>): () => void;
  /** Asks for a transaction. Its report comes to whoever listens. */
  ask(
    transaction: string,
    objects: readonly ObjectToSend[],
    signal: AbortSignal,
  ): Promise<"asked" | Extract<Proved, { reason: string }>>;
}

export type ProofBy = "wado-rs" | "c-get" | "c-move" | "commitment";

export interface Destination {
  /**
   * Sends objects and tells of each once, in any order. A destination that cannot be reached is no
   * error: its objects are away. What the signal ends is away, too.
   */
  send(
    objects: readonly ObjectToSend[],
    signal: AbortSignal,
  ): AsyncIterable<[sopInstanceUid: string, Sent]>;
  /** Reads an object back and compares it with its file. */
  prove(object: ObjectToSend, signal: AbortSignal): Promise<Proved>;
  /** Where objects are not read back, but the peer is asked to commit to them. */
  readonly commitments?: Commitments | undefined;
  /** Ends what is open. */
  close(): void;
}

/**
 * Memory for one object after the other: with one for each, the collector takes longer than
 * sending.
 */
export class ReusedBuffer {
  #bytes = Buffer.alloc(0);

  /** All of it: at least so many bytes. */
  of(size: number): Buffer {
    if (size > this.#bytes.length) this.#bytes = Buffer.allocUnsafeSlow(size);
    return this.#bytes;
  }
}

/**
 * The bytes of an object's file, or why it is not sent. A file that is not there may lie on a share
 * that is away.
 * @param room that the bytes take
 */
export async function bytesToSend(
  { path, sha256: expected }: ObjectToSend,
  room = new ReusedBuffer(),
): Promise<Buffer | Unsent> {
  try {
    const found = await readHashed(path, (size) => room.of(size));
    if (found === undefined)
      return {
        state: "away",
        reason: "The file of the object is not there, or is not a plain file.",
        local: true,
      };
    if (found.sha256 === expected) return found.bytes;
    return {
      state: "refused",
      reason: "The file of the object has other bytes than were committed.",
      changed: true,
    };
  } catch (error) {
    const reason = `The file of the object cannot be read (${errno(error)}).`;
    return { state: "away", reason, local: true };
  }
}

export const NOT_ASKED = "The settings of the destination ask for no proof.";

/**
 * Milliseconds for which a peer may be silent: it may read all that it was sent before it answers,
 * and the largest structure sets take Orthanc two seconds for each megabyte.
 */
export const patience = ({ timeout }: { timeout: number }, bytes: number): number =>
  1000 * timeout + bytes / 200;

/** What is kept of an object that is read back, at most: a peer may have decompressed it. */
export const mostReadBack = (sent: Buffer): number => 4 * sent.length + 256 * 1024 * 1024;

/**
 * What was read back, piece by piece, each of which holds until the next one is asked for. @throws
 * Error where it is longer than `most` bytes
 */
export async function gathered(pieces: AsyncIterable<Uint8Array>, most: number): Promise<Buffer> {
  const found = new Gathering();
  for await (const piece of pieces) {
    if (found.bytes.length + piece.length > most)
      throw new Error("The peer sends more than belongs to the object.");
    found.add(piece);
  }
  return found.bytes;
}
