/**
 * What somebody would write with Node.js: Koa, jsonwebtoken, dcmjs and its codecs, sharp, and onnxruntime-node with one
 * thread; with a receipt alone, because nothing on npm makes the DICOM objects. koa.ts starts one for each core. Takes
 * the same environment as service.py, and PEER_PORT and PEER_ORT, the folder that has onnxruntime-node.
 */
import { readdir, readFile, realpath, stat, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, join, sep } from "node:path";
import Router from "@koa/router";
import codecs from "dcmjs-codecs";
import jwt from "jsonwebtoken";
import Koa from "koa";
import bodyParser from "koa-bodyparser";
import sharp from "sharp";
import { requireOrt } from "../lib/node-rival.js";
import type { RivalModel } from "./models.js";

const { NativeCodecs, Context } = codecs;

/** What is used of dcmjs, which brings no types. */
interface Dcmjs {
  data: {
    DicomMessage: {
      readFile(bytes: ArrayBuffer): {
        dict: Record<string, { Value: unknown[] }>;
        meta: Record<string, { Value: unknown[] }>;
      };
    };
  };
}
const dcmjs = createRequire(import.meta.url)("dcmjs") as Dcmjs;

const environment = (name: string): string => process.env[name] ?? "";
const settings = JSON.parse(environment("PEER")) as RivalModel;
const key = Buffer.from(environment("PEER_KEY"), "hex");

type Values = Float32Array | Uint8Array | BigInt64Array;
type Words = Int16Array | Uint16Array | Uint8Array;

/** A file's attributes by their hexadecimal tags, and its frames as stored. */
interface Source {
  /** The first value of an attribute. */
  value: (tag: string) => unknown;
  /** ImagePositionPatient. */
  position: readonly unknown[];
  rows: number;
  columns: number;
  frames: Words[];
}

const TAGS = {
  rows: "00280010",
  columns: "00280011",
  bitsAllocated: "00280100",
  bitsStored: "00280101",
  signed: "00280103",
  spacing: "00280030",
  slope: "00281053",
  intercept: "00281052",
  thickness: "00180050",
  position: "00200032",
  frames: "00280008",
  pixels: "7FE00010",
  syntax: "00020010",
} as const;
const JPEG_2000 = /^1\.2\.840\.10008\.1\.2\.4\.9[01]$/;
const NATIVE = /^1\.2\.840\.10008\.1\.2(\.1)?$/;

function decoded(
  encoded: ArrayBuffer,
  source: Omit<Source, "frames" | "position">,
  syntax: string,
): Uint8Array {
  const number = (tag: string) => Number(source.value(tag));
  const context = new Context({
    width: source.columns,
    height: source.rows,
    bitsAllocated: number(TAGS.bitsAllocated),
    bitsStored: number(TAGS.bitsStored),
    samplesPerPixel: 1,
    pixelRepresentation: number(TAGS.signed),
    planarConfiguration: 0,
    photometricInterpretation: "MONOCHROME2",
    encodedBuffer: new Uint8Array(encoded),
  });
  const done = JPEG_2000.test(syntax)
    ? NativeCodecs.decodeJpeg2000(context)
    : NativeCodecs.decodeJpeg(context);
  const bytes = done.getDecodedBuffer();
  if (bytes === undefined) throw new Error("A frame cannot be decoded.");
  return bytes;
}

async function read(path: string): Promise<Source> {
  const file = await readFile(path);
  const { dict, meta } = dcmjs.data.DicomMessage.readFile(
    file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength),
  );
  const value = (tag: string): unknown => dict[tag]?.Value[0];
  const syntax = String(meta[TAGS.syntax]?.Value[0]);
  const source = { value, rows: Number(value(TAGS.rows)), columns: Number(value(TAGS.columns)) };
  const parts = (dict[TAGS.pixels]?.Value ?? []) as ArrayBuffer[];
  const words = (bytes: Uint8Array): Words => {
    if (value(TAGS.bitsAllocated) === 8) return bytes;
    const at = [bytes.buffer, bytes.byteOffset, bytes.byteLength >> 1] as const;
    // A typed array of words begins at an even address
    const aligned = at[1] % 2 === 0 ? at : ([bytes.slice().buffer, 0, at[2]] as const);
    return value(TAGS.signed) === 1 ? new Int16Array(...aligned) : new Uint16Array(...aligned);
  };
  const frames = NATIVE.test(syntax)
    ? parts.map((part) => words(new Uint8Array(part)))
    : parts.map((part) => words(decoded(part, source, syntax)));
  return { ...source, position: dict[TAGS.position]?.Value ?? [], frames };
}

