/**
 * Reads what a compressed frame declares of itself, without decoding it. The codecs below trust
 * sizes that the caller gives and read or write past their buffers if the codestream differs, so
 * every frame is checked here first; and the codec is chosen by these bytes, not by the transfer
 * syntax alone.
 */
import { errors, type RadserveError } from "../../base/errors.js";
import type { Codec } from "../image.js";
import { readJpegXlHeader } from "./jpeg-xl-header.js";

/**
 * The kinds of codestream that a transfer syntax can allow; what is found in the bytes is checked
 * against it.
 */
export type Codestream = Codec["kind"];

/**
 * Pixels from one sample of a component to the next, along a row and down (XRsiz and YRsiz of ISO
 * 15444-1 A.5.1).
 */
export interface Sampling {
  dx: number;
  dy: number;
}

export interface CodestreamHeader {
  kind: Codestream;
  /** The bytes to decode: for JPEG 2000 without the JP2 boxes round it. */
  data: Uint8Array;
  rows: number;
  columns: number;
  components: number;
  /**
   * JPEG 2000 and HTJ2K with components of fewer samples than pixels: how far apart they lie; else
   * undefined.
   */
  sampling: readonly Sampling[] | undefined;
  precision: number;
  /** JPEG 2000 only: components are signed. */
  signed: boolean;
  /** The colour model that the markers name for three components; undefined if they name none. */
  colour: "RGB" | "YBR" | undefined;
  /** The second and third component have fewer samples than the first. */
  subsampled: boolean;
  /**
   * Of a JPEG with a JFIF segment: pixels across and down for each unit, whatever the unit is; else
   * undefined.
   */
  density: { across: number; down: number } | undefined;
  /** JPEG 2000 and HTJ2K: a multiple component transform that the codec undoes. */
  componentTransform: boolean;
  /** JPEG XL: coded as YCbCr, which the codec makes RGB, as recompressed JPEG is. */
  fromYcbcr: boolean;
  /** JPEG-LS scans by component: the codec's output is by plane. */
  byPlane: boolean;
  /** JPEG of a lossless process. */
  lossless: boolean;
  /**
   * JPEG whose scans come one over the other: the codec holds all coefficients (ITU-T T.81, SOF2,
   * 6, 10 and 14).
   */
  progressive: boolean;
  /**
   * Values may leave the range of the original by rounding: DCT, the irreversible wavelet,
   * near-lossless JPEG-LS.
   */
  lossy: boolean;
  /**
   * Lossless JPEG: bits of the code for a sample that is as predicted, if all tables agree; else
   * undefined.
   */
  sameSampleBits: number | undefined;
  /** JPEG 2000: wavelet decomposition levels. */
  decompositions: number;
  /**
   * Bytes of entropy-coded data, tables and comments left out; what the decode gate compares with.
   */
  entropyBytes: number;
  /** False if the end marker is missing. */
  ended: boolean;
}

/** A header's fields as most codestreams have them. */
const PLAIN = {
  sampling: undefined,
  signed: false,
  colour: undefined,
  subsampled: false,
  density: undefined,
  componentTransform: false,
  fromYcbcr: false,
  byPlane: false,
  lossless: false,
  progressive: false,
  lossy: false,
  sameSampleBits: undefined,
  decompositions: 0,
};

const { corrupt_image: corrupt } = errors;

function startsWith(bytes: Uint8Array, ...signature: number[]): boolean {
  return signature.every((byte, i) => bytes[i] === byte);
}

/**
 * True if the bytes begin a compressed image: how frames are told apart when no offset table helps.
 */
export function beginsCodestream(bytes: Uint8Array): boolean {
  return (
    startsWith(bytes, 0xff, 0xd8, 0xff) ||
    startsWith(bytes, 0xff, 0x4f, 0xff, 0x51) ||
    startsWith(bytes, 0xff, 0x0a) ||
    startsWith(bytes, 0, 0, 0, 0x0c, 0x6a, 0x50, 0x20, 0x20) ||
    startsWith(bytes, 0, 0, 0, 0x0c, 0x4a, 0x58, 0x4c, 0x20)
  );
}

