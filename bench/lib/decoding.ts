/**
 * Decoding of all frames of a file, against DCMTK, GDCM, OpenJPEG and others. Measured is processor
 * time, ours with the threads that compile and collect garbage, so that what else runs on the
 * machine counts less.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import { beginsCodestream, readCodestream } from "../../src/images/dicom/codestream.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { findFrames, frameBytes } from "../../src/images/dicom/frame-fragments.js";
import { readImage } from "../../src/images/read-image.js";
import {
  attributesOf,
  compress,
  dicomFile,
  SYNTAXES,
  type Coder,
} from "../../test/support/dicom.js";
import { radiograph } from "./pictures.js";
import type { Turns } from "./rivals.js";
import { median } from "./statistics.js";

export interface DecodingRow {
  file: string;
  transfer_syntax: string;
  ours_ms: number;
  rivals_ms: Record<string, number>;
  /** Ours by the best of DCMTK, GDCM and OpenJPEG. */
  ratio?: number;
  best?: string;
  /** Ours by the best of all libraries. */
  ratio_any?: number;
  best_any?: string;
}

/** The larger files of the development set, one or two for each coding. */
const FILES = [
  "j2k90-dx-chest-mono1.dcm",
  "j2k91-us-ybr-ict.dcm",
  "htj2k202-xa.dcm",
  "htj2k201-rgb.dcm",
  "jls80-ct-fragmented-no-bot.dcm",
  "jls81-ct-near-signed16.dcm",
  "jpeg70-mg-overlay-bounds.dcm",
  "jpeg70-us-rgb-2frame.dcm",
  "jpeg57-mr-p14.dcm",
  "jpeg50-cr-chest.dcm",
  "jpeg50-us-ybr422-30frame.dcm",
  "jpeg51-nm-12bit.dcm",
  "rle-ct-bot-2frame.dcm",
  "rle-us-palette-2frame.dcm",
];
const CODERS: Coder[] = ["jpeg2000", "htj2k", "jpeg-ls", "jpeg-lossless", "rle"];

const answer = z.object({
  times: z.record(z.string(), z.array(z.number())),
  refused: z.record(z.string(), z.string()),
});

async function files(scratch: string): Promise<Record<string, string>> {
  const folder = resolve("../shared/dicom");
  const found: Record<string, string> = {};
  if (existsSync(folder)) for (const name of FILES) found[name] = join(folder, name);
  else console.error(`${folder} is not there: only synthetic files are measured.`);
  const raw = radiograph(3000, 2500);
  for (const coder of CODERS) {
    const name = `synthetic DX 3000x2500 12-bit, ${coder}`;
    const path = join(scratch, `${coder}.dcm`);
    const fragment = await compress(coder, raw);
    const options = { transferSyntax: SYNTAXES[coder], attributes: attributesOf(raw) };
    writeFileSync(path, dicomFile({ ...options, pixels: { fragments: [fragment] } }));
    found[name] = path;
  }
  return found;
}

/** Writes each frame's codestream to a file of its own, and says what they are. */
function frames(
  bytes: Uint8Array,
  count: number,
  scratch: string,
): { kind: string; paths: string[] } {
  const file = openFile(bytes);
  const encapsulated = file.attributes.element("PixelData")!.encapsulated!;
  const sources = findFrames({
    bytes,
    encapsulated,
    frameCount: count,
    extended: undefined,
    begins: beginsCodestream,
    warnings: [],
  });
  const parts = sources.map((source) => frameBytes(bytes, source));
  if (file.transferSyntax.coding === "rle") return { kind: "rle", paths: [] };
  const paths = parts.map((part, i) => {
    const path = join(scratch, `frame-${i}`);
    writeFileSync(path, readCodestream(part).data);
    return path;
  });
  return { kind: readCodestream(parts[0]!).kind, paths };
}

/** Measures all files; ours and the rivals by turns. */
export async function decoding(turns: Turns): Promise<DecodingRow[]> {
  mkdirSync(turns.scratch, { recursive: true });
  const rows: DecodingRow[] = [];
  for (const [name, path] of Object.entries(await files(turns.scratch)))
    rows.push(await measure(name, path, turns));
  return rows;
}

async function measure(
  name: string,
  path: string,
  { scratch, rounds, rivals }: Turns,
): Promise<DecodingRow> {
  const bytes = readFileSync(path);
  const image = await readImage(bytes);
  const { kind, paths } = frames(bytes, image.frameCount, scratch);
  const ours: number[] = [];
  const theirs: Record<string, number[]> = {};
  const add = (rival: string, list: number[]) => (theirs[rival] ??= []).push(...list);
  const decode = async () => {
    const began = process.cpuUsage();
    for (let i = 0; i < image.frameCount; i++) await image.frame(i);
    const { user, system } = process.cpuUsage(began);
    return (user + system) / 1000;
  };
  // WebAssembly runs at full speed only after its second compilation
  for (const began = performance.now(); performance.now() - began < 1000;) await decode();
  // A small file is decoded several times a round
  const repeats = Math.max(1, Math.min(10, Math.round(200 / (await decode()))));
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < repeats; i++) ours.push(await decode());
    if (rivals !== undefined) {
      const { times } = answer.parse(
        await rivals.ask({ command: "decode", path, kind, frames: paths, scratch, repeats }),
      );
      for (const [rival, list] of Object.entries(times)) add(rival, list);
    }
  }
  const row: DecodingRow = {
    file: name,
    transfer_syntax: image.source.transferSyntaxUid ?? "",
    ours_ms: median(ours),
    rivals_ms: Object.fromEntries(
      Object.entries(theirs).map(([rival, list]) => [rival, median(list)]),
    ),
  };
  return {
    ...row,
    ...best(row, /^(DCMTK|GDCM|OpenJPEG)/, "ratio", "best"),
    ...best(row, /./, "ratio_any", "best_any"),
  };
}

function best(
  row: DecodingRow,
  among: RegExp,
  ratio: string,
  name: string,
): Record<string, unknown> {
  const [first] = Object.entries(row.rivals_ms)
    .filter(([rival]) => among.test(rival))
    .sort(([, a], [, b]) => a - b);
  return first === undefined ? {} : { [ratio]: row.ours_ms / first[1], [name]: first[0] };
}
