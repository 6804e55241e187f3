/**
 * What a JPEG XL codestream says of its image, bit by bit (ISO/IEC 18181-1 annexes D to F): the
 * decoder here reports none of it.
 */
import { errors } from "../../base/errors.js";

export interface JpegXlHeader {
  rows: number;
  columns: number;
  components: number;
  precision: number;
  /** The first frame is coded as YCbCr; false where a colour profile hides that. */
  fromYcbcr: boolean;
}

class BitReader {
  #at = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** The next `count` bits, least significant first. */
  u(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i++, this.#at++) {
      const byte = this.bytes[Math.floor(this.#at / 8)];
      if (byte === undefined)
        throw errors.truncated_image(
          "A JPEG XL frame ends inside its header. Send the file again from its source.",
        );
      value += ((byte >>> (this.#at % 8)) & 1) * 2 ** i;
    }
    return value;
  }

  bool(): boolean {
    return this.u(1) === 1;
  }

  /** U32 of the standard: two bits choose among four (constant or bits plus offset). */
  choose(...options: readonly [number, number][]): number {
    const [bits, offset] = options[this.u(2)] ?? [0, 0];
    return this.u(bits) + offset;
  }

  /** Enum of the standard. */
  term(): number {
    return this.choose([0, 0], [0, 1], [4, 2], [6, 18]);
  }

  /** U64 of the standard. */
  long(): number {
    const selector = this.u(2);
    if (selector < 3) return selector === 0 ? 0 : this.u(4 * selector) + (selector === 1 ? 1 : 17);
    let value = this.u(12);
    for (let shift = 12; this.bool(); shift += 8) {
      value += this.u(shift === 60 ? 4 : 8) * 2 ** shift;
      if (shift === 60) break;
    }
    return value;
  }

  skip(count: number): void {
    this.#at += count;
  }

  toByte(): void {
    this.#at = Math.ceil(this.#at / 8) * 8;
  }
}

const RATIOS = [
  [0, 1],
  [1, 1],
  [12, 10],
  [4, 3],
  [3, 2],
  [16, 9],
  [5, 4],
  [2, 1],
] as const;

function readSize(bits: BitReader): { rows: number; columns: number } {
  const small = bits.bool();
  const side = () => (small ? (bits.u(5) + 1) * 8 : bits.choose([9, 1], [13, 1], [18, 1], [30, 1]));
  const rows = side();
  const ratio = bits.u(3);
  if (ratio === 0) return { rows, columns: side() };
  const [numerator, denominator] = RATIOS[ratio] ?? [1, 1];
  return { rows, columns: Math.floor((rows * numerator) / denominator) };
}

/**
 * @param codestream without its container
 * @throws RadserveError truncated_image, or unsupported_transfer_syntax (floating point, turned)
 */
export function readJpegXlHeader(codestream: Uint8Array): JpegXlHeader {
  const bits = new BitReader(codestream.subarray(2));
  const size = readSize(bits);
  // XYB is the default
  if (bits.bool()) return { ...size, components: 3, precision: 8, fromYcbcr: false };
  const hasMore = bits.bool();
  let orientation = 1;
  if (hasMore) {
    orientation = bits.u(3) + 1;
    if (bits.bool()) readSize(bits);
    if (bits.bool() || bits.bool()) orientation = 0;
  }
  const float = orientation === 1 && bits.bool();
  if (orientation !== 1 || float)
    throw errors.unsupported_transfer_syntax(
      "A JPEG XL frame is animated, turned, has a preview, or holds floating point, which is not supported.",
    );
  const precision = bits.choose([0, 8], [0, 10], [0, 12], [6, 1]);
  bits.bool(); // modular_16bit_buffers
  const extraChannels = bits.choose([0, 0], [0, 1], [4, 2], [12, 1]);
  if (extraChannels > 0)
    throw errors.unsupported_transfer_syntax(
      "A JPEG XL frame has extra channels (alpha or depth), which DICOM pixel data cannot have.",
    );
  const isXyb = bits.bool();
  const { isGrey, hasProfile } = readColours(bits);
  const header = { ...size, components: isGrey ? 1 : 3, precision };
  // How long a profile is, only its decoder knows
  if (isXyb || isGrey || hasProfile) return { ...header, fromYcbcr: false };
  if (hasMore) skipToneMapping(bits);
  skipExtensions(bits);
  skipWeights(bits);
  bits.toByte();
  return { ...header, fromYcbcr: isFrameOfYcbcr(bits) };
}

const GREY = 1;
const XYB = 2;
const CUSTOM = 2;

/** ColourEncoding: all_default is sRGB. */
function readColours(bits: BitReader): { isGrey: boolean; hasProfile: boolean } {
  if (bits.bool()) return { isGrey: false, hasProfile: false };
  const hasProfile = bits.bool();
  const space = bits.term();
  const isGrey = space === GREY;
  if (hasProfile) return { isGrey, hasProfile };
  const skipPoints = (count: number) => {
    for (let i = 0; i < 2 * count; i++)
      bits.choose([19, 0], [19, 524288], [20, 1048576], [21, 2097152]);
  };
  if (space !== XYB) {
    if (bits.term() === CUSTOM) skipPoints(1); // White point
    if (!isGrey && bits.term() === CUSTOM) skipPoints(3); // Primaries
    if (bits.bool())
      bits.skip(24); // Gamma
    else bits.term(); // Transfer function
  }
  bits.term(); // Rendering intent
  return { isGrey, hasProfile };
}

/** ToneMapping: three numbers of 16 bits, and a flag. */
function skipToneMapping(bits: BitReader): void {
  if (!bits.bool()) bits.skip(49);
}

function skipExtensions(bits: BitReader): void {
  let extensions = bits.long();
  let length = 0;
  for (; extensions > 0; extensions = Math.floor(extensions / 2))
    if (extensions % 2 === 1) length += bits.long();
  bits.skip(length);
}

/** The weights of upsampling, of an image without XYB. */
function skipWeights(bits: BitReader): void {
  if (bits.bool()) return;
  const mask = bits.u(3);
  for (const [i, count] of [15, 55, 210].entries()) if ((mask >>> i) & 1) bits.skip(16 * count);
}

/** FrameHeader up to do_YCbCr, of an image without XYB. */
function isFrameOfYcbcr(bits: BitReader): boolean {
  if (bits.bool()) return false;
  bits.u(2); // Kind of frame
  bits.bool(); // Modular or VarDCT
  bits.long(); // Flags
  return bits.bool();
}
