/**
 * A frame of a result's image as its own window shows it. What is shown is the image that the
 * receipt names, judged by hashes and never by a path: a mask over another image would look like a
 * finding.
 */
import { fstatSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { packPng } from "../../addon/picture.js";
import { errors } from "../../base/errors.js";
import type { ProcessMemory } from "../../base/process-memory.js";
import { MAX_FILE_BYTES, readStart, readWhole } from "../../files/descriptor.js";
import { hashFile, sha256, withPlain } from "../../files/durable-files.js";
import type { OpenedInput } from "../../files/guarded-paths.js";
import type { Engine } from "../../engine/engine.js";
import type { Plane } from "../../engine/types.js";
import type { Image } from "../../images/image.js";
import { readImage, SNIFF_BYTES, sniffFormat } from "../../images/read-image.js";
import { FOLDER_LIMITS } from "../../inference/read-input.js";
import { withFile } from "../../inference/reading-memory.js";
import { displayed, planeOf } from "../../results/picture/draw-result.js";
import type { Receipt } from "../../results/receipt/receipt.js";
import { changed, requireImage } from "../../results/receipt/unchanged.js";
import { frameFacts } from "./frame-values.js";
import type { FrameFacts } from "./messages.js";

/** Longer sides are scaled down: a screen shows no more. */
const LONGEST_SIDE = 2048;
/** Stored values, what is rendered of them, and the picture in which it is packed. */
const BYTES_A_PIXEL = 3 + 3 + 12;
const FOLDERS_KNOWN = 4;

/** Which file of a folder has which bytes, as far as it was looked at. */
interface KnownFolder {
  names: readonly string[];
  /** How many of the names were looked at. */
  looked: number;
  bySha256: Map<string, string>;
}

export class SourcePictures {
  readonly #folders = new Map<string, KnownFolder>();

  constructor(private readonly tools: { engine: Engine; memory: ProcessMemory }) {}

  /** A PNG in the image's true proportions; for the rest as `facts`. */
  draw(source: OpenedInput, receipt: Receipt, frame: number): Promise<Uint8Array> {
    return this.#with(source, receipt, frame, async (image, at) =>
      drawnPlane(displayed(planeOf(image, at, await image.frame(at))), this.tools.engine),
    );
  }

  /**
   * The values of a frame, and what is said in the corners.
   * @param frame from 1: of the file, or of the receipt's slices
   * @throws RadserveError bad_request for a frame that the source has not, result_changed; what
   * reading throws
   */
  facts(source: OpenedInput, receipt: Receipt, frame: number): Promise<FrameFacts> {
    return this.#with(source, receipt, frame, frameFacts);
  }

  async #with<T>(
    source: OpenedInput,
    { source: named }: Receipt,
    frame: number,
    use: (image: Image, frame: number) => Promise<T>,
  ): Promise<T> {
    if (frame > named.frames)
      throw errors.bad_request(
        `Expected a frame from 1 to ${named.frames}; found ${frame}. The source of the result has no more.`,
      );
    const slices = named.slices ?? leadingOf(named);
    if (slices === undefined) {
      if (source.kind !== "file")
        throw changed("the path of the image that the receipt names; found a folder.");
      const file = { size: fstatSync(source.fd).size, read: () => readWhole(source.fd) };
      return this.#read(file, async (image) => {
        await requireImage(image, named);
        return use(image, frame - 1);
      });
    }
    const slice = slices[frame - 1];
    if (source.kind !== "folder" || slice === undefined)
      throw changed("the folder of the series that the receipt names; found a file.");
    const name = await this.#sliceOf(source, slice.file_sha256);
    const done = await withPlain(`${source.fdPath}/${name}`, async (fd, { size }) => {
      const file = { size, read: () => readSame(fd, slice.file_sha256) };
      return { result: await this.#read(file, (image) => use(image, (slice.frame ?? 1) - 1)) };
    });
    if (done === undefined) throw gone();
    return done.result;
  }

  #read<T>(
    file: { size: number; read: () => Promise<Uint8Array> },
    use: (image: Image) => Promise<T>,
  ): Promise<T> {
    const patience = { patient: true, check: () => undefined };
    const { memory } = this.tools;
    return withFile(memory, file, patience, async (bytes, most) => {
      const image = await readImage(bytes, patience.check, most);
      const { rows, columns, samplesPerPixel, bitsAllocated } = image.format;
      const claim = rows * columns * (BYTES_A_PIXEL + (samplesPerPixel * bitsAllocated) / 8);
      try {
        const ofThread = image.codec?.bytes ?? 0;
        return await memory.within({ kind: "images", bytes: claim, ofThread, ...patience }, () =>
          use(image),
        );
      } finally {
        image.release?.();
      }
    });
  }

  /**
   * The name of the file of a folder that has these bytes. Files are looked at in their order until
   * it is found.
   */
  async #sliceOf(folder: OpenedInput, wanted: string): Promise<string> {
    const { fdPath, realPath } = folder;
    const isListedNow = !this.#folders.has(realPath);
    const known = await this.#known(fdPath, realPath);
    const name = known.bySha256.get(wanted);
    if (name !== undefined) {
      if ((await imageHash(`${fdPath}/${name}`)) === wanted) return name;
      this.#folders.delete(realPath);
    }
    while (known.looked < known.names.length) {
      const next = known.names[known.looked] ?? "";
      known.looked += 1;
      const found = await imageHash(`${fdPath}/${next}`);
      if (found === undefined) continue;
      known.bySha256.set(found, next);
      if (found === wanted) return next;
    }
    this.#folders.delete(realPath);
    // Slices may have come since it was listed
    if (!isListedNow) return this.#sliceOf(folder, wanted);
    throw gone();
  }

  async #known(fdPath: string, realPath: string): Promise<KnownFolder> {
    const before = this.#folders.get(realPath);
    if (before !== undefined) return before;
    const names = (await readdir(fdPath)).sort().slice(0, FOLDER_LIMITS.files);
    const known = { names, looked: 0, bySha256: new Map<string, string>() };
    this.#folders.set(realPath, known);
    const [oldest] = this.#folders.keys();
    if (this.#folders.size > FOLDERS_KNOWN && oldest !== undefined) this.#folders.delete(oldest);
    return known;
  }
}

