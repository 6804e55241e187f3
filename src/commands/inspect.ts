/** `radserve inspect`: what a file is, what its decoded pixels are, which models accept it and why others do not. */
import { readFile, writeFile } from "node:fs/promises";
import sharp from "sharp";
import { createEngine } from "../engine.js";
import { RadserveError } from "../errors.js";
import type { Image } from "../image.js";
import { dumpFrame, formatInspection, inspectImage } from "../inspect.js";
import { openInput } from "../paths.js";
import { readImage } from "../read.js";
import { print, type ExitStatus } from "./run.js";

export interface InspectCommand {
  json?: boolean;
  preview?: string;
  /** Number from 1 and file name. */
  dumpFrame?: [string, string];
}

const LARGEST_PREVIEW = 1024;

/** The first frame as the file's own window shows it, in its true proportions. */
async function writePreview(image: Image, file: string): Promise<void> {
  const { rows, columns } = image.format;
  const aspect = image.pixelAspect(0);
  const scale = Math.min(1, LARGEST_PREVIEW / Math.max(columns, rows * aspect));
  const width = Math.max(1, Math.round(columns * scale));
  const height = Math.max(1, Math.round(rows * aspect * scale));
  const engine = await Promise.resolve(createEngine({ provider: "cpu" }));
  try {
    const plane = {
      format: image.format,
      data: await image.frame(0),
      interpretation: image.interpretation(0),
      pixelAspect: aspect,
    };
    const rgb = await engine.render(plane, { voiIndex: 0, width, height });
    await sharp(rgb, { raw: { width, height, channels: 3 } })
      .png()
      .toFile(file);
  } finally {
    await engine.close();
  }
}

function frameNumber(text: string, count: number): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1 || number > count)
    throw new RadserveError(
      "bad_request",
      `--dump-frame: expected a frame number from 1 to ${count}; found "${text}".`,
    );
  return number;
}

async function readBytes(file: string): Promise<Buffer> {
  const opened = await openInput(file, undefined);
  try {
    if (opened.kind === "folder")
      throw new RadserveError("bad_request", "Expected a file to inspect; found a folder.");
    return await readFile(opened.fdPath);
  } finally {
    await opened.close();
  }
}

/** @param file absolute path */
export async function inspectFile(file: string, options: InspectCommand): Promise<ExitStatus> {
  const image = await readImage(await readBytes(file));
  const inspection = await inspectImage(image);
  if (options.dumpFrame !== undefined) {
    const [number, target] = options.dumpFrame;
    await writeFile(target, await dumpFrame(image, frameNumber(number, image.frameCount)));
  }
  if (options.preview !== undefined) await writePreview(image, options.preview);
  print(options.json === true ? JSON.stringify(inspection, null, 2) : formatInspection(inspection));
  return 0;
}
