/**
 * The side that calls: asks for an association, and sends C-ECHO, C-STORE, C-GET, C-MOVE and
 * N-ACTION over it (PS3.7 sections 9.1 and 10.1).
 */
import { addAbortListener } from "node:events";
import { connect as connectPlain, type Socket } from "node:net";
import { connect as connectTls, type ConnectionOptions } from "node:tls";
import {
  IMPLEMENTATION_CLASS_UID,
  IMPLEMENTATION_VERSION,
} from "../../../results/dicom/elements.js";
import { eventOf, eventResponse, type EventReport } from "./acceptor.js";
import { acceptedOf, Association, type AcceptedContext, type DimseMessage } from "./association.js";
import { COMMANDS, NO_DATA_SET, RESPONSE, responseOf, STATUS, type Command } from "./command.js";
import {
  encodeAssociateRequest,
  PDU_TYPES,
  ProtocolError,
  readAssociateAccept,
  readReject,
  type AssociateRequest,
  type Rejection,
  type Roles,
} from "./pdu.js";
import { ConnectionLost, PduSocket, type PduLimits } from "./pdu-socket.js";

/** Message IDs have two bytes. */
const MESSAGE_IDS = 0x10000;
/** More presentation contexts than odd ids cannot be proposed. */
export const MOST_CONTEXTS = 128;
/** Priority of a C-STORE or C-GET: medium (PS3.7 section 9.3.1.1). */
const MEDIUM = 0;

export interface PeerAddress {
  host: string;
  port: number;
  /** TLS as Node's tls.connect takes it; absent for a plain connection. */
  tls?: ConnectionOptions;
}

/** The peer rejected the association: what it said, in words (PS3.8 table 9-21). */
export class AssociationRejected extends Error {
  /** Whether the same may succeed later. */
  readonly transient: boolean;

  constructor(rejection: Rejection) {
    super(rejectionText(rejection));
    this.transient = rejection.result === 2;
  }
}

const REASONS: ReadonlyMap<string, string> = new Map([
  ["1.1", "no reason given"],
  ["1.2", "application context name not supported"],
  ["1.3", "calling AE title not recognized"],
  ["1.7", "called AE title not recognized"],
  ["2.1", "no reason given"],
  ["2.2", "protocol version not supported"],
  ["3.1", "temporary congestion"],
  ["3.2", "local limit exceeded"],
]);

function rejectionText({ result, source, reason }: Rejection): string {
  const why = REASONS.get(`${source}.${reason}`) ?? `source ${source}, reason ${reason}`;
  return `The association was rejected ${result === 2 ? "for now" : "permanently"}: ${why}.`;
}

export interface AssociationOptions extends PduLimits {
  callingAe: string;
  calledAe: string;
  /** At most 128. */
  contexts: readonly { abstractSyntax: string; transferSyntaxes: readonly string[] }[];
  roles?: readonly Roles[];
  /** Ends the association at once. */
  signal?: AbortSignal;
}

/** A status of a response, and the peer's comment where it gave one. */
export interface CallAnswer {
  status: number;
  comment: string | undefined;
}

