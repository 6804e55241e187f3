/** What is told by name: taken with a warning, or refused with what to do. */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import t from "tap";
import { volumeOf } from "../../src/images/dicom/volume.js";
import { knownFormat } from "../../src/images/known-formats.js";
import { readImage } from "../../src/images/read-image.js";
import { isQuadruped } from "../../src/images/dicom/species.js";
import { edgesOf, sidesOf } from "../../src/results/findings/edges.js";
import { statedSides } from "../../src/results/findings/sides.js";
import {
  attributesOf,
  dicomFile,
  imageAttributes,
  Typed,
  type Attributes,
} from "../support/dicom.js";
import { failure, warned } from "../support/expect.js";
import { needs } from "../support/needs.js";
import { multiFrame, readFolder } from "../support/series.js";

const CASES = resolve("../shared/cases/2026-11-28/inputs");
const MG = "1.2.840.10008.5.1.4.1.1.1.2";

const grey = (attributes: Attributes, pixels: Uint8Array = Buffer.alloc(16)) =>
  readImage(dicomFile({ attributes: imageAttributes(attributes), pixels }));

t.test("PixelAspectRatio decides nothing beside a spacing", async (t) => {
  for (const keyword of ["PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"])
    for (const ratio of ["01", "1\\2\\3", "x\\1"]) {
      const image = await grey({ [keyword]: "0.1\\0.2", PixelAspectRatio: ratio });
      t.match(image.warnings, [{ code: "value_ignored", message: /^PixelAspectRatio/ }], ratio);
      t.equal(image.pixelAspect(0), 0.5);
    }
  for (const spacing of [{}, { PixelSpacing: "" }, { PixelSpacing: "0\\0" }])
    t.match(await failure(grey({ ...spacing, PixelAspectRatio: "01" })), { code: "corrupt_image" });
});

t.test("frames with one position for all", async (t) => {
  const place = { ImagePositionPatient: "0\\0\\1" };
  const shared = {
    PlanePositionSequence: [place],
    PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
    PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.8" }],
  };
  const files = [
    multiFrame([undefined, undefined, undefined], place),
    multiFrame([undefined, undefined], { SharedFunctionalGroupsSequence: [shared] }),
  ];
  for (const file of files) {
    const image = await readImage(file);
    t.throws(() => volumeOf(image), {
      code: "series_invalid",
      message: /a position for each frame .*, found one ImagePositionPatient for all/,
      details: { reason: "missing_frame_positions", frames: image.frameCount },
    });
  }
});

const head = (text: string, length = 400) =>
  Buffer.concat([Buffer.from(text, "latin1"), Buffer.alloc(Math.max(0, length - text.length))]);

