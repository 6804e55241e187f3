/**
 * Files that were made to hurt: each is refused with a clear error, and takes nothing else with it.
 */
import { deflateRawSync, constants } from "node:zlib";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { DEFLATED, dicomFile, encodeElement, imageAttributes, Typed } from "../support/dicom.js";
import { pngFile } from "../support/raster.js";

export interface HostileFile {
  name: string;
  /** The statuses that a request for it may end with. */
  statuses: readonly number[];
}

const EXPLICIT_LITTLE = { explicit: true, little: true };
const PIXELS = Buffer.alloc(64 * 64 * 2, 7);
const ATTRIBUTES = { Rows: 64, Columns: 64, BitsAllocated: 16, BitsStored: 16, HighBit: 15 };

/** Every element has an odd length and so earns a warning of its own. */
function warnings(): Buffer {
  const odd = Array.from({ length: 20_000 }, (_, i) =>
    encodeElement(0x00111000 + (i % 0xf000), "SH", Buffer.from("a"), EXPLICIT_LITTLE, 1),
  );
  return dicomFile({
    attributes: imageAttributes(ATTRIBUTES),
    pixels: PIXELS,
    trailing: Buffer.concat(odd),
  });
}

function emptyItems(): Buffer {
  const item = Buffer.from("feff00e000000000", "hex");
  const end = Buffer.from("feffdde000000000", "hex");
  const value = Buffer.concat([Buffer.alloc(2_500_000 * item.length, item), end]);
  const sequence = new Typed("SQ", value, true);
  return dicomFile({
    attributes: imageAttributes({ ...ATTRIBUTES, ReferencedImageSequence: sequence }),
    pixels: PIXELS,
  });
}

/** 2 GiB of zeros in 2 MB. */
function deflatedBomb(): Buffer {
  const empty = dicomFile({ transferSyntax: DEFLATED, attributes: {} });
  const zeros = deflateRawSync(Buffer.alloc(16 << 20), { finishFlush: constants.Z_FULL_FLUSH });
  // An empty deflate stream is two bytes long
  return Buffer.concat([empty.subarray(0, -2), ...Array<Buffer>(128).fill(zeros)]);
}

function brokenPng(): Buffer {
  const png = pngFile({
    width: 256,
    height: 256,
    bits: 8,
    colour: 0,
    pixels: Buffer.alloc(256 * 256, 90),
  });
  const broken = Buffer.from(png);
  broken.fill(0xff, broken.length - 60, broken.length - 20);
  return broken;
}

/** A PNG of 60,000 by 60,000 pixels in a few bytes. */
function hugePng(): Buffer {
  const png = pngFile({ width: 8, height: 8, bits: 8, colour: 0, pixels: Buffer.alloc(64) });
  png.writeUInt32BE(60_000, 16);
  png.writeUInt32BE(60_000, 20);
  return png;
}

const MAKERS: Record<string, () => Buffer> = {
  "warnings.dcm": warnings,
  "empty-items.dcm": emptyItems,
  "deflated.dcm": deflatedBomb,
  "truncated.dcm": () =>
    dicomFile({ attributes: imageAttributes(ATTRIBUTES), pixels: PIXELS }).subarray(0, -3_000),
  "broken.png": brokenPng,
  "huge.png": hugePng,
  "text.dcm": () => Buffer.from("this is no image\n".repeat(100)),
  "nothing.dcm": () => Buffer.alloc(0),
};

/** Writes them into a folder. */
export function writeHostile(folder: string): HostileFile[] {
  return Object.entries(MAKERS).map(([name, make]) => {
    writeFileSync(path.join(folder, name), make());
    // Warnings alone are no reason to refuse: no model may take the image, or one may
    return { name, statuses: name === "warnings.dcm" ? [200, 422] : [415, 422] };
  });
}
