/**
 * TIFF and PNG files written by hand, so that tests do not ask the decoder's own writer what a file
 * means.
 */
import { crc32, deflateSync } from "node:zlib";

export interface TiffEntry {
  tag: number;
  /** 1 BYTE, 2 ASCII, 3 SHORT, 4 LONG, 5 RATIONAL (here of two zeros), 7 UNDEFINED, 16 LONG8. */
  type?: 1 | 2 | 3 | 4 | 5 | 7 | 16;
  values: readonly number[];
}

export interface TiffPage {
  width: number;
  height: number;
  bits?: number[];
  photometric: number;
  pixels: Uint8Array;
  compression?: number;
  /**
   * Further entries; an entry here replaces the one of the same tag, or removes it where it has no
   * values.
   */
  more?: TiffEntry[];
  /** Pictures that hang on this one (SubIFDs). */
  inside?: TiffPage[];
  /** The same in the place of its EXIF directory. */
  exif?: TiffPage;
}

export interface TiffOptions {
  bigEndian?: boolean;
  bigTiff?: boolean;
}

const SIZES = { 1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1, 16: 8 } as const;

/** A TIFF of one strip a page: header, then for each page its pixels, long values and directory. */
export function tiffFile(pages: readonly TiffPage[], options: TiffOptions = {}): Buffer {
  const { bigEndian = false, bigTiff = false } = options;
  const word = bigTiff ? 8 : 4;
  const uint = (value: number, bytes: number) => {
    const out = Buffer.alloc(bytes);
    if (bytes === 8 && bigEndian) out.writeBigUInt64BE(BigInt(value));
    else if (bytes === 8) out.writeBigUInt64LE(BigInt(value));
    else if (bigEndian) out.writeUIntBE(value, 0, bytes);
    else out.writeUIntLE(value, 0, bytes);
    return out;
  };
  const parts: Buffer[] = [Buffer.from(bigEndian ? "MM" : "II"), uint(bigTiff ? 43 : 42, 2)];
  if (bigTiff) parts.push(uint(8, 2), uint(0, 2));
  let length = bigTiff ? 8 : 4;
  const put = (part: Buffer) => {
    const at = length;
    parts.push(part, Buffer.alloc(part.length % 2));
    length += part.length + (part.length % 2);
    return at;
  };
  /** Writes a directory, what it points to before it, and gives its offset. */
  const directory = (page: TiffPage): number => {
    const ended = (one: TiffPage) => {
      const at = directory(one);
      put(Buffer.alloc(word));
      return at;
    };
    const inside = (page.inside ?? []).map(ended);
    const pixelsAt = put(Buffer.from(page.pixels));
    const hung: TiffEntry[] = inside.length > 0 ? [{ tag: 330, type: 4, values: inside }] : [];
    if (page.exif !== undefined) hung.push({ tag: 34665, type: 4, values: [ended(page.exif)] });
    const fields = entriesOf({ ...page, more: [...hung, ...(page.more ?? [])] }, pixelsAt).map(
      ({ tag, type = 3, values }) => {
        const value = Buffer.concat(values.map((v) => uint(v, SIZES[type])));
        const inline = value.length <= word ? value : uint(put(value), word);
        const padded = Buffer.concat([inline, Buffer.alloc(word - inline.length)]);
        return Buffer.concat([uint(tag, 2), uint(type, 2), uint(values.length, word), padded]);
      },
    );
    return put(Buffer.concat([uint(fields.length, bigTiff ? 8 : 2), ...fields]));
  };
  let link = parts.length;
  put(Buffer.alloc(word));
  for (const page of pages) {
    parts[link] = uint(directory(page), word);
    link = parts.length;
    // The link lies directly behind the entries, which are of even length
    put(Buffer.alloc(word));
  }
  return Buffer.concat(parts);
}

