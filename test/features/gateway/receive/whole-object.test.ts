/** An object is whole or it is refused, wherever it was cut and however its bytes are cut up. */
import t from "tap";
import { RadserveError } from "../../../../src/base/errors.js";
import { WholeObject } from "../../../../src/features/gateway/receive/whole-object.js";

const EXPLICIT = "1.2.840.10008.1.2.1";
const IMPLICIT = "1.2.840.10008.1.2";
const BIG = "1.2.840.10008.1.2.2";
const RLE = "1.2.840.10008.1.2.5";
const LONG = /^(?:OB|OW|OF|OD|SQ|UN|UT)$/;

type Syntax = typeof EXPLICIT | typeof IMPLICIT | typeof BIG | typeof RLE;
const isBig = (syntax: Syntax) => syntax === BIG;

function numbers(syntax: Syntax, sizes: readonly (2 | 4)[], values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(sizes.reduce<number>((sum, size) => sum + size, 0));
  let at = 0;
  for (const [i, size] of sizes.entries()) {
    const value = values[i] ?? 0;
    if (isBig(syntax)) bytes.writeUIntBE(value, at, size);
    else bytes.writeUIntLE(value, at, size);
    at += size;
  }
  return bytes;
}

/** @param length as the header says it; that of the value if absent */
function element(
  syntax: Syntax,
  tag: number,
  vr: string,
  value: Buffer | number | string,
  length?: number,
): Buffer {
  const bytes: Buffer =
    typeof value === "number"
      ? numbers(syntax, [2], [value])
      : typeof value === "string"
        ? Buffer.from(value + (value.length % 2 === 1 ? " " : ""), "latin1")
        : value;
  const said = length ?? bytes.length;
  const name = numbers(syntax, [2, 2], [tag >>> 16, tag & 0xffff]);
  if (syntax === IMPLICIT) return Buffer.concat([name, numbers(syntax, [4], [said]), bytes]);
  const form = Buffer.from(vr, "latin1");
  const head = LONG.test(vr)
    ? Buffer.concat([form, Buffer.alloc(2), numbers(syntax, [4], [said])])
    : Buffer.concat([form, numbers(syntax, [2], [said])]);
  return Buffer.concat([name, head, bytes]);
}

const UNDEFINED = 0xffffffff;
const marker = (syntax: Syntax, number: number, length: number, value: Buffer = Buffer.alloc(0)) =>
  Buffer.concat([numbers(syntax, [2, 2, 4], [0xfffe, number, length]), value]);
const item = (syntax: Syntax, value: Buffer, length = value.length) =>
  marker(syntax, 0xe000, length, value);
const itemEnd = (syntax: Syntax) => marker(syntax, 0xe00d, 0);
const sequenceEnd = (syntax: Syntax) => marker(syntax, 0xe0dd, 0);

/** Sequences of both forms in one another, and what the image's length follows from. */
function head(syntax: Syntax, frames = 2): Buffer[] {
  const code = element(syntax, 0x00080100, "SH", "CODE");
  const inner = element(syntax, 0x0040a168, "SQ", item(syntax, code));
  const open = element(
    syntax,
    0x00081140,
    "SQ",
    Buffer.concat([
      item(syntax, Buffer.concat([inner, itemEnd(syntax)]), UNDEFINED),
      item(syntax, Buffer.alloc(0)),
      sequenceEnd(syntax),
    ]),
    UNDEFINED,
  );
  return [
    element(syntax, 0x00080016, "UI", "1.2.840.10008.5.1.4.1.1.2\0"),
    open,
    element(syntax, 0x00091010, "UN", Buffer.from([1, 2, 3, 4])),
    element(syntax, 0x00280002, "US", 1),
    element(syntax, 0x00280004, "CS", "MONOCHROME2"),
    element(syntax, 0x00280008, "IS", String(frames)),
    element(syntax, 0x00280010, "US", 4),
    element(syntax, 0x00280011, "US", 3),
    element(syntax, 0x00280100, "US", 16),
  ];
}

const native = (syntax: Syntax, bytes = 48, said?: number) =>
  Buffer.concat([...head(syntax), element(syntax, 0x7fe00010, "OW", Buffer.alloc(bytes, 7), said)]);
