/**
 * The DICOM file around a data set (PS3.10 section 7): preamble, file meta information, transfer
 * syntax.
 */
import type { Transform } from "node:stream";
import { crc32, createInflate, createInflateRaw, inflateRawSync, inflateSync } from "node:zlib";
import { errno } from "../../base/errno.js";
import { errors, RadserveError, type ErrorCode } from "../../base/errors.js";
import { DataSetAttributes } from "./attributes.js";
import { warn } from "../image.js";
import { dictionaryVr, type Tag } from "./dictionary.js";
import { walkDataSet, walkWhole, type DataSet } from "./elements.js";
import { isVr, MOST_SEEN, newWalk, TooManyElements, type Encoding, type Walk } from "./headers.js";
import {
  EXPLICIT_VR_BIG_ENDIAN,
  EXPLICIT_VR_LITTLE_ENDIAN,
  IMPLICIT_VR_LITTLE_ENDIAN,
  transferSyntax,
  type TransferSyntax,
} from "./transfer-syntax.js";

export interface DicomHead {
  attributes: DataSetAttributes;
  /** MediaStorageSOPClassUID, for files whose data set has no SOPClassUID (DICOMDIR). */
  mediaStorageSopClass: string | undefined;
}

export interface DicomFile extends DicomHead {
  walk: Walk;
  dataSet: DataSet;
  transferSyntax: TransferSyntax;
}

const META_ENCODING: Encoding = { explicit: true, littleEndian: true };
/**
 * A deflated data set may not unfold to more than this, 512 MiB: a few kilobytes of it can claim
 * any length.
 */
export const MAX_INFLATED_BYTES = 1 << 29;
/** How a stream with a zlib header begins (RFC 1950), which ours should not have. */
const ZLIB_HEADER = 0x78;
const COUNTED_AT_ONCE = 1 << 18;
/** Room for what nearly every deflated data set unfolds to. */
const USUAL_INFLATED_BYTES = 1 << 26;

/** How a stream without "DICM" begins, or undefined if it does not look like a data set. */
function guessEncoding(head: Uint8Array, offset: number): Encoding | undefined {
  if (head.length < offset + 8) return undefined;
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  const vr = String.fromCharCode(head[offset + 4] ?? 0, head[offset + 5] ?? 0);
  for (const littleEndian of [true, false]) {
    const group = view.getUint16(offset, littleEndian);
    const element = view.getUint16(offset + 2, littleEndian);
    if (group !== 0x0002 && group !== 0x0004 && group !== 0x0008) continue;
    if (element > 0x2fff) continue;
    if (isVr(vr)) return { explicit: true, littleEndian };
    const length = view.getUint32(offset + 4, true);
    if (littleEndian && length <= 0x10000 && dictionaryVr(group * 65536 + element) !== "UN")
      return { explicit: false, littleEndian };
  }
  return undefined;
}

/**
 * True if the bytes (160 are enough) begin a DICOM file, or a data set that lost its preamble or
 * its meta information.
 */
export function isDicom(head: Uint8Array): boolean {
  return dataOffset(head) !== undefined || guessEncoding(head, 0) !== undefined;
}

/**
 * Offset behind "DICM". A data set without a preamble can hold these letters at the same place, in
 * a text.
 */
function dataOffset(head: Uint8Array): number | undefined {
  for (const at of [128, 0])
    if (
      head[at] === 0x44 &&
      head[at + 1] === 0x49 &&
      head[at + 2] === 0x43 &&
      head[at + 3] === 0x4d
    ) {
      const inText =
        guessEncoding(head, 0) !== undefined &&
        guessEncoding(head, at + 4) === undefined &&
        head.length >= at + 12;
      return inText ? undefined : at + 4;
    }
  return undefined;
}