/** Reads the header of one frame. Throws corrupt_image or truncated_image if there is none. */
export function readCodestream(bytes: Uint8Array): CodestreamHeader {
  if (startsWith(bytes, 0xff, 0xd8)) return readJpeg(bytes);
  if (startsWith(bytes, 0xff, 0x4f, 0xff, 0x51)) return readJpeg2000(bytes);
  if (startsWith(bytes, 0, 0, 0, 0x0c, 0x6a, 0x50, 0x20, 0x20)) return readJpeg2000(unboxed(bytes));
  if (startsWith(bytes, 0xff, 0x0a) || startsWith(bytes, 0, 0, 0, 0x0c, 0x4a, 0x58, 0x4c, 0x20))
    return readJpegXl(bytes);
  throw corrupt(
    "A compressed frame begins with no known codestream (JPEG, JPEG-LS, JPEG 2000 or JPEG XL). The file is damaged.",
  );
}

/** Of one frame before its first scan: profiles and previews take some hundreds. */
const MOST_SEGMENTS = 65_536;

const u16 = (bytes: Uint8Array, at: number) => (bytes[at] ?? 0) * 256 + (bytes[at + 1] ?? 0);
const u32 = (bytes: Uint8Array, at: number) => u16(bytes, at) * 65536 + u16(bytes, at + 2);

function headerCut(): RadserveError {
  return errors.truncated_image(
    "A compressed frame ends inside its header. Send the file again from its source.",
  );
}

/** Position of EOI or EOC (both FFD9), padding behind it ignored; -1 if there is none. */
function endMarker(bytes: Uint8Array): number {
  const stop = Math.max(1, bytes.length - 4096);
  for (let at = bytes.length - 1; at >= stop; at--)
    if (bytes[at] === 0xd9 && bytes[at - 1] === 0xff) return at - 1;
  return -1;
}

/** Zeros in which no coded data ends. */
const ZEROS_OF_FILLING = 64;

/**
 * Whether coded data that ends at `end` without its end marker ends in zeros, as that of a file
 * does whose copy broke off and was filled up: wavelets make a picture of it, but a wrong one.
 */
function isFilledUp(bytes: Uint8Array, end: number): boolean {
  let last = end - 1;
  while (last > 0 && bytes[last] === 0) last -= 1;
  const isMarker = bytes[last - 1] === 0xff && bytes[last] === 0xd9;
  return end - last > ZEROS_OF_FILLING && !isMarker;
}

/** Whether a JPEG file has no end marker, and zeros in its place. */
export const endsInZeros = (jpeg: Uint8Array): boolean =>
  endMarker(jpeg) < 0 && isFilledUp(jpeg, jpeg.length);

function filledUp(name: string): RadserveError {
  return errors.truncated_image(
    `A ${name} frame ends in zeros and without its end marker, as a file does whose copy broke off and was filled up. Send the file again from its source.`,
  );
}

/**
 * JPEG (ISO 10918-1 annex B) and JPEG-LS (ISO 14495-1 annex C): the markers up to the first scan.
 */
function readJpeg(bytes: Uint8Array): CodestreamHeader {
  let at = 2;
  let frame: { marker: number; at: number } | undefined;
  let adobe: number | undefined;
  let jfif = false;
  let density: CodestreamHeader["density"];
  const sameSampleBits = new Set<number>();
  for (let segments = 0; ; segments++) {
    if (segments > MOST_SEGMENTS)
      throw corrupt(
        `Expected at most ${MOST_SEGMENTS} marker segments before the first scan of a JPEG frame, found more. The file is damaged.`,
      );
    // Bytes between the segments are skipped, as libjpeg does; the codec complains of them
    while (
      at < bytes.length &&
      (bytes[at] !== 0xff || bytes[at + 1] === 0xff || bytes[at + 1] === 0)
    )
      at++;
    if (at + 4 > bytes.length) throw headerCut();
    const marker = bytes[at + 1] ?? 0;
    // Readers differ in what follows these, and see another size behind them; DCMTK looks at TEM
    // for ever
    if (marker === 0x01 || (marker >= 0xd0 && marker <= 0xd9))
      throw corrupt(
        "A JPEG frame has a marker without parameters in its header. The file is damaged.",
      );
    const length = u16(bytes, at + 2);
    if (length < 2)
      throw corrupt("A JPEG frame has a marker segment of impossible length. The file is damaged.");
    const body = at + 4;
    if (marker === 0xda) break;
    if (body + length - 2 > bytes.length) throw headerCut();
    if (
      marker === 0xe0 &&
      length >= 7 &&
      startsWith(bytes.subarray(body), 0x4a, 0x46, 0x49, 0x46, 0)
    ) {
      jfif = true;
      density ??= densityOf(bytes.subarray(body, body + length - 2));
    }
    if (
      marker === 0xee &&
      length >= 14 &&
      startsWith(bytes.subarray(body), 0x41, 0x64, 0x6f, 0x62, 0x65)
    )
      adobe = bytes[body + 11];
    if (marker === 0xc4) codeLengthsOfZero(bytes.subarray(body, body + length - 2), sameSampleBits);
    const isFrame =
      (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) || marker === 0xf7;
    if (isFrame) frame ??= { marker, at: body };
    at += 2 + length;
  }
  if (frame === undefined)
    throw corrupt("A JPEG frame has no frame header before its first scan. The file is damaged.");
  return { ...jpegHeader(bytes, frame, at, { adobe, jfif, sameSampleBits }), density };
}

