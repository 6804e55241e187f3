/**
 * Reads the pages of a TIFF from its tags, without decoding (TIFF 6.0; BigTIFF as libtiff has it).
 * The decoder converts some photometrics and passes others through, without reporting which it did.
 * So the tags decide here, from a closed list, what is read and what its values mean.
 */
import { errors, type RadserveError } from "../../base/errors.js";
import { counted } from "../../base/table.js";
import { readCodestream, type CodestreamHeader } from "../dicom/codestream.js";

export interface TiffPage {
  width: number;
  height: number;
  /** WhiteIsZero 0, BlackIsZero 1, RGB 2, palette 3, YCbCr 6. */
  photometric: 0 | 1 | 2 | 3 | 6;
  /** Depth of each sample: 1, 2, 4, 8 or 16. */
  bits: number;
  /** With the alpha channel. */
  samples: number;
  orientation: number;
  /**
   * Pixels for each unit across and down (XResolution, YResolution), whatever the unit is;
   * undefined where one of them is absent or no number.
   */
  density: { across: number; down: number } | undefined;
}

/** More pages than the longest stacks have, and few enough to look through. */
const MOST_PAGES = 10_000;
/** With those of SubIFDs: a page of a whole slide has one for each of its smaller versions. */
const MOST_DIRECTORIES = 100_000;
/**
 * Values of one entry of a tag that is read here: more samples or numbers than these are refused
 * anyway.
 */
const MOST_VALUES = 16;

const PHOTOMETRIC: Readonly<Record<number, string>> = {
  0: "WhiteIsZero",
  1: "BlackIsZero",
  2: "RGB",
  3: "palette",
  4: "transparency mask",
  5: "CMYK (separated)",
  6: "YCbCr",
  8: "CIELab",
  9: "ICCLab",
  10: "ITULab",
  32803: "colour filter array",
  32844: "LogL",
  32845: "LogLuv",
  34892: "linear raw",
};

/** Compressions that every build of the decoder has. */
const COMPRESSIONS: Readonly<Record<number, string>> = {
  1: "none",
  2: "CCITT RLE",
  3: "CCITT group 3",
  4: "CCITT group 4",
  5: "LZW",
  7: "JPEG",
  8: "Deflate",
  32773: "PackBits",
  32946: "Deflate",
};
const JPEG = 7;

const DEPTHS: Readonly<Record<TiffPage["photometric"], readonly number[]>> = {
  0: [1, 2, 4, 8, 16],
  1: [1, 2, 4, 8, 16],
  2: [8, 16],
  3: [1, 2, 4, 8],
  6: [8],
};

const TAG = {
  newSubfile: 254,
  subfile: 255,
  width: 256,
  height: 257,
  bits: 258,
  compression: 259,
  photometric: 262,
  description: 270,
  strips: 273,
  orientation: 274,
  samples: 277,
  rowsPerStrip: 278,
  stripBytes: 279,
  across: 282,
  down: 283,
  planar: 284,
  colorMap: 320,
  tileWidth: 322,
  tileLength: 323,
  tiles: 324,
  tileBytes: 325,
  subDirectories: 330,
  extra: 338,
  format: 339,
  coefficients: 529,
  reference: 532,
  exif: 34665,
  dngVersion: 50706,
} as const;
const TAGS_READ: ReadonlySet<number> = new Set(Object.values(TAG));

/** The tags whose numbers are fractions (type 5); a size of 0/0 would count as no memory at all. */
const RATIONAL = 5;
const FRACTIONS: ReadonlySet<number> = new Set([TAG.coefficients, TAG.reference]);
/** Tags that no pixel depends on: where they are wrong, the decoder reads on without them. */
const SPARE: ReadonlySet<number> = new Set([TAG.across, TAG.down]);

/** How to read one number of a type of TIFF 6.0 section 2; other types are left out. */
const TYPES: Readonly<
  Record<number, { size: number; read: (v: DataView, at: number, le: boolean) => number }>
