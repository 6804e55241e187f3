/**
 * Protocol data units of the DICOM upper layer (PS3.8 section 9.3): bytes to typed values and back.
 * What comes from a peer is checked against its own lengths; nothing here reads beyond the PDU that
 * was given.
 */
import { withoutEnd } from "../../../base/ends.js";
import { PADDING } from "../../../images/dicom/value-forms.js";

/** The DICOM application context (PS3.7 annex A.2.1); there is no other. */
const APPLICATION_CONTEXT = "1.2.840.10008.3.1.1.1";

export const PDU_TYPES = {
  associateRequest: 1,
  associateAccept: 2,
  associateReject: 3,
  data: 4,
  releaseRequest: 5,
  releaseResponse: 6,
  abort: 7,
} as const;

const ITEMS = {
  applicationContext: 0x10,
  contextRequest: 0x20,
  contextAccept: 0x21,
  abstractSyntax: 0x30,
  transferSyntax: 0x40,
  userInformation: 0x50,
  maximumLength: 0x51,
  implementationClass: 0x52,
  roles: 0x54,
  implementationVersion: 0x55,
} as const;

/** Reasons of an A-ABORT by the service provider (PS3.8 table 9-26). */
export const ABORT_REASONS = {
  notSpecified: 0,
  unrecognizedPdu: 1,
  unexpectedPdu: 2,
  unexpectedParameter: 5,
  invalidParameter: 6,
} as const;

/** A peer broke the protocol: the association is aborted with this reason. */
export class ProtocolError extends Error {
  readonly reason: number;

  constructor(message: string, reason: keyof typeof ABORT_REASONS = "invalidParameter") {
    super(message);
    this.reason = ABORT_REASONS[reason];
  }
}

/** Result of a presentation context (PS3.8 table 9-18). */
export const CONTEXT_RESULTS = {
  accepted: 0,
  userRejection: 1,
  noReason: 2,
  abstractSyntaxNotSupported: 3,
  transferSyntaxesNotSupported: 4,
} as const;

export interface ProposedContext {
  /** Odd, 1 to 255. */
  id: number;
  abstractSyntax: string;
  transferSyntaxes: readonly string[];
}

export interface AnsweredContext {
  id: number;
  result: number;
  transferSyntax: string;
}

/** The roles of the requestor for a SOP class (PS3.7 D.3.3.4). */
export interface Roles {
  sopClass: string;
  scu: boolean;
  scp: boolean;
}

interface Parties {
  calledAe: string;
  callingAe: string;
  /** Bytes of a P-DATA-TF that this side takes, its header left out; 0 for any. */
  maximumLength: number;
  implementationClassUid: string;
  implementationVersion: string;
  roles: readonly Roles[];
}

export interface AssociateRequest extends Parties {
  contexts: readonly ProposedContext[];
}

export interface AssociateAccept extends Parties {
  contexts: readonly AnsweredContext[];
}

/** Result, source and reason of a rejection (PS3.8 table 9-21). */
export interface Rejection {
  result: number;
  source: number;
  reason: number;
}

/** Rejections of what is no association of this protocol (PS3.8 table 9-21). */
const REFUSED = {
  protocolVersion: { result: 1, source: 2, reason: 2 },
  applicationContext: { result: 1, source: 1, reason: 2 },
} as const satisfies Record<string, Rejection>;

/** A well-formed request that has to be rejected, whoever sends it. */
export class AssociationRefused extends Error {
  constructor(readonly rejection: Rejection) {
    super(
      rejection === REFUSED.protocolVersion
        ? "The peer does not speak protocol version 1."
        : "The application context is not DICOM's.",
    );
  }
}

/** A presentation data value: a fragment of a command or of a data set (PS3.8 annex E.2). */
export interface DataValue {
  contextId: number;
  command: boolean;
  last: boolean;
  data: Uint8Array;
}

const COMMAND_BIT = 1;
const LAST_BIT = 2;
const AE_LENGTH = 16;
/** Protocol version, two titles, and what is reserved. */
const FIXED_LENGTH = 68;

