/**
 * The bench's networks as model folders, so that they are loaded, warmed and swapped as in a
 * server.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Engine } from "../../src/engine/engine.js";
import { createLog } from "../../src/base/log.js";
import { sha256 } from "../../src/files/durable-files.js";
import { loadModels, type ModelSet } from "../../src/models/set.js";
import { input, plane } from "../../test/support/tiny-models.js";
import { denseNet121, LABELS, smallCnn } from "./models.js";

export const NETWORKS = {
  densenet121: { make: denseNet121, side: 224 },
  densenet121_float16: { make: () => denseNet121("float16"), side: 224 },
  small_cnn: { make: smallCnn, side: 256 },
} as const;
export type Network = keyof typeof NETWORKS;

/** Those that a CPU is measured with: it has no fast float16. */
export const CPU_NETWORKS = ["densenet121", "small_cnn"] as const;
export type CpuNetwork = (typeof CPU_NETWORKS)[number];

/** Writes `directory`/`name`; gives the paths of its graph and its manifest. */
export function writeFolder(directory: string, name: Network): { graph: string; manifest: string } {
  const folder = join(directory, name);
  mkdirSync(folder, { recursive: true });
  const bytes = NETWORKS[name].make();
  const [graph, manifest] = [join(folder, "model.onnx"), join(folder, "model.json")];
  writeFileSync(graph, bytes);
  writeFileSync(manifest, JSON.stringify(manifestOf(name, sha256(bytes), "1.0.0")));
  return { graph, manifest };
}

/** The same model as another version: what a reload swaps. */
export function withVersion(text: string, version: string): string {
  return JSON.stringify({ ...(JSON.parse(text) as object), version });
}

/** The manifest of a draft. */
export function manifestOf(name: Network, hash: string, version: string): object {
  const { side } = NETWORKS[name];
  const fixed = { size: { kind: "fixed", height: side, width: side }, fit: "stretch" };
  const own = { size: { kind: "source" }, fit: "none" };
  return {
    name,
    version,
    manufacturer: "bench",
    description: "Random weights",
    intended_use: "Measuring",
    regulatory: "None",
    stage: "draft",
    release: "active",
    required: true,
    files: [{ path: "model.onnx", sha256: hash }],
    accepts: { formats: ["dicom"], modality: ["CT", "DX"], dimensions: "2d" },
    inputs: [{ ...input, ...(name === "small_cnn" ? own : fixed) }],
    outputs: [
      {
        kind: "classification",
        tensor: "y",
        activation: "sigmoid",
        calibration: { kind: "none" },
        labels: Array.from({ length: LABELS }, (_, i) => ({ label: `label ${i}`, threshold: 0.5 })),
      },
    ],
    batching: { max: 32 },
    execution: {
      providers: ["cuda", "cpu"],
      precision: name === "densenet121_float16" ? "float16" : "float32",
    },
    results: { outputs: ["json"] },
  };
}

/** Loads every folder of a directory. Throws where one does not serve. */
export async function load(
  directory: string,
  engine: Engine,
  providers: readonly ("cpu" | "cuda")[] = ["cpu"],
): Promise<ModelSet> {
  const set = await loadModels({ directory, engine, providers, log: createLog("silent") });
  const [problem] = set.problems;
  if (problem !== undefined) throw new Error(problem.error.message);
  return set;
}

export function idOf(set: ModelSet, name: Network): number {
  const id = set.entries.find((entry) => entry.name === name)?.nativeId;
  if (id === undefined) throw new Error(`${name} is not loaded`);
  return id;
}

/** A 16-bit picture with something in it. */
export const picture = (rows: number, columns: number) =>
  plane(
    rows,
    columns,
    Array.from({ length: rows * columns }, (_, i) => ((i * 7919) % 255) - 127),
  );

/** Pictures of several sizes, to be sent by turns. */
export const mixedPictures = () => [192, 256, 384, 512].map((side) => picture(side, side));
