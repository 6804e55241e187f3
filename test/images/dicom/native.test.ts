import { deflateRawSync } from "node:zlib";
import t from "tap";
import { isConstant, strayBits } from "../../../src/images/dicom/decode-check.js";
import { inspectImage } from "../../../src/inference/inspection.js";
import type { PixelFormat } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  attributesOf,
  BIG_ENDIAN,
  DEFLATED_FRAMES,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  picture,
  Typed,
  type FileOptions,
} from "../../support/dicom.js";
import { refuses, warned } from "../../support/expect.js";

interface Case extends FileOptions {
  name: string;
  /** Bytes of each frame as they should come out. */
  frames: number[][];
}

const rgb = { SamplesPerPixel: 3, PhotometricInterpretation: "RGB", Rows: 1, Columns: 2 };
const bits = (n: number) => ({ BitsAllocated: n, BitsStored: n, HighBit: n - 1 });
const small = { Rows: 1, Columns: 2 };
const sevens = deflateRawSync(Buffer.alloc(192, 7));

const CASES: Case[] = [
  {
    name: "colour by pixel",
    attributes: imageAttributes({ ...rgb, PlanarConfiguration: 0 }),
    pixels: Buffer.from([1, 2, 3, 4, 5, 6]),
    frames: [[1, 2, 3, 4, 5, 6]],
  },
  {
    name: "colour by plane",
    attributes: imageAttributes({ ...rgb, PlanarConfiguration: 1 }),
    pixels: Buffer.from([1, 4, 2, 5, 3, 6]),
    frames: [[1, 2, 3, 4, 5, 6]],
  },
  {
    name: "16-bit colour by plane, two frames",
    attributes: imageAttributes({
      ...rgb,
      ...bits(16),
      PlanarConfiguration: 1,
      NumberOfFrames: "2",
    }),
    pixels: Buffer.from([
      1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0, 7, 1, 10, 1, 8, 1, 11, 1, 9, 1, 12, 1,
    ]),
    frames: [
      [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0],
      [7, 1, 8, 1, 9, 1, 10, 1, 11, 1, 12, 1],
    ],
  },
  {
    name: "big endian, 8 bits in OW, odd frame length",
    transferSyntax: BIG_ENDIAN,
    attributes: imageAttributes({ Rows: 1, Columns: 3, NumberOfFrames: "2" }),
    pixels: Buffer.from([2, 1, 4, 3, 6, 5]),
    frames: [
      [1, 2, 3],
      [4, 5, 6],
    ],
  },
  {
    name: "big endian, 8 bits in OB",
    transferSyntax: BIG_ENDIAN,
    pixelVr: "OB",
    attributes: imageAttributes(small),
    pixels: Buffer.from([1, 2]),
    frames: [[1, 2]],
  },
  {
    name: "big endian, 16 bits",
    transferSyntax: BIG_ENDIAN,
    attributes: imageAttributes({ ...small, ...bits(16) }),
    pixels: Buffer.from([1, 2, 3, 4]),
    frames: [[2, 1, 4, 3]],
  },
  {
    name: "big endian, 32 bits",
    transferSyntax: BIG_ENDIAN,
    attributes: imageAttributes({ Rows: 1, Columns: 1, ...bits(32) }),
    pixels: Buffer.from([1, 2, 3, 4]),
    frames: [[4, 3, 2, 1]],
  },
  {
    name: "one bit, second frame in the middle of a byte",
    attributes: imageAttributes({ Rows: 1, Columns: 3, ...bits(1), NumberOfFrames: "3" }),
    pixels: Buffer.from([0b11_010_101, 0b0]),
    frames: [
      [1, 0, 1],
      [0, 1, 0],
      [1, 1, 0],
    ],
  },
  {
    name: "one bit, big endian words",
    transferSyntax: BIG_ENDIAN,
    attributes: imageAttributes({ Rows: 1, Columns: 10, ...bits(1) }),
    pixels: Buffer.from([0b10, 0b1]),
    frames: [[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]],
  },
  {
    name: "packed 4:2:2",
    attributes: imageAttributes({
      ...rgb,
      PhotometricInterpretation: "YBR_FULL_422",
      PlanarConfiguration: 0,
    }),
    pixels: Buffer.from([10, 20, 30, 40]),
    frames: [[10, 20, 30, 40]],
  },
  {
    name: "4:2:2 that is not subsampled",
    attributes: imageAttributes({
      ...rgb,
      PhotometricInterpretation: "YBR_FULL_422",
      PlanarConfiguration: 0,
    }),
    pixels: Buffer.from([1, 2, 3, 4, 5, 6]),
    frames: [[1, 2, 3, 4, 5, 6]],
  },
  {
    name: "encapsulated uncompressed",
    transferSyntax: "1.2.840.10008.1.2.1.98",
    attributes: imageAttributes({ ...small, NumberOfFrames: "2" }),
    pixels: { fragments: [Buffer.from([1, 2]), Buffer.from([3, 4])] },
    frames: [
      [1, 2],
      [3, 4],
    ],
  },
  {
    name: "encapsulated uncompressed, 4:2:2",
    transferSyntax: "1.2.840.10008.1.2.1.98",
    attributes: imageAttributes({
      ...rgb,
      PhotometricInterpretation: "YBR_FULL_422",
      PlanarConfiguration: 0,
      NumberOfFrames: "2",
    }),
    pixels: { fragments: [Buffer.from([10, 20, 30, 40]), Buffer.from([50, 60, 70, 80])] },
    frames: [
      [10, 20, 30, 40],
      [50, 60, 70, 80],
    ],
  },
  {
    name: "frames of full samples in streams that are shorter, YBR_FULL_422",
    transferSyntax: DEFLATED_FRAMES,
    attributes: imageAttributes({
      ...rgb,
      Rows: 8,
      Columns: 8,
      PhotometricInterpretation: "YBR_FULL_422",
      PlanarConfiguration: 0,
    }),
    pixels: { fragments: [Buffer.concat([sevens, Buffer.alloc(sevens.length % 2)])] },
    frames: [Array.from({ length: 192 }, () => 7)],
  },
];