const encapsulated = (fragments: number, end = sequenceEnd(RLE), bytes = 10) =>
  Buffer.concat([
    ...head(RLE),
    element(
      RLE,
      0x7fe00010,
      "OB",
      Buffer.concat([
        item(RLE, Buffer.alloc(0)),
        ...Array.from({ length: fragments }, () => item(RLE, Buffer.alloc(bytes, 9))),
        end,
      ]),
      UNDEFINED,
    ),
  ]);

/** What is said of an object in pieces of so many bytes: `whole`, `odd`, or the refusal. */
function judged(syntax: Syntax, bytes: Buffer, each = bytes.length || 1): string {
  const walk = new WholeObject(syntax);
  try {
    for (let at = 0; at < bytes.length; at += each)
      walk.add(Buffer.from(bytes.subarray(at, at + each)));
    walk.end();
    return walk.isOdd ? "odd" : "whole";
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    const { attribute, found } = error.details ?? {};
    return `${error.code} ${String(attribute)}: ${String(found)}`;
  }
}

await t.test("a whole object is whole, in pieces of any length", (t) => {
  for (const syntax of [EXPLICIT, IMPLICIT, BIG] as const)
    for (const each of [1, 2, 7, 13, 1_000])
      t.equal(judged(syntax, native(syntax), each), "whole", `${syntax} by ${each}`);
  for (const each of [1, 7, 1_000]) t.equal(judged(RLE, encapsulated(2), each), "whole");
  t.equal(judged(RLE, encapsulated(5)), "whole", "frames of several fragments");
  t.equal(judged(EXPLICIT, native(EXPLICIT, 50)), "whole", "more than is needed");
  const padding = element(EXPLICIT, 0xfffcfffc, "OB", Buffer.alloc(30));
  t.equal(judged(EXPLICIT, Buffer.concat([native(EXPLICIT), padding])), "whole");
  t.end();
});

await t.test("one that was cut anywhere is refused", (t) => {
  const all: [Syntax, Buffer][] = [
    [EXPLICIT, native(EXPLICIT)],
    [IMPLICIT, native(IMPLICIT)],
    [BIG, native(BIG)],
    [RLE, encapsulated(2)],
  ];
  for (const [syntax, bytes] of all) {
    const missed: number[] = [];
    for (let length = 1; length < bytes.length; length++)
      if (!judged(syntax, bytes.subarray(0, length), 11).startsWith("truncated_image"))
        missed.push(length);
    t.same(missed, [], syntax);
  }
  t.end();
});

await t.test("what is missing is named", (t) => {
  const cases: [string, Syntax, Buffer, string][] = [
    ["pixels", EXPLICIT, native(EXPLICIT, 20, 48), "PixelData (7fe0,0010): 20 of 48 bytes"],
    ["fewer than the attributes say", EXPLICIT, native(EXPLICIT, 46), "PixelData: 46 of 48 bytes"],
    ["no pixels", EXPLICIT, Buffer.concat(head(EXPLICIT)), "PixelData: missing"],
    ["a frame", RLE, encapsulated(1), "PixelData: 1 fragments for 2 frames"],
    [
      "frames without bytes",
      RLE,
      encapsulated(2, undefined, 0),
      "PixelData: 0 fragments for 2 frames",
    ],
    ["the delimiter", RLE, encapsulated(2, Buffer.alloc(0)), "PixelData (7fe0,0010): no delimiter"],
  ];
  for (const [name, syntax, bytes, expected] of cases)
    t.ok(judged(syntax, bytes).startsWith(`truncated_image ${expected}`), name);
  t.end();
});

