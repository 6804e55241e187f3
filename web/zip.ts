/**
 * Files of a ZIP file (PKWARE APPNOTE 6.3.10), unpacked one by one when each is sent, and checked
 * by length and CRC-32: half an image must not look like one.
 */
import { faultOfPage } from "./api.js";
import type { Given, GivenFile } from "./given.js";

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const LONGEST_END = 22 + 65_535;
const STORED = 0;
const DEFLATED = 8;
/** General purpose bits 0 and 11. */
const ENCRYPTED = 0x0001;
const UTF_8 = 0x0800;
const CENTRAL_BYTES = 46;
const LOCAL_BYTES = 30;

const viewOf = async (blob: Blob, from: number, to: number) =>
  new DataView(await blob.slice(from, to).arrayBuffer());

const damaged = (what: string) => faultOfPage(`It is no whole ZIP file: ${what}. Make it again.`);

/**
 * What lies in it, below a folder.
 * @throws Fault where it cannot be unpacked as a whole
 */
export async function zipped(zip: Blob, folder: string): Promise<Given> {
  const { count, from, to } = await directoryOf(zip);
  const view = await viewOf(zip, from, to);
  const given: Given = { files: [], refused: [] };
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (at + CENTRAL_BYTES > view.byteLength || view.getUint32(at, true) !== ENTRY)
      throw damaged("its list of files breaks off");
    const [flags, method] = [view.getUint16(at + 8, true), view.getUint16(at + 10, true)];
    const [crc, packed, bytes, start] = [16, 20, 24, 42].map((field) =>
      view.getUint32(at + field, true),
    ) as [number, number, number, number];
    const [named, extra, comment] = [28, 30, 32].map((field) =>
      view.getUint16(at + field, true),
    ) as [number, number, number];
    const text = new Uint8Array(view.buffer, at + CENTRAL_BYTES, named);
    const name = new TextDecoder((flags & UTF_8) === 0 ? "latin1" : "utf-8").decode(text);
    at += CENTRAL_BYTES + named + extra + comment;
    if (name.endsWith("/")) continue;
    // A path that leads out of the folder is no path here
    const inside = name.split(/[/\\]/).filter((part) => !["", ".", ".."].includes(part));
    const path = [folder, ...inside].join("/");
    if ((flags & ENCRYPTED) !== 0)
      given.refused.push({ path, why: "It has a password: unpack the ZIP file first." });
    else if (method !== STORED && method !== DEFLATED)
      given.refused.push({ path, why: "It is packed in a way that browsers cannot unpack." });
    else given.files.push(entry({ zip, path, start, packed, bytes, crc, method }));
  }
  return given;
}

/** Where the list of files lies. */
async function directoryOf(zip: Blob): Promise<{ count: number; from: number; to: number }> {
  const begin = Math.max(0, zip.size - LONGEST_END);
  const end = await viewOf(zip, begin, zip.size);
  let at = end.byteLength - 22;
  while (at >= 0 && end.getUint32(at, true) !== END) at--;
  if (at < 0) throw damaged("its end is missing");
  const [count, size, from] = [
    end.getUint16(at + 10, true),
    end.getUint32(at + 12, true),
    end.getUint32(at + 16, true),
  ];
  if (count === 0xffff || from === 0xffffffff)
    throw faultOfPage("It is larger than browsers can unpack here: unpack it first.");
  if (from + size > begin + at) throw damaged("its list of files lies outside it");
  return { count, from, to: from + size };
}

interface Packed {
  zip: Blob;
  path: string;
  start: number;
  packed: number;
  bytes: number;
  crc: number;
  method: number;
}

const entry = (of: Packed): GivenFile => ({
  path: of.path,
  bytes: of.bytes,
  read: () => unpack(of),
});

async function unpack({ zip, start, packed, bytes, crc, method }: Packed): Promise<Blob> {
  const head = await viewOf(zip, start, start + LOCAL_BYTES);
  if (head.byteLength < LOCAL_BYTES || head.getUint32(0, true) !== LOCAL)
    throw damaged("a file is not where its list says");
  const from = start + LOCAL_BYTES + head.getUint16(26, true) + head.getUint16(28, true);
  const raw = zip.slice(from, from + packed);
  const content = method === STORED ? await raw.arrayBuffer() : await inflated(raw, bytes);
  if (content.byteLength !== bytes || crcOf(new Uint8Array(content)) !== crc)
    throw damaged("a file in it is damaged");
  return new Blob([content]);
}

/** Stops where more comes than was said. */
async function inflated(raw: Blob, most: number): Promise<ArrayBuffer> {
  let left = most;
  const bounded = new TransformStream<Uint8Array, Uint8Array>({
    transform(piece, to) {
      left -= piece.byteLength;
      if (left < 0) to.error(damaged("a file in it is larger than it says"));
      else to.enqueue(piece);
    },
  });
  const plain = raw.stream().pipeThrough(new DecompressionStream("deflate-raw"));
  try {
    return await new Response(plain.pipeThrough(bounded)).arrayBuffer();
  } catch {
    throw damaged("a file in it is damaged");
  }
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++)
    value = (value & 1) === 0 ? value >>> 1 : (value >>> 1) ^ 0xedb88320;
  return value;
});

/** CRC-32 (ISO 3309). */
function crcOf(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] ?? 0);
  return (crc ^ 0xffffffff) >>> 0;
}