t.test("native frames", async (t) => {
  for (const { name, frames, ...options } of CASES) {
    const image = await readImage(dicomFile(options));
    t.equal(image.frameCount, frames.length, name);
    for (const [i, frame] of frames.entries())
      t.strictSame([...(await image.frame(i))], frame, `${name}, frame ${i}`);
    // A second time, in another order
    t.strictSame([...(await image.frame(0))], frames[0], `${name}, again`);
  }
});

t.test("frames of one file are all subsampled, or none is", async (t) => {
  const attributes = imageAttributes({
    ...rgb,
    PhotometricInterpretation: "YBR_FULL_422",
    PlanarConfiguration: 0,
    NumberOfFrames: "2",
  });
  const [subsampled, full] = [Buffer.from([10, 20, 30, 40]), Buffer.from([1, 2, 3, 4, 5, 6])];
  for (const fragments of [
    [subsampled, full],
    [full, subsampled],
  ]) {
    const pixels = { fragments };
    const file = dicomFile({ transferSyntax: "1.2.840.10008.1.2.1.98", attributes, pixels });
    await refuses(t, file, "corrupt_image", /frame 2 and the first, one is/, "mixed");
  }
});

t.test("floating point", async (t) => {
  for (const transferSyntax of [EXPLICIT, BIG_ENDIAN])
    for (const [keyword, vr, value] of [
      ["FloatPixelData", "OF", "FL"],
      ["DoubleFloatPixelData", "OD", "FD"],
    ] as const) {
      const size = value === "FL" ? 4 : 8;
      const bytes = Buffer.alloc(2 * size);
      [-1.5, 2.25].forEach((v, i) =>
        size === 4 ? bytes.writeFloatLE(v, i * 4) : bytes.writeDoubleLE(v, i * 8),
      );
      const stored = Buffer.from(bytes);
      if (transferSyntax === BIG_ENDIAN && size === 4) stored.swap32();
      if (transferSyntax === BIG_ENDIAN && size === 8) stored.swap64();
      const image = await readImage(
        dicomFile({
          transferSyntax,
          attributes: imageAttributes({ ...small, [keyword]: new Typed(vr, stored) }),
        }),
      );
      t.ok(image.format.float);
      t.strictSame(Buffer.from(await image.frame(0)), bytes, `${keyword} ${transferSyntax}`);
      const { first_frame: first } = await inspectImage(image);
      t.match(first, { min: -1.5, max: 2.25, mean: 0.375 });
    }
});

