/**
 * Which objects are taken through the gateway, and the status (PS3.4 table B.2-1) of those that are
 * not.
 */
import type { ErrorCode, RadserveError } from "../../../base/errors.js";
import {
  decodable,
  DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN,
} from "../../../images/dicom/transfer-syntax.js";
import { STATUS } from "../dimse/command.js";

/** Status for each error that the spool gives; any other is a processing failure. */
const STATUS_OF: Partial<Record<ErrorCode, number>> = {
  disk_full: STATUS.outOfResources,
  spool_share_full: STATUS.outOfResources,
  share_unavailable: STATUS.outOfResources,
  body_too_large: STATUS.outOfResources,
  file_exists: STATUS.duplicateInstance,
  bad_request: STATUS.dataSetDoesNotMatch,
  corrupt_image: STATUS.cannotUnderstand,
  truncated_image: STATUS.cannotUnderstand,
  unsupported_transfer_syntax: STATUS.cannotUnderstand,
  unsupported_format: STATUS.cannotUnderstand,
};

/**
 * The status of a refusal: the fault of the object, or, where the system refused something, of this
 * side.
 */
export function statusOf({ code, details }: RadserveError): number {
  const isOfDisk = code === "disk_full" || code === "share_unavailable";
  const ofSystem = details?.["errno"] !== undefined && !isOfDisk;
  return (ofSystem ? undefined : STATUS_OF[code]) ?? STATUS.processingFailure;
}

/** Error Comment (PS3.7 annex C): an attribute, and what was found of it, in 64 characters. */
export function commentOf({ code, details }: RadserveError): string {
  const { attribute, found } = details ?? {};
  const what = typeof found === "string" ? found : code;
  const told = typeof attribute === "string" ? `${attribute}: ${what}` : code;
  return told.slice(0, 64);
}

/** Storage SOP classes (PS3.4 table B.5-1) and retired ones; two of radiotherapy stand apart. */
const STORAGE = /^1\.2\.840\.10008\.5\.1\.4\.(?:1\.1\.[0-9.]+|34\.7|34\.10)$/;
const OF_DICOM = "1.2.840.10008.";

/**
 * Whether objects of a class are kept: of every class for storage, because senders stop at the
 * first that is refused; of private ones where the peer may send them.
 */
export const isTakenClass = (uid: string, privateToo = false): boolean =>
  STORAGE.test(uid) || (privateToo && !uid.startsWith(OF_DICOM));

/** A deflated data set names its study and series in its deflated part; nobody sends images so. */
const SYNTAXES = new Set(
  decodable()
    .map(({ uid }) => uid)
    .filter((uid) => uid !== DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN),
);
export const isTakenSyntax = (uid: string): boolean => SYNTAXES.has(uid);