await t.test("what says no size of its pixels is refused by name", (t) => {
  const image = (leftOut: number, instead?: Buffer) =>
    Buffer.concat([
      ...[
        element(EXPLICIT, 0x00280002, "US", 1),
        element(EXPLICIT, 0x00280008, "IS", "1"),
        element(EXPLICIT, 0x00280010, "US", 4),
        element(EXPLICIT, 0x00280011, "US", 3),
        element(EXPLICIT, 0x00280100, "US", 16),
      ].flatMap((one) => {
        const isIt = one.readUInt16LE(2) === (leftOut & 0xffff);
        return isIt ? (instead ?? []) : one;
      }),
      element(EXPLICIT, 0x7fe00010, "OW", Buffer.alloc(48)),
    ]);
  t.equal(judged(EXPLICIT, image(0)), "whole");
  for (const [tag, name] of [
    [0x00280010, "Rows (0028,0010)"],
    [0x00280011, "Columns (0028,0011)"],
    [0x00280100, "BitsAllocated (0028,0100)"],
  ] as const) {
    t.equal(judged(EXPLICIT, image(tag)), `corrupt_image ${name}: missing`);
    t.equal(
      judged(EXPLICIT, image(tag, element(EXPLICIT, tag, "US", ""))),
      `corrupt_image ${name}: missing`,
    );
    t.equal(
      judged(EXPLICIT, image(tag, element(EXPLICIT, tag, "US", 0))),
      `corrupt_image ${name}: 0`,
    );
  }
  const none = image(0x00280002, element(EXPLICIT, 0x00280002, "US", 0));
  t.equal(judged(EXPLICIT, none), "corrupt_image SamplesPerPixel (0028,0002): 0");
  const frames = image(0x00280008, element(EXPLICIT, 0x00280008, "IS", "two"));
  t.equal(judged(EXPLICIT, frames), "corrupt_image NumberOfFrames (0028,0008): no whole number");
  t.end();
});

await t.test("what leads out of what holds it is refused", (t) => {
  const code = element(EXPLICIT, 0x00080100, "SH", "CODE");
  const cases: [string, Buffer][] = [
    ["an item", element(EXPLICIT, 0x00081140, "SQ", item(EXPLICIT, code, code.length + 8))],
    [
      "an element of an item",
      element(
        EXPLICIT,
        0x00081140,
        "SQ",
        item(EXPLICIT, element(EXPLICIT, 0x00080100, "SH", "CODE", 40)),
      ),
    ],
  ];
  for (const [name, sequence] of cases) {
    const [first, , ...rest] = head(EXPLICIT);
    const pixels = element(EXPLICIT, 0x7fe00010, "OW", Buffer.alloc(48));
    const bytes = Buffer.concat([first!, sequence, ...rest, pixels]);
    t.match(judged(EXPLICIT, bytes), /^corrupt_image .*leads out of it/, name);
  }
  let deep = code;
  for (let i = 0; i < 50; i++) deep = element(EXPLICIT, 0x00081140, "SQ", item(EXPLICIT, deep));
  t.match(judged(EXPLICIT, deep), /^corrupt_image .*nested deeper/);
  t.end();
});

await t.test("what is only odd is left to the reader", (t) => {
  const zeros = Buffer.concat([native(EXPLICIT), Buffer.alloc(20)]);
  t.equal(judged(EXPLICIT, zeros, 9), "odd", "zeros behind the pixels");
  t.equal(judged(EXPLICIT, native(IMPLICIT)), "odd", "another syntax than was agreed");
  t.equal(judged(IMPLICIT, native(EXPLICIT)), "odd");
  t.equal(judged(EXPLICIT, native(BIG)), "odd");
  const stray = Buffer.concat([...head(EXPLICIT).slice(0, 1), item(EXPLICIT, Buffer.alloc(0))]);
  t.equal(judged(EXPLICIT, stray), "odd");
  t.end();
});

await t.test("one bit a pixel, samples and subsampled colour have their own lengths", (t) => {
  const image = (samples: number, colour: string, bits: number, bytes: number) =>
    Buffer.concat([
      element(EXPLICIT, 0x00280002, "US", samples),
      element(EXPLICIT, 0x00280004, "CS", colour),
      element(EXPLICIT, 0x00280010, "US", 5),
      element(EXPLICIT, 0x00280011, "US", 4),
      element(EXPLICIT, 0x00280100, "US", bits),
      element(EXPLICIT, 0x7fe00010, "OB", Buffer.alloc(bytes)),
    ]);
  const cases: [number, string, number, number][] = [
    [1, "MONOCHROME2", 1, 4],
    [1, "MONOCHROME2", 8, 20],
    [3, "RGB", 8, 60],
    [3, "YBR_FULL_422", 8, 40],
    [1, "MONOCHROME2", 32, 80],
  ];
  for (const [samples, colour, bits, bytes] of cases) {
    t.equal(judged(EXPLICIT, image(samples, colour, bits, bytes)), "whole");
    const less = judged(EXPLICIT, image(samples, colour, bits, bytes - 2));
    t.match(less, /^truncated_image PixelData/, `${colour} of ${bits} bits`);
  }
  t.end();
});
