/**
 * What is known to be wrong in results of earlier versions, so that `verify` and `explain` warn of a receipt that shows
 * it. CHANGELOG.md lists the same conditions.
 *
 * To add one: append an entry to KNOWN_FAULTS, evidence of it to CASES in its test, and a line to CHANGELOG.md. `shows` decides from the receipt alone where that is enough; otherwise from the
 * source (`image`) or the manifest, which are there in `verify` only, and only where their SHA-256 are the receipt's. It
 * is false where it cannot know, and throws nothing. `text` names the attribute or the manifest's field first, then what
 * was wrong, and what to do if it is more than to run the image again. Entries are appended, so that texts keep their
 * order.
 */
import type { Image } from "../../images/image.js";
import type { Manifest } from "../../manifest/manifest.js";
import type { Receipt, ReceiptModel } from "./receipt.js";

/** What a result can be judged by. */
export interface Evidence {
  receipt: Receipt;
  /** The receipt's source, as this version reads it. */
  image?: Image | undefined;
  /** The manifest of a model of the receipt. */
  manifestOf?: ((model: ReceiptModel) => Manifest | undefined) | undefined;
}

export interface KnownFault {
  /** The first version without it. */
  before: string;
  shows: (evidence: Evidence) => boolean;
  text: string;
}

const succeeded = ({ receipt }: Evidence) => receipt.models.filter(({ status }) => status === "succeeded");

/** Models of the receipt that have written an object of DICOM. */
const withObjects = (evidence: Evidence) =>
  succeeded(evidence).filter(({ outputs }) =>
    outputs.some(({ media_type }) => media_type === "application/dicom"),
  );

export const KNOWN_FAULTS: readonly KnownFault[] = [
  {
    before: "0.6.0",
    shows: ({ receipt }) =>
      receipt.warnings.some(
        ({ code, message }) =>
          code === "photometric_mismatch" && message.includes("the codestream has no such transform"),
      ),
    text:
      "PhotometricInterpretation YBR_RCT or YBR_ICT over JPEG 2000 without a component transform: the components were " +
      "taken as RGB and not as luminance and chrominance, so the models saw wrong colours.",
  },
  {
    before: "0.6.0",
    shows: (evidence) =>
      withObjects(evidence).length > 0 &&
      evidence.image?.attributes?.strings("FrameOfReferenceUID")?.join("") === "",
    text: "FrameOfReferenceUID is empty in the source, and so in the SEG and the RTSTRUCT, where it must have a value.",
  },
];

/** True where `version` comes before `other`; both as 0.6.0. */
function isBefore(version: string, other: string): boolean {
  const [left = [], right = []] = [version, other].map((one) =>
    one.split(".").map((part) => parseInt(part, 10)),
  );
  const at = right.findIndex((part, i) => part !== left[i]);
  return at >= 0 && (left[at] ?? 0) < (right[at] ?? 0);
}

/** What is wrong in the result of a receipt, or may be, as far as the evidence shows it; nothing of the version that made it. */
export function knownFaults(evidence: Evidence): string[] {
  const { radserve_version: version } = evidence.receipt;
  return KNOWN_FAULTS.filter(({ before, shows }) => isBefore(version, before) && shows(evidence)).map(
    ({ text }) => text,
  );
}