/**
 * Walks a DICOM file. What it had to assume is in `walk.warnings`.
 * @param most elements, items and fragments that it may have
 * @param mostInflated bytes that a deflated data set may unfold to
 * @throws RadserveError corrupt_image, truncated_image, unsupported_transfer_syntax
 * @throws TooManyElements if it has more; elements of sequences that were not asked for are
 * included
 */
export function openFile(
  bytes: Uint8Array,
  most = MOST_SEEN,
  mostInflated = MAX_INFLATED_BYTES,
): DicomFile {
  const walk = newWalk(bytes, most);
  const marked = dataOffset(bytes);
  if (marked !== 132)
    warn(
      walk.warnings,
      "missing_preamble",
      "The file has no 128-byte preamble; it was recognised by its content.",
    );
  const { end, syntax, mediaStorageSopClass } = readMeta(walk, marked ?? 0);
  const body = syntax.deflated ? inflated(walk, end, mostInflated) : walk;
  const dataSet = walkWhole(body, syntax.deflated ? 0 : end, syntax);
  // Deflate has no checksum: only lengths tell that what was inflated is not what was deflated
  if (syntax.deflated && walk.warnings.some(({ code }) => code === "trailing_data"))
    throw errors.corrupt_image(
      "Bytes behind the pixel data of the deflated data set are no DICOM elements: it was damaged, and its pixels may be wrong. Send the file again from its source.",
    );
  body.all = body.seen;
  body.counts = false;
  return {
    walk: body,
    dataSet,
    attributes: new DataSetAttributes(body, dataSet),
    transferSyntax: { ...syntax, ...dataSet.encoding },
    mediaStorageSopClass,
  };
}

/** Group 0020 holds what tells series apart; nothing behind it is read. */
export const LAST_OF_HEAD = 0x0020000e;
const SOP_INSTANCE_UID = 0x00080018;

/**
 * The attributes of a file's beginning, up to SeriesInstanceUID.
 * @param whole the bytes are all of the file Throws what openFile throws; truncated_image if the
 * bytes end before. A deflated data set counts as corrupt.
 * @param last nothing behind this tag is read
 */
export function readHead(bytes: Uint8Array, whole: boolean, last: Tag = LAST_OF_HEAD): DicomHead {
  const walk = newWalk(bytes);
  const { end, syntax, mediaStorageSopClass } = readMeta(walk, dataOffset(bytes) ?? 0);
  if (syntax.deflated) throw errors.corrupt_image("The data set is deflated.");
  const head = walkWhole(walk, end, syntax, (tag) => tag > last);
  if (!whole && head.end >= bytes.length)
    throw errors.truncated_image("The bytes end before the head of the data set does.");
  return { attributes: new DataSetAttributes(walk, head), mediaStorageSopClass };
}

/**
 * As much of a file's head as a file that is cut or damaged still has: without its
 * SeriesInstanceUID at least what kind of object it is.
 * @returns undefined if not even that can be read
 */
export function readBrokenHead(bytes: Uint8Array): DicomHead | undefined {
  for (const last of [LAST_OF_HEAD, SOP_INSTANCE_UID])
    try {
      return readHead(bytes, true, last);
    } catch (error) {
      if (!(error instanceof RadserveError)) throw error;
    }
  return undefined;
}

/** The elements of group 0002, and where they end. */
function walkMeta(walk: Walk, start: number): { end: number; attributes: DataSetAttributes } {
  const isNoMeta = (tag: Tag) => tag >>> 16 !== 0x0002;
  const meta = walkDataSet(walk, start, walk.bytes.length, META_ENCODING, 0, isNoMeta);
  return { end: meta.end, attributes: new DataSetAttributes(walk, meta) };
}

/** The file meta information. */
function readMeta(walk: Walk, start: number) {
  const { end, attributes } = walkMeta(walk, start);
  return {
    end,
    syntax: syntaxOf(walk, attributes.string("TransferSyntaxUID"), end),
    mediaStorageSopClass: attributes.string("MediaStorageSOPClassUID"),
  };
}

