/**
 * `radserve inspect`: what a file is, what its decoded pixels are, which models accept it and why
 * others do not.
 */
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { packPng } from "../addon/picture.js";
import { ConfigError } from "../base/errors.js";
import { accepts } from "../models/acceptance.js";
import type { Reason } from "../models/attribute-values.js";
import type { Config } from "../config.js";
import { volumeOf } from "../images/dicom/volume.js";
import type { Image, TransformStep } from "../images/image.js";
import { stepText } from "../images/step-text.js";
import { formatInspection, dumpFrame, inspectImage } from "../inference/inspection.js";

import { toleranceOf } from "../manifest/manifest.js";
import { modelFolders } from "../models/load.js";
import { readModelFolder, type SoundModel } from "../models/read.js";
import { straightSteps } from "../models/straighten.js";
import { modelSteps } from "../models/transform-steps.js";
import { withEngine } from "./engine.js";
import { withImageFile } from "./files.js";
import { during } from "./activity.js";
import { print, type ExitStatus, type JsonOption } from "./run.js";

export interface InspectCommand extends JsonOption {
  /** SeriesInstanceUID. */
  series?: string;
  preview?: string;
  /**
   * The words after --dump-frame: a frame's number from 1, the file to write, and perhaps the file
   * to inspect.
   */
  dumpFrame?: string[];
}

const LARGEST_PREVIEW = 1024;
/** Smaller ones are enlarged by a whole number. */
const SMALLEST_PREVIEW = 256;

/** The first frame as the file's own window shows it, in its true proportions. */
async function writePreview(config: Config, image: Image, file: string): Promise<void> {
  const { rows, columns } = image.format;
  const aspect = image.pixelAspect(0);
  const side = Math.max(columns, rows * aspect);
  const scale = Math.min(Math.max(1, Math.floor(SMALLEST_PREVIEW / side)), LARGEST_PREVIEW / side);
  const width = Math.max(1, Math.round(columns * scale));
  const height = Math.max(1, Math.round(rows * aspect * scale));
  const plane = {
    format: image.format,
    data: await image.frame(0),
    interpretation: image.interpretation(0),
    pixelAspect: aspect,
  };
  const rgb = await withEngine(config, ({ engine }) =>
    engine.render(plane, { voiIndex: 0, width, height }),
  );
  await writeFile(file, await packPng({ width, height, rgb }));
}

interface Acceptance {
  name: string;
  version: string;
  accepted: boolean;
  reasons: Reason[];
  /** The steps from the image to the tensor; empty if the model does not accept it. */
  transforms: TransformStep[];
}

/** The models of the folder whose manifests can be read. */
async function modelsIn(config: Config): Promise<SoundModel[]> {
  const reports = await Promise.all((await modelFolders(config.models_dir)).map(readModelFolder));
  return reports.flatMap(({ model }) => model ?? []);
}

function stepsOf({ manifest }: SoundModel, image: Image): TransformStep[] {
  const isVolume = manifest.accepts.dimensions === "series";
  const volume = isVolume ? volumeOf(image, toleranceOf(manifest)) : undefined;
  return [...straightSteps(volume, image.format), ...modelSteps(manifest, image)];
}

/** Whether each model accepts the image, by the manifests alone: nothing is loaded. */
function acceptances(models: readonly SoundModel[], image: Image): Acceptance[] {
  return models.map((model) => {
    const reasons = accepts(model, image);
    const { name, version } = model.manifest;
    const accepted = reasons.length === 0;
    return { name, version, accepted, reasons, transforms: accepted ? stepsOf(model, image) : [] };
  });
}

function acceptanceText(models: readonly Acceptance[]): string {
  return models
    .flatMap(({ name, version, accepted, reasons, transforms }) => [
      `${name} ${version}: ${accepted ? "accepts it" : "does not accept it"}`,
      ...reasons.map((reason) => `  ${reason.message}`),
      ...transforms.map((step) => `  ${stepText(step)}`),
    ])
    .join("\n");
}

interface InspectArguments {
  /** A file, or a folder that holds one series. */
  target: string;
  dump: { number: string; file: string } | undefined;
}

/**
 * --dump-frame takes two words, wherever it stands: `inspect --dump-frame 1 OUT FILE` gives it FILE
 * too.
 */
function inspectArguments(
  file: string | undefined,
  dumpFrame: readonly string[] = [],
): InspectArguments {
  const words = file === undefined ? [...dumpFrame] : [...dumpFrame, file];
  const target = words.pop();
  if (target === undefined) throw new ConfigError("Expected a file to inspect; found none.");
  const [number, output, more] = words;
  if (number === undefined) return { target, dump: undefined };
  if (output === undefined || more !== undefined)
    throw new ConfigError(
      "--dump-frame: expected a frame number and a file to write, beside the file to inspect.",
    );
  return { target, dump: { number, file: output } };
}

export async function inspectFile(
  config: Config,
  file: string | undefined,
  options: InspectCommand,
): Promise<ExitStatus> {
  const { target, dump } = inspectArguments(file, options.dumpFrame);
  const sound = await during("Reading the models", () => modelsIn(config));
  const tolerance = toleranceOf(...sound.map(({ manifest }) => manifest));
  const inspect = async (image: Image): Promise<ExitStatus> => {
    const inspection = await during("Reading the image", () => inspectImage(image));
    if (dump !== undefined) await writeFile(dump.file, await dumpFrame(image, Number(dump.number)));
    if (options.preview !== undefined) await writePreview(config, image, options.preview);
    const models = acceptances(sound, image);
    print(
      options.json === true
        ? JSON.stringify({ ...inspection, models }, null, 2)
        : `${formatInspection(inspection)}\n${acceptanceText(models)}`,
    );
    return 0;
  };
  return withImageFile(path.resolve(target), inspect, { uid: options.series, tolerance });
}