> = {
  1: { size: 1, read: (v, at) => v.getUint8(at) },
  3: { size: 2, read: (v, at, le) => v.getUint16(at, le) },
  4: { size: 4, read: (v, at, le) => v.getUint32(at, le) },
  // Offsets of directories, 13 and 18 (BigTIFF)
  13: { size: 4, read: (v, at, le) => v.getUint32(at, le) },
  18: { size: 8, read: (v, at, le) => Number(v.getBigUint64(at, le)) },
  [RATIONAL]: { size: 8, read: (v, at, le) => v.getUint32(at, le) / v.getUint32(at + 4, le) },
  16: { size: 8, read: (v, at, le) => Number(v.getBigUint64(at, le)) },
};

/** Tags with a value for each strip or tile, or for each colour of a palette. */
const LISTS: ReadonlySet<number> = new Set([
  TAG.strips,
  TAG.stripBytes,
  TAG.tiles,
  TAG.tileBytes,
  TAG.colorMap,
]);

/** Of all lists of a file: each takes eight bytes of memory, and perhaps one of the file. */
const MOST_ENTRIES = 1 << 24;

type Directory = Map<number, number[]>;

interface TagForm {
  view: DataView;
  littleEndian: boolean;
  big: boolean;
  /** Where an Orientation stands that is none, and how many bytes it has. */
  odd: { at: number; size: number }[];
  /** Bytes of the lists of strips and tiles that were read. */
  listed: number;
  /** Their entries. */
  entries: number;
  /** Bytes of the directories that were read. */
  ofDirectories: number;
  /** Bytes of the strips and tiles whose JPEG markers were read. */
  ofMarkers: number;
}

function cut(): RadserveError {
  return errors.truncated_image(
    "The TIFF file ends before what its directory points to. Send it again from its source.",
  );
}

const { corrupt_image: corrupt, unsupported_format: unsupported } = errors;

/**
 * The pages of a TIFF, which are alike in size, photometric, samples, depth and orientation, not
 * always in density. Throws unsupported_format for whatever is not on the list, truncated_image and
 * corrupt_image.
 */
export function readTiffPages(bytes: Uint8Array): TiffPage[] {
  const form = formOf(bytes);
  checkNotCanon(bytes);
  const found = [...directories(form)];
  checkPictures(form, found);
  const first = found.map(pageOf);
  for (const page of found) checkJpegColours(form, bytes, page);
  const [model] = first;
  if (model === undefined) throw corrupt("The TIFF file has no page.");
  const likeness = (page: TiffPage) => JSON.stringify({ ...page, density: undefined });
  first.forEach((page, i) => {
    if (likeness(page) !== likeness(model))
      throw unsupported(
        `Page ${i + 1} of the TIFF file differs from the first in size, photometric, samples, depth or orientation. Split the file into single pages.`,
      );
  });
  checkStack(bytes, found, model);
  return first;
}

function formOf(bytes: Uint8Array): TagForm {
  return {
    view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    littleEndian: bytes[0] === 0x49,
    big: bytes[2] === 43 || bytes[3] === 43,
    odd: [],
    listed: 0,
    entries: 0,
    ofDirectories: 0,
    ofMarkers: 0,
  };
}

/**
 * The file with 1 for every Orientation that is none (TIFF 6.0: 1 to 8), which the decoder takes
 * for damage; the same bytes where all are right.
 */
export function withOrientations(bytes: Uint8Array): Uint8Array {
  const form = formOf(bytes);
  // Reading a directory notes what is odd in it
  Array.from(directories(form));
  if (form.odd.length === 0) return bytes;
  const copy = new Uint8Array(bytes);
  for (const { at, size } of form.odd)
    copy.fill(0, at, at + size)[form.littleEndian ? at : at + size - 1] = 1;
  return copy;
}

