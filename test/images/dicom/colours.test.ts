/**
 * Colours about which attribute and codestream contradict each other: the values decide, or the
 * file is refused.
 */
import { readFileSync } from "node:fs";
import t from "tap";
import type { PixelFormat } from "../../../src/images/image.js";
import { ColourValues } from "../../../src/images/dicom/colour-values.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  attributesOf,
  compress,
  dicomFile,
  EXPLICIT,
  random,
  SYNTAXES,
  type Attributes,
  type Coder,
  type Raw,
} from "../../support/dicom.js";
import { warned } from "../../support/expect.js";
import { DICOM_FILES, needs } from "../../support/needs.js";

type Colour = readonly [number, number, number];
type Reading = "RGB" | "YBR_FULL";

const SIDE = 64;

/** PS3.3 C.7.6.3.1.2, and back. */
const ybrOf = ([r, g, b]: Colour): Colour => {
  const y = 0.299 * r + 0.587 * g + 0.114 * b;
  return [y, 128 + (b - y) / 1.772, 128 + (r - y) / 1.402];
};
const rgbOf = ([y, b, r]: Colour): Colour => [
  y + 1.402 * (r - 128),
  y - 0.344136 * (b - 128) - 0.714136 * (r - 128),
  y + 1.772 * (b - 128),
];

const level = (value: number) => Math.min(255, Math.max(0, Math.round(value)));

function rawOf(rgb: readonly Colour[], reading: Reading, columns = SIDE): Raw {
  const pixels = reading === "RGB" ? rgb : rgb.map(ybrOf);
  return {
    rows: rgb.length / columns,
    columns,
    samples: 3,
    bitsAllocated: 8,
    bitsStored: 8,
    data: Uint8Array.from({ length: 3 * pixels.length }, (_, i) =>
      level(pixels[Math.floor(i / 3)]?.[i % 3] ?? 0),
    ),
  };
}

/** Pixels that `at` draws; noise is the same for the three. */
function drawn(at: (x: number, y: number, noise: number) => Colour): Colour[] {
  const next = random(7);
  return Array.from({ length: SIDE * SIDE }, (_, i) =>
    at(i % SIDE, Math.floor(i / SIDE), next() - 0.5),
  );
}

const grey = (value: number): Colour => [value, value, value];
const shaded = ([r, g, b]: Colour, light: number): Colour => [r * light, g * light, b * light];

/** Pictures as they come, and a Doppler one. */
const TOLD: Record<string, Colour[]> = {
  "a grey ultrasound": drawn((x, y, noise) =>
    grey((x - 32) ** 2 + (y - 70) ** 2 < 3600 ? 60 + 80 * noise : 0),
  ),
  "a Doppler ultrasound": drawn((x, y, noise) =>
    (x - 30) ** 2 + (y - 40) ** 2 < 60 ? [200 + 40 * noise, 40, 20] : grey(50 + 90 * noise),
  ),
  "an endoscopy": drawn((x, y, noise) =>
    shaded([220, 110, 80], Math.max(0, 1 - ((x - 32) ** 2 + (y - 32) ** 2) / 1500 + 0.2 * noise)),
  ),
  "a stained tissue": drawn((x, y, noise) =>
    (x >> 3) % 3 === (y >> 3) % 3
      ? shaded([110, 60, 140], 1 + 0.5 * noise)
      : shaded([230, 180, 220], 1 + 0.2 * noise),
  ),
  "a photograph": drawn((x, y, noise) =>
    shaded(y < 24 ? [150, 180, 220] : [90, 120, 60], 0.1 + x / 60 + 0.3 * noise),
  ),
  black: drawn(() => grey(0)),
  white: drawn(() => grey(255)),
  "a low grey": drawn((_, y) => grey(20 + y / 16)),
};

function fileOf(
  raw: Raw,
  tag: string,
  transferSyntax: string,
  frames: Uint8Array[] | undefined,
): Buffer {
  const attributes: Attributes = { PhotometricInterpretation: tag };
  if (frames !== undefined && frames.length > 1) attributes["NumberOfFrames"] = frames.length;
  return dicomFile({
    transferSyntax,
    attributes: attributesOf(raw, attributes),
    pixels: frames === undefined ? raw.data : { fragments: frames.map((one) => Buffer.from(one)) },
  });
}

