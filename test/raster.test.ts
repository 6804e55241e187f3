import sharp from "sharp";
import t from "tap";
import type { Image } from "../src/image.js";
import { readImage } from "../src/read.js";
import { refuses, warned } from "./support/expect.js";

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