/** The directories of a chain, which begins where the header says, or at an offset. */
function* directories(
  form: TagForm,
  from?: number,
  seen = new Set<number>(),
): Generator<Directory> {
  const { view, big } = form;
  const word = big ? 8 : 4;
  let at = from ?? number(form, big ? 8 : 4, word);
  for (let found = 0; at !== 0; found++) {
    if (seen.has(at)) throw corrupt("The directories of the TIFF file point back to each other.");
    if (found === MOST_PAGES || seen.size === MOST_DIRECTORIES)
      throw unsupported(
        `The TIFF file has more than ${MOST_PAGES} pages, or ${MOST_DIRECTORIES} directories in all, the most that are read.`,
      );
    seen.add(at);
    const count = number(form, at, big ? 8 : 2);
    const size = big ? 20 : 12;
    const start = at + (big ? 8 : 2);
    if (start + count * size + word > view.byteLength) throw cut();
    form.ofDirectories += count * size;
    if (form.ofDirectories > view.byteLength)
      throw corrupt("The directories of the TIFF file lie over each other.");
    const directory: Directory = new Map();
    for (let i = 0; i < count; i++) readEntry(form, start + i * size, directory);
    yield directory;
    at = number(form, start + count * size, word);
  }
}

/** The directories that hang on one (SubIFDs, EXIF), and on those in turn, without those seen. */
function* directoriesWithin(
  form: TagForm,
  outer: Directory,
  seen: Set<number>,
): Generator<Directory> {
  const waiting = [outer];
  for (const directory of waiting) {
    for (const at of directory.get(TAG.subDirectories) ?? [])
      if (!seen.has(at)) waiting.push(...directories(form, at, seen));
    // No other follows it, whatever writers leave in the place of the link
    const [exif] = directory.get(TAG.exif) ?? [];
    if (exif !== undefined && !seen.has(exif)) {
      const [only] = directories(form, exif, seen);
      if (only !== undefined) waiting.push(only);
    }
    if (directory !== outer) yield directory;
  }
}

/** NewSubfileType 1 and SubfileType 2: a smaller version of another picture in the file. */
const isReduced = (directory: Directory): boolean =>
  (one(directory, TAG.newSubfile, 0) & 1) === 1 || one(directory, TAG.subfile, 1) === 2;

const areaOf = (directory: Directory): number =>
  one(directory, TAG.width, 0) * one(directory, TAG.height, 0);

/** Photometrics of a sensor's own samples. */
const RAW = [32803, 34892];

const TAKE_THE_PICTURE = "Convert the picture itself to PNG or TIFF.";

/**
 * Pages have to be pictures of their own (TIFF 6.0 section 8). A camera raw file shows a thumbnail
 * as its page, and has its picture in SubIFDs, where whole slides have smaller versions of a page.
 */
function checkPictures(form: TagForm, pages: readonly Directory[]): void {
  if (pages.some((page) => page.has(TAG.dngVersion)))
    throw unsupported(
      `The TIFF file is camera raw (DNG), whose pages are thumbnails. ${TAKE_THE_PICTURE}`,
    );
  const reduced = pages.findIndex(isReduced);
  if (reduced >= 0)
    throw unsupported(
      `Page ${reduced + 1} of the TIFF file says that it is a smaller version of another picture in it (NewSubfileType 1), ` +
        `as the thumbnails of camera raw (DNG, NEF, ARW) and the levels of pyramids are. ${TAKE_THE_PICTURE}`,
    );
  const mask = pages.findIndex((page) => (one(page, TAG.newSubfile, 0) & 4) === 4);
  if (mask >= 0)
    throw unsupported(
      `Page ${mask + 1} of the TIFF file says that it is a transparency mask of another picture in it (NewSubfileType 4). ${TAKE_THE_PICTURE}`,
    );
  const seen = new Set<number>();
  for (const [i, page] of pages.entries())
    for (const inner of directoriesWithin(form, page, seen))
      if (areaOf(inner) > areaOf(page) || RAW.includes(one(inner, TAG.photometric, 1)))
        throw unsupported(
          `Page ${i + 1} of the TIFF file is a smaller version of a picture that lies in its SubIFDs, as the thumbnail of ` +
            `camera raw is. ${TAKE_THE_PICTURE}`,
        );
}

