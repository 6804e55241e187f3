/**
 * Decoder threads: they shorten a request that is alone on an idle node, by decoding frames of one
 * file, or files of one series, at the same time. On a busy node every core has an image of its own
 * already, so they rest; frames are then decoded on the thread that asks for them, as they are when
 * all decoder threads have enough to do. Each has its own codecs (some 60 MB, 0.1 s), so they start
 * when first needed and end when idle.
 */
import os from "node:os";
import { moved, ThreadEnded } from "../../base/remote.js";
import { ServiceThread } from "../../base/service-thread.js";
import type { PixelFormat, Warning } from "../image.js";
import { decodeFrame } from "./codecs.js";
import type { CodestreamHeader } from "./codestream.js";

export interface DecodedFrame {
  data: Uint8Array;
  warnings: Warning[];
}

export interface DecoderThread {
  decode(header: CodestreamHeader, format: PixelFormat): Promise<DecodedFrame>;
}

const MOST_THREADS = 7;
/**
 * One frame is decoded while the next waits: this thread may be busy decoding when an answer comes.
 */
const ORDERS_A_THREAD = 2;
const IDLE_MILLISECONDS = 2000;
/** Bytes of decoded frames that wait for their turn. */
const MOST_BYTES_AHEAD = 1 << 28;
/**
 * Threads are started only if all frames together take this long to decode: a start takes a tenth
 * of a second.
 */
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
export function shareDecoding(
  alone: () => boolean,
  most = mostThreads,
  least = LEAST_MILLISECONDS,
): void {
  isAlone = alone;
  leastMilliseconds = least;
  mostThreads = Math.min(MOST_THREADS, most);
}

/** Threads that may decode for this one at once. */
export const mostHelpers = (): number => mostThreads;

/** The most frames that are begun ahead, whatever they are. */
export const mostFramesAhead = (): number =>
  mostThreads < 1 ? 0 : mostThreads * ORDERS_A_THREAD + 1;

/** How many of `count` frames of that coding to begin ahead; 0 if that would not pay. */
export function framesAhead(
  coding: CodestreamHeader["kind"],
  format: PixelFormat,
  count: number,
): number {
  if (mostThreads < 1 || !isAlone()) return 0;
  const samples = format.rows * format.columns * format.samplesPerPixel;
  const least = threads.some(({ isRunning }) => isRunning)
    ? Math.min(leastMilliseconds, LEAST_WITH_A_THREAD)
    : leastMilliseconds;
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
  const shared = thread && (await decodeOn(thread, header, format));
  if (shared !== undefined) return shared;
  const warnings: Warning[] = [];
  return { data: await decodeFrame(header, format, warnings), warnings };
}

const threads: ServiceThread<DecoderThread>[] = [];

/** A thread without a frame, a new one, or one that has room for another frame. */
function freeThread(): ServiceThread<DecoderThread> | undefined {
  const running = threads.filter(({ isRunning }) => isRunning);
  const [least] = running.sort((a, b) => a.pending - b.pending);
  if (least?.pending === 0) return least;
  if (running.length < mostThreads)
    return threads.find(({ isRunning }) => !isRunning) ?? newThread();
  return least !== undefined && least.pending < ORDERS_A_THREAD ? least : undefined;
}

function newThread(): ServiceThread<DecoderThread> {
  const thread = new ServiceThread<DecoderThread>({
    file: new URL("./decoder-thread.js", import.meta.url),
    idleMs: IDLE_MILLISECONDS,
  });
  threads.push(thread);
  return thread;
}

/**
 * Undefined if the thread ended first: the frame is decoded here, and tells what is wrong with it.
 */
async function decodeOn(
  thread: ServiceThread<DecoderThread>,
  header: CodestreamHeader,
  format: PixelFormat,
): Promise<DecodedFrame | undefined> {
  // A view would take the whole file with it
  const data = new Uint8Array(header.data);
  try {
    return await thread.call.decode(moved({ ...header, data }, [data.buffer]), format);
  } catch (error) {
    if (error instanceof ThreadEnded) return undefined;
    throw error;
  }
}
