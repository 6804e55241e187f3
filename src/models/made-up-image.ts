/**
 * A loaded model runs once on a made-up image, from preparation to findings: that the tensors which
 * come out are those that the manifest describes, shapes that the graph leaves open included, no
 * canary shows, because it ends at the tensor.
 */
import type { Engine } from "../engine/engine.js";
import type { LoadedModel, Plane } from "../engine/types.js";
import { RadserveError, type ErrorCode } from "../base/errors.js";
import {
  attributeInputs,
  cascadeOf,
  imageInputs,
  isVolume,
  neighboursOf,
  numbersOf,
  type ImageInput,
  type Manifest,
} from "../manifest/manifest.js";
import { firstRun, inputSides } from "./canary.js";
import { compareTensors, DEFAULT_TOLERANCE } from "./compare.js";

/** Side of an image that a model looks at in windows. */
const SMALL = 16;

/** These say something of the model; other errors say that the made-up image does not suit it. */
const SHOWN: readonly ErrorCode[] = ["output_invalid", "model_unavailable", "memory_exceeded"];

/**
 * The fault of what comes out, or why nothing does; undefined where there is none, and for models
 * that are given more than one image at once, of which none is made up.
 */
export async function madeUpProblem(
  engine: Engine,
  loaded: LoadedModel,
  { manifest, thresholds }: { manifest: Manifest; thresholds: number[][] },
): Promise<string | undefined> {
  const [input] = imageInputs(manifest);
  if (input === undefined || manifest.roles !== undefined || neighboursOf(manifest) !== undefined)
    return undefined;
  if (cascadeOf(manifest) !== undefined) return undefined;
  const { planes, spacing } = madeUp(manifest, input);
  const [slice, row, column] = spacing.map((mm) => mm ?? 1);
  const infer = (dump: boolean) => (limits: { timeoutMs: number; cancelId: number }) =>
    engine.infer(loaded.id, planes, {
      ...limits,
      dump,
      thresholds,
      numbers: attributeInputs(manifest).map(({ values }) =>
        values.flatMap((value) => new Array<number>(numbersOf(value)).fill(0)),
      ),
      ...(isVolume(input)
        ? {
            geometry: {
              origin: [0, 0, 0],
              columnDirection: [1, 0, 0],
              rowDirection: [0, 1, 0],
              sliceDirection: [0, 0, 1],
              sliceSpacing: slice ?? 1,
              rowSpacing: row ?? 1,
              columnSpacing: column ?? 1,
            },
          }
        : {}),
    });
  try {
    const run = (dump: boolean) => firstRun(engine, undefined, infer(dump));
    const first = await run(false);
    const second = await run(false);
    if (first.rawSha256 === second.rawSha256) return undefined;
    // A device may round in another way each time
    const one = (await run(true)).tensors?.outputs ?? [];
    const other = (await run(true)).tensors?.outputs ?? [];
    const differing = one.find(
      (tensor, i) => !compareTensors(tensor, other[i] ?? tensor, DEFAULT_TOLERANCE).equal,
    );
    return differing === undefined
      ? undefined
      : `"${differing.name}" differs each time that the graph is given the same image. Export it for inference, without dropout and without random numbers`;
  } catch (error) {
    return error instanceof RadserveError && SHOWN.includes(error.code) ? error.message : undefined;
  }
}

/** Slices of 16 bits that are even nowhere, as large as the tensor or a window. */
function madeUp(
  manifest: Manifest,
  input: ImageInput,
): { planes: Plane[]; spacing: (number | null)[] } {
  // Less than a window is filled up
  const {
    W: columns,
    H: rows,
    D: slices,
  } = manifest.tiling === undefined ? inputSides(input) : { W: SMALL, H: SMALL, D: SMALL };
  const planes = Array.from({ length: isVolume(input) ? slices : 1 }, (_, slice) =>
    signedPlane(
      rows,
      columns,
      Array.from({ length: rows * columns }, (_value, i) => ((i * 7919 + slice * 31) % 1511) + 1),
    ),
  );
  return { planes, spacing: input.resampling?.spacing_mm ?? input.spacing_mm ?? [] };
}

/** Signed 16-bit samples that are their own modality values, and of positron emission SUV. */
export function signedPlane(rows: number, columns: number, samples: readonly number[]): Plane {
  return {
    format: {
      rows,
      columns,
      samplesPerPixel: 1,
      bitsAllocated: 16,
      bitsStored: 16,
      highBit: 15,
      signed: true,
      float: false,
      photometricInterpretation: "MONOCHROME2",
      packed422: false,
    },
    data: new Uint8Array(Int16Array.from(samples).buffer),
    interpretation: {
      modality: { kind: "identity" },
      units: undefined,
      voi: [],
      padding: undefined,
      palette: undefined,
      suv: { factor: 1 },
    },
    pixelAspect: 1,
  };
}
