/**
 * DICOM files for tests, written byte by byte (PS3.5 section 7) so that every encoding and every
 * damage can be made. Independent of the reader: only keywords and VRs come from dcmjs's
 * dictionary.
 */
import { deflateRawSync } from "node:zlib";
import codecs from "dcmjs-codecs";
import dcmjs from "dcmjs";

export const IMPLICIT = "1.2.840.10008.1.2";
export const EXPLICIT = "1.2.840.10008.1.2.1";
export const DEFLATED = "1.2.840.10008.1.2.1.99";
export const BIG_ENDIAN = "1.2.840.10008.1.2.2";
export const RLE = "1.2.840.10008.1.2.5";
export const DEFLATED_FRAMES = "1.2.840.10008.1.2.8.1";

export type Value = string | number | number[] | Uint8Array | Attributes[];

/** Keyword (or eight hexadecimal digits) to value; undefined leaves an attribute out. */
export interface Attributes {
  [keyword: string]: Value | Typed | undefined;
}

/** A value with its VR, or with undefined length. */
export class Typed {
  constructor(
    readonly vr: string,
    readonly value: Value,
    readonly undefinedLength = false,
    /** Implicit little endian items inside, as UN of undefined length has. */
    readonly implicitInside = false,
  ) {}
}

export interface Encoding {
  explicit: boolean;
  little: boolean;
}

const LONG = new Set("OB OD OF OL OV OW SQ SV UC UN UR UT UV".split(" "));
const SIZES: Record<string, [number, (b: Buffer, v: number, o: number, little: boolean) => void]> =
  {
    US: [2, (b, v, o, l) => (l ? b.writeUInt16LE(v & 0xffff, o) : b.writeUInt16BE(v & 0xffff, o))],
    SS: [2, (b, v, o, l) => (l ? b.writeInt16LE(v, o) : b.writeInt16BE(v, o))],
    OW: [2, (b, v, o, l) => (l ? b.writeUInt16LE(v, o) : b.writeUInt16BE(v, o))],
    UL: [4, (b, v, o, l) => (l ? b.writeUInt32LE(v, o) : b.writeUInt32BE(v, o))],
    SL: [4, (b, v, o, l) => (l ? b.writeInt32LE(v, o) : b.writeInt32BE(v, o))],
    FL: [4, (b, v, o, l) => (l ? b.writeFloatLE(v, o) : b.writeFloatBE(v, o))],
    FD: [8, (b, v, o, l) => (l ? b.writeDoubleLE(v, o) : b.writeDoubleBE(v, o))],
    AT: [
      4,
      (b, v, o, l) => {
        SIZES.US![1](b, Math.floor(v / 65536), o, l);
        SIZES.US![1](b, v % 65536, o + 2, l);
      },
    ],
    OV: [
      8,
      (b, v, o, l) => (l ? b.writeBigUInt64LE(BigInt(v), o) : b.writeBigUInt64BE(BigInt(v), o)),
    ],
  };

function lookUp(keyword: string): { tag: number; vr: string } {
  if (/^[0-9a-f]{8}$/i.test(keyword)) return { tag: Number.parseInt(keyword, 16), vr: "UN" };
  const entry = dcmjs.data.DicomMetaDictionary.nameMap[keyword];
  if (entry === undefined) throw new Error(`No such keyword: ${keyword}`);
  const vr = { xs: "US", ox: "OW", lt: "US" }[entry.vr] ?? entry.vr;
  return { tag: Number.parseInt(entry.tag.replace(/[(),]/g, ""), 16), vr };
}

function uint16(value: number, little: boolean): Buffer {
  const b = Buffer.alloc(2);
  SIZES.US![1](b, value, 0, little);
  return b;
}

function uint32(value: number, little: boolean): Buffer {
  const b = Buffer.alloc(4);
  SIZES.UL![1](b, value, 0, little);
  return b;
}

function tagBytes(tag: number, little: boolean): Buffer {
  return Buffer.concat([uint16(Math.floor(tag / 65536), little), uint16(tag % 65536, little)]);
}

function valueBytes(
  vr: string,
  value: Value,
  encoding: Encoding,
  typed: Typed | undefined,
): Buffer {
  if (value instanceof Uint8Array) return Buffer.from(value);
  if (typeof value === "string")
    return padded(Buffer.from(value, "latin1"), vr === "UI" ? 0 : 0x20);
  if (Array.isArray(value) && (value.length === 0 || typeof value[0] === "object"))
    return sequence(value as Attributes[], encoding, typed);
  const numbers = (Array.isArray(value) ? value : [value]) as number[];
  const format = SIZES[vr];
  if (format === undefined) return padded(Buffer.from(numbers.join("\\"), "latin1"), 0x20);
  const out = Buffer.alloc(numbers.length * format[0]);
  numbers.forEach((n, i) => format[1](out, n, i * format[0], encoding.little));
  return out;
}

function padded(bytes: Buffer, pad: number): Buffer {
  return bytes.length % 2 === 0 ? bytes : Buffer.concat([bytes, Buffer.from([pad])]);
}

