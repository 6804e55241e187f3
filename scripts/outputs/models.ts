/**
 * The folder of models that the recordings run: those that ship, and those of the tests with a
 * canary each.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import { encodeNpy } from "../../src/engine/npy.js";
import { ELEMENT_TYPES, type Tensor } from "../../src/base/tensor.js";
import { sha256 } from "../../src/files/durable-files.js";
import { imageInputs, type ImageInput, type Manifest } from "../../src/manifest/manifest.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { copyModel } from "../../test/support/manifests.js";
import { loadTestModel, TEST_MODELS } from "../../test/support/test-models.js";
import { writeVolumeModel } from "../../test/support/volume-model.js";

const SHIPPED = ["burned-in-text", "ct-tissue"] as const;
const CANARY_SIDE = 16;
/** Of all images that the cases send: a manifest has to name the modalities of its DICOM images. */
const MODALITIES = "CR CT DX ES GM IO MG MR NM OP OT PT PX RF SC SM US XA XC".split(" ");

export interface ModelNames {
  /** Models that take an image or its frames one by one. */
  flat: string[];
  /** Models that take a whole series. */
  deep: string[];
}

export async function writeModels(directory: string): Promise<ModelNames> {
  for (const name of SHIPPED) copyModel(directory, name, name);
  writeVolumeModel(directory, "test-bright");
  const names: ModelNames = { flat: [...SHIPPED], deep: ["test-bright"] };
  const engine = createEngine({ provider: "cpu" });
  const graphs = mkdtempSync(join(tmpdir(), "radserve-outputs-graphs-"));
  const write = async (graph: string, entry: ModelEntry) => {
    await writeTestModel(directory, engine, join(graphs, `${graph}.onnx`), entry);
    names[entry.manifest.accepts.dimensions === "series" ? "deep" : "flat"].push(entry.name);
  };
  try {
    for (const name of TEST_MODELS) await write(name, await loadTestModel(engine, graphs, name));
  } finally {
    await engine.close();
    rmSync(graphs, { recursive: true });
  }
  return names;
}

async function writeTestModel(
  directory: string,
  engine: Engine,
  graph: string,
  { manifest, nativeId }: ModelEntry,
): Promise<void> {
  const [input] = imageInputs(manifest);
  if (input === undefined || nativeId === undefined)
    throw new Error(`${manifest.name} is not loaded`);
  const folder = join(directory, manifest.name);
  mkdirSync(join(folder, "canary"), { recursive: true });
  const write = (path: string, bytes: Uint8Array) => {
    writeFileSync(join(folder, path), bytes);
    return { path, sha256: sha256(bytes) };
  };
  const feed = canaryInput(input);
  const outputs = await engine.runTensors(nativeId, [feed]);
  const canary: Manifest["canary"] = {
    input: write("canary/in.npy", encodeNpy(feed)),
    expected: outputs.map((output) => ({
      tensor: output.name,
      file: write(`canary/${output.name}.npy`, encodeNpy(output)),
    })),
    tolerance: [{ provider: "cpu", precision: "float32", absolute: 1e-4, relative: 1e-4 }],
  };
  const files = [write("model.onnx", readFileSync(graph))];
  const accepts = { ...manifest.accepts, modality: MODALITIES };
  writeFileSync(
    join(folder, "model.json"),
    JSON.stringify({ ...manifest, accepts, files, canary }, null, 2),
  );
}

/** A ramp from 0 to 1. */
function canaryInput({ tensor, dtype, layout, size }: ImageInput): Tensor {
  const [height, width] =
    size.kind === "fixed" ? [size.height, size.width] : ([CANARY_SIDE, CANARY_SIDE] as const);
  const shape = layout === "NCDHW" ? [1, 1, 2, height, width] : [1, 1, height, width];
  const count = shape.reduce((a, b) => a * b, 1);
  if (ELEMENT_TYPES[dtype].bytes !== 4)
    throw new Error(`Expected a model of float32, found ${dtype}`);
  const values = Float32Array.from({ length: count }, (_, i) => i / count);
  return { name: tensor, dtype, shape, data: new Uint8Array(values.buffer) };
}
