/**
 * Tells from the first bytes of a file in a scanned folder: it is an input, a result of Radserve,
 * or neither.
 */
import { readStart } from "../files/descriptor.js";
import { sopClassName } from "../images/dicom/dictionary.js";
import { isLocalizer, readHead, type DicomHead } from "../images/dicom/dicom-file.js";
import { RadserveError } from "../base/errors.js";
import { knownFormat, saidOf, type KnownFormat } from "../images/known-formats.js";
import { SNIFF_BYTES, sniffFormat } from "../images/read-image.js";
import { isOwnObject } from "../results/dicom/modules.js";
import { receiptName } from "../results/receipt/names.js";
import { LARGEST_AMONG_IMAGES, namesIn, readReceipt } from "../results/receipt/read-receipt.js";
import { stagingName } from "../files/helper-names.js";

export interface WhySkipped {
  code: string;
  message: string;
}

/** The attributes of a DICOM file by which slices form series and cases. */
export interface SliceHead {
  seriesInstanceUid: string | undefined;
  sopInstanceUid: string | undefined;
  sopClassUid: string | undefined;
  modality: string | undefined;
}

export type FileKind =
  | { is: "input"; slice?: SliceHead }
  | { is: "own" }
  | { is: "skipped"; reason: WhySkipped }
  /** Of a format that is not read, in which images may be. */
  | { is: "foreign"; format: KnownFormat };

const skipped = (code: string, message: string): FileKind => ({
  is: "skipped",
  reason: { code, message },
});

const DICOMDIR = "1.2.840.10008.1.3.10";
/** Documents, presentation states and waveforms (PS3.4 annex B): never pixels of an image. */
const NO_IMAGE = [
  "1.2.840.10008.5.1.4.1.1.9.",
  "1.2.840.10008.5.1.4.1.1.11.",
  "1.2.840.10008.5.1.4.1.1.88.",
  "1.2.840.10008.5.1.4.1.1.104.",
];
const SEGMENTATIONS = ["1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"];

/** Sizes that are read one after the other. Nearly every header lies within the first. */
const HEAD_BYTES = [16 * 1024, 256 * 1024, 4 * 1024 * 1024] as const;

/**
 * @param first the first bytes, so many as the first of the sizes says or fewer if the file is
 * shorter
 */
export async function headOf(fd: number, first: Buffer): Promise<DicomHead | undefined> {
  for (const size of HEAD_BYTES) {
    const bytes = size === HEAD_BYTES[0] ? first : await readStart(fd, size);
    try {
      return readHead(bytes, bytes.length < size);
    } catch (error) {
      // Anything else is for the reader to say, when its turn comes
      if (
        !(error instanceof RadserveError) ||
        error.code !== "truncated_image" ||
        bytes.length < size
      )
        return undefined;
    }
  }
  return undefined;
}

function kindOfObject({ attributes, mediaStorageSopClass }: DicomHead): FileKind {
  if (isOwnObject(attributes)) return { is: "own" };
  const uid = attributes.string("SOPClassUID") ?? mediaStorageSopClass;
  if (uid !== undefined && (uid === DICOMDIR || NO_IMAGE.some((prefix) => uid.startsWith(prefix))))
    return skipped("no_image", `The DICOM object is ${sopClassName(uid)} and holds no image.`);
  const beside = SEGMENTATIONS.includes(uid ?? "") || isLocalizer(attributes);
  if (beside) return { is: "input" };
  return {
    is: "input",
    slice: {
      seriesInstanceUid: attributes.string("SeriesInstanceUID"),
      sopInstanceUid: attributes.string("SOPInstanceUID"),
      sopClassUid: uid,
      modality: attributes.string("Modality"),
    },
  };
}

/** Whether a file that begins so is a receipt. */
function isReceipt(head: Uint8Array): boolean {
  return /^\s*\{\s*"schema"\s*:\s*"radserve\.receipt\//.test(Buffer.from(head).toString("latin1"));
}

/**
 * Whether a receipt beside a file lists it. Its result's NAME is the beginning of its own name, up
 * to some dot. The staged receipt is looked at first: it is renamed into place, so that of the two
 * one is always there.
 * @param folder a path that names the folder
 */
async function isListed(folder: string, file: string): Promise<boolean> {
  for (let dot = file.indexOf(".", 1); dot !== -1; dot = file.indexOf(".", dot + 1)) {
    const name = file.slice(0, dot);
    const staging = `${folder}/${stagingName(name)}`;
    for (const receipt of [
      `${staging}/receipt.json`,
      `${staging}/previous.json`,
      `${folder}/${receiptName(name)}`,
    ]) {
      const found = await readReceipt(receipt, name, LARGEST_AMONG_IMAGES).catch(() => undefined);
      if (found?.kind === "receipt" && namesIn(found, name).has(file)) return true;
    }
  }
  return false;
}

/**
 * @param folder a path that names the folder it lies in
 * @throws errors of the file system as they are
 */
export async function classify(fd: number, folder: string, name: string): Promise<FileKind> {
  const first = await readStart(fd, HEAD_BYTES[0]);
  const bytes = first.subarray(0, SNIFF_BYTES);
  if (bytes.length === 0) return skipped("empty_file", "The file is empty.");
  if (isReceipt(bytes)) return { is: "own" };
  const format = sniffFormat(bytes);
  if (format === undefined) {
    const known = knownFormat(first);
    if (known !== undefined && known.holds !== "nothing") return { is: "foreign", format: known };
    return skipped(
      "no_image",
      known === undefined
        ? "The file is neither DICOM nor PNG, JPEG or TIFF (judged by its content)."
        : saidOf(known),
    );
  }
  if (format !== "dicom") return (await isListed(folder, name)) ? { is: "own" } : { is: "input" };
  const object = await headOf(fd, first);
  return object === undefined ? { is: "input" } : kindOfObject(object);
}
