/**
 * A decoder process: foreign bytes come in over its channel, pixels go out. Before the first of
 * them it gives up files, sockets, programs and memory for code (native/confine), so that what
 * takes it over finds nothing to reach. It does one thing after another, and waits for the channel
 * without an event loop.
 */
import { closeSync, constants, fstatSync, readdirSync, readSync, writeSync } from "node:fs";
import { confine, leave } from "../../addon/confine.js";
import { MAX_FILE_BYTES } from "../../files/descriptor.js";
import { openJpegVersion } from "../../addon/openjpeg.js";
import { decodeJpeg2000 } from "../dicom/jpeg2000-decoder.js";
import { decodeRaster, warmUp } from "../raster/raster-decoder.js";
import { CHANNEL, frameHead, FrameInParts, type WireFrame, type DecoderOrder } from "./frames.js";

/**
 * Writable memory: the longest file (2 GiB), the largest picture (2^27 pixels of six bytes), and
 * what a codec keeps beside them.
 */
const MOST_DATA = 4 * 2 ** 30;

interface DecodedAnswer {
  done: unknown;
  pixels: Uint8Array;
}

/** Messages over the channel are of the program's own making; only the bytes are foreign. */
const DECODERS: Record<
  DecoderOrder["decoder"],
  (bytes: Uint8Array, what: never) => DecodedAnswer | Promise<DecodedAnswer>
> = {
  raster: decodeRaster,
  jpeg2000: decodeJpeg2000,
};

const files = new Map<number, Buffer>();

/**
 * Files, sockets, devices and pipes that whoever started the server left open: they come through
 * all its processes. The runtime itself has none of them but pipes with both ends here.
 */
function closeStrangers(): void {
  const strangers = new Map<string | number, number>();
  for (const fd of readdirSync("/proc/self/fd").map(Number)) {
    if (fd <= CHANNEL) continue;
    try {
      const facts = fstatSync(fd);
      if (facts.isFIFO() && strangers.delete(`pipe ${facts.ino}`)) continue;
      if (facts.isFIFO()) strangers.set(`pipe ${facts.ino}`, fd);
      else if ((facts.mode & constants.S_IFMT) !== 0) strangers.set(fd, fd);
    } catch {
      // It was the list's own
    }
  }
  for (const fd of strangers.values()) closeSync(fd);
}

function send(head: Buffer, bytes: Uint8Array): void {
  for (const part of [head, bytes])
    for (let at = 0; at < part.length;) at += writeSync(CHANNEL, part, at, part.length - at);
}

/** Ends the process where the other side has gone. */
function receive(): WireFrame {
  const frame = new FrameInParts((_, bytes) => bytes <= MAX_FILE_BYTES);
  for (;;) {
    const { room } = frame;
    const count = readSync(CHANNEL, room, 0, room.length, null);
    if (count === 0) leave(0);
    const whole = frame.fill(count);
    if (whole !== undefined) return whole;
  }
}

async function handleOrder({ header, bytes }: WireFrame): Promise<void> {
  const { decoder, file, forget, what } = header as DecoderOrder;
  for (const each of forget) files.delete(each);
  if (bytes.length > 0) files.set(file, bytes);
  const held = files.get(file);
  try {
    if (held === undefined) throw new Error("Expected the file's bytes; found none");
    const { done, pixels } = await DECODERS[decoder](held, what as never);
    send(frameHead({ done }, pixels.length), pixels);
  } catch (error) {
    const failed = error instanceof Error ? error.message : String(error);
    send(frameHead({ failed: failed.slice(0, 1000) }, 0), new Uint8Array(0));
  }
}

closeStrangers();
try {
  await warmUp();
  // Later no library can be loaded
  openJpegVersion();
  confine(MOST_DATA);
} catch (error) {
  const why = error instanceof Error ? error.message : String(error);
  send(frameHead({ confined: false, why }, 0), new Uint8Array(0));
  process.exit(1);
}
send(frameHead({ confined: true }, 0), new Uint8Array(0));
for (;;) await handleOrder(receive());