const pdu = (type: number, body: Buffer): Buffer => {
  const header = Buffer.alloc(6);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(body.length, 2);
  return Buffer.concat([header, body]);
};

const item = (type: number, ...parts: readonly Buffer[]): Buffer => {
  const body = Buffer.concat(parts);
  const header = Buffer.from([type, 0, 0, 0]);
  header.writeUInt16BE(body.length, 2);
  return Buffer.concat([header, body]);
};

const text = (type: number, value: string): Buffer => item(type, Buffer.from(value, "latin1"));

function uint16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

function roleItem({ sopClass, scu, scp }: Roles): Buffer {
  const uid = Buffer.from(sopClass, "latin1");
  return item(ITEMS.roles, uint16(uid.length), uid, Buffer.from([Number(scu), Number(scp)]));
}

function associate(type: number, parties: Parties, contexts: readonly Buffer[]): Buffer {
  const {
    calledAe,
    callingAe,
    maximumLength,
    implementationClassUid,
    implementationVersion,
    roles,
  } = parties;
  const titles = [calledAe, callingAe].map((title) =>
    Buffer.from(title.padEnd(AE_LENGTH), "latin1"),
  );
  return pdu(
    type,
    Buffer.concat([
      uint16(1),
      Buffer.alloc(2),
      ...titles,
      Buffer.alloc(32),
      text(ITEMS.applicationContext, APPLICATION_CONTEXT),
      ...contexts,
      item(
        ITEMS.userInformation,
        item(ITEMS.maximumLength, uint32(maximumLength)),
        text(ITEMS.implementationClass, implementationClassUid),
        ...roles.map(roleItem),
        text(ITEMS.implementationVersion, implementationVersion),
      ),
    ]),
  );
}

export function encodeAssociateRequest(request: AssociateRequest): Buffer {
  const contexts = request.contexts.map(({ id, abstractSyntax, transferSyntaxes }) =>
    item(
      ITEMS.contextRequest,
      Buffer.from([id, 0, 0, 0]),
      text(ITEMS.abstractSyntax, abstractSyntax),
      ...transferSyntaxes.map((uid) => text(ITEMS.transferSyntax, uid)),
    ),
  );
  return associate(PDU_TYPES.associateRequest, request, contexts);
}

export function encodeAssociateAccept(accept: AssociateAccept): Buffer {
  const contexts = accept.contexts.map(({ id, result, transferSyntax }) =>
    item(
      ITEMS.contextAccept,
      Buffer.from([id, 0, result, 0]),
      text(ITEMS.transferSyntax, transferSyntax),
    ),
  );
  return associate(PDU_TYPES.associateAccept, accept, contexts);
}

export const encodeReject = ({ result, source, reason }: Rejection): Buffer =>
  pdu(PDU_TYPES.associateReject, Buffer.from([0, result, source, reason]));

export const encodeRelease = (type: "releaseRequest" | "releaseResponse"): Buffer =>
  pdu(PDU_TYPES[type], Buffer.alloc(4));

/** @param byUser false where the protocol was broken, which `reason` names then */
export const encodeAbort = (byUser: boolean, reason = 0): Buffer =>
  pdu(PDU_TYPES.abort, Buffer.from([0, 0, byUser ? 0 : 2, byUser ? 0 : reason]));

/**
 * The header of a P-DATA-TF with one value; its data follows as it is, so that nothing is copied.
 */
export function dataHeader({ contextId, command, last, data }: DataValue): Buffer {
  const header = Buffer.alloc(12);
  header.writeUInt8(PDU_TYPES.data, 0);
  header.writeUInt32BE(data.length + 6, 2);
  header.writeUInt32BE(data.length + 2, 6);
  header.writeUInt8(contextId, 10);
  header.writeUInt8((command ? COMMAND_BIT : 0) | (last ? LAST_BIT : 0), 11);
  return header;
}