/** One object that goes out, in the transfer syntax of one of the association's contexts. */
export interface Outgoing {
  sopClassUid: string;
  sopInstanceUid: string;
  transferSyntax: string;
  dataSet: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

/**
 * Opens an association.
 * @throws AssociationRejected, ProtocolError, ConnectionLost
 */
export async function call(
  address: PeerAddress,
  options: AssociationOptions,
): Promise<CallingAssociation> {
  const connection = await connected(address, options);
  const socket = new PduSocket(connection, options);
  const request: AssociateRequest = {
    callingAe: options.callingAe,
    calledAe: options.calledAe,
    roles: options.roles ?? [],
    maximumLength: options.mostData,
    implementationClassUid: IMPLEMENTATION_CLASS_UID,
    implementationVersion: IMPLEMENTATION_VERSION,
    contexts: options.contexts
      .slice(0, MOST_CONTEXTS)
      .map((context, i) => ({ ...context, id: 2 * i + 1 })),
  };
  try {
    await socket.write(encodeAssociateRequest(request));
    const pdu = await socket.next();
    if (pdu === undefined)
      throw new ConnectionLost("The peer closed the connection without an answer.");
    if (pdu.type === PDU_TYPES.associateReject) throw new AssociationRejected(readReject(pdu.body));
    if (pdu.type === PDU_TYPES.abort) throw new ConnectionLost("The peer aborted the association.");
    if (pdu.type !== PDU_TYPES.associateAccept)
      throw new ProtocolError("The peer does not answer the association.", "unexpectedPdu");
    const accept = readAssociateAccept(pdu.body);
    const contexts = acceptedOf(request.contexts, accept.contexts);
    return new CallingAssociation(new Association(socket, request, contexts, accept.maximumLength));
  } catch (error) {
    if (error instanceof AssociationRejected || error instanceof ConnectionLost) socket.close();
    else socket.abort(error);
    throw error;
  }
}

function connected(
  { host, port, tls }: PeerAddress,
  { idleTimeout: timeout, signal }: Pick<AssociationOptions, "idleTimeout" | "signal">,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket =
      tls === undefined ? connectPlain({ host, port }) : connectTls({ ...tls, host, port });
    if (signal !== undefined) {
      const listening = addAbortListener(signal, () =>
        socket.destroy(new Error("It was interrupted.")),
      );
      socket.once("close", () => listening[Symbol.dispose]());
    }
    const failed = (error: Error) => {
      clearTimeout(timer);
      socket.destroy();
      reject(new ConnectionLost(error.message));
    };
    const timer = setTimeout(() => failed(new Error("The peer took too long.")), timeout);
    socket.once("error", failed);
    socket.once(tls === undefined ? "connect" : "secureConnect", () => {
      clearTimeout(timer);
      socket.off("error", failed);
      resolve(socket);
    });
  });
}

/** An association that this side has opened. One operation goes on at a time. */
export class CallingAssociation {
  #lastId = 0;

  constructor(private readonly association: Association) {}

  /** The accepted context of a SOP class, in that transfer syntax where one is named. */
  contextOf(abstractSyntax: string, transferSyntax?: string): AcceptedContext | undefined {
    return [...this.association.contexts.values()].find(
      (context) =>
        context.abstractSyntax === abstractSyntax &&
        (transferSyntax === undefined || context.transferSyntax === transferSyntax),
    );
  }

