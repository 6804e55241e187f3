/**
 * `radserve models compare`: a model by turns on ONNX Runtime and on OpenVINO, so that somebody can
 * say which of them runs it.
 */
import { counted, table } from "../../base/table.js";
import { type Tensor, ELEMENT_TYPES } from "../../base/tensor.js";
import type { Engine } from "../../engine/engine.js";
import type { Manifest } from "../../manifest/manifest.js";
import { unitsOf } from "../../manifest/model-parts.js";
import type { ModelOutput } from "../../manifest/outputs/outputs.js";
import { canaryFeeds, effectivePrecision, zeroInput } from "../../models/canary.js";
import { compareTensors, DEFAULT_TOLERANCE, toNumbers } from "../../models/compare.js";
import type { CommandResult } from "../../models/command-result.js";
import { loadSession } from "../../models/load.js";
import { readModelFolder, type SoundModel } from "../../models/read.js";
import type { TriedFirst } from "../../models/trial.js";
import { soundModel } from "./try.js";

type Compared = "cpu" | "openvino";
export const COMPARED: Compared[] = ["cpu", "openvino"];
const TURNS = 3;
/** The first run of each turn warms, and is not timed. */
const TIMED_RUNS = 3;
const MIB = 2 ** 20;

interface Turn {
  milliseconds: number[];
  /** The outputs of each unit, in the manifest's order. */
  outputs: Tensor[][];
}

interface Agreement {
  output: string;
  maxAbsolute: number;
  /** Of an output of labels. */
  voxels?: { differ: number; of: number };
}

/**
 * Loads the model under each provider by turns, whatever its manifest allows, runs its canary's
 * input, or made-up numbers where it has none, and compares times and outputs; and memory, in a
 * process for each.
 * @throws RadserveError model_unavailable, where OpenVINO is not installed or cannot compile the
 * model too; what reading a folder throws
 */
export async function modelsCompare(
  folder: string,
  engine: Engine,
  trials: TriedFirst,
): Promise<CommandResult> {
  const model = soundModel(await readModelFolder(folder));
  const { manifest } = model;
  const bytes: Record<Compared, number> = { cpu: 0, openvino: 0 };
  for (const provider of COMPARED)
    bytes[provider] = await trials.cost(folder, modelFor(model, provider));
  const feeds = await Promise.all(unitsOf(manifest).map((unit) => feedsOf(unit.manifest, folder)));
  const turns: Record<Compared, Turn[]> = { cpu: [], openvino: [] };
  for (let turn = 0; turn < TURNS; turn++)
    for (const provider of COMPARED)
      turns[provider].push(await takeTurn(folder, model, { engine, provider, feeds }));
  const rows = COMPARED.map((provider) => ({
    provider,
    precision: effectivePrecision(provider, manifest.execution.precision),
    milliseconds: median(turns[provider].flatMap(({ milliseconds }) => milliseconds)),
    peak_bytes: bytes[provider],
    repeats: repeats(turns[provider]),
  }));
  const agreement = agreementOf(manifest, turns);
  const isFed = unitsOf(manifest).every((unit) => unit.manifest.canary !== undefined);
  const execution = { ...manifest.execution, providers: ["openvino", "cpu"] };
  const text = [
    `${manifest.name} ${manifest.version}, by turns, ${TURNS} of each; ${isFed ? "fed its canary" : "fed made-up numbers, because it has no canary"}:`,
    ...table([
      ["provider", "precision", "a run", "memory at most", "same bits each time"],
      ...rows.map((row) => [
        row.provider,
        row.precision,
        `${row.milliseconds.toFixed(1)} ms`,
        `${Math.round(row.peak_bytes / MIB)} MiB`,
        row.repeats ? "yes" : "no",
      ]),
    ])
      .split("\n")
      .map((line) => `  ${line}`),
    ...agreement.map(agreementLine),
    "To run it on OpenVINO, validate the model so, and write in model.json:",
    `  "execution": ${JSON.stringify(execution)}`,
    ...(isFed ? [toleranceLine(effectivePrecision("openvino", execution.precision))] : []),
    "and set RADSERVE_PROVIDERS=openvino,cpu on every node.",
  ].join("\n");
  const exitCode = rows.every((row) => row.repeats) ? 0 : 1;
  return { text, exitCode, data: { name: manifest.name, turns: rows, agreement, execution } };
}

async function feedsOf(manifest: Manifest, folder: string): Promise<Tensor[]> {
  const { canary, inputs } = manifest;
  if (canary !== undefined) return canaryFeeds(canary, inputs, folder);
  return inputs.map((input) => madeUp(zeroInput(input, manifest)));
}

/** Fractions from -1 to 1 that differ from place to place; other types stay zero. */
function madeUp(tensor: Tensor): Tensor {
  if (tensor.dtype !== "float32") return tensor;
  const { bytes } = ELEMENT_TYPES.float32;
  const data = Float32Array.from(
    { length: tensor.data.byteLength / bytes },
    (_, i) => ((i * 2654435761) % 2039) / 1019.5 - 1,
  );
  return { ...tensor, data: new Uint8Array(data.buffer) };
}