/**
 * ImageJ writes large stacks with one directory: its description counts the images, and the others
 * lie behind the first. Programs that take stacks apart leave the description in each part.
 */
function checkStack(
  bytes: Uint8Array,
  pages: readonly Directory[],
  { width, height, samples, bits }: TiffPage,
): void {
  const [page] = pages;
  const images = page?.get(TAG.description)?.[0] ?? 0;
  if (page === undefined || images <= pages.length || one(page, TAG.compression, 1) !== 1) return;
  const imageBytes = Math.ceil((width * samples * bits) / 8) * height;
  const end = one(page, TAG.strips, 0) + (pages.length + 1) * imageBytes;
  if (end <= bytes.length)
    throw unsupported(
      `The TIFF file holds ${images} images by ImageJ's description (images=${images}), of which ${counted(pages.length, "page")} can be found by directories. ` +
        "Save it with a directory for each image, or each image as a file.",
    );
}

/** Canon's raw files have a mark of their own in the header. */
function checkNotCanon(bytes: Uint8Array): void {
  if (bytes[8] === 0x43 && bytes[9] === 0x52 && bytes[10] === 2)
    throw unsupported(
      `The TIFF file is camera raw (CR2), whose pages are thumbnails. ${TAKE_THE_PICTURE}`,
    );
}

function number({ view, littleEndian }: TagForm, at: number, size: number): number {
  if (at + size > view.byteLength) throw cut();
  if (size === 2) return view.getUint16(at, littleEndian);
  return size === 4
    ? view.getUint32(at, littleEndian)
    : Number(view.getBigUint64(at, littleEndian));
}

function readEntry(form: TagForm, at: number, directory: Directory): void {
  const { view, littleEndian, big } = form;
  const word = big ? 8 : 4;
  const tag = view.getUint16(at, littleEndian);
  if (!TAGS_READ.has(tag)) return;
  if (SPARE.has(tag)) {
    readSpare(form, at, directory);
    return;
  }
  if (tag === TAG.description) {
    if (!directory.has(tag)) directory.set(tag, [imagesOfImageJ(form, at)]);
    return;
  }
  if (directory.has(tag)) throw corrupt(`The TIFF file has the tag ${tag} twice in one directory.`);
  const code = view.getUint16(at + 2, littleEndian);
  const type = code === RATIONAL && !FRACTIONS.has(tag) ? undefined : TYPES[code];
  const count = number(form, at + 4, word);
  if (type === undefined || count === 0)
    throw corrupt(`The TIFF file's tag ${tag} holds no number of a type that it may have.`);
  const isList = LISTS.has(tag);
  if (count > MOST_VALUES && !isList)
    throw unsupported(
      `The TIFF file's tag ${tag} has ${count} values; at most ${MOST_VALUES} are read.`,
    );
  const length = count * type.size;
  const from = length <= word ? at + 4 + word : number(form, at + 4 + word, word);
  if (from + length > view.byteLength) throw cut();
  // Directories of a hostile file might all point to one long list
  form.listed += isList ? length : 0;
  if (form.listed > view.byteLength)
    throw corrupt("The lists of strips or tiles of the TIFF file lie over each other.");
  form.entries += isList ? count : 0;
  if (form.entries > MOST_ENTRIES)
    throw unsupported(
      `The TIFF file lists more than ${MOST_ENTRIES} strips, tiles and colours; so many are read.`,
    );
  const values = Array.from({ length: count }, (_, i) =>
    type.read(view, from + i * type.size, littleEndian),
  );
  const [value = 0] = values;
  if (tag === TAG.orientation && !(value >= 1 && value <= 8)) {
    form.odd.push({ at: from, size: type.size });
    values[0] = 1;
  }
  directory.set(tag, values);
}

