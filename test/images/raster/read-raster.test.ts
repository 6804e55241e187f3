import { createHash } from "node:crypto";
import { deflateSync } from "node:zlib";
import sharp from "sharp";
import t from "tap";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import { refuses, warned } from "../../support/expect.js";
import { gainMapJpeg, pngChunk, pngFile, tiffFile, type TiffPage } from "../../support/raster.js";

const raw = (width: number, height: number, channels: 1 | 2 | 3 | 4) => ({
  raw: { width, height, channels },
});
const grey8 = Uint8Array.from({ length: 12 }, (_, i) => i * 20);
const grey16 = Uint16Array.from({ length: 12 }, (_, i) => i * 5003);
const rgb8 = Uint8Array.from({ length: 36 }, (_, i) => i * 7);
const rgb16 = Uint16Array.from({ length: 36 }, (_, i) => i * 1801);
const bytes = (a: Uint8Array | Uint16Array) => Buffer.from(a.buffer, a.byteOffset, a.byteLength);
const pixels = async (image: Image, frame = 0) => Buffer.from(await image.frame(frame));

t.test("values stay as stored", async (t) => {
  const cases = [
    ["8-bit grey", grey8, 1, "b-w"],
    ["16-bit grey", grey16, 1, "grey16"],
    ["8-bit RGB", rgb8, 3, "srgb"],
    ["16-bit RGB", rgb16, 3, "rgb16"],
  ] as const;
  for (const [name, data, channels, space] of cases)
    for (const format of ["png", "tiff"] as const) {
      const pipeline = sharp(data, raw(4, 3, channels)).toColourspace(space);
      const file = await (
        format === "png" ? pipeline.png() : pipeline.tiff({ compression: "lzw" })
      ).toBuffer();
      const image = await readImage(file);
      t.strictSame(await pixels(image), bytes(data), `${name} ${format}`);
      t.match(image.format, {
        rows: 3,
        columns: 4,
        samplesPerPixel: channels,
        bitsAllocated: data.BYTES_PER_ELEMENT * 8,
      });
      t.equal(image.source.format, format);
      t.equal(image.frameCount, 1);
    }
});

t.test("colour profiles do not change values", async (t) => {
  const plain = await sharp(rgb8, raw(4, 3, 3))
    .png()
    .toBuffer();
  const profiled = await sharp(rgb8, raw(4, 3, 3))
    .withIccProfile("p3", { attach: true })
    .png()
    .toBuffer();
  const stored = await sharp(profiled, { ignoreIcc: true }).raw().toBuffer();
  t.strictSame(await pixels(await readImage(plain)), bytes(rgb8));
  t.strictSame(await pixels(await readImage(profiled)), stored);
});

t.test("palette, alpha and JPEG", async (t) => {
  const palette = await sharp(rgb8, raw(4, 3, 3))
    .png({ palette: true, colours: 16, dither: 0 })
    .toBuffer();
  t.equal((await sharp(palette).metadata()).isPalette, true);
  t.strictSame(await pixels(await readImage(palette)), bytes(rgb8), "palette to RGB");
  for (const [alpha, code] of [
    [255, []],
    [128, ["alpha_dropped"]],
  ] as const) {
    const rgba = Uint8Array.from({ length: 48 }, (_, i) => (i % 4 === 3 ? alpha : i));
    const image = await readImage(
      await sharp(rgba, raw(4, 3, 4))
        .png()
        .toBuffer(),
    );
    t.strictSame(
      [...(await pixels(image))],
      [...rgba].filter((_, i) => i % 4 !== 3),
    );
    t.strictSame(warned(image), code);
  }
  const jpeg = await readImage(
    await sharp(grey8, raw(4, 3, 1))
      .toColourspace("b-w")
      .jpeg({ quality: 100 })
      .toBuffer(),
  );
  t.match(jpeg.format, { samplesPerPixel: 1, photometricInterpretation: "MONOCHROME2" });
  const cmyk = await sharp(rgb8, raw(4, 3, 3))
    .toColourspace("cmyk")
    .jpeg()
    .toBuffer();
  await refuses(t, cmyk, "unsupported_format", /cmyk/, "CMYK");
});

t.test("EXIF orientation is applied and recorded", async (t) => {
  const file = await sharp(grey8, raw(4, 3, 1))
    .toColourspace("b-w")
    .withMetadata({ orientation: 6 })
    .png()
    .toBuffer();
  const image = await readImage(file);
  t.match(image.format, { rows: 4, columns: 3 });
  // Turned by 90 degrees clockwise: the first row is the first column from the bottom
  const samples = image.format.samplesPerPixel;
  const first = [...(await pixels(image))].filter((_, i) => i % samples === 0).slice(0, 3);
  t.strictSame(first, [grey8[8], grey8[4], grey8[0]]);
  t.strictSame(image.transforms, [{ step: "exif_orientation", orientation: 6 }]);
});

t.test("pages of a TIFF are frames", async (t) => {
  const tall = Uint8Array.from({ length: 24 }, (_, i) => i * 10);
  const file = await sharp(tall, { raw: { width: 4, height: 6, channels: 1, pageHeight: 3 } })
    .toColourspace("b-w")
    .tiff({ compression: "lzw" })
    .toBuffer();
  const image = await readImage(file);
  t.equal(image.frameCount, 2);
  t.strictSame([...(await pixels(image, 1))], [...tall.subarray(12)]);
  t.strictSame([...(await pixels(image, 0))], [...tall.subarray(0, 12)]);
  await t.rejects(image.frame(2), { code: "bad_request" });
});

const FORMS = [false, true].flatMap((bigEndian) =>
  [false, true].map((bigTiff) => ({ bigEndian, bigTiff })),
);
const four = Uint8Array.of(0x1b, 0x20, 0x80, 0xff);
const six = Uint8Array.of(10, 20, 30, 40, 50, 60);
const greyPage: TiffPage = { width: 4, height: 1, photometric: 1, pixels: four };
const rgbPage: TiffPage = { width: 2, height: 1, photometric: 2, bits: [8, 8, 8], pixels: six };