/** The comparison of tap shows what it compares, which takes long. */
const same = (a: Uint8Array, b: Uint8Array) => Buffer.compare(a, b) === 0;

/**
 * With an Adobe marker behind SOI in place of its own, whose last byte names the transform: 0 is
 * none, 1 is YBR.
 */
function marked(jpeg: Uint8Array, transform: number): Buffer {
  const name = Buffer.from("Adobe");
  const own = Buffer.from(jpeg).indexOf(name);
  if (own >= 0) return Buffer.from(jpeg.with(own + 11, transform));
  const marker = Buffer.from([0xff, 0xee, 0, 14, ...name, 0, 100, 0, 0, 0, 0, transform]);
  return Buffer.concat([jpeg.subarray(0, 2), marker, jpeg.subarray(2)]);
}

/** Files whose attribute and codestream contradict each other over these components. */
async function contradictory(raw: Raw): Promise<Record<string, Buffer>> {
  const coded = async (coder: Coder) => compress(coder, raw, 0, false);
  const [j2k, ls, lossless, rle] = [
    await coded("jpeg2000"),
    await coded("jpeg-ls"),
    await coded("jpeg-lossless"),
    await coded("rle"),
  ];
  const transformed = await compress("jpeg2000", raw);
  const ht = await coded("htj2k");
  const xl = await coded("jpeg-xl");
  const files: [string, string, Coder | "native", Uint8Array | undefined][] = [
    ["JPEG 2000 without a transform, YBR_ICT", "YBR_ICT", "jpeg2000", j2k],
    ["JPEG 2000 without a transform, YBR_RCT", "YBR_RCT", "jpeg2000", j2k],
    ["JPEG 2000 with a transform, YBR_FULL", "YBR_FULL", "jpeg2000", transformed],
    ["HTJ2K with a transform, YBR_FULL", "YBR_FULL", "htj2k", ht],
    ["HTJ2K with a transform, YBR_FULL_422", "YBR_FULL_422", "htj2k", ht],
    ["JPEG XL, YBR_FULL", "YBR_FULL", "jpeg-xl", xl],
    ["JPEG XL, YBR_FULL_422", "YBR_FULL_422", "jpeg-xl", xl],
    ["JPEG-LS, YBR_ICT", "YBR_ICT", "jpeg-ls", ls],
    ["JPEG-LS, YBR_RCT", "YBR_RCT", "jpeg-ls", ls],
    ["JPEG, marked as YBR, RGB", "RGB", "jpeg-lossless", marked(lossless, 1)],
    ["JPEG, marked as RGB, YBR_FULL", "YBR_FULL", "jpeg-lossless", marked(lossless, 0)],
    ["JPEG, marked as RGB, YBR_RCT", "YBR_RCT", "jpeg-lossless", marked(lossless, 0)],
    ["JPEG, marked as YBR, YBR_ICT", "YBR_ICT", "jpeg-lossless", marked(lossless, 1)],
    ["RLE, YBR_ICT", "YBR_ICT", "rle", rle],
    ["RLE, YBR_FULL_422", "YBR_FULL_422", "rle", rle],
    ["native, YBR_RCT", "YBR_RCT", "native", undefined],
    ["native with full samples, YBR_FULL_422", "YBR_FULL_422", "native", undefined],
  ];
  return Object.fromEntries(
    files.map(([name, tag, coder, bytes]) => [
      name,
      fileOf(
        raw,
        tag,
        coder === "native" ? EXPLICIT : SYNTAXES[coder],
        bytes === undefined ? undefined : [bytes],
      ),
    ]),
  );
}

/**
 * HTJ2K of these components without a transform. The encoder always has one: it is given what the
 * reversible one makes them of (ITU-T T.800 annex G.2), and the mark of the transform is taken out.
 */
