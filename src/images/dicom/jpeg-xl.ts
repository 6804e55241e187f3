/** The size and depth of a JPEG XL image (ISO 18181-1 annex D), bit by bit: its decoder here reports neither. */
import { RadserveError } from "../../base/errors.js";

export interface JpegXlHeader {
  rows: number;
  columns: number;
  components: number;
  precision: number;
}

class Bits {
  #at = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** The next `count` bits, least significant first. */
  u(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i++, this.#at++) {
      const byte = this.bytes[this.#at >>> 3];
      if (byte === undefined)
        throw new RadserveError(
          "truncated_image",
          "A JPEG XL frame ends inside its header. Send the file again from its source.",
        );
      value += ((byte >>> (this.#at & 7)) & 1) * 2 ** i;
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

function readSize(bits: Bits): { rows: number; columns: number } {
  const small = bits.bool();
  const side = () => (small ? (bits.u(5) + 1) * 8 : bits.choose([9, 1], [13, 1], [18, 1], [30, 1]));
  const rows = side();
  const ratio = bits.u(3);
  if (ratio === 0) return { rows, columns: side() };
  const [numerator, denominator] = RATIOS[ratio] ?? [1, 1];
  return { rows, columns: Math.floor((rows * numerator) / denominator) };
}

/** The codestream, out of its container if it has one (ISO 18181-2): `jxlc`, or the first of `jxlp`. */
function codestreamOf(bytes: Uint8Array): Uint8Array {
  if (bytes[0] === 0xff && bytes[1] === 0x0a) return bytes;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  while (at + 16 <= bytes.length) {
    const size = view.getUint32(at);
    const header = size === 1 ? 16 : 8;
    const type = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    if (type === "jxlc") return bytes.subarray(at + header);
    if (type === "jxlp") return bytes.subarray(at + header + 4);
    const length = size === 1 ? view.getUint32(at + 12) : size;
    if (length < header) break;
    at += length;
  }
  throw new RadserveError("corrupt_image", "A JPEG XL container holds no codestream. The file is damaged.");
}

/** Throws RadserveError: corrupt_image, truncated_image, unsupported_transfer_syntax (floating point, turned). */
export function readJpegXlHeader(bytes: Uint8Array): JpegXlHeader {
  const bits = new Bits(codestreamOf(bytes).subarray(2));
  const size = readSize(bits);
  if (bits.bool()) return { ...size, components: 3, precision: 8 };
  let orientation = 1;
  if (bits.bool()) {
    orientation = bits.u(3) + 1;
    if (bits.bool()) readSize(bits);
    if (bits.bool() || bits.bool()) orientation = 0;
  }
  const float = orientation === 1 && bits.bool();
  if (orientation !== 1 || float)
    throw new RadserveError(
      "unsupported_transfer_syntax",
      "A JPEG XL frame is animated, turned, has a preview, or holds floating point, which is not supported.",
    );
  const precision = bits.choose([0, 8], [0, 10], [0, 12], [6, 1]);
  bits.bool(); // modular_16bit_buffers
  const extraChannels = bits.choose([0, 0], [0, 1], [4, 2], [12, 1]);
  if (extraChannels > 0)
    throw new RadserveError(
      "unsupported_transfer_syntax",
      "A JPEG XL frame has extra channels (alpha or depth), which DICOM pixel data cannot have.",
    );
  bits.bool(); // xyb_encoded
  // ColourEncoding: all_default is sRGB; else want_icc, then the colour space, of which 1 is grey
  const grey = !bits.bool() && !bits.bool() && bits.choose([0, 0], [0, 1], [4, 2], [6, 18]) === 1;
  return { ...size, components: grey ? 1 : 3, precision };
}
