/** The system's OpenJPEG gives the pixels of the WebAssembly codec, or leaves the frame to it. */
import t from "tap";
import { openJpegVersion } from "../../../src/addon/openjpeg.js";
import { decodeFrame } from "../../../src/images/dicom/codecs.js";
import { readCodestream, type CodestreamHeader } from "../../../src/images/dicom/codestream.js";
import { decodeByOpenJpeg, isForOpenJpeg } from "../../../src/images/dicom/jpeg2000.js";
import type { PixelFormat } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  attributesOf,
  compress,
  dicomFile,
  picture,
  random,
  SYNTAXES,
  type Raw,
} from "../../support/dicom.js";
import { CONFINE, needs, without } from "../../support/needs.js";

const missing = needs(CONFINE);
const skip =
  missing === false
    ? without(openJpegVersion() === undefined ? "libopenjp2.so.7" : undefined)
    : missing;

const LAYOUTS: Omit<Raw, "data">[] = [
  { rows: 512, columns: 512, samples: 1, bitsAllocated: 16, bitsStored: 12 },
  { rows: 257, columns: 513, samples: 1, bitsAllocated: 16, bitsStored: 16 },
  { rows: 300, columns: 400, samples: 1, bitsAllocated: 16, bitsStored: 16, signed: true },
  { rows: 300, columns: 401, samples: 1, bitsAllocated: 16, bitsStored: 13, signed: true },
  { rows: 401, columns: 300, samples: 1, bitsAllocated: 8, bitsStored: 8 },
  { rows: 400, columns: 299, samples: 1, bitsAllocated: 8, bitsStored: 7 },
  { rows: 201, columns: 303, samples: 3, bitsAllocated: 8, bitsStored: 8 },
];

const describe = ({
  rows,
  columns,
  samples,
  bitsAllocated,
  bitsStored,
  signed = false,
}: Omit<Raw, "data">) =>
  `${columns} x ${rows}, ${samples} of ${bitsStored} bits in ${bitsAllocated}${signed ? ", signed" : ""}`;

/** What the WebAssembly codec makes of it: an end that was not found is only warned of. */
const byWebAssembly = (header: CodestreamHeader, raw: Omit<Raw, "data">) =>
  decodeFrame({ ...header, ended: false }, formatOf(raw), []);

function formatOf(layout: Omit<Raw, "data">): PixelFormat {
  const { rows, columns, samples, bitsStored, signed = false } = layout;
  return {
    rows,
    columns,
    samplesPerPixel: samples,
    bitsStored,
    highBit: bitsStored - 1,
    signed,
    bitsAllocated: layout.bitsAllocated === 8 ? 8 : 16,
    float: false,
    packed422: false,
    photometricInterpretation: samples === 1 ? "MONOCHROME2" : "RGB",
  };
}

t.test("samples of every form come out as they were coded", { skip }, async (t) => {
  for (const layout of LAYOUTS) {
    const raw = picture(layout);
    const header = readCodestream(await compress("jpeg2000", raw));
    const expected = await byWebAssembly(header, layout);
    t.strictSame(Buffer.from(expected), Buffer.from(raw.data), `${describe(layout)}: WebAssembly`);
    const found = await decodeByOpenJpeg(header);
    if (found === undefined) t.fail(`${describe(layout)}: left to WebAssembly`);
    else t.strictSame(Buffer.from(found), Buffer.from(raw.data), describe(layout));
  }
});

t.test("an image is read through it", { skip }, async (t) => {
  const layout = { rows: 1500, columns: 1501, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const raw = picture(layout);
  const fragments = [await compress("jpeg2000", raw)];
  const file = dicomFile({
    transferSyntax: SYNTAXES.jpeg2000,
    attributes: attributesOf(raw),
    pixels: { fragments },
  });
  const image = await readImage(file);
  t.strictSame(Buffer.from(await image.frame(0)), Buffer.from(raw.data));
  t.same(image.warnings, []);
});

t.test(
  "frames that are small, lossy, cut or of another kind are not for it",
  { skip },
  async (t) => {
    const raw = picture({ rows: 256, columns: 256, samples: 1, bitsAllocated: 16, bitsStored: 12 });
    const header = readCodestream(await compress("jpeg2000", raw));
    t.ok(isForOpenJpeg({ ...header, rows: 2000, columns: 2000 }));
    for (const other of [
      { kind: "htj2k" as const },
      { lossy: true },
      { ended: false },
      { components: 4 },
      { sampling: [{ dx: 1, dy: 1 }] },
      { precision: 17 },
      { rows: 30 },
      { rows: 1 << 15, columns: 1 << 13 },
    ])
      t.notOk(
        isForOpenJpeg({ ...header, rows: 2000, columns: 2000, ...other }),
        JSON.stringify(other),
      );
  },
);

t.test("of damaged frames it gives what the other gives, or nothing", { skip }, async (t) => {
  const layout = { rows: 256, columns: 257, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const whole = await compress("jpeg2000", picture(layout));
  const next = random(7);
  let given = 0;
  for (let i = 0; i < 80; i++) {
    const bytes = new Uint8Array(whole);
    // Behind the main header, so that sizes stay
    for (let flips = 0; flips <= i % 3; flips++)
      bytes[150 + Math.floor(next() * (bytes.length - 152))]! ^= 1 << Math.floor(next() * 8);
    const cut =
      i % 4 === 3 ? bytes.subarray(0, 200 + Math.floor(next() * (bytes.length - 200))) : bytes;
    const header = { ...readCodestream(whole), data: cut };
    const found = await decodeByOpenJpeg(header);
    if (found === undefined) continue;
    given++;
    t.strictSame(
      Buffer.from(found),
      Buffer.from(await byWebAssembly(header, layout)),
      `damage ${i}`,
    );
  }
  t.ok(given > 0 && given < 80, `${given} of 80 gave pixels`);
});
