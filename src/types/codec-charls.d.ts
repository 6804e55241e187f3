/** The decoder of @cornerstonejs/codec-charls; the package ships no types. */
declare module "@cornerstonejs/codec-charls/decodewasmjs" {
  export interface JpegLSDecoder {
    /**
     * A view of WebAssembly memory of that many bytes, for the codestream; valid until the next
     * call.
     */
    getEncodedBuffer(bytes: number): Uint8Array;
    /** Throws the address of a C++ exception; see getExceptionMessage. */
    decode(): void;
    /** A copy. */
    getDecodedBuffer(): Uint8ClampedArray;
    getFrameInfo(): {
      width: number;
      height: number;
      bitsPerSample: number;
      componentCount: number;
    };
    /** Gives its memory back. */
    delete(): void;
  }

  export interface CharLS {
    JpegLSDecoder: new () => JpegLSDecoder;
    getExceptionMessage(address: number): string;
    HEAPU8: Uint8Array;
  }

  /** A new instance with a memory of its own. */
  const create: () => Promise<CharLS>;
  export default create;
}
