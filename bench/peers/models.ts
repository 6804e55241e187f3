/**
 * The models' folders that the works are measured with, and what a rival has to be told of each.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createEngine } from "../../src/engine/engine.js";
import { encodeNpy } from "../../src/engine/npy.js";
import { sha256 } from "../../src/files/durable-files.js";
import { imageInputs, type ImageInput, type Manifest } from "../../src/manifest/manifest.js";
import { input } from "../../test/support/tiny-models.js";
import { manifestOf, writeFolder } from "../lib/engine-models.js";
import { plainInput } from "../lib/node-rival.js";
import { LABELS, smallCnn, smallSegmenter3d, VOLUME_CLASSES } from "../lib/models.js";
import { root } from "../lib/server.js";

/** What the rivals need to know of a model (bench/peers/work.py). */
export interface RivalModel {
  name: string;
  model: string;
  /**
   * scores: of one image; frames: of each frame of a cine; volume: a label for each voxel of a
   * series.
   */
  kind: "tissue" | "scores" | "frames" | "volume";
  labels: { label: string }[];
  /**
   * Rows and columns of the network's input, for scores and frames; a segmentation takes the
   * image's own.
   */
  side?: number;
  /** Tensors that one image gives, and their sizes: what ONNX Runtime alone is fed. */
  tensors: number;
  size: { height: number; width: number; depth?: number };
}

export function tissue(directory: string, side = 512): RivalModel {
  const folder = join(directory, "ct-tissue");
  cpSync(join(root, "models/ct-tissue"), folder, { recursive: true });
  const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as {
    outputs: { labels: { label: string }[] }[];
  };
  const labels = manifest.outputs[0]?.labels ?? [];
  const model = join(folder, "model.onnx");
  return {
    name: "ct-tissue",
    model,
    kind: "tissue",
    labels,
    tensors: 1,
    size: { height: side, width: side },
  };
}

const labelsOf = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ label: `label ${i}`, colour: [213, 94, 0] }));

/** From stored values of so many bits to between -1 and 1, shrunk by areas, as the rivals do it. */
const spread = (bits: number): Pick<ImageInput, "interpolation" | "normalisation"> => ({
  interpolation: "area",
  normalisation: { kind: "scale", multiply: 2 / (2 ** bits - 1), add: -1 },
});
const DX_BITS = 12;

/**
 * Makes the draft a final model, which may write DICOM objects: with codes and a canary of this
 * machine's CPU.
 */
async function finish(folder: string, side: number): Promise<void> {
  const path = join(folder, "model.json");
  const modelPath = join(folder, "model.onnx");
  const manifest = JSON.parse(readFileSync(path, "utf8")) as Manifest;
  const shape = [1, 1, side, side];
  const feed = {
    dtype: "float32" as const,
    shape,
    data: new Uint8Array(plainInput(side, side).buffer),
  };
  const engine = createEngine({ provider: "cpu" });
  const { name, version, outputs, batching } = manifest;
  const inputs = imageInputs(manifest).map((one) => ({ ...one, ...spread(DX_BITS) }));
  const { id } = await engine.load({
    modelPath,
    name,
    version,
    inputs,
    outputs,
    provider: "cpu",
    batching,
  });
  const [output] = await engine.runTensors(id, [{ name: "x", ...feed }]);
  await engine.close();
  const write = (file: string, bytes: Uint8Array) => {
    writeFileSync(join(folder, file), bytes);
    return { path: file, sha256: sha256(bytes) };
  };
  const canary: Manifest["canary"] = {
    input: write("x.npy", encodeNpy(feed)),
    expected: [{ tensor: "y", file: write("y.npy", encodeNpy(output!)) }],
    tolerance: [{ provider: "cpu", precision: "float32", absolute: 1e-3, relative: 1e-3 }],
  };
  const coded = outputs.map((one) =>
    one.kind === "classification"
      ? {
          ...one,
          labels: one.labels.map((each, i) => ({
            ...each,
            code: { value: String(i), scheme: "99BENCH", meaning: each.label },
          })),
        }
      : one,
  );
  const results = { outputs: ["json", "png", "sr", "sc"] };
  writeFileSync(
    path,
    JSON.stringify({ ...manifest, stage: "final", inputs, outputs: coded, canary, results }),
  );
}

export async function denseNet(directory: string): Promise<RivalModel> {
  mkdirSync(directory, { recursive: true });
  const { graph } = writeFolder(directory, "densenet121");
  const side = 224;
  await finish(join(directory, "densenet121"), side);
  const common = {
    name: "densenet121",
    model: graph,
    kind: "scores",
    labels: labelsOf(LABELS),
    side,
  } as const;
  return { ...common, tensors: 1, size: { height: side, width: side } };
}

function write(directory: string, graph: Uint8Array, manifest: { name: string }): string {
  const folder = join(directory, manifest.name);
  mkdirSync(folder, { recursive: true });
  const model = join(folder, "model.onnx");
  writeFileSync(model, graph);
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
  return model;
}

/** A small network that scores each frame of a cine. */
export function frameScores(directory: string, frames: number): RivalModel {
  const graph = smallCnn();
  const side = 256;
  const size = { kind: "fixed", height: side, width: side };
  const manifest = {
    ...manifestOf("small_cnn", sha256(graph), "1.0.0"),
    name: "frame-scores",
    accepts: { formats: ["dicom"], modality: ["US"], dimensions: "2d_frames" },
    inputs: [{ ...input, ...spread(8), size, fit: "stretch" }],
  };
  const model = write(directory, graph, manifest);
  const common = {
    name: manifest.name,
    model,
    kind: "frames",
    labels: labelsOf(LABELS),
    side,
  } as const;
  return { ...common, tensors: frames, size: { height: side, width: side } };
}

/** A small network that gives each voxel of a series a label. */
export function voxelLabels(directory: string, depth: number, side: number): RivalModel {
  const graph = smallSegmenter3d();
  const labels = Array.from({ length: VOLUME_CLASSES - 1 }, (_, i) => ({
    label: `label ${i + 1}`,
  }));
  const manifest = {
    ...manifestOf("small_cnn", sha256(graph), "1.0.0"),
    name: "voxel-labels",
    accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "series" },
    inputs: [
      { ...input, layout: "NCDHW", fit: "none", monochrome1: "refuse", size: { kind: "source" } },
    ],
    outputs: [
      {
        kind: "segmentation",
        tensor: "y",
        activation: "argmax",
        labels,
        postprocess: [],
        measurements: ["volume"],
      },
    ],
    batching: { max: 1 },
  };
  const model = write(directory, graph, manifest);
  const common = { name: manifest.name, model, kind: "volume", labels } as const;
  return { ...common, tensors: 1, size: { height: side, width: side, depth } };
}
