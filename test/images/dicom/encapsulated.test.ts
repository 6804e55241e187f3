import { deflateRawSync } from "node:zlib";
import t from "tap";
import { readCodestream } from "../../../src/images/dicom/codestream.js";
import { constantFrameLimit } from "../../../src/images/dicom/decode-check.js";
import { decodable, transferSyntax } from "../../../src/images/dicom/transfer-syntax.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  attributesOf,
  compress,
  DEFLATED_FRAMES,
  dicomFile,
  imageAttributes,
  picture,
  RLE,
  SYNTAXES,
  type Coder,
  type Encapsulation,
  type Raw,
} from "../../support/dicom.js";
import { failure, refuses, warned } from "../../support/expect.js";

const size = { rows: 20, columns: 24 };
const LAYOUTS: Record<string, Omit<Raw, "data">> = {
  "8-bit grey": { ...size, samples: 1, bitsAllocated: 8, bitsStored: 8 },
  "12-bit grey": { ...size, samples: 1, bitsAllocated: 16, bitsStored: 12 },
  "16-bit grey": { ...size, samples: 1, bitsAllocated: 16, bitsStored: 16 },
  "16-bit signed": { ...size, samples: 1, bitsAllocated: 16, bitsStored: 16, signed: true },
  "8-bit RGB": { ...size, samples: 3, bitsAllocated: 8, bitsStored: 8 },
};

/** Pixels of the only frame of a file, read from what a coder wrote. */
async function frameOf(coder: Coder, raw: Raw, coded: Uint8Array): Promise<Uint8Array> {
  const image = await readImage(
    dicomFile({
      transferSyntax: SYNTAXES[coder],
      attributes: attributesOf(raw),
      pixels: { fragments: [coded] },
    }),
  );
  return image.frame(0);
}

t.test("a JPEG of very many scans is refused before it is decoded", async (t) => {
  const raw = { ...LAYOUTS["8-bit grey"]!, data: new Uint8Array(20 * 24) };
  const whole = Buffer.from(await compress("jpeg", raw));
  const scan = whole.subarray(whole.indexOf(Buffer.from([0xff, 0xda])), -2);
  const of = (scans: number) =>
    Buffer.concat([
      whole.subarray(0, -2),
      Buffer.alloc(scan.length * scans, scan),
      whole.subarray(-2),
    ]);
  const { code, message } = await failure(frameOf("jpeg", raw, of(100)));
  t.equal(code, "corrupt_image");
  t.match(message, /at most 100 scans/);
});

t.test("lossless codings give back what was coded", async (t) => {
  const coders: Coder[] = ["jpeg-lossless", "jpeg-ls", "jpeg2000", "htj2k", "jpeg-xl", "rle"];
  for (const coder of coders)
    for (const [name, layout] of Object.entries(LAYOUTS)) {
      // JPEG XL has no signed samples
      if (coder === "jpeg-xl" && layout.signed) continue;
      const raws = [picture(layout, 1), picture(layout, 2)];
      const fragments = [await compress(coder, raws[0]!), await compress(coder, raws[1]!)];
      const image = await readImage(
        dicomFile({
          transferSyntax: SYNTAXES[coder],
          attributes: attributesOf(raws[0]!, { NumberOfFrames: "2" }),
          pixels: { fragments },
        }),
      );
      // Backwards: frames do not depend on the order they are asked for
      for (const i of [1, 0])
        t.strictSame(
          Buffer.from(await image.frame(i)),
          Buffer.from(raws[i]!.data),
          `${coder}, ${name}, frame ${i}`,
        );
      t.equal(image.format.photometricInterpretation, layout.samples === 3 ? "RGB" : "MONOCHROME2");
    }
});

t.test("each syntax of compressed frames is read", async (t) => {
  const raw = picture(LAYOUTS["8-bit grey"]!);
  for (const { uid, name } of decodable()) {
    const { codestream } = transferSyntax(uid);
    if (codestream === undefined) continue;
    const coder: Coder = codestream === "jpeg" ? "jpeg-lossless" : codestream;
    const image = await readImage(
      dicomFile({
        transferSyntax: uid,
        attributes: attributesOf(raw),
        pixels: { fragments: [await compress(coder, raw)] },
      }),
    );
    t.strictSame(Buffer.from(await image.frame(0)), Buffer.from(raw.data), name);
    t.equal(image.source.transferSyntaxUid, uid);
  }
});

/**
 * A colour frame with a scan for each component (ILV 0, ISO 14495-1 C.2.3), put together from three
 * grey ones.
 */
