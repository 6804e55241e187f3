/** Result objects of the conformance files, made with the test models, for the validators. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import { type EngineOutput } from "../../src/engine/types.js";
import { RadserveError } from "../../src/base/errors.js";
import type { Image } from "../../src/images/image.js";
import { infer } from "../../src/inference/infer-image.js";
import type { OutputKind } from "../../src/manifest/manifest.js";
import { labelsOf } from "../../src/manifest/outputs/outputs.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { readImage } from "../../src/images/read-image.js";
import { statedSides } from "../../src/results/findings/sides.js";
import { modelsOf } from "../support/real-engine.js";
import { loadTestModel, type TestModel } from "../support/test-models.js";

export interface Made {
  /** Base name of the source. */
  source: string;
  sourcePath: string;
  image: Image;
  model: string;
  /** Paths of the objects by kind. */
  objects: Partial<Record<"sr" | "seg" | "sc", string>>;
  /**
   * One plane of 0 and 1 a segment, as the engine gives it; empty where the model does not segment.
   */
  masks: Uint8Array[];
}

const STARTED = "2026-11-21T10:00:00.123Z";
/** Detections in one table. */
export const HEADS = ["columns", "rows", "objectness"] as const;
const TEST_MODELS: readonly TestModel[] = [
  "segmenter",
  "overlapping",
  "classifier",
  "detector",
  ...HEADS,
];
const roots = { input: undefined, output: undefined };

export interface Workshop {
  /**
   * All single-frame images of the conformance files that can be decoded, and two slices of the
   * series.
   */
  sources: string[];
  models: readonly ModelEntry[];
  make(path: string, models: readonly string[], outputs: OutputKind[]): Promise<Made[]>;
  close(): Promise<void>;
}

export async function workshop(): Promise<Workshop> {
  const folder = mkdtempSync(join(tmpdir(), "radserve-objects-"));
  const engine = createEngine({ provider: "cpu" });
  const shipped = await modelsOf(resolve("models"), engine);
  const tests = [];
  for (const name of TEST_MODELS) tests.push(await loadTestModel(engine, folder, name));
  const models = [...shipped.entries, ...tests];
  return {
    sources: await singleFrames(),
    models,
    make: (path, names, outputs) => make({ engine, models, folder }, path, names, outputs),
    close: async () => {
      await shipped.close();
      await engine.close();
      rmSync(folder, { recursive: true });
    },
  };
}

async function singleFrames(): Promise<string[]> {
  const folder = resolve("../shared/dicom");
  const series = ["000021.dcm", "000033.dcm"].map((name) => join(folder, "ct-series-chest", name));
  const others = readdirSync(folder)
    .filter((name) => name.endsWith(".dcm"))
    .map((name) => join(folder, name));
  const found: string[] = [];
  for (const path of [...series, ...others])
    try {
      const image = await readImage(readFileSync(path));
      if (image.frameCount === 1 && (await image.frame(0)).length > 0) found.push(path);
    } catch (error) {
      if (!(error instanceof RadserveError)) throw error;
    }
  return found;
}

interface Tools {
  engine: Engine;
  models: readonly ModelEntry[];
  folder: string;
}

async function make(
  { engine, models, folder }: Tools,
  sourcePath: string,
  names: readonly string[],
  outputs: OutputKind[],
): Promise<Made[]> {
  const outputFolder = join(folder, basename(sourcePath), names.join("+"));
  mkdirSync(outputFolder, { recursive: true });
  const task = {
    requestId: "test",
    inputPath: sourcePath,
    outputFolder,
    outputs,
    startedAt: STARTED,
  };
  const image = await readImage(readFileSync(sourcePath));
  const used = models
    .filter(({ name }) => names.includes(name))
    .map((model) => ofSide(model, image));
  const answer = await infer(
    { ...task, priority: "routine", cancelId: 1, roots },
    { engine, models: used },
  );
  const made: Made[] = [];
  for (const { name, outputs: files } of answer.models) {
    const entry = used.find((model) => model.name === name)!;
    const objects: Made["objects"] = {};
    for (const { path } of files) {
      const kind = /\.(sr|seg|sc)\.dcm$/.exec(path)?.[1] as "sr" | "seg" | "sc" | undefined;
      if (kind !== undefined) objects[kind] = path;
    }
    const masks = objects.seg === undefined ? [] : await masksOf(engine, entry, image);
    made.push({ source: basename(sourcePath), sourcePath, image, model: name, objects, masks });
  }
  return made;
}

const RIGHT = { value: "24028007", scheme: "SCT", meaning: "Right" };

/**
 * Labels of the left side are refused on images of the right: there the test models speak of the
 * right.
 */
function ofSide(model: ModelEntry, image: Image): ModelEntry {
  if (!statedSides(image, undefined).has("R")) return model;
  const manifest = structuredClone(model.manifest);
  for (const label of manifest.outputs.flatMap(labelsOf))
    if (label.laterality !== undefined) label.laterality = RIGHT;
  return { ...model, manifest };
}

async function masksOf(engine: Engine, entry: ModelEntry, image: Image): Promise<Uint8Array[]> {
  const plane = {
    format: image.format,
    data: await image.frame(0),
    interpretation: image.interpretation(0),
    pixelAspect: image.pixelAspect(0),
  };
  const { outputs } = await engine.infer(entry.nativeId!, [plane], {
    thresholds: entry.thresholds,
  });
  return outputs.flatMap(planesOf);
}

function planesOf(output: EngineOutput): Uint8Array[] {
  if (output.kind !== "segmentation") return [];
  const size = output.rows * output.columns;
  return output.counts.map((_, index) =>
    output.overlapping
      ? output.mask.slice(index * size, (index + 1) * size)
      : output.mask.map((label) => (label === index + 1 ? 1 : 0)),
  );
}

/** What objects.py reads. */
export function pythonList(made: readonly Made[], folder: string): string {
  const list = made.map(({ objects, image, masks }, index) => {
    const mask = masks.length === 0 ? null : join(folder, `${index}.mask`);
    if (mask !== null) writeFileSync(mask, Buffer.concat(masks));
    const { rows, columns } = image.format;
    const source = image.source.sopInstanceUid;
    const { sr = null, seg = null } = objects;
    return { sr, seg, sources: [source], rows, columns, segments: masks.length, mask };
  });
  const path = join(folder, "objects.json");
  writeFileSync(path, JSON.stringify(list));
  return path;
}
