/**
 * The parts of a multipart body (RFC 2046 section 5.1), as they come: memory holds a piece of one
 * of them.
 */
import { asRadserveError, errors, type RadserveError } from "../../../base/errors.js";

/** Bytes before the first part, which nobody reads (RFC 2046 section 5.1.1). */
const MOST_PREAMBLE = 64 * 1024;
/** Bytes of the headers of a part. */
const MOST_HEADERS = 16 * 1024;
const LINE = Buffer.from("\r\n");

export interface BodyPart {
  /** By their names in lower case. */
  headers: ReadonlyMap<string, string>;
  body: AsyncIterableIterator<Buffer>;
}

const malformed = (found: string) =>
  errors.bad_request(`Expected a body as multipart/related has it; found ${found}. Send it again.`);

export class Multipart {
  readonly #pieces: AsyncIterator<Uint8Array>;
  readonly #delimiter: Buffer;
  // The first boundary may stand at the very beginning
  #held: Buffer = LINE;
  #fault: Error | undefined;

  constructor(pieces: AsyncIterable<Uint8Array>, boundary: string) {
    this.#pieces = pieces[Symbol.asyncIterator]();
    this.#delimiter = Buffer.from(`\r\n--${boundary}`);
  }

  /** What was wrong with the body itself, or with its coming; undefined while nothing is. */
  get fault(): Error | undefined {
    return this.#fault;
  }

  /**
   * The parts in their order. What the body of one was not asked for is skipped. @throws
   * RadserveError bad_request
   */
  async *parts(): AsyncGenerator<BodyPart> {
    await this.#skip(MOST_PREAMBLE);
    for (;;) {
      while (this.#held.length < 2) await this.#more();
      if (this.#held.toString("latin1", 0, 2) === "--") return;
      const headers = await this.#headers();
      const state = { whole: false };
      const rest = this.#until();
      async function* body() {
        yield* rest;
        state.whole = true;
      }
      yield { headers, body: body() };
      if (!state.whole) await this.#skip();
    }
  }

  async #skip(most = Infinity): Promise<void> {
    let skipped = 0;
    for await (const { length } of this.#until()) {
      skipped += length;
      if (skipped > most) throw this.#broken(`more than ${most} bytes before the first boundary`);
    }
  }

  /** What comes before the next boundary. */
  async *#until(): AsyncGenerator<Buffer> {
    for (;;) {
      const at = this.#held.indexOf(this.#delimiter);
      const end = at === -1 ? this.#held.length - this.#delimiter.length + 1 : at;
      if (end > 0) {
        const piece = this.#held.subarray(0, end);
        // Before it goes on: whoever asked may not ask again
        this.#held = this.#held.subarray(end);
        yield piece;
      }
      if (at !== -1) {
        this.#held = this.#held.subarray(this.#delimiter.length);
        return;
      }
      await this.#more();
    }
  }

  async #headers(): Promise<ReadonlyMap<string, string>> {
    let end;
    while ((end = this.#held.indexOf("\r\n\r\n")) === -1) {
      if (this.#held.length > MOST_HEADERS) throw this.#broken("headers of a part without an end");
      await this.#more();
    }
    const [padding = "", ...lines] = this.#held.toString("latin1", 0, end).split("\r\n");
    if (padding.trim() !== "") throw this.#broken("a boundary with something behind it");
    this.#held = this.#held.subarray(end + 4);
    return new Map(
      lines.map((line) => {
        const [, name = "", value = ""] = /^([^:]*):(.*)$/.exec(line) ?? [];
        return [name.trim().toLowerCase(), value.trim()];
      }),
    );
  }

  async #more(): Promise<void> {
    try {
      const next = await this.#pieces.next();
      if (next.done === true) throw malformed("an end before the last boundary");
      this.#held = Buffer.concat([this.#held, next.value]);
    } catch (error) {
      this.#fault = asRadserveError(error);
      throw this.#fault;
    }
  }

  #broken(found: string): RadserveError {
    const error = malformed(found);
    this.#fault = error;
    return error;
  }
}