/**
 * What the File Meta Information of a file's beginning names, and where it ends; undefined where it
 * is not whole, or lacks a name.
 */
export function readFileMeta(
  bytes: Uint8Array,
):
  { end: number; transferSyntax: string; sopClassUid: string; sopInstanceUid: string } | undefined {
  const start = dataOffset(bytes);
  if (start === undefined) return undefined;
  const { end, attributes } = walkMeta(newWalk(bytes), start);
  const [transferSyntax, sopClassUid, sopInstanceUid] = [
    "TransferSyntaxUID",
    "MediaStorageSOPClassUID",
    "MediaStorageSOPInstanceUID",
  ].map((keyword) => attributes.string(keyword));
  if (transferSyntax === undefined || sopClassUid === undefined || sopInstanceUid === undefined)
    return undefined;
  return { end, transferSyntax, sopClassUid, sopInstanceUid };
}

function syntaxOf(walk: Walk, declared: string | undefined, offset: number): TransferSyntax {
  if (declared !== undefined) return transferSyntax(declared);
  warn(
    walk.warnings,
    "missing_transfer_syntax",
    "The file does not name its transfer syntax; it was guessed from the first element.",
  );
  const guess = guessEncoding(walk.bytes, offset) ?? { explicit: false, littleEndian: true };
  if (!guess.littleEndian) return transferSyntax(EXPLICIT_VR_BIG_ENDIAN);
  return transferSyntax(guess.explicit ? EXPLICIT_VR_LITTLE_ENDIAN : IMPLICIT_VR_LITTLE_ENDIAN);
}

/**
 * How many bytes a file's data set is inflated to while it is read; 0 where it is not deflated.
 * They are counted as they come and not kept.
 * @param check asked meanwhile; what it throws ends the counting
 * @param most elements that its file meta information may have
 * @throws RadserveError unsupported_format, as openFile does, beyond the most that is read
 * @throws TooManyElements if it has more
 */
export async function inflatedBytes(
  bytes: Uint8Array,
  check: () => void,
  most = MOST_SEEN,
): Promise<number> {
  let meta;
  try {
    meta = readMeta(newWalk(bytes, most), dataOffset(bytes) ?? 0);
  } catch (error) {
    if (error instanceof TooManyElements) throw error;
    // Reading it says what is wrong
    return 0;
  }
  if (!meta.syntax.deflated) return 0;
  const deflated = bytes.subarray(meta.end);
  const raw = await countInflated(
    createInflateRaw({ chunkSize: COUNTED_AT_ONCE }),
    deflated,
    check,
  );
  if (deflated[0] !== ZLIB_HEADER) return raw;
  // A fault as one form may come late in the data, and then the data is read as the other form
  return Math.max(
    raw,
    await countInflated(createInflate({ chunkSize: COUNTED_AT_ONCE }), deflated, check),
  );
}

async function countInflated(
  inflate: Transform,
  deflated: Uint8Array,
  check: () => void,
): Promise<number> {
  let counted = 0;
  inflate.end(deflated);
  try {
    for await (const chunk of inflate as AsyncIterable<Buffer>) {
      check();
      counted += chunk.length;
      if (counted > MAX_INFLATED_BYTES) throw tooLarge();
    }
  } catch (error) {
    if (error instanceof RadserveError) throw error;
    // Damaged: so much comes before
  }
  return counted;
}

/**
 * The data set of Deflated Explicit VR Little Endian (PS3.5 section A.5): a raw deflate stream, no
 * zlib header.
 */