async function byComponent(raw: Raw): Promise<Buffer> {
  const bytes = raw.bitsAllocated / 8;
  const pixels = raw.rows * raw.columns;
  const scans = [];
  let precision = 0;
  for (let c = 0; c < 3; c++) {
    const plane = Buffer.alloc(pixels * bytes);
    for (let i = 0; i < pixels; i++)
      plane.set(raw.data.subarray((i * 3 + c) * bytes).subarray(0, bytes), i * bytes);
    const grey = Buffer.from(await compress("jpeg-ls", { ...raw, samples: 1, data: plane }));
    const start = grey.indexOf(Buffer.from([0xff, 0xda]));
    // The coder codes 8 or 16 bits whatever is stored
    precision = grey[grey.indexOf(Buffer.from([0xff, 0xf7])) + 4]!;
    grey[start + 5] = c + 1;
    scans.push(grey.subarray(start, grey.lastIndexOf(Buffer.from([0xff, 0xd9]))));
  }
  const head = Buffer.from([
    0xff,
    0xd8,
    0xff,
    0xf7,
    0,
    17,
    precision,
    0,
    raw.rows,
    0,
    raw.columns,
    3,
  ]);
  const components = Buffer.from([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
  return Buffer.concat([head, components, ...scans, Buffer.from([0xff, 0xd9])]);
}

t.test("JPEG-LS of every depth, sign and interleave, exact and near", async (t) => {
  for (const bitsStored of [2, 7, 8, 10, 12, 15, 16])
    for (const samples of [1, 3])
      for (const signed of samples === 1 ? [false, true] : [false]) {
        const bitsAllocated = bitsStored > 8 ? 16 : 8;
        const raw = picture({ ...size, samples, bitsAllocated, bitsStored, signed });
        // The coder codes the bits that are stored; the sign's copies above them come back from
        // HighBit
        const mask = (data: Uint8Array) =>
          bitsAllocated === 8
            ? Buffer.from(data.map((value) => value & (2 ** bitsStored - 1)))
            : Buffer.from(
                new Uint16Array(Uint8Array.from(data).buffer).map(
                  (value) => value & (2 ** bitsStored - 1),
                ).buffer,
              );
        const codestreams = {
          "by sample": await compress("jpeg-ls", { ...raw, data: mask(raw.data) }),
        };
        if (samples === 3) Object.assign(codestreams, { "by component": await byComponent(raw) });
        for (const [interleave, fragment] of Object.entries(codestreams)) {
          const image = await readImage(
            dicomFile({
              transferSyntax: SYNTAXES["jpeg-ls"],
              attributes: attributesOf(raw),
              pixels: { fragments: [fragment] },
            }),
          );
          const name = `${bitsStored} bits, ${samples} samples${signed ? ", signed" : ""}, ${interleave}`;
          t.strictSame(mask(await image.frame(0)), mask(raw.data), name);
        }
      }
  const raw = picture(LAYOUTS["12-bit grey"]!);
  const near = await readImage(
    dicomFile({
      transferSyntax: "1.2.840.10008.1.2.4.81",
      attributes: attributesOf(raw),
      pixels: { fragments: [await compress("jpeg-ls", raw, 5)] },
    }),
  );
  const values = (data: Uint8Array) => new Uint16Array(Uint8Array.from(data).buffer);
  const expected = values(raw.data);
  const off = values(await near.frame(0)).map((value, i) => Math.abs(value - expected[i]!));
  t.equal(Math.max(...off), 5, "near-lossless errs by what it is allowed, and by no more");
});

t.test("a codestream that is a header alone", async (t) => {
  for (const coder of ["jpeg-ls", "jpeg-lossless"] as const) {
    const raw = picture(LAYOUTS["12-bit grey"]!);
    const whole = Buffer.from(await compress(coder, raw));
    const scan = whole.indexOf(Buffer.from([0xff, 0xda]));
    const data = scan + 2 + whole.readUInt16BE(scan + 2);
    const cut = {
      "without an end": whole.subarray(0, data),
      "with an end": Buffer.concat([whole.subarray(0, data), Buffer.from([0xff, 0xd9])]),
    };
    for (const [name, bytes] of Object.entries(cut)) {
      const error = await failure(frameOf(coder, raw, bytes));
      t.equal(error.code, "truncated_image", `${coder} ${name}`);
      t.match(error.message, /frame is a header without pixels behind it/, `${coder} ${name}`);
    }
  }
});

t.test("a codestream that was filled up with zeros", async (t) => {
  const raw = picture({ ...LAYOUTS["12-bit grey"]!, rows: 64, columns: 64 });
  const pixels = picture({ ...LAYOUTS["8-bit grey"]!, rows: 64, columns: 64 });
  for (const coder of ["jpeg", "jpeg-lossless", "jpeg-ls", "jpeg2000", "htj2k"] as const) {
    const source = coder === "jpeg" ? pixels : raw;
    const whole = Buffer.from(await compress(coder, source));
    for (const part of [0.5, 0.9]) {
      const filled = Buffer.from(whole).fill(0, Math.round(part * whole.length));
      const error = await failure(frameOf(coder, source, filled));
      t.equal(error.code, "truncated_image", `${coder} from ${part} on`);
      t.match(error.message, /ends in zeros/, `${coder} from ${part} on`);
    }
    const padded = Buffer.concat([whole, Buffer.alloc(5000)]);
    await t.resolves(frameOf(coder, source, padded), `${coder}, padded behind its end`);
  }
});

t.test("zeros within a JPEG 2000 frame that has its end marker", async (t) => {
  const layout = LAYOUTS["12-bit grey"]!;
  const raw = picture({ ...layout, rows: 256, columns: 256 });
  for (const [coder, lost] of [
    ["jpeg2000", 512],
    ["jpeg2000", 4_096],
    ["htj2k", 16_384],
  ] as const) {
    const whole = Buffer.from(await compress(coder, raw));
    t.ok(whole.length > 2 * lost, `${coder} has ${whole.length} bytes`);
    for (const from of [whole.length >> 1, whole.length - 4 - lost]) {
      const holed = Buffer.from(whole).fill(0, from, from + lost);
      const error = await failure(frameOf(coder, raw, holed));
      t.equal(error.code, "corrupt_image", `${coder}: ${lost} bytes from ${from} on`);
      t.match(error.message, /zeros in a row/, `${coder}: ${lost} bytes from ${from} on`);
    }
  }
  // Whole ones whose pixels are plain, and so their codestreams
  const plain: Record<string, (at: number) => number> = {
    zeros: () => 0,
    "one value": () => 2048,
    "powers of two": (at) => 2 ** (at % 12),
    "steps of 256": (at) => ((at >> 5) % 16) * 256,
    "an edge": (at) => (at % 512 < 256 ? 0 : 4095),
    "a dot": (at) => (at === 131_200 ? 4095 : 0),
  };
  for (const [name, valueAt] of Object.entries(plain)) {
    const of = picture({ ...layout, rows: 512, columns: 512 });
    const values = new Uint16Array(512 * 512).map((_, at) => valueAt(at));
    const drawn = { ...of, data: new Uint8Array(values.buffer) };
    for (const coder of ["jpeg2000", "htj2k"] as const)
      await t.resolves(frameOf(coder, drawn, await compress(coder, drawn)), `${coder}, ${name}`);
  }
});

t.test("a frame that fails does not take its neighbours with it", async (t) => {
  for (const coder of ["jpeg-ls", "jpeg-lossless"] as const) {
    const raw = picture(LAYOUTS["8-bit grey"]!);
    const whole = await compress(coder, raw);
    const file = (fragment: Uint8Array) =>
      dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(raw),
        pixels: { fragments: [fragment] },
      });
    const images = await Promise.all(
      [
        whole.subarray(0, whole.length >> 1),
        whole,
        whole.subarray(0, whole.length >> 1),
        whole,
      ].map((bytes) => readImage(file(bytes))),
    );
    // All wait for the decoder that the first failure took down
    await t.rejects(images[0]!.frame(0), { code: "truncated_image" });
    const outcomes = await Promise.allSettled(images.map((image) => image.frame(0)));
    t.strictSame(
      outcomes.map((o) =>
        o.status === "fulfilled" ? o.value.length : (o.reason as { code: string }).code,
      ),
      ["truncated_image", raw.data.length, "truncated_image", raw.data.length],
      coder,
    );
  }
});