/** What a JFIF segment says of densities (JFIF 1.02): units 0 to 2, then those across and down. */
function densityOf(segment: Uint8Array): CodestreamHeader["density"] {
  if (segment.length < 12 || (segment[7] ?? 0) > 2) return undefined;
  return { across: u16(segment, 8), down: u16(segment, 10) };
}

/**
 * A scan of some bytes may make a decoder go through the whole frame once more. Encoders write some
 * ten.
 */
function requireFewScans(bytes: Uint8Array, first: number): void {
  const stream = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  let scans = 0;
  for (let at = first; at >= 0; at = stream.indexOf(SCAN_MARKER, at + 2))
    if (++scans > MOST_SCANS)
      throw corrupt(
        `Expected at most ${MOST_SCANS} scans in a JPEG frame, found more. Send the image compressed otherwise.`,
      );
}
const SCAN_MARKER = Buffer.from([0xff, 0xda]);
const MOST_SCANS = 100;

/** Bits of the code for symbol 0 in each Huffman table of a DHT segment (ISO 10918-1 B.2.4.2). */
function codeLengthsOfZero(segment: Uint8Array, found: Set<number>): void {
  for (let at = 0; at + 17 <= segment.length;) {
    let symbol = at + 17;
    for (let bits = 1; bits <= 16; bits++) {
      const next = symbol + (segment[at + bits] ?? 0);
      if (segment.subarray(symbol, next).includes(0)) found.add(bits);
      symbol = next;
    }
    at = symbol;
  }
}

function jpegHeader(
  bytes: Uint8Array,
  frame: { marker: number; at: number },
  scan: number,
  {
    adobe,
    jfif,
    sameSampleBits,
  }: { adobe: number | undefined; jfif: boolean; sameSampleBits: Set<number> },
): CodestreamHeader {
  const components = bytes[frame.at + 5] ?? 0;
  const ids = Array.from({ length: components }, (_, i) => bytes[frame.at + 6 + i * 3]);
  const sampling = Array.from({ length: components }, (_, i) => bytes[frame.at + 7 + i * 3]);
  const lossless = [0xc3, 0xc7, 0xcb, 0xcf].includes(frame.marker);
  const isLs = frame.marker === 0xf7;
  const end = endMarker(bytes);
  const last = end < 0 ? bytes.length : end;
  if (last <= scan + 2 + u16(bytes, scan + 2))
    throw errors.truncated_image(
      `A ${isLs ? "JPEG-LS" : "JPEG"} frame is a header without pixels behind it. Send the file again from its source.`,
    );
  if (endsInZeros(bytes)) throw filledUp(isLs ? "JPEG-LS" : "JPEG");
  // SOS: length, component count, (selector, tables) each, then near, interleave mode, point
  // transform
  const nearAt = scan + 5 + (bytes[scan + 4] ?? 0) * 2;
  const interleave = bytes[nearAt + 1] ?? 0;
  requireFewScans(bytes, scan);
  const [sameBits] = sameSampleBits;
  return {
    ...PLAIN,
    kind: isLs ? "jpeg-ls" : "jpeg",
    data: bytes,
    precision: bytes[frame.at] ?? 0,
    rows: u16(bytes, frame.at + 1),
    columns: u16(bytes, frame.at + 3),
    components,
    colour:
      components === 3 ? jpegColour(adobe, jfif && !lossless && !isLs, ids, sampling) : undefined,
    subsampled: components === 3 && !isLs && isChromaSubsampled(sampling),
    byPlane: isLs && components > 1 && interleave === 0,
    lossless,
    progressive: [0xc2, 0xc6, 0xca, 0xce].includes(frame.marker),
    lossy: isLs ? (bytes[nearAt] ?? 0) > 0 : !lossless,
    sameSampleBits: lossless && sameSampleBits.size === 1 ? sameBits : undefined,
    entropyBytes: last - scan,
    ended: end >= 0,
  };
}

