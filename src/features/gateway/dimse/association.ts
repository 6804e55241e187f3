/**
 * An association (PS3.7, PS3.8 section 7): messages, each a command and perhaps a data set, in and
 * out.
 */
import { Gathering } from "../../../base/gathering.js";
import { encodeCommand, NO_DATA_SET, readCommand, type Command } from "./command.js";
import {
  CONTEXT_RESULTS,
  dataHeader,
  encodeRelease,
  PDU_TYPES,
  ProtocolError,
  readData,
  type AnsweredContext,
  type DataValue,
  type ProposedContext,
} from "./pdu.js";
import { ConnectionLost, PeerIdle, type Pdu, type PduSocket } from "./pdu-socket.js";

/** Bytes of a command, of which the largest have a few hundred. */
const MOST_COMMAND_BYTES = 64 * 1024;
/**
 * Bytes a second that a message has to bring while this side waits for it, beside the time in which
 * the next PDU has to begin: fragments without bytes are no sign of life.
 */
const LEAST_RATE = 1024;
/** Bytes of a fragment to a peer that takes any length. */
const USUAL_FRAGMENT = 128 * 1024;
/** Bytes that are written together: the peer has the time of a PDU to take them. */
const MOST_AT_ONCE = 512 * 1024;

export interface AcceptedContext {
  id: number;
  abstractSyntax: string;
  transferSyntax: string;
}

export interface DimseMessage {
  context: AcceptedContext;
  command: Command;
  /**
   * The fragments of the data set, once, each until the next one is asked for; what is not taken is
   * skipped by the next receive().
   */
  dataSet: AsyncIterableIterator<Buffer> | undefined;
}

export class Association {
  readonly callingAe: string;
  readonly calledAe: string;
  readonly contexts: ReadonlyMap<number, AcceptedContext>;
  readonly #fragment: number;
  #values: DataValue[] = [];
  #unread: AsyncIterableIterator<Buffer> | undefined;
  #released = false;
  /** Where a message may begin, or the association end. */
  #isBetween = true;
  /** Milliseconds that this side has waited for the message that comes, and its bytes. */
  #waited = 0;
  #came = 0;

  /** @param peerMaximum bytes of a P-DATA-TF that the peer takes; 0 for any */
  constructor(
    private readonly socket: PduSocket,
    { callingAe, calledAe }: { callingAe: string; calledAe: string },
    contexts: readonly AcceptedContext[],
    peerMaximum: number,
  ) {
    this.callingAe = callingAe;
    this.calledAe = calledAe;
    this.contexts = new Map(contexts.map((context) => [context.id, context]));
    const most = peerMaximum === 0 ? USUAL_FRAGMENT : Math.min(peerMaximum - 6, USUAL_FRAGMENT);
    // Fragments have an even number of bytes, so that no element of two bytes is cut
    this.#fragment = Math.max(2, most - (most % 2));
  }