t.test("lossy JPEG is near, and its colour stays as coded", async (t) => {
  const raw = picture(LAYOUTS["8-bit grey"]!);
  const image = await readImage(
    dicomFile({
      transferSyntax: SYNTAXES.jpeg,
      attributes: attributesOf(raw),
      pixels: { fragments: [await compress("jpeg", raw)] },
    }),
  );
  const frame = await image.frame(0);
  t.ok(frame.every((value, i) => Math.abs(value - raw.data[i]!) < 40));
  const colour = picture(LAYOUTS["8-bit RGB"]!);
  const coded = await compress("jpeg", colour);
  for (const [tag, expected] of [
    ["YBR_FULL_422", "YBR_FULL"],
    ["RGB", "YBR_FULL"],
  ] as const) {
    const read = await readImage(
      dicomFile({
        transferSyntax: SYNTAXES.jpeg,
        attributes: attributesOf(colour, { PhotometricInterpretation: tag }),
        pixels: { fragments: [coded] },
      }),
    );
    t.equal(read.format.photometricInterpretation, expected, `tag ${tag}, markers YBR`);
    t.equal(warned(read).includes("photometric_mismatch"), tag === "RGB");
    t.not((await read.frame(0)).length, 0);
  }
});

t.test("the codec follows the bytes, with a warning", async (t) => {
  const raw = picture(LAYOUTS["12-bit grey"]!);
  for (const [coder, claimed] of [
    ["jpeg2000", "htj2k"],
    ["htj2k", "jpeg2000"],
    ["jpeg-ls", "jpeg2000"],
    ["jpeg-lossless", "jpeg-ls"],
  ] as const) {
    const image = await readImage(
      dicomFile({
        transferSyntax: SYNTAXES[claimed],
        attributes: attributesOf(raw),
        pixels: { fragments: [await compress(coder, raw)] },
      }),
    );
    t.strictSame(
      Buffer.from(await image.frame(0)),
      Buffer.from(raw.data),
      `${coder} called ${claimed}`,
    );
    t.ok(warned(image).includes("codestream_mismatch"));
  }
});

