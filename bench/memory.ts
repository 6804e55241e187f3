/**
 * `npm run bench -- memory [--memory 4GiB] [--only NAME,NAME]`: what files that were made to take
 * memory take of a server's, above what it takes at rest, and what is still held when they are
 * done.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import {
  attributesOf,
  compress,
  CT_SLICE,
  DEFLATED,
  dicomFile,
  imageAttributes,
  picture,
  SYNTAXES,
  Typed,
} from "../test/support/dicom.js";
import { pngFile } from "../test/support/raster.js";
import { samples } from "../scripts/demo/samples.js";
import { pss, watchPss } from "./lib/process-tree.js";
import { machine, startServer, type BenchServer } from "./lib/server.js";

const { values } = parseArgs({
  options: { memory: { type: "string", default: "4GiB" }, only: { type: "string" } },
});
const LOOK_MS = 100;
const [ROWS, COLUMNS] = [8192, 16384];
const LARGE_SIDE = 4096;
/** Beyond the idle times of threads and decoders. */
const SETTLING_MS = 10_000;

/** A CT slice of 2^27 pixels of air. */
function deflated(): Buffer {
  const size = { Rows: ROWS, Columns: COLUMNS, BitsAllocated: 16, BitsStored: 16, HighBit: 15 };
  const attributes = imageAttributes({ ...CT_SLICE, ...size });
  return dicomFile({
    transferSyntax: DEFLATED,
    attributes,
    pixels: Buffer.alloc(2 * ROWS * COLUMNS),
  });
}

/** 64 MB: eight million items, each of eight bytes. */
function emptyItems(): Buffer {
  const item = Buffer.from("feff00e000000000", "hex");
  const end = Buffer.from("feffdde000000000", "hex");
  const sequence = new Typed("SQ", Buffer.concat([Buffer.alloc(64_000_000, item), end]), true);
  const attributes = imageAttributes({ ...CT_SLICE, ReferencedImageSequence: sequence });
  return dicomFile({ attributes, pixels: Buffer.alloc(2 * 512 * 512) });
}

/** 2^27 pixels of black. */
function png(): Buffer {
  const pixels = Buffer.alloc(ROWS * COLUMNS);
  return pngFile({ width: COLUMNS, height: ROWS, bits: 8, colour: 0, pixels });
}

async function jpeg2000(): Promise<Buffer> {
  const raw = picture({
    rows: LARGE_SIDE,
    columns: LARGE_SIDE,
    samples: 1,
    bitsAllocated: 16,
    bitsStored: 12,
  });
  const attributes = attributesOf(raw, { ...CT_SLICE, PixelSpacing: "0.1\\0.1" });
  const fragments = [await compress("jpeg2000", raw)];
  return dicomFile({ transferSyntax: SYNTAXES.jpeg2000, attributes, pixels: { fragments } });
}

const CASES: Record<
  string,
  { make: () => Buffer | Promise<Buffer>; name: string; atOnce: number }
> = {
  deflated: { make: deflated, name: "deflated.dcm", atOnce: 3 },
  items: { make: emptyItems, name: "items.dcm", atOnce: 3 },
  png: { make: png, name: "picture.png", atOnce: 3 },
  jpeg2000: { make: jpeg2000, name: "jpeg2000.dcm", atOnce: 16 },
};

const mib = (bytes: number): number => Math.round(bytes / 2 ** 20);

/** The most that the server itself counted. */
function watchCounted(server: BenchServer): () => Promise<number> {
  const watched = { most: 0, going: true };
  const looking = (async () => {
    while (watched.going) {
      // A connection that was idle for a minute may be closed at the moment it is taken; the next
      // look tells as much
      const text = await fetch(`${server.url}/metrics`).then(
        (answer) => answer.text(),
        () => "",
      );
      watched.most = Math.max(
        watched.most,
        Number(/\nradserve_image_memory_bytes (\d+)/.exec(text)?.[1] ?? 0),
      );
      await delay(LOOK_MS);
    }
  })();
  return async () => {
    watched.going = false;
    await looking;
    return watched.most;
  };
}

async function measure(name: string, { make, name: file, atOnce }: (typeof CASES)[string]) {
  const server = await startServer({ RADSERVE_MEMORY: values.memory });
  try {
    const root = server.process.pid!;
    const infer = async (input: string, folder: string) => {
      const body = { input_image_path: input, output_folder_path: join(server.output, folder) };
      const { status, body: said } = await server.post({ ...body, outputs: ["json"] });
      return status === 200 ? "200" : `${status} ${(said as { error?: string }).error ?? ""}`;
    };
    const warm = join(server.input, "warm.dcm");
    writeFileSync(warm, (await samples()).ct);
    await infer(warm, "warm");
    await delay(SETTLING_MS);
    const rest = pss(root);

    const input = join(server.input, file);
    writeFileSync(input, await make());
    const [most, counted] = [watchPss(root, LOOK_MS), watchCounted(server)];
    const answers = await Promise.all(
      Array.from({ length: atOnce }, (_, i) => infer(input, `results-${i}`)),
    );
    const [peak, mostCounted] = [most(), await counted()];
    const held: number[] = [];
    for (let i = 0; i < 2; i++) {
      await delay(30_000);
      held.push(pss(root));
    }
    const times = (answer: string) => answers.filter((each) => each === answer).length;
    return {
      name,
      at_once: atOnce,
      answers: Object.fromEntries([...new Set(answers)].map((answer) => [answer, times(answer)])),
      rest_mib: Math.round(rest),
      peak_over_rest_mib: Math.round(peak - rest),
      most_counted_mib: mib(mostCounted),
      held_to_rest_after_30_and_60_s: held.map((each) => Number((each / rest).toFixed(2))),
    };
  } finally {
    await server.stop();
  }
}

const chosen = values.only?.split(",") ?? Object.keys(CASES);
console.log({ ...machine(), memory: values.memory });
for (const name of chosen) {
  const found = CASES[name];
  if (found === undefined)
    throw new Error(`--only: expected ${Object.keys(CASES).join(", ")}; found ${name}.`);
  console.log(await measure(name, found));
}
