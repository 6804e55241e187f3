/**
 * Formats that are not read and that their first bytes tell: whoever sends one is told which it is,
 * and what to do.
 */

export interface KnownFormat {
  /** For programs: `details.format`. */
  id: string;
  name: string;
  /** What to do, a sentence. */
  advice: string;
  /** Whether images are in it, for models of pictures or for others, or may be packed in it. */
  holds: "picture" | "volume" | "package" | "nothing";
}

/** Enough bytes to tell all of them: the name of a TAR archive's format stands last. */
export const KNOWN_FORMAT_BYTES = 352;

const TO_PICTURE = "Convert it to PNG, JPEG or TIFF.";
const TO_JPEG =
  "Convert it to JPEG (iPhones do so with Settings, Camera, Formats, Most Compatible).";
const UNPACK = "Unpack it, and send the files in it.";
const TO_DICOM = "Send the DICOM series that it was made of.";
const ALONE = "Send the images themselves.";
const FILM = "Send its frames as DICOM, or as PNG or JPEG.";

type Tells = (head: Buffer, text: string) => boolean;
const begins =
  (...texts: string[]): Tells =>
  (_head, text) =>
    texts.some((each) => text.startsWith(each));
const at =
  (offset: number, ...texts: string[]): Tells =>
  (_head, text) =>
    texts.some((each) => text.startsWith(each, offset));
const says =
  (pattern: RegExp): Tells =>
  (_head, text) =>
    pattern.test(text);
/** The major brand of an ISO base media file (ISO/IEC 14496-12 section 4.3). */
const brand =
  (pattern: RegExp): Tells =>
  (_head, text) =>
    text.startsWith("ftyp", 4) && pattern.test(text.slice(8, 12));
/** The header's length stands first, in either byte order (NIfTI-1, NIfTI-2, Analyze 7.5). */
const headerOf =
  (...lengths: number[]): Tells =>
  (head) =>
    head.length >= 4 &&
    lengths.some((length) => head.readInt32LE(0) === length || head.readInt32BE(0) === length);
const both =
  (one: Tells, other: Tells): Tells =>
  (head, text) =>
    one(head, text) && other(head, text);

const picture = (id: string, name: string, advice: string, tells: Tells) =>
  ({ id, name, advice, holds: "picture", tells }) as const;
const volume = (id: string, name: string, tells: Tells) =>
  ({ id, name, advice: TO_DICOM, holds: "volume", tells }) as const;
const packed = (id: string, name: string, tells: Tells, advice = UNPACK) =>
  ({ id, name, advice, holds: "package", tells }) as const;
const nothing = (id: string, name: string, tells: Tells) =>
  ({ id, name, advice: ALONE, holds: "nothing", tells }) as const;

