/**
 * STOW-RS (PS3.18 section 10.5): the objects of one request into the spool, and the answer that
 * says what became of each.
 */
import { asRadserveError, errors, type RadserveError } from "../../../base/errors.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { readFileMeta } from "../../../images/dicom/dicom-file.js";
import { STATUS } from "../dimse/command.js";
import { Multipart, type BodyPart } from "./multipart.js";
import type { Transfer } from "./reception.js";
import { keyOfPlace, placeOf, type KeptObject, type Spool } from "./spool.js";
import { sopClassName } from "../../../images/dicom/dictionary.js";
import { commentOf, isTakenClass, isTakenSyntax, statusOf } from "./taken.js";

/** Bytes in which the File Meta Information of a part has to lie. */
const META_BYTES = 64 * 1024;
/** Characters of a UID (PS3.5 section 9.1). */
const LONGEST_UID = 64;
/** Objects of one request: the answer names each. */
const MOST_PARTS = 20_000;

/** A value of the DICOM JSON Model (PS3.18 annex F). */
type DicomJson = Record<string, { vr: string; Value?: unknown[] }>;

export interface StowAnswer {
  /** 200: all are kept; 202: some; 409: none. */
  status: 200 | 202 | 409;
  body: DicomJson;
}

interface StoredObject {
  sopClassUid: string;
  sopInstanceUid: string;
}

/** Why an object was refused. */
interface FailedObject {
  /** Undefined where it could not be read who it is. */
  object: StoredObject | undefined;
  reason: number;
  comment: string;
}

export interface StowOptions {
  peer: string;
  spool: Pick<Spool, "keep">;
  /** Of this request. */
  transfer: Transfer;
  /** As of an association: before the first object of a series is answered. */
  coming: (studyInstanceUid: string) => Promise<void>;
  kept: (object: KeptObject) => Promise<void> | void;
  /** Told of each object that was refused: a code. */
  refused: (reason: string) => void;
  log: Logger;
}

/**
 * Keeps the objects of a body one after the other. @throws RadserveError bad_request for a body
 * that is no multipart one
 */
export async function storeParts(
  pieces: AsyncIterable<Uint8Array>,
  boundary: string,
  options: StowOptions,
): Promise<StowAnswer> {
  const { transfer } = options;
  const stored: StoredObject[] = [];
  const series = new Set<string>();
  const failed: FailedObject[] = [];
  const refusals: RadserveError[] = [];
  /** Refusals that have a line of the log. */
  const lines = new Set<string>();
  const multipart = new Multipart(pieces, boundary);
  for await (const part of multipart.parts()) {
    if (stored.length + failed.length >= MOST_PARTS)
      throw errors.body_too_large(
        `Expected at most ${MOST_PARTS} objects in one request; found more.`,
      );
    let object: StoredObject | undefined;
    try {
      transfer.begins();
      const arriving = await beginning(part);
      object = namesOf(arriving);
      refuseOthers(arriving);
      const kept = await options.spool.keep(options.peer, {
        ...arriving,
        named: (place) => transfer.named(place),
        appears: async (place, study) => {
          const isKnown = series.has(keyOfPlace(place));
          const audited = isKnown ? undefined : options.coming(study);
          await Promise.all([audited, transfer.brings(place)]);
          series.add(keyOfPlace(place));
        },
      });
      transfer.kept(placeOf(options.peer, kept), kept.changed);
      await options.kept(kept);
      stored.push(object);
    } catch (error) {
      // What is of no class for storage is of no series that could miss it
      const isOther = object !== undefined && !isTakenClass(object.sopClassUid);
      await transfer.notKept(isOther ? undefined : object?.sopInstanceUid, error);
      // Of the body, and not of this object
      if (multipart.fault !== undefined) throw multipart.fault;
      const refusal = asRadserveError(error);
      if (refusal.code === "internal")
        options.log.error(
          { peer: options.peer, fault: faultForLog(error) },
          "an object could not be kept",
        );
      options.refused(refusal.code);
      const { attribute, found } = refusal.details ?? {};
      const line = `${refusal.code} ${String(attribute)}`;
      if (attribute !== undefined && !lines.has(line))
        options.log.warn(
          { peer: options.peer, error: refusal.code, attribute, found },
          "an object was refused; others of this request for the same have no line",
        );
      lines.add(line);
      refusals.push(refusal);
      failed.push({ object, reason: reasonOf(refusal), comment: commentOf(refusal) });
    }
  }
  if (stored.length + failed.length === 0)
    throw errors.bad_request("Expected objects in the body; found none.");
  const [first] = refusals;
  // Nothing is wrong with the objects: the request as a whole is to be sent again
  if (first !== undefined && stored.length === 0 && refusals.every(isWithoutRoom)) throw first;
  return {
    status: failed.length === 0 ? 200 : stored.length === 0 ? 409 : 202,
    body: {
      // No object can be fetched from here
      "00081190": { vr: "UR" },
      ...sequence(
        "00081198",
        failed.flatMap(({ object, ...why }) =>
          object === undefined ? [] : [{ ...names(object), ...because(why) }],
        ),
      ),
      ...sequence("00081199", stored.map(names)),
      ...sequence(
        "0008119A",
        failed.flatMap(({ object, ...why }) => (object === undefined ? [because(why)] : [])),
      ),
    },
  };
}

