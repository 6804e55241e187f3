/**
 * Builds models/burned-in-text's canary: the picture, and what the network makes of it on this
 * machine's CPU. The expected output is to be looked at before it is committed: it is what every
 * other machine is compared with. `npm run build && node dist/scripts/build-canary.js`
 */
import { createEngine } from "../src/engine/engine.js";
import { graphPaths, readModelFolder } from "../src/models/read.js";
import { encodeNpy } from "../src/engine/npy.js";
import { isMain, modelFolder, writeModelFiles } from "./lib/model-folder.js";
import { textCanaryInput } from "./lib/text-canary.js";

/** Both files of the canary, by their paths in the folder. */
export async function textCanaryFiles(folder: string): Promise<Record<string, Uint8Array>> {
  const manifest = (await readModelFolder(folder)).model?.manifest;
  if (manifest?.inputs[0] === undefined)
    throw new Error("burned-in-text/model.json does not obey its schema");
  const { name, version, inputs, outputs, batching } = manifest;
  const engine = createEngine({ provider: "cpu" });
  try {
    const [modelPath] = await graphPaths(folder, manifest);
    const { id } = await engine.load({
      modelPath,
      name,
      version,
      inputs,
      outputs,
      provider: "cpu",
      batching,
    });
    const input = textCanaryInput();
    const [map] = await engine.runTensors(id, [{ name: manifest.inputs[0].tensor, ...input }]);
    if (map === undefined) throw new Error("The graph gave no output");
    return { "canary/x.npy": encodeNpy(input), "canary/map.npy": encodeNpy(map) };
  } finally {
    await engine.close();
  }
}

if (isMain(import.meta.url)) {
  const folder = modelFolder("burned-in-text");
  writeModelFiles(folder, await textCanaryFiles(folder));
}