function sequence(items: Attributes[], encoding: Encoding, typed: Typed | undefined): Buffer {
  const inside = typed?.implicitInside ? { explicit: false, little: true } : encoding;
  const open = typed?.undefinedLength ?? false;
  const parts = items.flatMap((item) => {
    const body = encodeAttributes(item, inside);
    const head = tagBytes(0xfffee000, inside.little);
    return open
      ? [
          head,
          uint32(0xffffffff, inside.little),
          body,
          tagBytes(0xfffee00d, inside.little),
          uint32(0, true),
        ]
      : [head, uint32(body.length, inside.little), body];
  });
  if (open) parts.push(tagBytes(0xfffee0dd, inside.little), uint32(0, true));
  return Buffer.concat(parts);
}

/** One element; `length` overrides the true one. */
export function encodeElement(
  tag: number,
  vr: string,
  body: Uint8Array,
  encoding: Encoding,
  length = body.length,
): Buffer {
  const { explicit, little } = encoding;
  const head = tagBytes(tag, little);
  if (!explicit) return Buffer.concat([head, uint32(length, little), body]);
  if (LONG.has(vr))
    return Buffer.concat([head, Buffer.from(vr), Buffer.alloc(2), uint32(length, little), body]);
  return Buffer.concat([head, Buffer.from(vr), uint16(length, little), body]);
}

/** A data set without file meta information, in tag order. */
export function encodeAttributes(attributes: Attributes, encoding: Encoding): Buffer {
  const elements = Object.entries(attributes)
    .filter((entry): entry is [string, Value | Typed] => entry[1] !== undefined)
    .map(([keyword, given]) => {
      const typed = given instanceof Typed ? given : undefined;
      const known = lookUp(keyword);
      const vr = typed?.vr ?? known.vr;
      const body = valueBytes(vr, typed?.value ?? (given as Value), encoding, typed);
      const length = typed?.undefinedLength ? 0xffffffff : body.length;
      return { tag: known.tag, bytes: encodeElement(known.tag, vr, body, encoding, length) };
    })
    .sort((a, b) => a.tag - b.tag);
  return Buffer.concat(elements.map((e) => e.bytes));
}

export interface Encapsulation {
  fragments: Uint8Array[];
  /** Entries of the Basic Offset Table, which is empty if they are absent. */
  offsetTable?: number[];
  delimiter?: boolean;
}

export function encapsulated({
  fragments,
  offsetTable = [],
  delimiter = true,
}: Encapsulation): Buffer {
  const item = (body: Uint8Array) =>
    Buffer.concat([tagBytes(0xfffee000, true), uint32(body.length, true), body]);
  const table = Buffer.concat(offsetTable.map((offset) => uint32(offset, true)));
  return Buffer.concat([
    item(table),
    ...fragments.map((f) => item(padded(Buffer.from(f), 0))),
    ...(delimiter ? [tagBytes(0xfffee0dd, true), uint32(0, true)] : []),
  ]);
}

export interface FileOptions {
  transferSyntax?: string;
  attributes?: Attributes;
  /** Native bytes as they lie in the file, or fragments. */
  pixels?: Uint8Array | Encapsulation;
  pixelVr?: string;
  /** false leaves out the 128 bytes and "DICM". */
  preamble?: boolean;
  /** false leaves out the file meta information. */
  meta?: boolean;
  /** Bytes that follow the last element. */
  trailing?: Uint8Array;
}

export const CT = "1.2.840.10008.5.1.4.1.1.2";

/** What ct-tissue takes, beside the pixels. */
export const CT_SLICE: Attributes = {
  SOPClassUID: CT,
  Modality: "CT",
  ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
  StudyInstanceUID: "1.2.3",
  SeriesInstanceUID: "1.2.3.4",
  RescaleSlope: "1",
  RescaleIntercept: "-1024",
  PixelSpacing: "0.7\\0.7",
};

/** A small greyscale image's attributes; overridden by `attributes`. */
export function imageAttributes(attributes: Attributes = {}): Attributes {
  return {
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.7",
    SOPInstanceUID: "1.2.3.4.5",
    Modality: "OT",
    PatientName: "Nobody^Test",
    SamplesPerPixel: 1,
    PhotometricInterpretation: "MONOCHROME2",
    Rows: 4,
    Columns: 4,
    BitsAllocated: 8,
    BitsStored: 8,
    HighBit: 7,
    PixelRepresentation: 0,
    ...attributes,
  };
}

