/**
 * The codecs: NativeCodecs of dcmjs-codecs (DCMTK's JPEG, OpenJPEG, OpenJPH, libjxl in one
 * WebAssembly module), and CharLS for JPEG-LS (jpeg-ls.ts); one instance a thread, frame by frame.
 * What the system's OpenJPEG can decode goes there first (jpeg2000.ts). The calls are wrapped
 * because they
 * - trust the sizes given: rows, columns, samples and depth are compared with the codestream first
 *   (codestream.ts);
 * - go on over damage: libjpeg gives grey after the data ends, OpenJPH is set to be resilient; what
 *   they say while they decode is collected, and a complaint about the data fails the frame;
 * - throw through WebAssembly frames, which leaves its stack where it was: after any error the
 *   instance is replaced.
 */
import { createRequire } from "node:module";
import type codecs from "dcmjs-codecs";
import type { Context as CodecContext } from "dcmjs-codecs";
import { errors, RadserveError } from "../../base/errors.js";
import { warn, type Codec, type PixelFormat, type Warning } from "../image.js";
import { type CodestreamHeader } from "./codestream.js";
import { charLsIsLoaded, decodeJpegLs, dropCharLs, loadCharLs } from "./jpeg-ls.js";
import { decodeByOpenJpeg, isForOpenJpeg } from "./jpeg2000.js";
import { interleaved, narrowed, widened } from "./samples.js";

type Library = typeof codecs;
let loaded: Library | undefined;

/**
 * Loaded by the first frame that needs it: its 4 MB of WebAssembly take a thread time, and memory
 * for ever.
 */
function library(): Library {
  if (loaded === undefined) {
    loaded = createRequire(import.meta.url)("dcmjs-codecs") as Library;
    Object.assign(loaded.log, { info: collect, warn: collect, error: collect });
  }
  return loaded;
}

/**
 * The codecs write to the console by default; here their messages are evidence about the frame
 * being decoded.
 */
let messages: string[] = [];
const collect = (...parts: unknown[]) => {
  if (messages.length < 1000) messages.push(parts.map(String).join(" "));
};

let usable = false;
let starting: Promise<void> | undefined;

/** Loads the codecs of this thread, if they are not loaded or an exception has used them up. */
export async function loadCodecs(): Promise<void> {
  if (!usable) await (starting ??= start());
}

/**
 * A frame after which the instance is dropped, because its memory has grown to hold several of its
 * size.
 */
const LARGE_FRAME_BYTES = 1 << 27;

/**
 * A frame after which an idle thread drops its codecs: to make them again (30 ms) costs less than
 * what they keep.
 */
const GROWING_FRAME_BYTES = 1 << 23;
/** A frame of that size was decoded by the codecs that are loaded. */
let grown = false;

function release(): void {
  usable = false;
  roomBeyond = 0;
  library().NativeCodecs.release();
}

/**
 * Is called when a thread has no work: codecs whose memory large frames have grown are made again
 * by the next frame.
 */
export function dropGrownCodecs(): void {
  if (!grown) return;
  grown = false;
  if (usable) release();
  dropCharLs();
}

async function start(): Promise<void> {
  await library().NativeCodecs.initializeAsync({ logCodecsInfo: true });
  usable = true;
  starting = undefined;
}

/**
 * Bytes that decoding takes for each sample of at most 8 bits, and of more, beside the file and the
 * frame that comes of it: what was measured most, of one component and of three, of noise and not
 * (bench/RESULTS.md, Memory of hostile files).
 */
const BYTES_A_SAMPLE: Record<CodestreamHeader["kind"] | "progressive", readonly [number, number]> =
  {
    jpeg: [2, 4],
    progressive: [3.5, 5.5],
    "jpeg-ls": [2, 4.5],
    jpeg2000: [8.5, 10.5],
    htj2k: [5.5, 10.5],
    "jpeg-xl": [5.5, 10],
  };
