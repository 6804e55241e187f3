/**
 * PDUs over a connection: one is read when it is asked for, so that a peer which sends faster than
 * its data are used waits in TCP, and memory holds one PDU of each connection. All of them take the
 * same memory one after the other: with new memory for each, V8 collects the thread's heap for
 * every few objects, which takes longer than all else.
 */
import type { Socket } from "node:net";
import { release } from "../../../addon/bytes.js";
import { ABORT_REASONS, encodeAbort, PDU_TYPES, ProtocolError } from "./pdu.js";

/**
 * Bytes of an association's PDU: 128 presentation contexts with forty transfer syntaxes each stay
 * below.
 */
const MOST_ASSOCIATION_BYTES = 1024 * 1024;
/** Bytes of the PDUs that carry four bytes. */
const MOST_OTHER_BYTES = 64;

const NOTHING = Buffer.alloc(0);

/** The connection ended, or the peer aborted or took too long: no answer can reach it. */
export class ConnectionLost extends Error {}

/** Nothing came for too long where something may come or not: nothing is missing. */
export class PeerIdle extends ConnectionLost {}

export interface Pdu {
  type: number;
  /** Until the next one is asked for. */
  body: Buffer;
}

export interface PduLimits {
  /** Bytes of a P-DATA-TF, its header left out, that the peer was told. */
  mostData: number;
  /** Milliseconds in which a PDU has to come whole, or to be taken by the peer. */
  pduTimeout: number;
  /** Milliseconds in which the next PDU has to begin. */
  idleTimeout: number;
}

export class PduSocket {
  /** What the connection gave last, and how much of it was used. */
  #given: Buffer = NOTHING;
  #used = 0;
  #room = NOTHING;
  #wake: () => void = () => undefined;
  #fault: Error | undefined;

  constructor(
    private readonly socket: Socket,
    readonly limits: PduLimits,
  ) {
    socket.setNoDelay(true);
    socket.on("error", (error) => (this.#fault ??= error));
    for (const event of ["readable", "end", "close", "error", "drain"])
      socket.on(event, () => this.#wake());
  }

  /**
   * The next PDU; undefined where the peer closed the connection between two.
   * @param idleTimeout in place of that of the limits
   * @throws ProtocolError for one that is unknown or too long; ConnectionLost
   */
  async next(idleTimeout = this.limits.idleTimeout): Promise<Pdu | undefined> {
    const header = await this.#read(6, idleTimeout, PeerIdle);
    if (header === undefined) return undefined;
    const type = header.readUInt8(0);
    const length = header.readUInt32BE(2);
    if (length > this.#most(type))
      throw new ProtocolError(`A PDU of type ${type} has ${length} bytes.`, "invalidParameter");
    const body = await this.#read(length, this.limits.pduTimeout);
    if (body === undefined) throw new ConnectionLost("The connection ended inside a PDU.");
    return { type, body };
  }

  #most(type: number): number {
    switch (type) {
      case PDU_TYPES.associateRequest:
      case PDU_TYPES.associateAccept:
        return MOST_ASSOCIATION_BYTES;
      case PDU_TYPES.data:
        return this.limits.mostData;
      case PDU_TYPES.associateReject:
      case PDU_TYPES.releaseRequest:
      case PDU_TYPES.releaseResponse:
      case PDU_TYPES.abort:
        return MOST_OTHER_BYTES;
      default:
        throw new ProtocolError(`A PDU has the unknown type ${type}.`, "unrecognizedPdu");
    }
  }

  /**
   * Exactly so many bytes, until it is called again; undefined where the connection ended before
   * the first.
   * @param Silent what is thrown where not even the first comes in time
   */
  async #read(
    length: number,
    timeout: number,
    Silent = ConnectionLost,
  ): Promise<Buffer | undefined> {
    if (length > this.#room.length) this.#room = Buffer.allocUnsafeSlow(length);
    const bytes = this.#room.subarray(0, length);
    let filled = 0;
    await this.#awaited(() => {
      while (filled < length) {
        if (this.#used === this.#given.length && !this.#more()) return this.#ended() || undefined;
        const copied = this.#given.copy(bytes, filled, this.#used);
        this.#used += copied;
        filled += copied;
      }
      return true;
    }, timeout).catch((error: unknown) => {
      throw filled === 0 && error instanceof ConnectionLost ? new Silent(error.message) : error;
    });
    if (filled === length) return bytes;
    if (this.#fault !== undefined) throw new ConnectionLost(this.#fault.message);
    if (filled > 0) throw new ConnectionLost("The connection ended inside a PDU.");
    return undefined;
  }

  /** Takes what has come, and frees what came before; false where nothing has. */
  #more(): boolean {
    release(this.#given);
    this.#given = (this.socket.read() as Buffer | null) ?? NOTHING;
    this.#used = 0;
    return this.#given.length > 0;
  }

  #ended(): boolean {
    return this.socket.readableEnded || this.socket.destroyed;
  }

  /** Sends the bytes, and waits while the peer does not take them. */
  async write(...parts: readonly Uint8Array[]): Promise<void> {
    if (this.socket.destroyed) throw new ConnectionLost("The connection has ended.");
    this.socket.cork();
    for (const part of parts) this.socket.write(part);
    this.socket.uncork();
    await this.#awaited(
      () => (this.socket.writableNeedDrain && !this.socket.destroyed ? undefined : true),
      this.limits.pduTimeout,
    );
    if (this.#ended())
      throw new ConnectionLost(this.#fault?.message ?? "The connection has ended.");
  }

  /**
   * What `get` gives, as soon as it gives something: it is asked at each event of the connection.
   */
  async #awaited<T>(get: () => T | undefined, timeout: number): Promise<T> {
    const now = get();
    if (now !== undefined) return now;
    return new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#wake = () => undefined;
        this.socket.destroy();
        reject(new ConnectionLost("The peer took too long."));
      }, timeout);
      this.#wake = () => {
        const found = get();
        if (found === undefined) return;
        this.#wake = () => undefined;
        clearTimeout(timer);
        resolve(found);
      };
    });
  }

  /** Aborts the association, with the reason of a ProtocolError, and closes the connection. */
  abort(error?: unknown): void {
    if (this.socket.destroyed) return;
    const reason = error instanceof ProtocolError ? error.reason : ABORT_REASONS.notSpecified;
    this.socket.end(encodeAbort(!(error instanceof ProtocolError), reason));
    this.socket.destroySoon();
  }

  /** Closes the connection when what was written has gone. */
  close(): void {
    this.socket.destroySoon();
  }
}