t.test("a little-endian frame is a view of the file", async (t) => {
  const raw = picture({ rows: 8, columns: 8, samples: 1, bitsAllocated: 16, bitsStored: 12 });
  const bytes = new Uint8Array(dicomFile({ attributes: attributesOf(raw), pixels: raw.data }));
  const frame = await (await readImage(bytes)).frame(0);
  t.equal(frame.buffer, bytes.buffer);
  t.equal(frame.byteOffset % 2, 0);
});

t.test("frames of bits that each begin on a byte", async (t) => {
  const attributes = imageAttributes({ Rows: 3, Columns: 3, ...bits(1), NumberOfFrames: "5" });
  const file = (length: number) => dicomFile({ attributes, pixels: Buffer.alloc(length, 0x55) });
  // 45 bits take 6 bytes; frames of 9 bits that begin on bytes take 10
  await refuses(t, file(10), "corrupt_image", /10 bytes, as if each frame.* take 6/, "padded");
  t.strictSame(warned(await readImage(file(6))), []);
  t.strictSame(warned(await readImage(file(20))), ["extra_pixel_data"]);
});

t.test("short and long pixel data", async (t) => {
  const attributes = imageAttributes({ NumberOfFrames: "2" });
  await refuses(
    t,
    dicomFile({ attributes, pixels: Buffer.alloc(30) }),
    "truncated_image",
    /30 bytes where 32/,
    "short",
  );
  await refuses(
    t,
    dicomFile({ attributes, pixels: Buffer.alloc(32) }).subarray(0, -2),
    "truncated_image",
    /30 bytes where 32/,
    "cut",
  );
  const long = await readImage(dicomFile({ attributes, pixels: Buffer.alloc(40) }));
  t.strictSame(warned(long), ["extra_pixel_data"]);
  const gigabytes = imageAttributes({
    Rows: 10000,
    Columns: 10000,
    ...bits(16),
    NumberOfFrames: "1000",
  });
  await refuses(
    t,
    dicomFile({ attributes: gigabytes, pixels: Buffer.alloc(100_000) }),
    "truncated_image",
    /needed/,
    "200 GB",
  );
  const wide = imageAttributes({ Rows: 40000, Columns: 40000, ...bits(16) });
  await refuses(
    t,
    dicomFile({ attributes: wide, pixels: Buffer.alloc(100_000) }),
    "unsupported_format",
    /at most 134217728 pixels/,
    "a frame beyond the limit",
  );
});

t.test("attributes that contradict themselves name the attribute", async (t) => {
  const cases: [
    Record<string, number | string | undefined>,
    RegExp,
    ("corrupt_image" | "unsupported_format")?,
  ][] = [
    [{ Rows: 0 }, /^Rows/],
    [{ Rows: undefined }, /^Rows.*absent/],
    [{ Columns: 0 }, /^Columns/],
    [{ BitsAllocated: 12 }, /^BitsAllocated/],
    [{ BitsStored: 9 }, /^BitsStored/],
    [{ BitsStored: 0 }, /^BitsStored/],
    [{ HighBit: 3 }, /^HighBit/],
    [{ HighBit: 8 }, /^HighBit/],
    [{ PixelRepresentation: 2 }, /^PixelRepresentation/],
    [{ PixelRepresentation: undefined, ...bits(16) }, /^PixelRepresentation.*absent/],
    [{ PixelRepresentation: undefined }, /^PixelRepresentation.*absent/],
    [{ SamplesPerPixel: 3 }, /^SamplesPerPixel/],
    [{ PhotometricInterpretation: undefined }, /^PhotometricInterpretation/],
    [{ PhotometricInterpretation: "HSV" }, /HSV/, "unsupported_format"],
    [{ NumberOfFrames: "-1" }, /^NumberOfFrames/],
    [{ NumberOfFrames: "1A" }, /^NumberOfFrames/],
    [{ RescaleSlope: "0" }, /^RescaleSlope/],
    [{ RescaleSlope: "one" }, /^RescaleSlope/],
  ];
  for (const [attributes, message, code = "corrupt_image"] of cases)
    await refuses(
      t,
      dicomFile({ attributes: imageAttributes(attributes), pixels: Buffer.alloc(16, 1) }),
      code,
      message,
      JSON.stringify(attributes),
    );
  const repaired = await readImage(
    dicomFile({
      attributes: imageAttributes({ HighBit: undefined, SamplesPerPixel: undefined }),
      pixels: Buffer.alloc(16),
    }),
  );
  t.strictSame(warned(repaired), ["missing_attribute", "missing_attribute"]);
});