/** For each pixel of a frame whose components have fewer samples than pixels (growFor). */
const BYTES_A_SUBSAMPLED_PIXEL = 32;

/** The codec of a frame with that header, and what it takes. */
export function codecOf({ kind, rows, columns, components, ...header }: CodestreamHeader): Codec {
  const pixels = rows * columns;
  const [ofByte, ofMore] = BYTES_A_SAMPLE[header.progressive ? "progressive" : kind];
  const beyond = header.sampling === undefined ? 0 : BYTES_A_SUBSAMPLED_PIXEL;
  const bytes = pixels * (components * (header.precision > 8 ? ofMore : ofByte) + beyond);
  return kind === "jpeg-xl" ? { kind, bytes } : { kind, bytes, lossy: header.lossy };
}

/**
 * Complaints after which the pixels cannot be trusted (libjpeg jerror.h, OpenJPEG, OpenJPH), and
 * which mean a short file.
 */
const ENDED_EARLY = /premature end|truncated|unexpected end|not enough|too short|stream too/i;
const DAMAGED =
  /corrupt jpeg data: (?!\d+ extraneous)|bad huffman|inconsistent progression|ojph (error|warning)|failed to decode|decoding error|segment too long|invalid|expected (sot|soc)/i;
/** Complaints that DCMTK, whose JPEG library this is, also passes over; the pixels are whole. */
const HARMLESS = /extraneous bytes|invalid sos parameters for sequential/i;

function fail(
  code: "corrupt_image" | "truncated_image",
  name: string,
  said: string,
  cause?: unknown,
): RadserveError {
  const message =
    code === "truncated_image"
      ? `A ${name} frame ends before its pixels do. Send the file again from its source.`
      : `A ${name} frame cannot be decoded. The file is damaged or coded in a way its decoder does not know.`;
  return new RadserveError(code, message, { codec: name, reason: said.slice(0, 200) }, { cause });
}

const NAMES = {
  jpeg: "JPEG",
  "jpeg-ls": "JPEG-LS",
  jpeg2000: "JPEG 2000",
  htj2k: "HTJ2K",
  "jpeg-xl": "JPEG XL",
} as const;

/**
 * Compares the codestream with the data set. Throws corrupt_image or unsupported_transfer_syntax.
 */
export function checkHeader(header: CodestreamHeader, format: PixelFormat): void {
  const name = NAMES[header.kind];
  if (header.rows !== format.rows || header.columns !== format.columns)
    throw errors.corrupt_image(
      `Rows and Columns are ${format.rows} x ${format.columns} but the ${name} frame is ${header.rows} x ${header.columns}.`,
    );
  if (header.components !== format.samplesPerPixel)
    throw errors.corrupt_image(
      `SamplesPerPixel is ${format.samplesPerPixel} but the ${name} frame has ${header.components} components.`,
    );
  if (header.precision > format.bitsAllocated)
    throw errors.corrupt_image(
      `BitsAllocated is ${format.bitsAllocated} but the ${name} frame has ${header.precision} bits a sample.`,
    );
  const isJpeg2000 = header.kind === "jpeg2000" || header.kind === "htj2k";
  const colour16 =
    isJpeg2000 && !isForOpenJph(header) && header.components > 1 && header.precision > 8;
  if (header.precision > 16 || colour16)
    throw errors.unsupported_transfer_syntax(
      `${name} with ${header.components} components of ${header.precision} bits cannot be decoded. ` +
        "Convert the object to Explicit VR Little Endian.",
    );
}

/**
 * OpenJPH has HTJ2K but where components have fewer samples: its wrapper hands those out in no
 * order. OpenJPEG has them.
 */
const isForOpenJph = ({ kind, sampling }: CodestreamHeader) =>
  kind === "htj2k" && sampling === undefined;