const ort = requireOrt(environment("PEER_ORT"));
const session = await ort.InferenceSession.create(settings.model, {
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  executionMode: "sequential",
});
const [input = "", output = ""] = [session.inputNames[0], session.outputNames[0]];

async function run(data: Float32Array, shape: readonly number[]): Promise<Values> {
  const results = await session.run({ [input]: new ort.Tensor("float32", data, shape) });
  return results[output]!.data;
}

function hounsfield({ value, frames }: Source, into: Float32Array, at = 0): Float32Array {
  const [slope, intercept] = [Number(value(TAGS.slope) ?? 1), Number(value(TAGS.intercept) ?? 0)];
  const words = frames[0]!;
  for (let i = 0; i < words.length; i++) into[at + i] = words[i]! * slope + intercept;
  return into;
}

/** Takes out of the mask what of this label is connected to the border (8-connected, as the model's manifest says). */
function dropBorder(mask: Uint8Array, rows: number, columns: number, label: number): void {
  const open: number[] = [];
  const take = (row: number, column: number) => {
    if (row < 0 || column < 0 || row >= rows || column >= columns) return;
    const at = row * columns + column;
    if (mask[at] !== label) return;
    mask[at] = 0;
    open.push(at);
  };
  for (let column = 0; column < columns; column++) for (const row of [0, rows - 1]) take(row, column);
  for (let row = 0; row < rows; row++) for (const column of [0, columns - 1]) take(row, column);
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    const [row, column] = [Math.floor(at / columns), at % columns];
    for (let y = row - 1; y <= row + 1; y++) for (let x = column - 1; x <= column + 1; x++) take(y, x);
  }
}

function counted(mask: Uint8Array): number[] {
  const counts = new Array<number>(settings.labels.length + 1).fill(0);
  for (const label of mask) counts[label]!++;
  return counts;
}

async function tissue(path: string): Promise<object[]> {
  const source = await read(path);
  const { rows, columns, value } = source;
  const raw = await run(hounsfield(source, new Float32Array(rows * columns)), [1, 1, rows, columns]);
  const mask = Uint8Array.from(raw as Uint8Array);
  dropBorder(mask, rows, columns, 1);
  const counts = counted(mask);
  const mm2 = Number(value(TAGS.spacing)) ** 2;
  return settings.labels.map((each, i) => {
    const pixels = counts[i + 1]!;
    return { ...each, present: pixels > 0, area: { pixels, cm2: (pixels * mm2) / 100 } };
  });
}

/** A picture shrunk to the network's size, between -1 and 1. */
async function shrink({ rows, columns, value }: Source, words: Words, into: Float32Array, at: number) {
  const side = settings.side ?? 0;
  const top = 2 ** Number(value(TAGS.bitsStored)) - 1;
  const isByte = words instanceof Uint8Array;
  const image = sharp(words, { raw: { width: columns, height: rows, channels: 1 } }).resize(side, side, {
    fit: "fill",
  });
  const bytes = isByte
    ? await image.toColourspace("b-w").raw().toBuffer()
    : await image.toColourspace("grey16").raw({ depth: "ushort" }).toBuffer();
  const small = isByte ? bytes : new Uint16Array(bytes.buffer, bytes.byteOffset, side * side);
  for (let i = 0; i < side * side; i++) into[at + i] = (small[i]! * 2) / top - 1;
}

