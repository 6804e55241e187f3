/**
 * The parts of a model over one volume, one after the other by memory: their labels become one
 * label map, a later part over an earlier one where it is not background.
 */
import { createHash } from "node:crypto";
import { release } from "../addon/bytes.js";
import { errors } from "../base/errors.js";
import type { EngineOutput, InferResult, Preparation } from "../engine/types.js";
import type { Manifest } from "../manifest/manifest.js";
import { labelsOf } from "../manifest/outputs/outputs.js";
import { partsThatRun, unitsOf, type ModelUnit } from "../manifest/model-parts.js";
import { nativeIdsOf, type ModelEntry } from "../models/entry.js";
import { resolveThresholds } from "../models/read.js";
import { wholeOf } from "../models/wanted.js";

/** A part that is to run, with the engine's number. */
export interface LoadedUnit extends ModelUnit {
  id: number;
  thresholds: number[][];
}

type Loaded = Pick<ModelEntry, "manifest" | "nativeId" | "partIds" | "site" | "wanted">;

/** What runs of a model, in its order: itself, or the parts that hold a wanted label. */
export function unitsToRun(entry: Loaded): LoadedUnit[] {
  const ids = nativeIdsOf(entry);
  const whole = wholeOf(entry);
  const running = partsThatRun(whole, entry.wanted?.labels);
  return unitsOf(whole)
    .map((unit, place) => ({
      ...unit,
      id: ids[place] ?? -1,
      thresholds: resolveThresholds(unit.manifest, entry.site),
    }))
    .filter(({ part }) => part === undefined || running.includes(part.name));
}

type Segmented = Extract<EngineOutput, { kind: "segmentation" }>;

/**
 * @param whole of the model; its one output has the labels of all parts
 * @param infer runs one unit over the volume
 * @returns of one unit without a part what that gives
 * @throws RadserveError output_invalid for parts that give other than label maps of one size; what
 * `infer` throws
 */
export async function inferUnits(
  units: readonly LoadedUnit[],
  { outputs: described }: Pick<Manifest, "outputs">,
  infer: (unit: LoadedUnit) => Promise<InferResult>,
): Promise<InferResult> {
  const [first] = units;
  const labels = described.flatMap(labelsOf).length;
  if (first === undefined) throw new RangeError("A model has something to run");
  if (first.part === undefined) return infer(first);
  const raw = createHash("sha256");
  const preparations: Preparation[] = [];
  const timings = { queueMs: 0, prepareMs: 0, runMs: 0, postprocessMs: 0 };
  const tensors: NonNullable<InferResult["tensors"]> = {
    inputs: [],
    outputs: [],
    probabilities: [],
  };
  let whole: Segmented | undefined;
  for (const unit of units) {
    const result = await infer(unit);
    const [output] = result.outputs;
    if (output?.kind !== "segmentation" || output.overlapping)
      throw errors.output_invalid("Expected a label map of each part of the model.");
    whole = laidOver(whole, output, unit.numbers, labels);
    raw.update(result.rawSha256);
    preparations.push(result.preparation);
    for (const step of ["queueMs", "prepareMs", "runMs", "postprocessMs"] as const)
      timings[step] += result.timings[step];
    // Probabilities are of the source's grid and of one part alone: of all, they would fill memory
    for (const side of ["inputs", "outputs"] as const)
      tensors[side].push(...(result.tensors?.[side] ?? []));
  }
  const [preparation = {}, ...others] = preparations;
  return {
    outputs: whole === undefined ? [] : [whole],
    preparation: others.length === 0 ? preparation : { ...preparation, others },
    rawSha256: raw.digest("hex"),
    ...(tensors.outputs.length === 0 ? {} : { tensors }),
    timings,
  };
}

/**
 * The label map with the labels of one more part over it. Its numbers are those of the whole model,
 * and the part's own memory is given back.
 */
function laidOver(
  whole: Segmented | undefined,
  part: Segmented,
  numbers: Uint8Array,
  labels: number,
): Segmented {
  const counts = whole?.counts ?? new Array<number>(labels).fill(0);
  const mask = whole?.mask ?? new Uint8Array(part.mask.length);
  if (mask.length !== part.mask.length)
    throw errors.output_invalid(
      `Expected the label maps of all parts on the grid of the source, ${mask.length} voxels; found one of ${part.mask.length}.`,
    );
  overlay(mask, part.mask, numbers, counts);
  release(part.mask);
  return { ...part, mask, counts };
}

/** Most voxels are background: four of them are seen at once. */
function overlay(mask: Uint8Array, over: Uint8Array, numbers: Uint8Array, counts: number[]): void {
  const isAligned = over.byteOffset % 4 === 0;
  const fours = isAligned ? over.length >> 2 : 0;
  const words = new Uint32Array(over.buffer, isAligned ? over.byteOffset : 0, fours);
  const lay = (from: number, end: number) => {
    for (let i = from; i < end; i++) {
      const found = over[i] ?? 0;
      if (found === 0) continue;
      const before = mask[i] ?? 0;
      const now = numbers[found] ?? 0;
      if (before !== 0) counts[before - 1] = (counts[before - 1] ?? 0) - 1;
      counts[now - 1] = (counts[now - 1] ?? 0) + 1;
      mask[i] = now;
    }
  };
  for (let word = 0; word < fours; word++) if (words[word] !== 0) lay(4 * word, 4 * word + 4);
  lay(4 * fours, over.length);
}