  /**
   * The next message; undefined when the peer has released the association.
   * @throws ProtocolError; ConnectionLost, as PeerIdle where no message had begun
   */
  async receive(): Promise<DimseMessage | undefined> {
    if (this.#unread !== undefined) while ((await this.#unread.next()).done !== true);
    this.#unread = undefined;
    [this.#waited, this.#came] = [0, 0];
    this.#isBetween = true;
    const first = await this.#value();
    this.#isBetween = false;
    if (first === undefined) return undefined;
    const context = this.contexts.get(first.contextId);
    if (context === undefined)
      throw new ProtocolError("A message has a presentation context that was not accepted.");
    const command = readCommand(await this.#command(first));
    const dataSet = command.dataSetType === NO_DATA_SET ? undefined : this.#dataSet(context.id);
    this.#unread = dataSet;
    return { context, command, dataSet };
  }

  async #command(first: DataValue): Promise<Buffer> {
    const fragments = new Gathering();
    for (let value: DataValue | undefined = first; ; value = await this.#value()) {
      if (value?.command !== true || value.contextId !== first.contextId)
        throw new ProtocolError("A command is interrupted.", "unexpectedPdu");
      fragments.add(value.data);
      if (fragments.bytes.length > MOST_COMMAND_BYTES)
        throw new ProtocolError("A command is too long.");
      if (value.last) return fragments.bytes;
    }
  }

  async *#dataSet(contextId: number): AsyncIterableIterator<Buffer> {
    for (;;) {
      const value = await this.#value();
      if (value === undefined || value.command || value.contextId !== contextId)
        throw new ProtocolError("A data set is interrupted.", "unexpectedPdu");
      // Nothing bounds how many come without bytes
      if (value.data.length > 0) yield value.data as Buffer;
      if (value.last) return;
    }
  }

  /** The next presentation data value; undefined after the release. */
  async #value(): Promise<DataValue | undefined> {
    while (this.#values.length === 0) {
      if (this.#released) return undefined;
      const pdu = await this.#next();
      if (pdu === undefined)
        throw new ConnectionLost("The peer closed the connection without a release.");
      if (pdu.type === PDU_TYPES.abort)
        throw new ConnectionLost("The peer aborted the association.");
      if (pdu.type === PDU_TYPES.data) {
        this.#values = readData(pdu.body);
        for (const { data } of this.#values) this.#came += data.length;
      } else if (pdu.type === PDU_TYPES.releaseRequest) {
        this.#released = true;
        // Some peers do not wait for the answer
        await this.socket.write(encodeRelease("releaseResponse")).catch((error: unknown) => {
          if (!(error instanceof ConnectionLost)) throw error;
        });
        this.socket.close();
      } else
        throw new ProtocolError(
          `A PDU of type ${pdu.type} comes where data were expected.`,
          "unexpectedPdu",
        );
    }
    return this.#values.shift();
  }

  /** The next PDU, as long as the message that it is of comes fast enough. */
  async #next(): Promise<Pdu | undefined> {
    const { idleTimeout } = this.socket.limits;
    const patience = idleTimeout + (1000 * this.#came) / LEAST_RATE - this.#waited;
    if (patience <= 0) throw new ConnectionLost("The peer sends a message too slowly.");
    const began = performance.now();
    const pdu = await this.socket.next(Math.min(idleTimeout, patience)).catch((error: unknown) => {
      throw error instanceof PeerIdle && !this.#isBetween
        ? new ConnectionLost(error.message)
        : error;
    });
    this.#waited += performance.now() - began;
    return pdu;
  }

  /**
   * @param dataSet its bytes in the context's transfer syntax, in pieces of any length, which stay
   * as they are until this resolves
   */
  async send(
    contextId: number,
    command: Command,
    dataSet?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<void> {
    const written: Uint8Array[] = [];
    let bytes = 0;
    const add = (value: DataValue) => {
      written.push(dataHeader(value), value.data);
      bytes += value.data.length;
    };
    const sent = () => {
      bytes = 0;
      return this.socket.write(...written.splice(0));
    };
    for (const [isCommand, pieces] of [
      [true, [encodeCommand(command)]],
      [false, dataSet],
    ] as const) {
      // A fragment is held back, because the last one is marked
      let held: Uint8Array | undefined;
      for await (const piece of pieces ?? [])
        for (let at = 0; at < piece.length; at += this.#fragment) {
          if (held !== undefined) add({ contextId, command: isCommand, last: false, data: held });
          if (bytes >= MOST_AT_ONCE) await sent();
          held = piece.subarray(at, at + this.#fragment);
        }
      if (pieces !== undefined)
        add({ contextId, command: isCommand, last: true, data: held ?? new Uint8Array(0) });
    }
    await sent();
  }

  /** Ends the association in order. Throws ConnectionLost where the peer does not answer. */
  async release(): Promise<void> {
    await this.socket.write(encodeRelease("releaseRequest"));
    for (;;) {
      const pdu = await this.socket.next();
      if (pdu === undefined || pdu.type === PDU_TYPES.abort)
        throw new ConnectionLost("The peer did not answer the release.");
      if (pdu.type === PDU_TYPES.releaseResponse) break;
    }
    this.socket.close();
  }

  abort(): void {
    this.socket.abort();
  }
}

/** The contexts that both sides know: proposed by one, accepted by the other. */
export function acceptedOf(
  proposals: readonly ProposedContext[],
  answers: readonly AnsweredContext[],
): AcceptedContext[] {
  return answers.flatMap(({ id, result, transferSyntax }) => {
    const proposal = proposals.find((one) => one.id === id);
    if (result !== CONTEXT_RESULTS.accepted || proposal === undefined) return [];
    if (!proposal.transferSyntaxes.includes(transferSyntax))
      throw new ProtocolError(
        "A presentation context was accepted with a transfer syntax that was not proposed.",
      );
    return [{ id, abstractSyntax: proposal.abstractSyntax, transferSyntax }];
  });
}
