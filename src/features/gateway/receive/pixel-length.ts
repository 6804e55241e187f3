/** Whether the pixels of an object are all there, by its other attributes (PS3.5 section 8). */
import { withoutEnd } from "../../../base/ends.js";
import { errors, type RadserveError } from "../../../base/errors.js";
import { describeTag, type Tag } from "../../../images/dicom/dictionary.js";
import { UNDEFINED } from "../../../images/dicom/headers.js";
import { PADDING } from "../../../images/dicom/value-forms.js";

/** Their names, and the bits of a value where no attribute says them. */
const PIXELS: ReadonlyMap<Tag, { name: string; bits?: number }> = new Map([
  [0x7fe00008, { name: "FloatPixelData", bits: 32 }],
  [0x7fe00009, { name: "DoubleFloatPixelData", bits: 64 }],
  [0x7fe00010, { name: "PixelData" }],
]);
export const isPixels = (tag: Tag): boolean => PIXELS.has(tag);

const SAMPLES = 0x00280002;
const PHOTOMETRIC = 0x00280004;
const FRAMES = 0x00280008;
const ROWS = 0x00280010;
const COLUMNS = 0x00280011;
const BITS = 0x00280100;
const PROVIDER_URL = 0x00287fe0;
/** Attributes whose values are wanted. */
export const NOTED: ReadonlySet<Tag> = new Set([
  SAMPLES,
  PHOTOMETRIC,
  FRAMES,
  ROWS,
  COLUMNS,
  BITS,
  PROVIDER_URL,
]);
export type NotedValues = Map<Tag, { bytes: Buffer; littleEndian: boolean }>;

/** What of an object is missing, and what is there in place of it. */
export const cut = (attribute: string, found: string): RadserveError =>
  errors.truncated_image(
    `${attribute}: ${found}. The object was cut on its way; send it again from its source.`,
    { attribute, found },
  );

/** An attribute without which no pixels can be read (PS3.3 section C.7.6.3.1). */
const unusable = (tag: Tag, found: string): RadserveError =>
  errors.corrupt_image(
    `${describeTag(tag)}: ${found}, in an object of an image class. Correct it at its source.`,
    { attribute: describeTag(tag), found },
  );

/** @throws RadserveError corrupt_image where it is missing, or 0 */
function required(noted: NotedValues, tag: Tag): number {
  const value = numberAt(noted, tag);
  if (value === undefined) throw unusable(tag, "missing");
  if (value === 0) throw unusable(tag, "0");
  return value;
}

/**
 * @param pixels the element of the pixels; its length is that of its header
 * @param isImage its class is one of images; others may have no pixels, or not say how many
 * @throws RadserveError corrupt_image where Rows, Columns or what else says the length is missing
 * or 0; truncated_image where there is less than the attributes say. More is left to whoever reads
 * it
 */
export function checkPixels(
  noted: NotedValues,
  pixels: { tag: Tag; length: number; fragments: number } | undefined,
  isImage: boolean,
): void {
  const isCounted = [ROWS, COLUMNS, BITS].every((tag) => (numberAt(noted, tag) ?? 0) > 0);
  if (!isImage && (pixels === undefined || !isCounted)) return;
  const kind = pixels && PIXELS.get(pixels.tag);
  if (pixels === undefined || kind === undefined) {
    if (noted.has(PROVIDER_URL)) return;
    throw cut("PixelData", "missing");
  }
  const [rows, columns] = [required(noted, ROWS), required(noted, COLUMNS)];
  const { name, bits = required(noted, BITS) } = kind;
  const frames = Math.max(1, Number(textAt(noted, FRAMES) || 1));
  if (!Number.isSafeInteger(frames)) throw unusable(FRAMES, "no whole number");
  if (pixels.length === UNDEFINED) {
    // The first fragment is the offset table
    const there = Math.max(0, pixels.fragments - 1);
    if (there < frames) throw cut(name, `${there} fragments for ${frames} frames`);
    return;
  }
  const samples = noted.has(SAMPLES) ? required(noted, SAMPLES) : 1;
  // Two samples a pixel are stored of three (PS3.3 section C.7.6.3.1.2)
  const isSubsampled = /^YBR_FULL_422/i.test(textAt(noted, PHOTOMETRIC)) && samples === 3;
  const needed = Math.ceil((rows * columns * (isSubsampled ? 2 : samples) * bits * frames) / 8);
  if (pixels.length < needed) throw cut(name, `${pixels.length} of ${needed} bytes`);
}

function numberAt(noted: NotedValues, tag: Tag): number | undefined {
  const value = noted.get(tag);
  if (value === undefined || value.bytes.length < 2) return undefined;
  return value.littleEndian ? value.bytes.readUInt16LE(0) : value.bytes.readUInt16BE(0);
}

const textAt = (noted: NotedValues, tag: Tag): string =>
  withoutEnd(noted.get(tag)?.bytes.toString("latin1") ?? "", PADDING).trim();