t.test("TIFF: values as stored, in every byte order and form", async (t) => {
  for (const form of FORMS)
    for (const [photometric, name] of [
      [0, "MONOCHROME1"],
      [1, "MONOCHROME2"],
    ] as const) {
      const what = `${name} ${JSON.stringify(form)}`;
      const eight = await readImage(tiffFile([{ ...greyPage, photometric }], form));
      t.strictSame([...(await pixels(eight))], [...four], `${what}, 8 bits`);
      t.equal(eight.format.photometricInterpretation, name);
      t.strictSame(eight.transforms, []);
      const page: TiffPage = { width: 2, height: 1, bits: [16], photometric, pixels: four };
      const sixteen = await readImage(tiffFile([page], form));
      const values = form.bigEndian ? [0x1b20, 0x80ff] : [0x201b, 0xff80];
      const found = await pixels(sixteen);
      t.strictSame([found.readUInt16LE(0), found.readUInt16LE(2)], values, `${what}, 16 bits`);
      const rgb = await readImage(tiffFile([rgbPage], form));
      t.strictSame([...(await pixels(rgb))], [...six], "RGB");
    }
});

t.test("fewer bits are spread to eight, and said to be", async (t) => {
  const cases = [
    [1, 255, [0, 0, 0, 255, 255, 0, 255, 255]],
    [2, 85, [0, 85, 170, 255]],
    [4, 17, [17, 187]],
  ] as const;
  for (const [bits, factor, values] of cases) {
    const width = 8 / bits;
    const step = { step: "scale_samples", bits, to_bits: 8, factor };
    for (const photometric of [0, 1]) {
      const page = { width, height: 1, bits: [bits], photometric, pixels: four.subarray(0, 1) };
      const image = await readImage(tiffFile([page]));
      t.strictSame(
        [...(await pixels(image))],
        values,
        `TIFF of ${bits} bits, photometric ${photometric}`,
      );
      t.strictSame(image.transforms, [step]);
    }
    const png = await readImage(
      pngFile({ width, height: 1, bits, colour: 0, pixels: four.subarray(0, 1) }),
    );
    t.strictSame([...(await pixels(png))], values, `PNG of ${bits} bits`);
    t.strictSame(png.transforms, [step]);
  }
});

t.test("palettes are applied, and said to be", async (t) => {
  const red = [0, 10, 20, 30];
  const map = [red, red.map((v) => v + 1), red.map((v) => v + 2)].flat().map((v) => v * 257);
  const page = { width: 4, height: 1, bits: [2], photometric: 3, pixels: four.subarray(0, 1) };
  const more = [{ tag: 320, values: map }];
  const tiff = await readImage(tiffFile([{ ...page, more }]));
  const rgb = [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32];
  t.strictSame([...(await pixels(tiff))], rgb);
  t.strictSame(tiff.transforms, [{ step: "palette_to_rgb", bits: 2, to_bits: 8 }]);
  const grey = [red, red, red].flat().map((v) => v * 257);
  const same = await readImage(tiffFile([{ ...page, more: [{ tag: 320, values: grey }] }]));
  t.strictSame([...(await pixels(same))], red);
  t.match(same.transforms, [{ step: "palette_to_grey" }]);
  const before = [pngChunk("PLTE", Uint8Array.from(rgb))];
  const png = pngFile({
    width: 4,
    height: 1,
    bits: 2,
    colour: 3,
    pixels: four.subarray(0, 1),
    before,
  });
  t.strictSame([...(await pixels(await readImage(png)))], rgb);
  t.strictSame((await readImage(png)).transforms, tiff.transforms);
});

t.test("a TIFF without a whole palette", async (t) => {
  const indices = { ...greyPage, photometric: 3 };
  for (const count of [0, 300, 767])
    for (const form of FORMS)
      await refuses(
        t,
        tiffFile(
          [{ ...indices, more: [{ tag: 320, values: Array.from({ length: count }, () => 7) }] }],
          form,
        ),
        "corrupt_image",
        new RegExp(`ColorMap.* ${count} values where 768`),
        `${count} values`,
      );
});

t.test("a PNG whose pixels have an index beyond its palette", async (t) => {
  const file = (colours: number, indices: number[], bits = 8, more: Buffer[] = []) =>
    pngFile({
      width: indices.length,
      height: 1,
      bits,
      colour: 3,
      pixels: bits === 8 ? Uint8Array.from(indices) : Uint8Array.of(0b00_01_10_11),
      before: [
        pngChunk(
          "PLTE",
          Uint8Array.from({ length: 3 * colours }, (_, i) => 7 * i),
        ),
        ...more,
      ],
    });
  const why = /index is beyond its palette/;
  await refuses(t, file(3, [0, 2, 3]), "corrupt_image", why, "the first beyond");
  await refuses(t, file(3, [0, 255, 1]), "corrupt_image", why, "the last there can be");
  await refuses(t, file(3, [0, 1, 2, 3], 2), "corrupt_image", why, "of two bits");
  const clear = pngChunk("tRNS", Uint8Array.of(0));
  await refuses(
    t,
    file(3, [0, 3], 8, [clear]),
    "corrupt_image",
    why,
    "with a colour that is clear",
  );
  t.strictSame([...(await pixels(await readImage(file(3, [2, 0, 1]))))].slice(0, 3), [42, 49, 56]);
});