/** A density that is one number; others are read as absent. */
function readSpare(form: TagForm, at: number, directory: Directory): void {
  const { view, littleEndian, big } = form;
  const word = big ? 8 : 4;
  const type = TYPES[view.getUint16(at + 2, littleEndian)];
  if (type === undefined || number(form, at + 4, word) !== 1) return;
  const from = type.size <= word ? at + 4 + word : number(form, at + 4 + word, word);
  const tag = view.getUint16(at, littleEndian);
  if (from + type.size <= view.byteLength && !directory.has(tag))
    directory.set(tag, [type.read(view, from, littleEndian)]);
}

const ASCII = 2;
/** ImageJ writes the count in the second line. */
const DESCRIPTION_BYTES = 256;

/** How many images the file has by a description that ImageJ wrote; 0 of another. */
function imagesOfImageJ(form: TagForm, at: number): number {
  const { view, littleEndian, big } = form;
  const word = big ? 8 : 4;
  const length = number(form, at + 4, word);
  const from = number(form, at + 4 + word, word);
  if (view.getUint16(at + 2, littleEndian) !== ASCII || from + length > view.byteLength) return 0;
  const text = Buffer.from(
    view.buffer,
    view.byteOffset + from,
    Math.min(length, DESCRIPTION_BYTES),
  ).toString("latin1");
  const [, images] = /^ImageJ=[^\n]*\n(?:[^\n]+\n)*?images=(\d{1,9})\s/.exec(text) ?? [];
  return Number(images ?? 0);
}

function densityOf(directory: Directory): TiffPage["density"] {
  const [across] = directory.get(TAG.across) ?? [];
  const [down] = directory.get(TAG.down) ?? [];
  return across === undefined || down === undefined ? undefined : { across, down };
}

function one(directory: Directory, tag: number, absent?: number): number {
  const value = directory.get(tag)?.[0] ?? absent;
  if (value === undefined)
    throw corrupt(`The TIFF file has no tag ${tag}, which every page needs.`);
  return value;
}

/** The value that all samples share; 1 where the file does not have the tag. */
function shared(directory: Directory, tag: number): number | undefined {
  const values = directory.get(tag) ?? [1];
  return values.every((value) => value === values[0]) ? values[0] : undefined;
}

function pageOf(directory: Directory): TiffPage {
  const photometric = one(directory, TAG.photometric);
  const compression = one(directory, TAG.compression, 1);
  if (!isRead(photometric))
    throw unsupported(
      `The TIFF image is ${PHOTOMETRIC[photometric] ?? "of an unknown kind"} (PhotometricInterpretation ${photometric}); ` +
        "supported are WhiteIsZero, BlackIsZero, RGB, palette, and YCbCr in JPEG compression. Convert it.",
    );
  if (COMPRESSIONS[compression] === undefined)
    throw unsupported(
      `The TIFF image has compression ${compression}; supported are ${valueList(Object.keys(COMPRESSIONS))} ` +
        "(none, CCITT, LZW, JPEG, Deflate, PackBits). Convert it.",
    );
  if (photometric === 6) checkYcc(directory, compression);
  const bits = depthOf(directory, photometric);
  const samples = samplesOf(directory, photometric);
  if (one(directory, TAG.planar, 1) === 2 && directory.has(TAG.tileWidth))
    throw unsupported(
      "The TIFF image has its colours in separate planes (PlanarConfiguration 2) of tiles, which cannot be read; in strips they can. Convert it.",
    );
  // The decoder reads them as if they alternated
  if (one(directory, TAG.planar, 1) === 2 && samples === 2)
    throw unsupported(
      "The TIFF image has grey and alpha in separate planes (PlanarConfiguration 2), which cannot be read. Save it without alpha.",
    );
  if (photometric === 3) checkPalette(directory, bits);
  checkParts(directory, bits);
  const format = shared(directory, TAG.format);
  // 4 is "undefined", which baseline readers take as unsigned integers
  if (format !== 1 && format !== 4)
    throw unsupported(
      `The TIFF image has samples of SampleFormat ${format ?? "mixed"} (2 signed, 3 floating point); supported are unsigned integers. Convert it.`,
    );
  return {
    width: one(directory, TAG.width),
    height: one(directory, TAG.height),
    photometric,
    bits,
    samples,
    orientation: one(directory, TAG.orientation, 1),
    density: densityOf(directory),
  };
}