const gone = () =>
  changed("the folder to hold the slice that the receipt names; no file has its SHA-256.");

/** SHA-256 of a file that may be an image; undefined of others, however long they are. */
async function imageHash(file: string): Promise<string | undefined> {
  const mayBeImage = await withPlain(
    file,
    async (fd, { size }) =>
      size <= MAX_FILE_BYTES && sniffFormat(await readStart(fd, SNIFF_BYTES)) !== undefined,
  );
  return mayBeImage === true ? hashFile(file) : undefined;
}

/** The bytes of a file, as they were when it was hashed. */
async function readSame(fd: number, hash: string): Promise<Uint8Array> {
  const bytes = await readWhole(fd);
  if (sha256(bytes) !== hash) throw gone();
  return bytes;
}

/** A PNG of a plane in its true proportions. */
export async function drawnPlane(plane: Plane, engine: Engine): Promise<Uint8Array> {
  const { rows, columns } = plane.format;
  const height = rows * plane.pixelAspect;
  const scale = Math.min(1, LONGEST_SIDE / Math.max(columns, height));
  const side = (length: number) => Math.max(1, Math.round(length * scale));
  const size = { width: side(columns), height: side(height) };
  return packPng({ ...size, rgb: await engine.render(plane, { voiIndex: 0, ...size }) });
}

/** The file of the image in which the results of a case of single images lie. */
function leadingOf({ case: members }: Receipt["source"]): Receipt["source"]["slices"] {
  return members?.slice(0, 1).map(({ file_sha256 }) => ({ file_sha256 }));
}