/**
 * The rules of libjpeg (jdapimin.c, default_decompress_parms), less its last guess: if nothing
 * says, the tag does.
 */
function jpegColour(
  adobe: number | undefined,
  jfif: boolean,
  ids: (number | undefined)[],
  sampling: (number | undefined)[],
): CodestreamHeader["colour"] {
  if (jfif) return "YBR";
  if (adobe === 0) return "RGB";
  if (adobe === 1) return "YBR";
  if (ids.join() === "82,71,66") return "RGB";
  return isChromaSubsampled(sampling) ? "YBR" : undefined;
}

/** Only chrominance has fewer samples (H and V of SOF). */
const isChromaSubsampled = ([first, second]: (number | undefined)[]): boolean => first !== second;

/**
 * The boxes of a JP2 or JPEG XL file (ISO 15444-1 annex I): the type, and where the contents begin
 * and end.
 */
function* boxesOf(bytes: Uint8Array): Generator<{ type: string; start: number; end: number }> {
  let at = 0;
  while (at + 8 <= bytes.length) {
    const size = u32(bytes, at);
    const header = size === 1 ? 16 : 8;
    const length = size === 0 ? bytes.length - at : size === 1 ? u32(bytes, at + 12) : size;
    const type = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    yield { type, start: at + header, end: Math.min(bytes.length, at + length) };
    if (length < header) return;
    at += length;
  }
}

/** The contiguous codestream of a JP2 file; its colour boxes do not count in DICOM. */
function unboxed(bytes: Uint8Array): Uint8Array {
  for (const { type, start, end } of boxesOf(bytes))
    if (type === "jp2c") return bytes.subarray(start, end);
  throw corrupt("A JPEG 2000 frame is a JP2 file without a codestream. The file is damaged.");
}