t.test("fragments and offset tables", async (t) => {
  const layout = LAYOUTS["16-bit grey"]!;
  const raws = [picture(layout, 1), picture(layout, 2)];
  const [a, b] = [await compress("jpeg-ls", raws[0]!), await compress("jpeg-ls", raws[1]!)];
  const even = (bytes: Uint8Array) =>
    bytes.length % 2 ? Buffer.concat([bytes, Buffer.alloc(1)]) : bytes;
  const parts = (bytes: Uint8Array, at = 100) => [bytes.subarray(0, at), even(bytes.subarray(at))];
  const second = even(a).length + 8;
  const cases: Record<string, [Encapsulation, string?]> = {
    "empty table": [{ fragments: [a, b] }],
    "right table": [{ fragments: [a, b], offsetTable: [0, second] }],
    "wrong table, one fragment a frame": [
      { fragments: [a, b], offsetTable: [0, 4] },
      "offset_table_wrong",
    ],
    "table of another length": [{ fragments: [a, b], offsetTable: [0] }, "offset_table_wrong"],
    "many fragments, empty table": [{ fragments: [...parts(a), ...parts(b)] }],
    "many fragments, right table": [
      { fragments: [...parts(a), ...parts(b)], offsetTable: [0, second + 8] },
    ],
    "many fragments, table into the middle": [
      { fragments: [...parts(a), ...parts(b)], offsetTable: [0, 108] },
      "offset_table_wrong",
    ],
    "no delimiter": [{ fragments: [a, b], delimiter: false }, "missing_delimiter"],
  };
  for (const [name, [pixels, code]] of Object.entries(cases)) {
    const attributes = attributesOf(raws[0]!, { NumberOfFrames: "2" });
    const image = await readImage(
      dicomFile({ transferSyntax: SYNTAXES["jpeg-ls"], attributes, pixels }),
    );
    for (const i of [0, 1])
      t.strictSame(
        Buffer.from(await image.frame(i)),
        Buffer.from(raws[i]!.data),
        `${name}, frame ${i}`,
      );
    t.strictSame(warned(image), code === undefined ? [] : [code], name);
  }
  const extended = await readImage(
    dicomFile({
      transferSyntax: RLE,
      attributes: attributesOf(raws[0]!, {
        NumberOfFrames: "2",
        ExtendedOffsetTable: [0, (await compress("rle", raws[0]!)).length + 8],
        ExtendedOffsetTableLengths: await Promise.all(
          raws.map(async (r) => (await compress("rle", r)).length),
        ),
      }),
      pixels: { fragments: [await compress("rle", raws[0]!), await compress("rle", raws[1]!)] },
    }),
  );
  t.strictSame(
    Buffer.from(await extended.frame(1)),
    Buffer.from(raws[1]!.data),
    "extended offset table",
  );
});

