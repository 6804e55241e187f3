/** Mutated files: every one is read or refused with a code of the table that is not `internal`. Reproducible by its seed. */
import t from "tap";
import { RadserveError } from "../../src/errors.js";
import { inspectImage } from "../../src/inspect.js";
import { readImage } from "../../src/read.js";
import {
  attributesOf,
  BIG_ENDIAN,
  compress,
  DEFLATED,
  dicomFile,
  EXPLICIT,
  IMPLICIT,
  picture,
  random,
  SYNTAXES,
  Typed,
  type Coder,
} from "../support/dicom.js";

/** Mutants of each seed file; more by hand and in the long check. */
const ITERATIONS = Number(process.env["RADSERVE_FUZZ_MUTANTS"] ?? 40);
const SEED = 20261121;

const raw = picture({ rows: 12, columns: 16, samples: 1, bitsAllocated: 16, bitsStored: 12 });

async function seeds(): Promise<Record<string, Buffer>> {
  const attributes = attributesOf(raw, {
    NumberOfFrames: "1",
    RescaleSlope: "1",
    WindowCenter: "40",
    WindowWidth: "400",
    ReferencedImageSequence: new Typed("SQ", [{ CodeValue: "1", CodeMeaning: "x" }], true),
    VOILUTSequence: [{ LUTDescriptor: [2, 0, 16], LUTData: [0, 65535] }],
  });
  const files: Record<string, Buffer> = {};
  for (const transferSyntax of [IMPLICIT, EXPLICIT, BIG_ENDIAN, DEFLATED])
    files[transferSyntax] = dicomFile({ transferSyntax, attributes, pixels: raw.data });
  const coders: Coder[] = ["jpeg-lossless", "jpeg-ls", "jpeg2000", "htj2k", "jpeg-xl", "rle"];
  for (const coder of coders)
    files[coder] = dicomFile({
      transferSyntax: SYNTAXES[coder],
      attributes,
      pixels: { fragments: [await compress(coder, raw)] },
    });
  return files;
}

const INTERESTING = [0, 1, 0x7f, 0x80, 0xff, 0xfe];

/** A few bytes changed, a piece cut out, doubled, or the end cut off; mostly behind the preamble. */
function mutated(file: Buffer, next: () => number): Buffer {
  let out = Buffer.from(file);
  const at = () => 132 + Math.floor(next() * (out.length - 132));
  for (let i = 0; i <= Math.floor(next() * 4); i++) {
    const kind = next();
    if (kind < 0.5) out[at()] = INTERESTING[Math.floor(next() * INTERESTING.length)]!;
    else if (kind < 0.75) out[at()] = Math.floor(next() * 256);
    else if (kind < 0.85) {
      const from = at();
      out = Buffer.concat([out.subarray(0, from), out.subarray(from + 1 + Math.floor(next() * 8))]);
    } else if (kind < 0.95) {
      const from = at();
      out = Buffer.concat([out.subarray(0, from + 8), out.subarray(from)]);
    } else out = Buffer.from(out.subarray(0, Math.max(140, at())));
  }
  return out;
}

t.test("mutated files are read or refused", async (t) => {
  const next = random(SEED);
  const codes = new Map<string, number>();
  for (const [name, file] of Object.entries(await seeds()))
    for (let i = 0; i < ITERATIONS; i++) {
      const input = mutated(file, next);
      let code: string;
      try {
        const image = await readImage(input);
        if (image.frameCount * image.format.rows * image.format.columns > 1 << 24) continue;
        await inspectImage(image);
        code = "read";
      } catch (error) {
        if (!(error instanceof RadserveError)) {
          t.fail(`${name}, mutation ${i}: ${String(error)}`, { file: input.toString("base64") });
          continue;
        }
        code = error.code;
      }
      t.not(code, "internal");
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
  t.comment([...codes].map(([code, count]) => `${code}: ${count}`).join(", "));
});