function found(logits: Values): object[] {
  return settings.labels.map(({ label }, i) => {
    const score = 1 / (1 + Math.exp(-Number(logits[i])));
    return { label, score, threshold: 0.5, present: score >= 0.5 };
  });
}

async function frameScores(path: string): Promise<Values> {
  const source = await read(path);
  const side = settings.side ?? 0;
  const tensor = new Float32Array(source.frames.length * side * side);
  for (const [i, words] of source.frames.entries()) await shrink(source, words, tensor, i * side * side);
  return run(tensor, [source.frames.length, 1, side, side]);
}

const scores = async (path: string): Promise<object[]> => found(await frameScores(path));

async function frames(path: string): Promise<object[]> {
  const logits = await frameScores(path);
  const labels = settings.labels.length;
  return Array.from({ length: logits.length / labels }, (_, i) => ({
    frame: i + 1,
    findings: found(logits.subarray(i * labels, (i + 1) * labels)),
  }));
}

async function volume(folder: string): Promise<object[]> {
  const names = await readdir(folder);
  const slices = await Promise.all(names.map((name) => read(join(folder, name))));
  // The slices are axial: the third coordinate orders them
  slices.sort((a, b) => Number(a.position[2]) - Number(b.position[2]));
  const { rows, columns, value } = slices[0]!;
  const voxels = slices.length * rows * columns;
  const tensor = new Float32Array(voxels);
  for (const [i, slice] of slices.entries()) hounsfield(slice, tensor, i * rows * columns);
  const raw = await run(tensor, [1, 1, slices.length, rows, columns]);
  const classes = raw.length / voxels;
  const mask = new Uint8Array(voxels);
  for (let i = 0; i < voxels; i++)
    for (let label = 1; label < classes; label++)
      if (raw[label * voxels + i]! > raw[mask[i]! * voxels + i]!) mask[i] = label;
  const counts = counted(mask);
  const ml = (Number(value(TAGS.spacing)) ** 2 * Number(value(TAGS.thickness))) / 1000;
  return settings.labels.map((each, i) => ({
    ...each,
    present: counts[i + 1]! > 0,
    volume: { ml: counts[i + 1]! * ml },
  }));
}

const infer = { tissue, scores, frames, volume }[settings.kind];

const roots = await Promise.all(["INPUT", "OUTPUT"].map((side) => realpath(environment(`PEER_${side}`))));

async function inside(path: string, side: 0 | 1): Promise<string> {
  const real = await realpath(path);
  if (!real.startsWith(`${roots[side]}${sep}`)) throw new Error("A path lies outside the roots.");
  return real;
}

async function answer(body: { input_image_path: string; output_folder_path: string }): Promise<string> {
  const path = await inside(body.input_image_path, 0);
  const folder = await inside(body.output_folder_path, 1);
  const findings = await infer(path);
  const name = basename(path);
  const { size } = await stat(path);
  const receipt = {
    status: "completed",
    source: { name, size },
    models: [{ name: settings.name, findings }],
  };
  const text = JSON.stringify(receipt, undefined, 2);
  await writeFile(join(folder, `${name}.json`), text);
  return text;
}

async function serve(): Promise<void> {
  sharp.concurrency(1);
  await NativeCodecs.initializeAsync({});
  const router = new Router();
  router.get("/health/ready", (context) => {
    context.body = { status: "ready" };
  });
  router.post("/single_inference", async (context) => {
    try {
      jwt.verify(context.get("Authorization"), key, { algorithms: ["HS256"] });
    } catch {
      context.throw(401, "Invalid token");
    }
    context.type = "application/json";
    context.body = await answer(context.request.body as Parameters<typeof answer>[0]);
  });
  const app = new Koa();
  app.use(bodyParser()).use(router.routes());
  const server = app.listen(Number(environment("PEER_PORT")), "127.0.0.1");
  // With the usual 5 s it closes a connection whose next request waits behind an image that takes longer
  server.keepAliveTimeout = 300_000;
}

await serve();
