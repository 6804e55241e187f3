import { constants, deflateRawSync, deflateSync, inflateRawSync } from "node:zlib";
import t from "tap";
import { MAX_INFLATED_BYTES } from "../../src/dicom/file.js";
import { readImage } from "../../src/read.js";
import { DEFLATED, dicomFile, imageAttributes } from "../support/dicom.js";
import { refuses, warned } from "../support/expect.js";

const MIB = 1 << 20;
/** Bytes before the deflate stream: an empty one is two bytes long. */
const start = dicomFile({ transferSyntax: DEFLATED, attributes: {} }).length - 2;
const peak = () => process.resourceUsage().maxRSS * 1024;

t.test("a data set that unfolds without end is refused, in bounded memory", async (t) => {
  const head = dicomFile({ transferSyntax: DEFLATED, attributes: {} }).subarray(0, start);
  const zeros = deflateRawSync(Buffer.alloc(16 * MIB), { finishFlush: constants.Z_FULL_FLUSH });
  const bomb = Buffer.concat([head, ...Array.from({ length: 128 }, () => zeros)]);
  t.ok(bomb.length < 4 * MIB);
  const before = peak();
  await refuses(t, bomb, "unsupported_format", /unfolds to more than 536870912 bytes/, "2 GiB");
  t.ok(peak() - before < MAX_INFLATED_BYTES * 1.5, "the limit once, and the first attempt");
});

t.test("a long data set unfolds whole", async (t) => {
  const attributes = imageAttributes({
    Rows: 8192,
    Columns: 10240,
    BitsAllocated: 8,
    BitsStored: 8,
    HighBit: 7,
  });
  const pixels = Buffer.alloc(80 * MIB, 5);
  pixels[pixels.length - 1] = 6;
  const image = await readImage(dicomFile({ transferSyntax: DEFLATED, attributes, pixels }));
  t.equal(Buffer.compare(await image.frame(0), pixels), 0);
});

t.test("a zlib header is read, with a warning", async (t) => {
  const pixels = Buffer.alloc(16, 5);
  const file = dicomFile({ transferSyntax: DEFLATED, pixels });
  const body = inflateRawSync(file.subarray(start));
  const image = await readImage(Buffer.concat([file.subarray(0, start), deflateSync(body)]));
  t.strictSame(Buffer.from(await image.frame(0)), pixels);
  t.strictSame(warned(image), ["zlib_header"]);
});