async function untransformed(raw: Raw): Promise<Buffer> {
  const data = raw.data.slice();
  for (let i = 0; i < data.length; i += 3) {
    const [luminance = 0, blue = 0, red = 0] = raw.data.subarray(i, i + 3);
    const green = luminance - Math.floor((blue + red - 256) / 4);
    const colour = [red - 128 + green, green, blue - 128 + green];
    if (colour.some((value) => value < 0 || value > 255)) throw new RangeError("8 bits");
    data.set(colour, i);
  }
  const coded = Buffer.from(await compress("htj2k", { ...raw, data }));
  const codingStyle = coded.indexOf(Buffer.from([0xff, 0x52]));
  coded[codingStyle + 8] = 0;
  return coded;
}

const UNKNOWN = { code: "corrupt_image", message: /the colours are not known/ };

t.test("pictures are read as what they are, whatever contradicts it", async (t) => {
  for (const [name, picture] of Object.entries(TOLD))
    for (const reading of ["RGB", "YBR_FULL"] as const) {
      const raw = rawOf(picture, reading);
      for (const [how, file] of Object.entries(await contradictory(raw))) {
        const image = await readImage(file);
        const title = `${name} of ${reading}: ${how}`;
        t.equal(image.format.photometricInterpretation, reading, title);
        t.ok(same(await image.frame(0), raw.data), title);
        const [warning, ...others] = image.warnings;
        t.equal(warning?.code, "photometric_mismatch", title);
        t.match(warning?.message, `taken as ${reading} by their values: `, title);
        t.strictSame(others, [], title);
      }
    }
});

t.test("HTJ2K without a transform", async (t) => {
  // The transform leaves 8 bits where colours are strong
  const greys = TOLD["a grey ultrasound"]!.map(([value]): Colour => {
    const lighter = value / 2 + 60;
    return [lighter, lighter, lighter];
  });
  const pictures: [string, Colour[], Reading][] = [
    ["grey", greys, "RGB"],
    ["grey", greys, "YBR_FULL"],
    ["an endoscopy", TOLD["an endoscopy"]!, "YBR_FULL"],
  ];
  for (const [name, colours, reading] of pictures) {
    const raw = rawOf(colours, reading);
    const coded = await untransformed(raw);
    for (const tag of ["YBR_ICT", "YBR_RCT", "RGB", "YBR_FULL"]) {
      const title = `${name} of ${reading}: ${tag}`;
      const image = await readImage(fileOf(raw, tag, SYNTAXES.htj2k, [coded]));
      t.ok(same(await image.frame(0), raw.data), title);
      const isTold = tag === "YBR_ICT" || tag === "YBR_RCT";
      t.equal(image.format.photometricInterpretation, isTold ? reading : tag, title);
      t.strictSame(warned(image), isTold ? ["photometric_mismatch"] : [], title);
    }
  }
});

t.test("where the values do not tell, the file is refused by name", async (t) => {
  const untold: Record<string, Colour> = {
    "one colour": [180, 110, 150],
    "middle grey": [128, 128, 128],
  };
  for (const [name, colour] of Object.entries(untold))
    for (const [how, file] of Object.entries(
      await contradictory(
        rawOf(
          drawn(() => colour),
          "RGB",
        ),
      ),
    ))
      await t.rejects(readImage(file), UNKNOWN, `${name}: ${how}`);
});

t.test("all frames decide together, and are alike", async (t) => {
  for (const reading of ["RGB", "YBR_FULL"] as const) {
    const raw = rawOf(TOLD["a photograph"]!, reading);
    const blank = rawOf(TOLD["black"]!, reading);
    const frames = [blank, blank, raw].map(({ data }) => data);
    const coded = await Promise.all(
      frames.map((data) => compress("jpeg2000", { ...raw, data }, 0, false)),
    );
    const image = await readImage(fileOf(raw, "YBR_ICT", SYNTAXES.jpeg2000, coded));
    t.equal(image.format.photometricInterpretation, reading);
    for (const [i, data] of frames.entries()) t.ok(same(await image.frame(i), data));
    t.equal(image.warnings.length, 1);
  }
});

