/**
 * Damages DICOM files where it hurts: tags, VRs, lengths, delimiters, fragments, offset tables,
 * codestream headers and the numbers that sizes are computed from. Every mutant follows from its
 * seed alone.
 */
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { BIG_ENDIAN, DEFLATED, IMPLICIT } from "./dicom.js";

type Next = () => number;

/** The places in the file that belong to one element, item or delimiter. */
interface Site {
  tag: number;
  at: number;
  /** Position of the VR; undefined where it is implicit. */
  vrAt: number | undefined;
  lengthAt: number;
  lengthBytes: 2 | 4;
  valueAt: number;
  /** End of what is known to belong to it: of the header alone where the length is undefined. */
  end: number;
}

interface Layout {
  bytes: Buffer;
  sites: Site[];
  little: boolean;
}

const LONG = new Set("OB OD OF OL OV OW SQ SV UC UN UR UT UV".split(" "));
const ITEM = 0xfffee000;
const FRAGMENTS = 0x7fe00010;
const UNDEFINED = 0xffffffff;

/**
 * Walks elements from `start`, into sequences and fragments, without any belief in what it finds.
 */
function walk(bytes: Buffer, start: number, explicit: boolean, little: boolean): Site[] {
  const sites: Site[] = [];
  const u16 = (at: number) => (little ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at));
  const u32 = (at: number) => (little ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at));
  let inFragments = false;
  for (let at = start; at + 8 <= bytes.length;) {
    const tag = u16(at) * 65536 + u16(at + 2);
    const isItem = u16(at) === 0xfffe;
    const vrAt = explicit && !isItem ? at + 4 : undefined;
    const vr = vrAt === undefined ? "" : bytes.toString("latin1", vrAt, vrAt + 2);
    const long = vrAt === undefined || LONG.has(vr);
    const lengthAt = vrAt === undefined ? at + 4 : long ? at + 8 : at + 6;
    if (lengthAt + 4 > bytes.length) break;
    const valueAt = lengthAt + (vrAt === undefined || long ? 4 : 2);
    const length = valueAt - lengthAt === 4 ? u32(lengthAt) : u16(lengthAt);
    if (tag === FRAGMENTS) inFragments = length === UNDEFINED;
    const isOpen = length === UNDEFINED || vr === "SQ" || (tag === ITEM && !inFragments);
    const end = isOpen ? valueAt : Math.min(bytes.length, valueAt + length);
    sites.push({
      tag,
      at,
      vrAt,
      lengthAt,
      lengthBytes: valueAt - lengthAt === 4 ? 4 : 2,
      valueAt,
      end,
    });
    at = end;
  }
  return sites;
}

/** A file taken apart; deflated data sets are inflated, and `whole` puts them together again. */
export interface Specimen extends Layout {
  whole(bytes: Buffer): Buffer;
}

/** `file` as dicomFile made it in `transferSyntax`. */
export function specimen(file: Buffer, transferSyntax: string): Specimen {
  const little = transferSyntax !== BIG_ENDIAN;
  const explicit = transferSyntax !== IMPLICIT;
  if (transferSyntax !== DEFLATED)
    return {
      bytes: file,
      sites: walk(file, dataSetStart(file), explicit, little),
      little,
      whole: (b) => b,
    };
  const head = file.subarray(0, dataSetStart(file));
  const bytes = inflateRawSync(file.subarray(head.length));
  return {
    bytes,
    sites: walk(bytes, 0, true, true),
    little: true,
    whole: (b) => Buffer.concat([head, deflateRawSync(b)]),
  };
}

/** Behind the file meta information, all of which is in group 2, explicit and little endian. */
function dataSetStart(file: Buffer): number {
  let at = 132;
  while (at + 8 <= file.length && file.readUInt16LE(at) === 2) {
    const long = LONG.has(file.toString("latin1", at + 4, at + 6));
    at += long ? 12 + file.readUInt32LE(at + 8) : 8 + file.readUInt16LE(at + 6);
  }
  return at;
}

