/**
 * Decoder threads: they shorten a request that is alone on an idle box, by decoding frames of one file, or files of one
 * series, at the same time.
 * On a busy box every core has an image of its own already, so they rest; frames are then decoded on the thread that
 * asks for them, as they are when all decoder threads have enough to do. Each has its own codecs (some 60 MB, 0.1 s), so
 * they start when first needed and end when idle.
 */
import os from "node:os";
import { Worker } from "node:worker_threads";
import { RadserveError, type ErrorObject } from "../../base/errors.js";
import type { PixelFormat, Warning } from "../image.js";
import { decodeFrame } from "./codecs.js";
import type { CodestreamHeader } from "./codestream.js";

export interface DecodeOrder {
  id: number;
  header: CodestreamHeader;
  format: PixelFormat;
}

export interface DecodeAnswer {
  id: number;
  data?: Uint8Array;
  error?: ErrorObject;
  warnings: Warning[];
}

export interface DecodedFrame {
  data: Uint8Array;
  warnings: Warning[];
}

const MOST_THREADS = 7;
/** One frame is decoded while the next waits: this thread may be busy decoding when an answer comes. */
const ORDERS_A_THREAD = 2;
const IDLE_MILLISECONDS = 2000;
/** Bytes of decoded frames that wait for their turn. */
const MOST_BYTES_AHEAD = 1 << 28;
/** Threads are started only if all frames together take this long to decode: a start takes a tenth of a second. */
const LEAST_MILLISECONDS = 200;
/** One that is there already is asked for less. */
const LEAST_WITH_A_THREAD = 20;
/** Nanoseconds a sample, measured on one core (bench/RESULTS.md). */
const COST: Record<CodestreamHeader["kind"], number> = {
  jpeg: 13,
  "jpeg-ls": 20,
  jpeg2000: 150,
  htj2k: 15,
  "jpeg-xl": 50,
};

let mostThreads = Math.min(MOST_THREADS, os.availableParallelism() - 1);
let leastMilliseconds = LEAST_MILLISECONDS;
let isAlone: () => boolean = () => true;

/**
 * Says when decoder threads may help this thread: `alone` is asked before each frame.
 * @param most threads to start, 7 at most; one less than the cores if absent
 * @param least milliseconds of decoding that an image has to need before a thread is started for it
 */
export function shareDecoding(alone: () => boolean, most = mostThreads, least = LEAST_MILLISECONDS): void {
  isAlone = alone;
  leastMilliseconds = least;
  mostThreads = Math.min(MOST_THREADS, most);
}

/** The most frames that are begun ahead, whatever they are. */
export const mostFramesAhead = (): number => (mostThreads < 1 ? 0 : mostThreads * ORDERS_A_THREAD + 1);

/** How many of `count` frames of that coding to begin ahead; 0 if that would not pay. */
export function framesAhead(coding: CodestreamHeader["kind"], format: PixelFormat, count: number): number {
  if (mostThreads < 1 || !isAlone()) return 0;
  const samples = format.rows * format.columns * format.samplesPerPixel;
  const least = threads.size > 0 ? Math.min(leastMilliseconds, LEAST_WITH_A_THREAD) : leastMilliseconds;
  if ((count * samples * COST[coding]) / 1e6 < least) return 0;
  const bytes = (samples * format.bitsAllocated) / 8;
  return Math.min(mostFramesAhead(), Math.floor(MOST_BYTES_AHEAD / bytes));
}

/**
 * Decodes a frame, on a decoder thread if `mayShare` and one has room, else on this thread.
 * Throws what decodeFrame throws.
 */
export async function decode(
  header: CodestreamHeader,
  format: PixelFormat,
  mayShare: boolean,
): Promise<DecodedFrame> {
  const thread = mayShare ? freeThread() : undefined;
  const shared = await thread?.decode(header, format);
  if (shared !== undefined) return shared;
  const warnings: Warning[] = [];
  return { data: await decodeFrame(header, format, warnings), warnings };
}

const threads = new Set<DecoderThread>();

function freeThread(): DecoderThread | undefined {
  const [least] = [...threads].sort((a, b) => a.orders - b.orders);
  if (least?.orders === 0) return least;
  if (threads.size < mostThreads) return new DecoderThread();
  return least !== undefined && least.orders < ORDERS_A_THREAD ? least : undefined;
}

interface Pending {
  resolve: (frame: DecodedFrame | undefined) => void;
  reject: (error: RadserveError) => void;
}

class DecoderThread {
  readonly #worker = new Worker(new URL("./decoder-thread.js", import.meta.url));
  readonly #pending = new Map<number, Pending>();
  #next = 0;
  #idle: NodeJS.Timeout | undefined;

  constructor() {
    threads.add(this);
    this.#worker.on("message", (answer: DecodeAnswer) => {
      this.#settle(answer);
    });
    // A thread that dies gives its frames back: they are decoded here, and tell what is wrong with them
    this.#worker.on("error", () => undefined);
    this.#worker.on("exit", () => {
      this.#leave();
      for (const { resolve } of this.#pending.values()) resolve(undefined);
    });
  }

  get orders(): number {
    return this.#pending.size;
  }

  /** Undefined if the thread ended first. */
  decode(header: CodestreamHeader, format: PixelFormat): Promise<DecodedFrame | undefined> {
    return new Promise((resolve, reject) => {
      clearTimeout(this.#idle);
      this.#worker.ref();
      const id = this.#next++;
      this.#pending.set(id, { resolve, reject });
      // A view would take the whole file with it
      const data = new Uint8Array(header.data);
      const order: DecodeOrder = { id, header: { ...header, data }, format };
      this.#worker.postMessage(order, [data.buffer]);
    });
  }

  #settle({ id, data, error, warnings }: DecodeAnswer): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (this.#pending.size === 0) this.#rest();
    if (error !== undefined) pending?.reject(RadserveError.fromObject(error));
    else if (data !== undefined) pending?.resolve({ data, warnings });
  }

  #rest(): void {
    this.#worker.unref();
    this.#idle = setTimeout(() => {
      this.#leave();
      void this.#worker.terminate();
    }, IDLE_MILLISECONDS);
    this.#idle.unref();
  }

  #leave(): void {
    clearTimeout(this.#idle);
    threads.delete(this);
  }
}