t.test("frames that are not there, and frames too many", async (t) => {
  const raw = picture(LAYOUTS["8-bit grey"]!);
  const frame = await compress("jpeg-ls", raw);
  const file = (frames: number, pixels: Encapsulation) =>
    dicomFile({
      transferSyntax: SYNTAXES["jpeg-ls"],
      attributes: attributesOf(raw, { NumberOfFrames: String(frames) }),
      pixels,
    });
  await refuses(
    t,
    file(3, { fragments: [frame] }),
    "corrupt_image",
    /NumberOfFrames is 3/,
    "too few",
  );
  await refuses(
    t,
    file(3, { fragments: [frame], delimiter: false }),
    "truncated_image",
    /3 frames/,
    "cut",
  );
  await refuses(
    t,
    file(1, { fragments: [frame] }).subarray(0, -40),
    "truncated_image",
    /inside a fragment/,
    "cut inside",
  );
  const extra = await readImage(file(1, { fragments: [frame, frame] }));
  t.strictSame(warned(extra), ["extra_frames"]);
  t.strictSame(Buffer.from(await extra.frame(0)), Buffer.from(raw.data));
});

t.test("RLE frames begin with their header", async (t) => {
  const raws = [1, 2, 3].map((seed) => picture(LAYOUTS["16-bit grey"]!, seed));
  const frames = await Promise.all(raws.map(async (raw) => compress("rle", raw)));
  const read = async (count: number, fragments: Uint8Array[]) => {
    const attributes = attributesOf(raws[0]!, { NumberOfFrames: String(count) });
    return readImage(dicomFile({ transferSyntax: RLE, attributes, pixels: { fragments } }));
  };
  const parts = frames.flatMap((frame) => [frame.subarray(0, 100), frame.subarray(100)]);
  for (const [name, count, fragments, codes] of [
    ["one of three", 1, frames, ["extra_frames"]],
    ["two of three", 2, frames, ["extra_frames"]],
    ["in several fragments", 3, parts, []],
  ] as const) {
    const image = await read(count, [...fragments]);
    t.strictSame(warned(image), codes, name);
    for (let i = 0; i < count; i++)
      t.strictSame(Buffer.from(await image.frame(i)), Buffer.from(raws[i]!.data), `${name}, ${i}`);
  }
});

t.test("a codestream cut short or damaged never becomes pixels", async (t) => {
  const coders: Coder[] = [
    "jpeg",
    "jpeg-lossless",
    "jpeg-ls",
    "jpeg2000",
    "htj2k",
    "jpeg-xl",
    "rle",
  ];
  const raw = picture({ rows: 64, columns: 64, samples: 1, bitsAllocated: 8, bitsStored: 8 });
  for (const coder of coders) {
    const whole = await compress(coder, raw);
    for (const share of [0.2, 0.5, 0.9]) {
      const cut = whole.subarray(0, Math.floor(whole.length * share));
      const file = dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(raw),
        pixels: { fragments: [cut] },
      });
      await refuses(t, file, "truncated_image", /ends/, `${coder} cut to ${share}`);
    }
    const good = await readImage(
      dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(raw),
        pixels: { fragments: [whole] },
      }),
    );
    t.equal((await good.frame(0)).length, raw.data.length, `${coder} decodes after the failures`);
  }
});

t.test("a codestream that contradicts the attributes", async (t) => {
  const raw = picture(LAYOUTS["8-bit grey"]!);
  for (const coder of ["jpeg", "jpeg-ls", "jpeg2000", "htj2k", "jpeg-xl"] as const) {
    const fragments = [await compress(coder, raw)];
    const read = (attributes: Record<string, number | string>) =>
      dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(raw, attributes),
        pixels: { fragments },
      });
    await refuses(
      t,
      read({ Rows: 24, Columns: 20 }),
      "corrupt_image",
      /Rows and Columns/,
      `${coder}: turned`,
    );
    await refuses(
      t,
      read({ SamplesPerPixel: 3, PhotometricInterpretation: "RGB" }),
      "corrupt_image",
      /SamplesPerPixel/,
      `${coder}: colour`,
    );
  }
  const wide = picture(LAYOUTS["12-bit grey"]!);
  const narrow = attributesOf(raw, { BitsAllocated: 8 });
  await refuses(
    t,
    dicomFile({
      transferSyntax: SYNTAXES["jpeg-ls"],
      attributes: narrow,
      pixels: { fragments: [await compress("jpeg-ls", wide)] },
    }),
    "corrupt_image",
    /BitsAllocated/,
    "16 bits for 8",
  );
  await refuses(
    t,
    dicomFile({
      transferSyntax: SYNTAXES.jpeg,
      attributes: attributesOf(raw),
      pixels: { fragments: [Buffer.alloc(500, 7)] },
    }),
    "corrupt_image",
    /no known codestream/,
    "no codestream",
  );
  await refuses(
    t,
    dicomFile({
      transferSyntax: RLE,
      attributes: imageAttributes({
        Rows: 10000,
        Columns: 10000,
        BitsAllocated: 16,
        BitsStored: 16,
        HighBit: 15,
      }),
      pixels: { fragments: [Buffer.alloc(5000)] },
    }),
    "truncated_image",
    /only/,
    "200 MB in 5 KB",
  );
});

