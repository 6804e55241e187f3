/**
 * JPEG 2000 and HTJ2K whose chrominance has fewer samples, and what their components are (PS3.5
 * 8.2.4, CP-2650).
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { readImage } from "../../../src/images/read-image.js";
import {
  attributesOf,
  compress,
  dicomFile,
  picture,
  SYNTAXES,
  type Attributes,
} from "../../support/dicom.js";
import { commandsAre, needs } from "../../support/needs.js";

const CASES = "../shared/cases/dicom";

interface Coded {
  kind: "jpeg2000" | "htj2k";
  columns: number;
  rows: number;
  /** Pixels from one sample to the next, along and down. */
  sampling: [number, number][];
}

/**
 * Lossless codestreams of the planes that `sampleAt` draws, by opj_compress 2.5.0 (-n 2 -mct 0) and
 * ojph_compress 0.31.0 (-reversible true -num_decomps 1).
 */
const CODED: (Coded & { coded: string })[] = [
  {
    kind: "jpeg2000",
    columns: 13,
    rows: 10,
    sampling: [
      [1, 1],
      [2, 2],
      [2, 2],
    ],
    coded:
      "/0//UQAvAAAAAAANAAAACgAAAAAAAAAAAAAADQAAAAoAAAAAAAAAAAADBwEBBwICBwIC/1IADAAAAAEAAQQEAAH/XAAHQEBISFD/ZAAlAAFDcmVhdGVkIGJ5IE9wZW5KUEVHIHZlcnNpb24gMi41LjD/kAAKAAAAAACQAAH/k8+0eBDbrfinEAOe3VO+baSHcRwWDii0J1t1Kostdo+zid+AeB6Jt7i/qpjil/RAR0Mbt9+AcAzV6n/8ES6m6w6nGbX3oHyBQDWZ0vAmx9oJH2g0H1AYE3p2txOvAH9+1xCdOs/AIj7QiPwBgA926KalIWnjD4nXgY2PO38Np4dr/n//2Q==",
  },
  {
    kind: "jpeg2000",
    columns: 14,
    rows: 9,
    sampling: [
      [1, 1],
      [2, 1],
      [2, 1],
    ],
    coded:
      "/0//UQAvAAAAAAAOAAAACQAAAAAAAAAAAAAADgAAAAkAAAAAAAAAAAADBwEBBwIBBwIB/1IADAAAAAEAAQQEAAH/XAAHQEBISFD/ZAAlAAFDcmVhdGVkIGJ5IE9wZW5KUEVHIHZlcnNpb24gMi41LjD/kAAKAAAAAACeAAH/k8+0eBDbrfinEAOe3VO+baSHcR1vfDdcac6RVX34VASPf9+AqCQLG2+LxdUrEZrpbobdMm5vDzs+f9+AsCf4lKT0ZscitWMXRUppmcTUyMGkIBfAfCGAMYCGx9oJH2gkPtAwLHyXfyRnpB8fq5/PwCo+0Jj8AcAABUP4duagArR/BnjSWYPnUScPBrseINQi3//Z",
  },
  {
    kind: "jpeg2000",
    columns: 16,
    rows: 8,
    sampling: [
      [1, 1],
      [4, 1],
      [4, 1],
    ],
    coded:
      "/0//UQAvAAAAAAAQAAAACAAAAAAAAAAAAAAAEAAAAAgAAAAAAAAAAAADBwEBBwQBBwQB/1IADAAAAAEAAQQEAAH/XAAHQEBISFD/ZAAlAAFDcmVhdGVkIGJ5IE9wZW5KUEVHIHZlcnNpb24gMi41LjD/kAAKAAAAAACCAAH/k8+0cBDbrd5rE2K32uPz/QMsvUVcQsaIkwWZY0WcggbH1BAQ9EqWnM4av8+0KAlsuvrhYLNaeD/AfCHA+QMANpy3A4STaybfwfODgPhCABfXxwN1z8AqfgEx+AKAACQB0D48O/aR3wECg/9c3Cfw4gVgdDdn/9k=",
  },
  {
    kind: "jpeg2000",
    columns: 11,
    rows: 10,
    sampling: [
      [1, 1],
      [1, 2],
      [2, 2],
    ],
    coded:
      "/0//UQAvAAAAAAALAAAACgAAAAAAAAAAAAAACwAAAAoAAAAAAAAAAAADBwEBBwECBwIC/1IADAAAAAEAAQQEAAH/XAAHQEBISFD/ZAAlAAFDcmVhdGVkIGJ5IE9wZW5KUEVHIHZlcnNpb24gMi41LjD/kAAKAAAAAACOAAH/k8+0cBDbreIPGk6Gblhkm7cLB3qkI1GoX3QAXJ4Z/3/fgJgn0InqDJ0XjYaAmk14UaJGTBEf34BYDM47AhrE2wTPA1ugfIEAMHRwMc/AEh9QJH4AgBv3iiQY06DnGSj/f8/ALj7QaPwBgA924B/4oHoxv2N/D6F0pKzTDaiYFQLj/9k=",
  },
  {
    kind: "htj2k",
    columns: 14,
    rows: 10,
    sampling: [
      [1, 1],
      [2, 2],
      [2, 2],
    ],
    coded:
      "/0//UQAvQAAAAAAOAAAACgAAAAAAAAAAAAAADgAAAAoAAAAAAAAAAAADBwEBBwICBwIC/1AACAACAAAAAf9SAAwAAgABAAEEBEAB/1wAByBISEhI/2QAFwABT3BlbkpQSCBWZXIgMC4zMS4wLv+QAAoAAAAAAKQAAf+TwC6w19Hdw2c9eJ7zci3z3k0/t8HGImsc3Q2YhtgI1ABCLPx9yc/hpkX6AADRsAHALRDfZXCsapnxFv3aAT7gRFmXAMAtIBal3PoYz1/+4V3yG38AAFK3AMAqYBWgTDLnCf1+S3cAGGOMMf765H/fyb64AADAKuAVEAqAH37fvt8CfxiTtgA/H58AQLxVAH//fwAQk7UA/9k=",
  },
  {
    kind: "htj2k",
    columns: 13,
    rows: 9,
    sampling: [
      [1, 1],
      [2, 1],
      [2, 1],
    ],
    coded:
      "/0//UQAvQAAAAAANAAAACQAAAAAAAAAAAAAADQAAAAkAAAAAAAAAAAADBwEBBwIBBwIB/1AACAACAAAAAf9SAAwAAgABAAEEBEAB/1wAByBISEhI/2QAFwABT3BlbkpQSCBWZXIgMC4zMS4wLv+QAAoAAAAAAMAAAf+TwC6w19Hdw2c9eJ7zcj3x3k0/t8HGImscWz3SVcwCzwBCLPx9yc/hpkX6AADRsAHALaDfZXCsapnxHkXbT1Hb46G03vgCzqWgRFmYAMAtsBal3PoYz19uicHzeySx3ix5NBh//BcAAFK5AADAKiATQCTv++AIf2J2AB++4EC0AOBCdADAK+AV0AqwH37fnj4++EAD/F8Yk7gAPx+f/3+/n+ckIEC8VgB//3+/3wELEJO2AP/Z",
  },
  {
    kind: "htj2k",
    columns: 13,
    rows: 11,
    sampling: [
      [1, 1],
      [2, 2],
      [2, 2],
    ],
    coded:
      "/0//UQAvQAAAAAANAAAACwAAAAAAAAAAAAAADQAAAAsAAAAAAAAAAAADBwEBBwICBwIC/1AACAACAAAAAf9SAAwAAgABAAEEBEAB/1wAByBISEhI/2QAFwABT3BlbkpQSCBWZXIgMC4zMS4wLv+QAAoAAAAAAKAAAf+TwC7I19Hdw2c9eJ7zcj3x3k0/t8HGImscWz1UyXBFxW/WCGw90gAr/DUKKc/hpkX6AADRsAHALRDfZXCsapmxJgHcAPrgRFmXAMAtIBal3PoYz1/Wi7PmDbMAAFK3AACgE4CIiMBJvrUAwCqgFfAKkB9+397PDhiTtQA/H5//XV0Q6AQ/4EC8VwB//38MOxCTtgD/2Q==",
  },
];