/** A whole file. */
export function dicomFile(options: FileOptions = {}): Buffer {
  const {
    transferSyntax = EXPLICIT,
    preamble = true,
    meta = true,
    trailing = Buffer.alloc(0),
  } = options;
  const encoding = { explicit: transferSyntax !== IMPLICIT, little: transferSyntax !== BIG_ENDIAN };
  const explicitLittle = { explicit: true, little: true };
  const header = encodeAttributes(
    { MediaStorageSOPClassUID: "1.2.840.10008.5.1.4.1.1.7", TransferSyntaxUID: transferSyntax },
    explicitLittle,
  );
  const pixels = options.pixels;
  const pixelElement =
    pixels === undefined
      ? Buffer.alloc(0)
      : pixels instanceof Uint8Array
        ? encodeElement(0x7fe00010, options.pixelVr ?? "OW", pixels, encoding)
        : encodeElement(0x7fe00010, "OB", encapsulated(pixels), encoding, 0xffffffff);
  const body = Buffer.concat([
    encodeAttributes(options.attributes ?? imageAttributes(), encoding),
    pixelElement,
    trailing,
  ]);
  return Buffer.concat([
    preamble ? Buffer.concat([Buffer.alloc(128), Buffer.from("DICM")]) : Buffer.alloc(0),
    meta ? header : Buffer.alloc(0),
    transferSyntax === DEFLATED ? deflateRawSync(body) : body,
  ]);
}

export interface Raw {
  rows: number;
  columns: number;
  samples: number;
  bitsAllocated: number;
  bitsStored: number;
  signed?: boolean;
  data: Uint8Array;
}

export type Coder = "jpeg" | "jpeg-lossless" | "jpeg-ls" | "jpeg2000" | "htj2k" | "jpeg-xl" | "rle";

/**
 * Compresses one frame with the encoders of dcmjs-codecs; lossless but for "jpeg", and JPEG-LS with
 * `near` above 0.
 */
export async function compress(
  coder: Coder,
  raw: Raw,
  near = 0,
  allowMct = true,
): Promise<Uint8Array> {
  const { NativeCodecs, Context } = codecs;
  if (!NativeCodecs.isInitialized()) await NativeCodecs.initializeAsync({ logCodecsInfo: true });
  const context = new Context({
    width: raw.columns,
    height: raw.rows,
    bitsAllocated: raw.bitsAllocated,
    bitsStored: raw.bitsStored,
    samplesPerPixel: raw.samples,
    pixelRepresentation: raw.signed ? 1 : 0,
    planarConfiguration: 0,
    photometricInterpretation: raw.samples === 1 ? "MONOCHROME2" : "RGB",
    decodedBuffer: raw.data,
  });
  const encode = {
    jpeg: () => NativeCodecs.encodeJpeg(context, { lossy: true, quality: 95, predictor: 0 }),
    "jpeg-lossless": () => NativeCodecs.encodeJpeg(context, { lossy: false, predictor: 1 }),
    "jpeg-ls": () =>
      NativeCodecs.encodeJpegLs(context, { lossy: near > 0, allowedLossyError: near }),
    jpeg2000: () => NativeCodecs.encodeJpeg2000(context, { lossy: false, allowMct } as object),
    htj2k: () => NativeCodecs.encodeHtJpeg2000(context, { lossy: false }),
    "jpeg-xl": () => NativeCodecs.encodeJpegXl(context, { lossy: false }),
    rle: () => NativeCodecs.encodeRle(context),
  }[coder];
  return encode().getEncodedBuffer()!;
}

export const SYNTAXES: Record<Coder, string> = {
  jpeg: "1.2.840.10008.1.2.4.50",
  "jpeg-lossless": "1.2.840.10008.1.2.4.70",
  "jpeg-ls": "1.2.840.10008.1.2.4.80",
  jpeg2000: "1.2.840.10008.1.2.4.90",
  htj2k: "1.2.840.10008.1.2.4.201",
  "jpeg-xl": "1.2.840.10008.1.2.4.110",
  rle: RLE,
};

/** Reproducible numbers from 0 to 1 (mulberry32). */
export function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/** A smooth picture with noise, all values within `bits`; signed ones round zero. */
export function picture(raw: Omit<Raw, "data">, seed = 1): Raw {
  const next = random(seed);
  const range = 2 ** raw.bitsStored;
  const bytes = raw.bitsAllocated / 8;
  const data = new Uint8Array(raw.rows * raw.columns * raw.samples * bytes);
  const view = new DataView(data.buffer);
  for (let i = 0; i < data.length / bytes; i++) {
    const x = (Math.floor(i / raw.samples) % raw.columns) / raw.columns;
    const level = Math.min(range - 1, Math.floor((0.8 * x + 0.2 * next()) * range));
    const value = raw.signed ? level - range / 2 : level;
    if (bytes === 1) data[i] = value;
    else if (bytes === 2) view.setInt16(i * 2, value, true);
    else view.setInt32(i * 4, value, true);
  }
  return { ...raw, data };
}

/** Image attributes that describe `raw`. */
export function attributesOf(raw: Raw, attributes: Attributes = {}): Attributes {
  return imageAttributes({
    Rows: raw.rows,
    Columns: raw.columns,
    SamplesPerPixel: raw.samples,
    BitsAllocated: raw.bitsAllocated,
    BitsStored: raw.bitsStored,
    HighBit: raw.bitsStored - 1,
    PixelRepresentation: raw.signed ? 1 : 0,
    ...(raw.samples === 3 ? { PhotometricInterpretation: "RGB", PlanarConfiguration: 0 } : {}),
    ...attributes,
  });
}