t.test("TIFF that would be read wrongly or not at all", async (t) => {
  const three = (photometric: number, more: TiffPage["more"] = []) => ({
    ...rgbPage,
    photometric,
    more,
  });
  const cases: [string, TiffPage, RegExp][] = [
    ["YCbCr", three(6), /YCbCr.*JPEG compression only/],
    ["YCbCr, not subsampled", three(6, [{ tag: 530, values: [1, 1] }]), /YCbCr/],
    ["YCbCr in Deflate", { ...three(6), compression: 8 }, /YCbCr/],
    ["CIELab", three(8), /CIELab/],
    ["CMYK", { ...rgbPage, photometric: 5, width: 1, bits: [8, 8, 8, 8], pixels: four }, /CMYK/],
    ["mask", { ...greyPage, photometric: 4, bits: [1] }, /mask/],
    ["unknown", three(4711), /4711/],
    ["12 bits", { ...greyPage, bits: [12] }, /12 bits.* 1, 2, 4, 8 and 16/],
    ["32 bits", { ...greyPage, bits: [32] }, /32 bits/],
    ["RGB of 4 bits", { ...rgbPage, bits: [4, 4, 4] }, /8 and 16/],
    ["mixed bits", { ...rgbPage, bits: [5, 6, 5] }, /5, 6, 5/],
    ["signed", { ...greyPage, more: [{ tag: 339, values: [2] }] }, /SampleFormat 2/],
    ["ZSTD", { ...greyPage, compression: 50000 }, /compression 50000/],
    ["old JPEG", { ...rgbPage, compression: 6 }, /compression 6/],
    [
      "premultiplied",
      { ...greyPage, width: 2, bits: [8, 8], more: [{ tag: 338, values: [1] }] },
      /multiplied by its alpha/,
    ],
    [
      "tiles of separate planes",
      {
        ...rgbPage,
        more: [
          { tag: 284, values: [2] },
          { tag: 322, values: [16] },
        ],
      },
      /separate planes/,
    ],
    [
      "grey and alpha in separate planes",
      { ...greyPage, width: 2, bits: [8, 8], more: [{ tag: 284, values: [2] }] },
      /grey and alpha in separate planes/,
    ],
    ["two extra samples", { ...greyPage, width: 1, bits: [8, 8, 8], pixels: six }, /at most 2/],
  ];
  for (const form of FORMS)
    for (const [name, page, message] of cases) {
      await refuses(t, tiffFile([page], form), "unsupported_format", message, name);
      const good = page.bits?.length === 3 ? rgbPage : greyPage;
      await refuses(
        t,
        tiffFile([good, page], form),
        "unsupported_format",
        /./,
        `${name} on a later page`,
      );
    }
  const bare = { ...greyPage, more: [{ tag: 262, values: [] }] };
  await refuses(t, tiffFile([bare]), "corrupt_image", /no tag 262/, "no photometric");
  const nothing = { ...bare, more: [{ tag: 256, type: 5, values: [0] } as const] };
  await refuses(
    t,
    tiffFile([nothing]),
    "corrupt_image",
    /tag 256 holds no number/,
    "a width of 0/0",
  );
  const wide = { ...greyPage, width: 2, height: 2 };
  await refuses(
    t,
    tiffFile([greyPage, wide]),
    "unsupported_format",
    /Page 2.*differs/,
    "another size",
  );
  const withAlpha = { ...greyPage, bits: [8, 8], pixels: Uint8Array.of(...four, ...four) };
  for (const pages of [
    [greyPage, withAlpha],
    [withAlpha, greyPage],
  ])
    await refuses(t, tiffFile(pages), "unsupported_format", /Page 2.*samples/, "alpha in one page");
  const twice = { ...greyPage, more: [1, 2].map(() => ({ tag: 262, values: [1] })) };
  await refuses(t, tiffFile([twice]), "corrupt_image", /twice/, "photometric twice");
  const round = tiffFile([greyPage]);
  // The link behind the only directory, which is last in the file
  round.copy(round, round.length - 4, 4, 8);
  await refuses(t, round, "corrupt_image", /each other/, "directories in a circle");
});

/** Count and first value of an entry of a little-endian TIFF's first directory. */
function entryOf(tiff: Buffer, tag: number): { count: number; value: number } {
  const at = tiff.readUInt32LE(4);
  const fields = Array.from({ length: tiff.readUInt16LE(at) }, (_, i) => at + 2 + i * 12);
  const field = fields.find((each) => tiff.readUInt16LE(each) === tag);
  if (field === undefined) throw new Error(`No tag ${tag}`);
  return { count: tiff.readUInt32LE(field + 4), value: tiff.readUInt32LE(field + 8) };
}

/** The JPEG stream of a one-strip TIFF, its tables (tag 347) put in front of it. */
function jpegOf(tiff: Buffer): Buffer {
  const tables = entryOf(tiff, 347);
  const [strip, length] = [entryOf(tiff, 273), entryOf(tiff, 279)];
  if (strip.count !== 1) throw new Error("Expected one strip");
  return Buffer.concat([
    tiff.subarray(tables.value, tables.value + tables.count - 2),
    tiff.subarray(strip.value + 2, strip.value + length.value),
  ]);
}

t.test("YCbCr in JPEG compression becomes RGB", async (t) => {
  const smooth = Uint8Array.from({ length: 16 * 16 * 3 }, (_, i) => (i * 5) % 240);
  const source = sharp(smooth, raw(16, 16, 3));
  const tiff = await source.clone().tiff({ compression: "jpeg", quality: 80 }).toBuffer();
  t.equal(entryOf(tiff, 262).value, 6);
  const image = await readImage(tiff);
  // libjpeg alone, told by an Adobe marker that the three components are YCbCr
  const adobe = Buffer.from("ffee000e41646f626500640000000001", "hex");
  const stream = jpegOf(tiff);
  const alone = Buffer.concat([stream.subarray(0, 2), adobe, stream.subarray(2)]);
  t.strictSame(await pixels(image), await sharp(alone).raw().toBuffer());
  t.equal(image.format.photometricInterpretation, "RGB");
  const tiled = {
    compression: "jpeg",
    quality: 80,
    tile: true,
    tileWidth: 16,
    tileHeight: 16,
  } as const;
  const tiles = await readImage(await source.clone().tiff(tiled).toBuffer());
  t.strictSame(await pixels(tiles), await pixels(image), "in tiles");
});