/** The model for one provider alone, whose canary passes whatever comes out. */
function modelFor({ manifest, ...model }: SoundModel, provider: Compared): SoundModel {
  const execution = { ...manifest.execution, providers: [provider] };
  const precision = effectivePrecision(provider, execution.precision);
  const tolerance = [{ provider, precision, absolute: Number.MAX_VALUE, relative: 0 }];
  const passing = ({ canary }: Pick<Manifest, "canary">) =>
    canary === undefined ? {} : { canary: { ...canary, tolerance } };
  const parts = manifest.parts?.map((part) => ({ ...part, ...passing(part) }));
  const chosen: Manifest = {
    ...manifest,
    ...passing(manifest),
    ...(parts === undefined ? {} : { parts }),
    execution,
  };
  return { ...model, manifest: chosen };
}

async function takeTurn(
  folder: string,
  model: SoundModel,
  { engine, provider, feeds }: { engine: Engine; provider: Compared; feeds: Tensor[][] },
): Promise<Turn> {
  const loaded = await loadSession(folder, modelFor(model, provider), engine, [provider]);
  try {
    const outputs: Tensor[][] = [];
    const milliseconds: number[] = [];
    for (let run = 0; run <= TIMED_RUNS; run++) {
      const began = performance.now();
      outputs.length = 0;
      for (const [i, id] of loaded.ids.entries())
        outputs.push(await engine.runTensors(id, feeds[i] ?? []));
      if (run > 0) milliseconds.push(performance.now() - began);
    }
    return { milliseconds, outputs };
  } finally {
    for (const id of loaded.ids) await engine.unload(id);
  }
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

function repeats(turns: readonly Turn[]): boolean {
  const [first, ...others] = turns;
  return others.every(({ outputs }) =>
    outputs.every((unit, u) =>
      unit.every((tensor, i) => {
        const same = first?.outputs[u]?.[i]?.data;
        return same !== undefined && Buffer.compare(same, tensor.data) === 0;
      }),
    ),
  );
}

function agreementOf(manifest: Manifest, turns: Record<Compared, Turn[]>): Agreement[] {
  const [cpu] = turns.cpu;
  const [openvino] = turns.openvino;
  return unitsOf(manifest).flatMap(({ manifest: unit, part }, u) =>
    (cpu?.outputs[u] ?? []).flatMap((expected) => {
      const found = openvino?.outputs[u]?.find(({ name }) => name === expected.name);
      if (found === undefined) return [];
      const { maxAbsolute } = compareTensors(expected, found, DEFAULT_TOLERANCE);
      const spec = unit.outputs.find(
        (output) => "tensor" in output && output.tensor === found.name,
      );
      const labels = spec === undefined ? undefined : labelsOf(spec, expected, found);
      const output = part === undefined ? found.name : `${part.name}: ${found.name}`;
      return [{ output, maxAbsolute, ...(labels === undefined ? {} : { voxels: labels }) }];
    }),
  );
}

/** Voxels whose label differs: the highest channel, or what is on, of [1, C, ...]. */
function labelsOf(
  spec: ModelOutput,
  expected: Tensor,
  found: Tensor,
): { differ: number; of: number } | undefined {
  if (spec.kind !== "segmentation" || spec.activation === "prototypes") return undefined;
  if (expected.shape.join() !== found.shape.join()) return undefined;
  const [a, b] = [toNumbers(expected), toNumbers(found)];
  const channels = spec.activation === "label_map" ? 1 : (expected.shape[1] ?? 1);
  const of = a.length / channels;
  /** A probability, a logit, or of a map of labels the label itself. */
  const alone = (value: number) => {
    if (spec.activation === "label_map") return value;
    return Number(spec.activation === "none" ? value >= 0.5 : value > 0);
  };
  const label = (values: Float64Array, voxel: number) => {
    const at = (channel: number) => values[channel * of + voxel] ?? NaN;
    if (channels === 1) return alone(at(0));
    let best = 0;
    for (let channel = 1; channel < channels; channel++) if (at(channel) > at(best)) best = channel;
    return best;
  };
  let differ = 0;
  for (let voxel = 0; voxel < of; voxel++) if (label(a, voxel) !== label(b, voxel)) differ++;
  return { differ, of };
}

/** How far apart is still right, somebody has to say who knows what the outputs are used for. */
const toleranceLine = (precision: string) =>
  `  in canary.tolerance, with numbers that allow the largest difference above: {"provider":"openvino","precision":"${precision}","absolute":...,"relative":...}`;

function agreementLine({ output, maxAbsolute, voxels }: Agreement): string {
  const labels =
    voxels === undefined
      ? ""
      : `; of ${counted(voxels.of, "voxel")} ${voxels.differ} have another label`;
  return `  ${output}: largest difference ${maxAbsolute.toPrecision(3)}${labels}`;
}
