/**
 * JPEG-LS by CharLS as @cornerstonejs/codec-charls builds it: the same library as in dcmjs-codecs,
 * at half the time. One instance a thread. An exception leaves its WebAssembly stack and memory
 * where they were, so after any error the instance is dropped and the next frame makes another (5
 * ms).
 */
import createCharLs, { type CharLS } from "@cornerstonejs/codec-charls/decodewasmjs";
import type { CodestreamHeader } from "./codestream.js";

/**
 * WebAssembly memory never shrinks: an instance that grew beyond this is given up after its frame.
 */
const MOST_KEPT_BYTES = 1 << 28;

let instance: CharLS | undefined;
let starting: Promise<void> | undefined;

export const charLsIsLoaded = (): boolean => instance !== undefined;

/** The next frame makes another decoder. */
export function dropCharLs(): void {
  instance = undefined;
}

/** Makes the decoder of this thread. A frame that fails takes it down again. */
export async function loadCharLs(): Promise<void> {
  await (starting ??= createCharLs().then((created) => {
    instance = created;
    starting = undefined;
  }));
}

/**
 * Decodes one frame; charLsIsLoaded has to be true. Colour is by pixel, or by plane if the scans
 * are by component; one byte a sample up to 8 bits, else two. Throws Error with the library's
 * reason.
 */
export function decodeJpegLs(header: CodestreamHeader): Uint8Array {
  if (instance === undefined) throw new Error("CharLS is not loaded");
  const library = instance;
  // With an end marker: CharLS counts to 2^31 (6 s) if the data ends inside a code, but at a marker
  // it fails at once
  const data = header.ended ? header.data : Buffer.concat([header.data, Buffer.from([0xff, 0xd9])]);
  let failed = true;
  try {
    const decoder = new library.JpegLSDecoder();
    decoder.getEncodedBuffer(data.length).set(data);
    decoder.decode();
    const { width, height, componentCount } = decoder.getFrameInfo();
    if (width !== header.columns || height !== header.rows || componentCount !== header.components)
      throw new Error("its decoder found other sizes than its first frame header has");
    const { buffer, byteOffset, length } = decoder.getDecodedBuffer();
    decoder.delete();
    failed = false;
    return new Uint8Array(buffer, byteOffset, length);
  } catch (error) {
    throw typeof error === "number" ? new Error(library.getExceptionMessage(error)) : error;
  } finally {
    if (failed || library.HEAPU8.length > MOST_KEPT_BYTES) instance = undefined;
  }
}