t.test("JPEG in TIFF whose markers contradict the tag is refused", async (t) => {
  // The writer names no colours
  const bare = await sharp(rgb8, raw(4, 3, 3))
    .jpeg({ chromaSubsampling: "4:4:4", quality: 100 })
    .toBuffer();
  const marked = (marker: string) =>
    Buffer.concat([bare.subarray(0, 2), Buffer.from(marker, "hex"), bare.subarray(2)]);
  const jfif = marked("ffe000104a46494600010100000100010000");
  const adobe = (transform: number) =>
    `ffee000e41646f6265006400000000${transform.toString(16).padStart(2, "0")}`;
  const page = (photometric: number, data: Uint8Array): TiffPage => ({
    width: 4,
    height: 3,
    bits: [8, 8, 8],
    photometric,
    compression: 7,
    pixels: data,
  });
  for (const form of [{}, { bigEndian: true }, { bigTiff: true }]) {
    const told = (photometric: number, data: Uint8Array, message: RegExp, name: string) =>
      refuses(t, tiffFile([page(photometric, data)], form), "unsupported_format", message, name);
    await told(2, jfif, /is RGB.*strip 1 say YCbCr/, "JFIF");
    await told(2, marked(adobe(1)), /is RGB.*say YCbCr/, "Adobe, YCbCr");
    await told(6, marked(adobe(0)), /is YCbCr.*say RGB/, "Adobe, RGB");
    await refuses(
      t,
      tiffFile([page(6, jfif), page(6, marked(adobe(0)))], form),
      "unsupported_format",
      /say RGB/,
      "on the second page",
    );
  }
  const told = await sharp(jfif).raw().toBuffer();
  for (const data of [jfif, marked(adobe(1)), bare])
    t.strictSame(await pixels(await readImage(tiffFile([page(6, data)]))), told);
  const stored = await pixels(await readImage(tiffFile([page(2, marked(adobe(0)))])));
  t.strictSame(
    stored,
    await sharp(marked(adobe(0)))
      .raw()
      .toBuffer(),
  );
  t.strictSame(await pixels(await readImage(tiffFile([page(2, bare)]))), stored);
});

t.test("pixels of a PNG that are not square have their aspect", async (t) => {
  const file = (across: number, down: number, unit: number, ...more: Buffer[]) => {
    const physical = Buffer.alloc(9);
    physical.writeUInt32BE(across, 0);
    physical.writeUInt32BE(down, 4);
    physical[8] = unit;
    const before = [pngChunk("pHYs", physical), ...more];
    return pngFile({ width: 4, height: 3, bits: 8, colour: 0, pixels: grey8, before });
  };
  const aspect = async (png: Buffer) => (await readImage(png)).pixelAspect(0);
  t.equal(await aspect(file(2, 1, 0)), 2, "twice as high as wide");
  t.equal(await aspect(file(1000, 4000, 1)), 0.25, "by the metre");
  t.equal(await aspect(file(2835, 2835, 1)), 1);
  t.equal(await aspect(file(0, 5, 0)), 1, "nothing is said");
  t.equal(await aspect(file(1, 101, 0)), 1, "no device has such pixels");
  const turned = await sharp(file(2, 1, 0))
    .withMetadata({ orientation: 6 })
    .png()
    .toBuffer();
  const upright = await readImage(turned);
  t.strictSame(upright.transforms, [{ step: "exif_orientation", orientation: 6 }]);
  // The writer keeps a density alone, so the chunk is put back before what tells the turn
  const header = turned.subarray(0, 33);
  const chunk = file(2, 1, 0).subarray(33, 33 + 21);
  const rest = withoutChunk(turned.subarray(33), "pHYs");
  t.equal(await aspect(Buffer.concat([header, chunk, rest])), 0.5, "turned by a quarter");
});

t.test("pixels of a JPEG that are not square have their aspect", async (t) => {
  const grey = sharp(grey8, raw(4, 3, 1));
  // The writer puts no JFIF segment into it
  const plain = await grey.clone().jpeg().toBuffer();
  const withDensity = (units: number, across: number, down: number) => {
    const jfif = Buffer.from("ffe000104a46494600010100000100010000", "hex");
    jfif[11] = units;
    jfif.writeUInt16BE(across, 12);
    jfif.writeUInt16BE(down, 14);
    return jfif;
  };
  const aspect = async (jfif: Uint8Array, file = plain) =>
    (await readImage(Buffer.concat([file.subarray(0, 2), jfif, file.subarray(2)]))).pixelAspect(0);
  t.equal(await aspect(withDensity(0, 2, 1)), 2, "a ratio alone: twice as high as wide");
  t.equal(await aspect(withDensity(1, 204, 98)), 204 / 98, "by the inch");
  t.equal(await aspect(withDensity(2, 100, 400)), 0.25, "by the centimetre");
  t.equal(await aspect(withDensity(1, 300, 300)), 1);
  for (const [units, across, down] of [
    [0, 0, 0],
    [1, 72, 0],
    [1, 0, 72],
    [3, 2, 1],
    [0, 65535, 1],
    [0, 1, 101],
  ] as const)
    t.equal(await aspect(withDensity(units, across, down)), 1, `${across} by ${down} is nothing`);
  t.equal(await aspect(Buffer.alloc(0)), 1, "without JFIF");
  const turned = await grey.clone().withMetadata({ orientation: 6 }).jpeg().toBuffer();
  t.equal(turned.toString("latin1", 6, 10), "Exif");
  t.equal(await aspect(withDensity(0, 2, 1), turned), 0.5, "turned by a quarter");
  t.equal(await aspect(Buffer.alloc(0), turned), 1, "EXIF has one density for both");
});

t.test("pixels of a TIFF that are not square have their aspect", async (t) => {
  const grey: TiffPage = { width: 4, height: 3, photometric: 1, pixels: grey8 };
  for (const form of [{}, { bigEndian: true }, { bigTiff: true }]) {
    const rational = (over: number, under: number) =>
      "bigEndian" in form ? over * 2 ** 32 + under : under * 2 ** 32 + over;
    const page = (
      across: readonly [number, number],
      down: readonly [number, number],
      ...more: NonNullable<TiffPage["more"]>
    ): TiffPage => ({
      ...grey,
      more: [
        { tag: 282, type: 5, values: [rational(...across)] },
        { tag: 283, type: 5, values: [rational(...down)] },
        ...more,
      ],
    });
    const aspect = async (one: TiffPage) => (await readImage(tiffFile([one], form))).pixelAspect(0);
    const unit = (value: number) => ({ tag: 296, values: [value] });
    for (const value of [1, 2, 3])
      t.equal(await aspect(page([204, 1], [98, 1], unit(value))), 204 / 98, `unit ${value}`);
    t.equal(await aspect(page([2040, 10], [408, 2])), 1, "fractions of one value");
    t.equal(await aspect(page([200, 1], [100, 1], { tag: 274, values: [6] })), 0.5, "turned");
    for (const [name, one] of [
      ["0", page([0, 1], [98, 1])],
      ["no number", page([0, 0], [0, 0])],
      ["beyond number", page([1, 0], [98, 1])],
      ["absurd", page([10_000, 1], [1, 1])],
      ["one alone", { ...grey, more: [{ tag: 282, type: 5, values: [rational(204, 1)] }] }],
      ["two values", { ...grey, more: [282, 283].map((tag) => ({ tag, values: [2, tag] })) }],
      ["a text", { ...grey, more: [282, 283].map((tag) => ({ tag, type: 7, values: [tag % 9] })) }],
    ] as [string, TiffPage][])
      t.equal(await aspect(one), 1, `${name} says nothing`);
    const pages = await readImage(
      tiffFile([page([204, 1], [98, 1]), page([204, 1], [204, 1])], form),
    );
    t.strictSame([pages.pixelAspect(0), pages.pixelAspect(1)], [204 / 98, 1], "of each page");
  }
});