/** Arguments of the call into the codec: sizes of the codestream, never of the data set. */
function contextOf(header: CodestreamHeader): CodecContext {
  // OpenJPH clips signed 8-bit samples to 0..255 and unsigned 16-bit samples to a signed range if
  // told so
  const wide = header.precision > 8 || (isForOpenJph(header) && header.signed);
  return new (library().Context)({
    width: header.columns,
    height: header.rows,
    bitsAllocated: wide ? 16 : 8,
    bitsStored: header.precision,
    samplesPerPixel: header.components,
    pixelRepresentation: header.signed ? 1 : 0,
    planarConfiguration: 0,
    photometricInterpretation: header.components === 1 ? "MONOCHROME2" : "RGB",
    encodedBuffer: header.data,
  });
}

/** The largest frame, in pixels, that this instance has room to be read beyond for. */
let roomBeyond = 0;

/**
 * The wrapper of OpenJPEG reads as many samples of each component as there are pixels, those that a
 * subsampled one does not have from what lies behind it in memory. They are dropped, but the memory
 * has to reach that far: it grows by more than the decoder and they take together.
 */
function growFor({ rows, columns, data }: CodestreamHeader): void {
  const { wasmApi } = library().NativeCodecs as unknown as {
    wasmApi: { wasmMemory: { grow(pages: number): number } };
  };
  if (rows * columns <= roomBeyond) return;
  roomBeyond = rows * columns;
  wasmApi.wasmMemory.grow(Math.ceil((32 * roomBeyond + data.length) / 65536));
}

function call(header: CodestreamHeader): Uint8Array | undefined {
  const { NativeCodecs } = library();
  switch (header.kind) {
    case "jpeg":
      return NativeCodecs.decodeJpeg(contextOf(header), {
        convertColorspaceToRgb: false,
      }).getDecodedBuffer();
    case "jpeg-ls":
      return decodeJpegLs(header);
    case "jpeg2000":
    case "htj2k":
      if (header.sampling !== undefined) growFor(header);
      return isForOpenJph(header)
        ? NativeCodecs.decodeHtJpeg2000(contextOf(header)).getDecodedBuffer()
        : NativeCodecs.decodeJpeg2000(contextOf(header)).getDecodedBuffer();
    case "jpeg-xl":
      return NativeCodecs.decodeJpegXl(contextOf(header)).getDecodedBuffer();
  }
}

/**
 * Decodes one frame whose header was checked, to the layout of `format`: colour by pixel, colour
 * space as coded (JPEG 2000 and JPEG XL undo their own transforms), containers of BitsAllocated.
 * Throws RadserveError: corrupt_image, truncated_image.
 */
export async function decodeFrame(
  header: CodestreamHeader,
  format: PixelFormat,
  warnings: Warning[],
): Promise<Uint8Array> {
  const name = NAMES[header.kind];
  const bytes = header.precision <= 8 && !(isForOpenJph(header) && header.signed) ? 1 : 2;
  if (isForOpenJpeg(header)) {
    const plain = await decodeByOpenJpeg(header);
    if (plain !== undefined) return rearranged(plain, header, format, bytes);
  }
  // Asked again after each wait: another frame's failure may have taken the instance down meanwhile
  const isLs = header.kind === "jpeg-ls";
  while (!(isLs ? charLsIsLoaded() : usable)) await (isLs ? loadCharLs() : loadCodecs());
  messages = [];
  let decoded: Uint8Array | undefined;
  try {
    decoded = call(header);
  } catch (error) {
    if (!isLs) release();
    const said = [error instanceof Error ? error.message : String(error), ...messages].join("; ");
    const early = ENDED_EARLY.test(said) || !header.ended;
    throw fail(early ? "truncated_image" : "corrupt_image", name, said, error);
  }
  // WebAssembly memory never shrinks
  const length = decoded?.length ?? 0;
  if (!isLs && length > LARGE_FRAME_BYTES) release();
  grown ||= length > GROWING_FRAME_BYTES;
  judgeMessages(header, name, warnings);
  const expected = header.rows * header.columns * header.components * bytes;
  if (decoded?.length !== expected)
    throw fail(
      "corrupt_image",
      name,
      `${decoded?.length ?? 0} bytes decoded, ${expected} expected`,
    );
  return rearranged(decoded, header, format, bytes);
}

