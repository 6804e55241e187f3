/**
 * The messages between a decoder process and its owner: a header in JSON and bytes, with the length
 * of each before them (two numbers of 32 bits, little endian).
 */

/** The child's descriptor of the channel. */
export const CHANNEL = 3;

const PREFIX_BYTES = 8;
/** No header is nearly as long. */
const MOST_HEADER_BYTES = 1 << 16;

/** The work that a decoder can be asked to do with a file. */
export interface DecoderOrder {
  decoder: "raster" | "jpeg2000";
  /** The file's number; its bytes follow unless the process holds them. */
  file: number;
  /** Files that will not be asked for again before their bytes are sent again. */
  forget: number[];
  /** For the decoder. */
  what: unknown;
}

/** Comes first from a decoder process, before it gets any bytes: it is confined, or why not. */
export interface Greeting {
  confined: boolean;
  why?: string | undefined;
}

/** The decoder's words, with bytes behind them; or what it said where it failed. */
export type DecoderAnswer = { done: unknown } | { failed: string };

export function frameHead(header: Greeting | DecoderOrder | DecoderAnswer, bytes: number): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32LE(json.length, 0);
  prefix.writeUInt32LE(bytes, 4);
  return Buffer.concat([prefix, json]);
}

export interface WireFrame {
  header: unknown;
  bytes: Buffer;
}

/** A frame that is read piece by piece, by whoever asks how many bytes come next and fills them. */
export class FrameInParts {
  #part: "prefix" | "header" | "bytes" = "prefix";
  #room: Buffer = Buffer.alloc(PREFIX_BYTES);
  #filled = 0;
  #byteLength = 0;
  #header: unknown;

  /**
   * @param admits says of a header whether it and the number of bytes behind it are what may come
   */
  constructor(private readonly admits: (header: unknown, bytes: number) => boolean) {}

  /** Where the next bytes go; never empty before the frame is whole. */
  get room(): Buffer {
    return this.#room.subarray(this.#filled);
  }

  /**
   * So many bytes were put into the room.
   * @returns the frame, if it is whole now
   * @throws Error if its header is too long, not JSON, or not admitted
   */
  fill(count: number): WireFrame | undefined {
    this.#filled += count;
    while (this.#filled === this.#room.length) {
      if (this.#part === "bytes") return { header: this.#header, bytes: this.#room };
      this.#turn();
    }
    return undefined;
  }

  #turn(): void {
    this.#filled = 0;
    if (this.#part === "prefix") {
      const headerLength = this.#room.readUInt32LE(0);
      this.#byteLength = this.#room.readUInt32LE(4);
      if (headerLength > MOST_HEADER_BYTES)
        throw new Error(
          `Expected a header of at most ${MOST_HEADER_BYTES} bytes, found ${headerLength}`,
        );
      this.#part = "header";
      this.#room = Buffer.alloc(headerLength);
      return;
    }
    this.#header = JSON.parse(this.#room.toString("utf8")) as unknown;
    if (!this.admits(this.#header, this.#byteLength)) throw new Error("Expected another frame");
    this.#part = "bytes";
    this.#room = Buffer.allocUnsafeSlow(this.#byteLength);
  }
}