/** The chunks of a PNG without those of a type. */
function withoutChunk(chunks: Buffer, type: string): Buffer {
  const kept: Buffer[] = [];
  for (let at = 0; at < chunks.length;) {
    const end = at + 12 + chunks.readUInt32BE(at);
    if (chunks.toString("latin1", at + 4, at + 8) !== type) kept.push(chunks.subarray(at, end));
    at = end;
  }
  return Buffer.concat(kept);
}

t.test("transparency is said to be dropped", async (t) => {
  const two = (alpha: number) => Uint8Array.of(10, 255, 30, alpha);
  const trns = (...data: number[]) => [pngChunk("tRNS", Uint8Array.from(data))];
  const png = (
    bits: number,
    colour: number,
    width: number,
    data: Uint8Array,
    before: Buffer[] = [],
  ) => pngFile({ width, height: 1, bits, colour, pixels: data, before });
  const tiffAlpha = (alpha: number, extra: number) =>
    tiffFile([
      {
        ...greyPage,
        width: 2,
        bits: [8, 8],
        pixels: two(alpha),
        more: [{ tag: 338, values: [extra] }],
      },
    ]);
  const cases: [string, Buffer, number[], boolean][] = [
    ["LA", png(8, 4, 2, two(254)), [10, 30], true],
    ["LA, opaque", png(8, 4, 2, two(255)), [10, 30], false],
    ["LA of 16 bits", png(16, 4, 1, Uint8Array.of(1, 2, 255, 254)), [2, 1], true],
    ["LA of 16 bits, opaque", png(16, 4, 1, Uint8Array.of(1, 2, 255, 255)), [2, 1], false],
    ["grey tRNS", png(8, 0, 4, four, trns(0, 0x80)), [...four], true],
    ["grey tRNS of no pixel", png(8, 0, 4, four, trns(0, 0x81)), [...four], false],
    ["grey tRNS of 16 bits", png(16, 0, 2, four, trns(0x1b, 0x20)), [0x20, 0x1b, 0xff, 0x80], true],
    ["RGB tRNS", png(8, 2, 2, six, trns(0, 10, 0, 20, 0, 30)), [...six], true],
    ["RGB tRNS of no pixel", png(8, 2, 2, six, trns(0, 11, 0, 20, 0, 30)), [...six], false],
    ["TIFF", tiffAlpha(9, 2), [10, 30], true],
    ["TIFF, unspecified", tiffAlpha(9, 0), [10, 30], true],
    ["TIFF, opaque", tiffAlpha(255, 2), [10, 30], false],
  ];
  for (const [name, file, values, dropped] of cases) {
    const image = await readImage(file);
    t.strictSame([...(await pixels(image))], values, name);
    t.strictSame(warned(image), dropped ? ["alpha_dropped"] : [], name);
  }
});

t.test("an animated PNG is its first picture, with a warning", async (t) => {
  const before = [pngChunk("acTL", Uint8Array.of(0, 0, 0, 2, 0, 0, 0, 0))];
  const file = pngFile({ width: 4, height: 1, bits: 8, colour: 0, pixels: four, before });
  t.strictSame(warned(await readImage(file)), ["animation_dropped"]);
});

t.test("a lone strip without compression that is shorter than its pixels", async (t) => {
  for (const form of [{}, { bigEndian: true }, { bigTiff: true }])
    for (const values of [[0], [3]])
      await refuses(
        t,
        tiffFile([{ ...greyPage, more: [{ tag: 279, type: 4, values }] }], form),
        "truncated_image",
        /only strip .*StripByteCounts.* need 4/,
        `${values[0]} of 4 bytes`,
      );
  // A count beyond the pixels, or none at all, leaves no doubt about them
  for (const values of [[5], []]) {
    const image = await readImage(
      tiffFile([{ ...greyPage, more: [{ tag: 279, type: 4, values }] }]),
    );
    t.strictSame([...(await pixels(image))], [...four]);
  }
});

