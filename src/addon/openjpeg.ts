/** The system's OpenJPEG, where it has one (native/codecs/openjpeg.h). */
import { loadAddon } from "./load-addon.js";

/** The header of a codestream. */
export interface Jpeg2000Frame {
  rows: number;
  columns: number;
  components: number;
  /** Bits of a sample, 1 to 16. */
  precision: number;
  signed: boolean;
}

interface OpenJpegAddon {
  openJpegVersion(): string | undefined;
  decodeJpeg2000(codestream: Uint8Array, frame: Jpeg2000Frame, threads: number): Uint8Array;
}

const addon = (): OpenJpegAddon => loadAddon("confine") as OpenJpegAddon;

/** Its version, as 2.5.0; undefined where the system has none, or one before 2.3.0. */
export const openJpegVersion = (): string | undefined => addon().openJpegVersion();

/**
 * Decodes a codestream, on the calling thread and so many others. Only for a confined process: the
 * bytes may be hostile.
 * @returns samples row by row and colour by pixel, of one byte up to 8 bits and else of two, little
 * endian
 * @throws Error where there is no library, and where it complains of anything at all
 */
export function decodeJpeg2000(
  codestream: Uint8Array,
  frame: Jpeg2000Frame,
  threads: number,
): Uint8Array {
  return addon().decodeJpeg2000(codestream, frame, threads);
}