t.test("what old and careless writers leave out", async (t) => {
  const cases: [string, Record<string, number | string | Typed | undefined>, string, object][] = [
    ["no frames", { NumberOfFrames: "0" }, "no_frames", {}],
    [
      "ACR-NEMA",
      {
        PhotometricInterpretation: undefined,
        SamplesPerPixel: undefined,
        RETIRED_ImageDimensions: 2,
      },
      "missing_attribute",
      { photometricInterpretation: "MONOCHROME2", samplesPerPixel: 1 },
    ],
    [
      "sign by VR",
      {
        PixelRepresentation: undefined,
        SmallestImagePixelValue: new Typed("SS", Buffer.from([0, 0])),
      },
      "missing_attribute",
      { signed: true },
    ],
    [
      "no sign by VR",
      { PixelRepresentation: undefined, PixelPaddingValue: new Typed("US", Buffer.from([0, 0])) },
      "missing_attribute",
      { signed: false },
    ],
    [
      "colour has no sign",
      { PixelRepresentation: undefined, ...rgb },
      "missing_attribute",
      { signed: false },
    ],
  ];
  for (const [name, attributes, code, format] of cases) {
    const image = await readImage(
      dicomFile({
        attributes: imageAttributes(attributes),
        pixels: Buffer.alloc(name.startsWith("colour") ? 6 : 16),
      }),
    );
    t.match(image.format, format, name);
    t.equal(image.frameCount, 1, name);
    t.ok(warned(image).includes(code), name);
  }
});

t.test("values masked to BitsStored at HighBit and read by sign", async (t) => {
  // Overlay bits above HighBit are legal in native containers (retired, but in archives)
  const cases: [number, number, number, number[], { min: number; max: number; mean: number }][] = [
    [12, 11, 0, [0xf123, 0x0001], { min: 1, max: 0x123, mean: 146 }],
    [12, 11, 1, [0x0fff, 0x07ff], { min: -1, max: 2047, mean: 1023 }],
    [12, 15, 0, [0xfff0, 0x0010], { min: 1, max: 4095, mean: 2048 }],
    [16, 15, 1, [0x8000, 0x7fff], { min: -32768, max: 32767, mean: -0.5 }],
  ];
  for (const [bitsStored, highBit, sign, words, expected] of cases) {
    const pixels = Buffer.from(new Uint16Array(words).buffer);
    const image = await readImage(
      dicomFile({
        attributes: imageAttributes({
          ...small,
          BitsAllocated: 16,
          BitsStored: bitsStored,
          HighBit: highBit,
          PixelRepresentation: sign,
        }),
        pixels,
      }),
    );
    t.match((await inspectImage(image)).first_frame, expected, `${bitsStored} at ${highBit}`);
    t.strictSame(Buffer.from(await image.frame(0)), pixels, "containers are not masked");
  }
});

t.test("stray bits and constant frames", (t) => {
  const format = (bitsAllocated: 8 | 16 | 32, highBit: number, signed: boolean) =>
    ({ bitsAllocated, highBit, bitsStored: highBit + 1, signed, float: false }) as PixelFormat;
  const words = (...w: number[]) => new Uint8Array(new Uint16Array(w).buffer);
  t.equal(strayBits(words(0, 4095), format(16, 11, false)), undefined);
  t.equal(strayBits(words(0, 4096), format(16, 11, false)), 4096);
  t.equal(
    strayBits(words(0xf800, 0x07ff, 0x0fff), format(16, 11, true)),
    undefined,
    "sign-extended or not",
  );
  t.equal(strayBits(words(0xf7ff), format(16, 11, true)), 0xf7ff, "high bits that are no sign");
  t.equal(strayBits(words(0xffff), format(16, 15, false)), undefined);
  t.equal(strayBits(Uint8Array.of(64), format(8, 5, false)), 64);
  t.equal(
    strayBits(new Uint8Array(new Uint32Array([2 ** 31]).buffer), format(32, 30, false)),
    2 ** 31,
  );
  t.ok(isConstant(words(7, 7, 7), 2));
  t.notOk(isConstant(words(7, 7, 8), 2));
  t.ok(isConstant(Uint8Array.of(1, 2, 3, 1, 2, 3), 3));
  t.end();
});