/** A sample of a component's own plane. */
const sampleAt = (c: number, x: number, y: number) =>
  (x * [7, 23, 31][c]! + y * [13, 5, 17][c]! + 60 * c + 20) % 256;

/**
 * Each sample at all the pixels that it stands for. opj_compress takes fewer samples of uneven
 * planes; the last are 0.
 */
function expectedOf({ kind, columns, rows, sampling }: Coded): Buffer {
  const sample = (c: number, x: number, y: number) => {
    const [dx, dy] = sampling[c] ?? [1, 1];
    const taken = kind === "htj2k" ? Infinity : Math.floor((columns * rows) / (dx * dy));
    const [left, top] = [Math.floor(x / dx), Math.floor(y / dy)];
    return top * Math.ceil(columns / dx) + left < taken ? sampleAt(c, left, top) : 0;
  };
  const pixels = Array.from({ length: columns * rows }, (_, i) =>
    [0, 1, 2].map((c) => sample(c, i % columns, Math.floor(i / columns))),
  );
  return Buffer.from(pixels.flat());
}

function fileOf(coded: Coded, codestream: Uint8Array, tag: string): Uint8Array {
  const { rows, columns, kind } = coded;
  const shape = {
    rows,
    columns,
    samples: 3,
    bitsAllocated: 8,
    bitsStored: 8,
    data: new Uint8Array(),
  } as const;
  return dicomFile({
    transferSyntax: SYNTAXES[kind],
    attributes: attributesOf(shape, { PhotometricInterpretation: tag }),
    pixels: { fragments: [Buffer.from(codestream)] },
  });
}