/**
 * A JPEG with a marker before its frame header that has no parameters. Whoever takes the bytes
 * behind it for a length goes on within a comment, where another frame header stands.
 */
function withTwoSizes(
  jpeg: Buffer,
  marker: number,
  shown: { rows: number; columns: number },
): Buffer {
  const at = [0xc0, 0xc1]
    .map((sof) => jpeg.indexOf(Buffer.from([0xff, sof])))
    .find((found) => found > 0)!;
  const end = at + 2 + jpeg.readUInt16BE(at + 2);
  const scan = jpeg.indexOf(Buffer.from([0xff, 0xda]));
  const frame = jpeg.subarray(at, end);
  const other = Buffer.from(frame);
  other.writeUInt16BE(shown.rows, 5);
  other.writeUInt16BE(shown.columns, 7);
  const tables = [jpeg.subarray(2, at), jpeg.subarray(end, scan)];
  const start = Buffer.concat([Buffer.from([0xff, 0xd8, 0xff, marker]), frame, ...tables]);
  const header = jpeg.subarray(scan, scan + 2 + jpeg.readUInt16BE(scan + 2));
  const comment = Buffer.alloc(
    4 + frame.readUInt16BE(0) - start.length + other.length + header.length,
  );
  Buffer.from([0xff, 0xfe]).copy(comment);
  comment.writeUInt16BE(comment.length - 2, 2);
  Buffer.concat([other, header]).copy(comment, comment.length - other.length - header.length);
  return Buffer.concat([start, comment, jpeg.subarray(scan)]);
}

t.test("a JPEG that shows another size to every reader", async (t) => {
  const raw = picture(LAYOUTS["8-bit grey"]!);
  const jpeg = Buffer.from(await compress("jpeg", raw));
  const shown = { rows: raw.columns, columns: raw.rows };
  for (const [marker, why] of [
    [0xd0, /marker without parameters/],
    [0x00, /the JPEG frame is 20 x 24/],
    [0x01, /marker without parameters/],
  ] as const) {
    const file = dicomFile({
      transferSyntax: SYNTAXES.jpeg,
      attributes: attributesOf(raw, { Rows: shown.rows, Columns: shown.columns }),
      pixels: { fragments: [withTwoSizes(jpeg, marker, shown)] },
    });
    await refuses(t, file, "corrupt_image", why, `marker ${marker}`);
  }
});

t.test("tiles that begin behind the corner of their image", async (t) => {
  const raw = picture(LAYOUTS["8-bit grey"]!);
  for (const coder of ["htj2k", "jpeg2000"] as const)
    for (const [at, value] of [
      [32, 12],
      [36, 12],
      [24, 0],
    ] as const) {
      const frame = Buffer.from(await compress(coder, raw));
      frame.writeUInt32BE(value, at);
      const file = dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(raw),
        pixels: { fragments: [frame] },
      });
      await refuses(t, file, "corrupt_image", /do not begin at its corner/, `${coder}, byte ${at}`);
    }
});

t.test("samples narrower than their containers", async (t) => {
  const raw = picture(LAYOUTS["8-bit grey"]!);
  const wide = Buffer.alloc(raw.data.length * 2);
  raw.data.forEach((value, i) => wide.writeUInt16LE(value, i * 2));
  for (const coder of ["jpeg-lossless", "jpeg-ls", "jpeg2000", "htj2k", "jpeg-xl"] as const) {
    const image = await readImage(
      dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(raw, { BitsAllocated: 16 }),
        pixels: { fragments: [await compress(coder, raw)] },
      }),
    );
    t.strictSame(Buffer.from(await image.frame(0)), wide, coder);
  }
});

t.test("HTJ2K colour without a component transform comes by component", async (t) => {
  // A grey picture: with the transform switched off in COD, Y is the picture and both chroma planes
  // are mid-grey
  const raw = picture({ ...size, samples: 3, bitsAllocated: 8, bitsStored: 8 });
  for (let i = 0; i < raw.data.length; i += 3) raw.data.fill(raw.data[i]!, i, i + 3);
  const coded = Buffer.from(await compress("htj2k", raw));
  const cod = coded.indexOf(Buffer.from([0xff, 0x52]));
  t.equal(coded[cod + 8], 1, "the encoder transforms");
  coded[cod + 8] = 0;
  const image = await readImage(
    dicomFile({
      transferSyntax: SYNTAXES.htj2k,
      attributes: attributesOf(raw),
      pixels: { fragments: [coded] },
    }),
  );
  const expected = Buffer.from(raw.data.map((value, i) => (i % 3 === 0 ? value : 128)));
  t.strictSame(Buffer.from(await image.frame(0)), expected);
});

