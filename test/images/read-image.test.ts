import { open, truncate } from "node:fs/promises";
import path from "node:path";
import t from "tap";
import { openInput } from "../../src/files/guarded-paths.js";
import { sha256 } from "../../src/files/durable-files.js";
import { checkFileSize, MAX_FILE_BYTES } from "../../src/files/descriptor.js";
import { isDicom } from "../../src/images/dicom/dicom-file.js";
import { readImage, SNIFF_BYTES, sniffFormat } from "../../src/images/read-image.js";
import { readInput } from "../../src/inference/read-input.js";
import {
  BIG_ENDIAN,
  CT,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
  RLE,
  SYNTAXES,
} from "../support/dicom.js";
import { refuses } from "../support/expect.js";

const pixels = Buffer.alloc(16, 5);

/** A native image of `mebibytes` MiB, its zeros not on disk. */
async function sparseFile(folder: string, mebibytes: number): Promise<string> {
  const size = mebibytes * 2 ** 20;
  const file = path.join(folder, `${mebibytes}.dcm`);
  const attributes = imageAttributes({
    Rows: 1024 * 8,
    Columns: mebibytes * 64,
    BitsAllocated: 16,
    BitsStored: 16,
    HighBit: 15,
  });
  const bytes = dicomFile({ attributes, pixels });
  const start = bytes.length - pixels.length;
  bytes.writeUInt32LE(size, start - 4);
  const handle = await open(file, "w");
  await handle.writeFile(bytes);
  await handle.close();
  await truncate(file, start + size);
  return file;
}

t.test("a file is held once", async (t) => {
  const input = await openInput(await sparseFile(t.testdir(), 256), undefined);
  t.teardown(() => input.close());
  const before = process.resourceUsage().maxRSS;
  const image = await readInput(input);
  const frame = await image.frame(0);
  t.equal(frame.length, 256 * 2 ** 20);
  t.equal(frame[0], 5);
  t.equal(frame.at(-1), 0);
  t.ok(process.resourceUsage().maxRSS - before < 384 * 1024, "less than half of it besides");
});

t.test("a file longer than what is read is refused before it is read", async (t) => {
  checkFileSize(MAX_FILE_BYTES);
  t.throws(
    () => {
      checkFileSize(MAX_FILE_BYTES + 1);
    },
    { code: "unsupported_format", message: /2,147,483,647 bytes; found 2,147,483,648/ },
  );
  const input = await openInput(await sparseFile(t.testdir(), 2048), undefined);
  t.teardown(() => input.close());
  const before = process.resourceUsage().maxRSS;
  await t.rejects(readInput(input), {
    code: "unsupported_format",
    message: /at most 2,147,483,647 bytes/,
  });
  t.ok(process.resourceUsage().maxRSS - before < 64 * 1024);
});

t.test("DICOM is recognised by its content", (t) => {
  for (const transferSyntax of [IMPLICIT, EXPLICIT, BIG_ENDIAN])
    for (const preamble of [true, false])
      for (const meta of [true, false]) {
        const head = dicomFile({ transferSyntax, preamble, meta, pixels }).subarray(0, SNIFF_BYTES);
        t.ok(isDicom(head), `${transferSyntax} ${preamble} ${meta}`);
        t.equal(sniffFormat(head), "dicom");
      }
  const others = [
    "",
    "hello, world, this is no image",
    "%PDF-1.7 and so on and so on",
    '{"json": true}',
    "\0\0\0\0\0\0\0\0\0\0",
    "GIF89a...........",
  ];
  for (const text of others) t.notOk(isDicom(Buffer.from(text)), text);
  t.end();
});

t.test("a DICOM file whose preamble is a TIFF header is DICOM", async (t) => {
  const file = dicomFile({ pixels });
  file.write("II*\0", 0, "latin1");
  t.equal((await readImage(file)).source.format, "dicom");
});

t.test("what cannot be read", async (t) => {
  await refuses(t, Buffer.alloc(0), "unsupported_format", /empty/, "empty");
  await refuses(
    t,
    Buffer.from("GIF89a, an animated picture of a cat"),
    "unsupported_format",
    /PNG, JPEG or TIFF/,
    "GIF",
  );
  const named: [string, RegExp][] = [
    ["1.2.840.10008.1.2.4.100", /MPEG2/],
    ["1.2.840.10008.1.2.4.102", /H\.264/],
    ["1.2.840.10008.1.2.4.94", /JPIP/],
    ["1.2.840.10008.1.2.4.107", /HEVC/],
    ["1.2.3.4.5.6", /1\.2\.3\.4\.5\.6/],
  ];
  for (const [transferSyntax, message] of named)
    await refuses(
      t,
      dicomFile({ transferSyntax, pixels: { fragments: [pixels] } }),
      "unsupported_transfer_syntax",
      message,
      transferSyntax,
    );
  const objects: [string, RegExp][] = [
    ["1.2.840.10008.5.1.4.1.1.104.1", /Encapsulated PDF/],
    ["1.2.840.10008.5.1.4.1.1.88.33", /SR/],
    ["1.2.840.10008.5.1.4.1.1.481.3", /RT Structure Set/],
    [CT, /CT/],
  ];
  for (const [SOPClassUID, message] of objects)
    await refuses(
      t,
      dicomFile({ attributes: imageAttributes({ SOPClassUID }) }),
      "no_pixel_data",
      message,
      SOPClassUID,
    );
});

t.test("native pixels of undefined length are damage, not an object without pixels", async (t) => {
  const whole = dicomFile({ pixels });
  const endless = Buffer.from(whole);
  // The length stands before the pixels, which are last in the file
  endless.writeUInt32LE(0xffffffff, whole.length - pixels.length - 4);
  await refuses(t, endless, "corrupt_image", /PixelData has an undefined length/, "explicit");
  const items = dicomFile({ transferSyntax: RLE, pixels: { fragments: [] } });
  await refuses(t, items, "corrupt_image", /./, "no fragments");
});

t.test("identity of the source", async (t) => {
  const image = await readImage(
    dicomFile({
      attributes: imageAttributes({
        StudyInstanceUID: "1.2.3",
        SeriesInstanceUID: "1.2.3.4",
        SOPClassUID: CT,
        Modality: "CT",
      }),
      pixels,
    }),
  );
  t.match(image.source, {
    format: "dicom",
    sopClassUid: CT,
    sopInstanceUid: "1.2.3.4.5",
    studyInstanceUid: "1.2.3",
    seriesInstanceUid: "1.2.3.4",
    transferSyntaxUid: EXPLICIT,
    modality: "CT",
  });
  t.match(image.source.fileSha256, /^[0-9a-f]{64}$/);
});

t.test(
  "the hash is that of the file, also where it is asked for after its bytes were freed",
  async (t) => {
    const large = imageAttributes({ Rows: 512, Columns: 512 });
    const made = () => dicomFile({ attributes: large, pixels: Buffer.alloc(512 * 512, 7) });
    const expected = sha256(made());
    for (const decoded of [false, true]) {
      const bytes = new Uint8Array(made());
      const image = await readImage(bytes);
      if (decoded) await image.frame(0);
      image.release?.();
      t.equal(bytes.length, 0, "they are gone");
      t.equal(image.source.fileSha256, expected);
    }
  },
);

t.test(
  "compressed pixels under an uncompressed transfer syntax, and the other way round",
  async (t) => {
    const plain = await readImage(dicomFile({ transferSyntax: SYNTAXES.jpeg2000, pixels }));
    t.strictSame(Buffer.from(await plain.frame(0)), pixels);
    t.match(plain.warnings, [{ code: "not_encapsulated" }]);
  },
);
