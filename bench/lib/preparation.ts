/** Preparation of one image, against OpenCV and numpy. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import { type Plane } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { Raw } from "../../test/support/dicom.js";
import {
  heatmap,
  identity,
  input,
  loadOptions,
  writeModel,
} from "../../test/support/tiny-models.js";
import { photograph, radiograph } from "./pictures.js";
import type { Turns } from "./rivals.js";
import { median } from "./statistics.js";

export interface PreparationRow {
  picture: string;
  size: string;
  interpolation: string;
  ours_ms: number;
  /** Medians of the rival's variants; absent without Python. */
  rivals_ms?: Record<string, number>;
  ratio?: number;
  /**
   * Greatest difference between the two tensors, in units of the tensor; only where both average by
   * area.
   */
  difference?: number;
}

interface Case {
  picture: string;
  raw: Raw;
  height: number;
  width: number;
}

const GRAY = { slope: 0.5, intercept: -1024, mean: [-200], std: [300] };
const COLOUR = {
  slope: 1,
  intercept: 0,
  mean: [123.675, 116.28, 103.53],
  std: [58.395, 57.12, 57.375],
};

const CASES: Case[] = [
  { picture: "16-bit 3000x2500", raw: radiograph(3000, 2500), height: 224, width: 224 },
  { picture: "16-bit 512x512", raw: radiograph(512, 512), height: 224, width: 224 },
  { picture: "16-bit 1024x1024", raw: radiograph(1024, 1024), height: 512, width: 512 },
  { picture: "RGB 1024x768", raw: photograph(768, 1024), height: 480, width: 640 },
];

const answer = z.object({ times: z.record(z.string(), z.array(z.number())) });

function planeOf(raw: Raw): Plane {
  const colour = raw.samples === 3;
  return {
    format: {
      rows: raw.rows,
      columns: raw.columns,
      samplesPerPixel: raw.samples,
      bitsAllocated: colour ? 8 : 16,
      bitsStored: raw.bitsStored,
      highBit: raw.bitsStored - 1,
      signed: false,
      float: false,
      photometricInterpretation: colour ? "RGB" : "MONOCHROME2",
      packed422: false,
    },
    data: raw.data,
    interpretation: {
      modality: colour
        ? { kind: "identity" }
        : { kind: "rescale", slope: GRAY.slope, intercept: GRAY.intercept },
      units: undefined,
      voi: [],
      padding: undefined,
      palette: undefined,
    },
    pixelAspect: 1,
  };
}

function inputOf({ raw, height, width }: Case, interpolation: "area" | "linear"): ImageInput {
  const colour = raw.samples === 3;
  const { mean, std } = colour ? COLOUR : GRAY;
  return {
    ...input,
    size: { kind: "fixed", height, width },
    interpolation,
    channels: colour ? "rgb" : "grayscale",
    colour_source: colour ? "accept" : "refuse",
    normalisation: { kind: "mean_std", mean, std },
  };
}

/** Measures all pictures; ours and the rivals by turns. */
export async function preparation(turns: Turns): Promise<PreparationRow[]> {
  mkdirSync(turns.scratch, { recursive: true });
  const engine = createEngine({ provider: "cpu", threads: 1 });
  const rows: PreparationRow[] = [];
  try {
    for (const measured of CASES)
      for (const interpolation of ["area", "linear"] as const)
        rows.push(await measure(engine, measured, interpolation, turns));
  } finally {
    await engine.close();
  }
  return rows;
}

async function measure(
  engine: Engine,
  measured: Case,
  interpolation: "area" | "linear",
  { scratch, rounds, rivals }: Turns,
): Promise<PreparationRow> {
  const { raw, height, width, picture } = measured;
  const channels = raw.samples;
  const shape = ["n", channels, "h", "w"];
  const file = writeModel(scratch, {
    ...identity,
    inputs: [{ name: "x", dtype: "float32", shape }],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", channels, "h", "w"] }],
    ...(channels === 1
      ? {}
      : {
          nodes: [
            {
              op: "ReduceMean",
              inputs: ["x"],
              outputs: ["y"],
              attributes: { axes: { kind: "ints", value: [1] } },
            },
          ],
          outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, "h", "w"] }],
        }),
  });
  const model = await engine.load(
    loadOptions(file, { inputs: [inputOf(measured, interpolation)], outputs: [heatmap] }),
  );
  const plane = planeOf(raw);
  const pixels = join(scratch, `${raw.rows}x${raw.columns}x${raw.samples}.raw`);
  const tensor = join(scratch, "tensor.raw");
  writeFileSync(pixels, raw.data);
  const request = {
    command: "prepare",
    path: pixels,
    rows: raw.rows,
    columns: raw.columns,
    samples: raw.samples,
    dtype: channels === 1 ? "uint16" : "uint8",
    height,
    width,
    repeats: 5,
    out: tensor,
    ...(channels === 1 ? GRAY : COLOUR),
  };
  const ours: number[] = [];
  const theirs: Record<string, number[]> = {};
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < 5; i++)
      ours.push((await engine.infer(model.id, [plane], {})).timings.prepareMs);
    if (rivals?.libraries["cv2"] === undefined) continue;
    const { times } = answer.parse(await rivals.ask(request));
    for (const [name, list] of Object.entries(times)) (theirs[name] ??= []).push(...list);
  }
  const row: PreparationRow = {
    picture,
    size: `${height}x${width}`,
    interpolation,
    ours_ms: median(ours),
  };
  if (Object.keys(theirs).length > 0) {
    row.rivals_ms = Object.fromEntries(
      Object.entries(theirs).map(([name, list]) => [name, median(list)]),
    );
    row.ratio = row.ours_ms / Math.min(...Object.values(row.rivals_ms));
    const { tensors } = await engine.infer(model.id, [plane], { dump: true });
    if (interpolation === "area")
      row.difference = difference(tensors!.inputs[0]!.data, readFileSync(tensor));
  }
  await engine.unload(model.id);
  return row;
}

function difference(a: Uint8Array, b: Uint8Array): number {
  const [x, y] = [a, b].map((bytes) => new Float32Array(Uint8Array.from(bytes).buffer)) as [
    Float32Array,
    Float32Array,
  ];
  return x.length === y.length
    ? x.reduce((most, v, i) => Math.max(most, Math.abs(v - y[i]!)), 0)
    : Infinity;
}