  /** C-ECHO: whether the peer is there and speaks DICOM. */
  async echo(context: AcceptedContext): Promise<CallAnswer> {
    const affectedSopClassUid = context.abstractSyntax;
    const messageId = await this.#send(context, {
      commandField: COMMANDS.cEcho,
      affectedSopClassUid,
    });
    return answerOf(await this.#response(messageId, COMMANDS.cEcho));
  }

  /** C-STORE. Throws ProtocolError where no context fits the object. */
  async store({
    sopClassUid,
    sopInstanceUid,
    transferSyntax,
    dataSet,
  }: Outgoing): Promise<CallAnswer> {
    const context = this.contextOf(sopClassUid, transferSyntax);
    if (context === undefined)
      throw new ProtocolError("No accepted presentation context fits the object.");
    const messageId = await this.#send(
      context,
      {
        commandField: COMMANDS.cStore,
        priority: MEDIUM,
        affectedSopClassUid: sopClassUid,
        affectedSopInstanceUid: sopInstanceUid,
      },
      dataSet,
    );
    return answerOf(await this.#response(messageId, COMMANDS.cStore));
  }

  /**
   * C-GET: the peer sends the objects that the identifier names as C-STORE over this association.
   * @param identifier the data set of the request, in the context's transfer syntax
   * @param take is given each object, and has to use its data set before it resolves
   */
  async get(
    context: AcceptedContext,
    identifier: Uint8Array,
    take: (object: Outgoing & { dataSet: AsyncIterable<Buffer> }) => Promise<void>,
  ): Promise<CallAnswer> {
    const affectedSopClassUid = context.abstractSyntax;
    const get = { commandField: COMMANDS.cGet, priority: MEDIUM, affectedSopClassUid };
    const messageId = await this.#send(context, get, [identifier]);
    for (;;) {
      const message = await this.#receive();
      if (message.command.commandField === COMMANDS.cStore) {
        await this.#takeOne(message, take);
        continue;
      }
      const answer = answerOf(responseTo(message, messageId, COMMANDS.cGet));
      if (answer.status !== STATUS.pending) return answer;
    }
  }

  /**
   * C-MOVE: the peer sends the objects that the identifier names to the AE title `moveDestination`,
   * whose address it knows.
   * @param identifier as `get` takes it
   */
  async move(
    context: AcceptedContext,
    moveDestination: string,
    identifier: Uint8Array,
  ): Promise<CallAnswer> {
    const affectedSopClassUid = context.abstractSyntax;
    const move = {
      commandField: COMMANDS.cMove,
      priority: MEDIUM,
      affectedSopClassUid,
      moveDestination,
    };
    const messageId = await this.#send(context, move, [identifier]);
    for (;;) {
      const answer = answerOf(await this.#response(messageId, COMMANDS.cMove));
      if (answer.status !== STATUS.pending) return answer;
    }
  }

  /**
   * N-ACTION on an instance of the context's SOP class.
   * @param dataSet in the context's transfer syntax
   * @param take is given reports that come before the response
   */
  async action(
    context: AcceptedContext,
    requestedSopInstanceUid: string,
    actionTypeId: number,
    dataSet: Uint8Array,
    take: (report: EventReport) => Promise<void>,
  ): Promise<CallAnswer> {
    const requestedSopClassUid = context.abstractSyntax;
    const action = {
      commandField: COMMANDS.nAction,
      requestedSopClassUid,
      requestedSopInstanceUid,
      actionTypeId,
    };
    const messageId = await this.#send(context, action, [dataSet]);
    for (;;) {
      const message = await this.#receive();
      if (message.command.commandField !== COMMANDS.nEventReport)
        return answerOf(responseTo(message, messageId, COMMANDS.nAction));
      await this.#answerReport(message, take);
    }
  }

  /** The next N-EVENT-REPORT over this association, which is answered when `take` has resolved. */
  async event(take: (report: EventReport) => Promise<void>): Promise<void> {
    const message = await this.#receive();
    if (message.command.commandField !== COMMANDS.nEventReport)
      throw new ProtocolError("Something else than a report came.", "unexpectedPdu");
    await this.#answerReport(message, take);
  }

  async #answerReport(
    message: DimseMessage,
    take: (report: EventReport) => Promise<void>,
  ): Promise<void> {
    const { command, context } = message;
    await take(eventOf(message));
    await this.association.send(context.id, responseOf(command, eventResponse(command)));
  }

  async #takeOne(
    { command, context, dataSet }: DimseMessage,
    take: (object: Outgoing & { dataSet: AsyncIterable<Buffer> }) => Promise<void>,
  ): Promise<void> {
    const { affectedSopClassUid, affectedSopInstanceUid } = command;
    if (
      dataSet === undefined ||
      affectedSopClassUid === undefined ||
      affectedSopInstanceUid === undefined
    )
      throw new ProtocolError("A C-STORE lacks its UIDs or its data set.");
    await take({
      sopClassUid: affectedSopClassUid,
      sopInstanceUid: affectedSopInstanceUid,
      dataSet,
      transferSyntax: context.transferSyntax,
    });
    const response = responseOf(command, { status: STATUS.success, affectedSopInstanceUid });
    await this.association.send(context.id, response);
  }

  async #send(
    { id }: AcceptedContext,
    command: Omit<Command, "messageId" | "dataSetType">,
    dataSet?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<number> {
    this.#lastId = (this.#lastId + 1) % MESSAGE_IDS;
    const dataSetType = dataSet === undefined ? NO_DATA_SET : 0;
    const whole = { ...command, messageId: this.#lastId, dataSetType } as Command;
    await this.association.send(id, whole, dataSet);
    return this.#lastId;
  }

  async #receive(): Promise<DimseMessage> {
    const message = await this.association.receive();
    if (message === undefined)
      throw new ConnectionLost("The peer released the association before it answered.");
    return message;
  }

  async #response(messageId: number, commandField: number): Promise<Command> {
    return responseTo(await this.#receive(), messageId, commandField);
  }

  release(): Promise<void> {
    return this.association.release();
  }

  abort(): void {
    this.association.abort();
  }
}

function responseTo({ command }: DimseMessage, messageId: number, commandField: number): Command {
  if (
    command.commandField !== (commandField | RESPONSE) ||
    command.messageIdRespondedTo !== messageId
  )
    throw new ProtocolError("The response is not to the request that was sent.", "unexpectedPdu");
  return command;
}

function answerOf({ status, errorComment }: Command): CallAnswer {
  if (status === undefined) throw new ProtocolError("The response has no Status.");
  return { status, comment: errorComment };
}