function inflated(walk: Walk, offset: number, most: number): Walk {
  const deflated = walk.bytes.subarray(offset);
  const inflatedBy = (inflate: typeof inflateRawSync): Walk => ({
    ...newWalk(inflateWhole(inflate, deflated, most), walk.most),
    warnings: walk.warnings,
  });
  try {
    return inflatedBy(inflateRawSync);
  } catch (error) {
    if (errno(error) === "Z_BUF_ERROR" || errno(error) === TOO_LARGE || deflated[0] !== ZLIB_HEADER)
      throw notInflated(error);
  }
  try {
    const found = inflatedBy(inflateSync);
    warn(
      walk.warnings,
      "zlib_header",
      "The deflated data set has a zlib header, which the standard forbids.",
    );
    return found;
  } catch (error) {
    throw notInflated(error);
  }
}

const TOO_LARGE = "ERR_BUFFER_TOO_LARGE";

/** What zlib gives with `info`: the engine knows how many bytes it took. */
interface WithInfo {
  buffer: Uint8Array;
  engine: { bytesWritten: number };
}

/**
 * Inflates into one buffer that is as large as the limit from the start: zlib would gather small
 * ones and join them, at twice the memory. The system gives pages only to what is written. One byte
 * more than the limit lets zlib see that the stream goes on without a second buffer.
 */
function inflateWhole(
  inflate: typeof inflateRawSync,
  deflated: Uint8Array,
  most: number,
): Uint8Array {
  const within = (limit: number) => {
    const options = { maxOutputLength: limit, chunkSize: limit + 1, info: true };
    // The types of Node.js do not know what `info` changes
    const { buffer, engine } = inflate(deflated, options) as unknown as WithInfo;
    checkBehind(deflated.subarray(engine.bytesWritten), buffer);
    return buffer;
  };
  try {
    return within(Math.min(USUAL_INFLATED_BYTES, most));
  } catch (error) {
    if (errno(error) !== TOO_LARGE || most <= USUAL_INFLATED_BYTES) throw error;
  }
  return within(most);
}

/** Check sum and length of what was deflated, by which gzip streams end (RFC 1952). */
const GZIP_END_BYTES = 8;

/**
 * Bytes behind the stream: zeros fill a file up, and writers that make a gzip stream and leave its
 * header out leave its end. Others mean that the stream ended too early by damage.
 */
function checkBehind(rest: Uint8Array, inflatedBytes: Uint8Array): void {
  const isZero = (bytes: Uint8Array) => bytes.every((byte) => byte === 0);
  if (isZero(rest)) return;
  const end = new Uint8Array(GZIP_END_BYTES);
  const view = new DataView(end.buffer);
  view.setUint32(0, crc32(inflatedBytes), true);
  view.setUint32(4, inflatedBytes.length, true);
  const isEnd = end.every((byte, i) => byte === rest[i]);
  if (isEnd && isZero(rest.subarray(GZIP_END_BYTES))) return;
  throw errors.corrupt_image(
    `The deflated data set ends ${rest.length} bytes before the file does: it was damaged, and what it holds may be wrong. Send the file again from its source.`,
  );
}

function notInflated(cause: unknown): RadserveError {
  if (cause instanceof RadserveError) return cause;
  const refusal = (code: ErrorCode, message: string) =>
    new RadserveError(code, message, undefined, { cause });
  switch (errno(cause)) {
    case "Z_BUF_ERROR":
      return refusal(
        "truncated_image",
        "The deflated data set ends before its last block. Send the file again from its source.",
      );
    case TOO_LARGE:
      return tooLarge(cause);
    default:
      return refusal(
        "corrupt_image",
        "The deflated data set cannot be inflated. The file is damaged.",
      );
  }
}

function tooLarge(cause?: unknown): RadserveError {
  return errors.unsupported_format(
    `The deflated data set unfolds to more than ${MAX_INFLATED_BYTES} bytes, the most that is read. Send it in another transfer syntax.`,
    { most: MAX_INFLATED_BYTES },
    { cause },
  );
}

/** By ImageType, in whatever case devices write it. */
export function isLocalizer(attributes: DataSetAttributes): boolean {
  return (attributes.strings("ImageType") ?? []).some(
    (value) => value.toUpperCase() === "LOCALIZER",
  );
}
