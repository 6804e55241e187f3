/**
 * Drawn inputs of the recordings: every encoding, many odd sources, stacks of slices, pictures, and
 * damaged files.
 */
import sharp from "sharp";
import {
  attributesOf,
  BIG_ENDIAN,
  compress,
  DEFLATED,
  dicomFile,
  EXPLICIT,
  IMPLICIT,
  picture,
  random,
  SYNTAXES,
  Typed,
  type Attributes,
  type Coder,
  type Raw,
} from "../../test/support/dicom.js";
import { mutated, specimen } from "../../test/support/mutate.js";
import { radiograph } from "../../test/support/radiograph.js";
import { pngFile, tiffFile } from "../../test/support/raster.js";
import { slice } from "../../test/support/series.js";
import { ctSeries, samples } from "../demo/samples.js";

/** A file, or a folder of files. */
export type Drawn = Uint8Array | Record<string, Uint8Array>;
export interface DrawnImages {
  images: Record<string, Drawn>;
  /** Most of them cannot be read. */
  damaged: Record<string, Uint8Array>;
}

const MUTANTS_OF_EACH = 70;
const ENHANCED_CT = "1.2.840.10008.5.1.4.1.1.2.1";

const LAYOUTS: Record<string, Omit<Raw, "data">> = {
  grey8: { rows: 20, columns: 24, samples: 1, bitsAllocated: 8, bitsStored: 8 },
  grey12: { rows: 33, columns: 21, samples: 1, bitsAllocated: 16, bitsStored: 12 },
  signed12: { rows: 18, columns: 40, samples: 1, bitsAllocated: 16, bitsStored: 12, signed: true },
  signed16: { rows: 25, columns: 25, samples: 1, bitsAllocated: 16, bitsStored: 16, signed: true },
  rgb8: { rows: 30, columns: 26, samples: 3, bitsAllocated: 8, bitsStored: 8 },
};
const NATIVE = {
  implicit: IMPLICIT,
  explicit: EXPLICIT,
  deflated: DEFLATED,
  "big-endian": BIG_ENDIAN,
};
const CODERS = Object.keys(SYNTAXES) as Coder[];

const IDENTITY = {
  StudyInstanceUID: "1.2.3.9",
  SeriesInstanceUID: "1.2.3.8",
  PatientID: "4711",
  Modality: "CT",
} satisfies Attributes;

/** The bytes of 16-bit samples in the other order. */
function swapped({ bitsAllocated, data }: Raw): Buffer {
  return bitsAllocated === 16 ? Buffer.from(data).swap16() : Buffer.from(data);
}

function native(): Record<string, Drawn> {
  const drawn: Record<string, Drawn> = {};
  for (const [layout, shape] of Object.entries(LAYOUTS))
    for (const [name, transferSyntax] of Object.entries(NATIVE)) {
      const raw = picture(shape);
      const pixels = transferSyntax === BIG_ENDIAN ? swapped(raw) : raw.data;
      const pixelVr = raw.bitsAllocated === 8 && transferSyntax !== IMPLICIT ? "OB" : "OW";
      drawn[`native-${layout}-${name}.dcm`] = dicomFile({
        transferSyntax,
        attributes: attributesOf(raw, { ...IDENTITY, SOPInstanceUID: `1.2.3.1.${raw.rows}` }),
        pixels,
        pixelVr,
      });
    }
  return drawn;
}

async function compressed(): Promise<Record<string, Drawn>> {
  const drawn: Record<string, Drawn> = {};
  for (const coder of CODERS)
    for (const [layout, shape] of Object.entries(LAYOUTS)) {
      if (coder === "jpeg" && shape.bitsStored > 8) continue;
      const raws = [1, 2, 3].map((seed) => picture(shape, seed));
      const fragments: Uint8Array[] = [];
      for (const raw of raws) fragments.push(await compress(coder, raw));
      const file = (count: number) =>
        dicomFile({
          transferSyntax: SYNTAXES[coder],
          attributes: attributesOf(picture(shape), {
            ...IDENTITY,
            SOPInstanceUID: `1.2.3.2.${count}`,
            ...(count > 1 ? { NumberOfFrames: String(count) } : {}),
          }),
          pixels: { fragments: fragments.slice(0, count) },
        });
      drawn[`${coder}-${layout}.dcm`] = file(1);
      if (layout === "grey12" || layout === "rgb8") drawn[`${coder}-${layout}-cine.dcm`] = file(3);
    }
  return drawn;
}