/** Splits items with a length of two bytes each. */
function* itemsIn(bytes: Buffer): Generator<{ type: number; body: Buffer }> {
  let at = 0;
  while (at < bytes.length) {
    if (at + 4 > bytes.length)
      throw new ProtocolError("An item of the association ends in its header.");
    const end = at + 4 + bytes.readUInt16BE(at + 2);
    if (end > bytes.length)
      throw new ProtocolError("An item of the association is longer than the PDU.");
    yield { type: bytes.readUInt8(at), body: bytes.subarray(at + 4, end) };
    at = end;
  }
}

/**
 * A UID, of which digits and dots are asked alone, as other toolkits do. Peers pad with NUL or
 * blanks, which are not part of it.
 */
function uidOf(bytes: Buffer): string | undefined {
  const uid = withoutEnd(bytes.toString("latin1"), PADDING);
  return uid.length <= 64 && /^[0-9]+(\.[0-9]+)*$/.test(uid) ? uid : undefined;
}

/**
 * An application entity title. Spaces around it do not count (PS3.8 table 9-11), and some peers
 * fill with NUL; any other character is part of it, so that no other title becomes a known one.
 */
const titleAt = (body: Buffer, at: number): string =>
  withoutEnd(body.toString("latin1", at, at + AE_LENGTH), PADDING).replace(/^ +/, "");

/**
 * A proposed context; one that is malformed has no abstract syntax or no transfer syntaxes, and is
 * refused alone (PS3.8 section 9.3.3.2). Undefined where it has not even an id.
 */
function proposed(body: Buffer): ProposedContext | undefined {
  if (body.length === 0) return undefined;
  const id = body.readUInt8(0);
  const odd = { id, abstractSyntax: "", transferSyntaxes: [] };
  const abstractSyntaxes: string[] = [];
  const transferSyntaxes: string[] = [];
  try {
    for (const { type, body: value } of itemsIn(body.subarray(4)))
      if (type === ITEMS.abstractSyntax) abstractSyntaxes.push(uidOf(value) ?? "");
      else if (type === ITEMS.transferSyntax) transferSyntaxes.push(uidOf(value) ?? "");
  } catch (error) {
    if (error instanceof ProtocolError) return odd;
    throw error;
  }
  const [abstractSyntax = "", ...others] = abstractSyntaxes;
  if (id % 2 === 0 || others.length > 0) return odd;
  return { id, abstractSyntax, transferSyntaxes: transferSyntaxes.filter((uid) => uid !== "") };
}

function idOf(body: Buffer): number {
  if (body.length < 4) throw new ProtocolError("A presentation context is too short.");
  const id = body.readUInt8(0);
  if (id % 2 === 0)
    throw new ProtocolError(`A presentation context has the id ${id}, which is not odd.`);
  return id;
}

function answered(body: Buffer): AnsweredContext {
  const result = body.length < 4 ? 0 : body.readUInt8(2);
  const answer: AnsweredContext = { id: idOf(body), result, transferSyntax: "" };
  // The transfer syntax of a context that was refused means nothing (PS3.8 section 9.3.3.2)
  if (result !== CONTEXT_RESULTS.accepted) return answer;
  for (const { type, body: value } of itemsIn(body.subarray(4)))
    if (type === ITEMS.transferSyntax) answer.transferSyntax = uidOf(value) ?? "";
  return answer;
}

/** Undefined where it is malformed: then the roles are the usual ones. */
function roleOf(body: Buffer): Roles | undefined {
  const length = body.length < 2 ? 0 : body.readUInt16BE(0);
  const sopClass = body.length === length + 4 ? uidOf(body.subarray(2, 2 + length)) : undefined;
  if (sopClass === undefined) return undefined;
  return {
    sopClass,
    scu: body.readUInt8(2 + length) === 1,
    scp: body.readUInt8(3 + length) === 1,
  };
}

/** What only identifies a peer, and decides nothing: as it is, but for what is not printed. */
const wordOf = (bytes: Buffer): string =>
  bytes
    .toString("latin1")
    .replace(/[^\x20-\x7e]/g, "")
    .trim();

