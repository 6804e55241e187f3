/**
 * DIMSE commands (PS3.7 section 9 and annex E): command sets, which are in Implicit VR Little
 * Endian, and their status.
 */
import { withoutEnd } from "../../../base/ends.js";
import { PADDING } from "../../../images/dicom/value-forms.js";
import { ProtocolError } from "./pdu.js";

/** Command Field (0000,0100). A response has the request's value with the highest bit set. */
export const COMMANDS = {
  cStore: 0x0001,
  cGet: 0x0010,
  cMove: 0x0021,
  cEcho: 0x0030,
  nEventReport: 0x0100,
  nAction: 0x0130,
  cCancel: 0x0fff,
} as const;
export const RESPONSE = 0x8000;

/**
 * Command Data Set Type (0000,0800) of a command without a data set; any other value says that one
 * follows.
 */
export const NO_DATA_SET = 0x0101;

/** Status (0000,0900) of a response (PS3.7 annex C, PS3.4 table B.2-1). */
export const STATUS = {
  success: 0x0000,
  sopClassNotSupported: 0x0122,
  notAuthorized: 0x0124,
  processingFailure: 0x0110,
  duplicateInstance: 0x0111,
  unrecognizedOperation: 0x0211,
  outOfResources: 0xa700,
  dataSetDoesNotMatch: 0xa900,
  cannotUnderstand: 0xc000,
  /** Of STOW-RS alone (PS3.18 section 10.5.3). */
  transferSyntaxNotSupported: 0xc122,
  pending: 0xff00,
} as const;

type Vr = "UI" | "US" | "AE" | "LO";

/** Elements of group 0000 that are read and written here, in the order of their numbers. */
const ELEMENTS = {
  affectedSopClassUid: { element: 0x0002, vr: "UI" },
  requestedSopClassUid: { element: 0x0003, vr: "UI" },
  commandField: { element: 0x0100, vr: "US" },
  messageId: { element: 0x0110, vr: "US" },
  messageIdRespondedTo: { element: 0x0120, vr: "US" },
  moveDestination: { element: 0x0600, vr: "AE" },
  priority: { element: 0x0700, vr: "US" },
  dataSetType: { element: 0x0800, vr: "US" },
  status: { element: 0x0900, vr: "US" },
  errorComment: { element: 0x0902, vr: "LO" },
  affectedSopInstanceUid: { element: 0x1000, vr: "UI" },
  requestedSopInstanceUid: { element: 0x1001, vr: "UI" },
  eventTypeId: { element: 0x1002, vr: "US" },
  actionTypeId: { element: 0x1008, vr: "US" },
  remainingSubOperations: { element: 0x1020, vr: "US" },
  completedSubOperations: { element: 0x1021, vr: "US" },
  failedSubOperations: { element: 0x1022, vr: "US" },
  warningSubOperations: { element: 0x1023, vr: "US" },
} as const satisfies Record<string, { element: number; vr: Vr }>;

type ElementName = keyof typeof ELEMENTS;
type ValueOf<N extends ElementName> = (typeof ELEMENTS)[N]["vr"] extends "US" ? number : string;

export type Command = { [N in ElementName]?: ValueOf<N> } & {
  commandField: number;
  dataSetType: number;
};

/** A response without a data set: it names its request, and the SOP class where that named one. */
export const responseOf = (
  { commandField, messageId, affectedSopClassUid }: Command,
  more: Partial<Command>,
): Command => ({
  commandField: commandField | RESPONSE,
  dataSetType: NO_DATA_SET,
  ...(messageId === undefined ? {} : { messageIdRespondedTo: messageId }),
  ...(affectedSopClassUid === undefined ? {} : { affectedSopClassUid }),
  ...more,
});

const NAMES = Object.keys(ELEMENTS) as ElementName[];
const BY_NUMBER: ReadonlyMap<number, ElementName> = new Map(
  NAMES.map((name) => [ELEMENTS[name].element, name]),
);

function encodeElement(element: number, value: Buffer): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt16LE(element, 2);
  header.writeUInt32LE(value.length, 4);
  return Buffer.concat([header, value]);
}

function encodeValue(value: string | number, vr: Vr): Buffer {
  if (typeof value === "number") return Buffer.from([value & 0xff, value >>> 8]);
  const padding = value.length % 2 === 0 ? "" : vr === "UI" ? "\0" : " ";
  return Buffer.from(value + padding, "latin1");
}

export function encodeCommand(command: Command): Buffer {
  const elements = NAMES.flatMap((name) => {
    const value = command[name];
    return value === undefined
      ? []
      : [encodeElement(ELEMENTS[name].element, encodeValue(value, ELEMENTS[name].vr))];
  });
  const group = Buffer.concat(elements);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(group.length);
  return Buffer.concat([encodeElement(0, length), group]);
}

/** @throws ProtocolError for bytes that are not a command set, or lack what every command has */
export function readCommand(bytes: Buffer): Command {
  const found: Partial<Record<ElementName, string | number>> = {};
  for (let at = 0; at < bytes.length;) {
    if (at + 8 > bytes.length) throw new ProtocolError("A command ends inside an element.");
    const end = at + 8 + bytes.readUInt32LE(at + 4);
    if (bytes.readUInt16LE(at) !== 0 || end > bytes.length)
      throw new ProtocolError(
        "A command has an element that is not of group 0000 or is longer than the command.",
      );
    const name = BY_NUMBER.get(bytes.readUInt16LE(at + 2));
    const value = bytes.subarray(at + 8, end);
    if (name !== undefined && found[name] === undefined && value.length > 0)
      found[name] =
        ELEMENTS[name].vr === "US"
          ? numberIn(value)
          : withoutEnd(value.toString("latin1"), PADDING);
    at = end;
  }
  const { commandField, dataSetType } = found;
  if (typeof commandField !== "number" || typeof dataSetType !== "number")
    throw new ProtocolError("A command lacks Command Field or Command Data Set Type.");
  return { ...(found as Partial<Command>), commandField, dataSetType };
}

function numberIn(value: Buffer): number {
  if (value.length !== 2) throw new ProtocolError("A number of a command does not have two bytes.");
  return value.readUInt16LE(0);
}