t.test("strips and tiles without bytes, or with fewer than their pixels", async (t) => {
  // The pixels of the first page follow the header of 8 bytes
  const parts = (tags: readonly [number, number], offsets: number[], counts: number[]) => [
    { tag: tags[0], type: 4 as const, values: offsets },
    { tag: tags[1], type: 4 as const, values: counts },
  ];
  const strips = (counts: number[]): TiffPage => ({
    width: 4,
    height: 3,
    photometric: 1,
    pixels: Uint8Array.from({ length: 12 }, (_, i) => i),
    more: [{ tag: 278, values: [2] }, ...parts([273, 279], [8, 16], counts)],
  });
  t.strictSame(
    [...(await pixels(await readImage(tiffFile([strips([8, 4])]))))],
    Array.from({ length: 12 }, (_, i) => i),
    "the last strip has the rows that are left",
  );
  for (const [counts, message] of [
    [[7, 4], /strip 1 of 2 .* 7 bytes \(StripByteCounts\).* need 8/],
    [[8, 3], /strip 2 of 2 .* 3 bytes .* need 4/],
    [[8, 0], /strip 2 of 2 .* 0 bytes/],
  ] as const)
    await refuses(t, tiffFile([strips([...counts])]), "truncated_image", message, counts.join());

  const noise = Uint8Array.from({ length: 256 }, (_, i) => (i * 7919) % 251);
  const tiles = (compression: number, data: Uint8Array, length: number, second: number) =>
    tiffFile([
      {
        width: 32,
        height: 16,
        photometric: 1,
        compression,
        pixels: Buffer.concat([data, data]),
        more: [
          { tag: 322, values: [16] },
          { tag: 323, values: [16] },
          ...[273, 278, 279].map((tag) => ({ tag, values: [] })),
          ...parts([324, 325], [8, 8 + length], [length, second]),
        ],
      },
    ]);
  const packed = deflateSync(noise);
  const short = deflateSync(noise.subarray(0, 100));
  const whole = await readImage(tiles(8, packed, packed.length, packed.length));
  t.strictSame((await pixels(whole)).subarray(16, 32), Buffer.from(noise.subarray(0, 16)));
  const cases: [string, Buffer, RegExp][] = [
    ["short", tiles(1, noise, 256, 100), /tile 2 of 2 .* 100 bytes \(TileByteCounts\).* need 256/],
    ["empty", tiles(1, noise, 256, 0), /tile 2 of 2 .* 0 bytes/],
    ["empty, Deflate", tiles(8, packed, packed.length, 0), /tile 2 of 2 .* 0 bytes/],
    ["short, Deflate", tiles(8, short, short.length, short.length), /ends before its pixels/],
  ];
  for (const [name, file, message] of cases)
    await refuses(t, file, "truncated_image", message, `tile: ${name}`);
});

/** A TIFF of one strip whose second half is zeros. */
function emptied(tiff: Buffer): Buffer {
  const directory = tiff.readUInt32LE(4);
  const valueOf = (tag: number) => {
    const entries = Array.from(
      { length: tiff.readUInt16LE(directory) },
      (_, i) => directory + 2 + 12 * i,
    );
    return tiff.readUInt32LE((entries.find((at) => tiff.readUInt16LE(at) === tag) ?? 0) + 8);
  };
  const [offset, length] = [valueOf(273), valueOf(279)];
  return Buffer.from(tiff).fill(0, offset + (length >> 1), offset + length);
}

t.test("lists of more entries than are read", async (t) => {
  const count = 17_000_000;
  const tiff = Buffer.alloc(26 + count);
  tiff.write("II*\0", "latin1");
  tiff.writeUInt32LE(8, 4);
  tiff.writeUInt16LE(1, 8);
  // StripByteCounts of so many BYTEs behind the directory
  [279, 1].forEach((value, i) => tiff.writeUInt16LE(value, 10 + 2 * i));
  [count, 26].forEach((value, i) => tiff.writeUInt32LE(value, 14 + 4 * i));
  await refuses(t, tiff, "unsupported_format", /more than 16777216 strips/, "");
});

t.test("pixels that a decoder fills up with a warning alone", async (t) => {
  const noise = Uint8Array.from({ length: 64 * 64 }, (_, i) => (i * 7919) % 251);
  const jpeg = await sharp(noise, raw(64, 64, 1))
    .toColourspace("b-w")
    .jpeg()
    .toBuffer();
  const half = Buffer.concat([jpeg.subarray(0, jpeg.length >> 1), Buffer.from([0xff, 0xd9])]);
  const page = (data: Buffer, height: number) =>
    tiffFile([{ width: 64, height, photometric: 1, compression: 7, pixels: data }]);
  t.equal((await readImage(page(jpeg, 64))).frameCount, 1);
  await refuses(t, half, "truncated_image", /ends before/, "an end marker before the end");
  await refuses(t, page(half, 64), "truncated_image", /ends before/, "the same in TIFF");
  await refuses(t, page(jpeg, 80), "corrupt_image", /damaged/, "a JPEG smaller than its strip");
  // libjpeg tells the first warning alone
  const stray = (bytes: Buffer) =>
    Buffer.concat([bytes.subarray(0, 20), Buffer.from([1, 2, 3]), bytes.subarray(20)]);
  await refuses(t, stray(half), "corrupt_image", /damaged/, "stray bytes before it");
  const end = Buffer.concat([jpeg.subarray(0, -2), Buffer.from([1, 2, 3, 0xff, 0xd9])]);
  t.equal((await readImage(end)).frameCount, 1, "stray bytes before the end alone");
  const fax = await sharp(noise, raw(64, 64, 1))
    .toColourspace("b-w")
    .tiff({ compression: "ccittfax4", bitdepth: 1 })
    .toBuffer();
  t.equal((await readImage(fax)).frameCount, 1);
  await refuses(t, emptied(fax), "corrupt_image", /damaged/, "half a strip of CCITT group 4");
  // The decoder warns of the tag, too
  const more: TiffPage["more"] = [{ tag: 65000, values: [1] }];
  const odd = await readImage(tiffFile([{ ...greyPage, more }]));
  t.strictSame([...(await pixels(odd))], [...four], "a private tag");
});

t.test("a JPEG with a gain map has the pixels of its picture, or is refused", async (t) => {
  const noise = Uint8Array.from({ length: 64 * 64 * 3 }, (_, i) => (i * 7919) % 251);
  const picture = await sharp(noise, raw(64, 64, 3))
    .jpeg()
    .toBuffer();
  const map = await sharp(noise.subarray(0, 16 * 16), raw(16, 16, 1))
    .toColourspace("b-w")
    .jpeg()
    .toBuffer();
  const whole = gainMapJpeg(picture, map);
  t.ok((await sharp(whole).metadata()).gainMap, "libvips takes it for one");
  t.ok((await pixels(await readImage(whole))).equals(await pixels(await readImage(picture))));
  const half = Buffer.concat([picture.subarray(0, picture.length >> 1), Buffer.from([0xff, 0xd9])]);
  await refuses(t, gainMapJpeg(half, map), "truncated_image", /ends before/, "half of its picture");
});

