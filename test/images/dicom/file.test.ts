import { constants, crc32, deflateRawSync, deflateSync, inflateRawSync } from "node:zlib";
import t from "tap";
import { MAX_INFLATED_BYTES } from "../../../src/images/dicom/dicom-file.js";
import { readImage } from "../../../src/images/read-image.js";
import { DEFLATED, dicomFile, imageAttributes } from "../../support/dicom.js";
import { refuses, warned } from "../../support/expect.js";

const MIB = 1 << 20;
/** Bytes before the deflate stream: an empty one is two bytes long. */
const start = dicomFile({ transferSyntax: DEFLATED, attributes: {} }).length - 2;
const peak = () => process.resourceUsage().maxRSS * 1024;

const zeros = deflateRawSync(Buffer.alloc(16 * MIB), { finishFlush: constants.Z_FULL_FLUSH });

t.test("a long data set unfolds whole, and is held once", async (t) => {
  const size = 256 * MIB;
  const attributes = imageAttributes({
    Rows: 8192,
    Columns: 16384,
    BitsAllocated: 16,
    BitsStored: 16,
    HighBit: 15,
  });
  const file = dicomFile({ transferSyntax: DEFLATED, attributes, pixels: Buffer.alloc(2) });
  const body = inflateRawSync(file.subarray(start)).subarray(0, -2);
  body.writeUInt32LE(size, body.length - 4);
  const begin = deflateRawSync(body, { finishFlush: constants.Z_FULL_FLUSH });
  const end = deflateRawSync(Buffer.alloc(16 * MIB, 5));
  const parts = [file.subarray(0, start), begin, ...Array.from({ length: 15 }, () => zeros), end];
  const long = Buffer.concat(parts);
  const before = peak();
  const frame = await (await readImage(long)).frame(0);
  t.ok(peak() - before < size * 1.6, "the data set, and the first attempt");
  t.equal(frame.length, size);
  t.equal(frame.indexOf(5), size - 16 * MIB);
  t.equal(frame.at(-1), 5);
});

t.test("a data set that unfolds without end is refused, in bounded memory", async (t) => {
  const head = dicomFile({ transferSyntax: DEFLATED, attributes: {} }).subarray(0, start);
  const bomb = Buffer.concat([head, ...Array.from({ length: 128 }, () => zeros)]);
  t.ok(bomb.length < 4 * MIB);
  const before = peak();
  await refuses(t, bomb, "unsupported_format", /unfolds to more than 536870912 bytes/, "2 GiB");
  t.ok(peak() - before < MAX_INFLATED_BYTES * 1.5, "the limit once, and the first attempt");
});

t.test("a zlib header is read, with a warning", async (t) => {
  const pixels = Buffer.alloc(16, 5);
  const file = dicomFile({ transferSyntax: DEFLATED, pixels });
  const body = inflateRawSync(file.subarray(start));
  const image = await readImage(Buffer.concat([file.subarray(0, start), deflateSync(body)]));
  t.strictSame(Buffer.from(await image.frame(0)), pixels);
  t.strictSame(warned(image), ["zlib_header"]);
});

t.test("bytes behind a deflated data set are damage, unless they fill up", async (t) => {
  const pixels = Buffer.alloc(16, 5);
  const file = dicomFile({ transferSyntax: DEFLATED, pixels });
  const body = inflateRawSync(file.subarray(start));
  const wrapped = Buffer.concat([file.subarray(0, start), deflateSync(body)]);
  for (const whole of [file, wrapped]) {
    const stray = Buffer.concat([whole, Buffer.from("stray")]);
    await refuses(t, stray, "corrupt_image", /ends 5 bytes before the file/, "letters");
    const end = Buffer.alloc(8);
    end.writeUInt32LE(crc32(body));
    end.writeUInt32LE(body.length, 4);
    const image = await readImage(Buffer.concat([whole, end]));
    t.strictSame(Buffer.from(await image.frame(0)), pixels, "the end of a gzip stream");
    end.writeUInt32LE((crc32(body) ^ 1) >>> 0);
    await refuses(t, Buffer.concat([whole, end]), "corrupt_image", /ends 8 bytes/, "another sum");
    for (const zeros of [1, 511]) {
      const image = await readImage(Buffer.concat([whole, Buffer.alloc(zeros)]));
      t.strictSame(Buffer.from(await image.frame(0)), pixels, `${zeros} zeros`);
    }
  }
});