const names = ({ sopClassUid, sopInstanceUid }: StoredObject): DicomJson => ({
  "00081150": { vr: "UI", Value: [sopClassUid] },
  "00081155": { vr: "UI", Value: [sopInstanceUid] },
});
const because = ({ reason, comment }: Omit<FailedObject, "object">): DicomJson => ({
  "00000902": { vr: "LO", Value: [comment] },
  "00081197": { vr: "US", Value: [reason] },
});
const sequence = (tag: string, items: DicomJson[]): DicomJson =>
  items.length === 0 ? {} : { [tag]: { vr: "SQ", Value: items } };

/**
 * What the answer names an object by: no more than a UID has, in a copy, because a part of a text
 * keeps the whole one, and `arriving` keeps what was read of the object.
 */
function namesOf({ sopClassUid, sopInstanceUid }: StoredObject): StoredObject {
  const copied = (uid: string) => Buffer.from(uid.slice(0, LONGEST_UID)).toString();
  return { sopClassUid: copied(sopClassUid), sopInstanceUid: copied(sopInstanceUid) };
}

/** Failure Reason (PS3.18 table 10.5.3-1). */
function reasonOf(error: RadserveError): number {
  if (error.code === "unsupported_format") return STATUS.sopClassNotSupported;
  return error.code === "unsupported_transfer_syntax"
    ? STATUS.transferSyntaxNotSupported
    : statusOf(error);
}

const isWithoutRoom = ({ code }: RadserveError): boolean =>
  ["disk_full", "spool_share_full", "share_unavailable"].includes(code);

function refuseOthers({
  sopClassUid,
  transferSyntax,
}: StoredObject & { transferSyntax: string }): void {
  if (!isTakenClass(sopClassUid))
    throw errors.unsupported_format(
      "Expected an object of a Storage SOP Class; found another class.",
      { attribute: "SOPClassUID (0008,0016)", found: sopClassName(sopClassUid) },
    );
  if (!isTakenSyntax(transferSyntax))
    throw errors.unsupported_transfer_syntax(
      "Expected a transfer syntax that is read; found another.",
      { attribute: "TransferSyntaxUID (0002,0010)", found: transferSyntax },
    );
}

/**
 * What the File Meta Information of a part says, and the data set behind it. @throws RadserveError
 * corrupt_image
 */
async function beginning({ headers, body }: BodyPart) {
  const type = headers.get("content-type") ?? "application/dicom";
  let begun = Buffer.alloc(0);
  while (begun.length < META_BYTES) {
    const next = await body.next();
    if (next.done === true) break;
    begun = Buffer.concat([begun, next.value]);
  }
  const meta = readFileMeta(begun);
  if (meta === undefined || !/^application\/dicom(?:$|[\s;])/i.test(type))
    throw errors.corrupt_image(
      "Expected a DICOM file (PS3.10) in each part; found something else.",
      { attribute: "Part", found: "no DICOM file with Content-Type application/dicom" },
    );
  const { end, ...rest } = meta;
  async function* dataSet() {
    yield begun.subarray(end);
    yield* body;
  }
  return { ...rest, dataSet: dataSet() };
}