const isRead = (photometric: number): photometric is TiffPage["photometric"] =>
  photometric in DEPTHS;

function valueList(values: readonly (number | string)[]): string {
  return `${values.slice(0, -1).join(", ")}${values.length > 1 ? " and " : ""}${values.at(-1) ?? ""}`;
}

function depthOf(directory: Directory, photometric: TiffPage["photometric"]): number {
  const bits = shared(directory, TAG.bits);
  const depths = DEPTHS[photometric];
  if (bits === undefined || !depths.includes(bits))
    throw unsupported(
      `The TIFF image has ${directory.get(TAG.bits)?.join(", ") ?? "1"} bits a sample; supported for ${PHOTOMETRIC[photometric] ?? ""} ` +
        `are ${valueList(depths)}. Convert it.`,
    );
  if (one(directory, TAG.compression, 1) === JPEG && bits !== 8)
    throw unsupported(
      `The TIFF image is JPEG of ${bits} bits a sample; supported are 8. Convert it.`,
    );
  return bits;
}

/**
 * One grey, index or three colour samples, and at most one more: an alpha channel that the colours
 * are not multiplied by.
 */
function samplesOf(directory: Directory, photometric: TiffPage["photometric"]): number {
  const colours = photometric === 2 || photometric === 6 ? 3 : 1;
  const samples = one(directory, TAG.samples, 1);
  if (samples < colours)
    throw corrupt(
      `The TIFF image is ${PHOTOMETRIC[photometric] ?? ""} of ${samples} sample(s); ${colours} were expected.`,
    );
  const most = photometric === 1 || photometric === 2 ? colours + 1 : colours;
  if (samples > most)
    throw unsupported(
      `The TIFF image is ${PHOTOMETRIC[photometric] ?? ""} of ${samples} samples a pixel; supported are at most ${most}. Convert it.`,
    );
  if (samples > colours && directory.get(TAG.extra)?.[0] === 1)
    throw unsupported(
      "The TIFF image's colours are multiplied by its alpha channel (ExtraSamples 1), so the values that were are lost. Save it without alpha.",
    );
  return samples;
}

/** Without a whole palette the decoder gives indices as if they were grey. */
function checkPalette(directory: Directory, bits: number): void {
  const found = directory.get(TAG.colorMap)?.length ?? 0;
  const needed = 3 * 2 ** bits;
  if (found !== needed)
    throw corrupt(
      `The TIFF image's palette (ColorMap) has ${found} values where ${needed} are needed for indices of ${bits} bits. It is damaged.`,
    );
}

/**
 * Strips and tiles have to be there, and without compression to be as long as their pixels. The
 * decoder shows a tile without bytes as black, takes the rest of a short one from what it decoded
 * last, and reads what follows a short strip (the directory, for example) as pixels.
 */
