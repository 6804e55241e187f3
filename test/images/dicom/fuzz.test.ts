/**
 * Mutated files: every one is read or refused with a code that its page of documentation names, for
 * a bounded multiple of the processor time that all whole files take, and within 1 GiB.
 * RADSERVE_FUZZ_MUTANTS is the number of mutants of each seed file; mutant n of a file is the same
 * in every run.
 */
import t from "tap";
import { RadserveError, type ErrorCode } from "../../../src/base/errors.js";
import { inspectImage } from "../../../src/inference/inspection.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  attributesOf,
  BIG_ENDIAN,
  compress,
  DEFLATED,
  DEFLATED_FRAMES,
  dicomFile,
  EXPLICIT,
  IMPLICIT,
  picture,
  random,
  SYNTAXES,
  Typed,
  type Coder,
} from "../../support/dicom.js";
import { mutated, specimen, type Specimen } from "../../support/mutate.js";
import { deflateRawSync } from "node:zlib";

const MUTANTS = Number(process.env["RADSERVE_FUZZ_MUTANTS"] ?? 40);
const SEED = 20261121;
/** The most that a mutant costs, in processor time of all whole files together. */
const MOST_COST = 20;
const MOST_KIBIBYTES = 1 << 20;

/** What readImage and Image.frame say they throw. */
const DOCUMENTED = new Set<ErrorCode>([
  "unsupported_format",
  "unsupported_transfer_syntax",
  "no_pixel_data",
  "corrupt_image",
  "truncated_image",
  "decode_suspect",
]);

const gray = picture({ rows: 12, columns: 16, samples: 1, bitsAllocated: 16, bitsStored: 12 });
const colour = picture({ rows: 16, columns: 24, samples: 3, bitsAllocated: 8, bitsStored: 8 });

const DETAILS = {
  NumberOfFrames: "1",
  RescaleSlope: "1",
  RescaleIntercept: "-1024",
  PixelPaddingValue: 0,
  PixelSpacing: "0.5\\0.5",
  WindowCenter: "40",
  WindowWidth: "400",
  ReferencedImageSequence: new Typed("SQ", [{ CodeValue: "1", CodeMeaning: "x" }], true),
  VOILUTSequence: [{ LUTDescriptor: [2, 0, 16], LUTData: [0, 65535] }],
};

async function seeds(): Promise<Record<string, Specimen>> {
  const found: Record<string, Specimen> = {};
  const add = (name: string, options: Parameters<typeof dicomFile>[0]) => {
    found[name] = specimen(dicomFile(options), options?.transferSyntax ?? EXPLICIT);
  };
  const attributes = attributesOf(gray, DETAILS);
  for (const transferSyntax of [IMPLICIT, EXPLICIT, BIG_ENDIAN, DEFLATED])
    add(transferSyntax, { transferSyntax, attributes, pixels: gray.data });
  const coders: Coder[] = ["jpeg-lossless", "jpeg-ls", "jpeg2000", "htj2k", "jpeg-xl", "rle"];
  for (const coder of coders)
    add(coder, {
      transferSyntax: SYNTAXES[coder],
      attributes,
      pixels: { fragments: [await compress(coder, gray)] },
    });
  for (const coder of ["jpeg", "jpeg2000"] as const)
    add(`${coder}, two frames`, await frames(coder));
  add("deflated frame", {
    transferSyntax: DEFLATED_FRAMES,
    attributes,
    pixels: { fragments: [deflateRawSync(gray.data)] },
  });
  add("palette", {
    attributes: attributesOf(
      { ...colour, samples: 1 },
      {
        PhotometricInterpretation: "PALETTE COLOR",
        RedPaletteColorLookupTableDescriptor: [4, 0, 16],
        GreenPaletteColorLookupTableDescriptor: [4, 0, 16],
        BluePaletteColorLookupTableDescriptor: [4, 0, 16],
        RedPaletteColorLookupTableData: [0, 1, 2, 3],
        GreenPaletteColorLookupTableData: [0, 1, 2, 3],
        BluePaletteColorLookupTableData: [0, 1, 2, 3],
      },
    ),
    pixels: colour.data,
  });
  return found;
}

/** Two colour frames, the first over two fragments, with an offset table. */
async function frames(coder: Coder): Promise<Parameters<typeof dicomFile>[0]> {
  const frame = Buffer.from(await compress(coder, colour));
  const half = (frame.length >> 2) << 1;
  return {
    transferSyntax: SYNTAXES[coder],
    attributes: attributesOf(colour, { ...DETAILS, NumberOfFrames: "2" }),
    pixels: {
      fragments: [frame.subarray(0, half), frame.subarray(half), frame],
      offsetTable: [0, 16 + frame.length + (frame.length % 2)],
    },
  };
}

/** The code of the refusal, "read", or the fault itself. */
async function outcome(input: Buffer): Promise<string> {
  try {
    const image = await readImage(input);
    await inspectImage(image);
    return "read";
  } catch (error) {
    if (error instanceof RadserveError && DOCUMENTED.has(error.code)) return error.code;
    return `undocumented: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
  }
}

/** Seconds of processors that work takes. */
async function cost(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

// Many mutants take longer than a test may; what starts this file keeps its own limit
t.setTimeout(0);

t.test("mutated files are read or refused", { timeout: 0 }, async (t) => {
  const codes: Record<string, number> = {};
  let dearest = { seconds: 0, which: "" };
  const before = process.resourceUsage().maxRSS;
  const all = Object.entries(await seeds());
  const whole = await cost(async () => {
    for (const [name, source] of all)
      t.equal(
        await outcome(source.whole(source.bytes)),
        "read",
        `${name} is whole before it is damaged`,
      );
  });
  for (const [name, source] of all)
    for (let i = 0; i < MUTANTS; i++) {
      const input = mutated(source, random(SEED + i * 7919));
      let code = "";
      const seconds = await cost(async () => void (code = await outcome(input)));
      if (seconds > dearest.seconds) dearest = { seconds, which: `${name}, mutant ${i}` };
      if (code.startsWith("undocumented") || seconds > MOST_COST * whole)
        t.fail(`${name}, mutant ${i}: ${code} for ${(seconds / whole).toFixed(1)}`, {
          file: input.toString("base64"),
        });
      else codes[code] = (codes[code] ?? 0) + 1;
    }
  const growth = process.resourceUsage().maxRSS - before;
  t.ok(growth < MOST_KIBIBYTES, "memory stays under 1 GiB", { growth });
  const counts = Object.entries(codes).sort(([, a], [, b]) => b - a);
  t.comment(counts.map(([code, count]) => `${code}: ${count}`).join(", "));
  t.comment(`dearest: ${(dearest.seconds / whole).toFixed(2)} of all (${dearest.which})`);
  t.comment(`peak memory grew by ${(growth / 1024).toFixed(0)} MiB`);
});