function judgeMessages(header: CodestreamHeader, name: string, warnings: Warning[]): void {
  const complaints = messages.filter((m) => !HARMLESS.test(m));
  if (complaints.length < messages.length)
    warn(
      warnings,
      "codestream_irregular",
      `A ${name} frame breaks a rule of its coding that does not touch pixels.`,
    );
  const early = complaints.find((m) => ENDED_EARLY.test(m));
  if (early !== undefined) throw fail("truncated_image", name, early);
  const damage = complaints.find((m) => DAMAGED.test(m));
  if (damage !== undefined)
    throw fail(header.ended ? "corrupt_image" : "truncated_image", name, damage);
  if (!header.ended)
    warn(
      warnings,
      "missing_end_marker",
      `A ${name} frame has no end marker, but all of its pixels.`,
    );
}

/** Brings the codec's samples into the container and order of `format`. */
function rearranged(
  decoded: Uint8Array,
  header: CodestreamHeader,
  format: PixelFormat,
  bytes: 1 | 2,
): Uint8Array {
  let data = decoded;
  if (header.kind === "jpeg-xl" && header.precision !== 8 && header.precision !== 16)
    data = unscaled(data, header.precision, bytes);
  if (header.components > 1 && header.byPlane) data = interleaved(data, header.components, bytes);
  if (
    header.sampling !== undefined ||
    (header.components > 1 && header.kind === "htj2k" && !header.componentTransform)
  )
    data = byPixel(data, header, bytes);
  const container = format.bitsAllocated / 8;
  if (container < bytes) return narrowed(data);
  // A signed codestream keeps its sign in the wider container
  return container > bytes ? widened(data, bytes, container, header.signed) : data;
}

/** libjxl gives 16-bit samples scaled to the full range; this is the exact inverse. */
function unscaled(data: Uint8Array, precision: number, bytes: 1 | 2): Uint8Array {
  const full = bytes === 1 ? 255 : 65535;
  const range = 2 ** precision - 1;
  const view = bytes === 1 ? data : new Uint16Array(data.buffer, data.byteOffset, data.length / 2);
  for (let i = 0; i < view.length; i++) view[i] = Math.round(((view[i] ?? 0) * range) / full);
  return data;
}

/**
 * Samples of components by pixel, those of subsampled components at all the pixels that they stand
 * for, as opj_decompress does. The wrapper of OpenJPEG puts the nth sample of each component at the
 * nth pixel. Without a component transform OpenJPH hands out all lines of one component after the
 * other, and the wrapper puts them down as if they came pixel row by pixel row: line k of the
 * sequence is at row k / n, sample k % n.
 */
function byPixel(data: Uint8Array, header: CodestreamHeader, bytes: 1 | 2): Uint8Array {
  const { rows, columns, components, sampling } = header;
  const out = new Uint8Array(rows * columns * components * bytes);
  for (let c = 0; c < components; c++) {
    const { dx, dy } = sampling?.[c] ?? { dx: 1, dy: 1 };
    for (let y = 0; y < rows; y++) {
      const line = Math.floor(y / dy);
      const k = c * rows + line;
      const start = isForOpenJph(header)
        ? Math.floor(k / components) * columns * components + (k % components)
        : line * Math.ceil(columns / dx) * components + c;
      for (let x = 0; x < columns; x++) {
        const from = (start + Math.floor(x / dx) * components) * bytes;
        const to = ((y * columns + x) * components + c) * bytes;
        for (let b = 0; b < bytes; b++) out[to + b] = data[from + b] ?? 0;
      }
    }
  }
  return out;
}