const BYTES = [0, 1, 0x7f, 0x80, 0xff, 0xfe, 0x4f, 0xd8, 0xd9];
const LENGTHS = [
  0,
  1,
  2,
  3,
  7,
  0xfffe,
  0xffff,
  0x10000,
  0x7fffffff,
  0x80000000,
  0xfffffffe,
  UNDEFINED,
];
const NUMBERS = [
  0, 1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 63, 64, 255, 256, 4096, 32768, 65535,
];
const TEXTS = [
  "0",
  "1",
  "2",
  "-1",
  "3",
  "255",
  "1e9",
  "99999999999",
  "4294967296",
  "0.0001",
  "-0",
  "NaN",
  "",
  "x",
];
const VRS =
  "AE AS AT CS DA DS DT FL FD IS LO LT OB OD OF OL OW PN SH SL SQ SS ST TM UI UL UN US UT ??".split(
    " ",
  );
const TAGS = [
  0, 0x00020010, 0x00080005, 0x00280002, 0x00280008, 0x00280010, 0x00280011, 0x00280100, 0x00281050,
  0x00283000, 0x00283010, 0x52009230, 0x7fe00001, 0x7fe00008, 0x7fe00010, 0xfffee000, 0xfffee00d,
  0xfffee0dd, 0xfffcfffc,
];
const PHOTOMETRIC = [
  "MONOCHROME1",
  "RGB",
  "PALETTE COLOR",
  "YBR_FULL",
  "YBR_FULL_422",
  "YBR_RCT",
  "ARGB",
  "?",
];
/** What sizes and pixels are computed from (group 0028), and Number of Frames. */
const IMAGE_PIXEL = new Set([
  0x00280002, 0x00280004, 0x00280006, 0x00280008, 0x00280010, 0x00280011, 0x00280100, 0x00280101,
  0x00280102, 0x00280103,
]);

function pick<T>(list: readonly T[], next: Next): T {
  return list[Math.floor(next() * list.length)]!;
}

function write(layout: Layout, at: number, value: number, bytes: 1 | 2 | 4): void {
  const { bytes: b, little } = layout;
  if (at + bytes > b.length) return;
  if (bytes === 1) b[at] = value;
  else if (bytes === 2 && little) b.writeUInt16LE(value & 0xffff, at);
  else if (bytes === 2) b.writeUInt16BE(value & 0xffff, at);
  else if (little) b.writeUInt32LE(value >>> 0, at);
  else b.writeUInt32BE(value >>> 0, at);
}

function text(layout: Layout, at: number, end: number, value: string): void {
  for (let i = at; i < end; i++) layout.bytes[i] = value.charCodeAt(i - at) || 0x20;
}

/** Changes in place, which leave the positions of all sites as they are. */
const CHANGES: ((layout: Layout, next: Next) => void)[] = [
  function tag(layout, next) {
    const value = pick(TAGS, next);
    const { at } = pick(layout.sites, next);
    write(layout, at, Math.floor(value / 65536), 2);
    write(layout, at + 2, value % 65536, 2);
  },
  function representation(layout, next) {
    const { vrAt } = pick(layout.sites, next);
    if (vrAt !== undefined) text(layout, vrAt, vrAt + 2, pick(VRS, next));
  },
  function length(layout, next) {
    const { lengthAt, lengthBytes, valueAt, end } = pick(layout.sites, next);
    const near = end - valueAt + pick([-8, -2, -1, 1, 2, 8, 512], next);
    write(layout, lengthAt, next() < 0.5 ? pick(LENGTHS, next) : near, lengthBytes);
  },
  function imagePixel(layout, next) {
    const site = pick(
      layout.sites.filter(({ tag }) => IMAGE_PIXEL.has(tag)),
      next,
    );
    if (site.tag === 0x00280004) text(layout, site.valueAt, site.end, pick(PHOTOMETRIC, next));
    else if (site.tag === 0x00280008) text(layout, site.valueAt, site.end, pick(TEXTS, next));
    else write(layout, site.valueAt, pick(NUMBERS, next), 2);
  },
  function value(layout, next) {
    const site = pick(layout.sites, next);
    const size = site.end - site.valueAt;
    if (size === 0) return;
    if (next() < 0.5) text(layout, site.valueAt, site.end, pick(TEXTS, next));
    else write(layout, site.valueAt + 2 * Math.floor((next() * size) / 2), pick(NUMBERS, next), 2);
  },
  function fragment(layout, next) {
    const items = fragments(layout);
    if (items.length === 0) return;
    const site = pick(items, next);
    write(layout, site.lengthAt, next() < 0.3 ? pick(LENGTHS, next) : Math.floor(next() * 400), 4);
  },
  function offsetTable(layout, next) {
    const [table] = fragments(layout);
    if (table === undefined || table.end === table.valueAt) return;
    const entry = table.valueAt + 4 * Math.floor((next() * (table.end - table.valueAt)) / 4);
    write(layout, entry, next() < 0.3 ? pick(LENGTHS, next) : Math.floor(next() * 2000), 4);
  },
  function codestreamHeader(layout, next) {
    const [, ...items] = fragments(layout);
    if (items.length === 0) return;
    const { valueAt } = pick(items, next);
    // SOF, SIZ and COD, SPIFF, and the header of RLE lie here
    const at = valueAt + Math.floor(next() ** 1.5 * 140);
    write(layout, at, next() < 0.5 ? pick(BYTES, next) : Math.floor(next() * 256), 1);
  },
  function sizesAgree(layout, next) {
    // Both the attribute and the codestream say the same wrong size
    const [, ...items] = fragments(layout);
    const rows = layout.sites.find(({ tag }) => tag === 0x00280010);
    if (items.length === 0 || rows === undefined) return;
    const { valueAt } = items[0]!;
    const old = layout.little
      ? layout.bytes.readUInt16LE(rows.valueAt)
      : layout.bytes.readUInt16BE(rows.valueAt);
    const value = pick([1, 2, 255, 4096, 16384, 65535], next);
    write(layout, rows.valueAt, value, 2);
    for (let at = valueAt; at < Math.min(valueAt + 140, layout.bytes.length - 1); at++)
      if (layout.bytes.readUInt16BE(at) === old) return void layout.bytes.writeUInt16BE(value, at);
  },
  function noise(layout, next) {
    const at = Math.floor(next() * layout.bytes.length);
    write(layout, at, next() < 0.5 ? pick(BYTES, next) : Math.floor(next() * 256), 1);
  },
];