const text = (vr: string, value: string) => new Typed(vr, Buffer.from(value, "latin1"));

/** What sources say of their patient, their display and their geometry. */
const ODD: Record<string, Attributes> = {
  plain: {},
  "long-name": { PatientName: `${"N".repeat(100)}^A` },
  "name-of-six-parts": { PatientName: "A^B^C^D^E^F" },
  "backslash-in-name": { PatientName: "A^B\\C", PatientID: "P\\1" },
  "control-characters": {
    PatientName: text("PN", "A\nB"),
    StudyDescription: text("LO", "two\r\nlines"),
  },
  "wrong-utf8": { SpecificCharacterSet: "ISO_IR 192", PatientName: text("PN", "M\xfcller^J") },
  latin1: { SpecificCharacterSet: "ISO_IR 100", PatientName: text("PN", "M\xfcller^J\xf6rg") },
  utf8: {
    SpecificCharacterSet: "ISO_IR 192",
    PatientName: new Typed("PN", Buffer.from("Müller^Jörg=穆勒")),
  },
  "long-numbers": { PatientID: "9".repeat(65), AccessionNumber: "A".repeat(17) },
  "words-for-codes": { PatientSex: "male", PatientBirthDate: "1960-1-19" },
  "clinical-trial": {
    ClinicalTrialSponsorName: "S",
    ClinicalTrialProtocolID: "P1",
    ClinicalTrialSubjectID: "7",
  },
  animal: { PatientSpeciesDescription: "Canine" },
  "no-identity": {
    StudyInstanceUID: undefined,
    SeriesInstanceUID: undefined,
    PatientID: undefined,
  },
  "no-instance": { SOPInstanceUID: undefined },
  "wrong-uid": { StudyInstanceUID: "1.2.03" },
  "no-zone": { TimezoneOffsetFromUTC: undefined },
  "other-zone": { TimezoneOffsetFromUTC: "-0930" },
  left: { Laterality: "L" },
  right: { ImageLaterality: "R" },
  both: { ImageLaterality: "B" },
  chest: { BodyPartExamined: "CHEST", PixelSpacing: "0.7\\0.5" },
  "imager-spacing": { ImagerPixelSpacing: "0.2\\0.3" },
  "aspect-ratio": { PixelAspectRatio: "2\\1" },
  inverse: { PhotometricInterpretation: "MONOCHROME1" },
  window: { WindowCenter: "120", WindowWidth: "60" },
  windows: { WindowCenter: "120\\40", WindowWidth: "60\\20", VOILUTFunction: "SIGMOID" },
  "exact-window": { WindowCenter: "100", WindowWidth: "200", VOILUTFunction: "LINEAR_EXACT" },
  "wrong-window": { WindowCenter: "100", WindowWidth: "0" },
  rescaled: { RescaleSlope: "2", RescaleIntercept: "-50", RescaleType: "HU" },
  "slope-of-zero": { RescaleSlope: "0", RescaleIntercept: "0" },
  padding: { PixelPaddingValue: 0 },
  "padding-range": { PixelPaddingValue: 0, PixelPaddingRangeLimit: 60 },
  "voi-table": {
    VOILUTSequence: [
      {
        LUTDescriptor: [256, 0, 8],
        LUTData: Array.from({ length: 256 }, (_, i) => 255 - (i >> 1)),
      },
    ],
  },
  "modality-table": {
    ModalityLUTSequence: [
      {
        LUTDescriptor: [256, 0, 16],
        LUTData: Array.from({ length: 256 }, (_, i) => i * 200),
        ModalityLUTType: "US",
      },
    ],
  },
  "burned-in": { BurnedInAnnotation: "YES" },
  "lossy-before": { LossyImageCompression: "01", LossyImageCompressionRatio: "12" },
};