const FORMATS: [string, Buffer, RegExp][] = [
  ["heic", head("\0\0\0\x18ftypheic\0\0\0\0mif1heic"), /Convert it to JPEG/],
  ["heic", head("\0\0\0\x18ftypmif1\0\0\0\0"), /Convert it to JPEG/],
  ["avif", head("\0\0\0\x1cftypavif"), /Convert/],
  ["raw", head("\0\0\0\x18ftypcrx "), /camera raw/],
  ["raw", head("FUJIFILMCCD-RAW 0201"), /camera raw/],
  ["film", head("\0\0\0\x18ftypisom"), /Send its frames/],
  ["film", head("\0\0\0\x14ftypqt  "), /QuickTime/],
  ["film", head("RIFF\x24\0\0\0AVI LIST"), /AVI/],
  ["webp", head("RIFF\x24\0\0\0WEBPVP8 "), /WebP/],
  ["gif", head("GIF89a"), /GIF/],
  ["bmp", head("BM\x36\x10\0\0\0\0\0\0"), /BMP/],
  ["jpeg2000", head("\0\0\0\x0cjP  \r\n\x87\n"), /JPEG 2000/],
  ["jpeg2000", head("\xff\x4f\xff\x51"), /JPEG 2000/],
  ["jpegxl", head("\xff\x0a"), /JPEG XL/],
  ["nifti", head("\x5c\x01\0\0"), /DICOM series that it was made of/],
  ["nifti", head("\0\0\x02\x1cn+2\0\r\n\x1a\n"), /NIfTI/],
  ["nrrd", head("NRRD0004\n"), /NRRD/],
  ["minc", head("\x89HDF\r\n\x1a\n"), /HDF5/],
  ["zip", head("PK\x03\x04\x14\0\0\0\x08\0"), /Unpack it/],
  ["gzip", gzipSync(Buffer.alloc(2000, "a")), /gunzip/],
  ["lz4", head("\x04\x22\x4d\x18\x64\x40"), /LZ4 file.*Unpack/],
  ["lzip", head("LZIP\x01\x0c"), /Unpack/],
  ["lzop", head("\x89LZO\0\r\n\x1a\n"), /Unpack/],
  ["compress", head("\x1f\x9d\x90"), /Unpack/],
  ["lzma", head("\x5d\0\0\x80\0\xff\xff"), /Unpack/],
  ["cab", head("MSCF\0\0\0\0"), /Unpack/],
  ["ar", head("!<arch>\n"), /Unpack/],
  ["cpio", head("070701"), /Unpack/],
  ["exr", head("\x76\x2f\x31\x01\x02"), /OpenEXR.*Convert it/],
  ["hdr", head("#?RADIANCE\n"), /Convert it/],
  ["jpegxr", head("II\xbc\x01"), /Convert it/],
  ["dds", head("DDS |"), /Convert it/],
  ["pnm", head("P5\n# made by hand\n4 4 255\n"), /Convert it/],
  ["ico", head("\0\0\x01\0\x01\0"), /Convert it/],
  ["jbig2", head("\x97JB2\r\n\x1a\n"), /Convert it/],
  ["djvu", head("AT&TFORM"), /Convert it/],
  ["fits", head("SIMPLE  =                    T"), /DICOM series/],
  ["matlab", head("MATLAB 5.0 MAT-file, Platform"), /DICOM series/],
  ["numpy", head("\x93NUMPY\x01\0"), /DICOM series/],
  ["ecat", head("MATRIX72v"), /DICOM series/],
  ["vtk", head("# vtk DataFile Version 3.0"), /DICOM series/],
  ["mrc", head(`${"\0".repeat(208)}MAP DA`), /DICOM series/],
  [
    "svg",
    head('<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg">'),
    /SVG.*Convert it/,
  ],
  ["pcx", head("\n\x05\x01\x08"), /Convert it/],
  ["sgi", head("\x01\xda\x01\x01\0\x03"), /Convert it/],
  ["czi", head("ZISRAWFILE"), /Convert it/],
  ["mgh", head("\0\0\0\x01\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\x01\0\0\0\x03"), /DICOM series/],
  ["par", head("# === DATA DESCRIPTION FILE ==="), /DICOM series/],
  ["dicom_json", head('[{ "00080018": {}'), /JSON.*Send the images themselves/],
  ["dicom_xml", head('<?xml version="1.0"?><NativeDicomModel>'), /Send the images themselves/],
  ["rtf", head("{\\rtf1"), /Send the images themselves/],
  ["postscript", head("%!PS-Adobe-3.0"), /Send the images themselves/],
  ["bzip2", head("BZh91AY&SY"), /Unpack/],
  ["xz", head("\xfd7zXZ\0"), /Unpack/],
  ["zstd", head("\x28\xb5\x2f\xfd"), /Unpack/],
  ["7z", head("7z\xbc\xaf\x27\x1c"), /Unpack/],
  ["rar", head("Rar!\x1a\x07\x01\0"), /Unpack/],
  ["tar", head(`${"scan.dcm".padEnd(257, "\0")}ustar\x0000`, 512), /Unpack/],
  ["pdf", head("%PDF-1.7\n"), /Send the images themselves/],
  ["office", head(`PK\x03\x04${"\0".repeat(26)}[Content_Types].xml`), /office document/],
  ["office", head("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), /office document/],
];

t.test("formats that are not read are named", async (t) => {
  for (const [format, bytes, advice] of FORMATS) {
    const error = await failure(readImage(bytes));
    t.equal(error.code, "unsupported_format", format);
    t.match(error.details, { format, supported: ["dicom", "png", "jpeg", "tiff"] });
    t.match(error.message, /^The file is an? .*, which is not read\. [A-Z]/);
    t.match(error.message, advice, format);
  }
  for (const text of [
    "read me",
    "P1 is the first patient",
    '{"Modality": "MR"}',
    "<html><svg>",
    "SIMPLE",
    "MATRIX",
  ])
    t.equal(knownFormat(Buffer.from(text)), undefined, text);
  t.equal(knownFormat(Buffer.alloc(0)), undefined);
});

t.test("private compression is named", async (t) => {
  const attributes = imageAttributes({
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.2",
    Modality: "CT",
    "07a10010": new Typed("LO", "ELSCINT1"),
    "07a1100a": new Typed("OB", Buffer.alloc(400, 1)),
    "07a11011": new Typed("LO", "PMSCT_RLE1"),
  });
  const error = await failure(readImage(dicomFile({ attributes })));
  t.match(error, { code: "unsupported_format", details: { format: "PMSCT_RLE1" } });
  t.match(error.message, /private elements of ELSCINT1, compressed as PMSCT_RLE1.*Export it/);
  const decoded = await readImage(dicomFile({ attributes, pixels: Buffer.alloc(16) }));
  t.strictSame(warned(decoded), [], "not where there is pixel data");
});

t.test("signed pixels of images whose pixels are not signed", async (t) => {
  const size = { rows: 2, columns: 2, samples: 1, bitsAllocated: 16, bitsStored: 12, signed: true };
  const read = (SOPClassUID: string, values: number[], more: Attributes = {}) => {
    const data = new Uint8Array(Uint16Array.from(values).buffer);
    return readImage(
      dicomFile({
        attributes: attributesOf({ ...size, data }, { SOPClassUID, ...more }),
        pixels: data,
      }),
    );
  };
  const others = "1.1 6.1 7.2 7.3 14.1 14.2 77.1.4 77.1.5.1 77.1.5.2 77.1.5.4 77.1.6 481.1".split(
    " ",
  );
  const classes = others.map((end) => `1.2.840.10008.5.1.4.1.1.${end}`);
  for (const uid of [MG, `${MG}.1`, ...classes]) {
    const low = await read(uid, [0, 1, 2047, 5]);
    t.strictSame(warned(low), ["signed_pixels"], uid);
    t.equal((await low.frame(0)).length, 8);
    const high = await read(uid, [0, 1, 2048, 5]);
    const error = await failure(high.frame(0));
    t.match(error, { code: "decode_suspect", details: { reason: "signed_pixels", frame: 1 } });
    const padded = await read(uid, [0, 1, 0x800, 5], {
      PixelPaddingValue: new Typed("SS", -2048),
    });
    t.equal((await padded.frame(0)).length, 8, "what is padding");
  }
  const ct = await read("1.2.840.10008.5.1.4.1.1.2", [0, 1, 2048, 5]);
  t.strictSame(warned(ct), []);
  t.equal((await ct.frame(0)).length, 8);
});

t.test("a quadruped has no sides of a human", async (t) => {
  const sides = { ImageOrientationPatient: "1\\0\\0\\0\\1\\0", ImagePositionPatient: "0\\0\\0" };
  const of = (more: Attributes) => grey({ ...sides, Laterality: "R", ...more });
  const animals: Attributes[] = [
    { AnatomicalOrientationType: "QUADRUPED" },
    { PatientSpeciesDescription: "Canine" },
    {
      PatientSpeciesCodeSequence: [
        { CodeValue: "448771007", CodingSchemeDesignator: "SCT", CodeMeaning: "Canis familiaris" },
      ],
    },
  ];
  for (const more of animals) {
    const image = await of(more);
    t.ok(isQuadruped(image.attributes!));
    t.strictSame(warned(image), ["quadruped"]);
    t.equal(sidesOf(image.plane(0), image.attributes), undefined);
    t.strictSame(statedSides(image, undefined).size, 0);
  }
  const humans: Attributes[] = [
    {},
    { AnatomicalOrientationType: "BIPED" },
    { PatientSpeciesDescription: "Homo sapiens" },
    { PatientSpeciesDescription: "HUMAN" },
  ];
  for (const more of humans) {
    const image = await of(more);
    t.strictSame(warned(image), []);
    t.match(sidesOf(image.plane(0), image.attributes), edgesOf(image.plane(0))!);
    t.strictSame([...statedSides(image, undefined)], ["R"]);
  }
});

t.test("a spacing that cannot be is told", async (t) => {
  const image = await grey({ PixelSpacing: "661\\661" });
  t.match(image.warnings, [
    { code: "implausible_spacing", message: /^PixelSpacing is 661\\661 mm/ },
  ]);
  t.strictSame(warned(await grey({ PixelSpacing: "9.6\\9.6" })), []);
  t.strictSame(warned(await grey({ ImagerPixelSpacing: "51\\51" })), ["implausible_spacing"]);
  const long = await grey({ PixelSpacing: "20\\20", Rows: 201, Columns: 4 }, Buffer.alloc(804));
  t.strictSame(warned(long), ["implausible_spacing"]);
});

t.test("the cases", { skip: needs(CASES) }, async (t) => {
  const at = (name: string) => join(CASES, name);
  const file = (name: string) => readImage(readFileSync(at(name)));
  t.strictSame(warned(await file("pixelaspectratio-one-value/one_value.dcm")), ["value_ignored"]);
  const rounded = await readFolder(t, at("positions-rounded-with-offset/round_offset"));
  t.strictSame(warned(rounded), ["rounded_positions"]);
  t.ok(Math.abs(rounded.series!.volume.geometry.sliceSpacing - 7) < 0.02);
  const mg = await file("us-dx-pixelrepresentation-1/mg_PixelRepresentation_=1.dcm");
  t.match(await failure(mg.frame(0)), { code: "decode_suspect" });
  for (const [name, format] of [
    ["ct.zip", "zip"],
    ["x.heic", "heic"],
    ["x.nii", "nifti"],
  ])
    t.match(await failure(file(`formats-not-named/${name}`)), { details: { format } });
});
