/**
 * Bytes that come in pieces, behind each other: memory holds the bytes, and not the pieces, of
 * which each may have one.
 */
export class Gathering {
  #room = Buffer.alloc(0);
  #length = 0;

  get bytes(): Buffer {
    return this.#room.subarray(0, this.#length);
  }

  add(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#room.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#length));
      larger.set(this.bytes);
      this.#room = larger;
    }
    this.#room.set(piece, this.#length);
    this.#length = length;
  }
}