function checkLength(body: Buffer): void {
  if (body.length < FIXED_LENGTH) throw new ProtocolError("The association's PDU is too short.");
}

/** Whether the peer speaks protocol version 1, and DICOM: PS3.8 tables 9-11 and 9-12. */
function checkDialect(body: Buffer): void {
  checkLength(body);
  // Each bit is a version; the others do not count
  if ((body.readUInt16BE(0) & 1) === 0) throw new AssociationRefused(REFUSED.protocolVersion);
  for (const { type, body: value } of itemsIn(body.subarray(FIXED_LENGTH)))
    if (type === ITEMS.applicationContext && uidOf(value) === APPLICATION_CONTEXT) return;
  throw new AssociationRefused(REFUSED.applicationContext);
}

function readAssociate<Context extends { id: number }>(
  body: Buffer,
  contextType: number,
  contextOf: (body: Buffer) => Context | undefined,
): Parties & { contexts: Context[] } {
  checkLength(body);
  const contexts: Context[] = [];
  const roles: Roles[] = [];
  const found: Parties = {
    calledAe: titleAt(body, 4),
    callingAe: titleAt(body, 4 + AE_LENGTH),
    maximumLength: 0,
    implementationClassUid: "",
    implementationVersion: "",
    roles,
  };
  for (const { type, body: value } of itemsIn(body.subarray(FIXED_LENGTH))) {
    const context = type === contextType ? contextOf(value) : undefined;
    if (context !== undefined) contexts.push(context);
    if (type !== ITEMS.userInformation) continue;
    for (const { type: kind, body: part } of itemsIn(value)) {
      if (kind === ITEMS.maximumLength && part.length === 4)
        found.maximumLength = part.readUInt32BE(0);
      if (kind === ITEMS.implementationClass) found.implementationClassUid = wordOf(part);
      if (kind === ITEMS.implementationVersion) found.implementationVersion = wordOf(part);
      const role = kind === ITEMS.roles ? roleOf(part) : undefined;
      if (role !== undefined) roles.push(role);
    }
  }
  if (new Set(contexts.map(({ id }) => id)).size !== contexts.length)
    throw new ProtocolError("Two presentation contexts have the same id.");
  return { ...found, contexts };
}

/** @throws ProtocolError; AssociationRefused for one that the standard has a rejection for */
export function readAssociateRequest(body: Buffer): AssociateRequest {
  checkDialect(body);
  return readAssociate(body, ITEMS.contextRequest, proposed);
}

export const readAssociateAccept = (body: Buffer): AssociateAccept =>
  readAssociate(body, ITEMS.contextAccept, answered);

export function readReject(body: Buffer): Rejection {
  if (body.length < 4) throw new ProtocolError("The rejection is too short.");
  return { result: body.readUInt8(1), source: body.readUInt8(2), reason: body.readUInt8(3) };
}

/**
 * The values of a P-DATA-TF; their data are views of `body`. Fragments of one command or data set
 * that follow each other are one value here, for which `body` is changed: a PDU may have forty
 * thousand, of a byte each or of none.
 */
export function readData(body: Buffer): DataValue[] {
  const values: DataValue[] = [];
  let at = 0;
  while (at < body.length) {
    const length = at + 6 > body.length ? 0 : body.readUInt32BE(at);
    const end = at + 4 + length;
    if (length < 2 || end > body.length)
      throw new ProtocolError("A presentation data value does not fit its PDU.");
    const contextId = body.readUInt8(at + 4);
    const control = body.readUInt8(at + 5);
    const [command, last] = [(control & COMMAND_BIT) !== 0, (control & LAST_BIT) !== 0];
    const before = values.at(-1);
    if (before?.last === false && before.contextId === contextId && before.command === command) {
      const begin = before.data.byteOffset - body.byteOffset;
      const filled = begin + before.data.length;
      body.copyWithin(filled, at + 6, end);
      before.data = body.subarray(begin, filled + length - 2);
      before.last = last;
    } else values.push({ contextId, command, last, data: body.subarray(at + 6, end) });
    at = end;
  }
  return values;
}
