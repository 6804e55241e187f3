/**
 * The memory that reading a file takes. Nobody knows how many elements a DICOM file has before they
 * are walked, so it is walked with room for few; one that has more is walked again with room for
 * more.
 */
import { collect } from "../addon/bytes.js";
import { ClaimsOfTask, type ProcessMemory } from "../base/process-memory.js";
import { mostFramesAhead } from "../images/dicom/decoders.js";
import { MOST_SEEN, TooManyElements } from "../images/dicom/headers.js";
import { checkFileSize } from "../files/descriptor.js";
import { bytesUnpacked } from "../images/read-image.js";

/**
 * Elements, items and fragments for which a file is given room; the first is enough for nearly all.
 */
const STEPS = [1 << 12, 1 << 17, MOST_SEEN];
const [FIRST = MOST_SEEN] = STEPS;
/** The most that one was measured to take, looked at: sequences of one empty item each. */
const BYTES_AN_ELEMENT = 448;
/** The most for a byte of the file: items of one empty element each. */
const BYTES_A_BYTE = 40;
/**
 * The share of the memory of images up to which files stay in memory after the first look at them.
 */
const KEPT_SHARE = 1 / 16;
/** Most bytes of files that are read again before they are asked for, together. */
const MOST_BYTES_AHEAD = 1 << 26;

/** The patience with which a task waits for memory. */
export interface MemoryPatience {
  patient: boolean;
  /** It is bulk work, and goes behind all other. */
  yields?: boolean;
  check: () => void;
  /** Files that the task reads beside each other; they wait for one another as long as it takes. */
  ofTask?: ClaimsOfTask;
}

const elementsIn = (bytes: number, most: number): number =>
  Math.min(BYTES_AN_ELEMENT * most, BYTES_A_BYTE * bytes);

/**
 * Works on a file whose own bytes are counted, with room for what reading it unpacks.
 * @param work is done again with more elements where reading throws TooManyElements
 * @throws RadserveError overloaded where there is no room; what the work throws
 */
export async function withUnpacked<T>(
  memory: ProcessMemory | undefined,
  bytes: Uint8Array,
  patience: MemoryPatience,
  work: (mostElements: number) => Promise<T>,
): Promise<T> {
  if (memory === undefined) return work(MOST_SEEN);
  let unpacked: number | undefined;
  for (const most of STEPS) {
    try {
      unpacked ??= await bytesUnpacked(bytes, patience.check, most);
      const elements = most === FIRST ? 0 : elementsIn(bytes.length + unpacked, most);
      const more = unpacked + elements;
      if (more === 0) return await work(most);
      return await memory.within({ kind: "unpacked", bytes: more, ...patience }, () =>
        most < MOST_SEEN ? work(most) : work(most).finally(collect),
      );
    } catch (error) {
      if (!(error instanceof TooManyElements)) throw error;
    }
  }
  throw new Error("The last step is the most that a file may have");
}

/**
 * Reads a file of `size` bytes with room for it, and works on it with room for what reading it
 * unpacks.
 * @param read is called when there is room for the file
 * @param work as for withUnpacked
 */
export async function withFile<T>(
  memory: ProcessMemory | undefined,
  { size, read }: { size: number; read: () => Promise<Uint8Array> },
  patience: MemoryPatience,
  work: (bytes: Uint8Array, mostElements: number) => Promise<T>,
): Promise<T> {
  // One that is never read need not wait for room
  checkFileSize(size);
  const all = async () => {
    const bytes = await read();
    return withUnpacked(memory, bytes, patience, (most) => work(bytes, most));
  };
  return memory === undefined
    ? all()
    : memory.within({ kind: "files", bytes: size + elementsIn(size, FIRST), ...patience }, all);
}

/**
 * The memory of a folder's slices: what each takes while it is read, and what is kept of it until
 * all are done with.
 */
export class SliceMemory {
  readonly #kept: (() => void)[] = [];
  /** Files that are being read again. */
  readonly #reading = new Set<Promise<unknown>>();
  readonly #patience: MemoryPatience;
  #filesAhead = 0;
  /** Throws what ends the reading. */
  readonly check: () => void;

  constructor(
    private readonly memory: ProcessMemory | undefined,
    patience: MemoryPatience,
  ) {
    this.#patience = { ...patience, ofTask: new ClaimsOfTask() };
    this.check = patience.check;
  }

  /** Reads a file of `size` bytes, and does the work with it as withUnpacked does. */
  async within<T>(
    size: number,
    read: () => Promise<Uint8Array>,
    work: (bytes: Uint8Array, mostElements: number) => Promise<T>,
  ): Promise<T> {
    return withFile(this.memory, { size, read }, this.#patience, work);
  }

  /** Counts what is kept of a slice. */
  keep({ bytes, elements }: { bytes: number; elements: number }): void {
    const held = this.memory?.keep("unpacked", bytes + elements * BYTES_AN_ELEMENT);
    if (held !== undefined) this.#kept.push(held);
  }

  /**
   * Counts a whole file that stays in memory until its frames are asked for, where there is room.
   * @returns false where it is to be read again
   */
  keepWhole(bytes: number, elements: number): boolean {
    const held = this.memory?.keepIfRoom("files", bytes + elementsIn(bytes, elements), KEPT_SHARE);
    if (held !== undefined) this.#kept.push(held);
    return held !== undefined;
  }

  /**
   * Counts what the largest file takes once more: its frames are read from it again, one file after
   * the other, and some files ahead. Called when all files have been looked at, so that nobody who
   * holds this waits for other files.
   */
  keepForAgain(files: readonly { bytes: number; elements: number }[]): void {
    const largest = files.reduce(
      (most, { bytes, elements }) => Math.max(most, bytes + elementsIn(bytes, elements)),
      0,
    );
    if (largest === 0) return;
    this.#filesAhead = Math.min(
      mostFramesAhead(),
      files.length - 1,
      Math.floor(MOST_BYTES_AHEAD / largest),
    );
    const held = this.memory?.hold("files", largest * (1 + this.#filesAhead));
    if (held !== undefined) this.#kept.push(held);
  }

  /**
   * Files that may be in memory beside the one that is read again; 0 until all have been looked at.
   */
  filesAhead(): number {
    return this.#filesAhead;
  }

  /** Reads a file again, as it was counted. */
  async again(read: () => Promise<Uint8Array>): Promise<Uint8Array> {
    const reading = read();
    this.#reading.add(reading);
    try {
      return await reading;
    } finally {
      this.#reading.delete(reading);
    }
  }

  /**
   * Resolves when nothing is read any more, also what nobody has asked for yet; then the folder may
   * be closed.
   */
  async close(): Promise<void> {
    await Promise.allSettled(this.#reading);
    for (const giveBack of this.#kept) giveBack();
  }
}