t.test("one-bit pixels, compressed", async (t) => {
  const attributes = imageAttributes({
    Rows: 3,
    Columns: 3,
    BitsAllocated: 1,
    BitsStored: 1,
    HighBit: 0,
  });
  const expected = [1, 0, 1, 0, 1, 0, 1, 0, 1];
  const packed = { rows: 1, columns: 2, samples: 1, bitsAllocated: 8, bitsStored: 8 };
  const rle = await compress("rle", { ...packed, data: Uint8Array.of(0b01010101, 0b1) });
  const plain = { rows: 3, columns: 3, samples: 1, bitsAllocated: 8, bitsStored: 1 };
  const j2k = await compress("jpeg2000", { ...plain, data: Uint8Array.from(expected) });
  for (const [transferSyntax, fragment] of [
    [RLE, rle],
    [SYNTAXES.jpeg2000, j2k],
  ] as const) {
    const image = await readImage(
      dicomFile({ transferSyntax, attributes, pixels: { fragments: [fragment] } }),
    );
    t.strictSame([...(await image.frame(0))], expected, transferSyntax);
  }
});

t.test("Deflated Image Frame Compression", async (t) => {
  const raw = picture({ rows: 3, columns: 3, samples: 1, bitsAllocated: 16, bitsStored: 16 });
  const bits = Buffer.from([0b01010101, 0b1]);
  const image = await readImage(
    dicomFile({
      transferSyntax: DEFLATED_FRAMES,
      attributes: attributesOf(raw, { NumberOfFrames: "2" }),
      pixels: { fragments: [deflateRawSync(raw.data), deflateRawSync(raw.data)] },
    }),
  );
  t.strictSame(Buffer.from(await image.frame(1)), Buffer.from(raw.data));
  const mask = await readImage(
    dicomFile({
      transferSyntax: DEFLATED_FRAMES,
      attributes: imageAttributes({
        Rows: 3,
        Columns: 3,
        BitsAllocated: 1,
        BitsStored: 1,
        HighBit: 0,
      }),
      pixels: { fragments: [deflateRawSync(bits)] },
    }),
  );
  t.strictSame([...(await mask.frame(0))], [1, 0, 1, 0, 1, 0, 1, 0, 1]);
  const bomb = dicomFile({
    transferSyntax: DEFLATED_FRAMES,
    attributes: attributesOf(raw),
    pixels: { fragments: [deflateRawSync(Buffer.alloc(1 << 24))] },
  });
  await refuses(t, bomb, "corrupt_image", /too long/, "bomb");
});

t.test("decode gate", async (t) => {
  const layout = { rows: 64, columns: 64, samples: 1, bitsAllocated: 8, bitsStored: 8 };
  const flat = { ...layout, data: new Uint8Array(64 * 64) };
  const raw = picture(layout);
  /**
   * A constant frame with more entropy-coded data than it can need: what a failing codec's output
   * looks like.
   */
  const padded = async (coder: Coder) => {
    const coded = Buffer.from(await compress(coder, flat));
    const end = coded.lastIndexOf(Buffer.from([0xff, 0xd9]));
    return Buffer.concat([coded.subarray(0, end), Buffer.alloc(9000), coded.subarray(end)]);
  };
  const file = (frames: Uint8Array[]) =>
    dicomFile({
      transferSyntax: SYNTAXES["jpeg-lossless"],
      attributes: attributesOf(raw, { NumberOfFrames: String(frames.length) }),
      pixels: { fragments: frames },
    });
  const blank = await compress("jpeg-lossless", flat);
  const suspect = await padded("jpeg-lossless");
  const good = await compress("jpeg-lossless", raw);
  t.equal(
    (await (await readImage(file([blank]))).frame(0))[0],
    0,
    "a frame that is rightly constant",
  );
  await refuses(t, file([suspect]), "decode_suspect", /one value/, "one suspicious frame");
  await refuses(
    t,
    file([suspect, suspect]),
    "decode_suspect",
    /all 2 frames/,
    "all frames suspicious",
  );
  for (const order of [
    [suspect, good],
    [good, suspect],
  ]) {
    const image = await readImage(file(order));
    await image.frame(0);
    await image.frame(1);
    t.ok(warned(image).includes("blank_frame"), "one suspicious frame among good ones");
  }
  const overflow = picture({ ...layout, bitsAllocated: 16, bitsStored: 12 });
  await refuses(
    t,
    dicomFile({
      transferSyntax: SYNTAXES["jpeg-ls"],
      attributes: attributesOf(overflow, { BitsStored: 10, HighBit: 9 }),
      pixels: { fragments: [await compress("jpeg-ls", overflow)] },
    }),
    "decode_suspect",
    /BitsStored 10/,
    "values beyond BitsStored",
  );
});

