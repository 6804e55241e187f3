/** Results of special models over sources of every form, for the validators. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import { type EngineOutput } from "../../src/engine/types.js";
import type { Image } from "../../src/images/image.js";
import { infer } from "../../src/inference/infer-image.js";
import type { OutputKind } from "../../src/manifest/manifest.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { readInput } from "../../src/inference/read-input.js";
import { RESULT_FORMS } from "../../src/results/forms.js";
import { segmentPlanes, segmentsOf } from "../../src/results/dicom/segments.js";
import { sliceOutputs } from "../../src/results/findings/volume-outputs.js";
import { loadTestModel, type TestModel } from "../support/test-models.js";

const SOURCES = resolve("../shared/dicom");
const STARTED = "2026-11-21T10:00:00.123Z";

/** A result's files, and what an outside reader has to find in them. */
export interface Result {
  title: string;
  source: string;
  sr: string | null;
  seg: string | null;
  rtstruct: string | null;
  sc: string | null;
  picture: string | null;
  sources: string[];
  frames?: number;
  rows: number;
  columns: number;
  segments: number;
  mask: string | null;
}

/** Model and source: whole series, colour, many frames, and both. */
export const CASES: readonly (readonly [TestModel, string])[] = [
  ["volume", "ct-series-chest"],
  ["volume-fractional", "ct-series-chest"],
  ["fractional", "jpeg50-cr-chest.dcm"],
  ["fractional", "rle-mr-multiframe12.dcm"],
  ["fractional", "jpeg70-us-rgb-2frame.dcm"],
  ["small", "ele-sc-ybr-full.dcm"],
  ["small", "rle-us-palette-2frame.dcm"],
  ["heatmap", "ele-us-burnedin.dcm"],
  ["heatmap", "ebe-sc-rgb16-2frame.dcm"],
  ["regression", "jpeg50-cr-chest.dcm"],
  ["regression", "rle-mr-multiframe12.dcm"],
  ["regression", "j2k90-us-ybr-rct.dcm"],
  ["detector", "jpeg70-us-rgb-2frame.dcm"],
];

/**
 * Model and source of segmentations in other forms: a slice, a series, labels that overlap, and
 * many frames.
 */
export const FORM_CASES: readonly (readonly [TestModel, string])[] = [
  ["segmenter", "ct-series-chest/000021.dcm"],
  ["segmenter", "jpeg50-cr-chest.dcm"],
  ["volume", "ct-series-chest"],
  ["overlapping", "ct-series-chest/000033.dcm"],
  ["segmenter", "rle-rtdose-32bit.dcm"],
];

export interface SpecialShop {
  /** Runs a model; twice, another version first, where the report is to follow an earlier one. */
  make(model: TestModel, source: string, follows?: boolean): Promise<Result>;
  /** Runs a model where the site wants label maps and structure sets. */
  makeForms(model: TestModel, source: string): Promise<Result>;
  folder: string;
  close(): Promise<void>;
}

export async function specialShop(): Promise<SpecialShop> {
  const folder = mkdtempSync(join(tmpdir(), "radserve-special-"));
  const engine = createEngine({ provider: "cpu" });
  const models: Record<string, ModelEntry> = {};
  for (const [name] of [...CASES, ...FORM_CASES])
    models[name] ??= await loadTestModel(engine, folder, name);
  let count = 0;
  const next = () => {
    const outputFolder = join(folder, String(++count));
    mkdirSync(outputFolder);
    return outputFolder;
  };
  return {
    folder,
    make: (model, source, follows = false) =>
      make(engine, models[model]!, source, next(), { follows }),
    makeForms: (model, source) => make(engine, models[model]!, source, next(), { forms: true }),
    close: async () => {
      await engine.close();
      rmSync(folder, { recursive: true });
    },
  };
}

async function make(
  engine: Engine,
  model: ModelEntry,
  source: string,
  outputFolder: string,
  { follows = false, forms = false }: { follows?: boolean; forms?: boolean },
): Promise<Result> {
  const roots = { input: undefined, output: undefined };
  const inputPath = join(SOURCES, source);
  const task = { requestId: "test", inputPath, outputFolder, startedAt: STARTED, roots };
  const outputs = forms ? { outputs: ["sr", "seg", "rtstruct"] as OutputKind[] } : {};
  const site = forms ? { forms: { ...RESULT_FORMS, segmentationType: "labelmap" as const } } : {};
  const run = (entry: ModelEntry) =>
    infer(
      { ...task, ...outputs, priority: "routine", cancelId: 1 },
      { engine, models: [entry], ...site },
    );
  if (follows) await run({ ...model, sha256: "a".repeat(64) });
  const answer = await run(model);
  const paths = answer.models[0]!.outputs.map(({ path }) => path);
  const path = (end: string) => paths.find((each) => each.endsWith(end)) ?? null;
  const input = await openInput(inputPath, undefined);
  try {
    const image = await readInput(input);
    const { rows, columns } = image.format;
    const segments = segmentsOf(model.manifest.outputs);
    const mask = path(".seg.dcm") === null ? null : join(outputFolder, "mask");
    if (mask !== null) writeFileSync(mask, await masksOf(engine, model, image));
    const slices = image.series?.slices.map(({ sopInstanceUid }) => sopInstanceUid!);
    return {
      title: `${model.name} on ${source}`,
      source: inputPath,
      sr: path(".sr.dcm"),
      seg: path(".seg.dcm"),
      rtstruct: path(".rtstruct.dcm"),
      sc: path(".sc.dcm"),
      picture: path(".png"),
      sources: slices ?? [image.source.sopInstanceUid!],
      ...(slices === undefined && image.frameCount > 1 ? { frames: image.frameCount } : {}),
      rows,
      columns,
      segments: segments.length,
      mask,
    };
  } finally {
    input.close();
  }
}

/** What the engine gives, asked again: a plane for each segment and frame. */
async function masksOf(engine: Engine, model: ModelEntry, image: Image): Promise<Uint8Array> {
  const planes = await Promise.all(
    Array.from({ length: image.frameCount }, async (_, frame) => ({
      format: image.format,
      data: await image.frame(frame),
      interpretation: image.interpretation(frame),
      pixelAspect: image.pixelAspect(frame),
    })),
  );
  const { thresholds } = model;
  const outputs: EngineOutput[][] = [];
  if (model.manifest.accepts.dimensions === "series") {
    const { geometry } = image.series!.volume;
    const whole = await engine.infer(model.nativeId!, planes, { thresholds, geometry });
    for (let slice = 0; slice < planes.length; slice++)
      outputs.push(sliceOutputs(whole.outputs, slice));
  } else
    for (const plane of planes)
      outputs.push((await engine.infer(model.nativeId!, [plane], { thresholds })).outputs);
  const pixels = image.format.rows * image.format.columns;
  const planeOf = segmentPlanes(model.manifest.outputs, outputs, pixels);
  return Buffer.concat(
    segmentsOf(model.manifest.outputs).flatMap((segment) =>
      outputs.map((_, frame) => planeOf(segment, frame)),
    ),
  );
}

export const objectsOf = ({ sr, seg, rtstruct, sc }: Result) =>
  [sr, seg, rtstruct, sc].filter((path) => path !== null);