const describe = ({ kind, columns, rows, sampling }: Coded) =>
  `${kind}, ${columns} x ${rows}, ${sampling.map((one) => one.join("x")).join(" ")}`;

t.test("each sample stands for its pixels", async (t) => {
  for (const { coded, ...one } of CODED) {
    const file = fileOf(one, Buffer.from(coded, "base64"), "YBR_FULL_422");
    const image = await readImage(file);
    t.strictSame(Buffer.from(await image.frame(0)), expectedOf(one), describe(one));
    t.equal(image.format.photometricInterpretation, "YBR_FULL");
    t.strictSame(image.warnings, []);
  }
});

t.test("a frame of HTJ2K that is cut or damaged is refused", async (t) => {
  const { coded, ...one } = CODED.find(({ kind, rows }) => kind === "htj2k" && rows === 11)!;
  const whole = Buffer.from(coded, "base64");
  for (let length = 80; length < whole.length - 2; length += 20)
    await t.rejects(
      readImage(fileOf(one, whole.subarray(0, length), "YBR_FULL")).then((image) => image.frame(0)),
      { code: "truncated_image" },
      `${length} bytes`,
    );
});

t.test("components of fewer samples are chrominance, whatever the attribute says", async (t) => {
  const [{ coded, ...one }] = CODED as [(typeof CODED)[0]];
  for (const tag of ["RGB", "YBR_ICT", "YBR_RCT", "YBR_FULL"]) {
    const image = await readImage(fileOf(one, Buffer.from(coded, "base64"), tag));
    t.strictSame(Buffer.from(await image.frame(0)), expectedOf(one), tag);
    t.equal(image.format.photometricInterpretation, "YBR_FULL", tag);
    t.strictSame(
      image.warnings.map(({ code }) => code),
      tag === "YBR_FULL" ? [] : ["photometric_mismatch"],
      tag,
    );
  }
});

t.test("other sizes are refused, and a transform over them", async (t) => {
  const [{ coded, ...one }] = CODED as [(typeof CODED)[0]];
  /** With one byte of the main header changed. */
  const changed = (at: number, value: number) => {
    const bytes = Buffer.from(coded, "base64");
    bytes[at] = value;
    return readImage(fileOf(one, bytes, "YBR_FULL"));
  };
  const unsupported = { code: "unsupported_transfer_syntax" };
  await t.rejects(changed(43, 2), unsupported, "luminance has fewer");
  await t.rejects(changed(46, 0), unsupported, "no distance");
  await t.rejects(changed(45, 8), unsupported, "another depth");
  await t.rejects(changed(19, 1), unsupported, "the first pixel is not at 0");
  const cod = Buffer.from(coded, "base64").indexOf(Buffer.from([0xff, 0x52]));
  await t.rejects(changed(cod + 8, 1), {
    code: "corrupt_image",
    message: /components of different size/,
  });
});

t.test("the attribute says what components without a transform are", async (t) => {
  const raw = picture({ rows: 20, columns: 24, samples: 3, bitsAllocated: 8, bitsStored: 8 });
  const read = (coded: Uint8Array, attributes: Attributes) =>
    readImage(
      dicomFile({
        transferSyntax: SYNTAXES.jpeg2000,
        attributes: attributesOf(raw, attributes),
        pixels: { fragments: [Buffer.from(coded)] },
      }),
    );
  const transformed = Buffer.from(await compress("jpeg2000", raw));
  const plain = Buffer.from(transformed);
  // Multiple component transformation of COD (ISO 15444-1 A.6.1)
  plain[plain.indexOf(Buffer.from([0xff, 0x52])) + 8] = 0;
  for (const [coded, tag, colour, isWarned] of [
    [transformed, "YBR_RCT", "RGB", false],
    [transformed, "YBR_ICT", "RGB", false],
    [transformed, "RGB", "RGB", true],
    [plain, "RGB", "RGB", false],
    [plain, "YBR_FULL", "YBR_FULL", false],
    [plain, "YBR_FULL_422", "YBR_FULL", false],
    [plain, "YBR_PARTIAL_420", "YBR_FULL", true],
  ] as const) {
    const image = await read(coded, { PhotometricInterpretation: tag });
    const title = `${coded === plain ? "no transform" : "a transform"}, ${tag}`;
    t.equal(image.format.photometricInterpretation, colour, title);
    t.strictSame(
      image.warnings.map(({ code }) => code),
      isWarned ? ["photometric_mismatch"] : [],
      title,
    );
    if (coded === transformed)
      t.strictSame(Buffer.from(await image.frame(0)), Buffer.from(raw.data), title);
  }
});

