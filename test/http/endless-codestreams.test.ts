/**
 * Codestreams of a few hundred bytes that keep a decoder at work for hours: they cost their own
 * request its time, and nobody else anything (CVE-2023-39327 of OpenJPEG, and the like of it for
 * OpenJPH).
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { CT_SLICE, dicomFile, SYNTAXES } from "../support/dicom.js";
import { ADDON, needs } from "../support/needs.js";
import { startServer } from "../support/server.js";

const SIDE = 512;
const LEVELS = 5;

interface Odd {
  /** Side of the image as the codestream says it. */
  side?: number;
  /** Side of its tiles. */
  tile?: number;
  levels?: number;
  layers?: number;
}

/** A marker with its segment (ISO/IEC 15444-1, A.1). */
function segment(marker: number, ...fields: (readonly [bytes: 1 | 2 | 4, value: number])[]) {
  const length = fields.reduce((sum, [bytes]) => sum + bytes, 2);
  const buffer = Buffer.alloc(2 + length);
  buffer.writeUInt16BE(marker, 0);
  buffer.writeUInt16BE(length, 2);
  let at = 4;
  for (const [bytes, value] of fields) {
    buffer.writeUIntBE(value, at, bytes);
    at += bytes;
  }
  return buffer;
}

/**
 * 65,535 layers of precincts of two by two samples, each with markers before and after its packet:
 * some billion packets, of which none is there.
 */
function endless(
  ht: boolean,
  { side = SIDE, tile = side, levels = LEVELS, layers = 0xffff }: Odd = {},
): Buffer {
  const precincts = Array.from({ length: levels + 1 }, () => [1, 0x11] as const);
  const exponents = Array.from({ length: 3 * levels + 1 }, () => [1, 0x90] as const);
  return Buffer.concat([
    Buffer.from([0xff, 0x4f]),
    segment(
      0xff51,
      [2, ht ? 0x4000 : 0],
      ...[side, side, 0, 0, tile, tile, 0, 0].map((value) => [4, value] as const),
      [2, 1],
      [1, 15],
      [1, 1],
      [1, 1],
    ),
    ...(ht ? [segment(0xff50, [4, 0x0002_0000], [2, 0])] : []),
    segment(
      0xff52,
      [1, 0x07],
      [1, 0],
      [2, ht ? 1 : layers],
      [1, 0],
      [1, levels],
      [1, 4],
      [1, 4],
      [1, ht ? 0x40 : 0],
      [1, 1],
      ...precincts,
    ),
    segment(0xff5c, [1, 0x40], ...exponents),
    segment(0xff90, [2, 0], [4, 0], [1, 0], [1, 1]),
    Buffer.from([0xff, 0x93]),
    Buffer.alloc(64),
    Buffer.from([0xff, 0xd9]),
  ]);
}

t.test("codestreams without an end", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_THREADS: "1" });
  const syntaxes = {
    lossless: [SYNTAXES["jpeg2000"], false],
    // JPEG 2000, which is decoded in WebAssembly alone
    lossy: ["1.2.840.10008.1.2.4.91", false],
    ht: [SYNTAXES["htj2k"], true],
  } as const;
  for (const [name, [transferSyntax, ht]] of Object.entries(syntaxes))
    writeFileSync(
      path.join(place.input, `${name}.dcm`),
      dicomFile({
        transferSyntax,
        attributes: { ...CT_SLICE, Rows: SIDE, Columns: SIDE },
        pixels: { fragments: [endless(ht)] },
      }),
    );
  // As many tiles as have numbers, or more; and as many resolution levels as there may be
  const odd: Record<string, Odd> = {
    tiles: { tile: 1 },
    "tiles-beyond": { side: 2 ** 31 - 1, tile: 1 },
    levels: { levels: 32 },
    "levels-and-tiles": { levels: 32, tile: 2, layers: 1 },
  };
  const names = Object.keys(syntaxes);
  for (const [name, [transferSyntax, ht]] of Object.entries(syntaxes))
    for (const [what, how] of Object.entries(odd)) {
      names.push(`${name}-${what}`);
      writeFileSync(
        path.join(place.input, `${name}-${what}.dcm`),
        dicomFile({
          transferSyntax,
          attributes: { ...CT_SLICE, Rows: SIDE, Columns: SIDE },
          pixels: { fragments: [endless(ht, how)] },
        }),
      );
    }
  writeSlice(path.join(place.input, "small.dcm"));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const ask = (name: string, timeout_ms: number) =>
    server.post("/single_inference", {
      input_image_path: path.join(place.input, `${name}.dcm`),
      output_folder_path: path.join(place.output, name),
      outputs: ["json"],
      timeout_ms,
    });
  t.equal((await ask("small", 600_000)).status, 200);
  for (const name of names) {
    const before = performance.now();
    const [hostile, small] = await Promise.all([ask(name, 3_000), ask("small", 600_000)]);
    const body = (await hostile.json()) as { error: string };
    t.ok(
      ["deadline_exceeded", "corrupt_image", "truncated_image", "decode_suspect"].includes(
        body.error,
      ),
      `${name}: ${body.error}`,
    );
    t.ok(performance.now() - before < 60_000, name);
    t.equal(small.status, 200, `beside ${name}`);
  }
});