t.test("cut and broken files", async (t) => {
  const noise = Uint8Array.from({ length: 64 * 64 }, (_, i) => (i * 7919) % 251);
  const source = sharp(noise, raw(64, 64, 1)).toColourspace("b-w");
  const files = {
    png: await source.clone().png().toBuffer(),
    jpeg: await source.clone().jpeg().toBuffer(),
    tiff: await source.clone().tiff({ compression: "lzw" }).toBuffer(),
  };
  for (const [format, file] of Object.entries(files))
    for (const share of [0.1, 0.5, 0.9]) {
      const cut = file.subarray(0, Math.floor(file.length * share));
      const codes = format === "tiff" ? /ends before|damaged/ : /ends before/;
      await refuses(
        t,
        cut,
        format === "tiff" ? await codeOf(cut) : "truncated_image",
        codes,
        `${format} cut to ${share}`,
      );
    }
  const broken = Buffer.from(files.png);
  broken.fill(0x55, 60, 200);
  await refuses(t, broken, "corrupt_image", /damaged/, "damaged PNG");
  for (let at = 60; at < files.png.length - 12; at += 211) {
    const flipped = Buffer.from(files.png);
    flipped[at] = (flipped[at] ?? 0) ^ 0x10;
    await refuses(t, flipped, "corrupt_image", /damaged/, `PNG with byte ${at} flipped`);
  }
  const twelve = Buffer.from(files.jpeg);
  // SOF0: marker, length, precision
  twelve[twelve.indexOf(Buffer.from([0xff, 0xc0])) + 4] = 12;
  await refuses(t, twelve, "unsupported_format", /12 bits/, "JPEG of 12 bits");
});

t.test("a JPEG whose copy was filled up with zeros", async (t) => {
  const noise = Uint8Array.from({ length: 64 * 64 * 3 }, (_, i) => (i * 7919) % 251);
  for (const progressive of [false, true]) {
    const whole = await sharp(noise, raw(64, 64, 3))
      .jpeg({ progressive })
      .toBuffer();
    const filled = Buffer.from(whole).fill(0, whole.length >> 1);
    await refuses(t, filled, "truncated_image", /ends in zeros/, `progressive: ${progressive}`);
    const padded = Buffer.concat([whole, Buffer.alloc(5000)]);
    t.equal((await readImage(padded)).frameCount, 1, "zeros behind its end");
  }
});

/** A TIFF's directory may lie behind its pixels: cut short it is either. */
async function codeOf(file: Uint8Array): Promise<"truncated_image" | "corrupt_image"> {
  try {
    await readImage(file);
  } catch (error) {
    const { code } = error as { code: string };
    if (code === "truncated_image" || code === "corrupt_image") return code;
  }
  return "truncated_image";
}

t.test("an Orientation that is none is read as absent, and told", async (t) => {
  const page = (orientation: number, type: 1 | 3 | 4): TiffPage => ({
    width: 4,
    height: 3,
    photometric: 1,
    pixels: grey8,
    more: [{ tag: 274, type, values: [orientation] }],
  });
  for (const options of [{}, { bigEndian: true }, { bigTiff: true }])
    for (const orientation of [0, 9])
      for (const type of [3, 4] as const) {
        const file = tiffFile([page(orientation, type)], options);
        const image = await readImage(file);
        t.strictSame(warned(image), ["value_ignored"]);
        t.strictSame(await pixels(image), bytes(grey8));
        t.strictSame(image.transforms, []);
        const hash = createHash("sha256").update(file).digest("hex");
        t.equal(image.source.fileSha256, hash, "of the file as it is");
      }
  const right = await readImage(tiffFile([page(3, 3)]));
  t.strictSame(warned(right), []);
  t.strictSame(right.transforms, [{ step: "exif_orientation", orientation: 3 }]);
});

t.test("a page that is a smaller version of the picture is not taken for it", async (t) => {
  const [small, large] = [
    { width: 2, height: 2, photometric: 1, pixels: Uint8Array.of(1, 2, 3, 4) },
    { width: 4, height: 4, photometric: 1, pixels: new Uint8Array(16).fill(9) },
  ] as const;
  const reduced = { tag: 254, type: 4, values: [1] } as const;
  const old = { tag: 255, type: 3, values: [2] } as const;
  const refused: [string, TiffPage[], RegExp][] = [
    ["DNG and NEF", [{ ...small, more: [reduced], inside: [large] }], /Page 1 .*NewSubfileType 1/],
    ["without a flag", [{ ...small, inside: [large] }], /Page 1 .*in its SubIFDs/],
    ["the second of several", [{ ...small, inside: [small, large] }], /in its SubIFDs/],
    ["further inside", [{ ...small, inside: [{ ...small, inside: [large] }] }], /in its SubIFDs/],
    ["in EXIF", [{ ...small, exif: { ...small, inside: [large] } }], /in its SubIFDs/],
    ["SubfileType", [{ ...small, more: [old] }, small], /Page 1 /],
    ["a pyramid, the smallest first", [{ ...small, more: [reduced] }, large], /Page 1 /],
    ["a pyramid, the largest first", [large, { ...small, more: [reduced] }], /Page 2 /],
    ["with other bits", [{ ...small, more: [{ ...reduced, values: [3] }] }], /Page 1 /],
    ["a mask", [large, { ...large, more: [{ ...reduced, values: [4] }] }], /Page 2 .*mask/],
    [
      "samples of a sensor",
      [{ ...large, inside: [{ ...small, photometric: 32803 }] }],
      /in its SubIFDs/,
    ],
    ["DNG's version", [{ ...small, more: [{ tag: 50706, type: 1, values: [1, 4, 0, 0] }] }], /DNG/],
  ];
  for (const form of FORMS)
    for (const [name, pages, message] of refused)
      await refuses(
        t,
        tiffFile(pages, form),
        "unsupported_format",
        message,
        `${name} ${JSON.stringify(form)}`,
      );
  const canon = tiffFile([small]);
  // The first directory goes behind a header that is longer by eight bytes
  const shifted = Buffer.concat([canon.subarray(0, 8), Buffer.from("CR\x02\0\0\0\0\0"), canon]);
  await refuses(t, shifted, "unsupported_format", /CR2/, "Canon's mark");
  const levels = [
    { ...large, inside: [{ ...small, more: [reduced], inside: [small] }, small], exif: small },
    large,
  ];
  for (const form of FORMS) {
    const image = await readImage(tiffFile(levels, form));
    t.strictSame([image.frameCount, [...(await pixels(image))]], [2, [...large.pixels]]);
    const flagged = { ...large, more: [{ tag: 254, type: 4, values: [2] }] } as TiffPage;
    t.equal((await readImage(tiffFile([flagged, flagged], form))).frameCount, 2, "a page of many");
  }
});

