/**
 * Frames of JPEG 2000 whose wavelet is reversible, by the system's OpenJPEG where it has one: they
 * have one decoding only, so that it gives the pixels that the WebAssembly codec gives, in less
 * time and on several cores. It works in the decoder process. Where it says anything but pixels,
 * the WebAssembly codec decides what is wrong with the frame.
 */
import os from "node:os";
import { z } from "zod";
import { openJpegVersion, type Jpeg2000Frame } from "../../addon/openjpeg.js";
import { RadserveError } from "../../base/errors.js";
import { decodeApart, hasDecoder } from "../decoder/decoder.js";
import type { CodestreamHeader } from "./codestream.js";

/** The question to the decoder process. */
export interface Jpeg2000Order {
  frame: Jpeg2000Frame;
  threads: number;
}

/** Below it the way to the process takes what the library saves. */
const LEAST_SAMPLES = 1 << 16;
/**
 * Frames that take the WebAssembly codec about as long as a process takes to start; for less none
 * is started.
 */
const WORTH_A_PROCESS = 1 << 21;
/** Some seconds of a core. A larger frame stays on its thread, which ends with its deadline. */
const MOST_SAMPLES = 1 << 24;
/** More threads than that gain little on one frame. */
const MOST_THREADS = 8;

let isThere: boolean | undefined;
/** Samples that were left to the WebAssembly codec since this thread last had a process. */
let samplesLeft = 0;

/**
 * Whether a frame is for the system's library. Small frames are not worth a process while there is
 * none, until many of them have come.
 */
export function isForOpenJpeg({ kind, lossy, ended, ...header }: CodestreamHeader): boolean {
  const { rows, columns, components, precision } = header;
  if (kind !== "jpeg2000" || lossy || !ended || precision > 16 || header.sampling !== undefined)
    return false;
  const samples = rows * columns * components;
  if (samples < LEAST_SAMPLES || samples > MOST_SAMPLES || !(components === 1 || components === 3))
    return false;
  if (!(isThere ??= openJpegVersion() !== undefined)) return false;
  samplesLeft = hasDecoder() ? 0 : samplesLeft + samples;
  return hasDecoder() || samplesLeft >= WORTH_A_PROCESS;
}

const nothing = z.object({});

/**
 * The frame's samples as the codec has them (openjpeg.ts); undefined where they are not beyond
 * doubt.
 */
export async function decodeByOpenJpeg(header: CodestreamHeader): Promise<Uint8Array | undefined> {
  const { rows, columns, components, precision, signed } = header;
  const order: Jpeg2000Order = {
    frame: { rows, columns, components, precision, signed },
    threads: Math.min(MOST_THREADS, os.availableParallelism()),
  };
  const bytes = rows * columns * components * (precision <= 8 ? 1 : 2);
  const apart = decodeApart("jpeg2000", header.data, "JPEG 2000", () => undefined);
  try {
    return (await apart.ask(order, nothing, () => bytes)).bytes;
  } catch (error) {
    // A process that cannot be started is not tried again by this thread
    if (error instanceof RadserveError && error.code === "internal") isThere = false;
    return undefined;
  } finally {
    apart.release();
  }
}