function entriesOf(page: TiffPage, offset: number): TiffEntry[] {
  const { bits = [8], more = [] } = page;
  const usual: TiffEntry[] = [
    { tag: 256, values: [page.width] },
    { tag: 257, values: [page.height] },
    { tag: 258, values: bits },
    { tag: 259, values: [page.compression ?? 1] },
    { tag: 262, values: [page.photometric] },
    { tag: 273, type: 4, values: [offset] },
    { tag: 277, values: [bits.length] },
    { tag: 278, values: [page.height] },
    { tag: 279, type: 4, values: [page.pixels.length] },
  ];
  return [...usual.filter(({ tag }) => !more.some((entry) => entry.tag === tag)), ...more]
    .filter(({ values }) => values.length > 0)
    .sort((a, b) => a.tag - b.tag);
}

export function pngChunk(type: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const ends = Buffer.alloc(8);
  ends.writeUInt32BE(data.length, 0);
  ends.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([ends.subarray(0, 4), body, ends.subarray(4)]);
}

export interface PngParts {
  width: number;
  height: number;
  bits: number;
  /** 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha. */
  colour: number;
  /** Packed samples, a multiple of `height` long. */
  pixels: Uint8Array;
  /** Chunks between header and pixels. */
  before?: Buffer[];
}

export function pngFile({ width, height, bits, colour, pixels, before = [] }: PngParts): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([bits, colour], 8);
  const stride = pixels.length / height;
  const rows = Array.from({ length: height }, (_, y) =>
    Buffer.concat([Buffer.from([0]), pixels.subarray(y * stride, (y + 1) * stride)]),
  );
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    pngChunk("IHDR", header),
    ...before,
    pngChunk("IDAT", deflateSync(Buffer.concat(rows))),
    pngChunk("IEND", new Uint8Array(0)),
  ]);
}

/** A segment of JPEG: marker, length and content. */
function jpegSegment(marker: number, content: Buffer): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt16BE(marker, 0);
  head.writeUInt16BE(content.length + 2, 2);
  return Buffer.concat([head, content]);
}

const xmpSegment = (attributes: string): Buffer =>
  jpegSegment(
    0xff_e1,
    Buffer.from(
      "http://ns.adobe.com/xap/1.0/\0" +
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">' +
        `<rdf:Description xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0" ${attributes}/>` +
        "</rdf:RDF></x:xmpmeta>",
    ),
  );

/**
 * Tells where the second picture lies (CIPA DC-007).
 * @param begin bytes of the file before the segment
 * @param first bytes of the first picture
 * @param second bytes of the second
 */
function multiPictureSegment(begin: number, first: number, second: number): Buffer {
  // Its offsets count from the byte order mark, behind marker, length and "MPF\0"
  const from = begin + 8;
  const content = Buffer.alloc(82);
  const entry = (at: number, [tag, type, count]: [number, number, number]) => {
    content.writeUInt16BE(tag, at);
    content.writeUInt16BE(type, at + 2);
    content.writeUInt32BE(count, at + 4);
  };
  content.write("MM\0*", 0, "latin1");
  content.writeUInt32BE(8, 4);
  content.writeUInt16BE(3, 8);
  entry(10, [0xb0_00, 7, 4]);
  content.write("0100", 18, "latin1");
  entry(22, [0xb0_01, 4, 1]);
  content.writeUInt32BE(2, 30);
  entry(34, [0xb0_02, 7, 32]);
  content.writeUInt32BE(50, 42);
  content.writeUInt32BE(0x03_00_00, 50);
  content.writeUInt32BE(first, 54);
  content.writeUInt32BE(second, 70);
  content.writeUInt32BE(first - from, 74);
  return jpegSegment(0xff_e2, Buffer.concat([Buffer.from("MPF\0"), content]));
}

/**
 * A JPEG as telephones write it: one picture, and a second one that says how bright a screen may
 * show it.
 */
export function gainMapJpeg(picture: Buffer, gainMap: Buffer): Buffer {
  const after = (jpeg: Buffer, ...segments: Buffer[]) =>
    Buffer.concat([jpeg.subarray(0, 2), ...segments, jpeg.subarray(2)]);
  const second = after(gainMap, xmpSegment('hdrgm:GainMapMax="2" hdrgm:HDRCapacityMax="2"'));
  const xmp = xmpSegment("");
  const length = multiPictureSegment(0, 8, 0).length;
  const first = picture.length + xmp.length + length;
  const places = multiPictureSegment(2 + xmp.length, first, second.length);
  return Buffer.concat([after(picture, xmp, places), second]);
}
