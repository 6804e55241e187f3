/**
 * The side that is called: negotiates an association, and answers C-ECHO, C-STORE and
 * N-EVENT-REPORT (PS3.7 sections 9.1 and 10.1).
 */
import type { Socket } from "node:net";
import { acceptedOf, Association, type DimseMessage } from "./association.js";
import { COMMANDS, RESPONSE, responseOf, STATUS, type Command } from "./command.js";
import {
  AssociationRefused,
  CONTEXT_RESULTS,
  encodeAssociateAccept,
  encodeReject,
  PDU_TYPES,
  ProtocolError,
  readAssociateRequest,
  type AnsweredContext,
  type AssociateRequest,
  type ProposedContext,
  type Rejection,
  type Roles,
} from "./pdu.js";
import { ConnectionLost, PduSocket, type PduLimits } from "./pdu-socket.js";
import { IMPLICIT_VR_LITTLE_ENDIAN } from "../../../images/dicom/transfer-syntax.js";
import {
  IMPLEMENTATION_CLASS_UID,
  IMPLEMENTATION_VERSION,
} from "../../../results/dicom/elements.js";

export const VERIFICATION = "1.2.840.10008.1.1";

/** One object that a peer sends. */
export interface Incoming {
  callingAe: string;
  calledAe: string;
  sopClassUid: string;
  sopInstanceUid: string;
  transferSyntax: string;
  /**
   * The data set, without preamble and File Meta Information; a piece holds until the next one is
   * asked for.
   */
  dataSet: AsyncIterable<Buffer>;
}

/**
 * Status of a C-STORE (PS3.4 table B.2-1), with a comment of at most 64 characters for the peer's
 * log.
 */
export interface StoreAnswer {
  status: number;
  comment?: string;
}

export interface AcceptorHandlers {
  /** Why the association is rejected; undefined if it is accepted. */
  rejection(request: AssociateRequest): Rejection | undefined;
  /**
   * The proposed transfer syntaxes that are taken for a SOP class, the best first; undefined for a
   * class that is not.
   */
  taken(sopClassUid: string, proposed: readonly string[]): readonly string[] | undefined;
  /** Resolves when the object is safe. What it throws is answered as 0xC000. */
  store(object: Incoming): Promise<StoreAnswer>;
  /**
   * Told of an object before it is refused, because its SOP class is not that of its presentation
   * context.
   */
  ofOtherClass?: (object: Incoming) => Promise<void>;
  /**
   * Takes a report of the SCP of a SOP class, which calls in that role, and says its status; absent
   * where none is taken.
   */
  event?: ((report: EventReport) => Promise<number>) | undefined;
}

/** An N-EVENT-REPORT (PS3.7 section 10.1.1). */
export interface EventReport {
  eventTypeId: number | undefined;
  transferSyntax: string;
  dataSet: AsyncIterable<Buffer>;
}

/**
 * Serves one connection until it ends.
 * @returns why it ended other than by a release; undefined after a release or where nothing was
 * said
 */
export async function serveAssociation(
  connection: Socket,
  handlers: AcceptorHandlers,
  limits: PduLimits,
): Promise<Error | undefined> {
  const socket = new PduSocket(connection, limits);
  try {
    const association = await negotiated(socket, handlers, limits);
    if (association === undefined) return undefined;
    for (;;) {
      const message = await association.receive();
      if (message === undefined) return undefined;
      await respondTo(association, message, handlers);
    }
  } catch (error) {
    if (error instanceof AssociationRefused) return error;
    if (!(error instanceof ConnectionLost)) socket.abort(error);
    if (error instanceof ProtocolError || error instanceof ConnectionLost) return error;
    throw error;
  } finally {
    socket.close();
  }
}

async function negotiated(
  socket: PduSocket,
  handlers: AcceptorHandlers,
  { mostData, pduTimeout }: PduLimits,
): Promise<Association | undefined> {
  const pdu = await socket.next(pduTimeout);
  if (pdu === undefined) return undefined;
  if (pdu.type !== PDU_TYPES.associateRequest)
    throw new ProtocolError("The connection does not begin with an association.", "unexpectedPdu");
  const request = await requestIn(socket, pdu.body);
  const rejection = handlers.rejection(request);
  if (rejection !== undefined) {
    await socket.write(encodeReject(rejection));
    return undefined;
  }
  const answers = request.contexts.map((context) => answerContext(context, handlers));
  await socket.write(
    encodeAssociateAccept({
      calledAe: request.calledAe,
      callingAe: request.callingAe,
      contexts: answers,
      roles: handlers.event === undefined ? [] : rolesOf(request),
      maximumLength: mostData,
      implementationClassUid: IMPLEMENTATION_CLASS_UID,
      implementationVersion: IMPLEMENTATION_VERSION,
    }),
  );
  return new Association(
    socket,
    request,
    acceptedOf(request.contexts, answers),
    request.maximumLength,
  );
}