t.test("a constant frame whose coder has one Huffman table for everything", async (t) => {
  const side = 128;
  // All 17 categories in 5 bits each, so that category 0, the last, is 10000 (ISO 10918-1 annexes C
  // and H)
  const head = Buffer.from([
    0xff,
    0xd8,
    0xff,
    0xc3,
    0,
    11,
    8,
    0,
    side,
    0,
    side,
    1,
    1,
    0x11,
    0,
    0xff,
    0xc4,
    0,
    36,
    0,
    0,
    0,
    0,
    0,
    17,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    0,
    0xff,
    0xda,
    0,
    8,
    1,
    1,
    0,
    1,
    0,
    0,
  ]);
  const five = Buffer.from([0x84, 0x21, 0x08, 0x42, 0x10]);
  const frame = (more: number) =>
    Buffer.concat([
      head,
      Buffer.concat(Array.from({ length: (side * side) / 8 }, () => five)),
      Buffer.alloc(more),
      Buffer.from([0xff, 0xd9]),
    ]);
  const file = (more: number) =>
    dicomFile({
      transferSyntax: SYNTAXES["jpeg-lossless"],
      attributes: imageAttributes({ Rows: side, Columns: side }),
      pixels: { fragments: [frame(more)] },
    });
  const pixels = await (await readImage(file(0))).frame(0);
  t.ok(
    pixels.every((value) => value === 128),
    "as long as its table makes it",
  );
  await refuses(t, file(500), "decode_suspect", /one value/, "longer than that");
});

t.test("lossy values that ring beyond BitsStored are set to its ends", async (t) => {
  const layout = { rows: 64, columns: 64, samples: 1, bitsAllocated: 8, bitsStored: 7 };
  const data = new Uint8Array(64 * 64).map((_, i) => (((i >> 2) + (i >> 8)) % 2 === 0 ? 0 : 127));
  const coded = await compress("jpeg", { ...layout, bitsStored: 8, data });
  const read = (bitsStored: number) =>
    readImage(
      dicomFile({
        transferSyntax: SYNTAXES.jpeg,
        attributes: attributesOf({ ...layout, bitsStored, data }),
        pixels: { fragments: [coded] },
      }),
    );
  const plain = await (await read(8)).frame(0);
  t.ok(
    plain.some((value) => value > 127),
    "it rings",
  );
  const image = await read(7);
  t.strictSame(
    Buffer.from(await image.frame(0)),
    Buffer.from(plain.map((value) => Math.min(127, value))),
  );
  t.ok(warned(image).includes("overshoot_clamped"));
  await t.rejects(
    (await read(6)).frame(0),
    { code: "decode_suspect" },
    "twice the range is no ringing",
  );
});

t.test("what constant frames need stays under the gate's limit", async (t) => {
  const columns = 300;
  for (const bitsStored of [8, 12, 16])
    for (const rows of [16, 333]) {
      const bitsAllocated = bitsStored > 8 ? 16 : 8;
      for (const level of [0, 2 ** (bitsStored - 1), 2 ** bitsStored - 1]) {
        const data = new Uint8Array((rows * columns * bitsAllocated) / 8);
        if (bitsAllocated === 8) data.fill(level);
        else new Uint16Array(data.buffer).fill(level);
        const raw = { rows, columns, samples: 1, bitsAllocated, bitsStored, data };
        for (const coder of [
          "jpeg-lossless",
          "jpeg-ls",
          "jpeg2000",
          "htj2k",
          "jpeg-xl",
          "jpeg",
        ] as const) {
          if (coder === "jpeg" && bitsStored > 8) continue;
          const header = readCodestream(await compress(coder, raw));
          const limit = constantFrameLimit(header);
          t.ok(
            header.entropyBytes <= limit,
            `${coder}, ${rows} rows, ${bitsStored} bits, level ${level}`,
          );
        }
      }
    }
});