/** JPEG 2000 and HTJ2K (ISO 15444-1 annex A): SIZ, CAP and COD of the main header. */
function readJpeg2000(bytes: Uint8Array): CodestreamHeader {
  if (!startsWith(bytes, 0xff, 0x4f, 0xff, 0x51))
    throw corrupt("A JP2 file holds no JPEG 2000 codestream.");
  if (bytes.length < 46) throw headerCut();
  const components = u16(bytes, 40);
  const sizes = Array.from({ length: components }, (_, i) => ({
    depth: bytes[42 + i * 3] ?? 0,
    dx: bytes[43 + i * 3] ?? 0,
    dy: bytes[44 + i * 3] ?? 0,
  }));
  const first = sizes[0];
  const isPlain = sizes.every(({ dx, dy }) => dx === 1 && dy === 1);
  // Chrominance with fewer samples than luminance, from the first pixel on
  const isSubsampled =
    components === 3 &&
    u32(bytes, 16) + u32(bytes, 20) === 0 &&
    sizes.every(({ dx, dy }, i) => dx >= 1 && dy >= 1 && (i > 0 || dx * dy === 1));
  if (
    first === undefined ||
    !(isPlain || isSubsampled) ||
    sizes.some(({ depth }) => depth !== first.depth)
  )
    throw errors.unsupported_transfer_syntax(
      "A JPEG 2000 frame has components of different depth, or of a size that is not known here, which cannot be decoded.",
    );
  let high = (u16(bytes, 6) & 0x4000) !== 0;
  let transform = false;
  let decompositions = 0;
  let irreversible = false;
  let cod: number | undefined;
  let hasOwnCoding = false;
  let at = 4 + u16(bytes, 4);
  while (u16(bytes, at) !== 0xff90) {
    const marker = u16(bytes, at);
    if (at + 4 > bytes.length) throw headerCut();
    if (marker < 0xff00)
      throw corrupt("A JPEG 2000 frame has data where a marker was expected. The file is damaged.");
    if (marker === 0xff50) high = true;
    // COC: one component is coded otherwise
    if (marker === 0xff53) hasOwnCoding = true;
    if (marker === 0xff52) {
      cod ??= at;
      transform = bytes[at + 8] === 1;
      decompositions = bytes[at + 9] ?? 0;
      irreversible = bytes[at + 13] === 0;
    }
    at += 2 + Math.max(2, u16(bytes, at + 2));
  }
  if (transform && !isPlain)
    throw corrupt(
      "A JPEG 2000 frame has a transform over components of different size. The file is damaged.",
    );
  const end = endMarker(bytes);
  checkTiles(bytes, at, end >= 0);
  // How many packets there are is not counted where components differ in their coding
  if (cod !== undefined && !hasOwnCoding) checkZeros(bytes, at, mostZeros(bytes, cod, high));
  return {
    ...PLAIN,
    kind: high ? "htj2k" : "jpeg2000",
    data: bytes,
    rows: u32(bytes, 12) - u32(bytes, 20),
    columns: u32(bytes, 8) - u32(bytes, 16),
    components,
    precision: (first.depth & 0x7f) + 1,
    signed: first.depth > 0x7f,
    sampling: isPlain ? undefined : sizes.map(({ dx, dy }) => ({ dx, dy })),
    // Only chrominance has fewer samples
    colour: transform ? "RGB" : isPlain ? undefined : "YBR",
    subsampled: !isPlain,
    componentTransform: transform,
    lossy: irreversible,
    decompositions,
    entropyBytes: (end < 0 ? bytes.length : end) - at,
    ended: end >= 0,
  };
}

/** Zeros in a row that arithmetic coding does not give; real files have eleven at most. */
const ZEROS_OF_CODING = 64;
/**
 * The same where bits of values are written as they are: in HTJ2K, and with the selective bypass of
 * arithmetic coding. Equal values may have many zeros.
 */
const ZEROS_OF_RAW_BITS = 8192;

/**
 * The most zero bytes in a row that a whole codestream can have (ISO 15444-1 annex B): a packet of
 * which nothing is coded is one, and the blocks that a packet leaves out are a bit each.
 * @param cod where COD is
 */
function mostZeros(bytes: Uint8Array, cod: number, isHigh: boolean): number {
  const [style = 0, levels = 0, x = 0, y = 0, coding = 0] = [4, 9, 10, 11, 12].map(
    (field) => bytes[cod + field],
  );
  const layers = u16(bytes, cod + 6);
  const image = [u32(bytes, 8) - u32(bytes, 16), u32(bytes, 12) - u32(bytes, 20)];
  const tile = [u32(bytes, 24), u32(bytes, 28)].map((size, i) => Math.min(size, image[i] ?? 0));
  const tiles = image.map((size, i) => Math.ceil(size / (tile[i] || 1)) + 1);
  let packets = 0;
  let blocks = 0;
  for (let level = 0; level <= levels; level++) {
    const exponents = (style & 1) === 0 ? 0xff : (bytes[cod + 14 + level] ?? 0);
    const precinct = [2 ** (exponents & 15), 2 ** (exponents >> 4)];
    const size = tile.map((side) => Math.ceil(side / 2 ** (levels - level)) + 1);
    const [across = 1, down = 1] = size.map((side, i) => Math.ceil(side / (precinct[i] ?? 1)) + 1);
    packets += across * down;
    const [wide = 1, high = 1] = size.map((side, i) => {
      const block = 2 ** ((i === 0 ? x : y) + 2);
      return Math.ceil(Math.min(side, precinct[i] ?? side) / block) + 1;
    });
    blocks = Math.max(blocks, 3 * wide * high);
  }
  const all = layers * u16(bytes, 40) * (tiles[0] ?? 1) * (tiles[1] ?? 1) * packets;
  const isRaw = isHigh || (coding & 1) !== 0;
  return all + Math.ceil(blocks / 8) + (isRaw ? ZEROS_OF_RAW_BITS : ZEROS_OF_CODING);
}