/** @throws AssociationRefused, after the peer was told */
async function requestIn(socket: PduSocket, body: Buffer): Promise<AssociateRequest> {
  try {
    return readAssociateRequest(body);
  } catch (error) {
    if (error instanceof AssociationRefused) await socket.write(encodeReject(error.rejection));
    throw error;
  }
}

/** One for each SOP class that was proposed: the answer has room for those. */
const rolesOf = ({ roles, contexts }: AssociateRequest): Roles[] =>
  [...new Set(contexts.map(({ abstractSyntax }) => abstractSyntax))].flatMap(
    (uid) => roles.find(({ sopClass }) => sopClass === uid) ?? [],
  );

function answerContext(
  { id, abstractSyntax, transferSyntaxes }: ProposedContext,
  handlers: AcceptorHandlers,
): AnsweredContext {
  // Of a refused context it means nothing, and has to be there (PS3.8 section 9.3.3.2)
  const first = transferSyntaxes[0] ?? IMPLICIT_VR_LITTLE_ENDIAN;
  const taken =
    abstractSyntax === "" ? undefined : handlers.taken(abstractSyntax, transferSyntaxes);
  if (taken === undefined)
    return { id, result: CONTEXT_RESULTS.abstractSyntaxNotSupported, transferSyntax: first };
  const [transferSyntax] = taken;
  return transferSyntax === undefined
    ? { id, result: CONTEXT_RESULTS.transferSyntaxesNotSupported, transferSyntax: first }
    : { id, result: CONTEXT_RESULTS.accepted, transferSyntax };
}

async function respondTo(
  association: Association,
  message: DimseMessage,
  handlers: AcceptorHandlers,
): Promise<void> {
  const { command, context } = message;
  const respond = (more: Partial<Command>) =>
    association.send(context.id, responseOf(command, more));
  switch (command.commandField) {
    case COMMANDS.cEcho:
      return respond({ status: STATUS.success, affectedSopClassUid: VERIFICATION });
    case COMMANDS.cStore: {
      const { status, comment } = await stored(association, message, handlers);
      return respond({
        status,
        ...(comment === undefined ? {} : { errorComment: comment.slice(0, 64) }),
        ...(command.affectedSopInstanceUid === undefined
          ? {}
          : { affectedSopInstanceUid: command.affectedSopInstanceUid }),
      });
    }
    case COMMANDS.nEventReport: {
      if (handlers.event === undefined) return respond({ status: STATUS.unrecognizedOperation });
      const status = await handlers.event(eventOf(message));
      return respond({ ...eventResponse(command), status });
    }
    // It has no response, and nothing goes on here that it could end (PS3.7 section 9.3.2.3)
    case COMMANDS.cCancel:
      return;
    default:
      if ((command.commandField & RESPONSE) !== 0)
        throw new ProtocolError("A response came to no request.", "unexpectedPdu");
      return respond({ status: STATUS.unrecognizedOperation });
  }
}

async function* nothing() {}

export const eventOf = ({ command, context, dataSet = nothing() }: DimseMessage): EventReport => ({
  eventTypeId: command.eventTypeId,
  transferSyntax: context.transferSyntax,
  dataSet,
});

/** What a response to N-EVENT-REPORT has besides that of every response. */
export const eventResponse = ({
  affectedSopInstanceUid,
  eventTypeId,
}: Command): Partial<Command> => ({
  status: STATUS.success,
  ...(affectedSopInstanceUid === undefined ? {} : { affectedSopInstanceUid }),
  ...(eventTypeId === undefined ? {} : { eventTypeId }),
});

async function stored(
  { callingAe, calledAe }: Association,
  { command, context, dataSet }: DimseMessage,
  handlers: AcceptorHandlers,
): Promise<StoreAnswer> {
  const { affectedSopClassUid: sopClassUid, affectedSopInstanceUid: sopInstanceUid } = command;
  if (dataSet === undefined || sopInstanceUid === undefined || sopClassUid === undefined)
    return {
      status: STATUS.cannotUnderstand,
      comment: "The C-STORE lacks its UIDs or its data set.",
    };
  const { transferSyntax } = context;
  const object = { callingAe, calledAe, sopClassUid, sopInstanceUid, transferSyntax, dataSet };
  if (sopClassUid === context.abstractSyntax) return handlers.store(object);
  await handlers.ofOtherClass?.(object);
  return {
    status: STATUS.sopClassNotSupported,
    comment: "The SOP class is not that of the context.",
  };
}