/** Changes that move bytes; at most one is made, after the others. */
const MOVES: ((layout: Layout, next: Next) => Buffer)[] = [
  ({ bytes }, next) => Buffer.from(bytes.subarray(0, Math.floor(next() * bytes.length))),
  // Just before, inside or just behind the head of an element
  ({ bytes, sites }, next) =>
    Buffer.from(bytes.subarray(0, pick(sites, next).at + Math.floor(next() * 14))),
  ({ bytes, sites }, next) => {
    const { at, end } = pick(sites, next);
    return Buffer.concat([bytes.subarray(0, at), bytes.subarray(end)]);
  },
  ({ bytes, sites }, next) => {
    const { at, end } = pick(sites, next);
    return Buffer.concat([bytes.subarray(0, end), bytes.subarray(at)]);
  },
  ({ bytes, sites }, next) => {
    const from = pick(sites, next);
    const { at } = pick(sites, next);
    return Buffer.concat([
      bytes.subarray(0, at),
      bytes.subarray(from.at, from.end),
      bytes.subarray(at),
    ]);
  },
  // Delimiters are left out or put in
  (layout, next) => {
    const { bytes, sites } = layout;
    const delimiters = sites.filter(({ tag }) => tag === 0xfffee00d || tag === 0xfffee0dd);
    if (delimiters.length > 0 && next() < 0.5) {
      const { at, end } = pick(delimiters, next);
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(end)]);
    }
    const extra = { ...layout, bytes: Buffer.alloc(8) };
    write(extra, 0, 0xfffe, 2);
    write(extra, 2, pick([0xe000, 0xe00d, 0xe0dd], next), 2);
    write(extra, 4, pick([0, 4, UNDEFINED], next), 4);
    const { at } = pick(sites, next);
    return Buffer.concat([bytes.subarray(0, at), extra.bytes, bytes.subarray(at)]);
  },
  ({ bytes }, next) => {
    const at = Math.floor(next() * bytes.length);
    return Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + Math.floor(next() * 8))]);
  },
];

/** The offset table and the fragments. */
function fragments({ sites }: Layout): Site[] {
  const first = sites.findIndex(({ tag }) => tag === FRAGMENTS);
  return first < 0 ? [] : sites.slice(first + 1).filter(({ tag }) => tag === ITEM);
}

/** One to four kinds of damage, drawn by `next`. */
export function mutated(source: Specimen, next: Next): Buffer {
  const layout = { ...source, bytes: Buffer.from(source.bytes) };
  const count = Math.floor(next() * 3);
  const moves = count === 0 || next() < 0.3;
  for (let i = 0; i < count; i++) pick(CHANGES, next)(layout, next);
  return source.whole(moves ? pick(MOVES, next)(layout, next) : layout.bytes);
}
