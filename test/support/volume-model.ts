/**
 * A model of whole series that can be checked by hand: a voxel is marked where its value is 100 or
 * more.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { sha256 } from "../../src/files/durable-files.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import { shipped } from "./manifests.js";

const FIRST_MARKED = 100;

/** Writes the model's folder into a directory of models. */
export function writeVolumeModel(
  directory: string,
  name: string,
  change: (manifest: Manifest) => unknown = () => 0,
) {
  const folder = join(directory, name);
  mkdirSync(folder, { recursive: true });
  const shape = ["batch", 1, "slices", "rows", "columns"];
  const graph = onnxModel({
    name,
    inputs: [{ name: "x", dtype: "float32", shape }],
    outputs: [{ name: "mask", dtype: "uint8", shape }],
    nodes: [
      { op: "GreaterOrEqual", inputs: ["x", "first"], outputs: ["is"] },
      { op: "Where", inputs: ["is", "one", "none"], outputs: ["mask"] },
    ],
    initializers: [
      { name: "first", dtype: "float32", shape: [], data: [FIRST_MARKED] },
      { name: "one", dtype: "uint8", shape: [], data: [1] },
      { name: "none", dtype: "uint8", shape: [], data: [0] },
    ],
    doc: "Marks bright voxels",
  });
  writeFileSync(join(folder, "model.onnx"), graph);
  const base = shipped("examples/brain-tissue-3d");
  const [input] = imageInputs(base);
  const manifest: Manifest = {
    ...base,
    name,
    release: "active",
    required: false,
    files: [{ path: "model.onnx", sha256: sha256(graph) }],
    accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "series" },
    envelope: [],
    inputs: [
      {
        tensor: "x",
        dtype: "float32",
        layout: "NCDHW",
        size: { kind: "source" },
        fit: "none",
        interpolation: "linear",
        values: { kind: "modality" },
        monochrome1: "refuse",
        channels: "grayscale",
        colour_source: "refuse",
        normalisation: { kind: "none" },
        background: input?.background ?? 0,
      },
    ],
    outputs: [
      {
        kind: "segmentation",
        tensor: "mask",
        activation: "label_map",
        labels: [{ label: "bright" }],
        postprocess: [],
        measurements: ["volume"],
      },
    ],
  };
  change(manifest);
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
}