/** PS3.3 C.7.6.3.1.2, YBR_FULL. */
function rgbOf([y, b, r]: readonly number[]): number[] {
  const [luma, cb, cr] = [y ?? 0, (b ?? 0) - 128, (r ?? 0) - 128];
  const all = [luma + 1.402 * cr, luma - 0.344136 * cb - 0.714136 * cr, luma + 1.772 * cb];
  return all.map((value) => Math.min(255, Math.max(0, Math.round(value))));
}

/** The pixels of opj_decompress, which takes such components for YCbCr: binary PPM. */
function byOpjDecompress(folder: string, codestream: Uint8Array): Buffer {
  const [from, to] = [join(folder, "frame.j2k"), join(folder, "frame.ppm")];
  writeFileSync(from, codestream);
  const { status, stdout } = spawnSync("opj_decompress", ["-i", from, "-o", to], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(stdout);
  const bytes = readFileSync(to);
  const [header = ""] = /^P6\s(?:#.*\n)?\d+ \d+\n255\n/.exec(bytes.toString("latin1")) ?? [];
  return bytes.subarray(header.length);
}

async function meanDifference(file: Uint8Array, expected: Buffer): Promise<number> {
  const frame = await (await readImage(file)).frame(0);
  let sum = 0;
  for (let at = 0; at < frame.length; at += 3)
    rgbOf([...frame.subarray(at, at + 3)]).forEach((value, c) => {
      sum += Math.abs(value - (expected[at + c] ?? 0));
    });
  return sum / frame.length;
}

t.test("the cases of the field", { skip: needs(`${CASES}/sm-j2k-420.dcm`) }, async (t) => {
  const plain = await readImage(readFileSync(`${CASES}/sm-j2k-ybr-ict-no-mct.dcm`));
  const first = rgbOf([...(await plain.frame(0)).subarray(0, 3)]);
  for (const [c, value] of [40, 200, 30].entries())
    t.ok(Math.abs(first[c]! - value) <= 1, `${first[c]!}`);
  const half = await readImage(readFileSync(`${CASES}/sm-j2k-420.dcm`));
  t.equal(half.format.photometricInterpretation, "YBR_FULL");
  t.strictSame(half.warnings, []);
});

t.test("as opj_decompress", { skip: commandsAre("opj_compress", "opj_decompress") }, async (t) => {
  const folder = t.testdir();
  const sampling: [number, number][][] = [
    [
      [1, 1],
      [2, 2],
      [2, 2],
    ],
    [
      [1, 1],
      [2, 1],
      [2, 1],
    ],
  ];
  for (const sizes of sampling) {
    const one: Coded = { kind: "jpeg2000", columns: 1100, rows: 900, sampling: sizes };
    const planes = sizes.map(([dx, dy], c) => {
      const [columns, rows] = [Math.ceil(one.columns / dx), Math.ceil(one.rows / dy)];
      const wave = (i: number) =>
        128 + 90 * Math.sin((i % columns) / (30 + 9 * c)) * Math.cos(i / columns / 40);
      return Buffer.from(Array.from({ length: columns * rows }, (_, i) => wave(i)));
    });
    const [from, to] = [join(folder, "planes.raw"), join(folder, "coded.j2k")];
    writeFileSync(from, Buffer.concat(planes));
    const form = `${one.columns},${one.rows},3,8,u@${sizes.map((size) => size.join("x")).join(":")}`;
    for (const lossy of [[], ["-I", "-r", "8"]]) {
      const args = ["-i", from, "-o", to, "-F", form, "-mct", "0", ...lossy];
      t.equal(spawnSync("opj_compress", args).status, 0);
      const coded = readFileSync(to);
      const difference = await meanDifference(
        fileOf(one, coded, "YBR_FULL_422"),
        byOpjDecompress(folder, coded),
      );
      t.ok(difference < 1, `${describe(one)} ${lossy.join(" ")}: ${difference}`);
    }
  }
});
