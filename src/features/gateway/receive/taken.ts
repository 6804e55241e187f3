/**
 * Which objects are taken through a door, and the status (PS3.4 table B.2-1) of those that are not.
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
  const ofSystem = details?.["errno"] !== undefined && code !== "disk_full";
  return (ofSystem ? undefined : STATUS_OF[code]) ?? STATUS.processingFailure;
}

/** A deflated data set names its study and series in its deflated part; nobody sends images so. */
const SYNTAXES = new Set(
  decodable()
    .map(({ uid }) => uid)
    .filter((uid) => uid !== DEFLATED_EXPLICIT_VR_LITTLE_ENDIAN),
);
export const isTakenSyntax = (uid: string): boolean => SYNTAXES.has(uid);

const STORAGE = "1.2.840.10008.5.1.4.1.1.";
/** Storage SOP classes of images (PS3.4 table B.5-1), by what follows their common beginning. */
const OF_IMAGES =
  /^(?:1(?:\.[123](?:\.1)?)?|2(?:\.[12])?|3\.1|4(?:\.[134])?|6\.[12]|7(?:\.[1-4])?|12\.[12](?:\.1)?|13\.1\.[1-5]|14\.[12]|20|77\.1(?:\.\d+)+|128(?:\.1)?|130|481\.1)$/;
export const isImageClass = (uid: string): boolean =>
  uid.startsWith(STORAGE) && OF_IMAGES.test(uid.slice(STORAGE.length));