function checkParts(directory: Directory, bits: number): void {
  const isTiled = directory.has(TAG.tileWidth);
  const counts = directory.get(isTiled ? TAG.tileBytes : TAG.stripBytes) ?? [];
  const isCompressed = one(directory, TAG.compression, 1) !== 1;
  const height = one(directory, TAG.height);
  const rows = isTiled ? one(directory, TAG.tileLength) : one(directory, TAG.rowsPerStrip, height);
  const inPart = Math.max(1, isTiled ? rows : Math.min(rows, height));
  const partsOfPlane = Math.ceil(height / inPart);
  const samples = one(directory, TAG.planar, 1) === 2 ? 1 : one(directory, TAG.samples, 1);
  const width = one(directory, isTiled ? TAG.tileWidth : TAG.width);
  const row = Math.ceil((width * samples * bits) / 8);
  for (const [i, said] of counts.entries()) {
    // The last strip of a plane has the rows that are left; tiles are always whole
    const left = isTiled ? inPart : Math.min(inPart, height - (i % partsOfPlane) * inPart);
    const needed = isCompressed ? 1 : row * left;
    if (said >= needed) continue;
    const [part, tag] = isTiled ? ["tile", "TileByteCounts"] : ["strip", "StripByteCounts"];
    const which = counts.length === 1 ? `only ${part}` : `${part} ${i + 1} of ${counts.length}`;
    throw errors.truncated_image(
      `In the TIFF image, the ${which} has ${said} bytes (${tag}), and its pixels need ${isCompressed ? "more" : needed}. ` +
        "Send it again from its source.",
    );
  }
}

/**
 * JPEG's YCbCr is what libjpeg undoes: coded by pixel, with the coefficients and the range of JFIF.
 */
function checkYcc(directory: Directory, compression: number): void {
  if (compression !== JPEG)
    throw unsupported(
      `The TIFF image is YCbCr (PhotometricInterpretation 6) in compression ${compression} (${COMPRESSIONS[compression] ?? ""}); ` +
        "YCbCr is read in JPEG compression only. Convert it to RGB.",
    );
  const like = (tag: number, expected: readonly number[]) =>
    expected.every((value, i) => Math.abs((directory.get(tag)?.[i] ?? value) - value) < 0.001);
  const isJfif =
    like(TAG.coefficients, [0.299, 0.587, 0.114]) &&
    like(TAG.reference, [0, 255, 128, 255, 128, 255]);
  if (!isJfif || one(directory, TAG.planar, 1) !== 1)
    throw unsupported(
      "The TIFF image is YCbCr with coefficients, a range or a layout that differ from JPEG's own. Convert it to RGB.",
    );
}

/** Bytes that strips and tiles may share with each other, as blank ones do in some files. */
const MOST_SHARED_BYTES = 2 ** 26;
/** No JPEG is shorter: its frame and scan headers alone have as many. */
const LEAST_JPEG_BYTES = 35;

/**
 * The decoder takes the colours of JPEG from the tag alone. Where the markers of a strip or tile
 * name other ones (JFIF, Adobe, component names), nobody knows which is true.
 */
function checkJpegColours(form: TagForm, bytes: Uint8Array, directory: Directory): void {
  const photometric = one(directory, TAG.photometric);
  if (one(directory, TAG.compression, 1) !== JPEG || (photometric !== 2 && photometric !== 6))
    return;
  const isTiled = directory.has(TAG.tileWidth);
  const counts = directory.get(isTiled ? TAG.tileBytes : TAG.stripBytes) ?? [];
  const starts = directory.get(isTiled ? TAG.tiles : TAG.strips) ?? [];
  for (const [i, start] of starts.entries()) {
    const part = bytes.subarray(start, start + (counts[i] ?? 0));
    if (part.length < LEAST_JPEG_BYTES) continue;
    form.ofMarkers += part.length;
    if (form.ofMarkers > bytes.length + MOST_SHARED_BYTES)
      throw corrupt("The strips or tiles of the TIFF file lie over each other.");
    const colour = jpegColour(part);
    if (colour === undefined || colour === (photometric === 2 ? "RGB" : "YBR")) continue;
    throw unsupported(
      `The TIFF image is ${PHOTOMETRIC[photometric] ?? ""} (PhotometricInterpretation ${photometric}), and the markers of its JPEG ` +
        `${isTiled ? "tile" : "strip"} ${i + 1} say ${colour === "YBR" ? "YCbCr" : colour}: its colours are unknown. Convert it at its source.`,
    );
  }
}

function jpegColour(part: Uint8Array): CodestreamHeader["colour"] {
  try {
    return readCodestream(part).colour;
  } catch {
    // The decoder judges what is damaged
    return undefined;
  }
}