t.test("what agrees is not looked at", async (t) => {
  const one = drawn((): Colour => [180, 110, 150]);
  const raw = rawOf(one, "RGB");
  const plain = await compress("jpeg2000", raw, 0, false);
  for (const tag of ["RGB", "YBR_FULL"]) {
    const image = await readImage(fileOf(raw, tag, SYNTAXES.jpeg2000, [plain]));
    t.equal(image.format.photometricInterpretation, tag);
    t.strictSame(image.warnings, []);
  }
});

const FILES = [
  "ebe-us-rgb-planar",
  "ele-sc-ybr-full",
  "htj2k201-rgb",
  "j2k90-jp2-header",
  "j2k90-us-ybr-rct",
  "j2k91-us-ybr-ict",
  "jls80-sc-rgb-line-no-preamble",
  "jpeg50-sc-rgb-no-transform",
  "jpeg50-sc-ybr-3x3",
  "jpeg50-sm-camelyon-15tile",
  "jpeg50-us-ybr422-30frame",
  "jpeg70-us-rgb-2frame",
];

/** Synthetic pictures of bars and blocks whose components as YBR_FULL nothing tells from RGB. */
const REFUSED = [
  "ebe-us-rgb-planar YBR_FULL",
  "ele-sc-ybr-full YBR_FULL",
  "j2k90-jp2-header RGB",
  "j2k90-jp2-header YBR_FULL",
  "jpeg50-sc-ybr-3x3 RGB",
  "jpeg50-sc-ybr-3x3 YBR_FULL",
];

t.test("real pictures, as both", { skip: needs(DICOM_FILES) }, async (t) => {
  const refused: string[] = [];
  for (const name of FILES) {
    const image = await readImage(readFileSync(`../shared/dicom/${name}.dcm`));
    const { rows, columns, photometricInterpretation: own } = image.format;
    const data = await image.frame(0);
    const pixels = Array.from({ length: rows * columns }, (_, i): Colour => {
      const [a = 0, b = 0, c = 0] = data.subarray(3 * i, 3 * i + 3);
      return own === "RGB" ? [a, b, c] : rgbOf([a, b, c]);
    });
    for (const reading of ["RGB", "YBR_FULL"] as const) {
      const raw = rawOf(pixels, reading, columns);
      const file = fileOf(raw, "YBR_ICT", EXPLICIT, undefined);
      const found = await readImage(file).then(
        ({ format }) => format.photometricInterpretation,
        (error: unknown) => (error as { code: string }).code,
      );
      if (found === "corrupt_image") refused.push(`${name} ${reading}`);
      else t.equal(found, reading, name);
    }
  }
  t.strictSame(refused, REFUSED);
});

const CASE = "../shared/cases/2026-11-28/inputs/j2k-ybr-ict-no-mct-is-rgb";

t.test("the ultrasound of the field is grey", { skip: needs(CASE) }, async (t) => {
  const image = await readImage(readFileSync(`${CASE}/ict_nomct_rev_YBR_ICT.dcm`));
  const other = await readImage(readFileSync(`${CASE}/ict_nomct_rev_RGB.dcm`));
  t.equal(image.format.photometricInterpretation, "RGB");
  t.ok(same(await image.frame(0), await other.frame(0)));
});

t.test("bits beyond eight are scaled", (t) => {
  const format: PixelFormat = {
    rows: 1,
    columns: 2,
    samplesPerPixel: 3,
    bitsAllocated: 16,
    bitsStored: 12,
    highBit: 11,
    signed: false,
    float: false,
    photometricInterpretation: "RGB",
    packed422: false,
  };
  const told = (values: number[]) => {
    const found = new ColourValues();
    found.add(new Uint8Array(Uint16Array.from(values).buffer), format);
    return found.told()?.colour;
  };
  t.equal(told([100, 100, 100, 3900, 3900, 3900]), "RGB");
  t.equal(told([100, 2056, 2056, 3900, 2056, 2056]), "YBR_FULL");
  t.end();
});
