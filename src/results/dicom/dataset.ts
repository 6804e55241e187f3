/** Objects named and serialised: file meta information by dcmjs whole, the data set element by element. */
import { createHash } from "node:crypto";
import { data } from "../../images/dicom/dcmjs.js";
import { canonicalJson } from "../../base/canonical-json.js";
import { VERSION } from "../../base/version.js";
import { dataSetBytes, EXPLICIT_VR_LITTLE_ENDIAN, type Dataset } from "./elements.js";
import { derivedUid } from "./uid.js";

/** Says in every file which software wrote it (PS3.7 section D.3.3.2). */
const IMPLEMENTATION_CLASS = derivedUid("implementation", []);

/** A hash of all that the data set holds; equal hashes are equal bytes. */
function contentHash(dataset: Dataset): string {
  const flat = Object.entries(dataset).map(([keyword, value]) => [
    keyword,
    value instanceof Uint8Array ? createHash("sha256").update(value).digest("hex") : (value ?? null),
  ]);
  return createHash("sha256")
    .update(canonicalJson(Object.fromEntries(flat)))
    .digest("hex");
}

/** An object ready to be written: its file, and its names for those that refer to it. */
export interface DicomObject {
  sopClassUid: string;
  sopInstanceUid: string;
  seriesInstanceUid: string;
  bytes: Uint8Array;
}

/**
 * Names and serialises an object. Its SOP Instance UID comes from all that it holds, the start of the analysis among
 * it: equal UIDs are equal bytes, and other bytes have another UID.
 * @param dataset without SOPInstanceUID; with SOPClassUID and SeriesInstanceUID
 * @param seed what else tells the object from others: the source's and the model's hashes, the configuration
 * @param transferSyntaxUid where Pixel Data is one encapsulated frame
 */
export function dicomObject(
  dataset: Dataset,
  seed: readonly unknown[],
  transferSyntaxUid = EXPLICIT_VR_LITTLE_ENDIAN,
): DicomObject {
  const { SOPClassUID: sopClassUid, SeriesInstanceUID: seriesInstanceUid } = dataset;
  if (typeof sopClassUid !== "string" || typeof seriesInstanceUid !== "string")
    throw new Error("An object has a SOP class and a series");
  const sopInstanceUid = derivedUid("instance", [contentHash(dataset), ...seed]);
  const bytes = Buffer.concat([
    fileHead(sopClassUid, sopInstanceUid, transferSyntaxUid),
    ...dataSetBytes({ ...dataset, SOPInstanceUID: sopInstanceUid }, transferSyntaxUid),
  ]);
  return { sopClassUid, sopInstanceUid, seriesInstanceUid, bytes };
}

/** Preamble and file meta information (PS3.10 section 7.1). */
function fileHead(sopClassUid: string, sopInstanceUid: string, transferSyntaxUid: string): Buffer {
  const head = new data.DicomDict({
    "00020001": { vr: "OB", Value: [new Uint8Array([0, 1]).buffer] },
    "00020002": { vr: "UI", Value: [sopClassUid] },
    "00020003": { vr: "UI", Value: [sopInstanceUid] },
    "00020010": { vr: "UI", Value: [transferSyntaxUid] },
    "00020012": { vr: "UI", Value: [IMPLEMENTATION_CLASS] },
    "00020013": { vr: "SH", Value: [`RADSERVE_${VERSION}`.slice(0, 16)] },
  });
  return Buffer.from(head.write());
}
