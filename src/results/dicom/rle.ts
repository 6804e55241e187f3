/** RLE Lossless (PS3.5 annex G) for the pictures that are written: a quarter of the bytes, exact, read everywhere. */
import codecs from "dcmjs-codecs";
import { loadCodecs } from "../../dicom/codecs.js";

export const RLE_LOSSLESS = "1.2.840.10008.1.2.5";

/**
 * One frame, RGB by pixel in 8 bits, as an RLE codestream: three planes, each row by row. Equal pixels give equal bytes.
 */
export async function rleFrame(rgb: Uint8Array, rows: number, columns: number): Promise<Uint8Array> {
  await loadCodecs();
  const { Context, NativeCodecs } = codecs;
  const context = new Context({
    width: columns,
    height: rows,
    bitsAllocated: 8,
    bitsStored: 8,
    samplesPerPixel: 3,
    pixelRepresentation: 0,
    planarConfiguration: 0,
    photometricInterpretation: "RGB",
    decodedBuffer: rgb,
  });
  const encoded = NativeCodecs.encodeRle(context).getEncodedBuffer();
  if (encoded === undefined) throw new Error("The RLE encoder gives a frame");
  return Uint8Array.from(encoded);
}