/** The first that tells a file counts. */
const FORMATS: readonly (KnownFormat & { tells: Tells })[] = [
  picture("heic", "HEIC or HEIF picture", TO_JPEG, brand(/^(hei[cfxms]|hev[cxms]|mif1|msf1)$/)),
  picture("avif", "AVIF picture", TO_PICTURE, brand(/^avi[fs]$/)),
  picture("raw", "camera raw picture", TO_PICTURE, brand(/^crx $/)),
  picture("film", "film (MP4 or QuickTime)", FILM, at(4, "ftyp", "moov", "mdat", "wide")),
  picture("film", "film (AVI)", FILM, both(begins("RIFF"), at(8, "AVI "))),
  picture("film", "film (Matroska or WebM)", FILM, begins("\x1a\x45\xdf\xa3")),
  picture("film", "film (MPEG)", FILM, begins("\0\0\x01\xba", "\0\0\x01\xb3")),
  picture("film", "film (Windows Media)", FILM, begins("\x30\x26\xb2\x75\x8e\x66\xcf\x11")),
  picture("webp", "WebP picture", TO_PICTURE, both(begins("RIFF"), at(8, "WEBP"))),
  picture("gif", "GIF picture", TO_PICTURE, begins("GIF87a", "GIF89a")),
  picture("bmp", "BMP picture", TO_PICTURE, both(begins("BM"), at(6, "\0\0\0\0"))),
  picture("exr", "OpenEXR picture", TO_PICTURE, begins("\x76\x2f\x31\x01")),
  picture("hdr", "Radiance picture", TO_PICTURE, begins("#?RADIANCE", "#?RGBE")),
  picture("jpegxr", "JPEG XR picture", TO_PICTURE, begins("II\xbc\x01")),
  picture("dds", "DirectDraw picture", TO_PICTURE, begins("DDS ")),
  picture("pnm", "PNM picture", TO_PICTURE, says(/^P[1-7]\s[\s\d#]/)),
  picture("ico", "Windows icon", TO_PICTURE, begins("\0\0\x01\0\x01\0", "\0\0\x02\0\x01\0")),
  picture("jbig2", "JBIG2 picture", TO_PICTURE, begins("\x97JB2\r\n\x1a\n")),
  picture(
    "svg",
    "drawing (SVG)",
    TO_PICTURE,
    says(/^\s*(?:<\?xml[^>]*>\s*)?(?:<!--[^>]*-->\s*)?<svg[\s>]/),
  ),
  picture("pcx", "PCX picture", TO_PICTURE, begins("\n\x02\x01", "\n\x03\x01", "\n\x05\x01")),
  picture("sgi", "SGI picture", TO_PICTURE, begins("\x01\xda\0", "\x01\xda\x01")),
  picture("czi", "microscope image (CZI)", TO_PICTURE, begins("ZISRAWFILE")),
  picture("djvu", "DjVu document", TO_PICTURE, begins("AT&TFORM")),
  picture(
    "jpeg2000",
    "JPEG 2000 picture",
    TO_PICTURE,
    begins("\0\0\0\x0cjP  ", "\xff\x4f\xff\x51"),
  ),
  picture("jpegxl", "JPEG XL picture", TO_PICTURE, begins("\0\0\0\x0cJXL ", "\xff\x0a")),
  picture("psd", "Photoshop document", TO_PICTURE, begins("8BPS")),
  picture(
    "raw",
    "camera raw picture",
    TO_PICTURE,
    begins("FUJIFILMCCD-RAW", "IIRO", "IIRS", "MMOR", "IIU\0", "FOVb", "\0MRM"),
  ),
  volume("nifti", "NIfTI or Analyze volume", headerOf(348, 540)),
  volume("nrrd", "NRRD volume", begins("NRRD0")),
  volume("metaimage", "MetaImage volume", begins("ObjectType = Image", "NDims = ")),
  volume("minc", "MINC or HDF5 file", begins("\x89HDF\r\n\x1a\n", "CDF\x01", "CDF\x02")),
  volume("fits", "FITS file", begins("SIMPLE  =")),
  volume("matlab", "MATLAB file", begins("MATLAB 5.0 MAT-file")),
  volume("numpy", "NumPy array", begins("\x93NUMPY")),
  volume("ecat", "ECAT volume", begins("MATRIX7")),
  volume("vtk", "VTK file", begins("# vtk DataFile")),
  volume("mgh", "FreeSurfer volume", both(begins("\0\0\0\x01\0\0"), at(8, "\0\0"))),
  volume("par", "Philips PAR header", begins("# === DATA DESCRIPTION FILE")),
  volume("mrc", "MRC volume", at(208, "MAP ")),
  nothing(
    "office",
    "office document",
    both(begins("PK\x03\x04"), at(30, "[Content_Types].xml", "mimetype")),
  ),
  packed("zip", "ZIP archive", begins("PK\x03\x04", "PK\x05\x06", "PK\x07\x08")),
  packed(
    "gzip",
    "gzip file",
    begins("\x1f\x8b\x08"),
    "Unpack it (`gunzip`), and send what is in it.",
  ),
  packed("bzip2", "bzip2 file", says(/^BZh[1-9]/)),
  packed("xz", "xz file", begins("\xfd7zXZ\0")),
  packed("zstd", "Zstandard file", begins("\x28\xb5\x2f\xfd")),
  packed("lz4", "LZ4 file", begins("\x04\x22\x4d\x18", "\x02\x21\x4c\x18")),
  packed("lzip", "lzip file", begins("LZIP\x01")),
  packed("lzop", "LZO file", begins("\x89LZO\0\r\n\x1a\n")),
  packed("compress", "compress file (.Z)", begins("\x1f\x9d", "\x1f\xa0")),
  packed("lzma", "LZMA file", begins("\x5d\0\0\x80\0", "\x5d\0\0\x40\0", "\x5d\0\0\0\x04")),
  packed("cab", "Cabinet archive", begins("MSCF\0\0\0\0")),
  packed("ar", "ar archive", begins("!<arch>\n")),
  packed("cpio", "cpio archive", begins("070701", "070702", "070707")),
  packed("7z", "7-Zip archive", begins("7z\xbc\xaf\x27\x1c")),
  packed("rar", "RAR archive", begins("Rar!\x1a\x07")),
  packed("tar", "TAR archive", at(257, "ustar")),
  nothing("dicom_json", "DICOM object in JSON", says(/^\s*(?:\[\s*)?\{\s*"[\dA-Fa-f]{8}"\s*:/)),
  nothing(
    "dicom_xml",
    "DICOM object in XML",
    says(/^\s*(?:<\?xml[^>]*>\s*)?<(?:NativeDicomModel|file-format|data-set)[\s>]/),
  ),
  nothing("rtf", "RTF document", begins("{\\rtf")),
  nothing("postscript", "PostScript document", begins("%!PS")),
  nothing("pdf", "PDF document", begins("%PDF-")),
  nothing("office", "office document or thumbnail store of Windows", begins("\xd0\xcf\x11\xe0")),
];

/** @param head KNOWN_FORMAT_BYTES are enough */
export function knownFormat(head: Uint8Array): KnownFormat | undefined {
  const bytes = Buffer.from(head.buffer, head.byteOffset, head.byteLength);
  const text = bytes.toString("latin1", 0, KNOWN_FORMAT_BYTES);
  return FORMATS.find(({ tells }) => tells(bytes, text));
}

const article = (name: string): string => (/^[AEIOUH]EIC|^[aeiou]|^[AEIO]/.test(name) ? "an" : "a");

/** "The file is a ZIP archive, which is not read. Unpack it ..." */
export const saidOf = ({ name, advice }: KnownFormat): string =>
  `The file is ${article(name)} ${name}, which is not read. ${advice}`;