t.test("a stack of ImageJ with one directory is not read as its first image", async (t) => {
  const described = (text: string) =>
    ({ tag: 270, type: 2, values: [...Buffer.from(text)] }) as const;
  const stack = described("ImageJ=1.53k\nimages=5\nslices=5\n\0");
  const [one, five] = [new Uint8Array(576).fill(7), new Uint8Array(5 * 576).fill(7)];
  const page = (pixels: Uint8Array, ...more: TiffPage["more"] & object): TiffPage => ({
    width: 24,
    height: 24,
    photometric: 1,
    pixels,
    more,
  });
  const counts = { tag: 279, type: 4, values: [576] } as const;
  for (const form of FORMS) {
    const file = tiffFile([page(five, stack, counts)], form);
    await refuses(
      t,
      file,
      "unsupported_format",
      /5 images by ImageJ.* 1 page can/,
      "one directory",
    );
    const whole = Array.from({ length: 5 }, () => page(one, stack));
    t.equal((await readImage(tiffFile(whole, form))).frameCount, 5, "a directory for each");
    const apart = await readImage(tiffFile([page(one, stack)], form));
    t.equal(apart.frameCount, 1, "a page that was taken out of a stack");
    const other = await readImage(tiffFile([page(five, described("images=5\n\0"), counts)], form));
    t.equal(other.frameCount, 1, "another program's words");
  }
});

t.test("parts of a TIFF that lie over each other are not read again and again", async (t) => {
  const entries = 100;
  const span = 12 * entries;
  const chain = Buffer.alloc(8 + 6 * 4 + span);
  chain.write("II*\0", "latin1");
  for (let i = 0; i < 5; i++) {
    const at = 8 + 6 * i;
    if (i === 0) chain.writeUInt32LE(at, 4);
    chain.writeUInt16LE(entries, at);
  }
  for (let i = 0; i < 4; i++) chain.writeUInt32LE(8 + 6 * (i + 1), 8 + 6 * i + 2 + span);
  await refuses(t, chain, "corrupt_image", /directories .* lie over each other/, "directories");

  const jpeg = await sharp(new Uint8Array(3 * 64).fill(90), raw(8, 8, 3))
    .jpeg({ chromaSubsampling: "4:4:4" })
    .toBuffer();
  // Segments of comments make its header long
  const comment = Buffer.alloc(65_535 + 1);
  comment.writeUInt16BE(0xfffe, 0);
  comment.writeUInt16BE(65_534, 2);
  const long = Buffer.concat([
    jpeg.subarray(0, 2),
    ...Array.from({ length: 16 }, () => comment),
    jpeg.subarray(2),
  ]);
  const sharing = (pixels: Buffer, strips: number): Buffer => {
    const values = Array.from({ length: strips }, () => pixels.length);
    const page: TiffPage = {
      width: 8,
      height: 8 * strips,
      bits: [8, 8, 8],
      photometric: 6,
      compression: 7,
      pixels,
      more: [
        { tag: 278, values: [8] },
        { tag: 279, type: 4, values },
      ],
    };
    // The pixels lie behind the header
    const at = { tag: 273, type: 4, values: values.map(() => 8) } as const;
    return tiffFile([{ ...page, more: [...page.more!, at] }]);
  };
  const strips = sharing(long, 70);
  await refuses(t, strips, "corrupt_image", /strips or tiles .* lie over each other/, "strips");
  const few = await readImage(sharing(jpeg, 3));
  t.equal(few.format.rows, 24, "blank strips may be one");
});

t.test("the thumbnail inside a JPEG is not taken for it", async (t) => {
  const [grey, white] = [200, 10].map((value) => new Uint8Array(48 * 32).fill(value));
  const jpeg = (data: Uint8Array, width: number) =>
    sharp(data.subarray(0, width * 8), raw(width, 8, 1))
      .toColourspace("b-w")
      .jpeg()
      .toBuffer();
  const [main, thumbnail] = [await jpeg(grey!, 48), await jpeg(white!, 16)];
  const segment = (marker: number, body: Buffer) =>
    Buffer.concat([
      Buffer.from([0xff, marker, (body.length + 2) >> 8, (body.length + 2) & 255]),
      body,
    ]);
  // EXIF with a directory whose second one, of the thumbnail, has its offset and length
  const entry = (tag: number, value: number) => {
    const out = Buffer.alloc(12);
    out.writeUInt16LE(tag, 0);
    out.writeUInt16LE(4, 2);
    out.writeUInt32LE(1, 4);
    out.writeUInt32LE(value, 8);
    return out;
  };
  const directories = Buffer.concat([
    Buffer.from([0x49, 0x49, 42, 0, 8, 0, 0, 0, 0, 0, 14, 0, 0, 0, 2, 0]),
    entry(0x201, 44),
    entry(0x202, thumbnail.length),
    Buffer.alloc(4),
  ]);
  const exif = Buffer.concat([Buffer.from("Exif\0\0"), directories, thumbnail]);
  const cases = {
    EXIF: Buffer.concat([main.subarray(0, 2), segment(0xe1, exif), main.subarray(2)]),
    JFXX: Buffer.concat([
      main.subarray(0, 2),
      segment(0xe0, Buffer.concat([Buffer.from("JFXX\0\x10"), thumbnail])),
      main.subarray(2),
    ]),
    "a second picture behind it (MPF)": Buffer.concat([main, thumbnail]),
  };
  for (const [name, file] of Object.entries(cases)) {
    const image = await readImage(file);
    t.match(image.format, { rows: 8, columns: 48 }, name);
    t.ok(
      (await pixels(image)).every((value) => Math.abs(value - 200) < 3),
      name,
    );
  }
});