/** Throws corrupt_image where more than so many zeros lie in a row within coded data. */
function checkZeros(bytes: Uint8Array, from: number, most: number): void {
  for (let at = from + most; at < bytes.length; at += most + 1) {
    if (bytes[at] !== 0) continue;
    let [first, last] = [at, at];
    while (first > from && bytes[first - 1] === 0) first--;
    while (last + 1 < bytes.length && bytes[last + 1] === 0) last++;
    // Behind the end marker lies padding
    const isBehind = bytes[first - 1] === 0xd9 && bytes[first - 2] === 0xff;
    const zeros = last - first + 1;
    if (zeros > most && !isBehind)
      throw corrupt(
        `A JPEG 2000 frame has ${zeros} zeros in a row within its coded data, as a file has of which a part was lost and filled up. Send the file again from its source.`,
      );
    at = last;
  }
}

/**
 * Walks the tile-parts (ISO 15444-1 A.4.2): every tile of SIZ has to be there, whole, because
 * OpenJPH leaves blank what is missing and says nothing. Throws truncated_image.
 */
function checkTiles(bytes: Uint8Array, firstPart: number, ended: boolean): void {
  // XOsiz, XTsiz and XTOsiz, and those of Y: the first tile holds the image's corner (B.3), or
  // OpenJPH counts tiles for ever
  for (const at of [0, 4]) {
    const [corner, size, first] = [u32(bytes, 16 + at), u32(bytes, 24 + at), u32(bytes, 32 + at)];
    if (first > corner || first + size <= corner)
      throw corrupt(
        "A JPEG 2000 frame has tiles that do not begin at its corner. The file is damaged.",
      );
  }
  const across = Math.ceil((u32(bytes, 8) - u32(bytes, 24 + 8)) / u32(bytes, 24));
  const down = Math.ceil((u32(bytes, 12) - u32(bytes, 24 + 12)) / u32(bytes, 28));
  const parts = new Map<number, { found: number; expected: number }>();
  let at = firstPart;
  while (u16(bytes, at) === 0xff90 && at + 12 <= bytes.length) {
    const tile = u16(bytes, at + 4);
    const length = u32(bytes, at + 6);
    const known = parts.get(tile) ?? { found: 0, expected: 0 };
    known.found++;
    known.expected = Math.max(known.expected, bytes[at + 11] ?? 0);
    parts.set(tile, known);
    // Length 0: the last one, up to the end marker
    if (length === 0 ? !ended : length < 14 || at + length > bytes.length) throw tilesCut();
    if (length === 0) break;
    at += length;
    if (!ended && isFilledUp(bytes, at)) throw filledUp("JPEG 2000");
  }
  if (parts.size !== across * down || [...parts.values()].some((p) => p.found < p.expected))
    throw tilesCut();
}

function tilesCut(): RadserveError {
  return errors.truncated_image(
    "A JPEG 2000 frame ends before its last tile. Send the file again from its source.",
  );
}

function readJpegXl(bytes: Uint8Array): CodestreamHeader {
  const header = readJpegXlHeader(codestreamOf(bytes));
  return {
    ...PLAIN,
    ...header,
    kind: "jpeg-xl",
    data: bytes,
    colour: header.components === 3 ? "RGB" : undefined,
    entropyBytes: bytes.length,
    ended: true,
  };
}

/**
 * The codestream, out of its container if it has one (ISO 18181-2): `jxlc`, or all parts in `jxlp`,
 * each behind its number.
 */
function codestreamOf(bytes: Uint8Array): Uint8Array {
  if (bytes[0] === 0xff && bytes[1] === 0x0a) return bytes;
  const parts: Uint8Array[] = [];
  for (const { type, start, end } of boxesOf(bytes)) {
    if (type === "jxlc") return bytes.subarray(start, end);
    if (type === "jxlp") parts.push(bytes.subarray(start + 4, end));
  }
  if (parts.length > 0) return Buffer.concat(parts);
  throw corrupt("A JPEG XL container holds no codestream. The file is damaged.");
}
