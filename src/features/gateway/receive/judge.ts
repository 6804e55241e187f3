/** Whether an object that is no regular data set, or lies in the spool, can be read. */
import { fstatSync } from "node:fs";
import { RadserveError } from "../../../base/errors.js";
import { release } from "../../../addon/bytes.js";
import { fillFrom, readStart } from "../../../files/descriptor.js";
import { withPlain } from "../../../files/durable-files.js";
import { openFile, readFileMeta, type DicomFile } from "../../../images/dicom/dicom-file.js";
import { isImageClass } from "../../../images/dicom/image-classes.js";
import { framesEnd } from "../../../images/dicom/frame-ends.js";
import { corrupt, UNDEFINED } from "../../../images/dicom/headers.js";
import { checkPixels, cut, isPixels, NOTED, type NotedValues } from "./pixel-length.js";
import { WholeObject } from "./whole-object.js";

/** The longest object that is read whole. An odd one that is longer is not taken. */
const MOST_READ = 64 * 1024 * 1024;
const META_BYTES = 64 * 1024;
const CHUNK_BYTES = 1024 * 1024;

/**
 * An object that its walk called odd, as the reader of images sees it.
 * @param fd from its beginning
 * @param isImage its class is one of images
 * @throws RadserveError corrupt_image, truncated_image, unsupported_format
 */
export async function checkOdd(fd: number, isImage: boolean): Promise<void> {
  const { size } = fstatSync(fd);
  if (size > MOST_READ)
    throw corrupt(
      `The data set is irregular, and longer than the ${MOST_READ} bytes of such a one.`,
    );
  const bytes = await readStart(fd, size);
  try {
    checkAsRead(openFile(bytes), bytes, isImage);
  } finally {
    release(bytes);
  }
}

function checkAsRead({ dataSet }: DicomFile, bytes: Uint8Array, isImage: boolean): void {
  const noted: NotedValues = new Map();
  const { littleEndian } = dataSet.encoding;
  for (const { tag, offset, available } of dataSet.elements.values())
    if (NOTED.has(tag)) {
      const value = Buffer.from(bytes.subarray(offset, offset + available));
      noted.set(tag, { bytes: value, littleEndian });
    }
  const pixels = [...dataSet.elements.values()].find(({ tag }) => isPixels(tag));
  const { encapsulated } = pixels ?? {};
  if (pixels !== undefined && encapsulated === undefined && pixels.available < pixels.length)
    throw cut("PixelData", `${pixels.available} of ${pixels.length} bytes`);
  if (encapsulated?.delimited === false) throw cut("PixelData", "no delimiter at its end");
  checkPixels(
    noted,
    pixels && {
      tag: pixels.tag,
      length: encapsulated === undefined ? pixels.length : UNDEFINED,
      fragments: 1 + (encapsulated?.fragments.filter(({ length }) => length > 0).length ?? 0),
    },
    isImage,
  );
}

/**
 * Whether a compressed frame of an object is not there to its end. Its pixels may be whole all the
 * same: some writers leave end markers out. Asked of an object as inference reads it.
 */
export async function lacksEnds(fd: number): Promise<boolean> {
  const { size } = fstatSync(fd);
  if (size > MOST_READ) return false;
  const bytes = await readStart(fd, size);
  try {
    return !framesEnd(openFile(bytes));
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return error.code === "corrupt_image" || error.code === "truncated_image";
  } finally {
    release(bytes);
  }
}

/** Whether what has the name is no whole object: cut, or none that is read as an image. */
export async function isDamaged(path: string): Promise<boolean> {
  try {
    await withPlain(path, checkWhole);
    return false;
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return error.code === "corrupt_image" || error.code === "truncated_image";
  }
}

async function checkWhole(fd: number): Promise<void> {
  const meta = readFileMeta(await readStart(fd, META_BYTES));
  if (meta === undefined) throw corrupt("The file has no File Meta Information.");
  const isImage = isImageClass(meta.sopClassUid);
  const walk = new WholeObject(meta.transferSyntax, isImage);
  const chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  let skipped = meta.end;
  for (;;) {
    const bytes = chunk.subarray(0, await fillFrom(fd, chunk));
    if (bytes.length === 0) break;
    walk.add(bytes.subarray(skipped));
    skipped = Math.max(0, skipped - bytes.length);
  }
  walk.end();
  if (fstatSync(fd).size > MOST_READ) return;
  if (walk.isOdd) await checkOdd(fd, isImage);
  if (!isImage) return;
  // What inference would say of it
  const { readDicom } = await import("../../../images/dicom/dicom-image.js");
  const bytes = await readStart(fd, fstatSync(fd).size);
  readDicom(bytes);
}