function odd(): Record<string, Drawn> {
  return Object.fromEntries(
    Object.entries(ODD).map(([name, attributes]) => [
      `odd-${name}.dcm`,
      radiograph({ PatientName: "A^B", ...attributes }),
    ]),
  );
}

function planes(orientations: readonly string[]): Attributes {
  return {
    SOPClassUID: ENHANCED_CT,
    NumberOfFrames: String(orientations.length),
    PerFrameFunctionalGroupsSequence: orientations.map((orientation, i) => ({
      PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${i * 4}` }],
      PlaneOrientationSequence: [{ ImageOrientationPatient: orientation }],
      PixelMeasuresSequence: [{ PixelSpacing: "1\\1", SliceThickness: "3" }],
      PixelValueTransformationSequence: [
        { RescaleSlope: "1", RescaleIntercept: `${i}`, RescaleType: "HU" },
      ],
    })),
  };
}

function series(): Record<string, Drawn> {
  const folder = (files: readonly Uint8Array[]) =>
    Object.fromEntries(files.map((file, i) => [`${i}.dcm`, file]));
  const stack = (zs: readonly number[], more: (z: number) => Attributes = () => ({})) =>
    folder(zs.map((z) => slice({ z, fill: z * 20, attributes: more(z) })));
  const axial = "1\\0\\0\\0\\1\\0";
  const frames = [0, 1, 2].map((i) => new Uint8Array(48).fill(i * 40));
  const volume = (orientations: readonly string[]) =>
    slice({ z: 0, frames: frames.slice(0, orientations.length), attributes: planes(orientations) });
  return {
    "series-even": stack([6, 0, 3, 9]),
    "series-bright": stack([20, 24, 28, 32, 36]),
    "series-thick": stack([6, 0, 3], () => ({ SliceThickness: "5" })),
    "series-gap": stack([0, 3, 9, 12]),
    "series-twice": folder([slice({ z: 0 }), slice({ z: 3 }), slice({ z: 3, fill: 9 })]),
    "series-tilted": stack([0, 3, 6], () => ({
      ImageOrientationPatient: "1\\0\\0\\0\\0.9\\0.435889894354",
    })),
    "series-sheared": stack([0, 3, 6], (z) => ({ ImagePositionPatient: `${z}\\0\\${z}` })),
    "series-coronal": stack([0, 3, 6], (z) => ({
      ImageOrientationPatient: "1\\0\\0\\0\\0\\-1",
      ImagePositionPatient: `0\\${z}\\0`,
    })),
    "series-two": folder([
      slice({ z: 0 }),
      slice({ z: 3 }),
      slice({ z: 0, attributes: { SeriesInstanceUID: "1.2.3.5", SOPInstanceUID: "1.2.3.5.1" } }),
    ]),
    "series-one": stack([5]),
    "series-none": { "note.txt": Buffer.from("no image") },
    "series-units": stack([0, 3, 6], (z) => ({ RescaleSlope: `${1 + z}` })),
    "series-chest": folder(ctSeries(6, 10, 95)),
    "series-of-frames": folder([volume([axial, axial, axial])]),
    "enhanced.dcm": volume([axial, axial, axial]),
    "enhanced-crossed.dcm": volume([axial, "0\\1\\0\\0\\0\\-1"]),
    "slice.dcm": slice({ z: 40, attributes: { KVP: "80" } }),
    "localizer.dcm": slice({ z: 40, attributes: { ImageType: "ORIGINAL\\PRIMARY\\LOCALIZER" } }),
  };
}

/**
 * A picture with alpha, a palette and so on, as sharp writes it; values run over all of their
 * range.
 */
async function pictures(): Promise<Record<string, Drawn>> {
  const [width, height] = [23, 17];
  const made = (channels: 1 | 3 | 4) =>
    sharp(
      Uint8Array.from({ length: width * height * channels }, (_, i) => (i * 7) % 256),
      { raw: { width, height, channels } },
    ).toColourspace(channels === 1 ? "b-w" : "srgb");
  const grey = Uint8Array.from({ length: width * height }, (_, i) => (i * 5) % 256);
  const wide = Uint8Array.from({ length: width * height * 2 }, (_, i) => (i * 11) % 256);
  const page = { width, height, photometric: 1, pixels: grey };
  return {
    "grey.png": await made(1).png().toBuffer(),
    "colour.png": await made(3).png().toBuffer(),
    "alpha.png": await made(4).png().toBuffer(),
    "palette.png": await made(3).png({ palette: true, colours: 16, dither: 0 }).toBuffer(),
    "turned.png": await made(3).withMetadata({ orientation: 6 }).png().toBuffer(),
    "profile.png": await made(3).withIccProfile("p3").png().toBuffer(),
    "grey16.png": pngFile({ width, height, bits: 16, colour: 0, pixels: wide }),
    "grey.jpg": await made(1).jpeg({ quality: 90 }).toBuffer(),
    "colour.jpg": await made(3).jpeg({ quality: 90 }).toBuffer(),
    "progressive.jpg": await made(3).jpeg({ progressive: true }).toBuffer(),
    "cmyk.jpg": await made(3).toColourspace("cmyk").jpeg().toBuffer(),
    "lzw.tif": await made(3).tiff({ compression: "lzw" }).toBuffer(),
    "pages.tif": tiffFile([page, page, { ...page, photometric: 0 }]),
    "inverse.tif": tiffFile([{ ...page, photometric: 0 }]),
    "big-endian.tif": tiffFile([page], { bigEndian: true }),
    "big.tif": tiffFile([page], { bigTiff: true }),
    "grey16.tif": tiffFile([{ ...page, bits: [16], pixels: wide }]),
    "fax.tif": tiffFile([{ ...page, compression: 4 }]),
  };
}

async function damagedFiles(): Promise<Record<string, Uint8Array>> {
  const damaged: Record<string, Uint8Array> = {
    "empty.dcm": new Uint8Array(0),
    "text.dcm": Buffer.from("This is no image.\n"),
    "cut.png": pngFile({
      width: 9,
      height: 9,
      bits: 8,
      colour: 0,
      pixels: new Uint8Array(81),
    }).subarray(0, 60),
    "no-pixels.dcm": dicomFile(),
    "no-meta.dcm": radiograph().subarray(0, 200),
  };
  const raw = picture({ rows: 20, columns: 24, samples: 1, bitsAllocated: 16, bitsStored: 12 });
  const sources: [string, Buffer, string][] = [];
  for (const [name, transferSyntax] of Object.entries(NATIVE))
    if (transferSyntax !== BIG_ENDIAN)
      sources.push([
        name,
        dicomFile({ transferSyntax, attributes: attributesOf(raw, IDENTITY), pixels: raw.data }),
        transferSyntax,
      ]);
  for (const coder of ["jpeg-ls", "jpeg2000", "rle"] as const) {
    const pixels = { fragments: [await compress(coder, raw)] };
    const transferSyntax = SYNTAXES[coder];
    sources.push([
      coder,
      dicomFile({ transferSyntax, attributes: attributesOf(raw, IDENTITY), pixels }),
      transferSyntax,
    ]);
  }
  for (const [name, file, transferSyntax] of sources) {
    const whole = specimen(file, transferSyntax);
    for (let seed = 0; seed < MUTANTS_OF_EACH; seed++)
      damaged[`mutant-${name}-${seed}.dcm`] = mutated(whole, random(seed));
  }
  return damaged;
}

export async function drawnImages(): Promise<DrawnImages> {
  const { ct, ultrasound } = await samples();
  return {
    images: {
      "phantom-ct.dcm": ct,
      "phantom-us.dcm": ultrasound,
      ...native(),
      ...(await compressed()),
      ...odd(),
      ...series(),
      ...(await pictures()),
    },
    damaged: await damagedFiles(),
  };
}
